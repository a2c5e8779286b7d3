//! The lower bound of the cost of steps: only their rows, written by `pgbench`.
//!
//! The rows come from a real step. They are written into tables with the same indexes, without triggers,
//! counters, plans or conditions, in the same commits. Each client has a session of its own, so that no
//! client waits for another.

use deadpool_postgres::Object;
use serde_json::Value;
use tokio_postgres::Client;

use super::error::{OpenError, while_opening};
use super::open::{Address, PostgresOptions};
use super::schema;

/// A schema that is created for a measurement and removed after it.
#[derive(Debug)]
pub struct Scratch {
    address: Address,
    name: String,
    url: String,
}

/// The key columns, which differ in every row of a table.
const KEYS: [(&str, &[&str]); 4] = [
    ("tool_runs", &["tool_run_id"]),
    ("chunks", &["trace_id"]),
    ("effects", &["idempotency_key", "trace_id"]),
    ("events", &["event_id", "tool_run_id"]),
];

/// A number that no other step has, as long as an id and increasing with time.
const ID: &str = "lpad((:step * 1000 + :client_id)::text, 36, '0')";

impl Scratch {
    /// Makes an empty schema of this name in a database.
    pub async fn make(url: &str, name: &str) -> Result<Self, OpenError> {
        let address = Address::of(url, &PostgresOptions::default())?;
        let separator = if url.contains('?') { '&' } else { '?' };
        let inside = format!("{url}{separator}options=-csearch_path%3D{name}");
        let scratch = Self { address, name: name.to_owned(), url: inside };
        let drop = format!("DROP SCHEMA IF EXISTS {name} CASCADE; CREATE SCHEMA {name}");
        let client = scratch.client().await?;
        scratch.run(&client, &drop).await?;
        Ok(scratch)
    }

    /// The URL of the schema.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Removes it with everything in it.
    pub async fn remove(self) -> Result<(), OpenError> {
        let drop = format!("DROP SCHEMA {} CASCADE", self.name);
        let client = self.client().await?;
        self.run(&client, &drop).await
    }

    /// Creates bare tables in this schema for this many clients, and the script that writes a step of
    /// another schema into them: its last step with two commits, or with one if all had one.
    pub async fn script_of(&self, steps: &Self, clients: usize) -> Result<String, OpenError> {
        let client = self.client().await?;
        let (bare, real) = (&self.name, &steps.name);
        self.run(
            &client,
            &format!(
                "SET search_path = {bare}; {}; CREATE SEQUENCE bare_positions;
                 CREATE TABLE chunks (LIKE {real}.chunks INCLUDING ALL);
                 INSERT INTO sessions (session_id, principal_id, kind, ts, head_number, head_digest,
                                       last_step_index)
                 SELECT lpad(n::text, 36, '0'), 'agent', 'named', '', 0, repeat('0', 64), 0
                 FROM generate_series(0, {clients}) AS n; SET search_path = {real}",
                schema::TABLES_SQL
            ),
        )
        .await?;
        let last = "SELECT tool_run_id FROM tool_runs WHERE latency_ms IS NOT NULL
                    ORDER BY (SELECT count(*) FROM chunks WHERE trace_id = tool_run_id) DESC, position DESC LIMIT 1";
        let lift = |error: tokio_postgres::Error| while_opening(&self.address.shown, &error);
        let run = client.query_typed_one(last, &[]).await.map_err(lift)?;
        let run: String = run.get(0);
        self.script(&client, &run).await
    }

    async fn script(&self, client: &Client, run: &str) -> Result<String, OpenError> {
        let (of_run, of_trace) = (format!("tool_run_id = '{run}'"), format!("trace_id = '{run}'"));
        let of = async |table, condition: &str| self.inserts(client, table, condition).await;
        let opened = of("chunks", &format!("{of_trace} AND records = 0")).await?;
        let ends = "event_type IN ('tool_succeeded', 'tool_failed', 'policy_violation')";
        let session = "UPDATE sessions SET head_number = head_number + 1, \
                       head_digest = repeat('a', 64), last_step_index = :step \
                       WHERE session_id = lpad((:client_id)::text, 36, '0');\n";
        let mut script = String::from("\\set step :step + 1\nBEGIN;\n");
        script += &of("tool_runs", &of_run).await?;
        if opened.is_empty() {
            script += &of("effects", &of_trace).await?;
            script += &of("events", &of_run).await?;
        } else {
            script += &opened;
            script += &of("effects", &of_trace).await?;
            script += &of("events", &format!("{of_run} AND NOT {ends}")).await?;
            script += session;
            script += &format!(
                "COMMIT;\nBEGIN;\n\
                 UPDATE tool_runs SET status = 'ok', latency_ms = 1 WHERE tool_run_id = {ID};\n\
                 UPDATE effects SET settled = 1 WHERE idempotency_key = {ID};\n"
            );
            script += &of("events", &format!("{of_run} AND {ends}")).await?;
        }
        script += &of("chunks", &format!("{of_trace} AND records > 0")).await?;
        Ok(script + session + "COMMIT;\n")
    }

    /// The rows of a step as one statement, with new keys for every step.
    async fn inserts(
        &self,
        client: &Client,
        table: &'static str,
        condition: &str,
    ) -> Result<String, OpenError> {
        let lift = |error: tokio_postgres::Error| while_opening(&self.address.shown, &error);
        let sql = format!(
            "SELECT row_to_json(t)::text FROM {table} AS t WHERE {condition} ORDER BY position"
        );
        let rows = client.query_typed(&sql, &[]).await.map_err(lift)?;
        let keys = KEYS.iter().find(|(of, _)| *of == table).map_or(&[][..], |(_, keys)| *keys);
        let (mut columns, mut values) = (String::new(), Vec::new());
        for row in &rows {
            let row: Value = serde_json::from_str(row.get(0)).unwrap_or_default();
            let cells = row.as_object().into_iter().flatten();
            let (names, cells): (Vec<_>, Vec<_>) = cells
                .filter(|(name, _)| name.as_str() != "position")
                .map(|(name, cell)| (name.clone(), written(name, cell, keys)))
                .unzip();
            columns = names.join(", ");
            values.push(format!("({})", cells.join(", ")));
        }
        if values.is_empty() {
            return Ok(String::new());
        }
        let values = values.join(", ");
        Ok(match table {
            // Their positions come from a counter, which a bare table does not have.
            "events" => format!(
                "INSERT INTO events ({columns}, position) \
                 SELECT row.*, nextval('bare_positions') FROM (VALUES {values}) AS row;\n"
            ),
            _ => format!("INSERT INTO {table} ({columns}) VALUES {values};\n"),
        })
    }

    async fn client(&self) -> Result<Object, OpenError> {
        let pool = self.address.pool(&PostgresOptions::default());
        pool.get().await.map_err(|error| OpenError::Away {
            shown: self.address.shown.clone(),
            detail: error.to_string(),
        })
    }

    async fn run(&self, client: &Client, sql: &str) -> Result<(), OpenError> {
        let done = client.batch_execute(sql).await;
        done.map_err(|error| while_opening(&self.address.shown, &error))
    }
}

/// A cell as SQL. `pgbench` reads a colon as the start of a variable, also within a text.
fn written(name: &str, cell: &Value, keys: &[&str]) -> String {
    match (name, cell) {
        // The events of one step need different ids: each keeps the last characters of its real id.
        ("event_id", Value::String(id)) => {
            let end: String = id.chars().skip(id.chars().count().saturating_sub(4)).collect();
            format!("{ID} || '{end}'")
        }
        (name, _) if keys.contains(&name) => ID.to_owned(),
        ("status", _) => "'started'".into(),
        ("owner" | "latency_ms", _) => "NULL::bigint".into(),
        ("output_json" | "error_json", _) => "NULL::text".into(),
        (_, Value::String(text)) => {
            let quoted = text.replace('\\', "\\\\").replace('\'', "''").replace(':', "\\x3a");
            let is_bytes = ["payload", "packed", "link_prev", "link_digest"].contains(&name);
            let kind = if is_bytes && text.starts_with("\\x") { "::bytea" } else { "" };
            format!("E'{quoted}'{kind}")
        }
        ("link_number", Value::Null) => "NULL::bigint".into(),
        (_, Value::Null) => "NULL".into(),
        (_, Value::Number(_) | Value::Bool(_) | Value::Array(_) | Value::Object(_)) => {
            cell.to_string()
        }
    }
}
