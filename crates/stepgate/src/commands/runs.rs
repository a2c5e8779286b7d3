//! `stepgate runs`: the runs, as a list, a timeline or a bundle.

use anyhow::{Context, bail};
use axum::http::Method;
use serde_json::{Value, json};
use stepgate_core::attention::{self, Reading};
use stepgate_core::bundle::Bundle;
use stepgate_core::ids::RunId;
use stepgate_core::json::strict;
use stepgate_core::ports::{Dossier, RunQuery, RunText, Store, World};
use stepgate_core::run::Status;
use stepgate_core::time::Timestamp;
use stepgate_gateway::attention::NeedObject;
use stepgate_gateway::run_object::{self, ListedRun};
use stepgate_gateway::world::RealWorld;

use super::confirm;
use crate::cli::{Global, ListArgs, OneRun, ResolveArgs, RunsArgs, RunsCommand, When};
use crate::client::{As, Client};
use crate::commands::{follow, step};
use crate::data_dir::DataDir;
use crate::show::{self, Cell, Table, timeline};
use crate::start;

pub(super) async fn runs(global: &Global, data: &DataDir, args: RunsArgs) -> anyhow::Result<u8> {
    match args.command {
        Some(RunsCommand::Resolve(args)) => {
            let question = format!("settle the call of run {} as {}?", args.run, word(&args));
            let mut client = confirm::operator(global, data, &question).await?;
            resolve(&mut client, &args).await
        }
        None if args.list.follow => follow::follow(global, data).await,
        command if global.url.is_some() => {
            let mut client = Client::of(global, data, As::Auditor).await?;
            from_gateway(&mut client, command, args.list, global.json).await
        }
        command => {
            from_store(&*crate::store::read(data).await?, command, args.list, global.json).await
        }
    }
}

/// Reads the database directly, even if another process holds the directory.
async fn from_store(
    store: &dyn Store,
    command: Option<RunsCommand>,
    args: ListArgs,
    json: bool,
) -> anyhow::Result<u8> {
    match command {
        None => {
            let runs = store.runs(query(args)?).await?;
            let needs = attention(store).await?;
            list(&runs.iter().map(ListedRun::of).collect::<Vec<_>>(), &needs, json)?;
        }
        Some(RunsCommand::Show(one)) => {
            let dossier = dossier(store, &one).await?;
            let needs = attention(store).await?;
            let need = needs.iter().find(|need| need.run_id == Some(dossier.run.arrival.run_id));
            if json {
                show::json(&run_object::object(&dossier, need)?)?;
            } else {
                timeline::print(&dossier, need)?;
            }
        }
        Some(RunsCommand::Export(one)) => {
            let bundle = Bundle::of(&dossier(store, &one).await?)?;
            show::json(&bundle)?;
        }
        Some(RunsCommand::Resolve(_)) => bail!("a call in doubt is resolved by its gateway"),
    }
    Ok(0)
}

/// Asks a remote gateway. A single run is printed as its JSON.
async fn from_gateway(
    client: &mut Client,
    command: Option<RunsCommand>,
    args: ListArgs,
    json: bool,
) -> anyhow::Result<u8> {
    let path = match command {
        None => {
            let before = args.before.map(|id| id.to_string());
            let runs = client.list("runs", &filter(&args), before, args.limit).await?;
            let needs = client.ask(Method::GET, "/v1/runs?limit=1", None).await?.json()?;
            let needs = needs.get("attention").cloned().unwrap_or_else(|| json!([]));
            let needs: Vec<NeedObject> = serde_json::from_value(needs)?;
            list(&serde_json::from_value::<Vec<ListedRun>>(Value::Array(runs))?, &needs, json)?;
            return Ok(0);
        }
        Some(RunsCommand::Show(one)) => format!("/v1/runs/{}", named(client, &one).await?),
        Some(RunsCommand::Export(one)) => {
            format!("/v1/runs/{}/export", named(client, &one).await?)
        }
        Some(RunsCommand::Resolve(_)) => bail!("a call in doubt is resolved by its gateway"),
    };
    show::json(&client.ask(Method::GET, &path, None).await?.json()?)?;
    Ok(0)
}

/// The id of the named run. With --url, `last` is the newest run that the token may see, of any principal.
async fn named(client: &mut Client, one: &OneRun) -> anyhow::Result<String> {
    if one.run != "last" {
        let id: RunId = one.run.parse()?;
        return Ok(id.to_string());
    }
    let reply = client.ask(Method::GET, "/v1/runs?limit=1", None).await?.json()?;
    let text = |name: &str| reply.pointer(&format!("/runs/0/{name}")).and_then(Value::as_str);
    let newest = text("tool_run_id").context("there is no run yet")?;
    let (run, owner) = (newest, text("principal_id").unwrap_or_default());
    show::note(format!("last: run {} of `{}`", show::printable(run), show::printable(owner)));
    Ok(newest.to_owned())
}

fn filter(args: &ListArgs) -> String {
    let mut path = String::new();
    let mut add = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            path.push_str(&format!("&{name}={}", escaped(&value)));
        }
    };
    add("session", args.session.map(|id| id.to_string()));
    add("status", args.status.clone());
    add("tool", args.tool.clone());
    add("principal", args.principal.as_ref().map(ToString::to_string));
    add("since", instant(args.since).map(|since| since.to_string()));
    add("until", instant(args.until).map(|until| until.to_string()));
    add("text", args.text.clone());
    path
}

fn instant(when: Option<When>) -> Option<Timestamp> {
    when.map(|when| when.instant(RealWorld.now()))
}

/// A text, escaped for a query.
fn escaped(text: &str) -> String {
    let one = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => {
            char::from(byte).to_string()
        }
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(one).collect()
}

fn word(args: &ResolveArgs) -> &'static str {
    match (args.settled.succeeded, args.settled.failed) {
        (true, _) => "succeeded",
        (_, true) => "failed",
        (false, false) => "redispatch",
    }
}

async fn resolve(client: &mut Client, args: &ResolveArgs) -> anyhow::Result<u8> {
    let mut body = json!({ "as": word(args) });
    if let (Some(text), Value::Object(members)) = (&args.result, &mut body) {
        let result = strict::stored(text).map_err(|bad| anyhow::anyhow!("--result: {bad}"))?;
        members.insert("result".into(), result);
    }
    let path = format!("/v1/runs/{}/resolve", args.run);
    let reply = client.ask(Method::POST, &path, Some(&body)).await?;
    let response = String::from_utf8_lossy(&reply.body).into_owned();
    let parsed: Value = serde_json::from_str(&response).unwrap_or_default();
    let outcome = parsed.get("outcome").and_then(Value::as_str);
    match outcome.and_then(super::exit_code_of) {
        Some(code) => {
            step::print(&response)?;
            Ok(code)
        }
        None => Err(reply.refusal()),
    }
}

fn query(args: ListArgs) -> anyhow::Result<RunQuery> {
    Ok(RunQuery {
        before: args.before,
        session_id: args.session,
        principal_id: args.principal,
        status: args.status.as_deref().and_then(Status::parse),
        tool_name: args.tool,
        since: instant(args.since),
        until: instant(args.until),
        text: args.text.as_deref().map(RunText::of),
        limit: usize::try_from(args.limit)?,
    })
}

/// Every run that needs a person.
async fn attention(store: &dyn Store) -> anyhow::Result<Vec<NeedObject>> {
    let needs = attention::list(store, &Reading::default()).await?;
    Ok(needs.iter().map(NeedObject::of).collect())
}

fn list(runs: &[ListedRun], needs: &[NeedObject], json: bool) -> anyhow::Result<()> {
    if json {
        return runs.iter().try_for_each(show::json);
    }
    if runs.is_empty() {
        return show::say("no runs");
    }
    let mut table = Table::new(["RUN", "TIME", "STEP", "TOOL", "STATUS", "MS", "WHAT"]);
    for run in runs {
        table.add(row(run));
    }
    show::say(table)?;
    // Printed after the list, because these runs may be older than those listed.
    needs.iter().map(show::attention::line).for_each(show::note);
    Ok(())
}

fn row(run: &ListedRun) -> [Cell; 7] {
    const WHAT_CHARS_MAX: usize = 48;
    let refused = run.error.as_ref().map(|error| error.error_code.as_str());
    let what = run.input.as_ref().map(|input| input.get()).or(refused).unwrap_or_default();
    let latency = run.latency_ms.map(|latency| latency.to_string());
    [
        Cell::plain(run.tool_run_id),
        Cell::plain(run.ts),
        Cell::plain(run.step_index),
        Cell::plain(show::printable(run.tool_name.as_deref().unwrap_or("-"))),
        show::status(run.status),
        Cell::plain(latency.as_deref().unwrap_or("-")),
        Cell::plain(show::shortened(&show::printable(what), WHAT_CHARS_MAX)),
    ]
}

async fn dossier(store: &dyn Store, one: &OneRun) -> anyhow::Result<Dossier> {
    let run_id: RunId = if one.run == "last" { last(store).await? } else { one.run.parse()? };
    match store.dossier(run_id).await? {
        Some(dossier) => Ok(dossier),
        None => bail!("there is no run {run_id}: `stepgate runs` lists them"),
    }
}

/// The newest run of the agent as which `run`, `step`, `chat` and `mcp` act on this directory. Runs of other principals
/// over HTTP do not count.
async fn last(store: &dyn Store) -> anyhow::Result<RunId> {
    let principal_id = start::local_agent()?;
    let query =
        RunQuery { principal_id: Some(principal_id.clone()), limit: 1, ..Default::default() };
    let newest = store.runs(query).await?;
    let Some(run) = newest.first() else {
        bail!("there is no run of `{principal_id}` yet: `stepgate runs` lists those of everybody");
    };
    Ok(run.arrival.run_id)
}
