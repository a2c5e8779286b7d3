//! `stepgate approvals`: the approvals that wait for a person, and those that were decided.

use anyhow::Context;
use serde_json::{Map, Value};
use stepgate_core::action::proposed_name;
use stepgate_core::event::EventType;
use stepgate_core::ids::{ApprovalId, PrincipalId};
use stepgate_core::time::Timestamp;

use super::runs::instant;
use super::watch::Watch;
use super::{print_one, rows, text, texts, times};
use crate::cli::{ApprovalsArgs, Global};
use crate::client::{Client, Role, parameter};
use crate::data_dir::DataDir;
use crate::show::{self, Times};

pub(super) async fn approvals(data: &DataDir, args: ApprovalsArgs) -> anyhow::Result<()> {
    if args.watch {
        return watch(data, &args).await;
    }
    let mut client = Client::of(data, Role::Auditor).await?;
    let approvals = list(&mut client, &args).await?;
    if approvals.is_empty() && !data.global.json {
        show::say("no approvals")?;
    }
    approvals.iter().try_for_each(|approval| tell(approval, &data.global))
}

async fn list(client: &mut Client, args: &ApprovalsArgs) -> anyhow::Result<Vec<Value>> {
    let status = Some(&args.status).filter(|status| *status != "all");
    let filter = parameter("status", status) + &parameter("principal", args.principal.as_ref());
    let (since, until) = (instant(args.since), instant(args.until));
    let limit = usize::try_from(args.limit)?;
    let (mut found, mut before) = (Vec::new(), None);
    loop {
        let page = client.list("approvals", &filter, before, args.limit).await?;
        before = page.last().map(|row| text(row, "approval_id").to_owned());
        let is_last = page.len() < limit;
        for row in page {
            let asked: Option<Timestamp> = text(&row, "ts_requested").parse().ok();
            let is_older = since.zip(asked).is_some_and(|(since, asked)| asked < since);
            let is_newer = until.zip(asked).is_some_and(|(until, asked)| asked >= until);
            if is_older || found.len() == limit {
                return Ok(found);
            }
            if !is_newer {
                found.push(row);
            }
        }
        if is_last {
            return Ok(found);
        }
    }
}

/// What waits, oldest first, and then what comes.
async fn watch(data: &DataDir, args: &ApprovalsArgs) -> anyhow::Result<()> {
    // The stream is open before the list is read: nothing that is asked in between is missed.
    let mut watch = Watch::begin(data).await?;
    let mut waiting = list(&mut watch.client, args).await?;
    waiting.reverse();
    waiting.iter().try_for_each(|approval| tell(approval, &data.global))?;
    let principal = args.principal.as_ref().map(PrincipalId::as_str);
    while let Some(event) = watch.next_of(&[EventType::ApprovalRequested]).await? {
        let text = |pointer: &str| event.pointer(pointer).and_then(Value::as_str);
        let is_wanted = principal.is_none() || text("/payload/principal_id") == principal;
        let id = text("/payload/approval_id").unwrap_or_default();
        let is_told = waiting.iter().any(|told| told.get("approval_id").is_some_and(|it| it == id));
        if is_told || !is_wanted {
            continue;
        }
        let id: ApprovalId = id.parse().context("an event names an approval without its id")?;
        tell(&watch.client.get(&format!("/v1/approvals/{id}")).await?, &data.global)?;
    }
    Ok(())
}

fn tell(approval: &Value, global: &Global) -> anyhow::Result<()> {
    let words = || block(approval, times(global)).unwrap_or_else(|| unreadable(approval));
    print_one(approval, global, words)
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
pub(super) fn block(approval: &Value, times: Times) -> Option<String> {
    let text = |pointer: &str| approval.pointer(pointer).and_then(Value::as_str);
    let shown = |pointer: &str| text(pointer).map(show::printable);
    let tool = proposed_name(text("/context/tool_server")?, text("/context/tool_name")?);
    Some(format!(
        "{}  {}  asked {}, expires {}\n  who   {}\n  what  {}{}{}\n  why   {}{}{}",
        shown("/approval_id")?,
        shown("/status")?,
        times.past(text("/ts_requested")?.parse().ok()?),
        times.to_come(text("/expires_at")?.parse().ok()?),
        shown("/context/principal_id")?,
        show::printable(&tool),
        arguments(approval.pointer("/context/args")?.as_object()?),
        defaults(approval),
        shown("/context/reason")?,
        labels(approval),
        people(approval),
    ))
}

/// Who must approve, where that is not any one operator, and who has.
fn people(approval: &Value) -> String {
    let context = approval.get("context").unwrap_or(&Value::Null);
    let needed = rows(context, "required").iter().map(|one| {
        let quorum = one.get("quorum").and_then(Value::as_u64).unwrap_or(1);
        match texts(one, "approvers").as_str() {
            "" if quorum == 1 => "\n  needs 1 operator".to_owned(),
            "" => format!("\n  needs {quorum} operators"),
            approvers => format!("\n  needs {quorum} of {approvers}"),
        }
    });
    let approved = Some(texts(approval, "approved_by")).filter(|by| !by.is_empty());
    needed.chain(approved.map(|by| format!("\n  approved so far by {by}"))).collect()
}

/// What the session had taken in when the call was decided on.
fn labels(approval: &Value) -> String {
    let facts = approval.pointer("/context/needs_approval/meta/facts").unwrap_or(&Value::Null);
    match texts(facts, "labels").as_str() {
        "" => String::new(),
        labels => format!("\n  the session has read  {labels}"),
    }
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
