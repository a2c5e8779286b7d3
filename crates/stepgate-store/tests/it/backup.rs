//! Copies of a store, from each engine into each: every row as it was, and a store that goes on.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use rusqlite::Connection;
use rusqlite::types::Value;
use stepgate_core::ids::RunId;
use stepgate_core::ports::{
    Audits, Cursor, EventQuery, Events, Locks, Nodes, Runs, Sessions, StepCommit, Store, Writes,
};
use stepgate_store::{BackupError, PostgresOptions, PostgresStore, RowCounts, SqliteStore};

use crate::budgets::{charge, taking};
use crate::conformance::sqlite;
use crate::desk::{Desk, Step};
use crate::server;

/// Every row of every table, as SQLite gives it.
type Rows = BTreeMap<String, Vec<Vec<Value>>>;

fn rows(path: &Path) -> Rows {
    let connection = Connection::open(path).unwrap();
    let sql = "SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name";
    let mut names = connection.prepare(sql).unwrap();
    let names: Vec<String> =
        names.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    let read = |name: &String| {
        let mut all =
            connection.prepare(&format!("SELECT * FROM {name} ORDER BY position")).unwrap();
        let width = all.column_count();
        let cells = |row: &rusqlite::Row<'_>| (0..width).map(|index| row.get(index)).collect();
        let rows = all.query_map([], cells).unwrap().map(Result::unwrap);
        (name.clone(), rows.collect())
    };
    names.iter().map(read).collect()
}

/// A history with everything that a row can hold: steps that are over, refused, under way, paused and
/// decided, texts that PostgreSQL cannot keep as they are, and payloads that are kept apart.
async fn history(store: Arc<dyn Store>) -> (Desk, [Step; 2]) {
    let desk = Desk::open(store).await;
    for _ in 0..700 {
        desk.finished().await;
    }
    let mut refused = desk.step();
    refused.run.tool_name = Some("a\0b\\0c\\\\".into());
    desk.store.commit(refused.refused_at_once()).await.unwrap();
    let (mut paused, mut decided) = (desk.step(), desk.step());
    desk.store.commit(paused.pausing().0).await.unwrap();
    let (pausing, asked) = decided.pausing();
    desk.store.commit(pausing).await.unwrap();
    let (granting, _) = decided.granting(&asked);
    desk.store.commit(granting).await.unwrap();
    let mut under_way = desk.step();
    let sealed = Some(Arc::from(&b"as \0 it came"[..]));
    let opening = StepCommit { sealed, ..under_way.opening() };
    let opening = taking(&mut under_way, opening, &[charge("12.34")]);
    desk.store.commit(opening).await.unwrap();
    desk.store.append_event(desk.loose_event()).await.unwrap();
    desk.store.take_cursor("reader", 3).await.unwrap();
    let cursor = Cursor { name: "reader".into(), reached: 9, error: Some("a\0b".into()) };
    assert_eq!(desk.store.move_cursor(&cursor).await, Ok(true));
    (desk, [decided, under_way])
}

async fn node(url: &str) -> Arc<PostgresStore> {
    Arc::new(PostgresStore::open(url, PostgresOptions::default()).await.unwrap())
}

async fn from_postgres(url: &str, to: &Path) -> RowCounts {
    PostgresStore::back_up(url, PostgresOptions::default(), to, |_| {}).await.unwrap()
}

async fn into_postgres(from: &Path, url: &str) {
    let options = PostgresOptions::default();
    let restoring = PostgresStore::restore(url, options, from, |_, _| {}).await.unwrap();
    restoring.finish().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_row_comes_through_both_engines_as_it_was() {
    let (directory, store) = sqlite().await;
    let (desk, _) = history(store).await;
    let original = directory.path().join("stepgate.db");
    let at = |name: &str| directory.path().join(name);
    let counts = SqliteStore::back_up(&original, &at("a.db"), |_, _| {}).unwrap();
    assert_eq!(counts["tool_runs"], 704);
    assert_eq!(counts["sealed_payloads"], 1);
    assert_eq!(counts["cursors"], 1);
    assert_eq!(counts["budget_accounts"], 1);
    let expected = rows(&original);
    assert_eq!(rows(&at("a.db")), expected);
    let url = server::fresh_url();
    into_postgres(&at("a.db"), &url).await;
    assert_eq!(from_postgres(&url, &at("b.db")).await, counts);
    assert_eq!(rows(&at("b.db")), expected);
    // One file, which needs nothing beside it.
    assert!(!at("a.db-wal").exists() && !at("b.db-wal").exists());
    drop(desk);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_is_of_one_moment_whatever_is_written_meanwhile() {
    let (directory, store) = sqlite().await;
    let (desk, _) = history(store).await;
    let original = directory.path().join("stepgate.db");
    let before = rows(&original);
    let copy = directory.path().join("copy.db");
    let mut is_first = true;
    let more = desk.clone();
    SqliteStore::back_up(&original, &copy, |done, all| {
        assert!(done < all, "{done} of {all}");
        if std::mem::take(&mut is_first) {
            // The writer is not kept waiting by the copy.
            let more = more.clone();
            tokio::task::block_in_place(|| {
                tokio::runtime::Handle::current().block_on(async { more.finished().await })
            });
        }
    })
    .unwrap();
    assert_eq!((is_first, desk.store.counts().await.unwrap().runs), (false, 705));
    assert_eq!(rows(&copy), before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restored_database_goes_on_where_the_store_was() {
    let (directory, store) = sqlite().await;
    let (desk, [mut decided, mut under_way]) = history(store).await;
    let copy = directory.path().join("copy.db");
    SqliteStore::back_up(&directory.path().join("stepgate.db"), &copy, |_, _| {}).unwrap();
    let url = server::fresh_url();
    into_postgres(&copy, &url).await;
    let store = node(&url).await;
    // Nobody owns them: the first node that comes takes over, before it is asked anything.
    assert!(store.has_stray_runs().await.unwrap());
    let unfinished = desk.store.unfinished_runs().await.unwrap();
    assert_eq!(store.unfinished_runs().await.unwrap(), unfinished);
    assert_eq!(unfinished.len(), 3);
    for step in [&mut decided, &mut under_way] {
        let run_id: RunId = step.id();
        store.acquire_trace_lock(run_id).await.unwrap();
        store.may_dispatch(run_id).await.unwrap();
        let closing = step.closing();
        store.commit(closing.clone()).await.unwrap();
        desk.store.commit(closing).await.unwrap();
        store.release_trace_lock(run_id).await.unwrap();
        assert_eq!(store.dossier(run_id).await.unwrap(), desk.store.dossier(run_id).await.unwrap());
    }
    assert!(!store.has_stray_runs().await.unwrap());
    // Counters go on: the same index, the same positions of events, the same heads.
    let index = desk.store.next_step_index(desk.session).await.unwrap();
    assert_eq!(store.next_step_index(desk.session).await.unwrap(), index);
    let events = EventQuery { limit: 10_000, ..EventQuery::default() };
    let expected = desk.store.events(events.clone()).await.unwrap();
    assert_eq!(store.events(events).await.unwrap(), expected);
    assert_eq!(store.sessions().await.unwrap(), desk.store.sessions().await.unwrap());
    // New steps find free positions everywhere.
    let restored = Desk { store: store.clone(), ..desk.clone() };
    let step = restored.finished().await;
    assert_eq!(store.run_ids(None, 1).await.unwrap(), [step.id()]);
    let counts = store.counts().await.unwrap();
    assert_eq!(counts.runs, desk.store.counts().await.unwrap().runs + 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_of_a_restored_database_have_numbers_that_none_had_before() {
    let url = server::fresh_url();
    let store = node(&url).await;
    history(store.clone()).await;
    let before = store.nodes().await.unwrap()[0].incarnation;
    let directory = tempfile::tempdir().unwrap();
    let copy = directory.path().join("copy.db");
    from_postgres(&url, &copy).await;
    let elsewhere = server::fresh_url();
    into_postgres(&copy, &elsewhere).await;
    let restored = node(&elsewhere).await;
    let nodes = restored.nodes().await.unwrap();
    assert_eq!(nodes.len(), 1, "{nodes:?}");
    assert!(nodes[0].incarnation > before + 1_000_000, "{before}: {nodes:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_sees_a_restore_before_it_is_finished() {
    let (directory, store) = sqlite().await;
    history(store).await;
    let copy = directory.path().join("copy.db");
    SqliteStore::back_up(&directory.path().join("stepgate.db"), &copy, |_, _| {}).unwrap();
    let url = server::fresh_url();
    let options = PostgresOptions::default();
    let restoring = PostgresStore::restore(&url, options.clone(), &copy, |_, _| {}).await.unwrap();
    assert_eq!(restoring.store().counts().await.unwrap().runs, 704);
    let missing = PostgresStore::open_read_only(&url, options.clone()).await.unwrap_err();
    assert!(missing.to_string().starts_with("there is no store at"), "{missing}");
    // A node that starts meanwhile waits, and then makes a store of its own.
    let waiting = tokio::spawn({
        let url = url.clone();
        async move { node(&url).await.counts().await.unwrap().runs }
    });
    drop(restoring);
    assert_eq!(waiting.await.unwrap(), 0);
    // A database with a store in it is refused, whatever is in the store.
    let refused = PostgresStore::restore(&url, options, &copy, |_, _| {}).await.unwrap_err();
    assert!(matches!(refused, BackupError::NotEmpty { .. }), "{refused}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_engines_have_the_tables_and_columns_that_a_copy_carries() {
    let (directory, store) = sqlite().await;
    drop(store);
    let schema = server::fresh_schema();
    node(&server::url_of(&schema)).await;
    let sqlite = Connection::open(directory.path().join("stepgate.db")).unwrap();
    let sql =
        "SELECT t.name || '.' || c.name FROM sqlite_schema AS t, pragma_table_info(t.name) AS c
               WHERE t.type = 'table' ORDER BY 1";
    let mut columns = sqlite.prepare(sql).unwrap();
    let sqlite: Vec<String> =
        columns.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    // What belongs to processes is left behind, and nothing else.
    let sql = format!(
        "SELECT table_name || '.' || column_name FROM information_schema.columns
         WHERE table_schema = '{schema}'
           AND table_name NOT IN ('nodes', 'marks', 'step_indexes', 'event_counter', 'stepgate_store')
           AND NOT (table_name = 'tool_runs' AND column_name IN ('owner', 'epoch'))
           AND NOT (table_name = 'cursors' AND column_name = 'owner')
           AND NOT (table_name = 'sessions' AND column_name = 'step_index_floor')
         ORDER BY (table_name || '.' || column_name) COLLATE \"C\""
    );
    let postgres = server::shared().sql("postgres", &sql).unwrap();
    assert_eq!(postgres.lines().collect::<Vec<_>>(), sqlite);
}

#[tokio::test]
async fn a_copy_that_cannot_be_made_says_why() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let missing = SqliteStore::back_up(&at("none.db"), &at("copy.db"), |_, _| {}).unwrap_err();
    assert!(missing.to_string().starts_with("there is no store at"), "{missing}");
    fs::write(at("text.db"), "x".repeat(5000)).unwrap();
    let foreign = SqliteStore::back_up(&at("text.db"), &at("copy.db"), |_, _| {}).unwrap_err();
    assert!(foreign.to_string().contains("is not a SQLite database"), "{foreign}");
    let url = "postgres://postgres@127.0.0.1:1/none";
    let options = PostgresOptions::default();
    let away = PostgresStore::back_up(url, options, &at("copy.db"), |_| {}).await.unwrap_err();
    assert!(away.to_string().contains("does not answer"), "{away}");
    assert!(!at("copy.db").exists());
}

#[test]
fn a_file_of_an_older_version_is_brought_up_to_date() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("stepgate.db");
    let connection = Connection::open(&path).unwrap();
    for migration in [
        include_str!("../../src/sqlite/migrations/V0001__tables.sql"),
        include_str!("../../src/sqlite/migrations/V0002__refusals.sql"),
        "PRAGMA application_id = 0x53474154; PRAGMA user_version = 2",
    ] {
        connection.execute_batch(migration).unwrap();
    }
    drop(connection);
    let older = SqliteStore::open_read_only(&path).unwrap_err();
    assert!(older.to_string().contains("schema version 2, older than"), "{older}");
    SqliteStore::bring_up_to_date(&path).unwrap();
    SqliteStore::open_read_only(&path).unwrap();
}
