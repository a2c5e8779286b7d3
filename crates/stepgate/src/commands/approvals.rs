//! `stepgate approvals`: what waits for a person, and what was decided.

use serde_json::Value;

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
            show::say(block(approval))?;
        }
    }
    Ok(0)
}

/// One approval with everything that the person decides on: what is not seen must not be approved.
fn block(approval: &Value) -> String {
    const ARGS_CHARS_MAX: usize = 4096;
    told(approval, ARGS_CHARS_MAX)
}

/// The same with all of its arguments, however long they are.
pub(super) fn whole(approval: &Value) -> String {
    told(approval, usize::MAX)
}

fn told(approval: &Value, args_chars_max: usize) -> String {
    let text = |pointer: &str| {
        show::printable(approval.pointer(pointer).and_then(Value::as_str).unwrap_or("-"))
    };
    let args = approval.pointer("/context/args").map(Value::to_string).unwrap_or_default();
    let args = show::printable(&args);
    let hidden = args.chars().count().saturating_sub(args_chars_max);
    let shown: String = args.chars().take(args_chars_max).collect();
    let rest = match hidden {
        0 => String::new(),
        _ => format!("\n        {hidden} more characters: `stepgate approvals --json` shows all"),
    };
    let tool = match text("/context/tool_server") {
        server if server == "core" => text("/context/tool_name"),
        server => format!("{server}.{}", text("/context/tool_name")),
    };
    format!(
        "{}  {}  until {}\n  who   {}\n  what  {tool} {shown}{rest}\n  why   {}",
        text("/approval_id"),
        text("/status"),
        text("/expires_at"),
        text("/context/principal_id"),
        text("/context/reason"),
    )
}
