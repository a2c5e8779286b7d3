//! `stepgate nodes`: who shares the store.

use serde_json::json;
use stepgate_core::ports::Node;

use crate::data_dir::DataDir;
use crate::show::{self, Cell, Table};
use crate::store;

pub(super) async fn nodes(data: &DataDir, json: bool) -> anyhow::Result<u8> {
    let nodes = store::read(data).await?.nodes().await?;
    if json {
        for node in &nodes {
            show::json(&json!({
                "incarnation": node.incarnation,
                "lease_left_ms": node.lease_left.map(|left| left.as_millis()),
                "node_id": node.node_id,
                "policy_hash": node.policy_hash,
                "runs": node.runs,
                "started_at": node.started_at,
            }))?;
        }
        return Ok(0);
    }
    if nodes.is_empty() {
        show::say("no node has the store open; one in a data directory has no others")?;
        return Ok(0);
    }
    let mut table = Table::new(["NODE", "NUMBER", "SINCE", "LEASE", "RUNS", "POLICIES"]);
    for node in &nodes {
        table.add([
            Cell::plain(&node.node_id),
            Cell::plain(node.incarnation),
            Cell::plain(node.started_at),
            Cell::plain(lease(node)),
            Cell::plain(node.runs),
            Cell::plain(policies(node)),
        ]);
    }
    show::say(table)?;
    Ok(0)
}

fn lease(node: &Node) -> String {
    match node.lease_left {
        Some(left) => format!("{:.1} s", left.as_secs_f32()),
        None => "lapsed".into(),
    }
}

/// The beginning of the digest, which is enough to see a difference.
fn policies(node: &Node) -> String {
    let digest = node.policy_hash.map(|digest| digest.to_string());
    digest.map_or_else(|| "unknown".into(), |digest| digest.chars().take(12).collect())
}
