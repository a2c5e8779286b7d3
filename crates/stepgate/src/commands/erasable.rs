//! `stepgate erasable`: arguments that are kept apart until an operator erases them.

use std::io::{self, Read};

use anyhow::{Context, bail};
use axum::http::Method;
use serde_json::{Value, json};
use stepgate_core::erasable::ErasableTarget;

use super::confirm::{self, Asked};
use super::{find, past, print_one, text, times};
use crate::cli::{ErasableCommand, ErasableWhat, EraseArgs, OneRun};
use crate::client::{Client, Role};
use crate::data_dir::DataDir;
use crate::show::{self, Times};

/// Most runs that are shown by their ids.
const SHOWN_MAX: usize = 20;

pub(super) async fn erasable(data: &DataDir, command: ErasableCommand) -> anyhow::Result<()> {
    match command {
        ErasableCommand::Show(one) => show_one(data, &one).await,
        ErasableCommand::Find(what) => {
            let mut client = Client::of(data, Role::Operator).await?;
            let (_, found) = found(&mut client, &what).await?;
            print_one(&found, &data.global, || told(&found, "can be erased"))
        }
        ErasableCommand::Erase(args) => erase(data, args).await,
    }
}

async fn show_one(data: &DataDir, one: &OneRun) -> anyhow::Result<()> {
    let mut client = Client::of(data, Role::Operator).await?;
    let run_id = find::run(&mut client, &one.run).await?;
    let shown = client.get(&format!("/v1/runs/{run_id}/erasable")).await?;
    print_one(&shown, &data.global, || one_run(&shown, times(&data.global)))
}

/// The arguments, as they came, or who erased them.
fn one_run(shown: &Value, times: Times) -> String {
    match shown.get("erased").filter(|erased| erased.is_object()) {
        Some(erased) => show::printable(&format!(
            "erased by {} {}: {}",
            text(erased, "erased_by"),
            past(times, erased, "erased_at"),
            text(erased, "reason"),
        )),
        None => {
            let arguments = shown.get("arguments").cloned().unwrap_or_default();
            let lines = serde_json::to_string_pretty(&arguments).unwrap_or_default();
            lines.lines().map(show::printable).collect::<Vec<_>>().join("\n")
        }
    }
}

async fn erase(data: &DataDir, EraseArgs { what, reason }: EraseArgs) -> anyhow::Result<()> {
    let asked = Asked::about(what.run.as_slice());
    let look = async |client: &mut Client| found(client, &what).await;
    let question = async |_: &mut Client, (_, found): &(ErasableTarget, Value)| {
        Ok(format!("{}\nerase these arguments for good?", told(found, "lose their arguments")))
    };
    let (mut client, (target, _)) = confirm::operator_about(data, asked, look, question).await?;
    let body = json!({ "target": target, "reason": reason });
    let erased = client.ask(Method::POST, "/v1/erasable/erase", Some(&body)).await?.json()?;
    print_one(&erased, &data.global, || told(&erased, "were erased"))
}

/// What is meant, and the runs that have it.
async fn found(
    client: &mut Client,
    what: &ErasableWhat,
) -> anyhow::Result<(ErasableTarget, Value)> {
    let target = target(client, what).await?;
    let body = json!({ "target": target });
    let found = client.ask(Method::POST, "/v1/erasable/find", Some(&body)).await?.json()?;
    Ok((target, found))
}

async fn target(client: &mut Client, what: &ErasableWhat) -> anyhow::Result<ErasableTarget> {
    let ErasableWhat { principal, session, run, containing } = what;
    if let Some(principal_id) = principal {
        return Ok(ErasableTarget::Principal(principal_id.clone()));
    }
    if let Some(run) = run {
        return Ok(ErasableTarget::Run(find::run(client, run).await?));
    }
    if let Some(text) = containing {
        return Ok(ErasableTarget::Containing(containing_text(text)?));
    }
    match find::session(client, session.as_ref()).await? {
        Some(session_id) => Ok(ErasableTarget::Session(session_id)),
        None => bail!("which runs?"),
    }
}

/// The text, from standard input where it is `-`, without the line break at its end.
fn containing_text(text: &str) -> anyhow::Result<String> {
    if text != "-" {
        return Ok(text.to_owned());
    }
    let mut read = String::new();
    io::stdin().read_to_string(&mut read).context("cannot read the text from standard input")?;
    Ok(read.trim_end_matches(['\r', '\n']).to_owned())
}

fn told(found: &Value, what: &str) -> String {
    let list = |name: &str| found.get(name).and_then(Value::as_array).cloned().unwrap_or_default();
    let runs = list("runs");
    let mut lines = vec![format!("the erasable arguments of {} run(s) {what}", runs.len())];
    let ids = runs.iter().filter_map(Value::as_str).take(SHOWN_MAX);
    lines.extend(ids.map(|id| format!("  {}", show::printable(id))));
    if runs.len() > SHOWN_MAX {
        lines.push(format!("  and {} more: --json names them all", runs.len() - SHOWN_MAX));
    }
    let stay = [
        ("held", "keep them: a hold covers them"),
        ("open", "keep them: their steps are not over"),
        ("unreadable", "have some that cannot be read, so what they contain is not known"),
    ];
    for (name, why) in stay {
        let count = list(name).len();
        if count > 0 {
            lines.push(format!("  {count} run(s) {why}"));
        }
    }
    lines.join("\n")
}
