//! `stepgate approvals`: what waits for a person, and what was decided.

use serde_json::Value;

use crate::cli::{ApprovalsArgs, Global};
use crate::client::{As, Client};
use crate::data_dir::DataDir;
use crate::show::{self, Cell, Table};

pub(super) async fn approvals(
    global: &Global,
    data: &DataDir,
    args: ApprovalsArgs,
) -> anyhow::Result<u8> {
    let mut client = Client::of(global, data, As::Operator).await?;
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
        let mut table = Table::new(["APPROVAL", "STATUS", "UNTIL", "WHO", "TOOL", "ARGS", "WHY"]);
        approvals.iter().for_each(|approval| table.add(row(approval)));
        show::say(table)?;
    }
    Ok(0)
}

fn row(approval: &Value) -> [Cell; 7] {
    const CHARS_MAX: usize = 60;
    let text = |pointer: &str| {
        let found = approval.pointer(pointer).and_then(Value::as_str).unwrap_or("-");
        show::shortened(&show::printable(found), CHARS_MAX)
    };
    let args = approval.pointer("/context/args").map(Value::to_string).unwrap_or_default();
    let tool = match text("/context/tool_server") {
        server if server == "core" => text("/context/tool_name"),
        server => format!("{server}.{}", text("/context/tool_name")),
    };
    [
        Cell::plain(text("/approval_id")),
        Cell::plain(text("/status")),
        Cell::plain(text("/expires_at")),
        Cell::plain(text("/context/principal_id")),
        Cell::plain(tool),
        Cell::plain(show::shortened(&show::printable(&args), CHARS_MAX)),
        Cell::plain(text("/context/reason")),
    ]
}
