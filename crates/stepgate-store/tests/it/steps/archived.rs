//! Runs that leave the store for archives: over every engine, whole steps before and after.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use stepgate_core::archive::ArchivedEvents;
use stepgate_core::archive::file::Archive;
use stepgate_core::archive::select::{Age, Batch, Left, Retention, Stay, leave, named, next};
use stepgate_core::attention::{self, Kind, Reading};
use stepgate_core::consent::{self, NewGrant};
use stepgate_core::event::EventType;
use stepgate_core::event::payload::RunNeedsPerson;
use stepgate_core::hold::{self, HoldOrder, HoldTarget, Made};
use stepgate_core::ports::{EventQuery, PlacedEvent, RunQuery, Store};
use stepgate_core::verify::{ArchiveFiles, Report, SavedHead, verify_with};

use super::*;
use crate::conformance;
use crate::older_keys::keep_in_effects;

const DAY_MS: i64 = 24 * 60 * 60 * 1000;

/// The tests below, over each engine.
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
                    super::$test(super::on(store)).await;
                }
            )*
        }
    };
}

over_every_engine! {
    runs_that_are_over_leave_the_store_and_everything_verifies,
    the_key_of_an_archived_run_never_acts_again,
    whoever_asks_for_an_archived_run_is_told_that_it_is_archived,
    a_run_that_needed_a_person_needs_none_in_its_archive,
    a_hold_keeps_its_runs_until_it_is_lifted,
    a_hold_that_comes_after_the_file_keeps_its_runs,
    a_run_that_goes_on_after_the_file_stays,
    young_unread_and_open_runs_stay,
    lists_go_on_from_an_archived_run,
    events_keep_their_positions_in_the_files_of_archives,
    a_file_that_is_changed_swapped_or_gone_shows,
}

fn on(store: Arc<dyn Store>) -> Stage {
    let mut stage = Stage::new(StopAt::Never);
    stage.gate.store = store;
    // The ids of runs have the real clock's time, and so must what is compared with them.
    let now = i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis());
    stage.clock.now_ms.store(now.unwrap() - at(0).as_millisecond(), Ordering::SeqCst);
    stage
}

/// The files of archives, in memory.
#[derive(Clone, Default)]
struct Shelf(BTreeMap<String, Vec<u8>>);

impl ArchiveFiles for Shelf {
    fn read(&self, name: &str) -> Result<Option<Archive>, String> {
        self.0.get(name).map(|bytes| Archive::read(bytes)).transpose()
    }
}

const MONTH: Retention = Retention {
    ok_days: Some(30),
    error_days: Some(30),
    timeout_days: Some(30),
    denied_days: Some(30),
    tool_days: BTreeMap::new(),
};

impl Stage {
    fn store(&self) -> &dyn Store {
        &*self.gate.store
    }

    fn later(&self, days: i64) {
        self.clock.now_ms.fetch_add(days * DAY_MS, Ordering::SeqCst);
    }

    async fn next(&self, stay: &mut Stay) -> Option<Batch> {
        self.next_read_by(&[], stay).await
    }

    async fn next_read_by(&self, readers: &[&str], stay: &mut Stay) -> Option<Batch> {
        let readers: Vec<_> = readers.iter().map(|it| (*it).to_owned()).collect();
        let (store, now) = (self.store(), self.gate.world.now());
        let batch = next(store, Age::Kept(&MONTH), &readers, now, None, stay).await.unwrap();
        batch.filter(|batch| !batch.is_empty())
    }

    /// The next archive, as its file has it.
    async fn file(&self) -> Option<Archive> {
        let batch = self.next(&mut Stay::default()).await?;
        let text = batch.text(ArtifactId::new(Uuid::now_v7()), self.gate.world.now());
        let archive = Archive::read(text.as_bytes()).unwrap();
        assert_eq!(archive.verify(), []);
        Some(archive)
    }

    /// Archives everything that may leave.
    async fn archive(&self, shelf: &mut Shelf) -> usize {
        let mut runs = 0;
        while let Some(batch) = self.next(&mut Stay::default()).await {
            let text = batch.text(ArtifactId::new(Uuid::now_v7()), self.gate.world.now());
            let archive = Archive::read(text.as_bytes()).unwrap();
            runs += archive.dossiers.len();
            let Left::Gone(named) = leave(&self.gate, &archive).await.unwrap() else { panic!() };
            shelf.0.insert(named.archived.file, text.into_bytes());
        }
        runs
    }

    async fn report(&self, shelf: &Shelf, heads: &[SavedHead]) -> Report {
        verify_with(self.store(), Some(shelf), heads, |_| {}).await.unwrap()
    }

    async fn runs(&self) -> Vec<RunId> {
        let query = RunQuery { limit: 100, ..RunQuery::default() };
        let runs = self.store().runs(query).await.unwrap();
        runs.into_iter().map(|run| run.arrival.run_id).collect()
    }

    /// Steps of every kind: done, refused, approved, with an event after the record.
    async fn a_day(&self) -> Vec<Answer> {
        self.kitchen.sent.store(1, Ordering::SeqCst);
        let verdict = |verdict| self.rule.0.lock().unwrap().verdict = verdict;
        let mut answers = vec![self.read(1).await.unwrap(), self.delete(2).await.unwrap()];
        answers.push(self.propose(3, "READ_FILE", json!({})).await.unwrap());
        answers.push(self.propose(4, COOK, json!({ "dish": "soup" })).await.unwrap());
        verdict(PolicyVerdict::RequireApproval("ask".into()));
        let asked = self.delete(5).await.unwrap();
        answers.push(self.grant(&asked).await.unwrap());
        verdict(PolicyVerdict::Deny);
        answers.push(self.read(6).await.unwrap());
        verdict(PolicyVerdict::Permit);
        self.read(1).await.unwrap();
        answers
    }

    /// The last runs, which stay, after some time: one waits for a person.
    async fn a_month_later(&self) {
        self.later(100);
        self.rule.0.lock().unwrap().verdict = PolicyVerdict::RequireApproval("ask".into());
        self.delete(98).await.unwrap();
        self.rule.0.lock().unwrap().verdict = PolicyVerdict::Permit;
        verdict_is(self.read(99).await, Outcome::Success);
    }
}

fn verdict_is(answer: Result<Answer, Fault>, outcome: Outcome) {
    assert_eq!(answer.unwrap().word(), Word::Outcome(outcome));
}

fn code(answer: &Answer) -> Option<String> {
    let body: Value = serde_json::from_str(&answer.body()).unwrap();
    body["error"]["error_code"].as_str().map(str::to_owned)
}

async fn runs_that_are_over_leave_the_store_and_everything_verifies(stage: Stage) {
    let answers = stage.a_day().await;
    stage.a_month_later().await;
    let before = stage.report(&Shelf::default(), &[]).await;
    assert_eq!((before.problems, before.archives), (vec![], 0));

    let mut shelf = Shelf::default();
    assert_eq!(stage.archive(&mut shelf).await, answers.len());
    assert_eq!(stage.runs().await.len(), 2);
    for answer in &answers {
        assert!(stage.store().dossier(answer.run_id).await.unwrap().is_none());
        assert!(stage.store().archived_run(answer.run_id).await.unwrap().is_some());
    }
    // The heads from before stand, with the files and without.
    let report = stage.report(&shelf, &before.heads).await;
    assert_eq!(report.problems, []);
    assert_eq!((report.archived_runs, report.archives, report.archives_read), (6, 1, 1));
    let report = stage.report(&Shelf::default(), &before.heads).await;
    assert_eq!((report.problems, report.archives_missing.len()), (vec![], 1));

    // It goes on, and a second archive follows.
    verdict_is(stage.read(20).await, Outcome::Success);
    stage.later(100);
    verdict_is(stage.read(21).await, Outcome::Success);
    assert_eq!(stage.archive(&mut shelf).await, 2);
    let report = stage.report(&shelf, &before.heads).await;
    assert_eq!((report.problems, report.archives_read), (vec![], 2));
    let events = named(stage.store()).await.unwrap();
    assert_eq!(events.iter().map(|named| named.archived.runs).collect::<Vec<_>>(), [6, 2]);
}

async fn the_key_of_an_archived_run_never_acts_again(stage: Stage) {
    verdict_is(stage.delete(1).await, Outcome::Success);
    stage.a_month_later().await;
    assert_eq!(stage.archive(&mut Shelf::default()).await, 1);
    let sent = stage.files.sent().len();
    let again = stage.delete(1).await.unwrap();
    assert_eq!(code(&again).as_deref(), Some("RESULT_ARCHIVED"));
    let other = stage.read(1).await.unwrap();
    assert_eq!(code(&other).as_deref(), Some("IDEMPOTENCY_CONFLICT"));
    assert_eq!(stage.files.sent().len(), sent, "nothing was done");
    stage.verifies().await;
}

async fn whoever_asks_for_an_archived_run_is_told_that_it_is_archived(stage: Stage) {
    let old = stage.read(1).await.unwrap();
    stage.a_month_later().await;
    stage.archive(&mut Shelf::default()).await;
    let young = stage.read(20).await.unwrap();
    let answer = step::answer_of(&stage.gate, old.run_id).await.unwrap();
    assert_eq!(code(&answer).as_deref(), Some("RESULT_ARCHIVED"));
    assert_eq!((answer.session_id, answer.step_index), (old.session_id, old.step_index));
    let ids = [old.run_id, young.run_id];
    let mut answers = step::recorded_answers(&stage.gate, &ids).await.unwrap();
    answers.sort_by_key(|answer| answer.run_id);
    let found: Vec<_> = answers.iter().map(|answer| (answer.run_id, code(answer))).collect();
    let expected = [(old.run_id, Some("RESULT_ARCHIVED".to_owned())), (young.run_id, None)];
    assert_eq!(found, expected);
}

async fn a_run_that_needed_a_person_needs_none_in_its_archive(stage: Stage) {
    let run_id = stage.read(1).await.unwrap().run_id;
    let told = RunNeedsPerson { kind: Kind::InDoubt, reason: "unknown".into(), run_id };
    stage.gate.note(EventType::RunNeedsPerson, told).await.unwrap();
    stage.a_month_later().await;
    stage.archive(&mut Shelf::default()).await;
    assert!(stage.store().archived_run(run_id).await.unwrap().is_some());
    // As a process that has just started reads them.
    assert_eq!(attention::list(stage.store(), &Reading::default()).await.unwrap(), []);
}

async fn hold_of(stage: &Stage, target: HoldTarget) -> ArtifactId {
    let order = HoldOrder { held_by: operator(), note: Some("case 7".into()), target };
    match hold::make(&stage.gate, order).await.unwrap() {
        Made::Now(hold) => hold.hold_id,
        Made::Before(_) => panic!(),
    }
}

async fn a_hold_keeps_its_runs_until_it_is_lifted(stage: Stage) {
    let (first, second) = (stage.read(1).await.unwrap(), stage.read(2).await.unwrap());
    stage.a_month_later().await;
    let session = stage.gate.default_session(&agent()).await.unwrap().session_id;
    for target in [HoldTarget::Principal(agent()), HoldTarget::Session(session)] {
        let hold_id = hold_of(&stage, target).await;
        let mut stay = Stay::default();
        assert!(stage.next(&mut stay).await.is_none());
        assert_eq!(stay, Stay { held: 2, ..Stay::default() });
        hold::lift(&stage.gate, hold_id, operator()).await.unwrap().unwrap();
        assert_eq!(hold::lift(&stage.gate, hold_id, operator()).await.unwrap(), None);
    }
    let hold_id = hold_of(&stage, HoldTarget::Run(first.run_id)).await;
    let mut shelf = Shelf::default();
    assert_eq!(stage.archive(&mut shelf).await, 1);
    assert!(stage.store().archived_run(second.run_id).await.unwrap().is_some());
    hold::lift(&stage.gate, hold_id, operator()).await.unwrap().unwrap();
    assert_eq!(stage.archive(&mut shelf).await, 1);
    assert_eq!(stage.report(&shelf, &[]).await.problems, []);
    let holds = hold::list(stage.store()).await.unwrap();
    assert!(holds.len() == 3 && holds.iter().all(|hold| hold.lift.is_some()));
}

async fn a_hold_that_comes_after_the_file_keeps_its_runs(stage: Stage) {
    stage.read(1).await.unwrap();
    stage.a_month_later().await;
    let archive = stage.file().await.unwrap();
    hold_of(&stage, HoldTarget::Principal(agent())).await;
    assert_eq!(leave(&stage.gate, &archive).await.unwrap(), Left::Stayed);
    assert_eq!(stage.runs().await.len(), 3);
    stage.verifies().await;
}

async fn a_run_that_goes_on_after_the_file_stays(stage: Stage) {
    stage.read(1).await.unwrap();
    stage.a_month_later().await;
    let archive = stage.file().await.unwrap();
    assert!(stage.read(1).await.unwrap().replayed);
    assert_eq!(leave(&stage.gate, &archive).await.unwrap(), Left::Stayed);
    assert_eq!(stage.runs().await.len(), 3);
    stage.verifies().await;
    // Twice is refused too.
    stage.later(100);
    let archive = stage.file().await.unwrap();
    assert!(matches!(leave(&stage.gate, &archive).await.unwrap(), Left::Gone(_)));
    assert_eq!(leave(&stage.gate, &archive).await.unwrap(), Left::Stayed);
    stage.verifies().await;
}

async fn young_unread_and_open_runs_stay(stage: Stage) {
    stage.rule.0.lock().unwrap().verdict = PolicyVerdict::RequireApproval("ask".into());
    let open = stage.delete(1).await.unwrap();
    stage.rule.0.lock().unwrap().verdict = PolicyVerdict::Permit;
    let old = stage.read(2).await.unwrap();
    stage.later(60);
    stage.read(3).await.unwrap();
    stage.later(29);
    stage.read(4).await.unwrap();
    // A reader of the events has not come so far, and another one has not begun.
    stage.store().take_cursor("receiver", 1).await.unwrap();
    for reader in ["receiver", "stream"] {
        let mut stay = Stay::default();
        assert!(stage.next_read_by(&[reader], &mut stay).await.is_none());
        assert_eq!(stay, Stay { unread: 1, ..Stay::default() }, "{reader}");
    }
    let reached = stage.store().last_position().await.unwrap();
    let cursor = stepgate_core::ports::Cursor { name: "receiver".into(), reached, error: None };
    assert!(stage.store().move_cursor(&cursor).await.unwrap());
    assert!(stage.next_read_by(&["receiver"], &mut Stay::default()).await.is_some());
    assert_eq!(stage.archive(&mut Shelf::default()).await, 1);
    assert!(stage.store().archived_run(old.run_id).await.unwrap().is_some());
    assert!(stage.store().dossier(open.run_id).await.unwrap().is_some());
    stage.verifies().await;
}

async fn lists_go_on_from_an_archived_run(stage: Stage) {
    let old = stage.read(1).await.unwrap();
    stage.a_month_later().await;
    stage.archive(&mut Shelf::default()).await;
    let list = |before, after| RunQuery { before, after, limit: 9, ..RunQuery::default() };
    let after = stage.store().runs(list(None, Some(old.run_id))).await.unwrap();
    assert_eq!(after.len(), 2);
    assert_eq!(stage.store().runs(list(Some(old.run_id), None)).await.unwrap(), []);
    let events = stage.store().events(Default::default()).await.unwrap();
    assert_eq!(events, []);
}

async fn events_keep_their_positions_in_the_files_of_archives(stage: Stage) {
    let placed = async |stage: &Stage| {
        let query = EventQuery { limit: usize::MAX, ..EventQuery::default() };
        stage.store().events(query).await.unwrap()
    };
    stage.a_day().await;
    stage.a_month_later().await;
    let before = placed(&stage).await;
    let mut shelf = Shelf::default();
    stage.archive(&mut shelf).await;
    verdict_is(stage.read(20).await, Outcome::Success);
    stage.later(100);
    verdict_is(stage.read(21).await, Outcome::Success);
    stage.archive(&mut shelf).await;

    let mut all = placed(&stage).await;
    assert!(all.len() < before.len());
    for archive in named(stage.store()).await.unwrap() {
        let dossiers = shelf.read(&archive.archived.file).unwrap().unwrap().dossiers;
        let events = dossiers.into_iter().flat_map(|dossier| dossier.events);
        let events = events.map(|it| PlacedEvent { position: it.position, event: it.event });
        let mut events: Vec<_> = events.collect();
        events.sort_by_key(|placed| placed.position);
        let ends = [&events[0], &events[events.len() - 1]].map(|placed| placed.position);
        let span = ArchivedEvents { count: events.len() as u64, first: ends[0], last: ends[1] };
        assert_eq!(archive.archived.events, Some(span));
        all.extend(events);
    }
    all.sort_by_key(|placed| placed.position);
    let positions: Vec<_> = all.iter().map(|placed| placed.position).collect();
    assert_eq!(positions, (1..=all.len() as u64).collect::<Vec<_>>());
    assert_eq!(all[..before.len()], before);
}

async fn a_file_that_is_changed_swapped_or_gone_shows(stage: Stage) {
    stage.read(1).await.unwrap();
    stage.a_month_later().await;
    let mut shelf = Shelf::default();
    stage.archive(&mut shelf).await;
    stage.later(100);
    stage.read(2).await.unwrap();
    stage.archive(&mut shelf).await;
    let files: Vec<String> = shelf.0.keys().cloned().collect();
    let [first, second] = &files[..] else { panic!() };

    // Any byte: a sample of them.
    let length = shelf.0[first].len();
    for at in (0..length).step_by(211).chain([length - 1]) {
        let mut changed = shelf.clone();
        changed.0.get_mut(first).unwrap()[at] ^= 1;
        assert_ne!(stage.report(&changed, &[]).await.problems, [], "byte {at}");
    }
    let mut cut = shelf.clone();
    cut.0.get_mut(first).unwrap().truncate(length - 100);
    assert_ne!(stage.report(&cut, &[]).await.problems, []);
    let mut swapped = shelf.clone();
    swapped.0.insert(first.clone(), shelf.0[second].clone());
    assert_ne!(stage.report(&swapped, &[]).await.problems, []);
    let mut gone = shelf.clone();
    gone.0.remove(first);
    let report = stage.report(&gone, &[]).await;
    assert_eq!((report.problems, report.archives_missing), (vec![], vec![first.clone()]));
}

#[tokio::test]
async fn a_run_that_used_a_grant_stays_while_the_grant_is_good() {
    let stage = Stage::new(StopAt::Never).asks();
    let asked = stage.delete(1).await.unwrap();
    stage.grant(&asked).await.unwrap();
    let new = NewGrant {
        approval_id: asked.approval_id().unwrap(),
        args: BTreeMap::new(),
        uses_max: 2,
        life_ms: 3 * 60 * 60 * 1000,
        note: None,
    };
    consent::create_grant(&stage.gate, &operator(), new).await.unwrap();
    verdict_is(stage.delete(2).await, Outcome::Success);
    stage.rule.0.lock().unwrap().verdict = PolicyVerdict::Permit;
    stage.read(3).await.unwrap();
    // No run is young here: what counts is the end of the grant.
    let retention = Retention { ok_days: Some(0), ..Retention::default() };
    let hour_ms = 60 * 60 * 1000;
    for (hours, granted) in [(1, 1), (3, 0)] {
        stage.clock.now_ms.store(hours * hour_ms, Ordering::SeqCst);
        let mut stay = Stay::default();
        let age = Age::Kept(&retention);
        next(stage.store(), age, &[], stage.gate.world.now(), None, &mut stay).await.unwrap();
        assert_eq!(stay, Stay { granted, ..Stay::default() });
    }
}

#[tokio::test]
async fn a_grant_whose_uses_are_archived_permits_nothing_when_the_clock_is_set_back() {
    let stage = Stage::new(StopAt::Never).asks();
    let asked = stage.delete(1).await.unwrap();
    stage.grant(&asked).await.unwrap();
    let new = NewGrant {
        approval_id: asked.approval_id().unwrap(),
        args: BTreeMap::new(),
        uses_max: 2,
        life_ms: 3 * 60 * 60 * 1000,
        note: None,
    };
    consent::create_grant(&stage.gate, &operator(), new).await.unwrap();
    verdict_is(stage.delete(2).await, Outcome::Success);
    let now_ms = stage.clock.now_ms.load(Ordering::SeqCst);
    stage.a_month_later().await;
    assert!(stage.archive(&mut Shelf::default()).await >= 2);
    stage.clock.now_ms.store(now_ms, Ordering::SeqCst);
    stage.rule.0.lock().unwrap().verdict = PolicyVerdict::RequireApproval("ask".into());
    let answer = stage.delete(3).await.unwrap();
    assert!(answer.approval_id().is_some(), "no person is asked: {}", answer.body());
    stage.verifies().await;
}

#[tokio::test]
async fn a_run_that_has_just_ended_stays_for_those_who_wait_for_it() {
    let stage = Stage::new(StopAt::Never);
    stage.read(1).await.unwrap();
    stage.read(2).await.unwrap();
    let retention = Retention { ok_days: Some(0), ..Retention::default() };
    for (later_ms, is_empty) in [(0, true), (500, true), (600, false)] {
        stage.clock.now_ms.fetch_add(later_ms, Ordering::SeqCst);
        let (age, now) = (Age::Kept(&retention), stage.gate.world.now());
        let batch = next(stage.store(), age, &[], now, None, &mut Stay::default()).await.unwrap();
        assert_eq!(batch.is_none_or(|batch| batch.is_empty()), is_empty, "{later_ms}");
    }
}

/// Of a run that is kept for long only the row is read, however often someone looks for old ones: it is not even noticed
/// that the rest is damaged.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runs_that_are_kept_for_long_are_not_read_each_time() {
    let (directory, store) = conformance::sqlite().await;
    let stage = on(store);
    stage.read(1).await.unwrap();
    stage.a_month_later().await;
    let connection = rusqlite::Connection::open(directory.path().join("stepgate.db")).unwrap();
    let damage =
        "DROP TRIGGER chunks_no_update; UPDATE chunks SET packed = x'00' WHERE position = 1";
    connection.execute_batch(damage).unwrap();
    let tool_days = BTreeMap::from([("READ_FILE".to_owned(), 3650)]);
    for (retention, unsound) in [(Retention { tool_days, ..MONTH }, 0), (MONTH, 1)] {
        let (age, now) = (Age::Kept(&retention), stage.gate.world.now());
        let mut stay = Stay::default();
        let batch = next(stage.store(), age, &[], now, None, &mut stay).await.unwrap();
        assert!(batch.unwrap().is_empty());
        assert_eq!(stay, Stay { unsound, ..Stay::default() });
    }
}

#[tokio::test]
async fn what_budgets_lost_to_archived_runs_still_adds_up() {
    let stage = Stage::new(StopAt::Never).with_a_budget();
    stage.propose(1, COOK, json!({ "amount": 40 })).await.unwrap();
    stage.a_month_later().await;
    assert_eq!(stage.archive(&mut Shelf::default()).await, 1);
    let events = named(stage.store()).await.unwrap();
    assert_eq!(events[0].archived.charges.len(), 1);
    stage.verifies().await;
}

/// What someone does to the file of a store, and that `verify` finds it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kept_row_an_event_or_a_binding_that_is_taken_away_shows() {
    let changes = [
        "DROP TRIGGER archived_runs_no_delete; DELETE FROM archived_runs",
        "DROP TRIGGER archived_runs_no_update; UPDATE archived_runs SET step_index = 9",
        "DROP TRIGGER archived_runs_no_update; UPDATE archived_runs SET links = zeroblob(146)",
        "DROP TRIGGER archived_runs_no_update;
         UPDATE archived_runs SET archive_id = '01890000-0000-7000-8000-000000000000'",
        "DROP TRIGGER events_no_delete; DELETE FROM events WHERE event_type = 'runs_archived'",
        "DROP TRIGGER effects_fixed; DROP TRIGGER effects_settle_once; UPDATE effects SET idempotency_key = idempotency_key || 'x'
         WHERE trace_id IN (SELECT tool_run_id FROM archived_runs)",
        "DROP TRIGGER effects_no_delete;
         DELETE FROM effects WHERE trace_id IN (SELECT tool_run_id FROM archived_runs)",
    ];
    for change in changes {
        let (directory, store) = conformance::sqlite().await;
        let stage = on(store);
        stage.read(1).await.unwrap();
        stage.a_month_later().await;
        let mut shelf = Shelf::default();
        stage.archive(&mut shelf).await;
        let path = directory.path().join("stepgate.db");
        let connection = rusqlite::Connection::open(&path).unwrap();
        connection.execute_batch(change).unwrap();
        let found = stage.report(&Shelf::default(), &[]).await.problems;
        let found = found.into_iter().filter(|problem| problem.place != "database");
        assert_ne!(found.count(), 0, "{change}");
    }
}

/// The database itself keeps the rows of runs that are not archived.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_of_other_runs_are_still_never_deleted() {
    let (directory, store) = conformance::sqlite().await;
    let stage = on(store);
    stage.read(1).await.unwrap();
    let path = directory.path().join("stepgate.db");
    assert_eq!(keep_in_effects(&path, i64::MAX), 1);
    let connection = rusqlite::Connection::open(&path).unwrap();
    for table in ["tool_runs", "chunks", "events", "effects", "sessions"] {
        let refused = connection.execute(&format!("DELETE FROM {table}"), []).unwrap_err();
        assert!(refused.to_string().contains("deleted"), "{refused}");
    }
}
