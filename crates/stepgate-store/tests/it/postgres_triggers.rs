//! What PostgreSQL itself refuses, to anybody who is connected, superusers included.

use std::sync::Arc;

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
    Stranger { schema }
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
        ("UPDATE budget_accounts SET budget = 'x'", "what names an account never changes"),
        ("UPDATE budget_accounts SET used = -1", "violates check constraint"),
    ];
    for (sql, why) in rows {
        stranger.refuses(sql, why);
    }
}
