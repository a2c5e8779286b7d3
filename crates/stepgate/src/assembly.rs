//! Puts the gate together: sandbox, tool servers and policy, and what operators change in them while
//! they run.

mod first_policies;
mod mcp_names;
mod out_of_reach;
pub(crate) mod pins;
mod reload;
mod shapes;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use serde_json::json;
use stepgate_core::digest::Digest;
use stepgate_core::event::EventType;
use stepgate_core::gate::{Doubts, Gate, Parked};
use stepgate_core::ids::PrincipalId;
use stepgate_core::json::Value;
use stepgate_core::late::{self, LateResult};
use stepgate_core::policy::BuiltInRule;
use stepgate_core::ports::{Executor, NoToolServers, Store};
use stepgate_core::tool::ToolName;
use stepgate_exec::Sandbox;
use stepgate_exec::launcher::Launcher;
use stepgate_exec::servers::{News, Off, Progress, ServerSpec, Servers, StartError};
use stepgate_policy::{Finding, LivePolicy, LoadError, PolicySet, Severity};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::config::{Config, servers};
use crate::data_dir::DataDir;
use crate::hub::Hub;
use crate::show;
use crate::world::RealWorld;

use reload::Look;

pub(crate) use mcp_names::McpNames;
pub(crate) use out_of_reach::warnings as out_of_reach;

pub(crate) use reload::keep_reloading;
pub(crate) use shapes::{off, offered, shapes};

/// Most late results that wait to be written down. What comes beyond them is told to the operator.
const LATE_RESULTS_MAX: usize = 1024;

/// For a command that asks the servers once: each is waited for as long as its start may take.
pub(crate) const WAIT_FOR_ALL: Duration = Duration::MAX;

/// What came of accepting a tool.
pub(crate) enum Accepted {
    /// Its present definition, which has this digest.
    As(Digest),
    /// The tool is another one than was seen.
    Another(Digest),
    NoSuchTool,
}

/// What operators look at and change beside the gate.
pub(crate) struct Control {
    pub(crate) sandbox: Arc<Sandbox>,
    pub(crate) servers: Arc<Servers>,
    pub(crate) policy: Arc<LivePolicy>,
    /// The data directory.
    pub(crate) root: PathBuf,
    /// Where the policies are.
    pub(crate) policies: PathBuf,
    /// The servers that the configuration turns off.
    turned_off: Vec<String>,
    /// The server whose tools keep their own names over MCP.
    own_names: Option<String>,
    /// What they and the tools looked like when they were loaded first.
    loaded: Look,
    /// How far it is known which tools operators have accepted.
    accepted: pins::Reading,
}

impl Control {
    /// Makes the present definition of a tool the accepted one, here and on every other node; where an
    /// operator says which one was seen, only that.
    pub(crate) async fn accept(
        &self,
        gate: &Gate,
        name: &ToolName,
        accepted_by: &PrincipalId,
        seen: Option<Digest>,
    ) -> anyhow::Result<Accepted> {
        let _accepting = self.accepted.hold().await;
        accept(gate, &self.servers, name, Some(accepted_by), seen).await
    }

    /// Loads the policies for the tools as they are now: after a tool was accepted, they are about another one.
    pub(crate) async fn reload(self: &Arc<Self>, gate: &Gate) {
        let look = Look::at(&self.policies, &self.servers, &self.turned_off);
        reload::reload(gate, self, look.tools()).await;
    }

    /// Every server, and every tool with a mode, that cannot be called.
    pub(crate) fn off(&self) -> Vec<Off> {
        off_of(&self.servers, self.own_names.as_deref())
    }

    /// The servers that the configuration turns off.
    pub(crate) fn turned_off(&self) -> &[String] {
        &self.turned_off
    }

    /// Accepts the tools of servers that are seen for the first time.
    pub(crate) async fn accept_first_seen(&self, gate: &Gate) -> anyhow::Result<()> {
        let _accepting = self.accepted.hold().await;
        accept_first_seen(gate, &self.servers).await
    }

    /// Reads what operators have accepted on other nodes.
    pub(crate) async fn read_on(&self, gate: &Gate) -> anyhow::Result<()> {
        Ok(self.accepted.go_on(gate, &self.servers).await?)
    }
}

/// A gate over this store, as the configuration says. The hub is told how far its tools have come. Tool servers
/// that do not answer within `wait` come up later.
pub(crate) async fn assemble(
    data: &DataDir,
    config: &Config,
    store: Arc<dyn Store>,
    hub: &Arc<Hub>,
    wait: Duration,
) -> anyhow::Result<(Gate, Arc<Control>)> {
    let sandbox_id = config.sandbox_id(data.node_id(config)?.as_deref());
    let sandbox = Sandbox::open(&data.sandbox(), sandbox_id, config.sandbox_limits())?
        .shared(config.sandbox.shared)
        .put_back(data.earlier()?);
    let sandbox = Arc::new(sandbox);
    if data.store_url(config)?.is_some() {
        refuse_another_sandbox(&sandbox, &*store).await?;
    }
    sandbox.sweep().await.context("cannot clear the sandbox of unfinished files")?;
    // Nothing is asked of this gate before both of its placeholders are replaced.
    let mut gate = Gate {
        store,
        executor: Arc::clone(&sandbox) as _,
        tools: Arc::new(NoToolServers),
        policy: Arc::new(BuiltInRule),
        world: Arc::new(RealWorld),
        limits: config.limits(),
        extensions: config.extensions(),
        parked: Parked::default(),
        doubts: Doubts::default(),
    };
    let policies = data.policies(config);
    // Before the servers start: it is kept from them.
    first_policies::provide(&gate, config, &policies).await?;
    let (late, arrivals) = mpsc::channel(LATE_RESULTS_MAX);
    let (accepted, pins) = pins::Reading::begin(&gate).await?;
    let hub = Arc::clone(hub);
    let progress = Arc::new(move |said| hub.progress(said));
    let servers = Arc::new(start_servers(data, config, pins, late, progress, wait).await?);
    accept_first_seen(&gate, &servers).await?;
    gate.tools = Arc::clone(&servers) as _;
    let acting = config.servers.keys().filter_map(|server| gate.tools.executor_id(server));
    let executor_ids = [gate.executor.id().to_owned()].into_iter().chain(acting).collect();
    gate.store.tell_executors(executor_ids).await?;
    // Before the load: what changes between the two is seen as a change later.
    let turned_off = turned_off(config);
    let loaded = Look::at(&policies, &servers, &turned_off);
    let set = PolicySet::load(&policies, loaded.tools()).map_err(not_loaded)?;
    show_warnings(set.warnings());
    let policy = Arc::new(LivePolicy::new(set));
    note_policy(&gate, policy.current().digest()).await?;
    gate.policy = Arc::clone(&policy) as _;
    tokio::spawn(write_down(gate.clone(), arrivals));
    let root = data.root().to_owned();
    let own_names = config.serve_limits().mcp.own_names;
    let control = Control {
        sandbox,
        servers,
        policy,
        root,
        policies,
        turned_off,
        own_names,
        loaded,
        accepted,
    };
    Ok((gate, Arc::new(control)))
}

/// Refuses a sandbox under a name that the store knows another one by: calls that were sent to that one would
/// be looked for here.
async fn refuse_another_sandbox(sandbox: &Sandbox, store: &dyn Store) -> anyhow::Result<()> {
    let (mark, name) = (sandbox.mark().await?, sandbox.id());
    let known = store.claim_executor(name, &mark).await?;
    ensure!(
        known == mark,
        "the sandbox here is not the one that the store knows as `{name}`: two nodes have the same \
         `store.node_id`, or `sandbox.shared` is set and the directories are not the same one. Give this \
         node a name of its own, or mount the directory that the others have. If this directory replaces \
         the other one for good, write `{known}` and nothing else into its file `.stepgate-mark`"
    );
    Ok(())
}

/// Starts the servers of the configuration. Those that do not answer within `wait` come up later.
pub(crate) async fn start_servers(
    data: &DataDir,
    config: &Config,
    pins: pins::Pins,
    late: mpsc::Sender<LateResult>,
    progress: Progress,
    wait: Duration,
) -> anyhow::Result<Servers> {
    let specs = specs(data, config)?;
    let late = Arc::new(move |late_result| {
        if late.try_send(late_result).is_err() {
            show::note("too many late results at once: one was not written down");
        }
    });
    let launcher = Launcher::this_program();
    let tell = Arc::new(|news| tell(&news));
    let started = Servers::start(specs, pins, launcher, late, progress, tell, wait).await;
    started.map_err(|error| located(data, error))
}

/// What cannot be called, also for want of a name over MCP.
pub(crate) fn off_of(servers: &Servers, own_names: Option<&str>) -> Vec<Off> {
    let mut off = servers.off();
    off.extend(McpNames::of(&servers.listing(), own_names).off);
    off
}

/// Tells an operator what is off, or up again. The words are partly a server's.
pub(crate) fn tell(news: &News) {
    let style = match news {
        News::Off(_) => show::ERROR,
        News::Up(_) => show::GOOD,
    };
    let words = show::printable_lines(&news.to_string());
    show::note(format!("{style}tool servers:{style:#} {words}"));
}

/// The servers that the configuration turns off.
pub(crate) fn turned_off(config: &Config) -> Vec<String> {
    let off = config.servers.iter().filter(|(_, server)| server.is_off());
    off.map(|(name, _)| name.clone()).collect()
}

fn specs(data: &DataDir, config: &Config) -> anyhow::Result<Vec<ServerSpec>> {
    let (base, hidden) = (data.base(), data.hidden(config)?);
    let node_id = data.node_id(config)?;
    let environment = |name: &str| std::env::var(name).ok();
    servers::specs(&config.servers, &base, &hidden, node_id.as_deref(), &environment)
        .map_err(|error| error.context(format!("`{}` is not valid", data.config_shown())))
}

/// The error with the place of the server in the configuration.
fn located(data: &DataDir, error: StartError) -> anyhow::Error {
    let line = data.config_text().and_then(|text| servers::line_of(&text, error.server()));
    let place = match line {
        Some(line) => format!("`{}`, line {line}", data.config_shown()),
        None => format!("`{}`", data.config_shown()),
    };
    anyhow::Error::new(error).context(place)
}

pub(crate) fn not_loaded(error: LoadError) -> anyhow::Error {
    anyhow::Error::new(error).context("the policies cannot be loaded")
}

/// Notes are for `policy check`: a set that says too little about tools that nobody has is no trouble.
pub(crate) fn show_warnings(findings: &[Finding]) {
    let warnings = findings.iter().filter(|finding| finding.severity == Severity::Warning);
    for warning in warnings {
        let words = show::printable_lines(&warning.to_string());
        show::note(format!("{}: {words}", warning.severity.as_str()));
    }
}

/// Writes late results down, each as soon as nobody works on its run.
async fn write_down(gate: Gate, mut arrivals: mpsc::Receiver<LateResult>) {
    // Each may have to wait for whoever works on its run, and none for another.
    let mut writing = JoinSet::new();
    while let Some(late_result) = arrivals.recv().await {
        while writing.try_join_next().is_some() {}
        if writing.len() >= LATE_RESULTS_MAX {
            writing.join_next().await;
        }
        let gate = gate.clone();
        writing.spawn(async move {
            let run_id = late_result.run_id;
            if let Err(fault) = late::note(&gate, late_result).await {
                let fault = show::printable_lines(&fault.to_string());
                show::note(format!("the late result of {run_id} was not written down: {fault}"));
            }
        });
    }
}

/// Trusts servers that no operator knows any tool of, on their first use.
async fn accept_first_seen(gate: &Gate, servers: &Servers) -> anyhow::Result<()> {
    for name in servers.first_seen() {
        accept(gate, servers, &name, None, None).await?;
    }
    Ok(())
}

/// Makes the present definition of a tool the accepted one, durably first. Nobody accepted it where it
/// was seen for the first time. What is accepted is what was written down, whatever the tool is by then.
async fn accept(
    gate: &Gate,
    servers: &Servers,
    name: &ToolName,
    accepted_by: Option<&PrincipalId>,
    seen: Option<Digest>,
) -> anyhow::Result<Accepted> {
    let Some(pin) = servers.acceptable(name) else { return Ok(Accepted::NoSuchTool) };
    let digest = pin.digest();
    if seen.is_some_and(|seen| seen != digest) {
        return Ok(Accepted::Another(digest));
    }
    let pin = match seen {
        // That digest says nothing of what the server says beside the definition.
        Some(_) => pin.beside_that_of(servers.accepted(name).as_ref()),
        None => pin,
    };
    let payload = json!({
        "accepted_by": accepted_by,
        "definition": pin.definition(),
        "definition_digest": digest,
        "instructions_digest": pin.beside().instructions,
        "meta_digest": pin.beside().meta,
        "tool": name,
    });
    gate.note(EventType::ToolAccepted, payload).await?;
    servers.pin(name, pin);
    Ok(Accepted::As(digest))
}

/// Notes which policies are in force, where they are others than before.
pub(crate) async fn note_policy(gate: &Gate, policy_hash: Digest) -> anyhow::Result<()> {
    gate.store.tell_policy(policy_hash).await?;
    if last_noted_policy(gate).await? != Some(policy_hash.to_string()) {
        gate.note(EventType::PolicyLoaded, json!({ "policy_hash": policy_hash })).await?;
    }
    Ok(())
}

/// The digest of the policies that were loaded last, by any process.
async fn last_noted_policy(gate: &Gate) -> anyhow::Result<Option<String>> {
    let noted = gate.noted(&[EventType::PolicyLoaded]).await?;
    let last = noted.last().and_then(|event| event.payload.get("policy_hash"));
    Ok(last.and_then(Value::as_str).map(str::to_owned))
}
