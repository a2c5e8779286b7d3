//! `stepgate policy`: write the first ones, check policies, explain a decision, prove what holds for all calls, replay
//! recorded history with other policies, show where shadow policies differ.

mod diff;
mod example;
mod prove;
mod init;
mod replay;
mod shadow;

use std::path::Path;

use anyhow::Context;
use axum::http::Method;
use serde_json::Value;
use stepgate_core::facts::FactNames;
use stepgate_core::label::{Flow, Label};
use stepgate_core::tool::{Mode, ToolName};
use stepgate_gateway::control;
use stepgate_policy::{Finding, Nameable, Severity, ToolShape};

use super::{FAULT, number, print_one, proposal, quoted, rows, run, text};
use crate::cli::{ExplainArgs, PolicyCommand};
use crate::client::{Client, Role, encoded, parameter};
use crate::config::Config;
use crate::data_dir::DataDir;
use crate::show;
use crate::start;

pub(super) async fn policy(data: &DataDir, command: PolicyCommand) -> anyhow::Result<u8> {
    match command {
        PolicyCommand::Init { directory, suggestions } => {
            init::init(data, directory, suggestions).await.map(|()| 0)
        }
        PolicyCommand::Check { directory } => check(data, directory.as_deref()).await,
        PolicyCommand::Explain(args) => explain(data, &args).await.map(|()| 0),
        PolicyCommand::Prove(command) => prove::prove(data, command).await,
        PolicyCommand::Diff(args) => diff::diff(data, args).await,
        PolicyCommand::Replay { directory, limit, fail_on_change } => {
            replay::replay(data, &directory, limit, fail_on_change).await
        }
        PolicyCommand::Shadow { all, limit } => shadow::shadow(data, all, limit).await.map(|()| 0),
    }
}

/// Names with commas between them; none where none was given.
fn listed(names: &[impl ToString]) -> Option<String> {
    let names: Vec<String> = names.iter().map(ToString::to_string).collect();
    (!names.is_empty()).then(|| names.join(","))
}

async fn check(data: &DataDir, directory: Option<&Path>) -> anyhow::Result<u8> {
    let config = data.load_config()?;
    let in_force = data.policies(&config);
    let directory = directory.unwrap_or(&in_force);
    let tools = tools(data, directory).await?;
    let names = names(&config)?;
    let checked = stepgate_policy::check(directory, Nameable { tools: &tools, facts: &names });
    if data.global.json {
        show::json(&checked)?;
    } else {
        for finding in &checked.findings {
            show::say(line(finding))?;
        }
        let verdict = if checked.is_loadable() { "can be loaded" } else { "cannot be loaded" };
        show::say(format!(
            "`{}` {verdict}: {} policies, {} cases, {} tools",
            directory.display(),
            checked.policies,
            checked.cases,
            tools.len()
        ))?;
    }
    Ok(if checked.is_loadable() { 0 } else { FAULT })
}

fn line(finding: &Finding) -> String {
    let style = match finding.severity {
        Severity::Error => show::ERROR,
        Severity::Warning | Severity::Note => show::DIM,
    };
    let words = show::printable_lines(&finding.to_string());
    format!("{style}{}:{style:#} {words}", finding.severity.as_str())
}

pub(super) fn names(config: &Config) -> anyhow::Result<FactNames> {
    Ok(config.facts()?.names(&config.groups()?))
}

/// The tools that policies can name: from the process that holds the directory, or else from the configured servers,
/// started now. No policies are loaded for this, so that broken ones can be checked.
pub(super) async fn tools(data: &DataDir, directory: &Path) -> anyhow::Result<Vec<ToolShape>> {
    if let Some(mut client) = Client::elsewhere(data, Role::Auditor).await? {
        let reply = client.get("/v1/tools").await?;
        let tools = rows(&reply, "tools").iter();
        let offered: Vec<ToolShape> = tools.clone().filter_map(shape).collect();
        let is_off = |tool: &&Value| tool.get("trouble").is_some() || tool.get("off").is_some();
        let named = |tool: &Value| ToolName::parse(tool.get("name")?.as_str()?).ok();
        let servers = rows(&reply, "servers").iter();
        let unknown = servers.filter(|it| it.get("known") == Some(&Value::Bool(false)));
        let unknown = unknown.filter_map(|it| it.get("name")?.as_str().map(str::to_owned));
        let off = tools.filter(is_off).filter_map(named).collect();
        let off = control::off(off, &unknown.collect::<Vec<_>>(), directory);
        return Ok(offered.into_iter().chain(off).collect());
    }
    let config = data.load_config()?;
    let servers = start::servers(data, &config, Default::default()).await?;
    let shapes = control::shapes(&servers, &config.turned_off(), directory);
    let offered = control::offered(&servers.listing());
    servers.shutdown().await;
    // Which tools are accepted is not known here: policies are checked against what the servers list now.
    let is_offered = |shape: &ToolShape| offered.iter().any(|it| it.name == shape.name);
    let held = |shape: ToolShape| ToolShape { is_accepted: is_offered(&shape), ..shape };
    Ok(shapes.into_iter().map(held).collect())
}

fn shape(tool: &Value) -> Option<ToolShape> {
    let texts = |member: &str| rows(tool, member).iter().filter_map(Value::as_str);
    let labels = |member| texts(member).filter_map(|label| Label::parse(label).ok()).collect();
    Some(ToolShape {
        name: ToolName::parse(tool.get("name")?.as_str()?).ok()?,
        mode: Mode::parse(tool.get("mode")?.as_str()?)?,
        input_schema: tool.get("input_schema")?.clone(),
        redacted: texts("redacted").map(str::to_owned).collect(),
        flow: Flow {
            is_undeclared: tool.get("undeclared") == Some(&Value::Bool(true)),
            reads: labels("reads"),
            sends: labels("sends"),
            targets: tool.get("targets").map(|_| texts("targets").map(str::to_owned).collect()),
            trusted: texts("trusted").filter_map(|text| text.parse().ok()).collect(),
            memory: tool.get("memory").and_then(Value::as_str).map(str::to_owned),
            ..Flow::default()
        },
        definition_digest: tool.get("definition_digest")?.as_str()?.parse().ok()?,
        is_accepted: match tool.get("standing").and_then(Value::as_str) {
            Some("changed" | "new") => false,
            Some(_) | None => true,
        },
    })
}

async fn explain(data: &DataDir, args: &ExplainArgs) -> anyhow::Result<()> {
    let tool = &args.tool;
    let arguments = match &args.args {
        Some(json) => serde_json::from_str::<Value>(json).context("--args is not JSON")?,
        None => run::pairs(tool, &args.pairs)?,
    };
    let query = [
        format!("principal={}", encoded(args.principal.as_str())),
        parameter("session", args.session.as_ref()),
        parameter("labels", listed(&args.label).as_ref()),
        parameter("schedule", listed(&args.window).as_ref()),
        parameter("groups", listed(&args.group).as_ref()),
        parameter("reads", listed(&args.reads).as_ref()),
        parameter("targets", listed(&args.targets).as_ref()),
        parameter("addresses", listed(&args.addresses).as_ref()),
        parameter("used", listed(&args.used).as_ref()),
        parameter("steps", args.steps.as_ref()),
        parameter("opened", listed(&args.opened).as_ref()),
        parameter("shadow", args.shadow.then_some(&true)),
    ];
    let proposal = proposal(tool, arguments, "what would be decided");
    let mut client = Client::of(data, Role::Auditor).await?;
    let path = format!("/v1/policy/evaluate?{}", query.concat());
    let reply = client.ask(Method::POST, &path, Some(&proposal)).await?;
    let reply = reply.json().with_context(|| {
        format!(
            "nothing can be decided on `{tool}` like this; `stepgate tools` lists what there is"
        )
    })?;
    print_one(&reply, &data.global, || explained(&reply))
}

fn explained(reply: &Value) -> String {
    let text = |value: &Value, name: &str| show::printable(text(value, name));
    let members = |name: &str| reply.get(name).and_then(Value::as_object).into_iter().flatten();
    let mut lines = vec![format!("{}: {}", text(reply, "tool"), text(reply, "verdict"))];
    let details = [
        ("rule", "refused by"),
        ("detail", "denied because"),
        ("reason", "a person is asked because"),
    ];
    for (name, label) in details {
        let said = reply.get(name).and_then(Value::as_str).map(show::printable);
        lines.extend(said.map(|said| format!("  {label} {said}")));
    }
    lines.extend(
        members("caps")
            .map(|(name, max)| show::printable(&format!("  `{name}` is lowered to {max}"))),
    );
    lines.extend(members("defaults").map(|(place, value)| {
        let name = place.trim_start_matches('/').replace('/', ".");
        let words = format!("  `{name}` is not given: policies see the tool's default, {value}");
        show::printable(&words)
    }));
    let explanation = reply.get("explanation").unwrap_or(&Value::Null);
    for budget in rows(explanation, "budgets") {
        let word = |name: &str| {
            budget.get(name).and_then(Value::as_str).map_or("?".to_owned(), show::printable)
        };
        let [name, used, amount, limit] = ["budget", "used", "amount", "limit"].map(word);
        lines.push(format!(
            "  budget `{name}`: {used} of {limit} is used, and the call takes {amount}"
        ));
    }
    for unseen in rows(explanation, "unseen") {
        let (argument, why) = (text(unseen, "argument"), text(unseen, "why"));
        lines.push(format!("  policies cannot see `{argument}`: {why}"));
    }
    if explanation.get("not_asked").is_some_and(Value::is_string) {
        lines.push(format!("  not asked: {}", text(explanation, "not_asked")));
    }
    for request in rows(explanation, "requests") {
        let is_capped = request.get("is_capped").and_then(Value::as_bool) == Some(true);
        let lowered = if is_capped { ", with the arguments lowered" } else { "" };
        lines.push(format!("  {}{lowered}", text(request, "resource")));
        for policy in rows(request, "policies") {
            let outcome = match policy.get("outcome") {
                Some(Value::String(word)) => show::printable(&word.replace('_', " ")),
                Some(errored) => show::printable(&format!("errored: {errored}")),
                None => String::new(),
            };
            lines.push(format!(
                "    {} {} {outcome} ({}:{})",
                text(policy, "effect"),
                text(policy, "name"),
                text(policy, "file"),
                number(policy, "line"),
            ));
        }
    }
    let notes = rows(explanation, "notes").iter().filter_map(Value::as_str).map(show::printable);
    lines.extend(notes.map(|note| format!("  note: {note}; such a call is denied")));
    lines.join("\n")
}
