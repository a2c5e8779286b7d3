//! What the database itself refuses, to any program that holds the file.

use std::sync::Arc;

use rusqlite::Connection;
use rusqlite::types::Value;
use stepgate_core::ports::StepCommit;
use stepgate_store::{SqliteOptions, SqliteStore};
use tempfile::TempDir;

use crate::budgets::{charge, take};
use crate::desk::Desk;
use crate::older_keys::{OF_EFFECTS, OF_RUNS};

/// A file with a row of every kind, finished, paused and decided, and a stranger's connection to it.
async fn stranger() -> (TempDir, Connection) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("stepgate.db");
    let store = SqliteStore::open(&path, SqliteOptions::default()).unwrap();
    let desk = Desk::open(Arc::new(store)).await;
    desk.finished().await;
    take(&desk, &[charge("1")]).await.1.unwrap();
    let mut granted = desk.step();
    let (pausing, asked) = granted.pausing();
    desk.store.commit(pausing).await.unwrap();
    desk.store.commit(granted.granting(&asked).0).await.unwrap();
    let mut paused = desk.step();
    desk.store.commit(paused.pausing().0).await.unwrap();
    let mut unbound = desk.step();
    desk.store.commit(StepCommit { key: None, ..unbound.opening() }).await.unwrap();
    drop(desk);
    let stranger = Connection::open(path).unwrap();
    stranger.execute_batch(OLDER_KEYS).unwrap();
    (directory, stranger)
}

/// Keys of runs of an older version: one is settled, one is not.
const OLDER_KEYS: &str = "INSERT INTO effects (idempotency_key, tool_server, tool_name,
                                               asked_digest, trace_id, settled)
                          VALUES ('older', 'core', 'THINK', '', 'older run', 1),
                                 ('old', 'core', 'THINK', '', 'old run', 0)";

const TABLES: [&str; 7] =
    ["sessions", "tool_runs", "chunks", "approvals", "events", "effects", "budget_accounts"];

/// Everything in the file, as text.
fn content(connection: &Connection) -> Vec<String> {
    let mut content = Vec::new();
    for table in TABLES {
        let mut statement =
            connection.prepare(&format!("SELECT * FROM {table} ORDER BY position")).unwrap();
        let columns = statement.column_count();
        let mut rows = statement.query([]).unwrap();
        while let Some(row) = rows.next().unwrap() {
            for column in 0..columns {
                content.push(format!("{:?}", row.get_ref(column).unwrap()));
            }
        }
    }
    content
}

fn refuses(connection: &Connection, sql: &str, why: &str) {
    let before = content(connection);
    match connection.execute_batch(sql) {
        Ok(()) => panic!("`{sql}` was accepted"),
        Err(error) => assert!(error.to_string().contains(why), "`{sql}`: {error}"),
    }
    assert_eq!(content(connection), before, "`{sql}` left something behind");
}

fn columns(connection: &Connection, table: &str) -> Vec<String> {
    let mut statement = connection.prepare("SELECT name FROM pragma_table_info(?1)").unwrap();
    let names = statement.query_map([table], |row| row.get(0)).unwrap();
    names.map(Result::unwrap).collect()
}

/// Why a table's rows cannot be deleted.
fn kept(table: &str) -> &'static str {
    match table {
        "tool_runs" | "chunks" | "approvals" | "events" => "only rows of archived runs are deleted",
        _ => "rows are never deleted",
    }
}

#[tokio::test]
async fn no_row_is_deleted() {
    let (_directory, stranger) = stranger().await;
    for table in TABLES {
        let sql = format!("DELETE FROM {table} WHERE position = 1");
        refuses(&stranger, &sql, kept(table));
        refuses(&stranger, &format!("DELETE FROM {table}"), kept(table));
    }
}

#[tokio::test]
async fn no_row_is_replaced() {
    let (_directory, stranger) = stranger().await;
    let why = "there is such a row already";
    for table in TABLES {
        let names = columns(&stranger, table);
        let others = names[1..].join(", ");
        for how in ["INSERT OR REPLACE", "REPLACE", "INSERT OR IGNORE", "INSERT"] {
            // By its unique keys, under a position of its own.
            let by_key =
                format!("{how} INTO {table} ({others}) SELECT {others} FROM {table} LIMIT 1");
            refuses(&stranger, &by_key, why);
            // By its position alone, where no unique key is in the way.
            let shifted: Vec<_> = names[1..]
                .iter()
                .map(|name| match name.as_str() {
                    "session_id" | "tool_run_id" | "trace_id" | "approval_id" | "event_id"
                    | "idempotency_key" | "account_key" => format!("'other-' || {name}"),
                    other => other.to_owned(),
                })
                .collect();
            let by_position = format!(
                "{how} INTO {table} (position, {others}) SELECT position, {} FROM {table} LIMIT 1",
                shifted.join(", ")
            );
            refuses(&stranger, &by_position, why);
        }
        let upsert = format!(
            "INSERT INTO {table} SELECT * FROM {table} WHERE true
             ON CONFLICT DO UPDATE SET position = 99"
        );
        refuses(&stranger, &upsert, why);
    }
}

#[tokio::test]
async fn the_only_session_of_its_kind_is_not_replaced_by_another() {
    let (_directory, stranger) = stranger().await;
    for how in ["INSERT OR REPLACE", "REPLACE", "INSERT OR IGNORE", "INSERT"] {
        for kind in ["system", "default"] {
            let another = format!(
                "{how} INTO sessions (session_id, principal_id, kind, ts, head_number,
                                      head_digest, last_step_index)
                 SELECT 'other-' || session_id, principal_id, kind, ts, 0, head_digest, 0
                 FROM sessions WHERE kind = '{kind}'"
            );
            refuses(&stranger, &another, "there is such a row already");
        }
    }
}

#[tokio::test]
async fn what_is_chained_is_never_changed() {
    let (_directory, stranger) = stranger().await;
    for table in ["chunks", "events"] {
        for column in columns(&stranger, table) {
            let sql = format!("UPDATE {table} SET {column} = {column}");
            refuses(&stranger, &sql, "rows are never changed");
            let sql = format!("UPDATE OR REPLACE {table} SET {column} = {column}");
            refuses(&stranger, &sql, "rows are never changed");
        }
    }
}

#[tokio::test]
async fn what_is_fixed_in_a_changing_row_stays_fixed() {
    let (_directory, stranger) = stranger().await;
    let moving: [(&str, &[&str]); 5] = [
        ("sessions", &["head_number", "head_digest", "last_step_index"]),
        ("tool_runs", &["status", "output_json", "error_json", "latency_ms", "settled"]),
        ("approvals", &["status", "ts_resolved", "approver_id", "note"]),
        ("effects", &["settled"]),
        ("budget_accounts", &["used"]),
    ];
    for (table, moving) in moving {
        // Beside a change that is legal, so that nothing but the fixed column is in the way.
        let legal = match table {
            "sessions" => "head_number = head_number + 1",
            "tool_runs" => "status = 'approved' WHERE status = 'approval_required'",
            "budget_accounts" => "used = used + 1",
            "approvals" => "status = 'denied' WHERE status = 'pending'",
            _ => "settled = 1 WHERE settled = 0",
        };
        for column in columns(&stranger, table) {
            if !moving.contains(&column.as_str()) {
                let sql = format!("UPDATE OR REPLACE {table} SET {column} = {column}, {legal}");
                refuses(&stranger, &sql, "never changes");
            }
        }
    }
}

#[tokio::test]
async fn a_row_that_is_final_never_changes() {
    let (_directory, stranger) = stranger().await;
    let rows = [
        ("UPDATE tool_runs SET status = 'error' WHERE status = 'ok'", "a finalized run"),
        ("UPDATE tool_runs SET status = 'started' WHERE status = 'ok'", "a finalized run"),
        ("UPDATE tool_runs SET output_json = '1' WHERE status = 'ok'", "a finalized run"),
        ("UPDATE approvals SET status = 'denied' WHERE status = 'approved'", "a decided approval"),
        ("UPDATE approvals SET note = '' WHERE status = 'approved'", "a decided approval"),
        ("UPDATE effects SET settled = 0 WHERE settled = 1", "settled once"),
        ("UPDATE effects SET settled = 1 WHERE settled = 1", "settled once"),
        ("UPDATE effects SET settled = 2 WHERE settled = 0", "settled once"),
        ("UPDATE tool_runs SET settled = NULL WHERE status = 'approved'", "settled once"),
        ("UPDATE tool_runs SET settled = 2 WHERE status = 'approved'", "settled once"),
        (
            "BEGIN; UPDATE tool_runs SET settled = 1 WHERE status = 'approved';
             UPDATE tool_runs SET settled = 0 WHERE status = 'approved'",
            "settled once",
        ),
        ("UPDATE sessions SET head_number = head_number - 1", "never gets shorter"),
        ("UPDATE sessions SET last_step_index = last_step_index - 1", "never gets shorter"),
        ("UPDATE budget_accounts SET used = -1", "CHECK constraint failed"),
    ];
    for (sql, why) in rows {
        refuses(&stranger, sql, why);
    }
}

/// In the rows of runs and in `effects`.
#[tokio::test]
async fn a_key_is_bound_once_in_both_tables_and_a_run_has_one() {
    let (_directory, stranger) = stranger().await;
    let names = "idempotency_key, tool_server, tool_name, asked_digest, trace_id, settled";
    let approved = "FROM tool_runs WHERE status = 'approved'";
    for how in ["INSERT OR REPLACE", "REPLACE", "INSERT OR IGNORE", "INSERT"] {
        let effect = |key: &str, trace: &str| {
            format!("{how} INTO effects ({names}) SELECT {key}, '', '', '', {trace}, 0 {approved}")
        };
        let why = "effects: there is such a row already";
        refuses(&stranger, &effect("idempotency_key", "'new'"), why);
        refuses(&stranger, &effect("'new'", "tool_run_id"), why);
        for key in ["'older'", "idempotency_key"] {
            let run = format!(
                "{how} INTO tool_runs (tool_run_id, ts, session_id, principal_id, step_index, status,
                                       payload_bytes, payload, idempotency_key, settled)
                 SELECT 'new', ts, session_id, principal_id, 9, 'started', 0, x'', {key}, 0 {approved}"
            );
            refuses(&stranger, &run, "tool_runs: there is such a row already");
        }
    }
    let unbound = "WHERE status = 'started' AND idempotency_key IS NULL";
    for how in ["UPDATE", "UPDATE OR REPLACE", "UPDATE OR IGNORE"] {
        for key in ["'older'", &format!("(SELECT idempotency_key {approved})")] {
            let bind =
                format!("{how} tool_runs SET idempotency_key = {key}, settled = 0 {unbound}");
            refuses(&stranger, &bind, "tool_runs: a key is bound already");
        }
    }
    let trace = format!("(SELECT tool_run_id FROM tool_runs {unbound})");
    let older = format!("INSERT INTO effects ({names}) SELECT 'its own', '', '', '', {trace}, 0");
    stranger.execute(&older, []).unwrap();
    let second = format!("UPDATE tool_runs SET idempotency_key = 'second', settled = 0 {unbound}");
    refuses(&stranger, &second, "tool_runs: a key is bound already");
}

/// Whatever program deletes it.
#[tokio::test]
async fn the_key_of_a_run_that_leaves_the_store_stays_bound() {
    let (_directory, stranger) = stranger().await;
    let select = format!(
        "SELECT {OF_RUNS} FROM tool_runs WHERE status = 'ok' AND idempotency_key IS NOT NULL LIMIT 1"
    );
    let cells = |row: &rusqlite::Row<'_>| (0..6).map(|at| row.get::<_, Value>(at)).collect();
    let binding: Vec<Value> = stranger.query_row(&select, [], cells).unwrap();
    let keep = "INSERT INTO archived_runs (tool_run_id, session_id, archive_id, step_index,
                                           run_position, chunks, events, approvals, links)
                VALUES (?1, '', '', 0, 0, 0, 0, 0, x'')";
    stranger.execute(keep, [&binding[4]]).unwrap();
    stranger.execute("DELETE FROM tool_runs WHERE tool_run_id = ?1", [&binding[4]]).unwrap();
    let select = format!("SELECT {OF_EFFECTS} FROM effects ORDER BY position DESC LIMIT 1");
    assert_eq!(stranger.query_row(&select, [], cells).unwrap(), binding);
}

#[tokio::test]
async fn what_may_change_still_can() {
    let (_directory, stranger) = stranger().await;
    let rows = [
        "UPDATE tool_runs SET status = 'approved' WHERE status = 'approval_required'",
        "UPDATE approvals SET status = 'expired' WHERE status = 'pending'",
        "UPDATE effects SET settled = 1 WHERE settled = 0",
        "UPDATE tool_runs SET settled = 1 WHERE settled = 0",
        "UPDATE tool_runs SET idempotency_key = 'new', settled = 0
         WHERE status = 'started' AND idempotency_key IS NULL",
        "UPDATE sessions SET head_number = head_number + 1",
        "UPDATE budget_accounts SET used = used + 1",
    ];
    for sql in rows {
        assert!(stranger.execute(sql, []).unwrap() > 0, "{sql}");
    }
}
