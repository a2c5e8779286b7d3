//! `stepgate runs`: the runs, as a list, a timeline or a bundle.

use anyhow::{Context, bail};
use axum::http::Method;
use serde_json::{Value, json};
use stepgate_core::attention::{self, Kind, Reading};
use stepgate_core::bundle::Bundle;
use stepgate_core::ids::{RunId, SessionId};
use stepgate_core::json::strict;
use stepgate_core::ports::{Dossier, RunQuery, RunText, Store, World};
use stepgate_core::run::Status;
use stepgate_core::time::Timestamp;
use stepgate_gateway::attention::{Attention, NeedObject};
use stepgate_gateway::run_object::{self, ListedRun};
use stepgate_gateway::world::RealWorld;

use super::confirm::{self, Asked};
use super::find::{self, Wanted};
use super::{follow, step, times};
use crate::cli::{Global, ListArgs, Named, OneRun, ResolveArgs, RunsArgs, RunsCommand, When};
use crate::client::{As, Client, parameter};
use crate::data_dir::DataDir;
use crate::show::{self, Cell, Table, Times, timeline};

pub(super) async fn runs(global: &Global, data: &DataDir, args: RunsArgs) -> anyhow::Result<u8> {
    match args.command {
        Some(RunsCommand::Resolve(args)) => resolve(global, data, &args).await,
        None if args.list.follow => follow::follow(global, data).await,
        command if global.url.is_some() => {
            let mut client = Client::of(global, data, As::Auditor).await?;
            from_gateway(&mut client, command, args.list, global).await
        }
        command => from_store(&*crate::store::read(data).await?, command, args.list, global).await,
    }
}

/// Reads the database directly, even if another process holds the directory.
async fn from_store(
    store: &dyn Store,
    command: Option<RunsCommand>,
    args: ListArgs,
    global: &Global,
) -> anyhow::Result<u8> {
    match command {
        None => {
            let session_id = find::session_in(store, args.session.as_ref(), None).await?;
            let before = match &args.before {
                Some(named) => Some(find::run_in(store, named).await?),
                None => None,
            };
            let query = RunQuery { session_id, before, ..query(args)? };
            let runs = store.runs(query).await?;
            let needs = attention(store).await?;
            list(&runs.iter().map(ListedRun::of).collect::<Vec<_>>(), &needs, global)?;
        }
        Some(RunsCommand::Show(one)) => {
            let dossier = dossier(store, &one).await?;
            let needs = attention(store).await?;
            let need = needs.iter().find(|need| need.run_id == Some(dossier.run.arrival.run_id));
            if global.json {
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
    global: &Global,
) -> anyhow::Result<u8> {
    let path = match command {
        None => {
            let session = find::session(client, args.session.as_ref()).await?;
            let before = match &args.before {
                Some(named) => Some(find::run(client, named).await?.to_string()),
                None => None,
            };
            let runs = client.list("runs", &filter(&args, session), before, args.limit).await?;
            let needs = client.ask(Method::GET, "/v1/runs?limit=1", None).await?.json()?;
            let needs = needs.get("attention").cloned().unwrap_or_else(|| json!([]));
            let needs: Vec<NeedObject> = serde_json::from_value(needs)?;
            list(&serde_json::from_value::<Vec<ListedRun>>(Value::Array(runs))?, &needs, global)?;
            return Ok(0);
        }
        Some(RunsCommand::Show(OneRun { run })) => {
            format!("/v1/runs/{}", find::run(client, &run).await?)
        }
        Some(RunsCommand::Export(OneRun { run })) => {
            format!("/v1/runs/{}/export", find::run(client, &run).await?)
        }
        Some(RunsCommand::Resolve(_)) => bail!("a call in doubt is resolved by its gateway"),
    };
    show::json(&client.ask(Method::GET, &path, None).await?.json()?)?;
    Ok(0)
}

fn filter(args: &ListArgs, session: Option<SessionId>) -> String {
    [
        parameter("session", session.as_ref()),
        parameter("status", args.status.as_ref()),
        parameter("tool", args.tool.as_ref()),
        parameter("principal", args.principal.as_ref()),
        parameter("since", instant(args.since).as_ref()),
        parameter("until", instant(args.until).as_ref()),
        parameter("text", args.text.as_ref()),
    ]
    .concat()
}

pub(super) fn instant(when: Option<When>) -> Option<Timestamp> {
    when.map(|when| when.instant(RealWorld.now()))
}

fn word(args: &ResolveArgs) -> &'static str {
    match (args.settled.succeeded, args.settled.failed) {
        (true, _) => "succeeded",
        (_, true) => "failed",
        (false, false) => "redispatch",
    }
}

/// The run whose call is settled: `last` is the newest that needs a person for its call.
async fn unsettled(client: &mut Client, named: &Named<RunId>) -> anyhow::Result<RunId> {
    let rows = async |wanted: Wanted<'_>| match wanted {
        Wanted::Newest => {
            let reply = client.ask(Method::GET, "/v1/attention", None).await?.json()?;
            let Attention { attention, counts: _ } = serde_json::from_value(reply)?;
            let kinds = [Kind::InDoubt, Kind::Stuck].map(Kind::as_str);
            let newest = attention.iter().rev().find(|need| kinds.contains(&need.kind.as_str()));
            Ok(newest.map(|need| json!({ "tool_run_id": need.run_id })).into_iter().collect())
        }
        Wanted::Beginning(_) => find::from_gateway(client, "runs", "text", "", wanted).await,
    };
    find::find(named, rows).await
}

/// The call of a run, for the person who says what became of it. Nothing is cut.
async fn call(client: &mut Client, run_id: RunId) -> anyhow::Result<String> {
    let reply = client.ask(Method::GET, &format!("/v1/runs/{run_id}"), None).await?;
    let run = reply.json().with_context(|| format!("cannot show run {run_id}"))?;
    let text = |pointer: &str| {
        show::printable(run.pointer(pointer).and_then(Value::as_str).unwrap_or("-"))
    };
    let [who, tool] = [text("/run/principal_id"), text("/run/tool_name")];
    let [args, why] = [text("/run/input_json"), text("/attention/reason")];
    Ok(format!("run {run_id}\n  who   {who}\n  what  {tool} {args}\n  why   {why}"))
}

async fn resolve(global: &Global, data: &DataDir, args: &ResolveArgs) -> anyhow::Result<u8> {
    let asked = Asked::about(std::slice::from_ref(&args.run));
    let mut run_id = None;
    let question = async |client: &mut Client| {
        let run_id = *run_id.insert(unsettled(client, &args.run).await?);
        Ok(format!("{}\nsettle its call as {}?", call(client, run_id).await?, word(args)))
    };
    let mut client = confirm::operator_shown(global, data, asked, question).await?;
    let run_id = match run_id {
        Some(run_id) => run_id,
        None => unsettled(&mut client, &args.run).await?,
    };
    settle(&mut client, run_id, args).await
}

async fn settle(client: &mut Client, run_id: RunId, args: &ResolveArgs) -> anyhow::Result<u8> {
    let mut body = json!({ "as": word(args) });
    if let (Some(text), Value::Object(members)) = (&args.result, &mut body) {
        let result = strict::stored(text).map_err(|bad| anyhow::anyhow!("--result: {bad}"))?;
        members.insert("result".into(), result);
    }
    let path = format!("/v1/runs/{run_id}/resolve");
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
        before: None,
        session_id: None,
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

fn list(runs: &[ListedRun], needs: &[NeedObject], global: &Global) -> anyhow::Result<()> {
    if global.json {
        return runs.iter().try_for_each(show::json);
    }
    if runs.is_empty() {
        return show::say("no runs");
    }
    let header = ["RUN", "TIME", "PRINCIPAL", "STEP", "TOOL", "STATUS", "MS", "WHAT"];
    let (mut table, times) = (Table::new(header), times(global));
    for run in runs {
        table.add(row(run, times));
    }
    show::say(table)?;
    // Printed after the list, because these runs may be older than those listed.
    needs.iter().map(show::attention::line).for_each(show::note);
    Ok(())
}

fn row(run: &ListedRun, times: Times) -> [Cell; 8] {
    const WHAT_CHARS_MAX: usize = 48;
    let refused = run.error.as_ref().map(|error| error.error_code.as_str());
    let what = run.input.as_ref().map(|input| input.get()).or(refused).unwrap_or_default();
    let latency = run.latency_ms.map(|latency| latency.to_string());
    [
        Cell::plain(run.tool_run_id),
        Cell::plain(times.past(run.ts)),
        Cell::plain(&run.principal_id),
        Cell::plain(run.step_index),
        Cell::plain(show::printable(run.tool_name.as_deref().unwrap_or("-"))),
        show::status(run.status),
        Cell::plain(latency.as_deref().unwrap_or("-")),
        Cell::plain(show::shortened(&show::printable(what), WHAT_CHARS_MAX)),
    ]
}

async fn dossier(store: &dyn Store, one: &OneRun) -> anyhow::Result<Dossier> {
    let run_id = find::run_in(store, &one.run).await?;
    match store.dossier(run_id).await? {
        Some(dossier) => Ok(dossier),
        None => bail!("there is no run {run_id}: `stepgate runs` lists them"),
    }
}
