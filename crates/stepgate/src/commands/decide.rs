//! `stepgate approve` and `stepgate deny`: a person's word, for each id by itself.

use axum::http::Method;
use serde_json::{Value, json};

use crate::cli::{DecideArgs, Global};
use crate::client::{As, Client};
use crate::data_dir::DataDir;
use crate::show;

#[derive(Clone, Copy)]
pub(super) enum Decision {
    Approve,
    Deny,
}

impl Decision {
    fn as_str(self) -> &'static str {
        match self {
            Self::Approve => "approve",
            Self::Deny => "deny",
        }
    }
}

pub(super) async fn decide(
    global: &Global,
    data: &DataDir,
    args: DecideArgs,
    decision: Decision,
) -> anyhow::Result<u8> {
    let mut client = Client::of(global, data, As::Operator).await?;
    let body = json!({ "decision": decision.as_str(), "ids": args.ids, "note": args.note });
    let reply = client.ask(Method::POST, "/v1/approvals/decide", Some(&body)).await?.json()?;
    let results = reply.get("results").and_then(Value::as_array).cloned().unwrap_or_default();
    let mut code = 0;
    for result in &results {
        if result.get("error").is_some() {
            code = super::FAULT;
        }
        if global.json {
            show::json(result)?;
        } else {
            tell(result)?;
        }
    }
    Ok(code)
}

fn tell(result: &Value) -> anyhow::Result<()> {
    let text = |pointer: &str| {
        let found = result.pointer(pointer).and_then(Value::as_str);
        found.map(show::printable)
    };
    let id = text("/approval_id").unwrap_or_default();
    match text("/error/message") {
        Some(message) => {
            show::say(format!("{}refused{:#}  {id}: {message}", show::ERROR, show::ERROR))
        }
        None => {
            let status = text("/approval/status").unwrap_or_default();
            let run = text("/approval/tool_run_id").unwrap_or_default();
            let outcome = text("/approval/response/outcome");
            let outcome = outcome.map(|outcome| format!(": {outcome}")).unwrap_or_default();
            show::say(format!("{}{status}{:#}  {id}  run {run}{outcome}", show::GOOD, show::GOOD))
        }
    }
}
