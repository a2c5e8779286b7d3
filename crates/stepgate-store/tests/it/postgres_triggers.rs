//! What PostgreSQL itself refuses, to anybody who is connected, superusers included.

use std::sync::Arc;

use stepgate_core::ports::StepCommit;
use stepgate_store::{PostgresOptions, PostgresStore};

use crate::budgets::{charge, take};
use crate::desk::Desk;
use crate::server;

const TABLES: [&str; 7] =
    ["sessions", "tool_runs", "chunks", "approvals", "events", "effects", "budget_accounts"];

/// A schema with a row of every kind, finished, paused and decided.
async fn stranger() -> Stranger {
    let schema = server::fresh_schema();
    let url = server::url_of(&schema);
    let store = PostgresStore::open(&url, PostgresOptions::default()).await.unwrap();
    let desk = Desk::open(Arc::new(store)).await;
    desk.finished().await;
    take(&desk, &[charge("1")]).await.1.unwrap();
    let mut granted = desk.step();
    let (pausing, asked) = granted.pausing();
    desk.store.commit(pausing).await.unwrap();
    desk.store.commit(granted.granting(&asked).0).await.unwrap();
    let mut paused = desk.step();
    let mut pausing = paused.pausing().0;
    pausing.sealed = Some(Arc::from(&b"as it came"[..]));
    desk.store.commit(pausing).await.unwrap();
    let mut unbound = desk.step();
    desk.store.commit(StepCommit { key: None, ..unbound.opening() }).await.unwrap();
    let stranger = Stranger { schema };
    // Keys of runs of an older version: one is settled, one is not.
    let older = "INSERT INTO effects (idempotency_key, tool_server, tool_name, asked_digest,
                                      trace_id, settled)
                 VALUES ('older', 'core', 'THINK', '', 'older run', 1),
                        ('old', 'core', 'THINK', '', 'old run', 0)";
    stranger.sql(older).unwrap();
    stranger
}

struct Stranger {
    schema: String,
}

impl Stranger {
    fn sql(&self, sql: &str) -> anyhow::Result<String> {
        server::shared().sql("postgres", &format!("SET search_path = {}; {sql}", self.schema))
    }

    /// Everything in the schema, as text.
    fn content(&self) -> String {
        let tables = TABLES.iter().chain(&["sealed_payloads"]);
        tables
            .map(|table| self.sql(&format!("SELECT * FROM {table} ORDER BY position")).unwrap())
            .collect::<Vec<_>>()
            .join("\n")
    }

    fn refuses(&self, sql: &str, why: &str) {
        let before = self.content();
        match self.sql(sql) {
            Ok(_) => panic!("`{sql}` was accepted"),
            Err(error) => assert!(error.to_string().contains(why), "`{sql}`: {error}"),
        }
        assert_eq!(self.content(), before, "`{sql}` left something behind");
    }
}

/// Why a table's rows cannot be deleted.
fn kept(table: &str) -> &'static str {
    match table {
        "tool_runs" | "chunks" | "approvals" | "events" => "only rows of archived runs are deleted",
        _ => "rows are never deleted",
    }
}

#[tokio::test]
async fn no_row_is_deleted_and_no_table_emptied() {
    let stranger = stranger().await;
    for table in TABLES {
        stranger.refuses(&format!("DELETE FROM {table}"), kept(table));
        stranger.refuses(&format!("TRUNCATE {table}"), "a table is never emptied");
        let replaying = format!("SET session_replication_role = replica; DELETE FROM {table}");
        stranger.refuses(&replaying, kept(table));
    }
    let all = TABLES.join(", ");
    stranger.refuses(&format!("TRUNCATE {all} CASCADE"), "a table is never emptied");
}

#[tokio::test]
async fn no_row_is_replaced() {
    let stranger = stranger().await;
    for table in TABLES {
        let columns = format!(
            "SELECT string_agg(column_name, ', ') FROM information_schema.columns
             WHERE table_schema = current_schema() AND table_name = '{table}'
               AND column_name <> 'position'"
        );
        let columns = stranger.sql(&columns).unwrap();
        let (position, value) =
            if table == "events" { ("position, ", "position + 100, ") } else { ("", "") };
        let copy = format!(
            "INSERT INTO {table} ({position}{columns}) SELECT {value}{columns} FROM {table} LIMIT 1"
        );
        stranger.refuses(&copy, "duplicate key");
        let key = match table {
            "sessions" => "session_id",
            "tool_runs" | "approvals" => "tool_run_id",
            "chunks" => "trace_id, sequence_number",
            "events" => "event_id",
            "budget_accounts" => "budget, account_window, account_key",
            _ => "trace_id",
        };
        let upsert = format!("{copy} ON CONFLICT ({key}) DO UPDATE SET position = 99");
        let copied = stranger.sql(&upsert).unwrap_err().to_string();
        assert!(copied.contains("SG") || copied.contains("never") || copied.contains("position"));
    }
}

#[tokio::test]
async fn what_is_fixed_stays_fixed() {
    let stranger = stranger().await;
    let rows = [
        ("UPDATE chunks SET packed = 'x'", "rows are never changed"),
        ("UPDATE chunks SET records = 1", "rows are never changed"),
        ("UPDATE events SET payload_json = 'x'", "rows are never changed"),
        ("UPDATE sealed_payloads SET payload = 'x'", "rows are never changed"),
        ("DELETE FROM sealed_payloads", "a run that is not over needs its payload"),
        ("UPDATE sessions SET principal_id = 'x'", "what names a session never changes"),
        ("UPDATE sessions SET node_id = 'x'", "what names a session never changes"),
        ("UPDATE sessions SET head_number = 0", "a chain never gets shorter"),
        (
            "UPDATE tool_runs SET payload = 'x' WHERE status = 'approved'",
            "what arrived never changes",
        ),
        (
            "UPDATE tool_runs SET tool_name = 'x' WHERE status = 'approved'",
            "what arrived never changes",
        ),
        ("UPDATE tool_runs SET status = 'error'", "a finalized run never changes"),
        ("UPDATE tool_runs SET epoch = 0 WHERE status = 'approved'", "an epoch never comes back"),
        (
            "UPDATE approvals SET approval_context_json = 'x' WHERE status = 'pending'",
            "what was asked never changes",
        ),
        ("UPDATE approvals SET status = 'denied'", "a decided approval never changes"),
        ("UPDATE effects SET tool_name = 'x'", "a bound key never changes"),
        ("UPDATE effects SET settled = 0", "an effect is settled once"),
        (
            "UPDATE tool_runs SET idempotency_key = 'x' WHERE status = 'approved'",
            "a bound key never changes",
        ),
        (
            "UPDATE tool_runs SET idempotency_key = NULL WHERE status = 'approved'",
            "a bound key never changes",
        ),
        ("UPDATE tool_runs SET tool_server = '' WHERE settled = 0", "a bound key never changes"),
        ("UPDATE tool_runs SET bound_tool = '' WHERE settled = 0", "a bound key never changes"),
        ("UPDATE tool_runs SET asked_digest = '' WHERE settled = 0", "a bound key never changes"),
        ("UPDATE tool_runs SET settled = NULL WHERE settled = 0", "an effect is settled once"),
        ("UPDATE tool_runs SET settled = 2 WHERE settled = 0", "an effect is settled once"),
        (
            "UPDATE tool_runs SET settled = 1 WHERE status = 'approved';
             UPDATE tool_runs SET settled = 0 WHERE status = 'approved'",
            "an effect is settled once",
        ),
        ("UPDATE budget_accounts SET budget = 'x'", "what names an account never changes"),
        ("UPDATE budget_accounts SET used = -1", "violates check constraint"),
    ];
    for (sql, why) in rows {
        stranger.refuses(sql, why);
    }
}

/// In the rows of runs and in `effects`.
#[tokio::test]
async fn a_key_is_bound_once_in_both_tables_and_a_run_has_one() {
    let stranger = stranger().await;
    let names = "idempotency_key, tool_server, tool_name, asked_digest, trace_id, settled";
    let approved = "FROM tool_runs WHERE status = 'approved'";
    let effect = |key: &str, trace: &str| {
        format!("INSERT INTO effects ({names}) SELECT {key}, '', '', '', {trace}, 0 {approved}")
    };
    let why = "effects: a key is bound already";
    stranger.refuses(&effect("idempotency_key", "'new'"), why);
    stranger.refuses(&effect("'new'", "tool_run_id"), why);
    let run = |key: &str| {
        format!(
            "INSERT INTO tool_runs (tool_run_id, ts, session_id, principal_id, step_index, status,
                                    payload_bytes, payload, epoch, idempotency_key, settled)
             SELECT 'new', ts, session_id, principal_id, 9, 'started', 0, '', 0, {key}, 0 {approved}"
        )
    };
    stranger.refuses(&run("'older'"), "tool_runs: a key is bound already");
    stranger.refuses(&run("idempotency_key"), "duplicate key");
    let unbound = "WHERE status = 'started' AND idempotency_key IS NULL";
    let bind =
        |key: &str| format!("UPDATE tool_runs SET idempotency_key = {key}, settled = 0 {unbound}");
    stranger.refuses(&bind("'older'"), "tool_runs: a key is bound already");
    stranger.refuses(&bind(&format!("(SELECT idempotency_key {approved})")), "duplicate key");
    let trace = format!("(SELECT tool_run_id FROM tool_runs {unbound})");
    let older = format!("INSERT INTO effects ({names}) SELECT 'its own', '', '', '', {trace}, 0");
    stranger.sql(&older).unwrap();
    stranger.refuses(&bind("'second'"), "tool_runs: a key is bound already");
}

#[tokio::test]
async fn a_key_that_is_free_can_be_bound_and_settled() {
    let stranger = stranger().await;
    let bind = "UPDATE tool_runs SET idempotency_key = 'new', settled = 0
                WHERE status = 'started' AND idempotency_key IS NULL RETURNING 1";
    assert_eq!(stranger.sql(bind).unwrap().lines().next(), Some("1"));
    let settle = "UPDATE tool_runs SET settled = 1 WHERE idempotency_key = 'new' RETURNING settled";
    assert_eq!(stranger.sql(settle).unwrap().lines().next(), Some("1"));
}
