//! Runs that wait for an executor: their call was sent, and no living node reaches the executor that it was
//! sent to.

use std::collections::BTreeMap;

use stepgate_core::journal::Kind;
use stepgate_core::json::{Value, strict};
use stepgate_core::ports::Unreached;
use stepgate_core::time::Timestamp;

use super::link::Query;
use crate::Result;
use crate::chunk::last_entry;
use crate::rows::Cells;
use crate::search::IS_UNFINISHED;
use crate::select::Select;
use crate::tables::{CHUNKS, Cell};

/// Limit of the unfinished runs that are read, the oldest first. Beyond it the counts are too low, but what is listed
/// does wait.
const CALLS_MAX: i64 = 10_000;

/// A call without an effect: its executor, and when it was made.
type Call = (String, Timestamp);

/// The calls without an effect, oldest first. This includes runs that a living node works on: a node that
/// does not reach the executor holds the run for a moment, until it finds that out.
pub(super) fn calls() -> Select<Option<Call>> {
    let sql = format!(
        "SELECT chunk.* FROM tool_runs CROSS JOIN LATERAL
           ({} WHERE trace_id = tool_run_id AND sequence_number IS NOT NULL
            ORDER BY sequence_number DESC LIMIT 1) AS chunk
         WHERE {IS_UNFINISHED} ORDER BY tool_runs.position LIMIT $1",
        CHUNKS.select()
    );
    Select::new(CHUNKS, sql, vec![Cell::Number(CALLS_MAX)], call_from)
}

/// A call, from a row of [`calls`]. A call that cannot be parsed, or names no executor, is left out:
/// `verify` reports it.
fn call_from(cells: &Cells<'_>) -> Result<Option<Call>> {
    Ok(last_entry(cells, call_of)?.flatten())
}

fn call_of(cells: &Cells<'_>) -> Result<Option<Call>> {
    if cells.text("artifact_type")? != Kind::ToolCall.as_str() {
        return Ok(None);
    }
    let Ok(call) = strict::stored(cells.text("artifact")?) else { return Ok(None) };
    let named = call.get("meta").and_then(|meta| meta.get("executor_id")).and_then(Value::as_str);
    let Some(executor_id) = named.map(str::to_owned) else { return Ok(None) };
    Ok(Some((executor_id, cells.parsed("ts")?)))
}

/// The waiting calls by executor, reached or not.
pub(super) fn by_executor(calls: impl Iterator<Item = Call>) -> BTreeMap<String, Unreached> {
    let mut waiting: BTreeMap<String, Unreached> = BTreeMap::new();
    for (executor_id, ts) in calls {
        let fresh = || Unreached {
            executor_id: executor_id.clone(),
            runs: 0,
            since: ts,
            last_node_id: None,
        };
        let there = waiting.entry(executor_id.clone()).or_insert_with(fresh);
        there.runs += 1;
        there.since = there.since.min(ts);
    }
    waiting
}

/// The last node that reports that it reaches each of these executors; a living one, if there is one.
pub(super) fn last_nodes(waiting: &BTreeMap<String, Unreached>) -> Query {
    let sql = "SELECT DISTINCT ON (executor_id) executor_id, node_id, lives
               FROM (SELECT incarnation, node_id, (expires_at > clock_timestamp())::int::bigint AS lives,
                       jsonb_array_elements_text(executors::jsonb) AS executor_id
                     FROM nodes WHERE executors <> '') AS reaching
               WHERE executor_id = ANY($1) ORDER BY executor_id, lives DESC, incarnation DESC";
    let executor_ids: Vec<String> = waiting.keys().cloned().collect();
    Query::new(sql, vec![Box::new(executor_ids)])
}

/// An executor, a node that reaches it or did, and whether the node lives.
type LastNode = (String, String, bool);

/// One of [`last_nodes`].
pub(super) fn last_node_from(cells: &Cells<'_>) -> Result<LastNode> {
    let text = |column| cells.text(column).map(str::to_owned);
    Ok((text("executor_id")?, text("node_id")?, cells.number("lives")? == 1))
}

/// Only the executors that no living node reaches, with the node that reached each last.
pub(super) fn unreached(
    mut waiting: BTreeMap<String, Unreached>,
    last_nodes: Vec<LastNode>,
) -> Vec<Unreached> {
    for (executor_id, node_id, lives) in last_nodes {
        if lives {
            waiting.remove(&executor_id);
        } else if let Some(there) = waiting.get_mut(&executor_id) {
            there.last_node_id = Some(node_id);
        }
    }
    waiting.into_values().collect()
}
