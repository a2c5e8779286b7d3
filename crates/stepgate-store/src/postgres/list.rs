//! The lists whose words are PostgreSQL's own, the nodes, and the counts for `verify`.

use std::time::Duration;

use stepgate_core::event::Event;
use stepgate_core::ids::IdempotencyKey;
use stepgate_core::journal::StateError;
use stepgate_core::ports::{Counts, Node, RunQuery, RunText, TurnQuery, Unfinished};
use stepgate_core::run::Run;
use stepgate_core::time::Timestamp;

use super::cells::escaped;
use super::link::Query;
use crate::Result;
use crate::rows::{Cells, event_from, key_from, run_from, unfinished_from};
use crate::search::{
    COUNTED_MAX, ENTRIES, Finder, IS_INDEXED_TOOL, IS_UNFINISHED, TOOLS_MAX, end_id, first_id,
    position_since, position_until,
};
use crate::select::{
    Conditions, Engine, Select, index_conditions, run_conditions, turn_conditions,
};
use crate::tables::{BINDINGS, Cell, EVENTS, LOOSE_EVENTS, TOOL_RUNS, Table};

/// For messages about rows of this table.
pub(super) const NODES: Table = Table { name: "nodes", key: "node_id", columns: "" };

/// The query with texts as PostgreSQL stores them.
fn as_stored(query: &RunQuery) -> RunQuery {
    let tool_name = query.tool_name.as_deref().map(|name| escaped(name).into_owned());
    let text = query.text.clone().map(|text| match text {
        RunText::ToolPart(part) => RunText::ToolPart(escaped(&part).into_owned()),
        RunText::IdPrefix(prefix) => RunText::IdPrefix(prefix),
    });
    RunQuery { tool_name, text, ..query.clone() }
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
pub(super) fn counted(query: &RunQuery, finder: Finder) -> Select<u64> {
    let query = as_stored(query);
    let mut conditions = index_conditions(&query, finder);
    let (tools, rows) = match (finder, &query.text, &query.principal_id) {
        (Finder::Tool, Some(RunText::ToolPart(part)), _) => {
            let tools = tools_with_part(&conditions.mark(Cell::text_of(part)));
            let found = format!(
                "tools CROSS JOIN LATERAL (SELECT 1 FROM tool_runs
                   WHERE tool_name = tools.name AND {IS_INDEXED_TOOL} LIMIT {COUNTED_MAX}) AS found"
            );
            (tools, found)
        }
        (Finder::Principal, _, Some(principal_id)) => {
            conditions.add_text("sessions.principal_id = #", principal_id.as_str());
            (String::new(), "sessions JOIN tool_runs USING (session_id)".to_owned())
        }
        (_, _, _) => (String::new(), "tool_runs".to_owned()),
    };
    let Conditions { text, values } = conditions;
    let sql = format!(
        "{tools}SELECT count(*) AS number
         FROM (SELECT 1 FROM {rows} WHERE true{text} LIMIT {COUNTED_MAX}) AS counted"
    );
    Select::new(TOOL_RUNS, sql, values, |cells| cells.number("number"))
}

/// Runs, newest first.
pub(super) fn runs(query: &RunQuery, finder: Finder) -> Select<Run> {
    let query = &as_stored(query);
    let mut conditions = run_conditions(Engine::Postgres, query, finder);
    let rows = TOOL_RUNS.select();
    let sql: Box<dyn Fn(&str) -> String> = match (finder, &query.principal_id, &query.text) {
        // The newest runs of each of the principal's sessions, merged. So the query reads neither the runs of
        // other principals nor all runs of a principal that has most of them.
        (Finder::Principal, Some(principal_id), _) => {
            let principal = conditions.mark(Cell::text_of(principal_id.as_str()));
            Box::new(move |conditions| {
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
            let tools = tools_with_part(&conditions.mark(Cell::text_of(part)));
            let (first, last) = positions(&mut conditions, query);
            Box::new(move |conditions| {
                format!(
                    "{tools} SELECT run.* FROM tools CROSS JOIN LATERAL
                       ({rows} WHERE (tool_name, position) >= (tools.name, {first})
                          AND (tool_name, position) <= (tools.name, {last}){conditions}
                        ORDER BY tool_name DESC, position DESC LIMIT #) AS run
                     ORDER BY run.position DESC LIMIT #"
                )
            })
        }
        (finder, _, _) => Box::new(move |conditions| {
            let order = if finder == Finder::Id { "tool_run_id" } else { "position" };
            format!("{rows} WHERE true{conditions} ORDER BY {order} DESC LIMIT #")
        }),
    };
    conditions.select(TOOL_RUNS, query.limit, run_from, sql)
}

/// The first and the last position that the time and the cursor of a query leave. PostgreSQL begins to read an index at
/// one of them only if it is a part of the compared row.
fn positions(conditions: &mut Conditions, query: &RunQuery) -> (String, String) {
    let mut first = "0".to_owned();
    if let Some(since) = query.since {
        first = format!(
            "greatest({first}, {})",
            position_since(&conditions.mark(Cell::text_of(first_id(since))))
        );
    }
    let mut last = i64::MAX.to_string();
    if let Some(until) = query.until {
        let found = position_until(&conditions.mark(Cell::text_of(end_id(until))));
        last = format!("least({last}, {found})");
    }
    if let Some(before) = query.before {
        let mark = conditions.mark(Cell::text_of(before));
        last =
            format!("least({last}, (SELECT position FROM tool_runs WHERE tool_run_id = {mark}))");
    }
    (first, last)
}

/// The events that opened turns, newest first.
pub(super) fn opened_turns(query: &TurnQuery) -> Select<Event> {
    let (mut conditions, order) = turn_conditions(query);
    let (rows, order) = (EVENTS.select(), order.column);
    let principal_id = query.principal_id.as_ref();
    let principal = principal_id.map(|id| conditions.mark(Cell::text_of(id.as_str())));
    let read = |cells: &Cells<'_>| Ok(event_from(cells)?.event);
    conditions.select(LOOSE_EVENTS, query.limit, read, |conditions| match &principal {
        None => format!("{rows} WHERE true{conditions} ORDER BY {order} DESC LIMIT #"),
        Some(principal) => format!(
            "SELECT opened.* FROM sessions CROSS JOIN LATERAL
               ({rows} WHERE events.session_id = sessions.session_id{conditions}
                ORDER BY {order} DESC LIMIT #) AS opened
             WHERE sessions.principal_id = {principal} ORDER BY opened.{order} DESC LIMIT #"
        ),
    })
}

/// Runs that are not over and that no other living node works on, oldest first. The cost depends on the
/// unfinished runs, not on all runs. Without a node of our own, all unfinished runs.
pub(super) fn unfinished(incarnation: Option<i64>) -> Select<Unfinished> {
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
    let values = incarnation.map(Cell::Number).into_iter().collect();
    Select::new(TOOL_RUNS, sql, values, unfinished_from)
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
    Query::of(sql, [Cell::Number(incarnation)])
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

/// The database's clock, in milliseconds since 1970.
pub(super) fn clock() -> Select<u64> {
    let sql = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now_ms";
    Select::new(NODES, sql.to_owned(), Vec::new(), |cells| cells.number("now_ms"))
}

/// A node, from a row of [`nodes`].
pub(super) fn node_from(cells: &Cells<'_>, this: Option<i64>) -> Result<Node> {
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
fn executor_ids(cells: &Cells<'_>) -> Result<Vec<String>> {
    match cells.text("executors")? {
        "" => Ok(Vec::new()),
        said => serde_json::from_str(said).map_err(|error| cells.mismatch("executors", error)),
    }
}

/// Keys that are bound to more than one trace, found from the rows: the query can use neither the order nor
/// the content of the indexes.
pub(super) fn shared_keys(limit: usize) -> Select<IdempotencyKey> {
    let none = Conditions::default();
    none.select(BINDINGS, limit, key_from, |_| {
        "SELECT key AS idempotency_key
         FROM (SELECT idempotency_key || '' AS key, tool_run_id AS trace_id FROM tool_runs
               UNION ALL SELECT idempotency_key || '', trace_id FROM effects) AS bound
         WHERE key IS NOT NULL
         GROUP BY key HAVING min(trace_id) <> max(trace_id) ORDER BY key LIMIT #"
            .to_owned()
    })
}

/// The size of the whole database, with indexes and dead rows.
pub(super) fn size_bytes() -> Select<u64> {
    let sql = "SELECT pg_database_size(current_database()) AS bytes";
    Select::new(TOOL_RUNS, sql, Vec::new(), |cells| cells.number("bytes"))
}

/// The number of rows of each table. Events have positions from 1, and only those of archived runs are deleted: where
/// others are missing, the table was changed.
pub(super) fn counts() -> Select<Counts> {
    let packed = |parts: &str| format!("(SELECT coalesce(sum({parts}), 0)::bigint FROM chunks)");
    let sql = format!(
        "SELECT (SELECT count(*) FROM tool_runs) AS runs,
                      {} AS entries, {} AS records, {} AS checkpoints,
                      (SELECT count(*) FROM events) AS events,
                      (SELECT count(*) FROM approvals) AS approvals,
                      (SELECT count(*) FROM effects) AS bindings,
                      (SELECT count(*) FROM sessions) AS sessions,
                      (SELECT coalesce(min(position), 1) FROM events) AS first,
                      (SELECT coalesce(sum(events), 0)::bigint FROM archived_runs) AS archived,
                      (SELECT coalesce(max(position), 0) FROM events) AS last,
                      (SELECT last FROM event_counter) AS counted",
        packed(ENTRIES),
        packed("records"),
        packed("checkpoints")
    );
    Select::new(EVENTS, sql, Vec::new(), |cells| {
        let (events, first) = (cells.number("events")?, cells.number("first")?);
        let last = cells.number("last")?;
        let archived = cells.number("archived")?;
        if first < 1 || events + archived != last || cells.number("counted")? != last {
            let detail = format!(
                "events has {events} rows, at positions {first} to {last}, and {archived} are archived"
            );
            return Err(StateError::checksum(detail).into());
        }
        Ok(Counts {
            runs: cells.number("runs")?,
            entries: cells.number("entries")?,
            records: cells.number("records")?,
            checkpoints: cells.number("checkpoints")?,
            events,
            approvals: cells.number("approvals")?,
            bindings: cells.number("bindings")?,
            sessions: cells.number("sessions")?,
        })
    })
}
