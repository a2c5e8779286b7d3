//! The lists: the pages that people read, the runs that recovery starts from, and the counts for `verify`.

use std::time::Duration;

use stepgate_core::approval::ApprovalStatus;
use stepgate_core::ids::{IdPrefix, PrincipalId, RunId};
use stepgate_core::journal::StateError;
use stepgate_core::ports::{
    ApprovalQuery, Counts, EventQuery, Node, RunQuery, RunText, SessionQuery, StoreError, TurnQuery,
};
use stepgate_core::time::Timestamp;
use tokio_postgres::Row;

use super::cells::escaped;
use super::columns::rows_of;
use super::link::{Query, Value};
use crate::rows::{Cells, Table};
use crate::search::{
    COUNTED_MAX, Finder, IS_INDEXED_TOOL, IS_NOT_OK, Order, TOOLS_MAX, after_prefix, end_id,
    first_id, position_since, position_until,
};

/// For messages about rows of this table.
pub(super) const NODES: Table = Table { name: "nodes", key: "node_id" };

/// The condition of the index of unfinished runs, in the same words as the index.
pub(super) const IS_UNFINISHED: &str = "status IN ('started', 'approval_required', 'approved')";

/// Conditions with their values. `#` in a condition stands for its next value.
#[derive(Default)]
struct Conditions {
    text: String,
    values: Vec<Value>,
}

impl Conditions {
    fn add(&mut self, text: &str, value: Option<Value>) {
        self.text.push_str(" AND ");
        match value {
            None => self.text.push_str(text),
            Some(value) => {
                self.values.push(value);
                self.text.push_str(&text.replace('#', &format!("${}", self.values.len())));
            }
        }
    }

    fn add_text(&mut self, text: &str, value: impl ToString) {
        self.add(text, Some(Box::new(value.to_string())));
    }

    /// The mark of a value that the query has outside of its conditions.
    fn mark(&mut self, value: impl ToString) -> String {
        self.values.push(Box::new(value.to_string()));
        format!("${}", self.values.len())
    }

    /// Only rows whose id begins with the prefix.
    fn add_prefix(&mut self, column: &str, prefix: &IdPrefix) {
        self.add_text(&format!("{column} >= #"), prefix.as_str());
        self.add_text(&format!("{column} < #"), after_prefix(prefix));
    }

    /// Adds the limit of rows and makes the query: `#` stands for that limit.
    fn query(mut self, rows: usize, sql: impl Fn(&str) -> String) -> Query {
        self.values.push(Box::new(i64::try_from(rows).unwrap_or(i64::MAX)));
        let limit = format!("${}", self.values.len());
        Query::new(sql(&self.text).replace('#', &limit), self.values)
    }
}

/// The names of the tools that runs have, by steps from one to the next in their index, with this part in them.
fn tools_with_part(mark: &str) -> String {
    format!(
        "WITH RECURSIVE every(name) AS (
           (SELECT min(tool_name) FROM tool_runs WHERE {IS_INDEXED_TOOL})
           UNION ALL
           SELECT (SELECT min(tool_name) FROM tool_runs
                   WHERE tool_name > every.name AND {IS_INDEXED_TOOL})
           FROM every WHERE every.name IS NOT NULL)
         , tools AS (SELECT name FROM (SELECT name FROM every LIMIT {TOOLS_MAX}) AS known
                     WHERE strpos(lower(name), {mark}) > 0) "
    )
}

/// How many rows an index would find, up to [`COUNTED_MAX`].
pub(super) fn counted(query: &RunQuery, finder: Finder) -> Query {
    let mut conditions = Conditions::default();
    let (tools, rows) = match (finder, &query.text) {
        (Finder::Tool, Some(RunText::ToolPart(part))) => {
            let tools = tools_with_part(&conditions.mark(escaped(part)));
            let found = format!(
                "tools CROSS JOIN LATERAL (SELECT 1 FROM tool_runs
                   WHERE tool_name = tools.name AND {IS_INDEXED_TOOL} LIMIT {COUNTED_MAX}) AS found"
            );
            (tools, found)
        }
        (Finder::Principal, _) => {
            (String::new(), "sessions JOIN tool_runs USING (session_id)".to_owned())
        }
        (_, _) => (String::new(), "tool_runs".to_owned()),
    };
    match finder {
        Finder::Tool => {
            if let Some(tool_name) = &query.tool_name {
                conditions.add_text("tool_name = #", escaped(tool_name));
                conditions.add(IS_INDEXED_TOOL, None);
            }
        }
        Finder::NotOk => {
            if let Some(status) = query.status {
                conditions.add_text("status = #", status.as_str());
            }
            conditions.add(IS_NOT_OK, None);
        }
        Finder::Principal => {
            if let Some(principal_id) = &query.principal_id {
                conditions.add_text("sessions.principal_id = #", principal_id.as_str());
            }
        }
        Finder::Session | Finder::Unfinished | Finder::Id | Finder::All => {}
    }
    let Conditions { text, values } = conditions;
    let sql = format!(
        "{tools}SELECT count(*) FROM (SELECT 1 FROM {rows} WHERE true{text} LIMIT {COUNTED_MAX}) AS counted"
    );
    Query::new(sql, values)
}

/// Runs, newest first.
pub(super) fn runs(query: &RunQuery, finder: Finder) -> Query {
    let mut conditions = run_conditions(query, finder);
    let rows = rows_of!(tool_runs);
    match (finder, &query.principal_id, &query.text) {
        // The newest runs of each of the principal's sessions, merged. So the query reads neither the runs of
        // other principals nor all runs of a principal that has most of them.
        (Finder::Principal, Some(principal_id), _) => {
            let principal = conditions.mark(principal_id.as_str());
            conditions.query(query.limit, |conditions| {
                format!(
                    "SELECT run.* FROM sessions CROSS JOIN LATERAL
                       ({rows} WHERE tool_runs.session_id = sessions.session_id{conditions}
                        ORDER BY position DESC LIMIT #) AS run
                     WHERE sessions.principal_id = {principal} ORDER BY run.position DESC LIMIT #"
                )
            })
        }
        // The same for each of the tools. Rows are compared, because with `=` PostgreSQL expects every tool to be a common
        // one, and walks over all runs.
        (Finder::Tool, _, Some(RunText::ToolPart(part))) => {
            let tools = tools_with_part(&conditions.mark(escaped(part)));
            let (first, last) = positions(&mut conditions, query);
            conditions.query(query.limit, |conditions| {
                format!(
                    "{tools} SELECT run.* FROM tools CROSS JOIN LATERAL
                       ({rows} WHERE (tool_name, position) >= (tools.name, {first})
                          AND (tool_name, position) <= (tools.name, {last}){conditions}
                        ORDER BY tool_name DESC, position DESC LIMIT #) AS run
                     ORDER BY run.position DESC LIMIT #"
                )
            })
        }
        (finder, _, _) => conditions.query(query.limit, |conditions| {
            let order = if finder == Finder::Id { "tool_run_id" } else { "position" };
            format!("{rows} WHERE true{conditions} ORDER BY {order} DESC LIMIT #")
        }),
    }
}

/// The first and the last position that the time and the cursor of a query leave. PostgreSQL begins to read an index at
/// one of them only if it is a part of the compared row.
fn positions(conditions: &mut Conditions, query: &RunQuery) -> (String, String) {
    let mut first = "0".to_owned();
    if let Some(since) = query.since {
        first = format!("greatest({first}, {})", position_since(&conditions.mark(first_id(since))));
    }
    let mut last = i64::MAX.to_string();
    if let Some(until) = query.until {
        let found = position_until(&conditions.mark(end_id(until)));
        last = format!("least({last}, {found})");
    }
    if let Some(before) = query.before {
        let mark = conditions.mark(before);
        last =
            format!("least({last}, (SELECT position FROM tool_runs WHERE tool_run_id = {mark}))");
    }
    (first, last)
}

/// The conditions on the row of a run itself.
fn run_conditions(query: &RunQuery, finder: Finder) -> Conditions {
    let mut conditions = Conditions::default();
    if let Some(before) = query.before {
        let is_older = match finder {
            Finder::Id => "tool_run_id < #",
            Finder::Session
            | Finder::Unfinished
            | Finder::Tool
            | Finder::NotOk
            | Finder::Principal
            | Finder::All => "position < (SELECT position FROM tool_runs WHERE tool_run_id = #)",
        };
        conditions.add_text(is_older, before);
    }
    if let Some(session_id) = query.session_id {
        conditions.add_text("tool_runs.session_id = #", session_id);
    }
    if let (Some(principal_id), true) = (&query.principal_id, finder != Finder::Principal) {
        conditions.add_text("tool_runs.principal_id = #", principal_id.as_str());
    }
    if let Some(status) = query.status {
        conditions.add_text("status = #", status.as_str());
    }
    match finder {
        Finder::Unfinished => conditions.add(IS_UNFINISHED, None),
        Finder::NotOk => conditions.add(IS_NOT_OK, None),
        Finder::Tool => conditions.add(IS_INDEXED_TOOL, None),
        Finder::Session | Finder::Id | Finder::Principal | Finder::All => {}
    }
    if let Some(tool_name) = &query.tool_name {
        conditions.add_text("tool_name = #", escaped(tool_name));
    }
    if let Some(since) = query.since {
        conditions.add_text(&format!("position >= {}", position_since("#")), first_id(since));
        conditions.add_text("ts >= #", since);
    }
    if let Some(until) = query.until {
        conditions.add_text(&format!("position <= {}", position_until("#")), end_id(until));
        conditions.add_text("ts < #", until);
    }
    match &query.text {
        Some(RunText::IdPrefix(prefix)) => {
            conditions.add_prefix("tool_run_id", prefix);
        }
        Some(RunText::ToolPart(part)) if finder != Finder::Tool => {
            conditions.add_text("strpos(lower(tool_name), #) > 0", escaped(part));
        }
        Some(RunText::ToolPart(_)) | None => {}
    }
    conditions
}

/// Sessions, newest first.
pub(super) fn session_page(query: &SessionQuery) -> Query {
    let mut conditions = Conditions::default();
    let order = Order::of("sessions", "session_id", query.id_prefix.as_ref());
    if let Some(before) = query.before {
        conditions.add_text(&order.beyond('<', '#'), before);
    }
    if let Some(prefix) = &query.id_prefix {
        conditions.add_prefix("session_id", prefix);
    }
    if let Some(principal_id) = &query.principal_id {
        conditions.add_text("principal_id = #", principal_id.as_str());
    }
    conditions.query(query.limit, |conditions| {
        let (rows, order) = (rows_of!(sessions), order.column());
        format!("{rows} WHERE true{conditions} ORDER BY {order} DESC LIMIT #")
    })
}

/// The events that opened turns, newest first.
pub(super) fn opened_turns(query: &TurnQuery) -> Query {
    let mut conditions = Conditions::default();
    // Literals, not parameters: only then can the partial indexes be used.
    conditions.add("event_type = 'turn_opened' AND tool_run_id IS NULL", None);
    let order = Order::of("events", "event_id", query.id_prefix.as_ref());
    if let Some(before) = query.before {
        conditions.add_text(&order.beyond('<', '#'), before);
    }
    if let Some(prefix) = &query.id_prefix {
        conditions.add_prefix("event_id", prefix);
    }
    if let Some(session_id) = query.session_id {
        conditions.add_text("events.session_id = #", session_id);
    }
    let (rows, order) = (rows_of!(events), order.column());
    let Some(principal_id) = &query.principal_id else {
        return conditions.query(query.limit, |conditions| {
            format!("{rows} WHERE true{conditions} ORDER BY {order} DESC LIMIT #")
        });
    };
    conditions.values.push(Box::new(principal_id.as_str().to_owned()));
    let principal = format!("${}", conditions.values.len());
    conditions.query(query.limit, |conditions| {
        format!(
            "SELECT opened.* FROM sessions CROSS JOIN LATERAL
               ({rows} WHERE events.session_id = sessions.session_id{conditions}
                ORDER BY {order} DESC LIMIT #) AS opened
             WHERE sessions.principal_id = {principal} ORDER BY opened.{order} DESC LIMIT #"
        )
    })
}

/// Approvals, in the order that the query asks for.
pub(super) fn approvals(query: &ApprovalQuery) -> Query {
    let mut conditions = Conditions::default();
    let order = Order::of("approvals", "approval_id", query.id_prefix.as_ref());
    if let Some(before) = query.before {
        conditions.add_text(&order.beyond('<', '#'), before);
    }
    if let Some(after) = query.after {
        conditions.add_text(&order.beyond('>', '#'), after);
    }
    if let Some(prefix) = &query.id_prefix {
        conditions.add_prefix("approval_id", prefix);
    }
    match query.status {
        // A literal, not a parameter: only then can the partial index be used.
        Some(ApprovalStatus::Pending) => conditions.add("status = 'pending'", None),
        Some(
            status @ (ApprovalStatus::Approved | ApprovalStatus::Denied | ApprovalStatus::Expired),
        ) => conditions.add_text("status = #", status.as_str()),
        None => {}
    }
    add_principal(&mut conditions, query.principal_id.as_ref());
    conditions.query(query.limit, |conditions| {
        let (rows, order) = (rows_of!(approvals), order.column());
        let way = if query.oldest_first { "ASC" } else { "DESC" };
        format!("{rows} WHERE true{conditions} ORDER BY {order} {way} LIMIT #")
    })
}

/// How many approvals are pending: the size of their index, or a walk over it for one principal.
pub(super) fn open_approvals(principal_id: Option<&PrincipalId>) -> Query {
    let mut conditions = Conditions::default();
    add_principal(&mut conditions, principal_id);
    let Conditions { text, values } = conditions;
    Query::new(format!("SELECT count(*) FROM approvals WHERE status = 'pending'{text}"), values)
}

/// Only the approvals that this principal's runs wait for.
fn add_principal(conditions: &mut Conditions, principal_id: Option<&PrincipalId>) {
    if let Some(principal_id) = principal_id {
        let is_theirs = "EXISTS (SELECT 1 FROM tool_runs JOIN sessions USING (session_id)
                                 WHERE tool_run_id = approvals.tool_run_id
                                   AND sessions.principal_id = #)";
        conditions.add_text(is_theirs, principal_id.as_str());
    }
}

/// Events, oldest first. It reads from a position on, so following costs only what is new. Types and
/// principals are filtered row by row, because an index of them would be written at every step.
pub(super) fn events(query: &EventQuery) -> Query {
    let mut conditions = Conditions::default();
    let after = i64::try_from(query.after).unwrap_or(i64::MAX);
    conditions.add("position > #", Some(Box::new(after)));
    if !query.event_types.is_empty() {
        let types: Vec<&str> = query.event_types.iter().map(|kind| kind.as_str()).collect();
        conditions.add("event_type = ANY(#)", Some(Box::new(types)));
    }
    if let Some(principal_id) = &query.principal_id {
        let is_theirs = "session_id IN (SELECT session_id FROM sessions WHERE principal_id = #)";
        conditions.add_text(is_theirs, principal_id.as_str());
    }
    if query.loose_only {
        conditions.add("tool_run_id IS NULL", None);
    }
    conditions.query(query.limit, |conditions| {
        let rows = rows_of!(events);
        format!("{rows} WHERE true{conditions} ORDER BY position LIMIT #")
    })
}

/// Runs that are not over and that no other living node works on, oldest first. The cost depends on the
/// unfinished runs, not on all runs. Without a node of our own, all unfinished runs.
pub(super) fn unfinished(incarnation: Option<i64>) -> Query {
    let is_free = match incarnation {
        None => String::new(),
        Some(_) => format!(" AND (owner IS NULL OR owner = $1 OR {IS_GONE})"),
    };
    let sql = format!(
        "SELECT tool_run_id, tool_name,
                (owner IS NULL AND status = 'approval_required'
                 AND EXISTS (SELECT 1 FROM approvals AS asked
                             WHERE asked.tool_run_id = tool_runs.tool_run_id
                               AND asked.status = 'pending'))::int::bigint AS is_waiting
         FROM tool_runs WHERE {IS_UNFINISHED}{is_free} ORDER BY position"
    );
    Query::new(
        sql,
        incarnation.map(|incarnation| Box::new(incarnation) as Value).into_iter().collect(),
    )
}

/// The owner of a run is a node that no longer lives.
const IS_GONE: &str = "NOT EXISTS (SELECT 1 FROM nodes WHERE incarnation = owner
                                   AND expires_at > clock_timestamp())";

/// Whether any unfinished run belongs to a node that is gone.
pub(super) fn stray_runs(incarnation: i64) -> Query {
    let sql = format!(
        "SELECT 1::bigint FROM tool_runs
         WHERE {IS_UNFINISHED} AND owner <> $1 AND {IS_GONE} LIMIT 1"
    );
    Query::new(sql, vec![Box::new(incarnation)])
}

/// The living nodes, oldest first, and the dead nodes that left unfinished runs.
pub(super) fn nodes() -> Query {
    let sql = format!(
        "SELECT incarnation, node_id, policy_hash, executors, coalesce(runs, 0) AS runs,
           (extract(epoch FROM started_at) * 1000)::bigint AS started_ms,
           (extract(epoch FROM expires_at - clock_timestamp()) * 1000)::bigint AS left_ms
         FROM nodes LEFT JOIN
           (SELECT owner, count(*) AS runs FROM tool_runs WHERE {IS_UNFINISHED} GROUP BY owner)
           AS working ON owner = incarnation
         WHERE expires_at > clock_timestamp() OR runs > 0 ORDER BY incarnation"
    );
    Query::new(sql, Vec::new())
}

/// A node, from a row of [`nodes`].
pub(super) fn node_from(cells: &Cells<'_>, this: Option<i64>) -> Result<Node, StoreError> {
    let incarnation = cells.number("incarnation")?;
    let started_ms = i64::try_from(cells.number("started_ms")?).unwrap_or(i64::MAX);
    // A negative number means that the lease has expired.
    let left_ms = cells.maybe_number("left_ms").ok().flatten().filter(|left_ms| *left_ms > 0);
    Ok(Node {
        node_id: cells.text("node_id")?.to_owned(),
        incarnation,
        started_at: Timestamp::from_millisecond(started_ms),
        lease_left: left_ms.map(Duration::from_millis),
        policy_hash: cells.maybe_parsed("policy_hash")?,
        executor_ids: executor_ids(cells)?,
        runs: cells.number("runs")?,
        is_this: this.and_then(|this| u64::try_from(this).ok()) == Some(incarnation),
    })
}

/// The executors that a node reports; none where it has not reported yet.
fn executor_ids(cells: &Cells<'_>) -> Result<Vec<String>, StoreError> {
    match cells.text("executors")? {
        "" => Ok(Vec::new()),
        said => serde_json::from_str(said).map_err(|error| cells.mismatch("executors", error)),
    }
}

/// Events that belong to no run, after a position, oldest first.
pub(super) fn loose_page(after: u64, limit: usize) -> Query {
    let sql = concat!(
        rows_of!(events),
        " WHERE tool_run_id IS NULL AND position > $1 ORDER BY position LIMIT $2"
    );
    let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    let limit = number(u64::try_from(limit).unwrap_or(u64::MAX));
    Query::new(sql, vec![Box::new(number(after)), Box::new(limit)])
}

/// The ids of runs, newest first.
pub(super) fn run_ids(before: Option<RunId>, limit: usize) -> Query {
    let mut conditions = Conditions::default();
    if let Some(before) = before {
        let is_older = "position < (SELECT position FROM tool_runs WHERE tool_run_id = #)";
        conditions.add_text(is_older, before);
    }
    conditions.query(limit, |conditions| {
        format!(
            "SELECT tool_run_id FROM tool_runs WHERE true{conditions} ORDER BY position DESC LIMIT #"
        )
    })
}

/// Keys that are bound to more than one trace, found from the rows: the query can use neither the order nor
/// the content of the index.
pub(super) fn shared_keys(limit: usize) -> Query {
    let sql = "SELECT key AS idempotency_key
               FROM (SELECT idempotency_key || '' AS key, trace_id FROM effects) AS bound
               GROUP BY key HAVING min(trace_id) <> max(trace_id) ORDER BY key LIMIT $1";
    Query::new(sql, vec![Box::new(i64::try_from(limit).unwrap_or(i64::MAX))])
}

/// The last position of an event.
pub(super) fn last_position() -> Query {
    Query::new("SELECT last FROM event_counter", Vec::new())
}

/// The size of the whole database, with indexes and dead rows.
pub(super) fn size_bytes() -> Query {
    Query::new("SELECT pg_database_size(current_database())", Vec::new())
}

/// The number of rows of each table, and the last positions of the events.
pub(super) fn counts() -> Query {
    let sql = "SELECT (SELECT count(*) FROM tool_runs), (SELECT count(*) FROM journal),
                      (SELECT count(*) FROM records), (SELECT count(*) FROM checkpoints),
                      (SELECT count(*) FROM events), (SELECT count(*) FROM approvals),
                      (SELECT count(*) FROM effects), (SELECT count(*) FROM sessions),
                      (SELECT coalesce(min(position), 1) FROM events),
                      (SELECT coalesce(max(position), 0) FROM events),
                      (SELECT last FROM event_counter)";
    Query::new(sql, Vec::new())
}

/// The counts, from the row of [`counts`]. Events have positions from 1 without a gap, because nothing is
/// ever deleted: other positions were not written by Stepgate.
pub(super) fn counts_from(rows: &[Row]) -> Result<Counts, StoreError> {
    let number = |column: usize| -> Result<u64, StoreError> {
        let count = rows.first().and_then(|row| row.try_get::<_, i64>(column).ok());
        let count = count.and_then(|count| u64::try_from(count).ok());
        count.ok_or_else(|| StateError::checksum("PostgreSQL does not count its rows").into())
    };
    let (events, first, last, counted) = (number(4)?, number(8)?, number(9)?, number(10)?);
    if first != 1 || events != last || counted != last {
        let detail = format!("events has {events} rows, at positions {first} to {last}");
        return Err(StateError::checksum(detail).into());
    }
    Ok(Counts {
        runs: number(0)?,
        entries: number(1)?,
        records: number(2)?,
        checkpoints: number(3)?,
        events,
        approvals: number(5)?,
        bindings: number(6)?,
        sessions: number(7)?,
    })
}
