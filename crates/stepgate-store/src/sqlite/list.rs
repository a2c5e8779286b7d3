//! The lists: what people page through, what recovery starts from, and what `verify` counts.

use rusqlite::types::Value;
use rusqlite::{Connection, params_from_iter};
use stepgate_core::ids::RunId;
use stepgate_core::journal::StateError;
use stepgate_core::ports::{Counts, LinkedEvent, RunQuery, StoreError};
use stepgate_core::run::Run;

use super::cells::all;
use super::error;
use super::read::{LOOSE_EVENTS, TOOL_RUNS, event_from, run_from};

/// The condition of the index of unfinished runs, as the index has it.
const IS_UNFINISHED: &str = "status IN ('started', 'approval_required', 'approved')";

/// Runs, newest first.
pub(super) fn runs(connection: &Connection, query: &RunQuery) -> Result<Vec<Run>, StoreError> {
    let mut sql = "SELECT * FROM tool_runs WHERE true".to_owned();
    let mut params = Vec::new();
    let mut condition = |text: &str, value: String| {
        sql.push_str(" AND ");
        sql.push_str(text);
        params.push(Value::Text(value));
    };
    if let Some(before) = query.before {
        let is_older = "position < (SELECT position FROM tool_runs WHERE tool_run_id = ?)";
        condition(is_older, before.to_string());
    }
    if let Some(session_id) = query.session_id {
        condition("session_id = ?", session_id.to_string());
    }
    if let Some(status) = query.status {
        condition("status = ?", status.as_str().to_owned());
    }
    if let Some(tool_name) = &query.tool_name {
        condition("tool_name = ?", tool_name.clone());
    }
    if query.status.is_some_and(|status| !status.is_final()) {
        sql.push_str(" AND ");
        sql.push_str(IS_UNFINISHED);
    }
    sql.push_str(" ORDER BY position DESC LIMIT ?");
    params.push(Value::Integer(i64::try_from(query.limit).unwrap_or(i64::MAX)));
    all(connection, TOOL_RUNS, &sql, params_from_iter(params), run_from)
}

/// Runs that are not over, oldest first. Costs as much as there are, not as there were.
pub(super) fn unfinished_runs(connection: &Connection) -> Result<Vec<RunId>, StoreError> {
    let sql = "SELECT tool_run_id FROM tool_runs INDEXED BY tool_runs_unfinished
               WHERE status IN ('started', 'approval_required', 'approved') ORDER BY position";
    all(connection, TOOL_RUNS, sql, [], |cells| cells.parsed("tool_run_id"))
}

/// Events that belong to no run, oldest first.
pub(super) fn loose_events(connection: &Connection) -> Result<Vec<LinkedEvent>, StoreError> {
    let sql = "SELECT * FROM events INDEXED BY events_loose
               WHERE tool_run_id IS NULL ORDER BY position";
    all(connection, LOOSE_EVENTS, sql, [], event_from)
}

/// The ids of runs, newest first.
pub(super) fn run_ids(
    connection: &Connection,
    before: Option<RunId>,
    limit: usize,
) -> Result<Vec<RunId>, StoreError> {
    let sql = "SELECT tool_run_id FROM tool_runs
               WHERE ?1 IS NULL
                  OR position < (SELECT position FROM tool_runs WHERE tool_run_id = ?1)
               ORDER BY position DESC LIMIT ?2";
    let before = before.map(|run_id| run_id.to_string());
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    all(connection, TOOL_RUNS, sql, (before, limit), |cells| cells.parsed("tool_run_id"))
}

/// What SQLite finds wrong with the file.
pub(super) fn damage(connection: &Connection) -> Result<Vec<String>, StoreError> {
    let lift = |error: rusqlite::Error| error::while_open(&error);
    let mut check = connection.prepare("PRAGMA quick_check(10)").map_err(lift)?;
    let found = check.query_map([], |row| row.get::<_, String>(0)).map_err(lift)?;
    let found: Vec<String> = found.collect::<Result<_, _>>().map_err(lift)?;
    Ok(found.into_iter().filter(|line| line != "ok").collect())
}

/// How many rows there are. Positions count them from 1 without a gap, because nothing is ever
/// deleted: a table whose first or last position is another number was changed.
pub(super) fn counts(connection: &Connection) -> Result<Counts, StoreError> {
    let count = |table: &str| {
        let sql = format!(
            "SELECT count(*), coalesce(min(position), 1), coalesce(max(position), 0) FROM {table}"
        );
        let rows = connection.query_row(&sql, [], |row| {
            Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?, row.get::<_, i64>(2)?))
        });
        let (rows, first, last) = rows.map_err(|error| error::while_open(&error))?;
        if first != 1 || rows != last {
            let detail = format!("{table} has {rows} rows, at positions {first} to {last}");
            return Err(StateError::checksum(detail).into());
        }
        Ok::<_, StoreError>(u64::try_from(rows).unwrap_or(0))
    };
    Ok(Counts {
        runs: count("tool_runs")?,
        entries: count("journal")?,
        records: count("records")?,
        checkpoints: count("checkpoints")?,
        events: count("events")?,
        approvals: count("approvals")?,
        bindings: count("effects")?,
        sessions: count("sessions")?,
    })
}
