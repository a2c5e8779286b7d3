//! `stepgate labels`: what sessions, files and memories have taken in.

use anyhow::bail;
use axum::http::Method;
use serde_json::{Value, json};
use stepgate_core::label::Label;

use super::{confirm, print_list, rows};
use crate::cli::{CarrierArgs, LabelsArgs, LabelsCommand};
use crate::client::{Client, Role, encoded};
use crate::data_dir::DataDir;
use crate::show;

pub(super) async fn labels(data: &DataDir, args: LabelsArgs) -> anyhow::Result<()> {
    let (query, shown) = carrier(&args.of)?;
    match args.command {
        None => list(data, &query, &shown).await,
        Some(LabelsCommand::Remove { label, note }) => {
            remove(data, &query, &shown, &label, note).await
        }
    }
}

/// What the labels are of: as a query, and in words.
fn carrier(of: &CarrierArgs) -> anyhow::Result<(String, String)> {
    let (name, value, words) = match of {
        CarrierArgs { session: Some(id), .. } => ("session", id.to_string(), "the session "),
        CarrierArgs { path: Some(path), .. } => ("path", path.clone(), ""),
        CarrierArgs { memory: Some(name), .. } => ("memory", name.clone(), "the memory "),
        CarrierArgs { session: None, path: None, memory: None } => {
            bail!("of what? Name it with --session, --path or --memory")
        }
    };
    Ok((format!("{name}={}", encoded(&value)), format!("{words}{}", show::printable(&value))))
}

async fn list(data: &DataDir, query: &str, shown: &str) -> anyhow::Result<()> {
    let mut client = Client::of(data, Role::Auditor).await?;
    let reply = client.get(&format!("/v1/labels?{query}")).await?;
    let lines = || rows(&reply, "additions").iter().map(line).collect::<Vec<_>>().join("\n");
    print_list(rows(&reply, "labels"), &data.global, &format!("{shown} has no label"), lines)
}

/// A label, and which detector found what it stands for. What the detector found is recorded nowhere.
fn line(added: &Value) -> String {
    let text = |name: &str| added.get(name).and_then(Value::as_str).map(show::printable);
    let label = text("label").unwrap_or_default();
    match (text("detector"), text("tool"), text("run_id")) {
        (Some(detector), Some(tool), Some(run_id)) => {
            format!(
                "{label}  found by the detector `{detector}` in a result of {tool}, run {run_id}"
            )
        }
        (_, _, _) => label,
    }
}

async fn remove(
    data: &DataDir,
    query: &str,
    shown: &str,
    label: &Label,
    note: Option<String>,
) -> anyhow::Result<()> {
    let question = format!("take the label `{label}` away from {shown}?");
    let mut client = confirm::operator(data, &question).await?;
    let body = json!({ "label": label, "note": note });
    let path = format!("/v1/labels/remove?{query}");
    client.ask(Method::POST, &path, Some(&body)).await?.succeeded()?;
    show::say(format!("{shown} does not have the label `{label}` any more"))
}
