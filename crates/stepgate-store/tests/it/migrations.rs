//! Stores of the version before, in which entries, checkpoints and records were rows of their own.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rusqlite::Connection;
use rusqlite::types::Value;
use stepgate_core::ports::{Dossier, Store};
use stepgate_store::{OpenError, PostgresOptions, PostgresStore, SqliteOptions, SqliteStore};
use tempfile::TempDir;

use crate::desk::{Desk, Step};
use crate::older_keys::{OF_EFFECTS, OF_RUNS};
use crate::server;
use crate::unfolded::{PARTS, Unfolded};

const SQLITE_TABLES: &str = include_str!("../../src/sqlite/migrations/V0001__tables.sql");
const SQLITE_REFUSALS: &str = include_str!("../../src/sqlite/migrations/V0002__refusals.sql");

/// Puts the parts of a store's chunks back into the tables that version 8 had.
pub(crate) fn to_version_8(path: &Path) {
    let stranger = Unfolded::open(path);
    let create = |source: &str, what: &str| {
        let from = source.find(what).unwrap();
        let end = if what.starts_with("CREATE TABLE") { ") STRICT;" } else { "END;" };
        let length = source[from..].find(end).unwrap() + end.len();
        stranger.execute_batch(&source[from..from + length]).unwrap();
    };
    for (_, table, key, columns) in PARTS {
        let link =
            if table == "checkpoints" { "" } else { ", link_number, link_prev, link_digest" };
        // The temporary table has the same name: the one in the file is made under it first.
        create(
            &SQLITE_TABLES.replace(&format!("TABLE {table} ("), &format!("TABLE main.{table} (")),
            &format!("CREATE TABLE main.{table} ("),
        );
        let copy = format!(
            "INSERT INTO main.{table} (position, {key}, {columns}{link})
             SELECT position, {key}, {columns}{link} FROM temp.{table}"
        );
        stranger.execute_batch(&copy).unwrap();
    }
    // Later versions replaced these triggers: they stand there in their older place, and what they said does not matter.
    for table in ["tool_runs", "approvals", "events"] {
        let trigger = format!("{table}_no_delete");
        let back = format!(
            "DROP TRIGGER {trigger};
             CREATE TRIGGER {trigger} BEFORE DELETE ON {table} BEGIN SELECT 1; END;"
        );
        stranger.execute_batch(&back).unwrap();
    }
    to_older_keys(&stranger);
    let later = "DROP TABLE archived_runs; DROP TABLE erasable_args; DROP TABLE chunks;
                 PRAGMA user_version = 8";
    stranger.execute_batch(later).unwrap();
    drop(stranger);
    let stranger = rusqlite::Connection::open(path).unwrap();
    for (_, table, ..) in PARTS {
        for what in ["no_replace", "no_delete", "no_update"] {
            let what = format!("CREATE TRIGGER {table}_{what} ");
            let from = SQLITE_REFUSALS.find(&what).unwrap();
            let length = SQLITE_REFUSALS[from..].find("END;").unwrap() + 4;
            stranger.execute_batch(&SQLITE_REFUSALS[from..from + length]).unwrap();
        }
    }
}

/// Puts the bindings of keys back into `effects`, as all versions up to 12 had them.
fn to_older_keys(stranger: &Connection) {
    for table in ["tool_runs", "effects"] {
        let trigger = format!("{table}_no_replace");
        let back = format!(
            "DROP TRIGGER {trigger};
             CREATE TRIGGER {trigger} BEFORE INSERT ON {table} BEGIN SELECT 1; END;"
        );
        stranger.execute_batch(&back).unwrap();
    }
    let copy = format!(
        "INSERT INTO effects ({OF_EFFECTS})
         SELECT {OF_RUNS} FROM tool_runs WHERE idempotency_key IS NOT NULL ORDER BY position"
    );
    stranger.execute(&copy, []).unwrap();
    for trigger in ["bind_free", "bind_once", "settle_once", "keep_key"] {
        stranger.execute_batch(&format!("DROP TRIGGER tool_runs_{trigger}")).unwrap();
    }
    stranger.execute_batch("DROP INDEX tool_runs_by_key").unwrap();
    for column in ["idempotency_key", "tool_server", "bound_tool", "asked_digest", "settled"] {
        stranger.execute_batch(&format!("ALTER TABLE tool_runs DROP COLUMN {column}")).unwrap();
    }
}

fn open(path: &Path) -> Result<SqliteStore, OpenError> {
    SqliteStore::open(path, SqliteOptions::default())
}

/// A store of version 8 with runs of every kind; each with what it was.
struct Before {
    _directory: TempDir,
    path: PathBuf,
    desk: Desk,
    granted: Step,
    runs: Vec<Dossier>,
}

async fn before(finished: usize) -> Before {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("stepgate.db");
    let desk = Desk::open(Arc::new(open(&path).unwrap())).await;
    let mut ids = Vec::new();
    for _ in 0..finished {
        ids.push(desk.finished().await.id());
    }
    let mut refused = desk.step();
    desk.store.commit(refused.refused_at_once()).await.unwrap();
    let mut granted = desk.step();
    let (pausing, asked) = granted.pausing();
    desk.store.commit(pausing).await.unwrap();
    desk.store.commit(granted.granting(&asked).0).await.unwrap();
    let mut marked = desk.step();
    desk.store.commit(marked.opening()).await.unwrap();
    desk.store.write_checkpoint(marked.checkpoint()).await.unwrap();
    let mut paused = desk.step();
    desk.store.commit(paused.pausing().0).await.unwrap();
    ids.extend([refused.id(), granted.id(), marked.id(), paused.id()]);
    let mut runs = Vec::new();
    for run_id in ids {
        runs.push(desk.store.dossier(run_id).await.unwrap().unwrap());
    }
    let Desk { store, system, session } = desk;
    drop(store);
    to_version_8(&path);
    let store: Arc<dyn Store> = Arc::new(stepgate_store::MemoryStore::new());
    Before { _directory: directory, path, desk: Desk { store, system, session }, granted, runs }
}

impl Before {
    /// Compares what a store has now, and goes on with a run that was under way.
    async fn is_whole_in(&mut self, store: Arc<dyn Store>) {
        self.desk.store = store;
        for run in &self.runs {
            let run_id = run.arrival_id();
            assert_eq!(self.desk.store.dossier(run_id).await.unwrap().as_ref(), Some(run));
        }
        self.desk.store.commit(self.granted.closing()).await.unwrap();
        let settled = self.desk.store.binding(&self.granted.key).await;
        assert_eq!(settled, Ok(Some(self.granted.binding(true))));
        self.desk.finished().await;
    }
}

trait Arrived {
    fn arrival_id(&self) -> stepgate_core::ids::RunId;
}

impl Arrived for Dossier {
    fn arrival_id(&self) -> stepgate_core::ids::RunId {
        self.run.arrival.run_id
    }
}

fn number(path: &Path, sql: &str) -> i64 {
    let stranger = rusqlite::Connection::open(path).unwrap();
    stranger.query_row(sql, [], |row| row.get(0)).unwrap()
}

#[tokio::test]
async fn rows_of_the_version_before_are_moved_into_chunks_whole() {
    let mut before = before(3).await;
    let path = before.path.clone();
    assert!(SqliteStore::open_read_only(&path).is_err());
    let store = open(&path).unwrap();
    assert_eq!(stepgate_core::ports::Audits::damage(&store).await.unwrap(), [] as [&str; 0]);
    before.is_whole_in(Arc::new(store)).await;
    let old = "SELECT count(*) FROM sqlite_schema WHERE name LIKE '%old_%'";
    assert_eq!(number(&path, old), 0);
}

#[tokio::test]
async fn a_move_that_was_interrupted_goes_on_where_it_was() {
    let mut before = before(270).await;
    let path = before.path.clone();
    let spoil = |value: &str| {
        let table = match number(&path, "PRAGMA user_version") {
            8 => "journal",
            _ => "old_journal",
        };
        let stranger = rusqlite::Connection::open(&path).unwrap();
        stranger.execute_batch("DROP TRIGGER IF EXISTS journal_no_update").unwrap();
        let sql = format!(
            "UPDATE {table} SET artifact_type = {value}
             WHERE position = (SELECT max(position) FROM {table})"
        );
        assert_eq!(stranger.execute(&sql, []).unwrap(), 1);
        if table == "journal" {
            stranger
                .execute_batch(
                    "CREATE TRIGGER journal_no_update BEFORE UPDATE ON journal
                     BEGIN SELECT 1; END",
                )
                .unwrap();
        }
    };
    // Not text at all: this row cannot be moved.
    spoil("CAST(x'ff' AS TEXT)");
    for _ in 0..2 {
        let error = open(&path).unwrap_err();
        assert!(matches!(error, OpenError::Damaged { .. }), "{error}");
    }
    let (moved, left) =
        (number(&path, "SELECT count(*) FROM chunks"), "SELECT count(*) FROM old_journal");
    assert!(moved >= 256, "{moved}");
    assert!(number(&path, left) > 0);
    spoil("'action_request'");
    before.is_whole_in(Arc::new(open(&path).unwrap())).await;
}

/// The rows of a table as an INSERT in PostgreSQL's words.
fn insert(path: &Path, table: &str) -> String {
    let stranger = rusqlite::Connection::open(path).unwrap();
    let mut select = stranger.prepare(&format!("SELECT * FROM {table} ORDER BY position")).unwrap();
    let names: Vec<String> = select.column_names().map(str::to_owned).collect();
    let cell = |cell: Value| match cell {
        Value::Null => "NULL".to_owned(),
        Value::Integer(number) => number.to_string(),
        Value::Text(text) => format!("'{}'", text.replace('\'', "''")),
        Value::Blob(bytes) => {
            let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("'\\x{hex}'")
        }
        Value::Real(_) => panic!("a fraction"),
    };
    let rows = select.query_map([], |row| {
        let cells: Vec<_> = (0..names.len()).map(|at| cell(row.get(at).unwrap())).collect();
        Ok(cells.join(", "))
    });
    let (further, values) =
        if table == "tool_runs" { (", epoch, owner", ", 0, NULL") } else { ("", "") };
    let rows: Vec<_> = rows.unwrap().map(|row| format!("({}{values})", row.unwrap())).collect();
    match rows.is_empty() {
        true => String::new(),
        false => format!(
            "INSERT INTO {table} ({}{further}) OVERRIDING SYSTEM VALUE VALUES {};",
            names.join(", "),
            rows.join(", ")
        ),
    }
}

#[tokio::test]
async fn nodes_that_start_together_move_the_rows_of_the_version_before_once() {
    let mut before = before(3).await;
    let schema = server::fresh_schema();
    let sql = |sql: &str| {
        let sql = format!("SET search_path = {schema}; {sql}");
        server::shared().sql("postgres", &sql).unwrap()
    };
    for migration in [
        include_str!("../../src/postgres/migrations/V0001__tables.sql"),
        include_str!("../../src/postgres/migrations/V0002__refusals.sql"),
        include_str!("../../src/postgres/migrations/V0003__nodes.sql"),
        include_str!("../../src/postgres/migrations/V0004__step_indexes.sql"),
        include_str!("../../src/postgres/migrations/V0005__marks.sql"),
        include_str!("../../src/postgres/migrations/V0006__lists.sql"),
        include_str!("../../src/postgres/migrations/V0007__cursors.sql"),
        include_str!("../../src/postgres/migrations/V0008__differences.sql"),
        include_str!("../../src/postgres/migrations/V0009__budgets.sql"),
    ] {
        sql(migration);
    }
    for table in
        "sessions tool_runs journal records checkpoints approvals events effects".split(' ')
    {
        sql(&insert(&before.path, table));
        if table != "events" {
            sql(&format!(
                "SELECT setval(pg_get_serial_sequence('{table}', 'position'), max(position)) FROM {table}"
            ));
        }
    }
    sql("UPDATE event_counter SET last = (SELECT max(position) FROM events);
         INSERT INTO stepgate_store (version) VALUES (9)");
    let url = server::url_of(&schema);
    let options = |node: &str| PostgresOptions { node_id: node.into(), ..Default::default() };
    let (one, other) = tokio::join!(
        PostgresStore::open(&url, options("one")),
        PostgresStore::open(&url, options("other"))
    );
    let (one, other) = (one.unwrap(), other.unwrap());
    assert_eq!(stepgate_core::ports::Audits::damage(&other).await.unwrap(), [] as [&str; 0]);
    before.is_whole_in(Arc::new(one)).await;
    let old = "SELECT count(*) FROM pg_tables
               WHERE schemaname = current_schema() AND tablename LIKE 'old%'";
    assert_eq!(sql(old).trim(), "0");
}
