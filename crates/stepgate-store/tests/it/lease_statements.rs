//! PostgreSQL judges some of `stepgate_core::lease` inside its statements, because they must be atomic. Here every
//! case is put before the statement and before the machine, and both must say the same.

use std::sync::Arc;

use stepgate_core::ids::RunId;
use stepgate_core::journal::StateCode;
use stepgate_core::lease::{Claiming, Incarnation, Ownership};
use stepgate_core::ports::{Locks, Nodes as _, Store, Writes};
use stepgate_core::run::Status;
use stepgate_store::{PostgresOptions, PostgresStore};

use crate::desk::{Desk, LOCK_WAIT};
use crate::server;

/// The nodes of the tests, by the numbers that PostgreSQL gives them.
const ME: Incarnation = 1;
const ALIVE: Incarnation = 2;
const LAPSED: Incarnation = 3;
/// A node that the store has forgotten.
const FORGOTTEN: Incarnation = 99;

const OWNERS: [Option<Incarnation>; 5] =
    [None, Some(ME), Some(ALIVE), Some(LAPSED), Some(FORGOTTEN)];

fn is_gone(node: Incarnation) -> bool {
    [LAPSED, FORGOTTEN].contains(&node)
}

struct Nodes {
    schema: String,
    me: Arc<PostgresStore>,
    desk: Desk,
    _others: [Arc<PostgresStore>; 2],
}

impl Nodes {
    async fn new() -> Self {
        let schema = server::fresh_schema();
        let node = async |node_id: &str| {
            let node_id = node_id.into();
            let options =
                PostgresOptions { node_id, lock_wait: LOCK_WAIT, ..PostgresOptions::default() };
            Arc::new(PostgresStore::open(&server::url_of(&schema), options).await.unwrap())
        };
        let me = node("me").await;
        let others = [node("alive").await, node("lapsed").await];
        let desk = Desk::open(me.clone()).await;
        let nodes = Self { schema, me, desk, _others: others };
        nodes.lapse();
        nodes
    }

    fn sql(&self, sql: &str) -> String {
        let sql = format!("SET search_path = {}; {sql}", self.schema);
        server::shared().sql("postgres", &sql).unwrap()
    }

    /// Its next renewal makes it another incarnation, so this one stays lapsed.
    fn lapse(&self) {
        self.sql(&format!(
            "UPDATE nodes SET expires_at = clock_timestamp() WHERE incarnation = {LAPSED}"
        ));
    }

    /// A run of this status and owner.
    async fn run(&self, status: Status, held: Ownership) -> RunId {
        let mut step = self.desk.step();
        self.me.commit(step.opening()).await.unwrap();
        let owner = held.owner.map_or("NULL".to_owned(), |owner| owner.to_string());
        self.sql(&format!(
            "UPDATE tool_runs SET status = '{}', owner = {owner}, epoch = {}
             WHERE tool_run_id = '{}'",
            status.as_str(),
            held.epoch,
            step.id()
        ));
        // The commit left a claim behind, which would be believed.
        self.me.release_trace_lock(step.id()).await.unwrap();
        step.id()
    }

    fn ownership(&self, run_id: RunId) -> Ownership {
        let sql = "SELECT coalesce(owner, 0), epoch FROM tool_runs WHERE tool_run_id =";
        let row = self.sql(&format!("{sql} '{run_id}'"));
        let (owner, epoch) = row.split_once('|').unwrap();
        let owner = Some(owner.parse().unwrap()).filter(|owner| *owner != 0);
        Ownership { owner, epoch: epoch.parse().unwrap() }
    }
}

#[tokio::test]
async fn the_statement_that_claims_a_run_judges_as_the_machine_does() {
    let nodes = Nodes::new().await;
    for (status, owner) in Status::ALL.into_iter().flat_map(|status| OWNERS.map(|it| (status, it)))
    {
        let held = Ownership { owner, epoch: 5 };
        let run_id = nodes.run(status, held).await;
        assert_eq!(nodes.ownership(run_id), held, "{status:?} {owner:?}");
        let claimed = nodes.me.acquire_trace_lock(run_id).await;
        let (is_locked, after) = match held.claimed_by(ME, status, is_gone) {
            Claiming::NothingToClaim => (true, held),
            Claiming::Held => (false, held),
            Claiming::Claimed(claim) => {
                (true, Ownership { owner: Some(claim.incarnation), epoch: claim.epoch })
            }
        };
        match claimed {
            Ok(()) => assert!(is_locked, "{status:?} {owner:?}"),
            Err(stepgate_core::ports::StoreError::State(error)) => {
                assert_eq!(error.code, StateCode::LockAcquireFailed);
                assert!(!is_locked, "{status:?} {owner:?}");
            }
            Err(other) => panic!("{other}"),
        }
        assert_eq!(nodes.ownership(run_id), after, "{status:?} {owner:?}");
    }
}

#[tokio::test]
async fn the_statements_that_look_for_runs_judge_as_the_machine_does() {
    let nodes = Nodes::new().await;
    for (status, owner) in Status::ALL.into_iter().flat_map(|status| OWNERS.map(|it| (status, it)))
    {
        let held = Ownership { owner, epoch: 5 };
        let run_id = nodes.run(status, held).await;
        let is_listed = nodes.me.unfinished_runs().await.unwrap().contains(&run_id);
        let is_over = status.is_final();
        assert_eq!(is_listed, !is_over && held.is_free_for(ME, is_gone), "{status:?} {owner:?}");
        let is_stray = nodes.me.has_stray_runs().await.unwrap();
        assert_eq!(is_stray, !is_over && held.is_stray_for(ME, is_gone), "{status:?} {owner:?}");
        if !is_over {
            nodes
                .sql(&format!("UPDATE tool_runs SET status = 'ok' WHERE tool_run_id = '{run_id}'"));
        }
    }
}

#[tokio::test]
async fn the_statement_that_lets_a_run_go_needs_the_claim_of_its_owner() {
    let nodes = Nodes::new().await;
    for (owner, epoch) in
        [(Some(ME), 6), (Some(ME), 7), (Some(ALIVE), 6), (Some(ALIVE), 7), (None, 6)]
    {
        let run_id = nodes.run(Status::Started, Ownership { owner: None, epoch: 5 }).await;
        nodes.me.acquire_trace_lock(run_id).await.unwrap();
        let mine = nodes.ownership(run_id).claim();
        let held = Ownership { owner, epoch };
        let by = owner.map_or("NULL".to_owned(), |owner| owner.to_string());
        nodes.sql(&format!(
            "UPDATE tool_runs SET owner = {by}, epoch = {epoch} WHERE tool_run_id = '{run_id}'"
        ));
        nodes.me.release_trace_lock(run_id).await.unwrap();
        let expected = if held.claim() == mine { Ownership { owner: None, ..held } } else { held };
        assert_eq!(nodes.ownership(run_id), expected, "{owner:?} {epoch}");
    }
}
