//! Several nodes on one PostgreSQL: who works on what, and what the others see of it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use stepgate_core::digest::Digest;
use stepgate_core::ids::{RunId, SessionId};
use stepgate_core::journal::StateCode;
use stepgate_core::ports::{
    Announcement, ApprovalQuery, Approvals, Audits, EventQuery, Events, Locks, Node, Nodes,
    RunQuery, Runs, Sessions, Store, StoreError, Unreached, Writes,
};
use stepgate_core::session::{Head, Session, SessionKind};
use stepgate_store::{PostgresOptions, PostgresStore};
use uuid::Uuid;

use crate::desk::{Desk, LOCK_WAIT, agent, at};
use crate::server;

const PATIENCE: Duration = Duration::from_secs(30);

/// A schema with nodes on it.
pub(crate) struct House {
    schema: String,
}

impl House {
    pub(crate) fn new() -> Self {
        Self { schema: server::fresh_schema() }
    }

    pub(crate) async fn node(&self, name: &str) -> Arc<PostgresStore> {
        self.node_with(PostgresOptions { node_id: name.into(), ..PostgresOptions::default() }).await
    }

    async fn node_with(&self, options: PostgresOptions) -> Arc<PostgresStore> {
        let options = PostgresOptions { lock_wait: 10 * LOCK_WAIT, ..options };
        let store = PostgresStore::open(&server::url_of(&self.schema), options).await.unwrap();
        Arc::new(store)
    }

    pub(crate) fn sql(&self, sql: &str) -> String {
        let sql = format!("SET search_path = {}; {sql}", self.schema);
        server::shared().sql("postgres", &sql).unwrap()
    }

    /// Makes a node's lease end now, as if it had been silent for so long. It notices at its next renewal.
    fn expire(&self, name: &str) {
        let sql = "UPDATE nodes SET expires_at = clock_timestamp()";
        self.sql(&format!("{sql} WHERE node_id = '{name}'"));
    }

    fn epoch(&self, run_id: RunId) -> String {
        self.sql(&format!("SELECT epoch FROM tool_runs WHERE tool_run_id = '{run_id}'"))
    }
}

pub(crate) async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while !is_so().await {
        assert!(tokio::time::Instant::now() < deadline, "{what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn code<T: std::fmt::Debug>(answer: Result<T, StoreError>) -> StateCode {
    match answer {
        Err(StoreError::State(error)) => error.code,
        other => panic!("{other:?}"),
    }
}

/// The same session on another node.
fn on(node: &Arc<PostgresStore>, desk: &Desk) -> Desk {
    Desk { store: Arc::clone(node) as _, ..desk.clone() }
}

#[tokio::test]
async fn a_run_that_a_living_node_works_on_is_left_to_it() {
    let house = House::new();
    let (first, second) = (house.node("first").await, house.node("second").await);
    let desk = Desk::open(first.clone()).await;
    let mut step = desk.step();
    first.lock_new_trace(step.id()).await.unwrap();
    first.commit(step.opening()).await.unwrap();
    assert_eq!(second.unfinished_runs().await, Ok(vec![]));
    assert_eq!(first.unfinished_runs().await, Ok(vec![step.id()]));
    let refused = second.acquire_trace_lock(step.id()).await;
    assert_eq!(code(refused), StateCode::LockAcquireFailed);
    let closing = step.closing();
    let before = first.dossier(step.id()).await;
    let fenced = second.commit(closing.clone()).await;
    assert_eq!(code(fenced), StateCode::ConcurrentExecution);
    assert_eq!(first.dossier(step.id()).await, before);
    assert_eq!(first.commit(closing).await, Ok(()));
    first.release_trace_lock(step.id()).await.unwrap();
    assert_eq!(house.epoch(step.id()), "1");
}

#[tokio::test]
async fn a_run_that_is_let_go_is_anybodys() {
    let house = House::new();
    let (first, second) = (house.node("first").await, house.node("second").await);
    let desk = Desk::open(first.clone()).await;
    let mut step = desk.step();
    first.lock_new_trace(step.id()).await.unwrap();
    first.commit(step.opening()).await.unwrap();
    first.release_trace_lock(step.id()).await.unwrap();
    assert_eq!(second.unfinished_runs().await, Ok(vec![step.id()]));
    second.acquire_trace_lock(step.id()).await.unwrap();
    let refused = first.acquire_trace_lock(step.id()).await;
    assert_eq!(code(refused), StateCode::LockAcquireFailed);
    second.commit(step.closing()).await.unwrap();
    second.release_trace_lock(step.id()).await.unwrap();
    assert_eq!(house.epoch(step.id()), "2");
    // It is over: there is nothing to keep from anybody.
    first.acquire_trace_lock(step.id()).await.unwrap();
}

#[tokio::test]
async fn a_paused_run_is_decided_on_any_node() {
    let house = House::new();
    let (first, second) = (house.node("first").await, house.node("second").await);
    let desk = Desk::open(first.clone()).await;
    let mut step = desk.step();
    first.lock_new_trace(step.id()).await.unwrap();
    let (pausing, asked) = step.pausing();
    first.commit(pausing).await.unwrap();
    second.acquire_trace_lock(step.id()).await.unwrap();
    second.commit(step.granting(&asked).0).await.unwrap();
    second.commit(step.closing()).await.unwrap();
    second.release_trace_lock(step.id()).await.unwrap();
    first.release_trace_lock(step.id()).await.unwrap();
    assert_eq!(first.unfinished_runs().await, Ok(vec![]));
}

#[tokio::test]
async fn a_node_whose_lease_has_lapsed_is_fenced_out_and_its_run_taken_over() {
    let house = House::new();
    let patient = PostgresOptions { lease: Duration::from_secs(600), ..PostgresOptions::default() };
    let paused =
        house.node_with(PostgresOptions { node_id: "paused".into(), ..patient.clone() }).await;
    let other = house.node_with(PostgresOptions { node_id: "other".into(), ..patient }).await;
    let desk = Desk::open(paused.clone()).await;
    let (mut step, mut second) = (desk.step(), desk.step());
    for step in [&mut step, &mut second] {
        paused.lock_new_trace(step.id()).await.unwrap();
        paused.commit(step.opening()).await.unwrap();
    }
    assert_eq!(other.has_stray_runs().await, Ok(false));
    house.expire("paused");
    assert_eq!(other.has_stray_runs().await, Ok(true));
    assert_eq!(other.unfinished_runs().await, Ok(vec![step.id(), second.id()]));

    other.acquire_trace_lock(step.id()).await.unwrap();
    assert_eq!(house.epoch(step.id()), "2");
    let closing = step.closing();
    // The node that comes back knows nothing of it, and trusts its memory.
    let fenced = paused.commit(closing.clone()).await;
    assert_eq!(code(fenced), StateCode::ConcurrentExecution);
    assert_eq!(other.commit(closing.clone()).await, Ok(()));
    let late = paused.commit(closing).await;
    assert_eq!(code(late), StateCode::ConcurrentExecution);
    other.release_trace_lock(step.id()).await.unwrap();
    // What nobody took over is still its own to end.
    assert_eq!(paused.commit(second.closing()).await, Ok(()));
    assert_eq!(other.has_stray_runs().await, Ok(false));
}

#[tokio::test]
async fn a_step_of_a_batch_that_is_fenced_out_harms_no_other() {
    let house = House::new();
    let (first, second) = (house.node("first").await, house.node("second").await);
    let desk = Desk::open(first.clone()).await;
    let mut steps = Vec::new();
    for number in 0..12 {
        let mut step = desk.step();
        first.commit(step.opening()).await.unwrap();
        if number % 3 == 0 {
            house.sql(&format!(
                "UPDATE tool_runs SET owner = NULL WHERE tool_run_id = '{}'",
                step.id()
            ));
            second.acquire_trace_lock(step.id()).await.unwrap();
        }
        steps.push((number, step));
    }
    let mut tasks = Vec::new();
    for (number, mut step) in steps {
        let first = first.clone();
        tasks.push(tokio::spawn(async move { (number, first.commit(step.closing()).await) }));
    }
    for task in tasks {
        match task.await.unwrap() {
            (number, Err(error)) => {
                assert_eq!(
                    (number % 3, code::<()>(Err(error))),
                    (0, StateCode::ConcurrentExecution)
                );
            }
            (number, Ok(())) => assert_ne!(number % 3, 0),
        }
    }
}

/// Renewals of a node are done, and nobody sees them before the gate is open.
const STALLED_RENEWALS: &str =
    "CREATE TABLE gate (is_open boolean); INSERT INTO gate VALUES (false);
    CREATE FUNCTION stall() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
      WHILE NOT (SELECT is_open FROM gate) LOOP PERFORM pg_sleep(0.02); END LOOP;
      RETURN NULL;
    END $$;
    CREATE CONSTRAINT TRIGGER stall AFTER UPDATE ON nodes DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
      WHEN (NEW.node_id = 'stalled' AND OLD.expires_at < NEW.expires_at) EXECUTE FUNCTION stall()";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renewal_that_is_not_committed_yet_keeps_the_run_from_others_or_loses_it() {
    let house = House::new();
    let options = PostgresOptions {
        node_id: "stalled".into(),
        lease: Duration::from_secs(4),
        ..PostgresOptions::default()
    };
    let (stalled, other) = (house.node_with(options).await, house.node("rival").await);
    let desk = Desk::open(stalled.clone()).await;
    let mut step = desk.step();
    stalled.lock_new_trace(step.id()).await.unwrap();
    stalled.commit(step.opening()).await.unwrap();
    let before = other.nodes().await.unwrap();
    let number = |nodes: &[Node]| {
        let of_it = nodes.iter().filter(|node| node.node_id == "stalled");
        of_it.map(|node| node.incarnation).max()
    };
    house.sql(STALLED_RENEWALS);
    until("the lease does not lapse", async || other.has_stray_runs().await.unwrap()).await;
    let run_id = step.id();
    let taking = {
        let other = other.clone();
        tokio::spawn(async move { other.acquire_trace_lock(run_id).await })
    };
    let waits = "SELECT count(*) FROM pg_stat_activity
                 WHERE application_name = 'stepgate rival' AND wait_event_type = 'Lock'";
    until("the other node neither waits nor takes the run", async || {
        taking.is_finished() || house.sql(waits) != "0"
    })
    .await;
    assert!(!taking.is_finished(), "the run was taken while its node renewed its lease");
    house.sql("UPDATE gate SET is_open = true");
    // The answer came when the old lease was over: whoever was told of it before would have the run.
    until("the node believes a late answer", async || {
        number(&other.nodes().await.unwrap()) > number(&before)
    })
    .await;
    assert_eq!(code(stalled.may_dispatch(run_id).await), StateCode::ConcurrentExecution);
    // Another node may have it when the lease is over that the renewal gave.
    if taking.await.unwrap().is_err() {
        until("the run is nobody's", async || other.acquire_trace_lock(run_id).await.is_ok()).await;
    }
    assert_eq!(other.may_dispatch(run_id).await, Ok(()));
    assert_eq!(house.epoch(run_id), "2");
}

/// The other half: a renewal that is sent before a takeover and arrives after it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_takeover_ends_the_lease_for_good() {
    let house = House::new();
    let patient = PostgresOptions { lease: Duration::from_secs(600), ..PostgresOptions::default() };
    let paused = house.node_with(PostgresOptions { node_id: "paused".into(), ..patient }).await;
    let other = house.node("other").await;
    let desk = Desk::open(paused.clone()).await;
    let mut step = desk.step();
    paused.lock_new_trace(step.id()).await.unwrap();
    paused.commit(step.opening()).await.unwrap();
    house.expire("paused");
    let before = house.sql("SELECT ctid FROM nodes WHERE node_id = 'paused'");
    other.acquire_trace_lock(step.id()).await.unwrap();
    // A row that is written again is looked at again by whoever waits for it.
    assert_ne!(house.sql("SELECT ctid FROM nodes WHERE node_id = 'paused'"), before);
    paused.renew_lease().await.unwrap();
    assert_eq!(code(paused.may_dispatch(step.id()).await), StateCode::ConcurrentExecution);
}

#[tokio::test]
async fn a_call_is_sent_only_while_the_lease_leaves_a_margin() {
    let house = House::new();
    let options = PostgresOptions {
        node_id: "short".into(),
        lease: Duration::from_secs(6),
        dispatch_margin: Duration::from_millis(200),
        ..PostgresOptions::default()
    };
    let node = house.node_with(options).await;
    let desk = Desk::open(node.clone()).await;
    let mut step = desk.step();
    node.lock_new_trace(step.id()).await.unwrap();
    node.commit(step.opening()).await.unwrap();
    assert_eq!(node.may_dispatch(step.id()).await, Ok(()));
    // Its next renewal finds the lease gone: it is another incarnation from then on.
    house.expire("short");
    let mut refused = Ok(());
    until("the node did not notice", async || {
        refused = node.may_dispatch(step.id()).await;
        refused.is_err()
    })
    .await;
    assert_eq!(code(refused), StateCode::ConcurrentExecution);
    // It can take its own run over like any other node.
    node.release_trace_lock(step.id()).await.unwrap();
    node.acquire_trace_lock(step.id()).await.unwrap();
    assert_eq!(node.may_dispatch(step.id()).await, Ok(()));
    assert_eq!(node.commit(step.closing()).await, Ok(()));
    assert_eq!(node.nodes().await.unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_follows_events_never_misses_one_that_came_late() {
    let house = House::new();
    let first = house.node("first").await;
    let desk = Desk::open(first.clone()).await;
    let mut tasks = Vec::new();
    for number in 0..3 {
        let desk = on(&house.node(&format!("writer {number}")).await, &desk);
        tasks.push(tokio::spawn(async move {
            let mut sharing = Vec::new();
            for _ in 0..30 {
                let desk = desk.clone();
                sharing.push(tokio::spawn(async move { desk.finished().await.id() }));
            }
            for step in sharing {
                step.await.unwrap();
            }
        }));
    }
    // Two sessions' openings, and two events for each step.
    let expected: u64 = 2 + 3 * 30 * 2;
    let mut seen = 0;
    until("events are missing", async || {
        let query = EventQuery { after: seen, limit: 7, ..EventQuery::default() };
        for placed in first.events(query).await.unwrap() {
            // Without a gap, so nothing can come in between any more.
            assert_eq!(placed.position, seen + 1);
            seen = placed.position;
        }
        seen == expected
    })
    .await;
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(first.counts().await.unwrap().events, expected);
    // The chain of the session that all three wrote in is whole.
    let mut links = BTreeMap::new();
    let everything = EventQuery { limit: 1000, ..EventQuery::default() };
    for placed in first.events(everything).await.unwrap() {
        let Some(run_id) = placed.event.run_id else { continue };
        let dossier = first.dossier(run_id).await.unwrap().unwrap();
        let close = dossier.record.map(|(_, link)| link);
        for link in dossier.open_link.into_iter().chain(close) {
            let there = links.insert(link.number, link);
            assert!(there.is_none_or(|there| there == link), "two links have one number");
        }
    }
    assert_eq!(links.len(), 3 * 30 * 2);
    let mut head = Head::EMPTY;
    for (number, link) in links {
        assert_eq!((number, link.prev), (head.number + 1, head.digest));
        head = link.head();
    }
    assert_eq!(desk.head().await, head);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn step_indexes_are_given_once_whatever_node_gives_them() {
    let house = House::new();
    let first = house.node("first").await;
    let desk = Desk::open(first.clone()).await;
    let nodes = [first, house.node("second").await];
    let mut highest = 0;
    for _ in 0..3 {
        for node in &nodes {
            let next = node.next_step_index(desk.session).await.unwrap();
            assert_eq!(next, highest + 1, "they increase, also from node to node");
            highest = next;
        }
    }
    let mut tasks = Vec::new();
    for number in 0..60 {
        let node = nodes[number % 2].clone();
        tasks.push(tokio::spawn(async move { node.next_step_index(desk.session).await }));
    }
    let mut given = BTreeSet::new();
    for task in tasks {
        assert!(given.insert(task.await.unwrap().unwrap()));
    }
    assert_eq!(
        given.into_iter().collect::<Vec<_>>(),
        (highest + 1..=highest + 60).collect::<Vec<_>>()
    );
}

#[tokio::test]
async fn a_decision_on_one_node_is_heard_on_another() {
    let house = House::new();
    let (waiting, deciding) = (house.node("waiting").await, house.node("deciding").await);
    let desk = Desk::open(waiting.clone()).await;
    let hearing = tokio::spawn(async move {
        let mut told = Vec::new();
        while told.len() < 2 {
            match waiting.elsewhere().await {
                Announcement::More | Announcement::Asked(_) => {}
                telling @ (Announcement::Decided(_) | Announcement::Ended(_)) => told.push(telling),
            }
        }
        told
    });
    // Nobody says when the server begins to tell, so it is told again until it is heard.
    let mut decided = Vec::new();
    until("nothing was heard", async || {
        let mut step = desk.step();
        let (pausing, asked) = step.pausing();
        desk.store.commit(pausing).await.unwrap();
        deciding.acquire_trace_lock(step.id()).await.unwrap();
        deciding.commit(step.granting(&asked).0).await.unwrap();
        deciding.commit(step.closing()).await.unwrap();
        deciding.release_trace_lock(step.id()).await.unwrap();
        decided.push(step.id());
        hearing.is_finished()
    })
    .await;
    let told = hearing.await.unwrap();
    let (Announcement::Decided(run_id) | Announcement::Ended(run_id)) = told[0] else {
        panic!("{told:?}");
    };
    assert!(decided.contains(&run_id));
    if told[0] == Announcement::Decided(run_id) {
        assert_eq!(told[1], Announcement::Ended(run_id));
    }
}

/// Whoever is told something all the time still looks for what nobody tells, tokens that were revoked above all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn decisions_that_keep_coming_keep_nobody_from_looking() {
    let house = House::new();
    let (waiting, deciding) = (house.node("waiting").await, house.node("deciding").await);
    let desk = Desk::open(deciding.clone()).await;
    let mut told = 0;
    let mut looked = false;
    let mut heard = waiting.elsewhere().await;
    until("nobody looks while decisions come", async || {
        let mut step = desk.step();
        let (pausing, asked) = step.pausing();
        deciding.commit(pausing).await.unwrap();
        deciding.acquire_trace_lock(step.id()).await.unwrap();
        deciding.commit(step.granting(&asked).0).await.unwrap();
        deciding.release_trace_lock(step.id()).await.unwrap();
        match heard {
            Announcement::Asked(_) => {}
            Announcement::More => looked = told > 0,
            Announcement::Decided(_) | Announcement::Ended(_) => told += 1,
        }
        // There is always one more to hear: it is told as soon as the next one is decided.
        heard = tokio::time::timeout(PATIENCE, waiting.elsewhere()).await.unwrap();
        looked
    })
    .await;
}

#[tokio::test]
async fn a_decision_is_heard_also_where_the_schema_has_a_long_name() {
    let schema = format!("{}_{}", server::fresh_schema(), "x".repeat(57));
    server::shared().sql("postgres", &format!("CREATE SCHEMA {schema}")).unwrap();
    let house = House { schema };
    let (waiting, deciding) = (house.node("waiting").await, house.node("deciding").await);
    let desk = Desk::open(deciding.clone()).await;
    let hearing =
        tokio::spawn(async move { while waiting.elsewhere().await == Announcement::More {} });
    until("nothing was heard", async || {
        let mut step = desk.step();
        let (pausing, asked) = step.pausing();
        deciding.commit(pausing).await.unwrap();
        deciding.acquire_trace_lock(step.id()).await.unwrap();
        deciding.commit(step.granting(&asked).0).await.unwrap();
        deciding.release_trace_lock(step.id()).await.unwrap();
        hearing.is_finished()
    })
    .await;
}

/// What nobody tells is found by looking.
#[tokio::test]
async fn whatever_another_node_writes_is_noticed() {
    let house = House::new();
    let (waiting, writing) = (house.node("waiting").await, house.node("writing").await);
    let desk = Desk::open(writing).await;
    assert_eq!(tokio::time::timeout(PATIENCE, waiting.elsewhere()).await, Ok(Announcement::More));
    desk.finished().await;
    assert_eq!(tokio::time::timeout(PATIENCE, waiting.elsewhere()).await, Ok(Announcement::More));
}

/// As after a backup was restored, or a replica took over that lacks the last commits.
#[tokio::test]
async fn a_node_that_the_server_has_forgotten_registers_again() {
    let house = House::new();
    let short = PostgresOptions { lease: Duration::from_secs(4), ..PostgresOptions::default() };
    let node = house.node_with(short).await;
    let desk = Desk::open(node.clone()).await;
    house.sql("DELETE FROM nodes");
    let (mut step, mut answer) = (desk.step(), Ok(()));
    let opening = step.opening();
    until("the node did not register again", async || {
        answer = node.commit(opening.clone()).await;
        match &answer {
            Err(StoreError::Unavailable(why)) => assert!(why.contains("registers again"), "{why}"),
            Err(other) => panic!("{other}"),
            Ok(()) => {}
        }
        answer.is_ok()
    })
    .await;
    assert_eq!(node.commit(step.closing()).await, Ok(()));
}

/// As a node of the next version does when it starts beside one that runs.
#[tokio::test]
async fn a_migration_does_not_stop_nodes_that_run() {
    let house = House::new();
    let node = house.node("running").await;
    let desk = Desk::open(node.clone()).await;
    let everything = async || {
        let mut step = desk.step();
        let (pausing, asked) = step.pausing();
        node.commit(pausing).await?;
        node.acquire_trace_lock(step.id()).await?;
        node.commit(step.granting(&asked).0).await?;
        node.commit(step.closing()).await?;
        node.release_trace_lock(step.id()).await?;
        node.next_step_index(desk.session).await?;
        node.binding(&step.key).await?.unwrap();
        node.load_state(step.id()).await?.unwrap();
        node.load_latest_checkpoint(step.id()).await?.unwrap();
        node.dossier(step.id()).await?.unwrap();
        node.recall(step.id()).await?.unwrap();
        node.sessions().await?;
        node.approvals(ApprovalQuery { limit: 2, ..ApprovalQuery::default() }).await?;
        node.runs(RunQuery { limit: 2, ..RunQuery::default() }).await?;
        node.runs(RunQuery { limit: 2, principal_id: Some(agent()), ..RunQuery::default() })
            .await?;
        node.events(EventQuery { limit: 2, ..EventQuery::default() }).await?;
        node.loose_events().await?;
        node.nodes().await?;
        node.unreached().await?;
        node.renew_lease().await
    };
    assert_eq!(everything().await, Ok(()));
    for table in "nodes sessions tool_runs chunks approvals events effects \
                  sealed_payloads step_indexes"
        .split(' ')
    {
        house.sql(&format!("ALTER TABLE {table} ADD COLUMN of_the_next_version text"));
    }
    assert_eq!(everything().await, Ok(()));
    // Also what no name can help: the same column of another type.
    for (table, column) in [("effects", "tool_server"), ("tool_runs", "ts"), ("sessions", "ts")] {
        house.sql(&format!("DROP TRIGGER IF EXISTS {table}_fixed ON {table}"));
        house.sql(&format!("ALTER TABLE {table} ALTER COLUMN {column} TYPE varchar COLLATE \"C\""));
    }
    assert_eq!(everything().await, Ok(()));
}

#[tokio::test]
async fn nodes_are_listed_with_what_they_work_on_and_the_policies_in_force() {
    let house = House::new();
    let (first, second) = (house.node("first").await, house.node("second").await);
    let desk = Desk::open(first.clone()).await;
    let mut step = desk.step();
    first.commit(step.opening()).await.unwrap();
    let policy = Digest::of_bytes(b"policies");
    second.tell_policy(policy).await.unwrap();
    let nodes = second.nodes().await.unwrap();
    let shown: Vec<_> = nodes
        .iter()
        .map(|node| (node.node_id.as_str(), node.runs, node.policy_hash, node.is_this))
        .collect();
    assert_eq!(shown, [("first", 1, None, false), ("second", 0, Some(policy), true)]);
    assert!(nodes.iter().all(|node| node.lease_left.is_some()));
    house.expire("first");
    let lapsed = second.nodes().await.unwrap();
    assert_eq!((lapsed[0].lease_left, lapsed[0].runs), (None, 1));
    drop(second);
    drop(desk);
    drop(first);
    let third = house.node("third").await;
    until("a node that left is still there", async || {
        let nodes = third.nodes().await.unwrap();
        nodes.iter().all(|node| node.node_id != "second")
    })
    .await;
    assert_eq!(third.unfinished_runs().await, Ok(vec![step.id()]));
    assert_eq!(third.binding(&step.key).await.unwrap().unwrap().trace_id, step.id());
    assert_eq!(third.dossier(RunId::new(Uuid::nil())).await, Ok(None));
}

/// Opens a default session of the agent as this node.
async fn open_default(node: &Arc<PostgresStore>, desk: &Desk) -> Result<Session, StoreError> {
    let there = desk.store.session(desk.session).await.unwrap().unwrap();
    let session = Session {
        session_id: SessionId::new(Uuid::now_v7()),
        kind: SessionKind::Default,
        node_id: node.node_id(),
        ..there
    };
    node.open_session(session, desk.loose_event()).await
}

#[tokio::test]
async fn a_principal_has_a_default_session_on_each_node() {
    let house = House::new();
    let (first, second) = (house.node("first").await, house.node("second").await);
    let desk = Desk::open(first.clone()).await;
    // One of a time without nodes is nobody's.
    assert_eq!(first.default_session_of(&agent()).await, Ok(None));
    let one = open_default(&first, &desk).await.unwrap();
    assert_eq!(one.node_id.as_deref(), Some("first"));
    assert_eq!(second.default_session_of(&agent()).await, Ok(None));
    let other = open_default(&second, &desk).await.unwrap();
    assert_ne!(one.session_id, other.session_id);
    // Whoever opens another one on the same node is answered the one that is there.
    let again = open_default(&first, &desk).await.unwrap();
    assert_eq!((again.session_id, again.node_id), (one.session_id, one.node_id));
    // Also where it is the same node only by its name.
    let namesake = house.node("first").await;
    let found = namesake.default_session_of(&agent()).await.unwrap().unwrap();
    assert_eq!(found.session_id, one.session_id);
    let of_agent = second.sessions().await.unwrap().into_iter();
    assert_eq!(of_agent.filter(|session| session.kind == SessionKind::Default).count(), 3);
}

#[tokio::test]
async fn a_node_that_registers_again_says_again_what_it_reaches_and_what_is_in_force() {
    let house = House::new();
    let node = house.node("first").await;
    let policy = Digest::of_bytes(b"policies");
    node.tell_policy(policy).await.unwrap();
    node.tell_executors(vec!["sandbox@first".into(), "home \"1\"".into()]).await.unwrap();
    let number = node.nodes().await.unwrap()[0].incarnation;
    house.expire("first");
    until("the node does not come back", async || {
        node.nodes().await.unwrap().iter().any(|node| node.incarnation != number)
    })
    .await;
    let nodes = node.nodes().await.unwrap();
    let shown: Vec<_> = nodes.iter().map(|it| (it.policy_hash, &it.executor_ids)).collect();
    assert_eq!(shown, [(Some(policy), &vec!["sandbox@first".to_owned(), "home \"1\"".to_owned()])]);
}

/// A run whose call was sent, and that its node has let go of.
async fn left(node: &Arc<PostgresStore>, desk: &Desk, executor_id: Option<&str>) {
    let mut step = desk.step();
    step.executor_id = executor_id.map(str::to_owned);
    node.lock_new_trace(step.id()).await.unwrap();
    node.commit(step.opening()).await.unwrap();
    node.release_trace_lock(step.id()).await.unwrap();
}

#[tokio::test]
async fn what_waits_for_an_executor_that_no_living_node_reaches_is_counted() {
    let house = House::new();
    let (first, second) = (house.node("first").await, house.node("second").await);
    let desk = Desk::open(first.clone()).await;
    first.tell_executors(vec!["sandbox@first".into(), "home".into()]).await.unwrap();
    second.tell_executors(vec!["home".into()]).await.unwrap();
    for executor_id in [Some("sandbox@first"), Some("sandbox@first"), Some("home"), None] {
        left(&first, &desk, executor_id).await;
    }
    left(&first, &desk, Some("nobody's")).await;
    // One that is held waits as well, where whoever holds it cannot go on.
    let mut held = desk.step();
    held.executor_id = Some("sandbox@first".into());
    first.commit(held.opening()).await.unwrap();
    let since = at(4);
    let waiting = |executor_id: &str, runs, last: Option<&str>| {
        let last_node_id = last.map(str::to_owned);
        Unreached { executor_id: executor_id.into(), runs, since, last_node_id }
    };
    let nobodys = waiting("nobody's", 1, None);
    assert_eq!(second.unreached().await.unwrap(), std::slice::from_ref(&nobodys));
    first.leave().await;
    let expected = [nobodys.clone(), waiting("sandbox@first", 3, Some("first"))];
    assert_eq!(second.unreached().await.unwrap(), expected);
    let namesake = house.node("first").await;
    namesake.tell_executors(vec!["sandbox@first".into()]).await.unwrap();
    assert_eq!(second.unreached().await.unwrap(), [nobodys]);
}

#[tokio::test]
async fn incarnations_that_are_long_gone_and_left_nothing_are_forgotten() {
    let house = House::new();
    let working = house.node("first").await;
    let desk = Desk::open(working.clone()).await;
    let mut step = desk.step();
    working.commit(step.opening()).await.unwrap();
    let mut others = Vec::new();
    for name in ["first", "first", "second", "first"] {
        let node = house.node(name).await;
        node.leave().await;
        others.push(node);
    }
    let old = "UPDATE nodes SET expires_at = clock_timestamp() - interval '25 hours'";
    house.sql(&format!("{old} WHERE incarnation IN (1, 2, 4, 5)"));
    let third = house.node("third").await;
    // One has left a run, one is not gone for so long, and two are the last of their name.
    assert_eq!(
        house.sql("SELECT string_agg(incarnation::text, ' ' ORDER BY incarnation) FROM nodes"),
        "1 3 4 5 6"
    );
    assert_eq!(third.unfinished_runs().await, Ok(vec![step.id()]));
}
