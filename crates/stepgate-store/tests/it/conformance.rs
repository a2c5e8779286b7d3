//! What every engine does.

use std::collections::BTreeMap;
use std::sync::Arc;

use stepgate_core::digest::Digest;
use stepgate_core::event::{self, EventType};
use stepgate_core::ids::{PrincipalId, RunId, SessionId};
use stepgate_core::journal::{ExecutionState, StateCode};
use stepgate_core::ports::{
    Counts, Dossier, LinkedEvent, Recollection, RunQuery, StepCommit, Store, StoreError, Unfinished,
};
use stepgate_core::run::{Run, Status};
use stepgate_core::session::{self, Head, Link, LinkKind, SessionKind};
use stepgate_store::{MemoryStore, PostgresOptions, PostgresStore, SqliteOptions, SqliteStore};
use uuid::Uuid;

use crate::desk::{Desk, LOCK_WAIT, Step, agent, operator};
use crate::server;

/// A store of each engine; SQLite's directory lives as long as the test.
pub(crate) async fn memory() -> ((), Arc<dyn Store>) {
    ((), Arc::new(MemoryStore::with_lock_wait(LOCK_WAIT)))
}

pub(crate) async fn sqlite() -> (tempfile::TempDir, Arc<dyn Store>) {
    let directory = tempfile::tempdir().unwrap();
    let options = SqliteOptions { lock_wait: LOCK_WAIT, ..SqliteOptions::default() };
    let store = SqliteStore::open(&directory.path().join("stepgate.db"), options).unwrap();
    (directory, Arc::new(store))
}

pub(crate) async fn postgres() -> ((), Arc<dyn Store>) {
    let options = PostgresOptions { lock_wait: LOCK_WAIT, ..PostgresOptions::default() };
    ((), Arc::new(PostgresStore::open(&server::fresh_url(), options).await.unwrap()))
}

/// Runs each test over each engine.
macro_rules! over_every_engine {
    ($($test:ident,)*) => {
        over_every_engine!(@engine memory $($test)*);
        over_every_engine!(@engine sqlite $($test)*);
        over_every_engine!(@engine postgres $($test)*);
    };
    (@engine $engine:ident $($test:ident)*) => {
        mod $engine {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $test() {
                    let (_directory, store) = crate::conformance::$engine().await;
                    super::$test(crate::desk::Desk::open(store).await).await;
                }
            )*
        }
    };
}
pub(crate) use over_every_engine;

over_every_engine! {
    a_step_reads_back_as_it_was_committed,
    a_step_that_pauses_reads_back_as_it_was_committed,
    a_step_refused_early_has_a_close_link_alone,
    a_step_committed_at_once_has_a_close_link_alone,
    events_without_open_or_close_have_links_of_their_own,
    a_genesis_after_the_opening_covers_the_stored_arrival,
    the_state_is_the_fold_of_the_journal,
    entries_are_listed_after_a_sequence_number,
    the_latest_checkpoint_has_the_highest_number,
    a_key_is_found_and_settled,
    links_are_dense_under_concurrent_commits,
    a_refused_write_in_a_crowd_harms_no_other,
    a_session_is_opened_once_and_belongs_to_its_principal,
    a_session_is_found_by_principal_and_kind,
    a_store_has_one_system_session_and_each_principal_one_default,
    a_session_knows_the_highest_index_of_its_runs,
    a_run_is_recalled_as_its_dossier_says,
    step_indexes_increase_in_each_session,
    runs_are_listed_newest_first_and_filtered,
    unfinished_runs_are_listed_oldest_first,
    a_run_waits_while_a_person_is_asked_and_nobody_works_on_it,
    no_key_has_two_traces,
    events_of_no_run_are_loose,
    an_event_about_a_run_is_in_its_dossier_whatever_its_session,
    every_row_is_counted,
    a_lock_waits_for_its_release,
    a_lock_is_not_obtained_after_the_wait,
    a_caller_who_leaves_the_queue_does_not_keep_the_lock,
}

/// Replays a session's chain from what each run and event gives, and compares it with the head.
struct Chained {
    session_id: SessionId,
    head: Head,
}

impl Chained {
    fn expect(&mut self, kind: LinkKind, run_id: Option<RunId>, body: Digest) -> Link {
        let link = Link::after(&self.head, self.session_id, kind, run_id, body);
        self.head = link.head();
        link
    }
}

fn chained(desk: &Desk) -> Chained {
    Chained { session_id: desk.session, head: Head::EMPTY }
}

fn open_body(commit: &StepCommit, run: &Run) -> Digest {
    session::open_body(
        commit.entries[0].entry.entry_digest,
        run.arrival_digest(),
        event::digest_of(&commit.events),
    )
}

/// The position of a desk's first event after those that opened its two sessions.
const FIRST: u64 = 3;

/// The events of the first commits of a desk.
fn covered(commits: &[&StepCommit]) -> Vec<LinkedEvent> {
    let events = commits.iter().flat_map(|commit| commit.events.clone());
    let placed = events.zip(FIRST..);
    placed.map(|(event, position)| LinkedEvent { position, event, link: None }).collect()
}

async fn a_step_reads_back_as_it_was_committed(desk: Desk) {
    let mut step = desk.step();
    let opening = step.opening();
    desk.store.commit(opening.clone()).await.unwrap();
    let closing = step.closing();
    desk.store.commit(closing.clone()).await.unwrap();

    let mut chain = chained(&desk);
    let record = closing.record.clone().unwrap();
    let open = chain.expect(LinkKind::Open, Some(step.id()), open_body(&opening, &step.run));
    let close = chain.expect(LinkKind::Close, Some(step.id()), record.digest);
    let expected = Dossier {
        run: Run { status: Status::Ok, ending: Some(record.ending.clone()), ..step.run.clone() },
        entries: [opening.entries.clone(), closing.entries.clone()].concat(),
        open_link: Some(open),
        checkpoints: vec![closing.checkpoint.clone().unwrap()],
        approval: None,
        binding: Some(step.binding(true)),
        events: covered(&[&opening, &closing]),
        sealed: None,
        record: Some((record, close)),
    };
    assert_eq!(desk.store.dossier(step.id()).await.unwrap(), Some(expected));
    assert_eq!(desk.head().await, chain.head);
}

async fn a_step_that_pauses_reads_back_as_it_was_committed(desk: Desk) {
    let mut step = desk.step();
    let (pausing, asked) = step.pausing();
    desk.store.commit(pausing.clone()).await.unwrap();
    let paused = desk.store.dossier(step.id()).await.unwrap().unwrap();
    assert_eq!(paused.run.status, Status::ApprovalRequired);
    assert_eq!(paused.approval, Some(asked.clone()));
    assert_eq!(paused.checkpoints, [pausing.checkpoint.clone().unwrap()]);

    let (granting, decided) = step.granting(&asked);
    desk.store.commit(granting.clone()).await.unwrap();
    let granted = desk.store.dossier(step.id()).await.unwrap().unwrap();
    assert_eq!(granted.run.status, Status::Approved);
    assert_eq!(granted.approval, Some(decided.clone()));
    let approval = desk.store.approval(decided.approval_id).await.unwrap();
    assert_eq!(approval, Some(decided));

    let mut chain = chained(&desk);
    let open = chain.expect(LinkKind::Open, Some(step.id()), open_body(&pausing, &step.run));
    assert_eq!(granted.open_link, Some(open));
    let mut events = covered(&[&pausing]);
    for event in &granting.events {
        let link = chain.expect(LinkKind::Event, Some(step.id()), Digest::of(event));
        let position = FIRST + events.len() as u64;
        events.push(LinkedEvent { position, event: event.clone(), link: Some(link) });
    }
    assert_eq!(granted.events, events);

    let closing = step.closing();
    desk.store.commit(closing.clone()).await.unwrap();
    let ended = desk.store.dossier(step.id()).await.unwrap().unwrap();
    assert_eq!(ended.run.status, Status::Ok);
    assert_eq!(ended.checkpoints.len(), 2);
    assert_eq!(ended.entries.len(), 4);
}

async fn a_step_refused_early_has_a_close_link_alone(desk: Desk) {
    let mut step = desk.step();
    let commit = step.refused_at_once();
    desk.store.commit(commit.clone()).await.unwrap();
    let record = commit.record.clone().unwrap();
    let close = chained(&desk).expect(LinkKind::Close, Some(step.id()), record.digest);
    let dossier = desk.store.dossier(step.id()).await.unwrap().unwrap();
    assert_eq!(dossier.run.status, Status::Error);
    assert_eq!(dossier.run.ending, Some(record.ending.clone()));
    assert_eq!(dossier.record, Some((record, close)));
    assert_eq!(dossier.open_link, None);
    assert_eq!(dossier.events, covered(&[&commit]));
    assert_eq!(desk.head().await, close.head());
}

async fn a_step_committed_at_once_has_a_close_link_alone(desk: Desk) {
    let mut step = desk.step();
    let opening = step.opening();
    let closing = step.closing();
    let commit = StepCommit {
        entries: [opening.entries.clone(), closing.entries.clone()].concat(),
        key: Some(stepgate_core::ports::KeyChange::Bind(step.binding(true))),
        checkpoint: closing.checkpoint.clone(),
        events: [opening.events.clone(), closing.events.clone()].concat(),
        record: closing.record.clone(),
        ..opening
    };
    desk.store.commit(commit.clone()).await.unwrap();
    let record = commit.record.clone().unwrap();
    let close = chained(&desk).expect(LinkKind::Close, Some(step.id()), record.digest);
    let dossier = desk.store.dossier(step.id()).await.unwrap().unwrap();
    assert_eq!(dossier.open_link, None);
    assert_eq!(dossier.record, Some((record, close)));
    assert_eq!(dossier.entries, commit.entries);
    assert_eq!(dossier.binding, Some(step.binding(true)));
    assert_eq!(dossier.events, covered(&[&commit]));
}

async fn events_without_open_or_close_have_links_of_their_own(desk: Desk) {
    let mut step = desk.step();
    let opening = step.opening();
    desk.store.commit(opening.clone()).await.unwrap();
    let redispatch = StepCommit {
        events: vec![
            step.event(EventType::ToolRedispatched),
            step.event(EventType::ToolRedispatched),
        ],
        ..StepCommit::at(step.place())
    };
    desk.store.commit(redispatch.clone()).await.unwrap();
    let mut chain = chained(&desk);
    chain.expect(LinkKind::Open, Some(step.id()), open_body(&opening, &step.run));
    let dossier = desk.store.dossier(step.id()).await.unwrap().unwrap();
    for (event, linked) in redispatch.events.iter().zip(&dossier.events[1..]) {
        let link = chain.expect(LinkKind::Event, Some(step.id()), Digest::of(event));
        assert_eq!(linked.link, Some(link));
    }
    assert_eq!(desk.head().await, chain.head);
    assert_eq!(chain.head.number, 3);
}

async fn a_genesis_after_the_opening_covers_the_stored_arrival(desk: Desk) {
    let mut step = desk.step();
    let opening = step.opening();
    let row_alone = StepCommit { open: opening.open.clone(), ..StepCommit::at(step.place()) };
    desk.store.commit(row_alone).await.unwrap();
    assert_eq!(desk.head().await, Head::EMPTY);
    for entry in opening.entries.clone() {
        let appended = desk.store.append_log_entry(step.place(), entry).await;
        assert_eq!(appended, Ok(()));
    }
    let without_events = StepCommit { events: Vec::new(), ..opening };
    let body = open_body(&without_events, &step.run);
    let open = chained(&desk).expect(LinkKind::Open, Some(step.id()), body);
    let dossier = desk.store.dossier(step.id()).await.unwrap().unwrap();
    assert_eq!(dossier.open_link, Some(open));
    assert_eq!(dossier.entries, without_events.entries);
}

async fn the_state_is_the_fold_of_the_journal(desk: Desk) {
    let mut step = desk.step();
    assert_eq!(desk.store.load_state(step.id()).await, Ok(None));
    desk.store.commit(step.opening()).await.unwrap();
    let state = ExecutionState::of(step.id(), desk.session, step.journal.tail());
    assert_eq!(desk.store.load_state(step.id()).await, Ok(state));
    desk.store.commit(step.closing()).await.unwrap();
    let state = ExecutionState::of(step.id(), desk.session, step.journal.tail());
    assert_eq!(desk.store.load_state(step.id()).await, Ok(state));
    let refused = desk.step().refused_at_once();
    let run_id = refused.place.run_id;
    desk.store.commit(refused).await.unwrap();
    assert_eq!(desk.store.load_state(run_id).await, Ok(None));
}

async fn entries_are_listed_after_a_sequence_number(desk: Desk) {
    let mut step = desk.step();
    let opening = step.opening();
    desk.store.commit(opening.clone()).await.unwrap();
    for after in 0..=4 {
        let listed = desk.store.list_log_entries(step.id(), after).await.unwrap();
        let from = usize::try_from(after).unwrap().min(opening.entries.len());
        assert_eq!(listed, opening.entries[from..]);
    }
    let nobody = RunId::new(Uuid::now_v7());
    assert_eq!(desk.store.list_log_entries(nobody, 0).await, Ok(Vec::new()));
}

async fn the_latest_checkpoint_has_the_highest_number(desk: Desk) {
    let mut step = desk.step();
    let (pausing, asked) = step.pausing();
    let first = pausing.checkpoint.clone();
    desk.store.commit(pausing).await.unwrap();
    let latest = desk.store.load_latest_checkpoint(step.id()).await;
    assert_eq!(latest, Ok(first));
    let (granting, _) = step.granting(&asked);
    desk.store.commit(granting).await.unwrap();
    let second = step.checkpoint();
    desk.store.write_checkpoint(second.clone()).await.unwrap();
    let latest = desk.store.load_latest_checkpoint(step.id()).await;
    assert_eq!(latest, Ok(Some(second)));
}

async fn a_key_is_found_and_settled(desk: Desk) {
    let mut step = desk.step();
    assert_eq!(desk.store.binding(&step.key).await, Ok(None));
    desk.store.commit(step.opening()).await.unwrap();
    let in_flight = desk.store.binding(&step.key).await;
    assert_eq!(in_flight, Ok(Some(step.binding(false))));
    desk.store.commit(step.closing()).await.unwrap();
    let settled = desk.store.binding(&step.key).await;
    assert_eq!(settled, Ok(Some(step.binding(true))));
}

/// The links of a session, by number, from every run in it.
async fn links_of(desk: &Desk) -> BTreeMap<u64, Link> {
    let query = RunQuery { limit: usize::MAX, ..RunQuery::default() };
    let mut links = BTreeMap::new();
    for run in desk.store.runs(query).await.unwrap() {
        let dossier = desk.store.dossier(run.arrival.run_id).await.unwrap().unwrap();
        let close = dossier.record.map(|(_, link)| link);
        let events = dossier.events.into_iter().filter_map(|linked| linked.link);
        for link in dossier.open_link.into_iter().chain(close).chain(events) {
            assert_eq!(links.insert(link.number, link), None);
        }
    }
    links
}

async fn links_are_dense_under_concurrent_commits(desk: Desk) {
    const STEPS: u64 = 40;
    let mut tasks = Vec::new();
    for _ in 0..STEPS {
        let desk = desk.clone();
        tasks.push(tokio::spawn(async move { desk.finished().await }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    let mut before = Head::EMPTY;
    let links = links_of(&desk).await;
    assert_eq!(links.len() as u64, 2 * STEPS);
    for (number, link) in links {
        assert_eq!((number, link.prev), (before.number + 1, before.digest));
        before = link.head();
    }
    assert_eq!(desk.head().await, before);
}

async fn a_refused_write_in_a_crowd_harms_no_other(desk: Desk) {
    let taken = desk.loose_event();
    desk.store.append_event(taken.clone()).await.unwrap();
    let mut tasks = Vec::new();
    for number in 0..60_u32 {
        let (desk, taken) = (desk.clone(), taken.clone());
        tasks.push(tokio::spawn(async move {
            let mut step = desk.step();
            let mut commit = step.opening();
            match number % 3 {
                0 => {}
                1 => commit.entries[1].entry.sequence_number = 9,
                _ => commit.events[0].event_id = taken.event_id,
            }
            (number, step.id(), desk.store.commit(commit).await)
        }));
    }
    for task in tasks {
        let (number, run_id, answer) = task.await.unwrap();
        let code = match answer {
            Ok(()) => None,
            Err(StoreError::State(error)) => Some(error.code),
            Err(other) => panic!("{other}"),
        };
        let expected = match number % 3 {
            0 => None,
            1 => Some(StateCode::SequenceGap),
            _ => Some(StateCode::InvalidTransition),
        };
        assert_eq!(code, expected, "write {number}");
        let is_there = desk.store.dossier(run_id).await.unwrap().is_some();
        assert_eq!(is_there, expected.is_none());
    }
    assert_eq!(desk.head().await.number, 20);
    assert_eq!(links_of(&desk).await.len(), 20);
}

async fn a_session_is_opened_once_and_belongs_to_its_principal(desk: Desk) {
    let before = desk.store.counts().await.unwrap();
    let again = desk.open_session(desk.session, agent(), SessionKind::Default).await.unwrap();
    let there = desk.store.session(desk.session).await.unwrap();
    assert_eq!(there, Some(again));
    let other = desk.open_session(desk.session, operator(), SessionKind::Default).await;
    assert_eq!(other, Err(StoreError::UnknownSession(desk.session)));
    assert_eq!(desk.store.counts().await.unwrap(), before);
    let system = desk.store.session(desk.system).await.unwrap().unwrap();
    assert_eq!(system.head.number, 2);
}

async fn a_session_is_found_by_principal_and_kind(desk: Desk) {
    // Opened last, with the smallest id.
    let old = uuid::Builder::from_unix_timestamp_millis(1, &[7; 10]).into_uuid();
    let named = SessionId::new(old);
    let none = desk.store.session_of(&agent(), SessionKind::Named).await;
    assert_eq!(none, Ok(None));
    desk.open_session(named, agent(), SessionKind::Named).await.unwrap();
    for (kind, expected) in [(SessionKind::Default, desk.session), (SessionKind::Named, named)] {
        let found = desk.store.session_of(&agent(), kind).await;
        assert_eq!(found.unwrap().unwrap().session_id, expected);
    }
    let sessions = desk.store.sessions().await.unwrap();
    let ids: Vec<_> = sessions.iter().map(|session| session.session_id).collect();
    assert_eq!(ids, [named, desk.system, desk.session]);
}

/// The one that is there is answered, or the opening is refused; there are never two.
async fn a_store_has_one_system_session_and_each_principal_one_default(desk: Desk) {
    let newcomer = PrincipalId::parse("newcomer").unwrap();
    let mut tasks = Vec::new();
    for number in 0..16_u32 {
        let (desk, newcomer) = (desk.clone(), newcomer.clone());
        tasks.push(tokio::spawn(async move {
            let fresh = SessionId::new(Uuid::now_v7());
            match number % 2 {
                0 => desk.open_session(fresh, newcomer, SessionKind::Default).await,
                _ => desk.open_session(fresh, operator(), SessionKind::System).await,
            }
        }));
    }
    let mut answers = Vec::new();
    for task in tasks {
        answers.push(task.await.unwrap());
    }
    let theirs = desk.store.session_of(&newcomer, SessionKind::Default).await.unwrap().unwrap();
    for answer in answers {
        match answer {
            Ok(there) => assert!([desk.system, theirs.session_id].contains(&there.session_id)),
            Err(StoreError::State(error)) => assert_eq!(error.code, StateCode::InvalidTransition),
            Err(other) => panic!("{other}"),
        }
    }
    // The loser of a race leaves no event behind either.
    let counts = desk.store.counts().await.unwrap();
    assert_eq!((counts.sessions, counts.events), (3, 3));
    let usurper =
        desk.open_session(SessionId::new(Uuid::nil()), agent(), SessionKind::System).await;
    assert!(usurper.is_err());
    assert_eq!(desk.store.counts().await.unwrap(), counts);
}

async fn a_session_knows_the_highest_index_of_its_runs(desk: Desk) {
    for index in [3, 7, 5] {
        let mut step = Step::new(desk.session, index);
        desk.store.commit(step.refused_at_once()).await.unwrap();
    }
    let session = desk.store.session(desk.session).await.unwrap().unwrap();
    assert_eq!(session.last_step_index, 7);
    let again = desk.open_session(desk.session, agent(), SessionKind::Default).await;
    assert_eq!(again, Ok(session));
}

async fn a_run_is_recalled_as_its_dossier_says(desk: Desk) {
    let (done, mut open) = (desk.finished().await, desk.step());
    let mut refused = desk.step();
    desk.store.commit(open.opening()).await.unwrap();
    desk.store.commit(refused.refused_at_once()).await.unwrap();
    let mut all = Vec::new();
    for (run_id, last) in [(done.id(), 4), (open.id(), 3), (refused.id(), 0)] {
        let dossier = desk.store.dossier(run_id).await.unwrap().unwrap();
        let expected = Recollection {
            run: dossier.run,
            last_sequence_number: last,
            record: dossier.record.map(|(record, _)| record),
        };
        assert_eq!(desk.store.recall(run_id).await, Ok(Some(expected.clone())));
        all.push(expected);
    }
    let unknown = RunId::new(Uuid::nil());
    assert_eq!(desk.store.recall(unknown).await, Ok(None));
    let asked = [done.id(), unknown, open.id(), refused.id()];
    assert_eq!(desk.store.recollections(&asked).await, Ok(all));
    // More than one round trip.
    let many = vec![open.id(); 100];
    assert_eq!(desk.store.recollections(&many).await.unwrap().len(), 100);
    assert_eq!(desk.store.recollections(&[]).await, Ok(Vec::new()));
}

async fn step_indexes_increase_in_each_session(desk: Desk) {
    for expected in 1..=3 {
        let index = desk.store.next_step_index(desk.session).await;
        assert_eq!(index, Ok(expected));
    }
    assert_eq!(desk.store.next_step_index(desk.system).await, Ok(1));
    let nobody = SessionId::new(Uuid::nil());
    let unknown = desk.store.next_step_index(nobody).await;
    assert_eq!(unknown, Err(StoreError::UnknownSession(nobody)));
}

async fn runs_are_listed_newest_first_and_filtered(desk: Desk) {
    let done = desk.finished().await;
    let mut open = desk.step();
    desk.store.commit(open.opening()).await.unwrap();
    let other_session = SessionId::new(Uuid::now_v7());
    desk.open_session(other_session, agent(), SessionKind::Named).await.unwrap();
    let mut elsewhere = Step::new(other_session, 1);
    elsewhere.run.tool_name = None;
    desk.store.commit(elsewhere.refused_at_once()).await.unwrap();

    let (first, second, third) = (done.id(), open.id(), elsewhere.id());
    let all = RunQuery { limit: 10, ..RunQuery::default() };
    let rows = [
        (all.clone(), vec![third, second, first]),
        (RunQuery { limit: 2, ..all.clone() }, vec![third, second]),
        (RunQuery { limit: 0, ..all.clone() }, vec![]),
        (RunQuery { before: Some(third), ..all.clone() }, vec![second, first]),
        (RunQuery { before: Some(first), ..all.clone() }, vec![]),
        (RunQuery { before: Some(RunId::new(Uuid::nil())), ..all.clone() }, vec![]),
        (RunQuery { after: Some(first), ..all.clone() }, vec![third, second]),
        (RunQuery { after: Some(third), ..all.clone() }, vec![]),
        (RunQuery { after: Some(RunId::new(Uuid::nil())), ..all.clone() }, vec![]),
        (RunQuery { after: Some(first), before: Some(third), ..all.clone() }, vec![second]),
        (
            RunQuery { after: Some(first), session_id: Some(desk.session), ..all.clone() },
            vec![second],
        ),
        (RunQuery { session_id: Some(desk.session), ..all.clone() }, vec![second, first]),
        (RunQuery { status: Some(Status::Started), ..all.clone() }, vec![second]),
        (RunQuery { status: Some(Status::Ok), ..all.clone() }, vec![first]),
        (RunQuery { status: Some(Status::Denied), ..all.clone() }, vec![]),
        (RunQuery { tool_name: Some("WRITE_FILE".into()), ..all.clone() }, vec![second, first]),
        (RunQuery { tool_name: Some("other".into()), ..all }, vec![]),
    ];
    for (query, expected) in rows {
        let runs = desk.store.runs(query.clone()).await.unwrap();
        let ids: Vec<_> = runs.iter().map(|run| run.arrival.run_id).collect();
        assert_eq!(ids, expected, "{query:?}");
    }
}

async fn unfinished_runs_are_listed_oldest_first(desk: Desk) {
    let (mut first, mut second, mut third) = (desk.step(), desk.step(), desk.step());
    desk.store.commit(third.opening()).await.unwrap();
    desk.store.commit(second.pausing().0).await.unwrap();
    desk.store.commit(first.opening()).await.unwrap();
    desk.finished().await;
    let unfinished = desk.store.unfinished_runs().await.unwrap();
    assert_eq!(unfinished, [third.id(), second.id(), first.id()]);
    desk.store.commit(third.closing()).await.unwrap();
    let unfinished = desk.store.unfinished_runs().await.unwrap();
    assert_eq!(unfinished, [second.id(), first.id()]);
}

async fn a_run_waits_while_a_person_is_asked_and_nobody_works_on_it(desk: Desk) {
    let (mut paused, mut opened) = (desk.step(), desk.step());
    let (pausing, asked) = paused.pausing();
    desk.store.lock_new_trace(paused.id()).await.unwrap();
    desk.store.commit(pausing).await.unwrap();
    desk.store.release_trace_lock(paused.id()).await.unwrap();
    desk.store.commit(opened.opening()).await.unwrap();
    let run = |step: &Step, is_waiting| Unfinished {
        run_id: step.id(),
        tool_name: Some("WRITE_FILE".into()),
        is_waiting,
    };
    let unfinished = desk.store.unfinished().await.unwrap();
    assert_eq!(unfinished, [run(&paused, true), run(&opened, false)]);
    desk.store.acquire_trace_lock(paused.id()).await.unwrap();
    desk.store.commit(paused.granting(&asked).0).await.unwrap();
    desk.store.release_trace_lock(paused.id()).await.unwrap();
    let unfinished = desk.store.unfinished().await.unwrap();
    assert_eq!(unfinished, [run(&paused, false), run(&opened, false)]);
}

async fn no_key_has_two_traces(desk: Desk) {
    for _ in 0..3 {
        desk.finished().await;
    }
    assert_eq!(desk.store.shared_keys(10).await, Ok(Vec::new()));
}

async fn events_of_no_run_are_loose(desk: Desk) {
    desk.finished().await;
    let event = desk.loose_event();
    desk.store.append_event(event.clone()).await.unwrap();
    let loose = desk.store.loose_events().await.unwrap();
    assert_eq!(loose.len(), 3);
    let mut head = Head::EMPTY;
    for LinkedEvent { position: _, event, link } in &loose {
        let body = Digest::of(event);
        let expected = Link::after(&head, desk.system, LinkKind::Event, None, body);
        assert_eq!(*link, Some(expected));
        head = expected.head();
    }
    assert_eq!(loose[2].event, event);
    let system = desk.store.session(desk.system).await.unwrap().unwrap();
    assert_eq!(system.head, head);
}

async fn an_event_about_a_run_is_in_its_dossier_whatever_its_session(desk: Desk) {
    let mut step = desk.finished().await;
    let mut late = step.event(EventType::ToolReplayed);
    late.session_id = desk.system;
    let system = desk.store.session(desk.system).await.unwrap().unwrap();
    desk.store.append_event(late.clone()).await.unwrap();
    let run_id = Some(step.id());
    let link = Link::after(&system.head, desk.system, LinkKind::Event, run_id, Digest::of(&late));
    let dossier = desk.store.dossier(step.id()).await.unwrap().unwrap();
    let position = desk.store.last_position().await.unwrap();
    let expected = LinkedEvent { position, event: late, link: Some(link) };
    assert_eq!(dossier.events.last(), Some(&expected));
    assert_eq!(desk.store.loose_events().await.unwrap().len(), 2);
}

async fn every_row_is_counted(desk: Desk) {
    desk.finished().await;
    let mut paused = desk.step();
    desk.store.commit(paused.pausing().0).await.unwrap();
    let expected = Counts {
        runs: 2,
        entries: 5,
        records: 1,
        checkpoints: 2,
        events: 5,
        approvals: 1,
        bindings: 0,
        sessions: 2,
    };
    assert_eq!(desk.store.counts().await, Ok(expected));
}

async fn a_lock_waits_for_its_release(desk: Desk) {
    let trace_id = RunId::new(Uuid::now_v7());
    let other = RunId::new(Uuid::now_v7());
    desk.store.acquire_trace_lock(trace_id).await.unwrap();
    desk.store.acquire_trace_lock(other).await.unwrap();
    let store = Arc::clone(&desk.store);
    let waiting = tokio::spawn(async move { store.acquire_trace_lock(trace_id).await });
    tokio::task::yield_now().await;
    desk.store.release_trace_lock(trace_id).await.unwrap();
    assert_eq!(waiting.await.unwrap(), Ok(()));
    // It was handed over, so it is held.
    let third = desk.store.acquire_trace_lock(trace_id).await;
    assert!(third.is_err());
}

async fn a_lock_is_not_obtained_after_the_wait(desk: Desk) {
    let trace_id = RunId::new(Uuid::now_v7());
    desk.store.acquire_trace_lock(trace_id).await.unwrap();
    let refused = desk.store.acquire_trace_lock(trace_id).await;
    let Err(StoreError::State(error)) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!(error.code, StateCode::LockAcquireFailed);
    desk.store.release_trace_lock(trace_id).await.unwrap();
    assert_eq!(desk.store.acquire_trace_lock(trace_id).await, Ok(()));
}

async fn a_caller_who_leaves_the_queue_does_not_keep_the_lock(desk: Desk) {
    let trace_id = RunId::new(Uuid::now_v7());
    desk.store.acquire_trace_lock(trace_id).await.unwrap();
    {
        let mut leaving = Box::pin(desk.store.acquire_trace_lock(trace_id));
        let polled = std::future::poll_fn(|context| {
            std::task::Poll::Ready(leaving.as_mut().poll(context).is_pending())
        });
        assert!(polled.await);
        // The lock is given to the caller in the instant in which it leaves.
        desk.store.release_trace_lock(trace_id).await.unwrap();
    }
    assert_eq!(desk.store.acquire_trace_lock(trace_id).await, Ok(()));
}
