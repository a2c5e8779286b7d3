//! Tool servers: the tools of programs that speak MCP, behind the gate. Start here.
//!
//! ```text
//! start      launch or connect, shake hands, list the tools, compare with configuration and pins
//! prepare    take a turn: the server is up, its breaker closed, a place free      (before the call
//! dispatch   send, wait no longer than the tool may take, judge the answer         is durable; after)
//! ```
//!
//! Each server has its own connection, places, breaker and task that starts it again (`server.rs`), so
//! none can keep another waiting. What a server says is judged as strictly as what an agent says
//! (`mcp/tap.rs`); what it says about itself is advice, and what its tools do is what the configuration
//! says (`catalog.rs`).

mod breaker;
mod call;
mod catalog;
mod child;
mod definition;
mod err;
mod mcp;
mod outcome;
mod progress;
mod schema;
mod server;
mod spec;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use async_trait::async_trait;
use futures_util::future::join_all;
use stepgate_core::call::ServerCall;
use stepgate_core::digest::Digest;
use stepgate_core::failure::ExecutionFailure;
use stepgate_core::json::Value;
use stepgate_core::late::LateResult;
use stepgate_core::ports::{Effect, Failed, Hold, Sending, ToolServers};
use stepgate_core::tool::{Mode, Standing, Tool, ToolName, is_server_name};
use tokio::sync::watch;

pub use err::StartError;
pub use progress::{CallProgress, Progress};
pub use spec::{DeliverySpec, Secret, ServerLimits, ServerSpec, ToolSpec, Transport};

use catalog::Pins;
use progress::Listener;
use server::{Line, Server};

use crate::launcher::Launcher;

/// What is told of a result that comes after its time. It must not block.
pub type Late = Arc<dyn Fn(LateResult) + Send + Sync>;

/// The tool servers of a gateway. Dropped, or shut down, they end.
pub struct Servers {
    servers: BTreeMap<String, Arc<Server>>,
    pins: Pins,
    late: Late,
    progress: Progress,
    stop: watch::Sender<bool>,
}

/// A tool as operators see it.
#[derive(Clone, Debug, PartialEq)]
pub struct ListedTool {
    /// The server.
    pub server: String,
    /// The tool, as the server calls it.
    pub tool: String,
    /// What the configuration says that it does; nothing, where it is not offered.
    pub mode: Option<Mode>,
    /// Whether an operator knows this definition, where it is offered.
    pub standing: Option<Standing>,
    /// Arguments that are journalled as their digest only, where it is offered.
    pub redacted: Vec<String>,
    /// What the server calls it for people.
    pub title: Option<String>,
    /// What the server says that it does.
    pub description: Option<String>,
    /// What it asks of its arguments, as the server says it.
    pub input_schema: Value,
    /// What it promises of its result, where it does.
    pub output_schema: Option<Value>,
    /// Digest of all of it.
    pub definition_digest: Digest,
    /// Whether its server can be called.
    pub server_state: ServerState,
}

/// Whether a server can be called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerState {
    /// It can.
    Up,
    /// It has failed too often in a row, and is left alone for a while.
    Resting,
    /// It cannot, and why; it is started again.
    Down(String),
}

impl Servers {
    /// Starts every server, at the same time. One that does not start, or is not as configured, means
    /// that none runs.
    pub async fn start(
        specs: Vec<ServerSpec>,
        pins: BTreeMap<ToolName, Digest>,
        launcher: Launcher,
        late: Late,
        progress: Progress,
    ) -> Result<Self, StartError> {
        let mut names = BTreeSet::new();
        for ServerSpec { name, .. } in &specs {
            if !is_server_name(name) || !names.insert(name.clone()) {
                return Err(StartError::Name { server: name.clone() });
            }
        }
        let (stop, stopped) = watch::channel(false);
        let pins = Pins::new(pins);
        let starts = specs
            .into_iter()
            .map(|spec| Server::start(spec, launcher.clone(), pins.clone(), stopped.clone()));
        let mut servers = BTreeMap::new();
        for started in join_all(starts).await {
            let server = started?;
            servers.insert(server.spec.name.clone(), server);
        }
        Ok(Self { servers, pins, late, progress, stop })
    }

    /// Every tool that the servers have, offered or not.
    pub fn listing(&self) -> Vec<ListedTool> {
        self.servers.values().flat_map(|server| listed(server)).collect()
    }

    /// Tools that are offered and that no operator has ever accepted, with their definitions.
    pub fn unpinned(&self) -> Vec<(ToolName, Digest)> {
        let tools = self.tools().into_iter();
        tools
            .filter(|tool| !self.pins.has(&tool.name))
            .map(|tool| (tool.name.clone(), tool.definition_digest))
            .collect()
    }

    /// The present definition of a tool that an operator can accept: it is offered, and there.
    pub fn acceptable(&self, name: &ToolName) -> Option<Digest> {
        let tool = self.tool(name)?;
        match tool.standing {
            Standing::Gone => None,
            Standing::Accepted | Standing::Changed => Some(tool.definition_digest),
        }
    }

    /// Makes this definition of a tool the accepted one. The caller has made it durable, or another node. A
    /// tool that is defined otherwise has changed.
    pub fn pin(&self, name: &ToolName, digest: Digest) {
        self.pins.pin(name.clone(), digest);
        if let Some(server) = self.servers.get(name.server()) {
            let mut catalog = server.catalog.write().unwrap_or_else(PoisonError::into_inner);
            catalog.compare(name, &self.pins);
        }
    }

    /// Makes the present definition of a tool the accepted one. The caller makes it durable.
    pub fn accept(&self, name: &ToolName) -> Option<Digest> {
        let digest = self.acceptable(name)?;
        self.pin(name, digest);
        Some(digest)
    }

    /// Ends every server, and waits until their tasks have let go of them.
    pub async fn shutdown(&self) {
        self.stop.send_replace(true);
        self.stop.closed().await;
    }
}

fn readable<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

fn listed(server: &Server) -> Vec<ListedTool> {
    let server_state = match (server.line(), server.breaker().is_open()) {
        (Line::Down(why), _) => ServerState::Down(why),
        (Line::Up(_), true) => ServerState::Resting,
        (Line::Up(_), false) => ServerState::Up,
    };
    let catalog = readable(&server.catalog);
    let entries = catalog.entries().map(|entry| {
        let tool = entry.offer.as_ref().map(|offer| &offer.tool);
        ListedTool {
            server: server.spec.name.clone(),
            tool: entry.definition.name.clone(),
            mode: tool.map(|tool| tool.mode),
            standing: tool.map(|tool| tool.standing),
            redacted: tool.map(|tool| tool.redacted.clone()).unwrap_or_default(),
            title: entry.definition.title.clone(),
            description: entry.definition.description.clone(),
            input_schema: entry.definition.input_schema.clone(),
            output_schema: entry.definition.output_schema.clone(),
            definition_digest: entry.definition.digest,
            server_state: server_state.clone(),
        }
    });
    entries.collect()
}

#[async_trait]
impl ToolServers for Servers {
    fn tool(&self, name: &ToolName) -> Option<Arc<Tool>> {
        let server = self.servers.get(name.server())?;
        readable(&server.catalog).offer(name).map(|offer| Arc::clone(&offer.tool))
    }

    fn tools(&self) -> Vec<Arc<Tool>> {
        let of_server = |server: &Arc<Server>| {
            let tools = readable(&server.catalog);
            tools.offers().map(|offer| Arc::clone(&offer.tool)).collect::<Vec<_>>()
        };
        let mut tools: Vec<_> = self.servers.values().flat_map(of_server).collect();
        tools.sort_by(|a, b| a.name.cmp(&b.name));
        tools
    }

    /// By the configuration: a server may have withdrawn the tool, or not be up.
    fn has_redacted(&self) -> bool {
        self.servers.values().any(|server| {
            let ServerSpec { tool, tools, .. } = &server.spec;
            let mut named = std::iter::once(tool).chain(tools.values());
            named.any(|spec| spec.redacted.as_ref().is_some_and(|names| !names.is_empty()))
        })
    }

    fn executor_id(&self, server: &str) -> Option<String> {
        self.servers.get(server).map(|server| server.spec.executor_id.clone())
    }

    async fn prepare(&self, call: &ServerCall) -> Result<Hold, Failed> {
        match self.servers.get(call.tool.name.server()) {
            Some(server) => Ok(Box::new(call::prepare(server).await?)),
            None => Err(no_server()),
        }
    }

    async fn dispatch(&self, call: &ServerCall, sending: &Sending) -> Effect {
        match self.servers.get(call.tool.name.server()) {
            Some(server) => {
                // It goes with the call: what is said afterwards is said to nobody.
                let listener = Listener::new(sending.run_id, Arc::clone(&self.progress));
                call::dispatch(server, call, sending, &listener, &self.late).await
            }
            None => Effect::Failed(no_server()),
        }
    }
}

fn no_server() -> Failed {
    let detail = Some("the configuration has no such server".to_owned());
    Failed { detail, ..ExecutionFailure::Unavailable.into() }
}
