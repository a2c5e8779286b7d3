//! Tool servers: the tools of programs that speak MCP, behind the gate. Start here.
//!
//! ```text
//! start      launch or connect, handshake, list the tools, compare with configuration and pins;
//!            a server or tool that cannot be used is off, is reported, and is retried (`off.rs`)
//! prepare    take a permit: the server is up, its breaker closed, a permit free   (before the call
//! dispatch   send, wait until the tool's timeout, check the answer                is durable; after)
//! ```
//!
//! Each server has its own connection, permits, breaker and supervising task (`server.rs`), so no server can
//! delay another. A server's messages are checked as strictly as an agent's (`mcp/tap.rs`). What a server
//! says about itself is advice only; what its tools do is set by the configuration (`catalog.rs`).

mod breaker;
mod call;
mod catalog;
mod child;
mod definition;
mod err;
mod mcp;
mod off;
mod outcome;
mod pin;
mod progress;
mod schema;
mod server;
mod spec;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use stepgate_core::call::ServerCall;
use stepgate_core::digest::Digest;
use stepgate_core::json::Value;
use stepgate_core::label::Flow;
use stepgate_core::late::LateResult;
use stepgate_core::lock;
use stepgate_core::ports::{Effect, Failed, Hold, Sending, ToolServers};
use stepgate_core::tool::{Contract, Mode, Standing, Tool, ToolName, is_server_name};
use stepgate_core::trace_context::TraceContext;
use tokio::sync::watch;

pub use err::StartError;
pub use off::{News, Off, Reason, Tell};
pub use pin::{Beside, Pin};
pub use progress::{CallProgress, Progress};
pub use spec::{DeliverySpec, Pinning, Secret, ServerLimits, ServerSpec, ToolSpec, Transport};

use catalog::{Entry, State};
use pin::Pins;
use progress::Listener;
use server::{ConnectionState, Server};

/// The contract of a tool with this input schema, or why the schema cannot be used.
pub fn contract(input_schema: &Value) -> Result<Arc<dyn Contract>, String> {
    let input = schema::Input::compile(input_schema).map_err(|error| error.to_string())?;
    Ok(Arc::new(input))
}

use crate::launcher::Launcher;

/// The detail of a call's record when its server is not configured.
const NO_SERVER: &str = "the configuration has no such server";

/// Callback for a result that comes after the timeout. It must not block.
pub type Late = Arc<dyn Fn(LateResult) + Send + Sync>;

/// The trace that a call belongs to, asked while it is sent; none where it belongs to none.
pub type Tracing = fn() -> Option<TraceContext>;

/// The tool servers of a gateway. They end when this is dropped or shut down.
pub struct Servers {
    servers: BTreeMap<String, Arc<Server>>,
    pins: Pins,
    late: Late,
    progress: Progress,
    tracing: Tracing,
    stop: watch::Sender<bool>,
}

/// A tool as shown to operators.
#[derive(Clone, Debug, PartialEq)]
pub struct ListedTool {
    /// The server.
    pub server: String,
    /// The tool, as the server calls it.
    pub tool: String,
    /// What it does, from the configuration; none where it is not offered.
    pub mode: Option<Mode>,
    /// Whether the configuration turns it off.
    pub is_off: bool,
    /// Why it cannot be offered, if it cannot.
    pub trouble: Option<String>,
    /// Whether an operator has accepted this definition, where it is offered.
    pub standing: Option<Standing>,
    /// Arguments that are stored only as their digest, where it is offered.
    pub redacted: Vec<String>,
    /// What its calls bring in and carry out, where it is offered.
    pub flow: Flow,
    /// The server's title for it, for people.
    pub title: Option<String>,
    /// The server's description of it.
    pub description: Option<String>,
    /// The schema of its arguments, from the server.
    pub input_schema: Value,
    /// The schema of its structured result, if it has one.
    pub output_schema: Option<Value>,
    /// Its icons, where an operator has accepted them.
    pub icons: Option<Value>,
    /// Its `_meta`, which is not part of the definition.
    pub meta: Option<Value>,
    /// Whether its `_meta` may be shown to models: it is the accepted one.
    pub is_meta_accepted: bool,
    /// Digest of the whole definition without `_meta`.
    pub definition_digest: Digest,
    /// The digest that decisions on it are bound to: the accepted definition's, where this one has the same
    /// meaning.
    pub bound_digest: Digest,
    /// Whether its server can be called.
    pub server_state: ServerState,
}

/// A server as shown to operators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedServer {
    /// Its name.
    pub name: String,
    /// Whether it can be called.
    pub state: ServerState,
    /// Whether its list of tools was ever read.
    pub is_known: bool,
    /// The server's own instructions for models.
    pub instructions: Option<String>,
    /// Whether the instructions may be shown to models: a tool was accepted while the server gave the same
    /// ones.
    pub are_instructions_accepted: bool,
}

/// A tool's definition, and the accepted one beside it.
#[derive(Clone, Debug, PartialEq)]
pub struct Compared {
    /// The server's present definition; none where it has no such tool.
    pub present: Option<Value>,
    /// The accepted definition, if there is one and it was stored.
    pub accepted: Option<Value>,
    /// The digest that was accepted.
    pub accepted_digest: Option<Digest>,
    /// The tool's `_meta`, where no operator has accepted it; it is not shown to models.
    pub unaccepted_meta: Option<Value>,
    /// The server's instructions, where no operator has accepted them; they are not shown to models.
    pub unaccepted_instructions: Option<String>,
}

/// Whether a server can be called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerState {
    /// It can be called.
    Up,
    /// Its breaker is open after too many failures in a row.
    Resting,
    /// It cannot be called, with the reason; it is being restarted.
    Down(String),
}

impl Servers {
    /// Starts all servers at the same time. A server that does not start, is not as configured, or does not
    /// answer within `wait` is off, and is retried in the background. Only a required server is waited for;
    /// if it does not start, the whole start fails.
    pub async fn start(
        specs: Vec<ServerSpec>,
        pins: BTreeMap<ToolName, Pin>,
        launcher: Launcher,
        late: Late,
        progress: Progress,
        tell: Tell,
        wait: Duration,
    ) -> Result<Self, StartError> {
        let mut names = BTreeSet::new();
        for ServerSpec { name, .. } in &specs {
            if !is_server_name(name) || !names.insert(name.clone()) {
                return Err(StartError::Name { server: name.clone() });
            }
        }
        let (stop, stopped) = watch::channel(false);
        let pins = Pins::new(pins);
        let starts = specs.into_iter().map(|spec| {
            let (launcher, pins, tell) = (launcher.clone(), pins.clone(), Arc::clone(&tell));
            Server::start(spec, launcher, pins, tell, wait, stopped.clone())
        });
        let mut servers = BTreeMap::new();
        for started in join_all(starts).await {
            let server = started?;
            servers.insert(server.spec.name.clone(), server);
        }
        let tracing = || None;
        Ok(Self { servers, pins, late, progress, tracing, stop })
    }

    /// Tells servers which trace a call belongs to.
    pub fn traced_by(self, tracing: Tracing) -> Self {
        Self { tracing, ..self }
    }

    /// Every tool that the servers have, offered or not.
    pub fn listing(&self) -> Vec<ListedTool> {
        self.servers.values().flat_map(|server| listed(server)).collect()
    }

    /// Every server.
    pub fn servers(&self) -> Vec<ListedServer> {
        let listed = |server: &Arc<Server>| {
            let catalog = lock::read(&server.catalog);
            let instructions = catalog.instructions.clone();
            ListedServer {
                name: server.spec.name.clone(),
                state: state_of(server),
                is_known: catalog.is_known,
                are_instructions_accepted: instructions
                    .as_ref()
                    .is_some_and(|text| server.accepts_instructions(text)),
                instructions,
            }
        };
        self.servers.values().map(listed).collect()
    }

    /// Every server, and every tool with a mode, that cannot be called.
    pub fn off(&self) -> Vec<Off> {
        self.servers.values().flat_map(|server| off::of(server)).collect()
    }

    /// The tools of servers that are seen for the first time: no operator has accepted any of their tools.
    pub fn first_seen(&self) -> Vec<ToolName> {
        let unknown = self.servers.values().filter(|it| !self.pins.has_any_of(&it.spec.name));
        unknown.flat_map(|server| spelled(server)).collect()
    }

    /// The present definition of a tool, if an operator can accept it: the tool exists and can be used.
    pub fn acceptable(&self, name: &ToolName) -> Option<Pin> {
        let server = self.servers.get(name.server())?;
        let catalog = lock::read(&server.catalog);
        let entry = catalog.entry(name).filter(|entry| is_acceptable(entry))?;
        Some(Pin::of(&entry.definition, catalog.instructions.as_deref()))
    }

    /// The accepted definition of a tool.
    pub fn accepted(&self, name: &ToolName) -> Option<Pin> {
        self.pins.get(name)
    }

    /// Makes this definition of a tool the accepted one. The caller, or another node, has made it durable. A
    /// tool whose present definition differs from it counts as changed.
    pub fn pin(&self, name: &ToolName, pin: Pin) {
        self.pins.pin(name.clone(), pin);
        if let Some(server) = self.servers.get(name.server()) {
            let mut catalog = lock::write(&server.catalog);
            catalog.compare(&server.spec, &self.pins);
        }
    }

    /// Makes the present definition of a tool the accepted one. The caller makes it durable.
    pub fn accept(&self, name: &ToolName) -> Option<Digest> {
        let pin = self.acceptable(name)?;
        let digest = pin.digest();
        self.pin(name, pin);
        Some(digest)
    }

    /// A tool's definition beside the accepted one; none where neither is known.
    pub fn compared(&self, name: &ToolName) -> Option<Compared> {
        let pin = self.pins.get(name);
        let server = self.servers.get(name.server());
        let present = server.and_then(|server| {
            let catalog = lock::read(&server.catalog);
            let Entry { definition, .. } = catalog.entry(name)?;
            let (meta, instructions) = (definition.meta.clone(), catalog.instructions.clone());
            let meta = meta.filter(|meta| !server.accepts_meta(name, meta));
            let instructions = instructions.filter(|text| !server.accepts_instructions(text));
            Some((Some(definition.pinned.clone()), meta, instructions))
        });
        let (present, unaccepted_meta, unaccepted_instructions) = present.unwrap_or_default();
        (pin.is_some() || present.is_some()).then(|| Compared {
            present,
            accepted: pin.as_ref().and_then(|pin| pin.definition().cloned()),
            accepted_digest: pin.as_ref().map(Pin::digest),
            unaccepted_meta,
            unaccepted_instructions,
        })
    }

    /// Ends every server, and waits until their tasks have ended.
    pub async fn shutdown(&self) {
        self.stop.send_replace(true);
        self.stop.closed().await;
    }
}

/// The tools that a proposal can name and an operator can accept.
fn spelled(server: &Server) -> Vec<ToolName> {
    let catalog = lock::read(&server.catalog);
    let entries = catalog.entries().filter(|entry| is_acceptable(entry));
    entries
        .filter_map(|entry| ToolName::of(&server.spec.name, &entry.definition.name).ok())
        .collect()
}

fn is_acceptable(entry: &Entry) -> bool {
    match &entry.state {
        State::Unclassified | State::TurnedOff => true,
        State::Unusable(_) => false,
        State::Offered(offer) => offer.tool.standing != Standing::Gone,
    }
}

fn state_of(server: &Server) -> ServerState {
    match (server.state(), server.breaker().is_open()) {
        (ConnectionState::Down(why), _) => ServerState::Down(why),
        (ConnectionState::Up(_), true) => ServerState::Resting,
        (ConnectionState::Up(_), false) => ServerState::Up,
    }
}

fn listed(server: &Server) -> Vec<ListedTool> {
    let server_state = state_of(server);
    let catalog = lock::read(&server.catalog);
    let entries = catalog.entries().map(|Entry { definition, state }| {
        let (tool, trouble) = match state {
            State::Offered(offer) => (Some(&offer.tool), None),
            State::Unusable(error) => (None, Some(error.in_short())),
            State::Unclassified | State::TurnedOff => (None, None),
        };
        // A pin of an earlier version does not cover icons.
        let covers_icons = tool.is_some_and(|tool| {
            tool.definition_digest == definition.digest
                || tool.definition_digest != definition.earlier_digest
        });
        ListedTool {
            server: server.spec.name.clone(),
            tool: definition.name.clone(),
            mode: tool.map(|tool| tool.mode),
            is_off: matches!(state, State::TurnedOff),
            trouble,
            standing: tool.map(|tool| tool.standing),
            redacted: tool.map(|tool| tool.redacted.clone()).unwrap_or_default(),
            flow: tool.map(|tool| tool.flow.clone()).unwrap_or_default(),
            title: definition.title.clone(),
            description: definition.description.clone(),
            input_schema: definition.input_schema.clone(),
            output_schema: definition.output_schema.clone(),
            icons: definition.icons.clone().filter(|_| covers_icons),
            is_meta_accepted: tool.is_some_and(|tool| {
                definition.meta.as_ref().is_some_and(|meta| server.accepts_meta(&tool.name, meta))
            }),
            meta: definition.meta.clone(),
            definition_digest: definition.digest,
            bound_digest: tool.map_or(definition.digest, |tool| tool.definition_digest),
            server_state: server_state.clone(),
        }
    });
    entries.collect()
}

#[async_trait]
impl ToolServers for Servers {
    fn tool(&self, name: &ToolName) -> Option<Arc<Tool>> {
        let server = self.servers.get(name.server())?;
        lock::read(&server.catalog).offer(name).map(|offer| Arc::clone(&offer.tool))
    }

    fn tools(&self) -> Vec<Arc<Tool>> {
        let of_server = |server: &Arc<Server>| {
            let tools = lock::read(&server.catalog);
            tools.offers().map(|offer| Arc::clone(&offer.tool)).collect::<Vec<_>>()
        };
        let mut tools: Vec<_> = self.servers.values().flat_map(of_server).collect();
        tools.sort_by(|a, b| a.name.cmp(&b.name));
        tools
    }

    /// Read from the configuration: the server may have withdrawn the tool, or be down.
    fn has_redacted(&self) -> bool {
        self.servers.values().any(|server| {
            let ServerSpec { tool, tools, .. } = &server.spec;
            let mut named = std::iter::once(tool).chain(tools.values());
            named.any(|spec| spec.hidden().next().is_some())
        })
    }

    fn executor_id(&self, server: &str) -> Option<String> {
        self.servers.get(server).map(|server| server.spec.executor_id.clone())
    }

    async fn prepare(&self, call: &ServerCall) -> Result<Hold, Failed> {
        match self.servers.get(call.tool.name.server()) {
            Some(server) => Ok(Box::new(call::prepare(server).await?)),
            None => Err(call::unavailable(NO_SERVER)),
        }
    }

    async fn dispatch(&self, call: &ServerCall, sending: &Sending) -> Effect {
        match self.servers.get(call.tool.name.server()) {
            Some(server) => {
                // The listener lives as long as the call: later progress is dropped.
                let listener = Listener::new(sending.run_id, Arc::clone(&self.progress));
                let trace = (self.tracing)();
                call::dispatch(server, call, sending, trace, &listener, &self.late).await
            }
            None => Effect::Failed(call::unavailable(NO_SERVER)),
        }
    }
}
