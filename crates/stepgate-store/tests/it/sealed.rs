//! Payloads that are kept apart while a step needs them, and erased with its record.

use std::path::Path;
use std::sync::Arc;

use stepgate_core::event::EventType;
use stepgate_core::journal::StateCode;
use stepgate_core::ports::{KeyChange, OriginalPayload, StepCommit, Store, StoreError};
use stepgate_store::{SqliteOptions, SqliteStore};

use crate::conformance::over_every_engine;
use crate::desk::{Desk, Step};
use crate::migrations;

over_every_engine! {
    a_sealed_payload_is_kept_until_the_record,
    a_sealed_payload_outlives_every_pause,
    a_run_recorded_at_once_keeps_nothing,
    a_payload_is_sealed_with_its_run_or_never,
    a_refused_record_erases_nothing,
    each_run_has_its_own_sealed_payload,
}

fn payload(text: &str) -> Arc<[u8]> {
    Arc::from(text.as_bytes())
}

/// The commit with a payload that is kept apart.
fn sealing(commit: StepCommit, text: &str) -> StepCommit {
    StepCommit { sealed: Some(payload(text)), ..commit }
}

async fn kept(desk: &Desk, step: &Step) -> Option<Arc<[u8]>> {
    match desk.store.dossier(step.id()).await.unwrap().unwrap().sealed {
        Some(OriginalPayload::Known(payload)) => Some(payload),
        Some(locked) => panic!("{locked:?}"),
        None => None,
    }
}

async fn a_sealed_payload_is_kept_until_the_record(desk: Desk) {
    let mut step = desk.step();
    desk.store.commit(sealing(step.opening(), "as it came")).await.unwrap();
    assert_eq!(kept(&desk, &step).await, Some(payload("as it came")));
    // The row has what arrived for everyone to see.
    let dossier = desk.store.dossier(step.id()).await.unwrap().unwrap();
    assert_eq!(dossier.run.arrival, step.run.arrival);
    let counts = desk.store.counts().await.unwrap();
    desk.store.commit(step.closing()).await.unwrap();
    assert_eq!(kept(&desk, &step).await, None);
    assert_eq!(desk.store.counts().await.unwrap().runs, counts.runs);
}

async fn a_sealed_payload_outlives_every_pause(desk: Desk) {
    let mut step = desk.step();
    let (pausing, asked) = step.pausing();
    desk.store.commit(sealing(pausing, "as it came")).await.unwrap();
    assert_eq!(kept(&desk, &step).await, Some(payload("as it came")));
    desk.store.commit(step.granting(&asked).0).await.unwrap();
    assert_eq!(kept(&desk, &step).await, Some(payload("as it came")));
    let redispatch = StepCommit {
        events: vec![step.event(EventType::ToolRedispatched)],
        ..StepCommit::at(step.place())
    };
    desk.store.commit(redispatch).await.unwrap();
    assert_eq!(kept(&desk, &step).await, Some(payload("as it came")));
    desk.store.commit(step.closing()).await.unwrap();
    assert_eq!(kept(&desk, &step).await, None);
}

async fn a_run_recorded_at_once_keeps_nothing(desk: Desk) {
    let mut refused = desk.step();
    desk.store.commit(sealing(refused.refused_at_once(), "as it came")).await.unwrap();
    assert_eq!(kept(&desk, &refused).await, None);
    let mut step = desk.step();
    let (opening, closing) = (step.opening(), step.closing());
    let at_once = StepCommit {
        entries: [opening.entries.clone(), closing.entries.clone()].concat(),
        key: Some(KeyChange::Bind(step.binding(true))),
        checkpoint: closing.checkpoint,
        events: [opening.events.clone(), closing.events.clone()].concat(),
        record: closing.record,
        ..opening
    };
    desk.store.commit(sealing(at_once, "as it came")).await.unwrap();
    assert_eq!(kept(&desk, &step).await, None);
}

async fn a_payload_is_sealed_with_its_run_or_never(desk: Desk) {
    let (mut plain, mut sealed) = (desk.step(), desk.step());
    desk.store.commit(plain.opening()).await.unwrap();
    desk.store.commit(sealing(sealed.opening(), "first")).await.unwrap();
    for step in [&mut plain, &mut sealed] {
        let before = desk.store.dossier(step.id()).await.unwrap();
        let closing = step.closing();
        for commit in [StepCommit::at(step.place()), closing.clone()] {
            let refused = desk.store.commit(sealing(commit, "second")).await;
            let Err(StoreError::State(error)) = refused else {
                panic!("{refused:?}");
            };
            assert_eq!(error.code, StateCode::InvalidTransition);
            assert_eq!(desk.store.dossier(step.id()).await.unwrap(), before);
        }
        desk.store.commit(closing).await.unwrap();
    }
}

async fn a_refused_record_erases_nothing(desk: Desk) {
    let mut step = desk.step();
    desk.store.commit(sealing(step.opening(), "as it came")).await.unwrap();
    let closing = step.closing();
    let mut spoilt = closing.clone();
    spoilt.entries[0].entry.sequence_number = 9;
    assert!(desk.store.commit(spoilt).await.is_err());
    assert_eq!(kept(&desk, &step).await, Some(payload("as it came")));
    desk.store.commit(closing).await.unwrap();
    assert_eq!(kept(&desk, &step).await, None);
}

async fn each_run_has_its_own_sealed_payload(desk: Desk) {
    let (mut first, mut plain, mut second) = (desk.step(), desk.step(), desk.step());
    desk.store.commit(sealing(first.opening(), "first")).await.unwrap();
    desk.store.commit(plain.opening()).await.unwrap();
    desk.store.commit(sealing(second.opening(), "")).await.unwrap();
    desk.store.commit(first.closing()).await.unwrap();
    desk.store.commit(plain.closing()).await.unwrap();
    assert_eq!(kept(&desk, &first).await, None);
    assert_eq!(kept(&desk, &plain).await, None);
    // An empty payload is a payload.
    assert_eq!(kept(&desk, &second).await, Some(payload("")));
}

/// How often the text stands in the file.
fn traces_of(text: &str, path: &Path) -> usize {
    let bytes = std::fs::read(path).unwrap();
    bytes.windows(text.len()).filter(|window| *window == text.as_bytes()).count()
}

fn open(path: &Path) -> SqliteStore {
    SqliteStore::open(path, SqliteOptions::default()).unwrap()
}

/// Whether it fits its row's page or has pages of its own, and whether the process that erases it is
/// the one that wrote it.
#[tokio::test]
async fn an_erased_payload_is_nowhere_in_the_closed_file() {
    const SECRET: &str = "correct horse battery staple";
    for repeated in [1, 5, 4_000] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("stepgate.db");
        let desk = Desk::open(Arc::new(open(&path))).await;
        let (mut step, mut neighbour) = (desk.step(), desk.step());
        let secret = SECRET.repeat(repeated);
        desk.store.commit(sealing(step.opening(), &secret)).await.unwrap();
        desk.store.commit(sealing(neighbour.opening(), "neighbour")).await.unwrap();
        let (system, session) = (desk.system, desk.session);
        drop(desk);
        assert!(traces_of(SECRET, &path) >= repeated * 9 / 10, "{repeated}: it was not written");

        let store: Arc<dyn Store> = Arc::new(open(&path));
        let desk = Desk { store, system, session };
        assert_eq!(kept(&desk, &step).await, Some(payload(&secret)));
        desk.store.commit(step.closing()).await.unwrap();
        assert_eq!(kept(&desk, &neighbour).await, Some(payload("neighbour")));
        drop(desk);
        assert_eq!(traces_of(SECRET, &path), 0, "{repeated}");
        assert!(!path.with_extension("db-wal").exists(), "{repeated}: the log is still there");
        assert_eq!(traces_of("neighbour", &path), 1);
    }
}

/// While the store stays open: the log, which is not written over for a long time, is cut off.
#[tokio::test]
async fn an_erased_payload_is_nowhere_in_the_log_of_an_open_store() {
    const SECRET: &str = "correct horse battery staple";
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("stepgate.db");
    let log = path.with_extension("db-wal");
    let desk = Desk::open(Arc::new(open(&path))).await;
    let mut step = desk.step();
    desk.store.commit(sealing(step.opening(), SECRET)).await.unwrap();
    assert!(traces_of(SECRET, &log) > 0, "it was not written");
    // A reader that needs the log keeps it for now; the writer does not wait for that reader.
    let reader = rusqlite::Connection::open(&path).unwrap();
    reader.execute_batch("BEGIN; SELECT count(*) FROM tool_runs").unwrap();
    let start = std::time::Instant::now();
    desk.store.commit(step.closing()).await.unwrap();
    assert!(start.elapsed() < SqliteOptions::default().busy_wait, "it waited");
    assert!(traces_of(SECRET, &log) > 0);
    drop(reader);
    desk.finished().await;
    assert_eq!((traces_of(SECRET, &log), traces_of(SECRET, &path)), (0, 0));
    assert_eq!(kept(&desk, &step).await, None);
    // Without such a reader it is cut off with the record itself.
    let mut step = desk.step();
    desk.store.commit(sealing(step.opening(), SECRET)).await.unwrap();
    desk.store.commit(step.closing()).await.unwrap();
    assert_eq!((traces_of(SECRET, &log), traces_of(SECRET, &path)), (0, 0));
}

#[tokio::test]
async fn the_database_itself_keeps_the_payload_of_a_run_that_is_not_over() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("stepgate.db");
    let desk = Desk::open(Arc::new(open(&path))).await;
    let mut step = desk.step();
    desk.store.commit(sealing(step.opening(), "as it came")).await.unwrap();
    let stranger = rusqlite::Connection::open(&path).unwrap();
    let copy = "(tool_run_id, payload) SELECT tool_run_id, x'00' FROM sealed_payloads";
    let rows = [
        ("DELETE FROM sealed_payloads".to_owned(), "a run that is not over needs its payload"),
        ("UPDATE sealed_payloads SET payload = x'00'".to_owned(), "rows are never changed"),
        (format!("INSERT INTO sealed_payloads {copy}"), "there is such a row already"),
        (format!("REPLACE INTO sealed_payloads {copy}"), "there is such a row already"),
        (
            "REPLACE INTO sealed_payloads SELECT position, 'other', x'00' FROM sealed_payloads"
                .to_owned(),
            "there is such a row already",
        ),
    ];
    for (sql, why) in rows {
        let error = stranger.execute_batch(&sql).unwrap_err();
        assert!(error.to_string().contains(why), "`{sql}`: {error}");
    }
    assert_eq!(kept(&desk, &step).await, Some(payload("as it came")));
}

/// A store of the version before, with a finished and an open run in it.
#[tokio::test]
async fn a_store_without_sealed_payloads_is_brought_up_to_date() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("stepgate.db");
    let desk = Desk::open(Arc::new(open(&path))).await;
    let done = desk.finished().await;
    let mut step = desk.step();
    desk.store.commit(step.opening()).await.unwrap();
    let before = desk.store.dossier(done.id()).await.unwrap();
    let (system, session) = (desk.system, desk.session);
    drop(desk);
    migrations::to_version_8(&path);
    let stranger = rusqlite::Connection::open(&path).unwrap();
    // What later versions replaced stands there in its older place; what it said does not matter here.
    let back = "DROP TABLE budget_accounts; DROP TABLE cursors; DROP INDEX tool_runs_by_tool; DROP INDEX tool_runs_not_ok;
                DROP INDEX sessions_of_principal; DROP INDEX events_turns; DROP INDEX events_differing;
                DROP TABLE sealed_payloads; DROP INDEX approvals_pending;
                DROP TRIGGER sessions_fixed; DROP TRIGGER sessions_one_of_a_kind;
                DROP INDEX sessions_one_default;
                ALTER TABLE sessions DROP COLUMN node_id;
                CREATE INDEX sessions_one_default ON sessions (principal_id);
                CREATE TRIGGER sessions_one_of_a_kind BEFORE INSERT ON sessions BEGIN SELECT 1; END;
                CREATE TRIGGER sessions_fixed BEFORE UPDATE OF kind ON sessions BEGIN SELECT 1; END;
                PRAGMA user_version = 2;";
    stranger.execute_batch(back).unwrap();
    drop(stranger);

    assert!(SqliteStore::open_read_only(&path).is_err());
    let store: Arc<dyn Store> = Arc::new(open(&path));
    let desk = Desk { store, system, session };
    assert_eq!(desk.store.dossier(done.id()).await.unwrap(), before);
    desk.store.commit(step.closing()).await.unwrap();
    let mut next = desk.step();
    desk.store.commit(sealing(next.opening(), "as it came")).await.unwrap();
    assert_eq!(kept(&desk, &next).await, Some(payload("as it came")));
}
