//! What `verify` reads: the store up to one moment, a page at a time. Each page is a transaction of its own,
//! so the write-ahead log can start over while a long `verify` goes on.

use rusqlite::Connection;
use stepgate_core::ids::RunId;
use stepgate_core::ports::{Audited, Counts, Moment, StoreError};

use super::cells::all;
use super::{error, list, read};
use crate::rows::TOOL_RUNS;

/// The store as it is now, with the last position of each table.
pub(super) fn moment(connection: &Connection) -> Result<Moment, StoreError> {
    let last = |table: &str| {
        let sql = format!("SELECT coalesce(max(position), 0) FROM {table}");
        let last = connection.query_row(&sql, [], |row| row.get::<_, i64>(0));
        let last = last.map_err(|error| error::while_open(&error))?;
        Ok::<_, StoreError>(u64::try_from(last).unwrap_or(0))
    };
    Ok(Moment {
        sessions: read::sessions(connection),
        counts: list::counts(connection),
        last: Counts {
            runs: last("tool_runs")?,
            entries: last("journal")?,
            records: last("records")?,
            checkpoints: last("checkpoints")?,
            events: last("events")?,
            approvals: last("approvals")?,
            bindings: last("effects")?,
            sessions: last("sessions")?,
        },
    })
}

/// Runs up to the moment, newest first, after the one before.
pub(super) fn page(
    connection: &Connection,
    last: &Counts,
    before: Option<RunId>,
    limit: usize,
) -> Result<Vec<Audited>, StoreError> {
    let sql = "SELECT tool_run_id FROM tool_runs
               WHERE position <= ifnull((SELECT position - 1 FROM tool_runs WHERE tool_run_id = ?1), ?2)
               ORDER BY position DESC LIMIT ?3";
    let before = before.map(|run_id| run_id.to_string());
    let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let params = (before, number(last.runs), limit);
    let ids = all(connection, TOOL_RUNS, sql, params, |cells| cells.parsed("tool_run_id"))?;
    let audited = |run_id: RunId| {
        let (dossier, rows) = match read::counted_dossier(connection, run_id, last) {
            Ok(Some((dossier, rows))) => (Ok(Some(dossier)), rows),
            Ok(None) => (Ok(None), Counts::default()),
            Err(error) => (Err(error), Counts::default()),
        };
        Audited { run_id, dossier, rows }
    };
    Ok(ids.into_iter().map(audited).collect())
}
