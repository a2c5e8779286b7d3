//! `stepgate approvals`: the approvals that wait for a person, and those that were decided.

use serde_json::{Map, Value};

use crate::cli::{ApprovalsArgs, Global};
use crate::client::{As, Client};
use crate::data_dir::DataDir;
use crate::show;

pub(super) async fn approvals(
    global: &Global,
    data: &DataDir,
    args: ApprovalsArgs,
) -> anyhow::Result<u8> {
    let mut client = Client::of(global, data, As::Auditor).await?;
    let filter = match args.status.as_str() {
        "all" => String::new(),
        status => format!("&status={status}"),
    };
    let approvals = client.list("approvals", &filter, None, args.limit).await?;
    if global.json {
        approvals.iter().try_for_each(show::json)?;
    } else if approvals.is_empty() {
        show::say("no approvals")?;
    } else {
        for approval in &approvals {
            show::say(block(approval).unwrap_or_else(|| unreadable(approval)))?;
        }
    }
    Ok(0)
}

/// The line for an approval that lacks a part. Its JSON shows what it has.
fn unreadable(approval: &Value) -> String {
    let id = approval.get("approval_id").and_then(Value::as_str).unwrap_or("-");
    let id = show::printable(id);
    format!("{id}  cannot be shown in full: `stepgate approvals --json` has what there is")
}

/// Arguments longer than this come first, so that the short ones are next to the question.
const LONG_CHARS: usize = 200;

/// One approval with everything that the person decides on, and nothing cut: what is not seen must not be approved.
/// None if a part is missing.
pub(super) fn block(approval: &Value) -> Option<String> {
    let text = |pointer: &str| approval.pointer(pointer).and_then(Value::as_str);
    let shown = |pointer: &str| text(pointer).map(show::printable);
    let tool = match (text("/context/tool_server")?, shown("/context/tool_name")?) {
        ("core", name) => name,
        (server, name) => format!("{}.{name}", show::printable(server)),
    };
    Some(format!(
        "{}  {}  until {}\n  who   {}\n  what  {tool}{}{}\n  why   {}",
        shown("/approval_id")?,
        shown("/status")?,
        shown("/expires_at")?,
        shown("/context/principal_id")?,
        arguments(approval.pointer("/context/args")?.as_object()?),
        defaults(approval),
        shown("/context/reason")?,
    ))
}

/// The defaults that the tool declares for arguments that were not given.
fn defaults(approval: &Value) -> String {
    match approval.pointer("/context/needs_approval/meta/defaults") {
        Some(defaults) => format!("\n  by default  {}", show::printable(&defaults.to_string())),
        None => String::new(),
    }
}

/// Each argument on its own line, with its whole value.
fn arguments(args: &Map<String, Value>) -> String {
    let lines = args.iter().map(|(name, value)| {
        format!("{} = {}", show::printable(name), show::printable(&value.to_string()))
    });
    let (long, short): (Vec<_>, Vec<_>) = lines.partition(|line| line.chars().count() > LONG_CHARS);
    long.into_iter().chain(short).map(|line| format!("\n        {line}")).collect()
}

#[cfg(test)]
mod tests;
