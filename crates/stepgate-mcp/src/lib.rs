//! MCP: the door for agents that speak it. Every `tools/call` is a step, and nothing else is done here.
//!
//! ```text
//! http.rs        /mcp: whose session, and whether the answer arrived
//! envelope.rs    strict bytes, and what is a message at all
//! delivery.rs    whether an answer arrived
//! listening.rs   streams of those who only listen
//! handler.rs     what the protocol asks: versions, lists, calls, tasks, changes
//! catalog.rs     which tools, under which names, to whom
//! instructions.rs  what clients are told before they call
//! call.rs        a call → a proposal → the gate → an answer
//! relay.rs       how a call goes, told while it does
//! waiting.rs     an answer that a person has to give first
//! questions.rs   questions that are open: an equal call joins one instead of asking again
//! words.rs       what the model is told where there is no result
//! unanswered.rs  calls whose answer nobody has got: the same call again is joined to them
//! under_way.rs   ids that are in use in a session, each for one request
//! bridge.rs      `stepgate mcp`: the same door for clients that start a process
//! ```
//!
//! The SDK is known to this folder alone.

pub mod bridge;
mod call;
mod catalog;
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
mod words;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use axum::extract::State;
use axum::routing::{self, MethodFilter};
use rmcp::transport::StreamableHttpServerConfig;
use rmcp::transport::streamable_http_server::tower::StreamableHttpService;
use stepgate_core::approval::Approval;
use stepgate_core::ids::RunId;
use stepgate_core::ports::{ApprovalQuery, StoreError};
use stepgate_core::time::Timestamp;
use stepgate_exec::servers::News;
use stepgate_gateway::control;
use stepgate_gateway::service::Service;
use stepgate_http::{Access, App, Proposer, PublicUrl, Route};
use tokio::sync::watch;

use catalog::Catalog;
use delivery::Streams;
use handler::Handler;
use questions::Questions;
use sessions::{Restored, Sessions};
use unanswered::Unanswered;
use under_way::UnderWay;

/// The session of clients that shake hands.
pub(crate) const SESSION_HEADER: &str = "mcp-session-id";

/// Says that a message came over standard input, where there are no headers to repeat arguments in.
const BRIDGE_HEADER: &str = "stepgate-bridge";

/// The origins of this machine, with any port.
const LOOPBACK_ORIGINS: [&str; 6] = [
    "http://localhost:*",
    "http://127.0.0.1:*",
    "http://[::1]:*",
    "https://localhost:*",
    "https://127.0.0.1:*",
    "https://[::1]:*",
];

/// Most ended sessions that are remembered.
const ENDED_MAX: usize = 1000;

/// Most approvals, the newest first, whose runs are looked at when the gateway starts.
const DECIDED_MAX: usize = 1000;
/// A run that goes on for longer after it was approved is not looked for.
const RUN_MAX: Duration = Duration::from_secs(3600);

/// What the door may cost, and how it behaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct McpSettings {
    /// How long a call waits for a person before it is answered with a notice.
    pub wait: Duration,
    /// How long after its end a call that nobody got the answer of can be joined.
    pub join: Duration,
    /// Most sessions of clients that shake hands, at one time.
    pub sessions_max: usize,
    /// How long such a session is kept in memory when nothing happens in it.
    pub session_idle: Duration,
    /// Browser origins that may call, such as `https://app.example.com:443`.
    pub allowed_origins: Vec<String>,
    /// Names of this gateway beside those of the loopback addresses.
    pub allowed_hosts: Vec<String>,
    /// The server whose tools keep their own names.
    pub own_names: Option<String>,
    /// Whether the approvals' pages can be opened: somebody listens on an address.
    pub has_pages: bool,
    /// How often it is looked whether the tools have changed.
    pub look: Duration,
}

impl Default for McpSettings {
    fn default() -> Self {
        Self {
            wait: Duration::from_secs(45),
            join: Duration::from_secs(300),
            sessions_max: 1000,
            session_idle: Duration::from_secs(300),
            allowed_origins: Vec::new(),
            allowed_hosts: Vec::new(),
            own_names: None,
            has_pages: true,
            look: Duration::from_secs(1),
        }
    }
}

/// The door. Cloned, it is the same one.
#[derive(Clone)]
pub struct Door {
    shared: Arc<Shared>,
    transport: StreamableHttpService<Handler, Sessions>,
}

/// What every session and every call shares.
struct Shared {
    service: Arc<Service>,
    settings: McpSettings,
    catalog: RwLock<Arc<Catalog>>,
    /// Counts the changes of what is offered.
    changes: watch::Sender<u64>,
    unanswered: Arc<Unanswered>,
    questions: Questions,
    under_way: Arc<UnderWay>,
    streams: Arc<Streams>,
    /// Where the approvals' pages are, if anybody can open them.
    pages: Option<PublicUrl>,
    /// Sessions that their clients have ended, the oldest first.
    ended: Mutex<VecDeque<String>>,
}

impl Shared {
    /// A client has ended its session. A later process would not know, and no harm is done by that.
    fn end(&self, name: String) {
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        if ended.len() >= ENDED_MAX {
            ended.pop_front();
        }
        ended.push_back(name);
    }

    fn is_ended(&self, name: &str) -> bool {
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        ended.iter().any(|other| other == name)
    }

    fn catalog(&self) -> Arc<Catalog> {
        Arc::clone(&self.catalog.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Door {
    /// A door to this service. A tool whose name another one has is not offered.
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
            unanswered: Arc::new(Unanswered::new(settings.join)),
            questions: Questions::default(),
            under_way: Arc::default(),
            streams: Arc::default(),
            pages: settings.has_pages.then(|| public_url.clone()),
            ended: Mutex::default(),
            settings,
        });
        let mut config = StreamableHttpServerConfig::default()
            // A client that shook hands has told what it can do, and wants to hear of changes.
            .with_legacy_session_mode(true)
            .with_max_request_body_bytes(usize::try_from(body_bytes_max).unwrap_or(usize::MAX))
            .with_allowed_hosts(hosts(&shared.settings, public_url))
            .with_allowed_origins(origins(&shared.settings, public_url))
            .enforce_origin_validation();
        config.session_store = Some(Arc::new(Restored));
        config.json_response = true;
        let handlers = Arc::clone(&shared);
        let factory = move || Ok(Handler::new(Arc::clone(&handlers)));
        let sessions = Sessions::new(Arc::clone(&shared));
        Self { shared, transport: StreamableHttpService::new(factory, sessions, config) }
    }

    /// Takes up the calls that were under way when the gateway stopped: nobody got their answers. Some
    /// were finished by recovery since, and some still wait. So are those that a person decided on and
    /// that ended a while ago: they were answered with a notice, which promises to join them, or the
    /// answer of some may have arrived, which nothing tells.
    pub async fn take_up(&self, finished: &[RunId]) -> Result<(), StoreError> {
        let store = &self.shared.service.gate.store;
        for run_id in self.decided_lately().await? {
            if let Some(known) = store.recall(run_id).await?
                && let Some(ended) = known.record.as_ref().and_then(|record| record.body().ok())
                && self.is_young(ended.completed_at)
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

    fn is_young(&self, ended: Timestamp) -> bool {
        self.shared.unanswered.is_young(ended, self.shared.service.gate.world.now())
    }

    /// Runs that a person, or time, decided on not so long ago that they could not have ended lately.
    async fn decided_lately(&self) -> Result<Vec<RunId>, StoreError> {
        let gate = &self.shared.service.gate;
        let query = ApprovalQuery { limit: DECIDED_MAX, ..ApprovalQuery::default() };
        let approvals = gate.store.approvals(query).await?;
        let oldest = self.shared.settings.join + RUN_MAX;
        let now = gate.world.now();
        let is_late = |approval: &&Approval| {
            let resolution = approval.resolution.as_ref();
            resolution
                .is_some_and(|it| u128::from(now.since_ms(it.ts_resolved)) <= oldest.as_millis())
        };
        // The newest come first, and the oldest is to be joined first.
        Ok(approvals.iter().rev().filter(is_late).map(|approval| approval.tool_run_id).collect())
    }

    /// The routes of `/mcp`, for the router that `stepgate-http` makes.
    pub fn routes(&self) -> Vec<Route> {
        let handler = |filter| {
            let door = self.clone();
            routing::on(filter, move |State(app): State<Arc<App>>, Proposer(caller), request| {
                let door = door.clone();
                async move { http::serve(&door, &app, caller, request).await }
            })
        };
        let route = |method, filter, summary| {
            Route::new(method, "/mcp", Access::Proposer, handler(filter), summary)
        };
        vec![
            route(
                "POST",
                MethodFilter::POST,
                "Speak MCP: one message, answered as JSON or as a stream",
            ),
            route("GET", MethodFilter::GET, "Hear what the MCP server says by itself"),
            route("DELETE", MethodFilter::DELETE, "End an MCP session"),
        ]
    }

    /// Looks again and again whether the tools, or what policies permit, have changed.
    pub fn begin(&self) {
        let shared = Arc::clone(&self.shared);
        tokio::spawn(async move {
            let own_names = shared.settings.own_names.as_deref();
            let mut seen = shared.catalog().look();
            // What is off at the start is told there.
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
                *shared.catalog.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(catalog);
                seen = look;
                shared.changes.send_modify(|count| *count = count.wrapping_add(1));
            }
        });
    }
}

/// The origins that may call: the gateway's own, those that the configuration names, and, where the gateway is
/// reached by a loopback name, every port of the loopback names. A page that was led here by DNS rebinding
/// still has its own name as origin; a page of another local port has no token, and gets none from here.
fn origins(settings: &McpSettings, public_url: &PublicUrl) -> Vec<String> {
    let local = match public_url.is_loopback() {
        true => LOOPBACK_ORIGINS.as_slice(),
        false => &[],
    };
    let local = local.iter().map(|origin| (*origin).to_owned());
    let configured = settings.allowed_origins.iter().cloned();
    [public_url.with_port()].into_iter().chain(local).chain(configured).collect()
}

/// The names under which this gateway may be called, so that no foreign name can be pointed at it.
fn hosts(settings: &McpSettings, public_url: &PublicUrl) -> Vec<String> {
    let own = ["localhost", "127.0.0.1", "::1", stepgate_http::LOCAL_HOST, public_url.host()];
    own.into_iter().map(str::to_owned).chain(settings.allowed_hosts.iter().cloned()).collect()
}
