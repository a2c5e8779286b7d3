//! `stepgate approve` and `stepgate deny`: a person's decision, for each id separately.

use anyhow::{Context, bail};
use axum::http::Method;
use serde_json::{Value, json};
use stepgate_core::ids::ApprovalId;

use super::confirm::{self, Asked};
use super::{FAULT, approvals, find, print_one, rows, text, times};
use crate::cli::{DecideArgs, Named};
use crate::client::Client;
use crate::data_dir::DataDir;
use crate::show::{self, ERROR, GOOD, Times};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    Approve,
    Deny,
}

impl Decision {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Approve => "approve",
            Self::Deny => "deny",
        }
    }

    fn question(self, count: usize) -> &'static str {
        match (self, count) {
            (Self::Approve, 1) => "approve it?",
            (Self::Deny, 1) => "deny it?",
            (Self::Approve, _) => "approve all of these?",
            (Self::Deny, _) => "deny all of these?",
        }
    }
}

pub(super) async fn decide(
    data: &DataDir,
    args: DecideArgs,
    decision: Decision,
) -> anyhow::Result<u8> {
    // INVARIANT: each name is looked up once. What is shown and what is decided on have the same whole id, and what an
    // approval asks for never changes.
    let find = async |client: &mut Client| found(client, &args.ids).await;
    let question = async |client: &mut Client, ids: &Vec<ApprovalId>| {
        let shown = shown(client, ids, times(&data.global)).await?;
        Ok(format!("{shown}\n{}", decision.question(ids.len())))
    };
    let asked = Asked::about(&args.ids);
    let (mut client, ids) = confirm::operator_about(data, asked, find, question).await?;
    let body = json!({ "decision": decision.as_str(), "ids": ids, "note": args.note });
    let reply = client.ask(Method::POST, "/v1/approvals/decide", Some(&body)).await?.json()?;
    let results = rows(&reply, "results");
    results.iter().try_for_each(|result| print_one(result, &data.global, || told(result)))?;
    let is_refused = results.iter().any(|result| result.get("error").is_some());
    Ok(if is_refused { FAULT } else { 0 })
}

async fn found(
    client: &mut Client,
    named: &[Named<ApprovalId>],
) -> anyhow::Result<Vec<ApprovalId>> {
    let mut ids = Vec::with_capacity(named.len());
    for named in named {
        let id = find::approval(client, named, "pending").await?;
        if !ids.contains(&id) {
            ids.push(id);
        }
    }
    Ok(ids)
}

/// Everything that is decided on. If one approval cannot be shown in full, none is decided.
async fn shown(client: &mut Client, ids: &[ApprovalId], times: Times) -> anyhow::Result<String> {
    let mut blocks = Vec::with_capacity(ids.len());
    for id in ids {
        let reply = client.ask(Method::GET, &format!("/v1/approvals/{id}"), None).await?;
        let approval = reply.json().with_context(|| format!("cannot show approval {id}"))?;
        if text(&approval, "status") != "pending" {
            bail!(
                "no approval {id} waits: `stepgate approvals --status all` shows what became of it"
            );
        }
        let Some(block) = approvals::block(&approval, times) else {
            bail!(
                "approval {id} cannot be shown in full: decide with a token, after `stepgate approvals --json`"
            );
        };
        blocks.push(block);
    }
    Ok(blocks.join("\n"))
}

/// The status after a decision that was taken. Where policy requires several people, one approval does not end it.
pub(super) fn standing(status: String) -> String {
    if status == "pending" { "counted, and others must approve, too".to_owned() } else { status }
}

fn told(result: &Value) -> String {
    let text = |pointer: &str| {
        let found = result.pointer(pointer).and_then(Value::as_str);
        found.map(show::printable)
    };
    let id = text("/approval_id").unwrap_or_default();
    if let Some(message) = text("/error/detail") {
        return format!("{ERROR}refused{ERROR:#}  {id}: {message}");
    }
    let status = standing(text("/approval/status").unwrap_or_default());
    let run = text("/approval/tool_run_id").unwrap_or_default();
    let outcome = text("/approval/response/outcome").map(|outcome| format!(": {outcome}"));
    format!("{GOOD}{status}{GOOD:#}  {id}  run {run}{}", outcome.unwrap_or_default())
}
