//! `stepgate nodes`: the nodes that share the store, and the runs that wait for a node that is gone.

use serde_json::json;
use stepgate_core::ports::{Node, Unreached};

use super::times;
use crate::data_dir::DataDir;
use crate::show::{self, Cell, Table, Times};
use crate::store;

pub(super) async fn nodes(data: &DataDir) -> anyhow::Result<()> {
    let store = store::read(data).await?;
    let (nodes, unreached) = (store.nodes().await?, store.unreached().await?);
    if data.global.json {
        return print_json(&nodes, &unreached);
    }
    if nodes.is_empty() {
        show::say("no node has the store open; one in a data directory has no others")?;
    } else {
        show::say(node_table(&nodes, times(&data.global)))?;
    }
    if !unreached.is_empty() {
        show::say("\nthese runs wait for an executor that no living node reaches:\n")?;
        show::say(unreached_table(&unreached, times(&data.global)))?;
    }
    Ok(())
}

/// One line per node, and one per executor that runs wait for.
fn print_json(nodes: &[Node], unreached: &[Unreached]) -> anyhow::Result<()> {
    for node in nodes {
        show::json(&json!({
            "executor_ids": node.executor_ids,
            "incarnation": node.incarnation,
            "lease_left_ms": node.lease_left.map(|left| left.as_millis()),
            "node_id": node.node_id,
            "policy_hash": node.policy_hash,
            "runs": node.runs,
            "started_at": node.started_at,
        }))?;
    }
    for waiting in unreached {
        show::json(&json!({
            "last_node_id": waiting.last_node_id,
            "runs_waiting": waiting.runs,
            "since": waiting.since,
            "unreached_executor_id": waiting.executor_id,
        }))?;
    }
    Ok(())
}

fn node_table(nodes: &[Node], times: Times) -> Table<7> {
    let header = ["NODE", "NUMBER", "SINCE", "LEASE", "RUNS", "POLICIES", "EXECUTORS"];
    let row = |node: &Node| {
        [
            Cell::plain(&node.node_id),
            Cell::plain(node.incarnation),
            Cell::plain(times.past(node.started_at)),
            Cell::plain(lease(node)),
            Cell::plain(node.runs),
            Cell::plain(policies(node)),
            Cell::plain(node.executor_ids.join(", ")),
        ]
    };
    Table::of(header, nodes.iter().map(row))
}

fn unreached_table(unreached: &[Unreached], times: Times) -> Table<4> {
    let row = |waiting: &Unreached| {
        [
            Cell::alarming(&waiting.executor_id),
            Cell::plain(waiting.runs),
            Cell::plain(times.past(waiting.since)),
            Cell::plain(waiting.last_node_id.as_deref().unwrap_or("unknown")),
        ]
    };
    Table::of(["EXECUTOR", "RUNS", "SINCE", "LAST NODE"], unreached.iter().map(row))
}

fn lease(node: &Node) -> String {
    match node.lease_left {
        Some(left) => format!("{:.1} s", left.as_secs_f32()),
        None => "lapsed".into(),
    }
}

/// The first characters of the digest, enough to see a difference.
fn policies(node: &Node) -> String {
    let digest = node.policy_hash.map(|digest| digest.to_string());
    digest.map_or_else(|| "unknown".into(), |digest| digest.chars().take(12).collect())
}
