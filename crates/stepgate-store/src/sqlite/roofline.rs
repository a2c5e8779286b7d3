//! The lower bound of the cost of steps: only their rows, written by plain SQL.
//!
//! The rows are read from a database that real steps have filled, and written into a fresh one with the same
//! tables and indexes, without triggers, plans, digests or conditions, in the same commits: one for what was
//! durable before the call acted, one for the rest.

use std::ops::Range;
use std::path::Path;
use std::time::{Duration, Instant};

use rusqlite::types::Value;
use rusqlite::{Connection, params_from_iter};

use super::error::{OpenError, while_opening};
use super::open::{self, SqliteOptions};

/// The rows of finished steps, ready to be written again.
pub struct Roofline {
    steps: Vec<Step>,
}

/// One step's statements with their values. If there is no first commit, the step had only one.
struct Step {
    tool: Option<String>,
    before_the_act: Vec<Statement>,
    after_the_act: Vec<Statement>,
}

struct Statement {
    sql: String,
    values: Vec<Value>,
}

/// The length of the log at which it is copied.
const LOG_PAGES: u32 = 32_000;

const FIRST_EVENT_ENDS: &str = "('tool_succeeded', 'tool_failed', 'policy_violation')";

impl Roofline {
    /// Reads the rows of every finished run of a database.
    pub fn of(database: &Path) -> Result<Self, OpenError> {
        let connection = open::reader(database, &SqliteOptions::default())?;
        let lift = |error: rusqlite::Error| while_opening(database, &error);
        let runs: Vec<String> = strings(
            &connection,
            "SELECT tool_run_id FROM tool_runs WHERE latency_ms IS NOT NULL ORDER BY position",
        )
        .map_err(lift)?;
        let steps = runs.iter().map(|run| step(&connection, run)).collect::<Result<_, _>>();
        Ok(Self { steps: steps.map_err(lift)? })
    }

    /// How many steps there are.
    pub fn steps(&self) -> usize {
        self.steps.len()
    }

    /// The tool of a step.
    pub fn tool(&self, step: usize) -> Option<&str> {
        self.steps.get(step)?.tool.as_deref()
    }

    /// The values that each commit of a step writes: of one commit or two. Texts and blobs are as they are, numbers have
    /// eight bytes.
    pub fn commits(&self) -> impl Iterator<Item = Vec<Vec<u8>>> {
        self.steps.iter().map(|step| {
            let commits = [&step.before_the_act, &step.after_the_act].into_iter();
            commits.filter(|commit| !commit.is_empty()).map(|commit| bytes(commit)).collect()
        })
    }

    /// Writes all steps into a fresh database, as many at a time as there are clients, and returns how long
    /// that took. `act` stands for the work of the steps between their two commits.
    pub fn write(
        &self,
        database: &Path,
        clients: usize,
        mut act: impl FnMut(Range<usize>),
    ) -> Result<Duration, OpenError> {
        // The writer of this connection copies the log itself, so it does so seldom.
        let options = SqliteOptions { wal_pages: LOG_PAGES, ..SqliteOptions::default() };
        let connection = open::writer(database, &options)?;
        let lift = |error: rusqlite::Error| while_opening(database, &error);
        for trigger in strings(&connection, "SELECT name FROM sqlite_schema WHERE type = 'trigger'")
            .map_err(lift)?
        {
            connection.execute_batch(&format!("DROP TRIGGER {trigger}")).map_err(lift)?;
        }
        let start = Instant::now();
        let mut first = 0;
        for together in self.steps.chunks(clients.max(1)) {
            let range = first..first + together.len();
            first = range.end;
            let before = together.iter().flat_map(|step| &step.before_the_act);
            if together.iter().any(|step| !step.before_the_act.is_empty()) {
                commit(&connection, before).map_err(lift)?;
            }
            act(range);
            commit(&connection, together.iter().flat_map(|step| &step.after_the_act))
                .map_err(lift)?;
        }
        Ok(start.elapsed())
    }
}

fn bytes(statements: &[Statement]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for value in statements.iter().flat_map(|statement| &statement.values) {
        match value {
            Value::Null => {}
            Value::Integer(number) => bytes.extend(number.to_be_bytes()),
            Value::Real(number) => bytes.extend(number.to_be_bytes()),
            Value::Text(text) => bytes.extend(text.as_bytes()),
            Value::Blob(blob) => bytes.extend(blob),
        }
    }
    bytes
}

fn commit<'a>(
    connection: &Connection,
    statements: impl Iterator<Item = &'a Statement>,
) -> rusqlite::Result<()> {
    connection.execute_batch("BEGIN IMMEDIATE")?;
    for Statement { sql, values } in statements {
        connection.prepare_cached(sql)?.execute(params_from_iter(values))?;
    }
    connection.execute_batch("COMMIT")
}

fn strings(connection: &Connection, sql: &str) -> rusqlite::Result<Vec<String>> {
    connection.prepare(sql)?.query_map([], |row| row.get(0))?.collect()
}

/// Splits a run's rows into its commits: two if it has a chunk before the one with its record, otherwise one.
fn step(connection: &Connection, run: &str) -> rusqlite::Result<Step> {
    let had_two: bool = connection
        .prepare_cached("SELECT EXISTS (SELECT 1 FROM chunks WHERE trace_id = ?1 AND records = 0)")?
        .query_row([run], |row| row.get(0))?;
    let tool = connection
        .prepare_cached("SELECT tool_name FROM tool_runs WHERE tool_run_id = ?1")?
        .query_row([run], |row| row.get(0))?;
    let rows = |table: &str, condition: &str| inserts(connection, table, condition, run);
    let whole = |table: &str, id: &str| rows(table, &format!("{id} = ?1"));
    let later = format!("tool_run_id = ?1 AND event_type IN {FIRST_EVENT_ENDS}");
    let earlier = format!("tool_run_id = ?1 AND event_type NOT IN {FIRST_EVENT_ENDS}");
    let mut before = Vec::new();
    let mut after = Vec::new();
    if had_two {
        before.extend(whole("tool_runs", "tool_run_id")?.into_iter().map(without_ending));
        before.extend(rows("chunks", "trace_id = ?1 AND records = 0")?);
        before.extend(rows("events", &earlier)?);
        after.push(ending(connection, run)?);
        after.extend(rows("events", &later)?);
    } else {
        after.extend(whole("tool_runs", "tool_run_id")?);
        after.extend(whole("events", "tool_run_id")?);
    }
    after.extend(rows("chunks", "trace_id = ?1 AND records > 0")?);
    Ok(Step { tool, before_the_act: before, after_the_act: after })
}

/// The rows of a table as inserts; each row gets a new position.
fn inserts(
    connection: &Connection,
    table: &str,
    condition: &str,
    run: &str,
) -> rusqlite::Result<Vec<Statement>> {
    let sql = format!("SELECT * FROM {table} WHERE {condition} ORDER BY position");
    let mut select = connection.prepare_cached(&sql)?;
    let names: Vec<String> = select.column_names().skip(1).map(str::to_owned).collect();
    let places = vec!["?"; names.len()].join(", ");
    let sql = format!("INSERT INTO {table} ({}) VALUES ({places})", names.join(", "));
    let rows = select.query_map([run], |row| {
        let values = (1..=names.len()).map(|column| row.get(column)).collect::<Result<_, _>>()?;
        Ok(Statement { sql: sql.clone(), values })
    })?;
    rows.collect()
}

/// A run's row as it was before the call acted.
fn without_ending(mut insert: Statement) -> Statement {
    let names = insert.sql.split(['(', ')']).nth(1).unwrap_or_default().split(", ");
    for (name, value) in names.zip(&mut insert.values) {
        match name {
            "status" => *value = Value::Text("started".into()),
            "output_json" | "error_json" | "latency_ms" => *value = Value::Null,
            "settled" if *value != Value::Null => *value = Value::Integer(0),
            _ => {}
        }
    }
    insert
}

/// The change of the row after the call acted.
fn ending(connection: &Connection, run: &str) -> rusqlite::Result<Statement> {
    let values = connection
        .prepare_cached(
            "SELECT status, output_json, error_json, latency_ms, settled FROM tool_runs
             WHERE tool_run_id = ?1",
        )?
        .query_row([run], |row| {
            (0..5).map(|column| row.get(column)).collect::<Result<Vec<_>, _>>()
        })?;
    let sql = "UPDATE tool_runs SET status = ?, output_json = ?, error_json = ?, latency_ms = ?, settled = ?
               WHERE tool_run_id = ?";
    let values = values.into_iter().chain([Value::Text(run.to_owned())]).collect();
    Ok(Statement { sql: sql.into(), values })
}
