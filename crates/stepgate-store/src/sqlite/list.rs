//! The lists: the pages that people read, the runs that recovery starts from, and the counts for `verify`.

use rusqlite::types::Value;
use rusqlite::{Connection, Params, params_from_iter};
use stepgate_core::approval::{Approval, ApprovalStatus};
use stepgate_core::event::Event;
use stepgate_core::ids::{IdPrefix, IdempotencyKey, PrincipalId, RunId};
use stepgate_core::journal::StateError;
use stepgate_core::ports::{
    ApprovalQuery, Counts, EventQuery, LinkedEvent, PlacedEvent, RunQuery, RunText, SessionQuery,
    StoreError, TurnQuery, Unfinished,
};
use stepgate_core::run::Run;
use stepgate_core::session::Session;

use super::cells::all;
use super::error;
use crate::rows::{
    APPROVALS, EFFECTS, LOOSE_EVENTS, SESSIONS, TOOL_RUNS, approval_from, event_from, key_from,
    run_from, session_from, unfinished_from,
};
use crate::search::{
    COUNTED_MAX, Finder, IS_INDEXED_TOOL, IS_NOT_OK, Order, TOOLS_MAX, after_prefix, end_id,
    first_id, position_since, position_until,
};

/// The condition of the index of unfinished runs, in the same words as the index.
const IS_UNFINISHED: &str = "status IN ('started', 'approval_required', 'approved')";

/// The sessions of a principal, by their index.
const SESSIONS_OF: &str = "(SELECT session_id FROM sessions WHERE principal_id = ?)";

/// Conditions with their values, in the order of their question marks.
#[derive(Default)]
struct Conditions {
    text: String,
    params: Vec<Value>,
}

impl Conditions {
    fn add(&mut self, text: &str, values: impl IntoIterator<Item = Value>) {
        self.text.push_str(" AND ");
        self.text.push_str(text);
        self.params.extend(values);
    }

    fn add_text(&mut self, text: &str, value: impl Into<String>) {
        self.add(text, [Value::Text(value.into())]);
    }

    /// Only rows whose id begins with the prefix.
    fn add_prefix(&mut self, column: &str, prefix: &IdPrefix) {
        self.add_text(&format!("{column} >= ?"), prefix.as_str());
        self.add_text(&format!("{column} < ?"), after_prefix(prefix));
    }
}

fn limit(rows: usize) -> Value {
    Value::Integer(i64::try_from(rows).unwrap_or(i64::MAX))
}

/// Runs, newest first.
pub(super) fn runs(connection: &Connection, query: &RunQuery) -> Result<Vec<Run>, StoreError> {
    let (sql, params) = runs_sql(query, finder(connection, query)?);
    all(connection, TOOL_RUNS, &sql, params_from_iter(params), run_from)
}

/// What finds the rows at the least cost.
fn finder(connection: &Connection, query: &RunQuery) -> Result<Finder, StoreError> {
    let candidates = Finder::candidates(query);
    if let [only] = candidates[..] {
        return Ok(only);
    }
    let mut counted = Vec::new();
    for candidate in candidates {
        let mut conditions = Conditions::default();
        add_finder(&mut conditions, query, candidate);
        let Conditions { text, params } = conditions;
        let sql = format!(
            "SELECT count(*) FROM (SELECT 1 FROM tool_runs WHERE true{text} LIMIT {COUNTED_MAX})"
        );
        counted.push((number(connection, &sql, params_from_iter(params))?, candidate));
    }
    Ok(Finder::shortest(counted))
}

/// The conditions that an index is searched with.
fn add_finder(conditions: &mut Conditions, query: &RunQuery, finder: Finder) {
    match finder {
        Finder::Session => {
            if let Some(session_id) = query.session_id {
                conditions.add_text("session_id = ?", session_id.to_string());
            }
        }
        Finder::Unfinished => conditions.add(IS_UNFINISHED, []),
        Finder::Id => {
            if let Some(RunText::IdPrefix(prefix)) = &query.text {
                conditions.add_prefix("tool_run_id", prefix);
            }
        }
        Finder::Tool => {
            match (&query.tool_name, &query.text) {
                (Some(tool_name), _) => conditions.add_text("tool_name = ?", tool_name),
                (None, Some(RunText::ToolPart(part))) => {
                    conditions.add_text(&format!("tool_name IN {}", tools_with_part()), part);
                }
                (None, Some(RunText::IdPrefix(_)) | None) => {}
            }
            conditions.add(IS_INDEXED_TOOL, []);
        }
        Finder::NotOk => {
            if let Some(status) = query.status {
                conditions.add_text("status = ?", status.as_str());
            }
            conditions.add(IS_NOT_OK, []);
        }
        // SQLite takes the newest runs of each session from the index of a session's runs, and leaves a session at
        // the first run that is too old for the answer. So it reads neither the runs of other principals nor all
        // runs of a principal that has most of them.
        Finder::Principal => {
            if let Some(principal_id) = &query.principal_id {
                let is_theirs = format!("session_id IN {SESSIONS_OF}");
                conditions.add_text(&is_theirs, principal_id.as_str());
            }
        }
        Finder::All => {}
    }
}

/// The conditions that filter what an index found. The unary `+` keeps SQLite from using another index.
fn add_filters(conditions: &mut Conditions, query: &RunQuery, finder: Finder) {
    if let (Some(RunText::IdPrefix(prefix)), false) = (&query.text, finder == Finder::Id) {
        conditions.add_prefix("+tool_run_id", prefix);
    }
    let is_by_tool = finder == Finder::Tool;
    if let (Some(tool_name), false) = (&query.tool_name, is_by_tool) {
        conditions.add_text("+tool_name = ?", tool_name);
    }
    if let (Some(RunText::ToolPart(part)), false) = (&query.text, is_by_tool) {
        conditions.add_text("instr(lower(tool_name), ?) > 0", part);
    }
    if let (Some(status), false) = (query.status, finder == Finder::NotOk) {
        conditions.add_text("status = ?", status.as_str());
    }
    if let (Some(principal_id), false) = (&query.principal_id, finder == Finder::Principal) {
        conditions.add_text("principal_id = ?", principal_id.as_str());
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
          SELECT name FROM every WHERE instr(lower(name), ?) > 0)"
    )
}

fn runs_sql(query: &RunQuery, finder: Finder) -> (String, Vec<Value>) {
    let mut conditions = Conditions::default();
    if let Some(before) = query.before {
        let is_older = match finder {
            Finder::Id => "tool_run_id < ?",
            Finder::Session
            | Finder::Unfinished
            | Finder::Tool
            | Finder::NotOk
            | Finder::Principal
            | Finder::All => "position < (SELECT position FROM tool_runs WHERE tool_run_id = ?)",
        };
        conditions.add_text(is_older, before.to_string());
    }
    add_finder(&mut conditions, query, finder);
    add_time(&mut conditions, query);
    add_filters(&mut conditions, query, finder);
    let Conditions { text, mut params } = conditions;
    params.push(limit(query.limit));
    let order = if finder == Finder::Id { "tool_run_id" } else { "position" };
    (format!("SELECT * FROM tool_runs WHERE true{text} ORDER BY {order} DESC LIMIT ?"), params)
}

fn add_time(conditions: &mut Conditions, query: &RunQuery) {
    if let Some(since) = query.since {
        conditions.add_text(&format!("position >= {}", position_since("?")), first_id(since));
        conditions.add_text("ts >= ?", since.to_string());
    }
    if let Some(until) = query.until {
        conditions.add_text(&format!("position <= {}", position_until("?")), end_id(until));
        conditions.add_text("ts < ?", until.to_string());
    }
}

/// Sessions, newest first.
pub(super) fn session_page(
    connection: &Connection,
    query: &SessionQuery,
) -> Result<Vec<Session>, StoreError> {
    let (sql, params) = sessions_sql(query);
    all(connection, SESSIONS, &sql, params_from_iter(params), session_from)
}

fn sessions_sql(query: &SessionQuery) -> (String, Vec<Value>) {
    let mut conditions = Conditions::default();
    let order = Order::of("sessions", "session_id", query.id_prefix.as_ref());
    if let Some(before) = query.before {
        conditions.add_text(&order.beyond('<', '?'), before.to_string());
    }
    if let Some(prefix) = &query.id_prefix {
        conditions.add_prefix("session_id", prefix);
    }
    if let Some(principal_id) = &query.principal_id {
        // The unary `+` keeps SQLite from using the index of principals where the index of ids finds the rows.
        let sign = if query.id_prefix.is_some() { "+" } else { "" };
        conditions.add_text(&format!("{sign}principal_id = ?"), principal_id.as_str());
    }
    let index = match (&query.principal_id, &query.id_prefix) {
        (Some(_), None) => " INDEXED BY sessions_of_principal",
        (_, _) => "",
    };
    let Conditions { text, mut params } = conditions;
    params.push(limit(query.limit));
    let order = order.column();
    let sql =
        format!("SELECT * FROM sessions{index} WHERE true{text} ORDER BY {order} DESC LIMIT ?");
    (sql, params)
}

/// The events that opened turns, newest first.
pub(super) fn opened_turns(
    connection: &Connection,
    query: &TurnQuery,
) -> Result<Vec<Event>, StoreError> {
    let (sql, params) = turns_sql(query);
    all(connection, LOOSE_EVENTS, &sql, params_from_iter(params), |cells| {
        Ok(event_from(cells)?.event)
    })
}

fn turns_sql(query: &TurnQuery) -> (String, Vec<Value>) {
    let mut conditions = Conditions::default();
    // Literals, not parameters: only then can the partial indexes be used.
    conditions.add("event_type = 'turn_opened' AND tool_run_id IS NULL", []);
    let order = Order::of("events", "event_id", query.id_prefix.as_ref());
    if let Some(before) = query.before {
        conditions.add_text(&order.beyond('<', '?'), before.to_string());
    }
    if let Some(prefix) = &query.id_prefix {
        conditions.add_prefix("event_id", prefix);
    }
    if let Some(session_id) = query.session_id {
        conditions.add_text("session_id = ?", session_id.to_string());
    }
    if let Some(principal_id) = &query.principal_id {
        let is_found = query.session_id.is_some() || query.id_prefix.is_some();
        let sign = if is_found { "+" } else { "" };
        let is_theirs = format!("{sign}session_id IN {SESSIONS_OF}");
        conditions.add_text(&is_theirs, principal_id.as_str());
    }
    let is_theirs = query.session_id.is_some() || query.principal_id.is_some();
    let index = match query.id_prefix {
        Some(_) => "",
        None if is_theirs => " INDEXED BY events_turns",
        None => " INDEXED BY events_loose",
    };
    let Conditions { text, mut params } = conditions;
    params.push(limit(query.limit));
    let order = order.column();
    let sql = format!("SELECT * FROM events{index} WHERE true{text} ORDER BY {order} DESC LIMIT ?");
    (sql, params)
}

/// Approvals, in the order that the query asks for.
pub(super) fn approvals(
    connection: &Connection,
    query: &ApprovalQuery,
) -> Result<Vec<Approval>, StoreError> {
    let (sql, params) = approvals_sql(query);
    all(connection, APPROVALS, &sql, params_from_iter(params), approval_from)
}

/// How many approvals are pending: the size of their index, or a walk over it for one principal.
pub(super) fn open_approvals(
    connection: &Connection,
    principal_id: Option<&PrincipalId>,
) -> Result<u64, StoreError> {
    let mut conditions = Conditions::default();
    add_principal(&mut conditions, principal_id);
    let Conditions { text, params } = conditions;
    let sql = format!("SELECT count(*) FROM approvals WHERE status = 'pending'{text}");
    number(connection, &sql, params_from_iter(params))
}

/// The last position of an event.
pub(super) fn last_position(connection: &Connection) -> Result<u64, StoreError> {
    let sql = "SELECT coalesce(max(position), 0) FROM events";
    number(connection, sql, [])
}

/// The size of the database file. The log beside it is not counted.
pub(super) fn size_bytes(connection: &Connection) -> Result<u64, StoreError> {
    let sql = "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size";
    number(connection, sql, [])
}

/// The number that is the whole answer of a query.
fn number(connection: &Connection, sql: &str, params: impl Params) -> Result<u64, StoreError> {
    let number = connection.query_row(sql, params, |row| row.get::<_, i64>(0));
    let number = number.map_err(|error| error::while_open(&error))?;
    Ok(u64::try_from(number).unwrap_or(0))
}

/// Only the approvals that this principal's runs wait for.
fn add_principal(conditions: &mut Conditions, principal_id: Option<&PrincipalId>) {
    if let Some(principal_id) = principal_id {
        let is_theirs = "EXISTS (SELECT 1 FROM tool_runs JOIN sessions USING (session_id)
                                 WHERE tool_run_id = approvals.tool_run_id
                                   AND sessions.principal_id = ?)";
        conditions.add_text(is_theirs, principal_id.as_str());
    }
}

fn approvals_sql(query: &ApprovalQuery) -> (String, Vec<Value>) {
    let mut conditions = Conditions::default();
    let order = Order::of("approvals", "approval_id", query.id_prefix.as_ref());
    if let Some(before) = query.before {
        conditions.add_text(&order.beyond('<', '?'), before.to_string());
    }
    if let Some(after) = query.after {
        conditions.add_text(&order.beyond('>', '?'), after.to_string());
    }
    if let Some(prefix) = &query.id_prefix {
        conditions.add_prefix("approval_id", prefix);
    }
    match query.status {
        // A literal, not a parameter: only then can the partial index be used.
        Some(ApprovalStatus::Pending) => conditions.add("status = 'pending'", []),
        Some(
            status @ (ApprovalStatus::Approved | ApprovalStatus::Denied | ApprovalStatus::Expired),
        ) => conditions.add_text("status = ?", status.as_str()),
        None => {}
    }
    add_principal(&mut conditions, query.principal_id.as_ref());
    let Conditions { text, mut params } = conditions;
    params.push(limit(query.limit));
    let (order, way) = (order.column(), if query.oldest_first { "ASC" } else { "DESC" });
    (format!("SELECT * FROM approvals WHERE true{text} ORDER BY {order} {way} LIMIT ?"), params)
}

/// Events, oldest first. It reads from a position on, so following costs only what is new. Types and
/// principals are filtered row by row, because an index of them would be written at every step.
pub(super) fn events(
    connection: &Connection,
    query: &EventQuery,
) -> Result<Vec<PlacedEvent>, StoreError> {
    let (sql, params) = events_sql(query);
    all(connection, LOOSE_EVENTS, &sql, params_from_iter(params), |cells| {
        let LinkedEvent { event, link: _ } = event_from(cells)?;
        Ok(PlacedEvent { position: cells.number("position")?, event })
    })
}

fn events_sql(query: &EventQuery) -> (String, Vec<Value>) {
    let mut conditions = Conditions::default();
    let after = i64::try_from(query.after).unwrap_or(i64::MAX);
    conditions.add("position > ?", [Value::Integer(after)]);
    if !query.event_types.is_empty() {
        let marks = vec!["?"; query.event_types.len()].join(", ");
        let types = query.event_types.iter();
        let values = types.map(|event_type| Value::Text(event_type.as_str().to_owned()));
        conditions.add(&format!("event_type IN ({marks})"), values);
    }
    if let Some(principal_id) = &query.principal_id {
        conditions.add_text(&format!("session_id IN {SESSIONS_OF}"), principal_id.as_str());
    }
    let index = if query.loose_only {
        conditions.add("tool_run_id IS NULL", []);
        " INDEXED BY events_loose"
    } else {
        ""
    };
    let Conditions { text, mut params } = conditions;
    params.push(limit(query.limit));
    (format!("SELECT * FROM events{index} WHERE true{text} ORDER BY position LIMIT ?"), params)
}

/// Unfinished runs, oldest first. The cost depends on the unfinished runs, not on all runs.
pub(super) fn unfinished(connection: &Connection) -> Result<Vec<Unfinished>, StoreError> {
    let sql = "SELECT tool_run_id, tool_name,
                      status = 'approval_required'
                      AND EXISTS (SELECT 1 FROM approvals
                                  WHERE approvals.tool_run_id = tool_runs.tool_run_id
                                    AND approvals.status = 'pending') AS is_waiting
               FROM tool_runs INDEXED BY tool_runs_unfinished
               WHERE status IN ('started', 'approval_required', 'approved') ORDER BY position";
    all(connection, TOOL_RUNS, sql, [], unfinished_from)
}

/// Events that belong to no run, after a position, oldest first.
pub(super) fn loose_page(
    connection: &Connection,
    after: u64,
    limit: usize,
) -> Result<Vec<(u64, LinkedEvent)>, StoreError> {
    let sql = "SELECT * FROM events INDEXED BY events_loose
               WHERE tool_run_id IS NULL AND position > ?1 ORDER BY position LIMIT ?2";
    let after = i64::try_from(after).unwrap_or(i64::MAX);
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    all(connection, LOOSE_EVENTS, sql, [after, limit], |cells| {
        Ok((cells.number("position")?, event_from(cells)?))
    })
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

/// How thoroughly SQLite checks the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Care {
    /// Every page, but not whether indexes and tables agree.
    Quick,
    /// Also whether they agree.
    Whole,
}

/// The tables; SQLite checks one at a time.
pub(super) const CHECKED_TABLES: [&str; 11] = [
    "sqlite_schema",
    "sessions",
    "tool_runs",
    "journal",
    "records",
    "checkpoints",
    "approvals",
    "events",
    "effects",
    "sealed_payloads",
    "cursors",
];

/// The damage that SQLite finds in a table and its indexes, at most about a hundred lines.
pub(super) fn damage(
    connection: &Connection,
    table: &str,
    care: Care,
) -> Result<Vec<String>, StoreError> {
    let lift = |error: rusqlite::Error| error::while_open(&error);
    let sql = match care {
        Care::Quick => format!("PRAGMA quick_check({table})"),
        Care::Whole => format!("PRAGMA integrity_check({table})"),
    };
    let mut check = connection.prepare(&sql).map_err(lift)?;
    let lines = check.query_map([], |row| row.get::<_, String>(0)).map_err(lift)?;
    let mut found = Vec::new();
    for line in lines {
        match line.map_err(lift) {
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

/// Keys that are bound to more than one trace. The unique index that would have refused the second is not
/// used: SQLite sorts the rows themselves, on disk where there are many.
pub(super) fn shared_keys(
    connection: &Connection,
    limit: usize,
) -> Result<Vec<IdempotencyKey>, StoreError> {
    let sql = "SELECT idempotency_key FROM effects NOT INDEXED
               GROUP BY idempotency_key HAVING count(*) > 1 LIMIT ?1";
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    all(connection, EFFECTS, sql, [limit], key_from)
}

/// The number of rows of each table. Positions count from 1 without a gap, because nothing is ever deleted:
/// a table with another first or last position was changed.
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

#[cfg(test)]
mod tests;
