//! `stepgate doctor`: checks everything that must be right, and changes nothing.

mod machine;

use std::path::Path;
use std::sync::Arc;

use anstream::adapter::strip_str;
use anyhow::{Context, ensure};
use serde::Serialize;
use serde_json::Value;
use stepgate_core::attention::{self, Reading};
use stepgate_core::ports::{Audits, Store, Unfinished, Unreached, World};
use stepgate_core::stop::StopOrder;
use stepgate_core::stops;
use stepgate_exec::{Sandbox, SandboxLimits, launcher};
use stepgate_gateway::attention::NeedObject;
use stepgate_gateway::audit;
use stepgate_gateway::control::{self, pins, refuse_writable_policies};
use stepgate_gateway::tokens::{SOON_S, Tokens};
use stepgate_gateway::world::RealWorld;
use stepgate_policy::{Finding, Nameable, Severity};
use stepgate_store::sqlite::SqliteStore;

use crate::client::{Client, Role};
use crate::config::Config;
use crate::data_dir::DataDir;
use crate::{otlp, settings, show, start, store};

const NAMED_MAX: usize = 20;

#[derive(Serialize)]
struct Check {
    name: &'static str,
    ok: bool,
    detail: String,
}

pub(super) async fn doctor(data: &DataDir) -> anyhow::Result<u8> {
    let checks = [
        check("configuration", configuration(data)),
        check("data directory", machine::directory(data)),
        check("permissions", machine::permissions(data)),
        check("free space", machine::free_space(data)),
        check("archives", machine::space_for_archives(data)),
        check("clock", machine::clock(data, store_of(data).await).await),
        check("holder", Ok(holder(data))),
        check("database", database(data).await),
        check("sandbox", sandbox(data)),
        check("policies", policies(data).await),
        check("shadow policies", shadow_policies(data).await),
        check("certificate", machine::certificate(data)),
        check("model", model(data)),
        check("notifications", notifications(data)),
        check("audit streams", audit_streams(data).await),
        check("collector", collector(data).await),
        check("tool servers", tool_servers(data)),
        check("tools", tools(data).await),
        check("interrupted runs", interrupted(data).await),
        check("attention", needing_a_person(data).await),
        check("stops", stops_in_force(data).await),
        check("tokens", tokens(data).await),
        check("executors", executors(data).await),
    ];
    for check @ Check { name, ok, detail } in &checks {
        if data.global.json {
            show::json(check)?;
        } else {
            let (style, word) = if *ok { (show::GOOD, "ok   ") } else { (show::ERROR, "wrong") };
            let detail = show::printable_lines(detail);
            show::say(format!("{style}{word}{style:#}  {name:<16}  {detail}"))?;
        }
    }
    Ok(if checks.iter().all(|check| check.ok) { 0 } else { super::FAULT })
}

fn check(name: &'static str, found: anyhow::Result<String>) -> Check {
    match found {
        Ok(detail) => Check { name, ok: true, detail },
        Err(error) => Check { name, ok: false, detail: format!("{error:#}") },
    }
}

fn configuration(data: &DataDir) -> anyhow::Result<String> {
    data.load_config()?;
    Ok("valid".into())
}

fn holder(data: &DataDir) -> String {
    match data.holder() {
        Some(holder) => format!("{holder} holds the directory"),
        None => "nobody holds the directory".into(),
    }
}

async fn database(data: &DataDir) -> anyhow::Result<String> {
    if data.store_url(&data.load_config()?)?.is_some() {
        let counts = store::read(data).await?.counts().await?;
        return Ok(format!("PostgreSQL, {} runs, {} entries", counts.runs, counts.entries));
    }
    if !data.database().exists() {
        return Ok("not there yet".into());
    }
    let store = SqliteStore::open_read_only(&data.database())?;
    let damage = store.quick_check().await?;
    ensure!(
        damage.is_empty(),
        "damaged: {}: restore a backup; the sandbox is not affected",
        damage.join("; ")
    );
    let counts = store.counts().await?;
    Ok(format!("sound, {} runs, {} journal entries", counts.runs, counts.entries))
}

fn sandbox(data: &DataDir) -> anyhow::Result<String> {
    if !data.sandbox().exists() {
        return Ok("not there yet".into());
    }
    Sandbox::open(&data.sandbox(), "doctor".into(), SandboxLimits::default())?;
    Ok("paths are resolved by the kernel".into())
}

async fn policies(data: &DataDir) -> anyhow::Result<String> {
    let config = data.load_config()?;
    let directory = data.policies(&config);
    if !directory.exists() {
        return Ok("not there yet".into());
    }
    loadable(data, &directory).await
}

async fn shadow_policies(data: &DataDir) -> anyhow::Result<String> {
    let Some(directory) = data.shadow_policies(&data.load_config()?) else {
        return Ok("none in the configuration".into());
    };
    refuse_writable_policies(&directory)?;
    loadable(data, &directory).await
}

async fn loadable(data: &DataDir, directory: &Path) -> anyhow::Result<String> {
    let tools = super::policy::tools(data, directory).await?;
    let facts = &super::policy::names(&data.load_config()?)?;
    let checked = stepgate_policy::check(directory, Nameable { tools: &tools, facts });
    let is_error = |finding: &&Finding| finding.severity == Severity::Error;
    let errors: Vec<_> = checked.findings.iter().filter(is_error).map(Finding::to_string).collect();
    ensure!(checked.is_loadable(), "cannot be loaded: {}", errors.join("\n"));
    const SHOWN_MAX: usize = 3;
    let warnings = checked.findings.iter().filter(|it| it.severity == Severity::Warning);
    let warnings: Vec<String> = warnings.map(|it| format!("\n{it}")).collect();
    let more = match warnings.len().checked_sub(SHOWN_MAX) {
        Some(more @ 1..) => format!("\n{more} more: `stepgate policy check` lists them"),
        Some(0) | None => String::new(),
    };
    let shown: String = warnings.into_iter().take(SHOWN_MAX).collect();
    let (policies, cases) = (checked.policies, checked.cases);
    Ok(format!("can be loaded: {policies} policies, {cases} cases{shown}{more}"))
}

fn model(data: &DataDir) -> anyhow::Result<String> {
    Ok(match settings::agent(data, &data.load_config()?)? {
        Some(_) => "its key can be read".into(),
        None => "none in the configuration".into(),
    })
}

fn notifications(data: &DataDir) -> anyhow::Result<String> {
    let receivers = settings::receivers(data, &data.load_config()?, None)?.receivers;
    for receiver in &receivers {
        for secret in receiver.channel.secrets() {
            let read = secret.read().map_err(anyhow::Error::msg);
            read.with_context(|| format!("[[notify]] `{}`", receiver.name))?;
        }
    }
    Ok(format!("{} receivers", receivers.len()))
}

async fn audit_streams(data: &DataDir) -> anyhow::Result<String> {
    let streams = settings::streams(data, &data.load_config()?)?;
    for stream in &streams {
        for secret in stream.receiver.secrets() {
            let read = secret.read().map_err(anyhow::Error::msg);
            read.with_context(|| format!("[[audit]] `{}`", stream.name))?;
        }
    }
    let store = store_of(data).await?.filter(|_| !streams.is_empty());
    let cursors = match store {
        Some(store) => store.cursors().await?,
        None => Vec::new(),
    };
    let failing = streams.iter().filter_map(|stream| {
        let cursor = audit::cursor_of(&stream.name);
        let error = cursors.iter().find(|it| it.name == cursor)?.error.as_ref()?;
        Some(format!("\n  [[audit]] `{}` cannot be sent: {error}", stream.name))
    });
    let failing: String = failing.collect();
    ensure!(failing.is_empty(), "the last try has failed{failing}");
    Ok(format!("{} streams", streams.len()))
}

/// Whether the collector takes what is sent to it. A secret that cannot be read is named.
async fn collector(data: &DataDir) -> anyhow::Result<String> {
    let Some(settings) = settings::collector(data, &data.load_config()?)? else {
        return Ok("none in the configuration".into());
    };
    for (name, secret) in &settings.headers {
        let read = secret.read().map_err(anyhow::Error::msg);
        read.with_context(|| format!("otlp.headers.{name}"))?;
    }
    let sent = otlp::try_out(&settings).await.map_err(anyhow::Error::msg);
    sent.context("[otlp] endpoint")?;
    Ok("it takes what is sent".into())
}

fn tool_servers(data: &DataDir) -> anyhow::Result<String> {
    let config = data.load_config()?;
    let count = config.servers.len();
    ensure!(
        count == 0 || launcher::is_available(),
        "this kernel has no Landlock: the processes of tool servers can read the data directory; run \
         them as another user, or take a kernel with it"
    );
    let out_of_reach = settings::out_of_reach(data, &config)?;
    ensure!(out_of_reach.is_empty(), "{}", out_of_reach.join("; "));
    Ok(match count {
        0 => "none in the configuration".into(),
        count => format!("{count}, kept away from the data directory by Landlock"),
    })
}

/// What is off: according to the process that holds the directory, or else to the servers when they are started now.
async fn tools(data: &DataDir) -> anyhow::Result<String> {
    let config = data.load_config()?;
    if config.servers.is_empty() {
        return Ok("no tool servers in the configuration".into());
    }
    let off = match Client::elsewhere(data, Role::Auditor).await? {
        Some(mut client) => {
            let reply = client.get("/v1/tools").await?;
            let message = |off: &Value| off.get("message")?.as_str().map(str::to_owned);
            super::rows(&reply, "off").iter().filter_map(message).collect()
        }
        None => off_now(data, &config).await?,
    };
    // A line break in the name of a tool must not look like another check.
    let off: Vec<_> = off.iter().map(|message| show::printable(message)).collect();
    ensure!(off.is_empty(), "{}", off.join("\n"));
    let turned_off = config.turned_off();
    Ok(match turned_off.is_empty() {
        true => "all can be called".into(),
        false => format!("all can be called; turned off: {}", turned_off.join(", ")),
    })
}

/// Starts the servers, lists their tools, and stops them. Nothing is recorded as accepted.
async fn off_now(data: &DataDir, config: &Config) -> anyhow::Result<Vec<String>> {
    let pins = match store_of(data).await? {
        Some(store) => pins::accepted(&*store).await?,
        None => pins::Pins::new(),
    };
    let servers = start::servers(data, config, pins).await?;
    // Tools seen for the first time would be accepted by the next start.
    for name in servers.first_seen() {
        servers.accept(&name);
    }
    let off = control::off_of(&servers, config.own_names().as_deref());
    let off = off.iter().map(ToString::to_string).collect();
    servers.shutdown().await;
    Ok(off)
}

async fn store_of(data: &DataDir) -> anyhow::Result<Option<Arc<dyn Store>>> {
    let is_elsewhere = data.store_url(&data.load_config()?)?.is_some();
    match is_elsewhere || data.database().exists() {
        true => Ok(Some(store::read(data).await?)),
        false => Ok(None),
    }
}

/// Runs under way, or interrupted when a process died. Runs that wait for an approval are left out, and runs that need
/// a person have their own check.
async fn interrupted(data: &DataDir) -> anyhow::Result<String> {
    let Some(store) = store_of(data).await? else { return Ok("none".into()) };
    let needs = attention::list(&*store, &Reading::default()).await?;
    let is_told =
        |run: &Unfinished| needs.iter().any(|need| need.subject.run_id() == Some(run.run_id));
    let mut left = store.unfinished().await?;
    left.retain(|run| !run.is_waiting && !is_told(run));
    let goes_on = match data.holder() {
        Some(_) => "the gateway is working on them",
        None => "the next command, or `stepgate recover`, goes on with them",
    };
    Ok(match named(&left) {
        names if left.is_empty() => format!("none{names}"),
        names => format!("{}: {goes_on}{names}", left.len()),
    })
}

fn named(runs: &[Unfinished]) -> String {
    let name = |run: &Unfinished| {
        format!("\n  {} {}", run.run_id, run.tool_name.as_deref().unwrap_or("-"))
    };
    let rest = match runs.len().saturating_sub(NAMED_MAX) {
        0 => String::new(),
        count => format!("\n  and {count} more: `stepgate runs --status started` lists them"),
    };
    runs.iter().take(NAMED_MAX).map(name).chain([rest]).collect()
}

/// Runs that recovery cannot finish by itself.
async fn needing_a_person(data: &DataDir) -> anyhow::Result<String> {
    let Some(store) = store_of(data).await? else { return Ok("no run needs a person".into()) };
    let needs = attention::list(&*store, &Reading::default()).await?;
    let lines: Vec<String> =
        needs.iter().map(|need| show::attention::line(&NeedObject::of(need))).collect();
    let lines: Vec<_> = lines.iter().map(|line| strip_str(line).to_string()).collect();
    ensure!(needs.is_empty(), "{} runs need a person\n  {}", needs.len(), lines.join("\n  "));
    Ok(match store.open_approvals(None).await? {
        0 => "no run needs a person".into(),
        count => format!("{count} runs wait for an approval: `stepgate approvals` lists them"),
    })
}

/// Stops that are in force: a reason why every call is refused.
async fn stops_in_force(data: &DataDir) -> anyhow::Result<String> {
    let Some(store) = store_of(data).await? else { return Ok("none in force".into()) };
    let stops = stops::in_force_of(&*store).await?;
    let lines = stops.iter().map(|stop| {
        let StopOrder { target, stopped_by, .. } = &stop.order;
        let line = format!("{target} is stopped by {stopped_by} since {}", stop.made_at);
        format!("{}: `stepgate lift {}`", show::printable(&line), stop.stop_id)
    });
    ensure!(stops.is_empty(), "{}", lines.collect::<Vec<_>>().join("\n"));
    Ok("none in force".into())
}

/// Tokens that expire soon: an expired token locks its principal out, and the gateway cannot warn its holder.
async fn tokens(data: &DataDir) -> anyhow::Result<String> {
    let Some(store) = store_of(data).await? else { return Ok("none".into()) };
    let tokens = Tokens::load(&*store).await?.list();
    let soon = RealWorld.now().plus_ms(SOON_S * 1000);
    let ending = tokens.iter().filter_map(|token| {
        let at = token.expires_at.filter(|at| *at <= soon)?;
        Some(format!("; {} of `{}` ends {at}", token.token_id, token.principal_id))
    });
    Ok(format!("{}{}", tokens.len(), ending.collect::<String>()))
}

/// Runs whose executor no living node reaches. Not an error if no node is living: the next one may reach it.
async fn executors(data: &DataDir) -> anyhow::Result<String> {
    if data.store_url(&data.load_config()?)?.is_none() {
        return Ok("this directory's own".into());
    }
    let store = store::read(data).await?;
    let is_living = store.nodes().await?.iter().any(|node| node.lease_left.is_some());
    let unreached = store.unreached().await?;
    let waiting: Vec<String> = unreached.iter().map(waiting_for).collect();
    ensure!(waiting.is_empty() || !is_living, "{}", waiting.join("; "));
    Ok(match waiting.is_empty() {
        true => "no run waits for one that is out of reach".into(),
        false => waiting.join("; "),
    })
}

fn waiting_for(unreached: &Unreached) -> String {
    let Unreached { executor_id, runs, last_node_id, .. } = unreached;
    let way_out = match last_node_id {
        Some(node_id) => format!("start node `{node_id}` again"),
        None => "start a node that has it".into(),
    };
    format!("{runs} runs wait for `{executor_id}`, which no living node reaches: {way_out}")
}
