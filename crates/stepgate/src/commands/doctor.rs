//! `stepgate doctor`: checks everything that must be right, and changes nothing.

use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

use anstream::adapter::strip_str;
use anyhow::{Context, ensure};
use serde::Serialize;
use serde_json::Value;
use stepgate_core::attention::{self, Reading};
use stepgate_core::ports::{Audits, Store, Unfinished, Unreached, World};
use stepgate_exec::{Sandbox, SandboxLimits, launcher};
use stepgate_gateway::attention::NeedObject;
use stepgate_gateway::control::{self, pins};
use stepgate_gateway::tokens::{SOON_S, Tokens};
use stepgate_gateway::world::RealWorld;
use stepgate_http::server::Tls;
use stepgate_policy::{Finding, Severity};
use stepgate_store::sqlite::SqliteStore;

use crate::client::{Client, Role};
use crate::config::Config;
use crate::data_dir::DataDir;

use crate::{settings, show, start, store};

/// With less free space, the store may soon be unable to record.
const FREE_BYTES_MIN: u64 = 256 * 1024 * 1024;
/// Most runs that one check lists.
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
        check("data directory", directory(data)),
        check("free space", free_space(data)),
        check("holder", Ok(holder(data))),
        check("database", database(data).await),
        check("sandbox", sandbox(data)),
        check("policies", policies(data).await),
        check("certificate", certificate(data)),
        check("model", model(data)),
        check("notifications", notifications(data)),
        check("tool servers", tool_servers(data)),
        check("tools", tools(data).await),
        check("interrupted runs", interrupted(data).await),
        check("attention", needing_a_person(data).await),
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

fn directory(data: &DataDir) -> anyhow::Result<String> {
    let root = data.root();
    if !root.exists() {
        // With a remote store this machine may have no data directory.
        return Ok(format!("`{}` is not there: `stepgate serve` makes it", root.display()));
    }
    let mode = root.metadata()?.permissions().mode() & 0o777;
    ensure!(
        mode & 0o077 == 0,
        "`{0}` is open to others (mode {mode:o}): `chmod 700 {0}`",
        root.display()
    );
    Ok(format!("`{}`, for its owner alone", root.display()))
}

fn free_space(data: &DataDir) -> anyhow::Result<String> {
    let free = data.free_bytes().context("cannot ask the file system")?;
    let mebibytes = free / (1024 * 1024);
    ensure!(free >= FREE_BYTES_MIN, "only {mebibytes} MiB: without space nothing can be recorded");
    Ok(format!("{mebibytes} MiB"))
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
    let directory = data.policies(&data.load_config()?);
    if !directory.exists() {
        return Ok("not there yet".into());
    }
    let tools = super::policy::tools(data, &directory).await?;
    let checked = stepgate_policy::check(&directory, &tools);
    let is_error = |finding: &&Finding| finding.severity == Severity::Error;
    let errors: Vec<_> = checked.findings.iter().filter(is_error).map(Finding::to_string).collect();
    ensure!(checked.is_loadable(), "cannot be loaded: {}", errors.join("\n"));
    Ok(format!("can be loaded: {} policies, {} cases", checked.policies, checked.cases))
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

fn certificate(data: &DataDir) -> anyhow::Result<String> {
    let Some(files) = data.load_config()?.serve.tls(&data.base())? else {
        return Ok("none in the configuration".into());
    };
    let tls = Tls::load(files)?;
    let warnings = tls.warnings();
    ensure!(warnings.is_empty(), "{}", warnings.join("; "));
    Ok(tls.described())
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
            let off = reply.get("off").and_then(Value::as_array).cloned().unwrap_or_default();
            let message = |off: &Value| off.get("message")?.as_str().map(str::to_owned);
            off.iter().filter_map(message).collect()
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

/// The store, if there is one.
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
