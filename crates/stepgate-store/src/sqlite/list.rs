//! The lists whose words are SQLite's own, and the counts and checks for `verify`.

use rusqlite::Connection;
use stepgate_core::event::Event;
use stepgate_core::ids::IdempotencyKey;
use stepgate_core::journal::StateError;
use stepgate_core::ports::{Counts, RunQuery, RunText, StoreError, TurnQuery, Unfinished};
use stepgate_core::run::Run;

use super::cells::one;
use super::error;
use crate::Result;
use crate::rows::{Cells, event_from, key_from, run_from, unfinished_from};
use crate::search::{COUNTED_MAX, ENTRIES, Finder, IS_INDEXED_TOOL, IS_UNFINISHED, TOOLS_MAX};
use crate::select::{
    Conditions, Engine, IS_IN_SESSION_OF, Select, index_conditions, run_conditions, turn_conditions,
};
use crate::tables::{
    APPROVALS, BINDINGS, CHUNKS, Cell, EFFECTS, EVENTS, LOOSE_EVENTS, SESSIONS, TOOL_RUNS, Table,
};

/// How many rows an index would find, up to [`COUNTED_MAX`].
pub(super) fn counted(query: &RunQuery, finder: Finder) -> Select<u64> {
    let mut conditions = index_conditions(query, finder);
    add_subquery(&mut conditions, query, finder);
    let Conditions { text, values } = conditions;
    let sql = format!(
        "SELECT count(*) AS number
         FROM (SELECT 1 FROM tool_runs WHERE true{text} LIMIT {COUNTED_MAX})"
    );
    number_of(TOOL_RUNS, sql, values)
}

/// The sessions, or the tools, whose runs an index finds.
fn add_subquery(conditions: &mut Conditions, query: &RunQuery, finder: Finder) {
    match (finder, &query.text, &query.principal_id) {
        (Finder::Tool, Some(RunText::ToolPart(part)), _) => {
            conditions.add_text(&format!("tool_name IN {}", tools_with_part()), part);
            conditions.add(IS_INDEXED_TOOL);
        }
        // SQLite takes the newest runs of each session from the index of a session's runs, and leaves a session at
        // the first run that is too old for the answer. So it reads neither the runs of other principals nor all
        // runs of a principal that has most of them.
        (Finder::Principal, _, Some(principal_id)) => {
            conditions.add_text(IS_IN_SESSION_OF, principal_id.as_str());
        }
        (_, _, _) => {}
    }
}

/// The names of the tools that runs have, by steps from one to the next in their index, with this part in them.
fn tools_with_part() -> String {
    format!(
        "(WITH RECURSIVE every(name) AS (
            SELECT min(tool_name) FROM tool_runs WHERE {IS_INDEXED_TOOL}
            UNION ALL
            SELECT (SELECT min(tool_name) FROM tool_runs
                    WHERE tool_name > every.name AND {IS_INDEXED_TOOL})
            FROM every WHERE every.name IS NOT NULL LIMIT {TOOLS_MAX})
          SELECT name FROM every WHERE instr(lower(name), #) > 0)"
    )
}

/// Runs, newest first.
pub(super) fn runs(query: &RunQuery, finder: Finder) -> Select<Run> {
    let mut conditions = run_conditions(Engine::Sqlite, query, finder);
    add_subquery(&mut conditions, query, finder);
    let order = if finder == Finder::Id { "tool_run_id DESC" } else { "position DESC" };
    conditions.list((TOOL_RUNS, ""), order, query.limit, run_from)
}

/// The events that opened turns, newest first.
pub(super) fn opened_turns(query: &TurnQuery) -> Select<Event> {
    let (mut conditions, order) = turn_conditions(query);
    if let Some(principal_id) = &query.principal_id {
        // The unary `+` keeps SQLite from using the index of sessions where another one finds the rows.
        let is_found = query.session_id.is_some() || query.id_prefix.is_some();
        let sign = if is_found { "+" } else { "" };
        conditions.add_text(&format!("{sign}{IS_IN_SESSION_OF}"), principal_id.as_str());
    }
    let is_theirs = query.session_id.is_some() || query.principal_id.is_some();
    let index = match query.id_prefix {
        Some(_) => "",
        None if is_theirs => " INDEXED BY events_turns",
        None => " INDEXED BY events_loose",
    };
    let read = |cells: &Cells<'_>| Ok(event_from(cells)?.event);
    let newest_first = format!("{} DESC", order.column);
    conditions.list((LOOSE_EVENTS, index), &newest_first, query.limit, read)
}

/// Unfinished runs, oldest first. The cost depends on the unfinished runs, not on all runs.
pub(super) fn unfinished() -> Select<Unfinished> {
    let sql = format!(
        "SELECT tool_run_id, tool_name,
                status = 'approval_required'
                AND EXISTS (SELECT 1 FROM approvals
                            WHERE approvals.tool_run_id = tool_runs.tool_run_id
                              AND approvals.status = 'pending') AS is_waiting
         FROM tool_runs INDEXED BY tool_runs_unfinished WHERE {IS_UNFINISHED} ORDER BY position"
    );
    Select::new(TOOL_RUNS, sql, Vec::new(), unfinished_from)
}

/// The size of the database file. The log beside it is not counted.
pub(super) fn size_bytes() -> Select<u64> {
    let sql = "SELECT page_count * page_size AS number FROM pragma_page_count, pragma_page_size";
    number_of(TOOL_RUNS, sql, Vec::new())
}

/// A query whose whole answer is one number.
fn number_of(table: Table, sql: impl Into<String>, values: Vec<Cell<'static>>) -> Select<u64> {
    Select::new(table, sql, values, |cells| cells.number("number"))
}

/// The number that is the whole answer of a query.
pub(super) fn number(connection: &Connection, select: Select<u64>) -> Result<u64> {
    Ok(one(connection, select)?.unwrap_or(0))
}

/// The damage that SQLite finds in a table and its indexes, at most about a hundred lines.
pub(super) fn damage(connection: &Connection, check: &str, table: &str) -> Result<Vec<String>> {
    let sql = format!("PRAGMA {check}({table})");
    let mut check = connection.prepare(&sql).map_err(error::while_open)?;
    let lines = check.query_map([], |row| row.get::<_, String>(0)).map_err(error::while_open)?;
    let mut found = Vec::new();
    for line in lines {
        match line.map_err(error::while_open) {
            Ok(line) if line == "ok" => {}
            Ok(line) => found.push(line),
            // Some damage ends the check itself; the lines so far say where it is.
            Err(StoreError::Broken(why)) => {
                found.push(why);
                break;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

/// Keys that are bound to more than one trace. The unique indexes that would have refused the second are not
/// used: SQLite sorts the rows themselves, on disk where there are many.
pub(super) fn shared_keys(limit: usize) -> Select<IdempotencyKey> {
    let none = Conditions::default();
    none.select(BINDINGS, limit, key_from, |_| {
        "SELECT idempotency_key
         FROM (SELECT idempotency_key FROM tool_runs NOT INDEXED WHERE idempotency_key IS NOT NULL
               UNION ALL SELECT idempotency_key FROM effects NOT INDEXED)
         GROUP BY idempotency_key HAVING count(*) > 1 LIMIT #"
            .to_owned()
    })
}

/// The number of rows of each table. Positions count from 1, and only the rows of archived runs are deleted: a table in
/// which others are missing was changed.
pub(super) fn counts(connection: &Connection) -> Result<Counts> {
    let rows = counts_of(|table| {
        let table = table.name;
        let archived = match table {
            "tool_runs" => "count(*)",
            "chunks" | "events" | "approvals" => &format!("coalesce(sum({table}), 0)"),
            _ => "coalesce(sum(0), 0)",
        };
        let sql = format!(
            "SELECT count(*), coalesce(min(position), 1), coalesce(max(position), 0),
                    (SELECT {archived} FROM archived_runs) FROM {table}"
        );
        let counted = connection.query_row(&sql, [], |row| row.try_into());
        let (rows, first, last, archived): (i64, i64, i64, i64) =
            counted.map_err(error::while_open)?;
        if first < 1 || rows + archived != last {
            let detail = format!(
                "{table} has {rows} rows, at positions {first} to {last}, and {archived} are archived"
            );
            return Err(StateError::checksum(detail).into());
        }
        Ok(u64::try_from(rows).unwrap_or(0))
    })?;
    let packed = |parts: &str| {
        let sql = format!("SELECT coalesce(sum({parts}), 0) AS number FROM chunks");
        number(connection, number_of(CHUNKS, sql, Vec::new()))
    };
    Ok(Counts {
        entries: packed(ENTRIES)?,
        checkpoints: packed("checkpoints")?,
        records: packed("records")?,
        ..rows
    })
}

/// A number of each table; that of `chunks` stands for the parts that are packed in it.
pub(super) fn counts_of(count: impl Fn(Table) -> Result<u64>) -> Result<Counts> {
    let chunks = count(CHUNKS)?;
    Ok(Counts {
        runs: count(TOOL_RUNS)?,
        entries: chunks,
        records: chunks,
        checkpoints: chunks,
        events: count(EVENTS)?,
        approvals: count(APPROVALS)?,
        bindings: count(EFFECTS)?,
        sessions: count(SESSIONS)?,
    })
}

#[cfg(test)]
mod tests;
