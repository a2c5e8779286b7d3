//! The MCP interface. Every `tools/call` is a step, and nothing else is done here.
//!
//! ```text
//! http.rs        the HTTP handler of /mcp: sessions, and whether the answer was delivered
//! envelope.rs    strict parsing: whether the bytes are a JSON-RPC message
//! delivery.rs    whether an answer was delivered
//! listening.rs   streams of clients that only listen
//! handler.rs     the SDK's handler interface: versions, lists, calls, tasks, changes
//! config.rs      `[mcp]` of the configuration
//! catalog.rs     which tools are offered, under which names, to which principal
//! instructions.rs  the instructions for clients
//! call.rs        a call → a proposal → the gate → an answer
//! relay.rs       progress notifications during a call
//! waiting.rs     a call that waits for a person
//! questions.rs   open approvals: an equal call joins one instead of requesting another
//! unanswered.rs  calls whose answer was not delivered: an equal call is joined to them
//! under_way.rs   request ids in use in a session, each for one request
//! bridge.rs      `stepgate mcp`: the same interface over stdio
//! ```
//!
//! Only this crate serves MCP with the SDK; `stepgate-exec` uses its client side.

pub mod bridge;
mod call;
mod catalog;
mod config;
mod delivery;
mod envelope;
mod handler;
mod http;
mod instructions;
mod listening;
mod questions;
mod relay;
mod result;
mod sessions;
mod tasks;
mod unanswered;
mod under_way;
mod waiting;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;

use axum::routing::{self, MethodFilter};
use rmcp::transport::StreamableHttpServerConfig;
use rmcp::transport::streamable_http_server::tower::StreamableHttpService;
use stepgate_core::approval::Approval;
use stepgate_core::ids::RunId;
use stepgate_core::lock;
use stepgate_core::ports::{ApprovalQuery, StoreError};
use stepgate_core::time::Timestamp;
use stepgate_exec::servers::News;
use stepgate_gateway::control;
use stepgate_gateway::service::Service;
use stepgate_http::{Access, Proposer, PublicUrl, Route};
use tokio::sync::watch;

use catalog::Catalog;
pub use config::McpConfig;
use delivery::Streams;
use handler::Handler;
use questions::Questions;
use sessions::{Restored, Sessions};
use unanswered::Unanswered;
use under_way::UnderWay;

/// The session header of clients that make a handshake.
pub(crate) const SESSION_HEADER: &str = "mcp-session-id";

/// Marks a message that came over stdio, where no headers repeat arguments.
const BRIDGE_HEADER: &str = "stepgate-bridge";

const LOOPBACK_ORIGINS: [&str; 6] = [
    "http://localhost:*",
    "http://127.0.0.1:*",
    "http://[::1]:*",
    "https://localhost:*",
    "https://127.0.0.1:*",
    "https://[::1]:*",
];

const ENDED_MAX: usize = 1000;

/// Most approvals, newest first, whose runs are examined when the gateway starts.
const DECIDED_MAX: usize = 1000;
/// A run that takes longer than this after its approval is not found at the start.
const RUN_MAX: Duration = Duration::from_secs(3600);

/// Settings of the MCP interface.
pub struct McpSettings {
    /// What the configuration says of it.
    pub config: McpConfig,
    /// The server whose tools keep their own names.
    pub own_names: Option<String>,
    /// Whether a browser can open the approval pages: the gateway listens on a network address.
    pub has_pages: bool,
    /// How often to poll whether the tools have changed.
    pub look: Duration,
}

/// The MCP interface. Clones share their state.
#[derive(Clone)]
pub struct Door {
    shared: Arc<Shared>,
    transport: StreamableHttpService<Handler, Sessions>,
}

/// The state that all sessions and calls share.
struct Shared {
    service: Arc<Service>,
    settings: McpSettings,
    catalog: RwLock<Arc<Catalog>>,
    /// Incremented when the offered tools change.
    changes: watch::Sender<u64>,
    unanswered: Unanswered,
    questions: Questions,
    under_way: Arc<UnderWay>,
    streams: Streams,
    /// The base URL of the approval pages, if a browser can open them.
    pages: Option<PublicUrl>,
    /// Sessions that their clients have ended, oldest first.
    ended: Mutex<VecDeque<String>>,
}

impl Shared {
    /// Notes that a client has ended its session. Lost at a restart, which does no harm.
    fn end(&self, name: String) {
        let mut ended = lock::locked(&self.ended);
        if ended.len() >= ENDED_MAX {
            ended.pop_front();
        }
        ended.push_back(name);
    }

    fn is_ended(&self, name: &str) -> bool {
        let ended = lock::locked(&self.ended);
        ended.iter().any(|other| other == name)
    }

    fn catalog(&self) -> Arc<Catalog> {
        Arc::clone(&lock::read(&self.catalog))
    }

    /// Whether a call that ended at this time may still be joined.
    fn is_young(&self, ended: Timestamp) -> bool {
        self.unanswered.is_young(ended, self.service.gate.world.now())
    }
}

impl Door {
    /// The interface for this service. A tool whose name another tool has is not offered.
    pub fn new(
        service: &Arc<Service>,
        settings: McpSettings,
        body_bytes_max: u64,
        public_url: &PublicUrl,
    ) -> Self {
        let (catalog, _) = Catalog::of(service, settings.own_names.as_deref());
        let shared = Arc::new(Shared {
            service: Arc::clone(service),
            catalog: RwLock::new(Arc::new(catalog)),
            changes: watch::channel(0).0,
            unanswered: Unanswered::new(settings.config.join),
            questions: Questions::default(),
            under_way: Arc::default(),
            streams: Streams::default(),
            pages: settings.has_pages.then(|| public_url.clone()),
            ended: Mutex::default(),
            settings,
        });
        let mut config = StreamableHttpServerConfig::default()
            // A client that made a handshake has stated its capabilities and wants notifications of changes.
            .with_legacy_session_mode(true)
            .with_max_request_body_bytes(usize::try_from(body_bytes_max).unwrap_or(usize::MAX))
            .with_allowed_hosts(hosts(&shared.settings.config, public_url))
            .with_allowed_origins(origins(&shared.settings.config, public_url))
            .enforce_origin_validation();
        config.session_store = Some(Arc::new(Restored));
        config.json_response = true;
        let handlers = Arc::clone(&shared);
        let factory = move || Ok(Handler::new(Arc::clone(&handlers)));
        let sessions = Sessions::new(Arc::clone(&shared));
        Self { shared, transport: StreamableHttpService::new(factory, sessions, config) }
    }

    /// Takes over the calls of the process before, so that equal calls can join them. Calls that were under way when
    /// it stopped were not answered: recovery has finished some, and others still wait. Calls that a person decided
    /// and that ended recently were answered with a notice that promises joining, or their final answer may have
    /// been delivered: nothing records which.
    pub async fn take_up(&self, finished: &[RunId]) -> Result<(), StoreError> {
        let store = &self.shared.service.gate.store;
        for run_id in self.decided_lately().await? {
            if let Some(known) = store.recall(run_id).await?
                && let Some(ended) = known.record.as_ref().and_then(|record| record.body().ok())
                && self.shared.is_young(ended.completed_at)
            {
                self.shared.unanswered.take_up(&known.run);
            }
        }
        let unfinished = store.unfinished_runs().await?;
        for run_id in finished.iter().chain(&unfinished) {
            if let Some(known) = store.recall(*run_id).await? {
                self.shared.unanswered.take_up(&known.run);
            }
        }
        Ok(())
    }

    /// Runs whose approval was decided (or expired) so recently that they may have ended within the join time.
    async fn decided_lately(&self) -> Result<Vec<RunId>, StoreError> {
        let gate = &self.shared.service.gate;
        let query = ApprovalQuery { limit: DECIDED_MAX, ..ApprovalQuery::default() };
        let approvals = gate.store.approvals(query).await?;
        let oldest = self.shared.settings.config.join + RUN_MAX;
        let now = gate.world.now();
        let is_late = |approval: &&Approval| {
            let resolution = approval.resolution.as_ref();
            resolution
                .is_some_and(|it| u128::from(now.since_ms(it.ts_resolved)) <= oldest.as_millis())
        };
        // The store gives the newest first, but the oldest must be joined first.
        Ok(approvals.iter().rev().filter(is_late).map(|approval| approval.tool_run_id).collect())
    }

    /// The routes of `/mcp`, for the router of `stepgate-http`.
    pub fn routes(&self) -> Vec<Route> {
        let route = |method, filter| {
            let door = self.clone();
            let serve = move |Proposer(app, caller), request| {
                let door = door.clone();
                async move { http::serve(&door, &app, caller, request).await }
            };
            Route::new(method, "/mcp", Access::Proposer, routing::on(filter, serve))
        };
        let speak = "Speak MCP: one message, answered as JSON or as a stream";
        let hear = "Hear what the MCP server says by itself";
        vec![
            route("POST", MethodFilter::POST).named("mcp_speak", speak),
            route("GET", MethodFilter::GET).named("mcp_hear", hear),
            route("DELETE", MethodFilter::DELETE).named("mcp_end", "End an MCP session"),
        ]
    }

    /// Polls whether the tools, or what policies permit, have changed.
    pub fn begin(&self) {
        let shared = Arc::clone(&self.shared);
        tokio::spawn(async move {
            let own_names = shared.settings.own_names.as_deref();
            let mut seen = shared.catalog().look();
            // What is off at the start was logged by start-up.
            let mut told = Catalog::of(&shared.service, own_names).1;
            loop {
                tokio::time::sleep(shared.settings.look).await;
                let (catalog, off) = Catalog::of(&shared.service, own_names);
                let news = off.iter().filter(|off| !told.contains(off));
                news.for_each(|off| control::tell(&News::Off(off.clone())));
                told = off;
                let look = catalog.look();
                if look == seen {
                    continue;
                }
                *lock::write(&shared.catalog) = Arc::new(catalog);
                seen = look;
                shared.changes.send_modify(|count| *count = count.wrapping_add(1));
            }
        });
    }
}

/// The origins that may call: the gateway's own, the configured ones, and, if the gateway's URL is a loopback URL,
/// every port of the loopback names. With DNS rebinding a page still has its own name as origin, so it is refused.
/// A page on another local port has no token, and gets none here.
fn origins(config: &McpConfig, public_url: &PublicUrl) -> Vec<String> {
    let local = if public_url.is_loopback() { LOOPBACK_ORIGINS.as_slice() } else { &[] };
    let local = local.iter().map(|origin| (*origin).to_owned());
    let configured = config.allowed_origins.iter().cloned();
    [public_url.with_port()].into_iter().chain(local).chain(configured).collect()
}

/// The host names under which this gateway may be called. Prevents DNS rebinding.
fn hosts(config: &McpConfig, public_url: &PublicUrl) -> Vec<String> {
    let own = ["localhost", "127.0.0.1", "::1", stepgate_http::LOCAL_HOST, public_url.host()];
    own.into_iter().map(str::to_owned).chain(config.allowed_hosts.iter().cloned()).collect()
}
