//! The lower bound of the cost of steps: only their rows, written by `pgbench`.
//!
//! The rows come from a real step. They are written into tables with the same indexes, without triggers,
//! counters, plans or conditions, in the same commits. Each client has a session of its own, so that no
//! client waits for another.

use deadpool_postgres::Object;
use serde_json::Value;
use tokio_postgres::Client;

use super::error::{OpenError, while_connecting, while_opening};
use super::open::{Address, PostgresOptions};
use super::schema;

/// A schema that is created for a measurement and removed after it.
#[derive(Debug)]
pub struct Scratch {
    address: Address,
    name: String,
    url: String,
}

/// A real step for `pgbench`.
#[derive(Debug)]
pub struct Script {
    /// What `pgbench` runs for each step.
    pub sql: String,
    /// The values of the rows that each commit of the step writes: of one commit or two. Texts and bytes are as they are,
    /// numbers have eight bytes.
    pub commits: Vec<Vec<u8>>,
}

/// The rows of a step in one table.
#[derive(Default)]
struct Rows {
    /// The statement that writes them.
    sql: String,
    /// Their values that are known before the step acts.
    values: Vec<u8>,
    /// Their values that are known after it has acted.
    results: Vec<u8>,
}

/// The key columns, which differ in every row of a table.
const KEYS: [(&str, &[&str]); 3] = [
    ("tool_runs", &["tool_run_id", "idempotency_key"]),
    ("chunks", &["trace_id"]),
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
    pub async fn script_of(&self, steps: &Self, clients: usize) -> Result<Script, OpenError> {
        let client = self.client().await?;
        let (bare, real) = (&self.name, &steps.name);
        self.run(
            &client,
            &format!(
                "SET search_path = {bare}; {}; CREATE SEQUENCE bare_positions;
                 DROP TABLE tool_runs; CREATE TABLE tool_runs (LIKE {real}.tool_runs INCLUDING ALL);
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

    async fn script(&self, client: &Client, run: &str) -> Result<Script, OpenError> {
        let (of_run, of_trace) = (format!("tool_run_id = '{run}'"), format!("trace_id = '{run}'"));
        let of = async |table, condition: &str| self.inserts(client, table, condition).await;
        let ends = "event_type IN ('tool_succeeded', 'tool_failed', 'policy_violation')";
        let session = "UPDATE sessions SET head_number = head_number + 1, \
                       head_digest = repeat('a', 64), last_step_index = :step \
                       WHERE session_id = lpad((:client_id)::text, 36, '0');\n";
        let runs = of("tool_runs", &of_run).await?;
        let opened = of("chunks", &format!("{of_trace} AND records = 0")).await?;
        let has_two = !opened.sql.is_empty();
        let (begun, ended) = match has_two {
            true => (
                of("events", &format!("{of_run} AND NOT {ends}")).await?,
                of("events", &format!("{of_run} AND {ends}")).await?,
            ),
            false => (of("events", &of_run).await?, Rows::default()),
        };
        let closed = of("chunks", &format!("{of_trace} AND records > 0")).await?;
        let mut sql = String::from("\\set step :step + 1\nBEGIN;\n");
        let before = [&runs, &opened, &begun];
        sql.extend(before.map(|rows| rows.sql.as_str()));
        if has_two {
            sql += session;
            sql += &format!(
                "COMMIT;\nBEGIN;\n\
                 UPDATE tool_runs SET status = 'ok', latency_ms = 1, settled = 1 \
                 WHERE tool_run_id = {ID};\n"
            );
        }
        sql.extend([&ended, &closed].map(|rows| rows.sql.as_str()));
        sql += session;
        sql += "COMMIT;\n";
        let before = before.map(|rows| rows.values.as_slice()).concat();
        let after = [runs.results, ended.values, closed.values].concat();
        let commits = if has_two { vec![before, after] } else { vec![[before, after].concat()] };
        Ok(Script { sql, commits })
    }

    /// The rows of a step as one statement, with new keys for every step.
    async fn inserts(
        &self,
        client: &Client,
        table: &'static str,
        condition: &str,
    ) -> Result<Rows, OpenError> {
        let lift = |error: tokio_postgres::Error| while_opening(&self.address.shown, &error);
        let sql = format!(
            "SELECT row_to_json(t)::text FROM {table} AS t WHERE {condition} ORDER BY position"
        );
        let rows = client.query_typed(&sql, &[]).await.map_err(lift)?;
        let keys = KEYS.iter().find(|(of, _)| *of == table).map_or(&[][..], |(_, keys)| *keys);
        let (mut columns, mut values) = (String::new(), Vec::new());
        let mut found = Rows::default();
        for row in &rows {
            let row: Value = serde_json::from_str(row.get(0)).unwrap_or_default();
            let cells = row.as_object().into_iter().flatten();
            let cells = cells.filter(|(name, _)| name.as_str() != "position");
            for (name, cell) in cells.clone() {
                let is_result =
                    ["output_json", "error_json", "latency_ms"].contains(&name.as_str());
                let kept = if is_result { &mut found.results } else { &mut found.values };
                add_bytes(kept, name, cell);
            }
            let (names, cells): (Vec<_>, Vec<_>) =
                cells.map(|(name, cell)| (name.clone(), written(name, cell, keys))).unzip();
            columns = names.join(", ");
            values.push(format!("({})", cells.join(", ")));
        }
        if values.is_empty() {
            return Ok(found);
        }
        let values = values.join(", ");
        found.sql = match table {
            // Their positions come from a counter, which a bare table does not have.
            "events" => format!(
                "INSERT INTO events ({columns}, position) \
                 SELECT row.*, nextval('bare_positions') FROM (VALUES {values}) AS row;\n"
            ),
            _ => format!("INSERT INTO {table} ({columns}) VALUES {values};\n"),
        };
        Ok(found)
    }

    async fn client(&self) -> Result<Object, OpenError> {
        let pool = self.address.pool(&PostgresOptions::default());
        pool.get().await.map_err(|error| while_connecting(&self.address.shown, &error))
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
        ("settled", Value::Number(_)) => "0".into(),
        ("owner" | "latency_ms", _) => "NULL::bigint".into(),
        ("output_json" | "error_json", _) => "NULL::text".into(),
        (name, Value::String(text)) => {
            let quoted = text.replace('\\', "\\\\").replace('\'', "''").replace(':', "\\x3a");
            let kind = if hex_of(name, text).is_some() { "::bytea" } else { "" };
            format!("E'{quoted}'{kind}")
        }
        ("link_number", Value::Null) => "NULL::bigint".into(),
        (_, Value::Null) => "NULL".into(),
        (_, Value::Number(_) | Value::Bool(_) | Value::Array(_) | Value::Object(_)) => {
            cell.to_string()
        }
    }
}

/// The digits of a cell that holds bytes.
fn hex_of<'a>(name: &str, text: &'a str) -> Option<&'a str> {
    let is_bytes =
        ["payload", "packed", "link_prev", "link_digest", "asked_digest"].contains(&name);
    text.strip_prefix("\\x").filter(|_| is_bytes)
}

/// Adds the value of a cell.
fn add_bytes(bytes: &mut Vec<u8>, name: &str, cell: &Value) {
    match cell {
        Value::Null => {}
        Value::Bool(_) => bytes.push(1),
        Value::Number(number) => bytes.extend(number.as_i64().unwrap_or_default().to_be_bytes()),
        Value::String(text) => match hex_of(name, text) {
            Some(digits) => bytes.extend(digits.as_bytes().chunks(2).map(byte)),
            None => bytes.extend(text.as_bytes()),
        },
        Value::Array(_) | Value::Object(_) => bytes.extend(cell.to_string().as_bytes()),
    }
}

fn byte(digits: &[u8]) -> u8 {
    let text = std::str::from_utf8(digits).unwrap_or_default();
    u8::from_str_radix(text, 16).unwrap_or_default()
}
