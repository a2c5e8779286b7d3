//! The file: what is kept, what is refused, and what a damaged one says.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rusqlite::Connection;
use stepgate_core::ids::RunId;
use stepgate_core::journal::StateCode;
use stepgate_core::ports::{Runs, Sessions, Store, StoreError, Writes};
use stepgate_store::{OpenError, SqliteOptions, SqliteStore};
use tempfile::TempDir;

use crate::desk::{Desk, Step};
use crate::unfolded::Unfolded;

fn place() -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("stepgate.db");
    (directory, path)
}

fn open(path: &Path) -> SqliteStore {
    SqliteStore::open(path, SqliteOptions::default()).unwrap()
}

/// The file after one finished step, closed.
async fn used(path: &Path) -> RunId {
    let desk = Desk::open(Arc::new(open(path))).await;
    desk.finished().await.id()
}

#[tokio::test]
async fn a_reopened_store_keeps_everything() {
    let (_directory, path) = place();
    let desk = Desk::open(Arc::new(open(&path))).await;
    let step = desk.finished().await;
    let mut paused = desk.step();
    paused.run.arrival.step_index = 7;
    let (pausing, asked) = paused.pausing();
    desk.store.commit(pausing).await.unwrap();
    let dossiers = [
        desk.store.dossier(step.id()).await.unwrap(),
        desk.store.dossier(paused.id()).await.unwrap(),
    ];
    let (sessions, counts) = (desk.store.sessions().await, desk.store.counts().await);
    let (system, session) = (desk.system, desk.session);
    drop(desk);
    assert!(!path.with_extension("db-wal").exists(), "the log was not moved");

    let store: Arc<dyn Store> = Arc::new(open(&path));
    assert_eq!(store.dossier(step.id()).await.unwrap(), dossiers[0]);
    assert_eq!(store.dossier(paused.id()).await.unwrap(), dossiers[1]);
    assert_eq!((store.sessions().await, store.counts().await), (sessions, counts));
    assert_eq!(store.next_step_index(session).await, Ok(8));
    // A trace that was open goes on.
    let desk = Desk { store, system, session };
    desk.store.commit(paused.granting(&asked).0).await.unwrap();
    desk.store.commit(paused.closing()).await.unwrap();
    assert_eq!(desk.store.unfinished_runs().await, Ok(Vec::new()));
}

#[tokio::test]
async fn a_newer_file_is_refused_and_both_versions_are_named() {
    let (_directory, path) = place();
    used(&path).await;
    let stranger = Connection::open(&path).unwrap();
    stranger.pragma_update(None, "user_version", 77).unwrap();
    drop(stranger);
    for refused in
        [SqliteStore::open(&path, SqliteOptions::default()), SqliteStore::open_read_only(&path)]
    {
        let error = refused.unwrap_err();
        assert!(matches!(error, OpenError::NewerVersion { found: 77, supported: 13, .. }));
        assert!(error.to_string().contains("version 77") && error.to_string().contains("knows 13"));
    }
}

#[test]
fn another_programs_database_is_refused_and_left_as_it_is() {
    let (_directory, path) = place();
    for sql in
        ["CREATE TABLE notes (text TEXT)", "PRAGMA application_id = 7", "PRAGMA user_version = 1"]
    {
        let _absent = fs::remove_file(&path);
        let stranger = Connection::open(&path).unwrap();
        stranger.execute_batch(sql).unwrap();
        drop(stranger);
        let before = fs::read(&path).unwrap();
        let error = SqliteStore::open(&path, SqliteOptions::default()).unwrap_err();
        assert!(matches!(error, OpenError::Foreign { .. }), "{sql}: {error}");
        assert_eq!(fs::read(&path).unwrap(), before, "{sql}");
    }
}

#[test]
fn a_file_that_is_no_database_is_refused_and_left_as_it_is() {
    let (_directory, path) = place();
    let long = "no database at all ".repeat(1000);
    for garbage in [b"xy".as_slice(), b"no database", long.as_bytes()] {
        fs::write(&path, garbage).unwrap();
        let error = SqliteStore::open(&path, SqliteOptions::default()).unwrap_err();
        assert!(matches!(error, OpenError::NotADatabase { .. }), "{error}");
        assert_eq!(fs::read(&path).unwrap(), garbage);
    }
    // An empty file is what a crash leaves of the very first opening.
    fs::write(&path, b"").unwrap();
    open(&path);
}

#[test]
fn a_place_that_cannot_be_written_is_refused() {
    let (directory, _) = place();
    let nowhere = directory.path().join("missing").join("stepgate.db");
    let in_a_file = directory.path().join("file").join("stepgate.db");
    fs::write(directory.path().join("file"), b"").unwrap();
    for path in [nowhere, in_a_file, PathBuf::from("/proc/stepgate.db"), directory.path().into()] {
        let error = SqliteStore::open(&path, SqliteOptions::default()).unwrap_err();
        assert!(matches!(error, OpenError::Permission { .. }), "{error}");
    }
}

#[cfg(unix)]
#[tokio::test]
async fn a_store_on_read_only_media_can_still_be_read() {
    use std::os::unix::fs::PermissionsExt;
    let (directory, path) = place();
    let run_id = used(&path).await;
    let mode = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode));
    mode(&path, 0o444).unwrap();
    mode(directory.path(), 0o555).unwrap();
    let refused = SqliteStore::open(&path, SqliteOptions::default());
    let store = SqliteStore::open_read_only(&path);
    // The superuser may write all the same: then only reading is left to see.
    let may_write = fs::write(directory.path().join("probe"), b"").is_ok();
    mode(directory.path(), 0o755).unwrap();
    if !may_write {
        assert!(matches!(refused.unwrap_err(), OpenError::Permission { .. }));
    }
    assert!(store.unwrap().dossier(run_id).await.unwrap().is_some());
}

#[tokio::test]
async fn a_store_opened_for_reading_reads_beside_the_writer_and_writes_nothing() {
    let (_directory, path) = place();
    let missing = SqliteStore::open_read_only(&path).unwrap_err();
    assert!(matches!(missing, OpenError::Missing { .. }));
    assert!(!path.exists());
    let desk = Desk::open(Arc::new(open(&path))).await;
    let step = desk.finished().await;
    let reading = SqliteStore::open_read_only(&path).unwrap();
    let seen = reading.dossier(step.id()).await.unwrap();
    assert_eq!(seen, desk.store.dossier(step.id()).await.unwrap());
    // Each call reads what is there at its moment.
    let later = desk.finished().await;
    assert!(reading.dossier(later.id()).await.unwrap().is_some());
    let read_only = StoreError::Unavailable("opened read-only".into());
    let commit = desk.step().opening();
    assert_eq!(reading.commit(commit).await, Err(read_only.clone()));
    let event = desk.loose_event();
    assert_eq!(reading.append_event(event).await, Err(read_only.clone()));
    assert_eq!(reading.next_step_index(desk.session).await, Err(read_only));
}

#[tokio::test]
async fn a_full_disk_loses_nothing_and_recovers_with_space() {
    let (_directory, path) = place();
    let run_id = used(&path).await;
    let pages = fs::metadata(&path).unwrap().len() / 4096;
    let options = SqliteOptions {
        pages_max: Some(u32::try_from(pages).unwrap() + 4),
        ..SqliteOptions::default()
    };
    let desk = Desk::open(Arc::new(SqliteStore::open(&path, options).unwrap())).await;
    let mut committed = vec![run_id];
    let refused = loop {
        let mut step = desk.step();
        let opening = step.opening();
        match desk.store.commit(opening.clone()).await {
            Ok(()) => committed.push(step.id()),
            Err(StoreError::Unavailable(why)) => {
                assert!(why.contains("disk full"), "{why}");
                assert_eq!(desk.store.dossier(step.id()).await, Ok(None));
                break opening;
            }
            Err(other) => panic!("{other}"),
        }
        assert!(committed.len() < 1000, "the disk never got full");
    };
    for run_id in &committed {
        assert!(desk.store.dossier(*run_id).await.unwrap().is_some());
    }
    let (head, counts) = (desk.head().await, desk.store.counts().await);
    let (system, session) = (desk.system, desk.session);
    drop(desk);
    let store: Arc<dyn Store> = Arc::new(open(&path));
    let desk = Desk { store, system, session };
    assert_eq!((desk.head().await, desk.store.counts().await), (head, counts));
    assert_eq!(desk.store.commit(refused).await, Ok(()));
}

#[test]
fn a_disk_too_full_for_the_tables_is_told_and_leaves_nothing_half_made() {
    let (_directory, path) = place();
    let options = SqliteOptions { pages_max: Some(5), ..SqliteOptions::default() };
    let error = SqliteStore::open(&path, options).unwrap_err();
    assert!(matches!(error, OpenError::DiskFull { .. }), "{error}");
    open(&path);
}

#[tokio::test]
async fn a_database_locked_by_another_process_is_unavailable_until_it_is_free() {
    let (_directory, path) = place();
    let options = SqliteOptions { busy_wait: Duration::from_millis(1), ..SqliteOptions::default() };
    let store = SqliteStore::open(&path, options.clone()).unwrap();
    let desk = Desk::open(Arc::new(store)).await;
    let stranger = Connection::open(&path).unwrap();
    stranger.execute_batch("BEGIN IMMEDIATE").unwrap();
    let mut step = desk.step();
    let opening = step.opening();
    let locked = desk.store.commit(opening.clone()).await;
    let locked_out = StoreError::Unavailable("the database is locked by another process".into());
    assert_eq!(locked, Err(locked_out));
    stranger.execute_batch("ROLLBACK").unwrap();
    assert_eq!(desk.store.commit(opening).await, Ok(()));
    drop(desk);
    stranger.execute_batch("PRAGMA locking_mode = exclusive; BEGIN EXCLUSIVE").unwrap();
    let busy = SqliteStore::open(&path, options).unwrap_err();
    assert!(matches!(busy, OpenError::Busy { .. }), "{busy}");
}

/// Overwrites the first page of a table or index.
fn spoil(path: &Path, name: &str) {
    let stranger = Connection::open(path).unwrap();
    let sql = "SELECT rootpage FROM sqlite_schema WHERE name = ?1";
    let page: u32 = stranger.query_row(sql, [name], |row| row.get(0)).unwrap();
    let page = usize::try_from(page).unwrap();
    drop(stranger);
    let mut bytes = fs::read(path).unwrap();
    bytes[(page - 1) * 4096..page * 4096].fill(0xa5);
    fs::write(path, bytes).unwrap();
}

#[tokio::test]
async fn a_damaged_page_breaks_the_store_with_a_way_out() {
    let (_directory, path) = place();
    let run_id = used(&path).await;
    spoil(&path, "chunks");
    let store = open(&path);
    let Err(StoreError::Broken(why)) = store.dossier(run_id).await else {
        panic!("a damaged page was read");
    };
    assert!(why.contains("damaged") && why.contains("backup"), "{why}");
    let session = store.sessions().await.unwrap().pop().unwrap();
    let mut step = Step::new(session.session_id, 2);
    for _ in 0..2 {
        let answer = store.commit(step.opening()).await;
        assert!(matches!(answer, Err(StoreError::Broken(_))), "{answer:?}");
        step = Step::new(session.session_id, 2);
    }
}

#[tokio::test]
async fn nothing_more_is_written_once_damage_was_met() {
    let (_directory, path) = place();
    used(&path).await;
    spoil(&path, "sqlite_autoindex_effects_1");
    let store = open(&path);
    let session = store.sessions().await.unwrap().pop().unwrap().session_id;
    let met = store.commit(Step::new(session, 2).opening()).await;
    assert!(matches!(met, Err(StoreError::Broken(_))), "{met:?}");
    // This one would touch no damaged page.
    let after = store.commit(Step::new(session, 3).refused_at_once()).await;
    assert_eq!(after, met);
}

#[tokio::test]
async fn a_damaged_table_of_contents_is_told_at_the_opening() {
    let (_directory, path) = place();
    used(&path).await;
    let mut bytes = fs::read(&path).unwrap();
    bytes[100..4096].fill(0xa5);
    fs::write(&path, bytes).unwrap();
    let error = SqliteStore::open(&path, SqliteOptions::default()).unwrap_err();
    assert!(matches!(error, OpenError::Damaged { .. }), "{error}");
}

#[tokio::test]
async fn a_cell_that_does_not_parse_back_names_its_table_run_and_column() {
    let rows = [
        ("tool_runs", "session_id", "'x'"),
        ("tool_runs", "principal_id", "'a/b'"),
        ("tool_runs", "ts", "'2026-01-01'"),
        ("tool_runs", "status", "'done'"),
        ("tool_runs", "step_index", "-1"),
        ("tool_runs", "latency_ms", "NULL"),
        ("journal", "entry_digest", "'00'"),
        ("journal", "prev_entry_digest", "upper(prev_entry_digest)"),
        ("journal", "artifact_digest", "'z'"),
        ("journal", "artifact_id", "'z'"),
        ("journal", "artifact_type", "'tool'"),
        ("journal", "from_state", "'OPEN'"),
        ("journal", "to_state", "'pending'"),
        ("journal", "ts", "'now'"),
        ("journal", "tool_call_id", "'z'"),
        ("records", "record_digest", "'z'"),
        ("chunks", "link_number", "NULL"),
        ("chunks", "link_prev", "NULL"),
        ("chunks", "link_digest", "x'7a'"),
        ("chunks", "packed", "x'01'"),
        ("chunks", "packed", "CAST(packed || x'00' AS BLOB)"),
        ("chunks", "entries", "7"),
        ("chunks", "checkpoints", "7"),
        ("chunks", "records", "7"),
        ("chunks", "sequence_number", "sequence_number + 7"),
        ("checkpoints", "checkpoint_state", "'{}'"),
        ("checkpoints", "checkpoint_state", "checkpoint_state || ' '"),
        ("checkpoints", "checkpoint_digest", "'z'"),
        ("approvals", "status", "'maybe'"),
        ("approvals", "note", "'note'"),
        ("approvals", "approver_id", "'a b'"),
        ("events", "event_type", "'other'"),
        ("events", "payload_json", "'{'"),
        ("events", "payload_json", "payload_json || ' '"),
        ("events", "event_id", "event_id || 'z'"),
        ("tool_runs", "idempotency_key", "NULL"),
        ("tool_runs", "tool_server", "NULL"),
        ("tool_runs", "bound_tool", "NULL"),
        ("tool_runs", "asked_digest", "x'7a'"),
        ("tool_runs", "settled", "2"),
    ];
    let (_directory, path) = place();
    let desk = Desk::open(Arc::new(open(&path))).await;
    let mut step = desk.step();
    let (pausing, asked) = step.pausing();
    desk.store.commit(pausing).await.unwrap();
    let mut ended = desk.finished().await;
    let (unanswered, _) = (step.id(), asked);
    ended.events.clear();
    drop(desk);
    for (table, column, value) in rows {
        let run_id = if table == "approvals" { unanswered } else { ended.id() };
        let spoilt = path.with_extension("spoilt");
        fs::copy(&path, &spoilt).unwrap();
        tamper(&spoilt, table, column, value, run_id);
        let store = open(&spoilt);
        let answer = store.dossier(run_id).await;
        let Err(StoreError::State(error)) = answer else {
            panic!("{table}.{column} = {value}: {answer:?}");
        };
        assert_eq!(error.code, StateCode::ChecksumMismatch);
        let names = [table, &run_id.to_string()];
        let is_named = names.iter().all(|name| error.detail.contains(name));
        assert!(is_named && error.detail.contains("column "), "{}", error.detail);
        let is_derived = ["link_number", "link_prev", "note", "approver_id"].contains(&column);
        assert!(is_derived || error.detail.contains(column), "{}", error.detail);
    }
}

/// Changes one cell of a run, after taking the triggers out of the way.
fn tamper(path: &Path, table: &str, column: &str, value: &str, run_id: RunId) {
    let stranger = Unfolded::open(path);
    let mut statement =
        stranger.prepare("SELECT name FROM sqlite_schema WHERE type = 'trigger'").unwrap();
    let names = statement.query_map([], |row| row.get::<_, String>(0)).unwrap();
    for name in names.map(Result::unwrap).collect::<Vec<_>>() {
        stranger.execute_batch(&format!("DROP TRIGGER {name}")).unwrap();
    }
    drop(statement);
    let key = match table {
        "chunks" | "journal" | "checkpoints" | "effects" => "trace_id",
        _ => "tool_run_id",
    };
    let sql = format!("UPDATE {table} SET {column} = {value} WHERE {key} = '{run_id}'");
    assert!(stranger.execute(&sql, []).unwrap() > 0);
    stranger.fold().unwrap();
}

#[tokio::test]
async fn a_last_entry_without_its_digest_is_no_state() {
    let (_directory, path) = place();
    let run_id = used(&path).await;
    tamper(&path, "journal", "ts", "'2020-01-01T00:00:00.000Z'", run_id);
    let answer = open(&path).load_state(run_id).await;
    assert!(
        matches!(answer, Err(StoreError::State(error)) if error.code == StateCode::ChecksumMismatch)
    );
}

/// The log is copied while steps go on: it starts over, although writers leave it no pause.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_log_has_an_end_while_many_write() {
    const LOG_PAGES: u32 = 64;
    /// A log that was left alone would be four times as long, and not longer: then the writer copies it.
    const LONGEST: u64 = 4 * 64 + 100;
    let (_directory, path) = place();
    let options = SqliteOptions { wal_pages: LOG_PAGES, ..SqliteOptions::default() };
    let desk = Desk::open(Arc::new(SqliteStore::open(&path, options).unwrap())).await;
    let writers = (0..8).map(|_| {
        let desk = desk.clone();
        tokio::spawn(async move {
            for _ in 0..150 {
                desk.finished().await;
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }
    let pages = |path: &Path| fs::metadata(path).unwrap().len() / 4096;
    let (file, log) = (pages(&path), pages(&path.with_extension("db-wal")));
    assert!(log < LONGEST, "{log} pages of log");
    assert!(file > 2 * LONGEST, "{file} pages: too few steps to see it");
}
