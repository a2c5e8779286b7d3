//! The reads of `verify`: the store up to one moment, a page at a time. Each page is a transaction of its
//! own, so the write-ahead log can be reset during a long `verify`.

use std::iter::Peekable;
use std::vec;

use rusqlite::Connection;
use stepgate_core::approval::Approval;
use stepgate_core::idempotency::Binding;
use stepgate_core::ids::RunId;
use stepgate_core::journal::{Appended, Checkpoint};
use stepgate_core::ports::{Audited, Counts, Dossier, LinkedEvent, Moment, StoreError};
use stepgate_core::run::Run;
use stepgate_core::session::Link;

use super::cells::all;
use super::read::until;
use super::{error, list, read};
use crate::rows::{
    APPROVALS, CHECKPOINTS, Cells, EFFECTS, EVENTS, JOURNAL, RECORDS, SealedRecord, TOOL_RUNS,
    Table, appended_from, approval_from, binding_from, checkpoint_from, event_from, run_from,
    sealed_record_from,
};

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

/// Runs up to the moment, newest first, older than `before`, each with all its rows. One query for each
/// table, not one for each table and run.
pub(super) fn page(
    connection: &Connection,
    last: &Counts,
    before: Option<RunId>,
    limit: usize,
) -> Result<Vec<Audited>, StoreError> {
    let runs = runs(connection, last.runs, before, limit)?;
    let (Some(newest), Some(oldest)) = (runs.first(), runs.last()) else { return Ok(Vec::new()) };
    let span = Span { connection, newest: newest.position, oldest: oldest.position };
    let mut rows = Rows {
        entries: span.rows(JOURNAL, "sequence_number", until(last.entries, appended_from))?,
        checkpoints: span.rows(
            CHECKPOINTS,
            "checkpoint_sequence_number",
            until(last.checkpoints, checkpoint_from),
        )?,
        events: span.rows(EVENTS, "position", until(last.events, event_from))?,
        approvals: span.rows(APPROVALS, "position", until(last.approvals, approval_from))?,
        bindings: span.rows(EFFECTS, "position", until(last.bindings, binding_from))?,
        records: span.rows(RECORDS, "position", until(last.records, sealed_record_from))?,
    };
    let audited = |row: RunRow| {
        let run_id = row.run_id;
        match dossier(connection, last, row, &mut rows) {
            Ok((dossier, rows)) => Audited { run_id, dossier: Ok(Some(dossier)), rows },
            Err(error) => Audited { run_id, dossier: Err(error), rows: Counts::default() },
        }
    };
    Ok(runs.into_iter().map(audited).collect())
}

/// A row of `tool_runs`, where its id can be read.
struct RunRow {
    position: u64,
    run_id: RunId,
    run: Result<Run, StoreError>,
}

fn runs(
    connection: &Connection,
    last: u64,
    before: Option<RunId>,
    limit: usize,
) -> Result<Vec<RunRow>, StoreError> {
    let sql = "SELECT * FROM tool_runs
               WHERE position <= ifnull((SELECT position - 1 FROM tool_runs WHERE tool_run_id = ?1), ?2)
               ORDER BY position DESC LIMIT ?3";
    let before = before.map(|run_id| run_id.to_string());
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    all(connection, TOOL_RUNS, sql, (before, signed(last), limit), |cells| {
        Ok(RunRow {
            position: cells.number("position")?,
            run_id: cells.parsed("tool_run_id")?,
            run: run_from(cells),
        })
    })
}

/// The runs of a page, by their positions.
struct Span<'a> {
    connection: &'a Connection,
    newest: u64,
    oldest: u64,
}

impl Span<'_> {
    /// The rows of a table that belong to these runs.
    fn rows<T>(
        &self,
        table: Table,
        order: &str,
        read: impl Fn(&Cells<'_>) -> Result<T, StoreError>,
    ) -> Result<OfRuns<T>, StoreError> {
        let sql = rows_sql(table, order);
        let params = [signed(self.oldest), signed(self.newest)];
        let rows = all(self.connection, table, &sql, params, |cells| {
            Ok((cells.number("run_position")?, read(cells)))
        })?;
        Ok(OfRuns { rows: rows.into_iter().peekable() })
    }
}

fn rows_sql(table: Table, order: &str) -> String {
    let Table { name, key } = table;
    // CROSS JOIN makes the runs the outer loop, so the rows come in the order of the runs and by the index.
    format!(
        "SELECT its.*, runs.position AS run_position
         FROM tool_runs AS runs CROSS JOIN {name} AS its ON its.{key} = runs.tool_run_id
         WHERE runs.position BETWEEN ?1 AND ?2
         ORDER BY runs.position DESC, its.{order}"
    )
}

/// Rows of runs, in the order of the runs. A row that cannot be parsed is a problem of its own run only.
struct OfRuns<T> {
    rows: Peekable<vec::IntoIter<(u64, Result<T, StoreError>)>>,
}

impl<T> OfRuns<(T, u64)> {
    /// The rows of the next run, and how many of them existed at the moment.
    fn of(&mut self, position: u64) -> Result<(Vec<T>, u64), StoreError> {
        let mut rows = Vec::new();
        while let Some((_, row)) = self.rows.next_if(|(run, _)| *run == position) {
            rows.push(row);
        }
        Ok(read::unzip(rows.into_iter().collect::<Result<_, _>>()?))
    }

    /// The single row of the next run, and whether it existed at the moment.
    fn one_of(&mut self, position: u64) -> Result<(Option<T>, u64), StoreError> {
        let (rows, counted) = self.of(position)?;
        Ok((rows.into_iter().next(), counted.min(1)))
    }
}

/// The rows of the page's runs, by table.
struct Rows {
    entries: OfRuns<((Appended, Option<Link>), u64)>,
    checkpoints: OfRuns<(Checkpoint, u64)>,
    events: OfRuns<(LinkedEvent, u64)>,
    approvals: OfRuns<(Approval, u64)>,
    bindings: OfRuns<(Binding, u64)>,
    records: OfRuns<(SealedRecord, u64)>,
}

/// All rows of the next run, and how many of them existed at the moment.
fn dossier(
    connection: &Connection,
    last: &Counts,
    row: RunRow,
    rows: &mut Rows,
) -> Result<(Dossier, Counts), StoreError> {
    let RunRow { position, run_id: _, run } = row;
    // Every table must advance to the next run, even if this one has an error.
    let entries = rows.entries.of(position);
    let checkpoints = rows.checkpoints.of(position);
    let events = rows.events.of(position);
    let approval = rows.approvals.one_of(position);
    let binding = rows.bindings.one_of(position);
    let record = rows.records.one_of(position);
    let run = run?;
    let ((entries, entry_rows), (checkpoints, checkpoint_rows)) = (entries?, checkpoints?);
    let ((events, event_rows), (approval, approval_rows)) = (events?, approval?);
    let ((binding, binding_rows), (record, record_rows)) = (binding?, record?);
    let counts = Counts {
        runs: u64::from(position <= last.runs),
        entries: entry_rows,
        records: record_rows,
        checkpoints: checkpoint_rows,
        events: event_rows,
        approvals: approval_rows,
        bindings: binding_rows,
        sessions: 0,
    };
    let dossier = Dossier {
        open_link: entries.first().and_then(|(_, link)| *link),
        entries: entries.into_iter().map(|(appended, _)| appended).collect(),
        checkpoints,
        approval,
        binding,
        events,
        sealed: read::sealed(connection, &run)?,
        record: record.map(|record| record.of(&run)).transpose()?,
        run,
    };
    Ok((dossier, counts))
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
