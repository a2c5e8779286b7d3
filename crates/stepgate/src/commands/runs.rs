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
use super::step::Taken;
use super::{follow, print_list, times};
use crate::cli::{Global, ListArgs, Named, OneRun, ResolveArgs, RunsArgs, RunsCommand, When};
use crate::client::{Client, Role, parameter};
use crate::data_dir::DataDir;
use crate::show::{self, Cell, Table, Times, timeline};
use crate::store;

pub(super) async fn runs(data: &DataDir, args: RunsArgs) -> anyhow::Result<u8> {
    let is_remote = data.global.url.is_some();
    match args.command {
        Some(RunsCommand::Resolve(args)) => return resolve(data, &args).await,
        None if args.list.follow => follow::follow(data).await?,
        None if is_remote => list_from_gateway(data, &args.list).await?,
        None => list_from_store(data, args.list).await?,
        Some(RunsCommand::Show(one)) if is_remote => from_gateway(data, &one, "").await?,
        Some(RunsCommand::Show(one)) => show_from_store(data, &one).await?,
        Some(RunsCommand::Export(one)) if is_remote => from_gateway(data, &one, "/export").await?,
        Some(RunsCommand::Export(one)) => {
            let store = store::read(data).await?;
            show::json(&Bundle::of(&dossier(&*store, &one).await?)?)?;
        }
    }
    Ok(0)
}

/// Reads the database directly, even if another process holds the directory.
async fn list_from_store(data: &DataDir, args: ListArgs) -> anyhow::Result<()> {
    let store = store::read(data).await?;
    let session_id = find::session_in(&*store, args.session.as_ref(), None).await?;
    let before = match &args.before {
        Some(named) => Some(find::run_in(&*store, named).await?),
        None => None,
    };
    let query = RunQuery {
        before,
        after: None,
        session_id,
        principal_id: args.principal,
        status: args.status.as_deref().and_then(Status::parse),
        tool_name: args.tool,
        since: instant(args.since),
        until: instant(args.until),
        text: args.text.as_deref().map(RunText::of),
        limit: usize::try_from(args.limit)?,
    };
    let runs = store.runs(query).await?;
    let needs = attention(&*store).await?;
    list(&runs.iter().map(ListedRun::of).collect::<Vec<_>>(), &needs, &data.global)
}

async fn show_from_store(data: &DataDir, one: &OneRun) -> anyhow::Result<()> {
    let store = store::read(data).await?;
    let dossier = dossier(&*store, one).await?;
    let needs = attention(&*store).await?;
    let need = needs.iter().find(|need| need.run_id == Some(dossier.run.arrival.run_id));
    match data.global.json {
        true => show::json(&run_object::object(&dossier, need)?),
        false => timeline::print(&dossier, need),
    }
}

async fn list_from_gateway(data: &DataDir, args: &ListArgs) -> anyhow::Result<()> {
    let client = &mut Client::of(data, Role::Auditor).await?;
    let session = find::session(client, args.session.as_ref()).await?;
    let before = match &args.before {
        Some(named) => Some(find::run(client, named).await?.to_string()),
        None => None,
    };
    let runs = client.list("runs", &filter(args, session), before, args.limit).await?;
    let needs = client.get("/v1/runs?limit=1").await?;
    let needs = needs.get("attention").cloned().unwrap_or_else(|| json!([]));
    let needs: Vec<NeedObject> = serde_json::from_value(needs)?;
    let runs: Vec<ListedRun> = serde_json::from_value(Value::Array(runs))?;
    list(&runs, &needs, &data.global)
}

/// Prints a single run, or a part of it, as the JSON of a remote gateway.
async fn from_gateway(data: &DataDir, one: &OneRun, part: &str) -> anyhow::Result<()> {
    let mut client = Client::of(data, Role::Auditor).await?;
    let run_id = find::run(&mut client, &one.run).await?;
    show::json(&client.get(&format!("/v1/runs/{run_id}{part}")).await?)
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
            let reply = client.get("/v1/attention").await?;
            let Attention { attention, counts: _ } = serde_json::from_value(reply)?;
            let kinds = [Kind::InDoubt, Kind::Stuck].map(Kind::as_str);
            let newest = attention.iter().rev().find(|need| kinds.contains(&need.kind.as_str()));
            Ok(newest.map(|need| json!({ "tool_run_id": need.run_id })).into_iter().collect())
        }
        Wanted::Beginning(_) => find::from_gateway(client, "runs", "text", "", wanted).await,
    };
    find::find(&find::RUN, named, rows).await
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

async fn resolve(data: &DataDir, args: &ResolveArgs) -> anyhow::Result<u8> {
    let asked = Asked::about(std::slice::from_ref(&args.run));
    let find = async |client: &mut Client| unsettled(client, &args.run).await;
    let question = async |client: &mut Client, run_id: &RunId| {
        Ok(format!("{}\nsettle its call as {}?", call(client, *run_id).await?, word(args)))
    };
    let (mut client, run_id) = confirm::operator_about(data, asked, find, question).await?;
    settle(&mut client, run_id, args).await
}

async fn settle(client: &mut Client, run_id: RunId, args: &ResolveArgs) -> anyhow::Result<u8> {
    let mut body = json!({ "as": word(args) });
    if let (Some(text), Value::Object(members)) = (&args.result, &mut body) {
        let result = strict::stored(text).map_err(|bad| anyhow::anyhow!("--result: {bad}"))?;
        members.insert("result".into(), result);
    }
    let path = format!("/v1/runs/{run_id}/resolve");
    let taken = Taken::read(client.ask(Method::POST, &path, Some(&body)).await?)?;
    taken.print()?;
    Ok(taken.code)
}

async fn attention(store: &dyn Store) -> anyhow::Result<Vec<NeedObject>> {
    let needs = attention::list(store, &Reading::default()).await?;
    Ok(needs.iter().map(NeedObject::of).collect())
}

fn list(runs: &[ListedRun], needs: &[NeedObject], global: &Global) -> anyhow::Result<()> {
    let header = ["RUN", "TIME", "PRINCIPAL", "STEP", "TOOL", "STATUS", "MS", "WHAT"];
    let times = times(global);
    let table = || Table::of(header, runs.iter().map(|run| row(run, times)));
    print_list(runs, global, "no runs", table)?;
    if !global.json && !runs.is_empty() {
        // Printed after the list, because these runs may be older than those listed.
        needs.iter().map(show::attention::line).for_each(show::note);
    }
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
