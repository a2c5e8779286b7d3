//! `stepgate policy replay`: evaluates recorded history with other policies.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};
use stepgate_core::history::{PastDecision, Ruling};
use stepgate_core::tool::{Tool, ToolName};
use stepgate_gateway::replay::{self, Change, Replayed};
use stepgate_gateway::start::not_loaded;
use stepgate_policy::{Nameable, PolicySet, ToolShape};

use super::super::FAULT;
use crate::data_dir::DataDir;
use crate::show::{self, Cell, Table};

/// The exit code of `--fail-on-change` where a decision would change.
pub(super) const CHANGED: u8 = 15;

pub(super) async fn replay(
    data: &DataDir,
    directory: &Path,
    limit: u32,
    fail_on_change: bool,
) -> anyhow::Result<u8> {
    let tools = super::tools(data, directory).await?;
    let facts = &super::names(&data.load_config()?)?;
    let set = PolicySet::load(directory, Nameable { tools: &tools, facts }).map_err(not_loaded)?;
    let store = crate::store::read(data).await?;
    let known = known(&tools);
    let mut table = Table::new(["RUN", "PRINCIPAL", "TOOL", "WAS", "WOULD BE", "BY"]);
    let changed = |change: Change| {
        let Change { past, ruling, policies } = &change;
        match data.global.json {
            true => show::json(&self::change(past, ruling, policies)),
            false => {
                table.add(row(past, ruling, policies));
                Ok(())
            }
        }
    };
    let progress = |done: Replayed| show::note(format!("{} decisions asked again", done.asked));
    let tool = |name: &ToolName| known.get(name).cloned();
    let done = replay::replay(&*store, tool, &set, limit, changed, progress).await?;
    let Replayed { asked, changed, unreadable } = done;
    if unreadable > 0 {
        show::note(format!("{unreadable} runs cannot be read: `stepgate verify` names them"));
    }
    if !data.global.json {
        if changed > 0 {
            show::say(table)?;
        }
        show::say(format!("{changed} of {asked} recorded decisions would change"))?;
    }
    Ok(if fail_on_change { exit_code(done) } else { 0 })
}

/// A run that cannot be read may be one whose decision would change.
fn exit_code(done: Replayed) -> u8 {
    match (done.changed, done.unreadable) {
        (0, 0) => 0,
        (0, _) => FAULT,
        (_, _) => CHANGED,
    }
}

fn change(past: &PastDecision, ruling: &Ruling, policies: &[String]) -> Value {
    json!({
        "run_id": past.run_id,
        "principal_id": past.principal_id,
        "tool": past.call.name(),
        "was": object(&past.ruling),
        "was_by": past.policies,
        "would_be": object(ruling),
        "would_be_by": policies,
    })
}

fn object(ruling: &Ruling) -> Value {
    let (verdict, caps) = parts(ruling);
    json!({ "verdict": verdict, "caps": caps })
}

fn parts(ruling: &Ruling) -> (&'static str, BTreeMap<String, i64>) {
    match ruling {
        Ruling::Permit(caps) => ("permit", caps.clone()),
        Ruling::RequireApproval(caps) => ("require_approval", caps.clone()),
        Ruling::Deny => ("deny", BTreeMap::new()),
    }
}

fn row(past: &PastDecision, ruling: &Ruling, policies: &[String]) -> [Cell; 6] {
    let words = |ruling: &Ruling| {
        let (verdict, caps) = parts(ruling);
        let caps = caps.iter().map(|(name, max)| format!(", {name} <= {max}"));
        format!("{verdict}{}", caps.collect::<String>())
    };
    let by = if policies.is_empty() { "no policy".to_owned() } else { policies.join(", ") };
    [
        Cell::plain(past.run_id),
        Cell::plain(&past.principal_id),
        Cell::plain(past.call.name()),
        Cell::plain(words(&past.ruling)),
        Cell::plain(words(ruling)),
        Cell::plain(by),
    ]
}

/// The tools that policies know, with only what a decision needs.
fn known(shapes: &[ToolShape]) -> BTreeMap<ToolName, Arc<Tool>> {
    let tool = |shape: &ToolShape| Tool {
        mode: shape.mode,
        // Policies decide only on calls of the definition that they were loaded for.
        definition_digest: shape.definition_digest,
        flow: shape.flow.clone(),
        ..Tool::gone(shape.name.clone())
    };
    shapes.iter().map(|shape| (shape.name.clone(), Arc::new(tool(shape)))).collect()
}
