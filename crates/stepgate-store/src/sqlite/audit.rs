//! The reads of `verify`: the store up to one moment, a page at a time. Each page is a transaction of its
//! own, so the write-ahead log can be reset during a long `verify`.

use std::iter::Peekable;
use std::vec;

use rusqlite::Connection;
use stepgate_core::approval::Approval;
use stepgate_core::idempotency::Binding;
use stepgate_core::ids::RunId;
use stepgate_core::ports::{Audited, Counts, Dossier, LinkedEvent, Moment};
use stepgate_core::run::Run;

use super::cells::{all, rows};
use super::{list, read};
use crate::Result;
use crate::chunk::{Chunk, chunk_from};
use crate::payload_keys::PayloadKeys;
use crate::rows::{Cells, approval_from, binding_from, bound_run_from, event_from};
use crate::select::{self, Read, Select};
use crate::tables::{APPROVALS, CHUNKS, Cell, EFFECTS, EVENTS, TOOL_RUNS, Table, integer};

/// The store as it is now, with the last position of each table.
pub(super) fn moment(connection: &Connection) -> Result<Moment> {
    Ok(Moment {
        sessions: all(connection, select::sessions()),
        counts: list::counts(connection),
        balances: all(connection, select::balances()),
        last: list::counts_of(|table| list::number(connection, select::last_position(table)))?,
    })
}

/// Runs up to the moment, newest first, older than `before`, each with all its rows. One query for each
/// table, not one for each table and run.
pub(super) fn page(
    connection: &Connection,
    keys: &PayloadKeys,
    last: &Counts,
    before: Option<RunId>,
    limit: usize,
) -> Result<Vec<Audited>> {
    let runs = runs(connection, last.runs, before, limit)?;
    let (Some(newest), Some(oldest)) = (runs.first(), runs.last()) else { return Ok(Vec::new()) };
    let span = Span { connection, newest: newest.position, oldest: oldest.position };
    let mut rows = Rows {
        chunks: span.rows(CHUNKS, "sequence_number", last.entries, chunk_from)?,
        events: span.rows(EVENTS, "position", last.events, event_from)?,
        approvals: span.rows(APPROVALS, "position", last.approvals, approval_from)?,
        bindings: span.rows(EFFECTS, "position", last.bindings, binding_from)?,
    };
    let audited = |row: RunRow| {
        let run_id = row.run_id;
        match dossier(connection, keys, last, row, &mut rows) {
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
    run: Result<(Run, Option<Binding>)>,
}

fn runs(
    connection: &Connection,
    last: u64,
    before: Option<RunId>,
    limit: usize,
) -> Result<Vec<RunRow>> {
    let sql = "SELECT * FROM tool_runs
               WHERE position <= coalesce(
                 (SELECT position - 1 FROM tool_runs WHERE tool_run_id = $1),
                 (SELECT run_position - 1 FROM archived_runs WHERE tool_run_id = $1), $2)
               ORDER BY position DESC LIMIT $3";
    let limit = u64::try_from(limit).unwrap_or(u64::MAX);
    let values = vec![before.map(Cell::text_of).into(), last.into(), limit.into()];
    let select = Select::new(TOOL_RUNS, sql, values, |cells| {
        Ok(RunRow {
            position: cells.number("position")?,
            run_id: cells.parsed("tool_run_id")?,
            run: bound_run_from(cells),
        })
    });
    all(connection, select)
}

/// The runs of a page, by their positions.
struct Span<'a> {
    connection: &'a Connection,
    newest: u64,
    oldest: u64,
}

impl Span<'_> {
    /// The rows of a table that belong to these runs. Those up to the last position count.
    fn rows<T>(&self, table: Table, order: &str, last: u64, read: Read<T>) -> Result<OfRuns<T>> {
        let sql = rows_sql(table, order);
        let positions = [integer(self.oldest), integer(self.newest)];
        let counted =
            |cells: &Cells<'_>| Ok((read(cells)?, u64::from(cells.number("position")? <= last)));
        let rows = rows(self.connection, table, &sql, positions, usize::MAX, |cells| {
            Ok((cells.number("run_position")?, counted(cells)))
        })?;
        Ok(OfRuns { rows: rows.into_iter().peekable() })
    }
}

fn rows_sql(table: Table, order: &str) -> String {
    let Table { name, key, .. } = table;
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
    rows: Peekable<vec::IntoIter<(u64, Counted<T>)>>,
}

/// A row, and 1 if it existed at the moment, otherwise 0.
type Counted<T> = Result<(T, u64)>;

impl<T> OfRuns<T> {
    /// The rows of the next run.
    fn counted(&mut self, position: u64) -> Result<Vec<(T, u64)>> {
        let mut found = Vec::new();
        while let Some((_, row)) = self.rows.next_if(|(run, _)| *run == position) {
            found.push(row);
        }
        found.into_iter().collect()
    }

    /// The rows of the next run. Those that existed at the moment are added to `counted`.
    fn of(&mut self, position: u64, counted: &mut u64) -> Result<Vec<T>> {
        let counted_row = |(row, count)| {
            *counted += count;
            row
        };
        Ok(self.counted(position)?.into_iter().map(counted_row).collect())
    }

    /// The single row of the next run.
    fn one_of(&mut self, position: u64, counted: &mut u64) -> Result<Option<T>> {
        let rows = self.of(position, counted)?;
        *counted = (*counted).min(1);
        Ok(rows.into_iter().next())
    }
}

/// The rows of the page's runs, by table.
struct Rows {
    chunks: OfRuns<Chunk>,
    events: OfRuns<LinkedEvent>,
    approvals: OfRuns<Approval>,
    bindings: OfRuns<Binding>,
}

/// All rows of the next run, and how many of them existed at the moment.
fn dossier(
    connection: &Connection,
    keys: &PayloadKeys,
    last: &Counts,
    row: RunRow,
    rows: &mut Rows,
) -> Result<(Dossier, Counts)> {
    let RunRow { position, run_id: _, run } = row;
    let mut counts = Counts { runs: u64::from(position <= last.runs), ..Counts::default() };
    // Every table must advance to the next run, even if this one has an error.
    let chunks = rows.chunks.counted(position);
    let events = rows.events.of(position, &mut counts.events);
    let approval = rows.approvals.one_of(position, &mut counts.approvals);
    let elsewhere = rows.bindings.one_of(position, &mut counts.bindings);
    let ((run, own_binding), chunks) = (run?, chunks?);
    if own_binding.is_some() {
        // A second binding is not accounted for.
        counts.bindings = 0;
    }
    for (chunk, count) in &chunks {
        let number = |parts: usize| u64::try_from(parts).unwrap_or(u64::MAX) * count;
        counts.entries += number(chunk.entries.len());
        counts.checkpoints += number(chunk.checkpoints.len());
        counts.records += number(usize::from(chunk.record.is_some()));
    }
    // A second record is not accounted for.
    counts.records = counts.records.min(1);
    let trace = Chunk::joined(chunks.into_iter().map(|(chunk, _)| chunk));
    let dossier = Dossier {
        open_link: trace.open_link(),
        entries: trace.entries.into_iter().map(|(appended, _)| appended).collect(),
        checkpoints: trace.checkpoints,
        events: events?,
        approval: approval?,
        binding: own_binding.or(elsewhere?),
        sealed: read::sealed(connection, &run, keys)?,
        record: trace.record.map(|record| record.of(&run)).transpose()?,
        run,
    };
    Ok((dossier, counts))
}

#[cfg(test)]
mod tests;
