//! HTTP: one table of routes, from which both the router and the OpenAPI document are built.
//!
//! A request passes the middleware in `admit.rs` (authentication and rate limit) and goes to its handler. Every
//! failure is answered in JSON, or as a page in the console. Nothing here decides anything about a step.

pub(crate) mod admit;
mod approvals;
pub mod body;
mod console;
mod events;
mod grants;
mod history;
mod metrics;
mod openapi;
mod page;
mod places;
mod policy;
mod problem;
mod public_url;
mod rate;
mod routes;
mod runs;
mod sessions;
mod steps;
mod system;
mod tokens;
mod tools;
pub mod server;
pub mod sse;
pub mod local;
mod turns;
#[cfg(test)]
mod tests;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware;
use axum::response::Response;
use stepgate_gateway::service::Service;
use stepgate_gateway::turns::Conversations;

use crate::local::Clients;

pub use admit::{Caller, INPUT_HEADER, LOCAL_HEADER, Peer, Proposer};
use admit::{Operator, Reader, Watcher};
use body::JsonBody;
use console::Logins;
pub(crate) use metrics::{Metrics, OpenConnection};
use places::Places;
pub use problem::Problem;
pub use public_url::{PublicUrl, Scheme};
use rate::Rates;
pub use routes::{Access, Route};
use routes::{Id, Params};

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

/// Limits of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServeLimits {
    /// Most connections at one time.
    pub connections_max: usize,
    /// Timeout for reading a request's head.
    pub head_timeout: Duration,
    /// Timeout for reading a request's body.
    pub body_timeout: Duration,
    /// Longest body that is read at all. The gate has its own limit for proposals.
    pub body_bytes_max: u64,
    /// Longest wait that a caller can ask for with `Prefer: wait`.
    pub wait_max: Duration,
    /// How long requests are still accepted after the signal to stop.
    pub drain: Duration,
    /// How long running steps get to finish at shutdown.
    pub shutdown: Duration,
    /// Rate limit: average requests per second of one principal.
    pub requests_per_second_max: u32,
    /// Rate limit: largest burst of one principal.
    pub requests_burst_max: u32,
    /// Rate limit: failed authentications per minute from one address.
    pub failed_auth_per_minute_max: u32,
    /// Idle timeout of a console login.
    pub login_idle_max: Duration,
    /// Longest lifetime of a console login.
    pub login_life_max: Duration,
}

impl Default for ServeLimits {
    fn default() -> Self {
        Self {
            connections_max: 1024,
            head_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(30),
            body_bytes_max: 8 * 1024 * 1024,
            wait_max: Duration::from_secs(60),
            drain: Duration::ZERO,
            shutdown: Duration::from_secs(10),
            requests_per_second_max: 10_000,
            requests_burst_max: 20_000,
            failed_auth_per_minute_max: 60,
            login_idle_max: Duration::from_secs(30 * 60),
            login_life_max: Duration::from_secs(12 * 60 * 60),
        }
    }
}

/// Where the access log goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessLog {
    /// To the log.
    Lines,
    /// Nowhere.
    Silent,
}

/// Everything that a handler needs.
pub struct App {
    /// What every interface uses.
    pub service: Arc<Service>,
    pub(crate) limits: ServeLimits,
    pub(crate) metrics: Metrics,
    /// The agent, if one is configured.
    pub agent: OnceLock<Arc<Conversations>>,
    /// Programs on this machine that use MCP through the socket.
    clients: Clients,
    public_url: PublicUrl,
    logins: Logins,
    rates: Rates,
    places: Arc<Places>,
    log: AccessLog,
    /// Routes of other crates.
    mounted: Vec<Route>,
}

impl App {
    /// An HTTP interface for this service. Other crates add their routes to it.
    pub fn new(
        service: Arc<Service>,
        limits: ServeLimits,
        public_url: PublicUrl,
        log: AccessLog,
        mounted: Vec<Route>,
    ) -> Arc<Self> {
        Arc::new(Self {
            metrics: Metrics::new(),
            agent: OnceLock::new(),
            clients: Clients::default(),
            logins: Logins::new(&limits),
            rates: Rates::new(&limits),
            places: Places::of(limits.connections_max),
            service,
            limits,
            public_url,
            log,
            mounted,
        })
    }

    /// The URL by which browsers reach the gateway.
    pub fn public_url(&self) -> &PublicUrl {
        &self.public_url
    }

    /// Charges a body of this caller to its rate limit.
    pub fn count_body(&self, caller: &Caller, bytes: u64) {
        self.rates.body(&caller.principal_id, bytes);
    }
}

/// Builds the router. Every request needs a [`Peer`] among its extensions.
pub fn router(app: &Arc<App>) -> Router {
    let mut router = Router::new();
    for route in routes::all(&app.mounted) {
        router = router.route(route.path, route.handler);
    }
    for (path, handler) in console::pages() {
        router = router.route(path, handler);
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
