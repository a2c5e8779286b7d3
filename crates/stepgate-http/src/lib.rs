//! HTTP: one table of routes, from which both the router and the OpenAPI document are built.
//!
//! A request passes the middleware in `admit.rs` (authentication and rate limit) and goes to its handler. Every
//! failure is answered in JSON, or as a page in the console. Nothing here decides anything about a step.

pub(crate) mod admit;
mod approvals;
pub mod body;
mod connections;
mod console;
mod events;
mod failed_logins;
mod grants;
mod labels;
mod history;
mod metrics;
mod network;
mod openapi;
mod page;
mod policy;
mod problem;
mod public_url;
mod rate;
mod refusals;
mod routes;
mod runs;
mod serve_config;
mod sessions;
mod shares;
mod requests;
mod steps;
mod stops;
mod archives;
mod erasable;
mod holds;
mod budgets;
mod system;
mod tokens;
mod tools;
pub mod server;
pub mod sse;
pub mod local;
mod turns;
#[cfg(test)]
mod tests;

use std::net::IpAddr;
use std::sync::{Arc, OnceLock};

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware;
use axum::response::Response;
use stepgate_core::ids::PrincipalId;
use stepgate_core::ports::StoreError;
use stepgate_gateway::disk::Disk;
use stepgate_gateway::service::Service;
use stepgate_gateway::tokens::Role;
use stepgate_gateway::turns::Conversations;

use crate::local::Clients;

pub use admit::{Caller, INPUT_HEADER, LOCAL_HEADER, Peer, Proposer};
use admit::{Operator, Reader, Watcher};
use body::JsonBody;
use connections::Connections;
use console::Logins;
use failed_logins::FailedLogins;
pub(crate) use metrics::{CountedConnection, Metrics};
pub use metrics::{Figures, Labels, Number, Values};
use network::Network;
pub use problem::Problem;
pub use public_url::{PublicUrl, Scheme};
use rate::Rates;
use refusals::Limit;
pub use routes::{Access, Route};
use routes::{Id, Params};
pub use serve_config::{CONNECTIONS_CEILING, SERVE_CEILING_MS, ServeConfig};
use shares::Shares;

/// The host name that clients on this machine use for the gateway.
pub const LOCAL_HOST: &str = "stepgate";
/// In a request the session to join, in a response the session that was joined.
pub const SESSION_HEADER: &str = "stepgate-session";
/// The run of an answer.
pub const RUN_HEADER: &str = "stepgate-run";
/// The step's index in its session.
pub(crate) const STEP_INDEX_HEADER: &str = "stepgate-step-index";
/// Set if the answer was recorded before this request (idempotent replay).
pub(crate) const REPLAYED_HEADER: &str = "idempotent-replayed";

/// Most connections over the data directory's socket at one time. They have their own limit, so that clients that use
/// up all other connections do not lock the operator out.
const LOCAL_CONNECTIONS_MAX: usize = 512;
/// How many of them agents leave free for the owner's own commands.
const LOCAL_CONNECTIONS_RESERVED: usize = 64;
/// Operators keep one part in so many of the memory for bodies.
const BODY_MEMORY_RESERVE: u64 = 8;
/// Memory for bodies, at least, in bodies of the largest size: with less, one alone could not be read.
const BODIES_MIN: u64 = 4;

/// Where the access log goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessLog {
    /// To the log.
    Lines,
    /// Nowhere.
    Silent,
}

/// What the callers of one listener share.
struct Listener {
    connections: Arc<Connections>,
    /// Requests under way.
    requests: Arc<Shares>,
}

impl Listener {
    fn new(connections_max: usize, reserved: usize, unknown_max: usize) -> Self {
        let requests = Shares::new(count(connections_max), count(reserved));
        Self { connections: Connections::new(connections_max, unknown_max), requests }
    }
}

fn count(of: usize) -> u64 {
    u64::try_from(of).unwrap_or(u64::MAX)
}

/// Everything that a handler needs.
pub struct App {
    /// What every interface uses.
    pub service: Arc<Service>,
    pub(crate) limits: ServeConfig,
    pub(crate) metrics: Metrics,
    /// The agent, if one is configured.
    pub agent: OnceLock<Arc<Conversations>>,
    /// Programs on this machine that use MCP through the socket.
    clients: Clients,
    /// The URL by which browsers reach the gateway.
    pub public_url: PublicUrl,
    logins: Logins,
    failed_logins: FailedLogins,
    rates: Rates,
    network: Listener,
    local: Listener,
    /// Memory for bodies.
    bodies: Arc<Shares>,
    log: AccessLog,
    /// Routes of other crates.
    mounted: Vec<Route>,
}

impl App {
    /// An HTTP interface for this service. Other crates add their routes to it.
    pub fn new(
        service: Arc<Service>,
        limits: ServeConfig,
        public_url: PublicUrl,
        log: AccessLog,
        mounted: Vec<Route>,
    ) -> Arc<Self> {
        let (most, reserved) = (limits.connections_max, limits.connections_reserved);
        let network = Listener::new(most, reserved, limits.connections_per_address_max);
        let (most, reserved) = (LOCAL_CONNECTIONS_MAX, LOCAL_CONNECTIONS_RESERVED);
        let local = Listener::new(most, reserved, most);
        let memory = limits.body_bytes_max.saturating_mul(BODIES_MIN);
        let memory = limits.body_memory_bytes_max.max(memory);
        Arc::new(Self {
            metrics: Metrics::new(),
            agent: OnceLock::new(),
            clients: Clients::default(),
            logins: Logins::new(&limits),
            failed_logins: FailedLogins::default(),
            rates: Rates::new(&limits),
            network,
            local,
            bodies: Shares::new(memory, memory / BODY_MEMORY_RESERVE),
            service,
            limits,
            public_url,
            log,
            mounted,
        })
    }

    /// All metrics, at this moment.
    pub async fn figures(&self) -> Result<Vec<Figures>, StoreError> {
        self.metrics.figures(&self.service).await
    }

    /// Refuses a caller's proposal while the disk has only what is reserved for operators.
    pub fn may_record(&self, caller: &Caller) -> Result<(), Problem> {
        if self.has_space(caller) {
            return Ok(());
        }
        self.metrics.refusals.count(Limit::FreeSpace, &caller.principal_id);
        Err(Problem::storage_low())
    }

    /// Whether the disk has space for what this caller adds.
    fn has_space(&self, caller: &Caller) -> bool {
        match caller.role {
            Role::Agent => !self.disk().is_some_and(Disk::is_low),
            Role::Operator | Role::Auditor => true,
        }
    }

    /// The disk of the data directory.
    fn disk(&self) -> Option<&Disk> {
        self.service.control.as_ref().map(|control| &control.disk)
    }

    /// The listener that a request came through.
    fn listener(&self, peer: Peer) -> &Listener {
        match peer {
            Peer::Address(_) => &self.network,
            Peer::Local(_) => &self.local,
        }
    }

    fn count_request(&self, who: &PrincipalId) -> Result<(), Problem> {
        self.rates.request(who).map_err(|wait_s| self.too_many(Limit::RequestRate, who, wait_s))
    }

    /// Counts a failed authentication, or refuses to say more.
    fn count_failure(&self, address: IpAddr) -> Result<(), Problem> {
        let network = Network::of(address);
        self.failed_logins.note(&self.service, network);
        let failure = self.rates.failure(network);
        failure.map_err(|wait_s| self.too_many(Limit::FailedAuth, &network, wait_s))
    }

    fn too_many(&self, limit: Limit, who: &dyn std::fmt::Display, wait_s: u64) -> Problem {
        self.metrics.refusals.count(limit, who);
        Problem::too_many(wait_s)
    }
}

/// Builds the router. Every request needs a [`Peer`] among its extensions.
pub fn router(app: &Arc<App>) -> Router {
    let mut router = Router::new();
    for route in routes::all(&app.mounted) {
        router = router.route(route.path, route.handler);
    }
    for (path, _, handler) in console::PAGES {
        router = router.route(path, handler());
    }
    router
        .fallback(not_found)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(middleware::from_fn_with_state(Arc::clone(app), admit::admit))
        .with_state(Arc::clone(app))
}

async fn not_found(request: Request) -> Response {
    console::refused(request.uri().path(), Problem::not_found())
}

async fn method_not_allowed(State(app): State<Arc<App>>, request: Request) -> Response {
    let path = request.uri().path();
    let allowed = routes::methods_of(&app.mounted, path);
    console::refused(path, Problem::method_not_allowed(&allowed))
}
