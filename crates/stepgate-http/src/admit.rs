//! Middleware for every request: authentication, rate limit, and an access log line and metrics for each response.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use axum::body::{Body, HttpBody};
use axum::extract::{FromRequestParts, MatchedPath, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;
use http_body_util::BodyExt;
use stepgate_core::event::payload;
use stepgate_core::ids::{ArtifactId, PrincipalId};
use stepgate_core::spans::HTTP;
use stepgate_core::trace_context::{TRACEPARENT, TRACESTATE};
use stepgate_gateway::panics;
use stepgate_gateway::request::within;
use stepgate_gateway::text;
use stepgate_gateway::tokens::{BadToken, Role, TERMINAL_OPERATOR};
use tracing::{Instrument, Span, debug_span, field, info, info_span, warn};

use super::body::Metered;
use super::connections::{Connection, InUse};
use super::network::Network;
use super::refusals::Limit;
use super::shares::{Holder, Rank, Share};
use super::{AccessLog, App, Problem, console, routes, turns};
use crate::local::Process;

/// The role that a request claims on the data directory's socket, which only its owner can open: `agent` proposes,
/// `auditor` reads, `operator` decides.
pub const LOCAL_HEADER: &str = "stepgate-local";
/// What the standard input of a process on this machine is connected to.
pub const INPUT_HEADER: &str = "stepgate-input";

/// The id of a request. The caller may set it.
const REQUEST_ID_HEADER: &str = "x-request-id";
const REQUEST_ID_BYTES_MAX: usize = 128;

/// Longest part of a method that is shown, in characters: the client can make it as long as the head allows.
const METHOD_SHOWN_MAX: usize = 16;
/// `Retry-After` for a principal that has too many requests under way.
const PLACE_RETRY_S: u64 = 1;

/// Where a request comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// Over the network: it needs a token.
    Address(IpAddr),
    /// A process of the same user, or this process. It proposes as the directory's agent and reads what the
    /// directory holds. To decide, it needs a token or a person at its terminal.
    Local(Process),
}

/// The authenticated caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The principal.
    pub principal_id: PrincipalId,
    pub(crate) role: Role,
    /// The token, if the request had one.
    pub token_id: Option<ArtifactId>,
    /// Whether the request came through the data directory's socket, which only its owner can open.
    pub(crate) is_owner: bool,
}

impl Caller {
    /// The principal whose objects the caller may see: an agent only its own. None means all.
    pub(crate) fn sees(&self) -> Option<PrincipalId> {
        match self.role {
            Role::Agent => Some(self.principal_id.clone()),
            Role::Operator | Role::Auditor => None,
        }
    }

    /// The principal whose objects a list shows the caller, who asks for this one's; all principals' where none. An error
    /// where the caller asks for those of another, of which it sees none.
    pub(crate) fn lists(
        &self,
        asked: Option<PrincipalId>,
    ) -> Result<Option<PrincipalId>, NothingSeen> {
        match (self.sees(), asked) {
            (Some(own), Some(asked)) if own != asked => Err(NothingSeen),
            (Some(own), _) => Ok(Some(own)),
            (None, asked) => Ok(asked),
        }
    }

    /// Whether the token is still valid: a stream ends with its token.
    pub(crate) fn is_live(&self, app: &App) -> bool {
        self.token_id.is_none_or(|token| app.service.is_live(token))
    }

    pub(crate) fn may_see(&self, owner: &PrincipalId) -> bool {
        self.sees().is_none_or(|only| only == *owner)
    }
}

/// The caller may see nothing of what it asks for.
pub(crate) struct NothingSeen;

/// Sets the request id, and admits or refuses the request. The id is in all its log lines and in the response.
pub(super) async fn admit(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let request_id = request_id(&app, request.headers());
    let named = request_id.to_str().unwrap_or_default();
    let around = http_span(&request, named);
    let span = info_span!(parent: &around, "request", request_id = named);
    let told = told_of(&request, named);
    let answered = let_in(app, request, next).instrument(span).instrument(around.clone());
    let mut response = within(told, answered).await;
    note_status(&around, response.status());
    response.headers_mut().insert(REQUEST_ID_HEADER, request_id);
    response
}

/// What the events that a request makes say of it.
fn told_of(request: &Request, request_id: &str) -> Option<payload::Request> {
    match request.extensions().get::<Peer>()? {
        Peer::Address(address) => {
            Some(payload::Request { address: address.to_string(), id: request_id.to_owned() })
        }
        Peer::Local(_) => None,
    }
}

/// The span of a request, in the caller's trace where it has one.
fn http_span(request: &Request, request_id: &str) -> Span {
    let header = |name| request.headers().get(name).and_then(|value| value.to_str().ok());
    let method = text::shortened(request.method().as_str(), METHOD_SHOWN_MAX);
    // Only the pattern of a path: what a client writes there has no end.
    let route = request.extensions().get::<MatchedPath>().map(MatchedPath::as_str);
    debug_span!(
        target: HTTP,
        "request",
        otel.name = format_args!("{method} {}", route.unwrap_or_default()),
        otel.kind = "server",
        http.request.method = method.as_str(),
        http.route = route,
        http.response.status_code = field::Empty,
        stepgate.request_id = request_id,
        error.type = field::Empty,
        traceparent = header(TRACEPARENT),
        tracestate = header(TRACESTATE),
    )
}

fn note_status(span: &Span, status: StatusCode) {
    span.record("http.response.status_code", status.as_u16());
    if status.is_server_error() {
        span.record("error.type", status.as_str());
    }
}

/// The caller's own request id if it is short and printable, otherwise a new one.
fn request_id(app: &App, headers: &HeaderMap) -> HeaderValue {
    let is_fit = |value: &&HeaderValue| {
        let bytes = value.as_bytes();
        (1..=REQUEST_ID_BYTES_MAX).contains(&bytes.len()) && bytes.iter().all(u8::is_ascii_graphic)
    };
    let fresh = || HeaderValue::from_str(&app.service.gate.world.fresh_uuid().to_string());
    match headers.get(REQUEST_ID_HEADER).filter(is_fit) {
        Some(value) => value.clone(),
        None => fresh().unwrap_or_else(|_| HeaderValue::from_static("-")),
    }
}

async fn let_in(app: Arc<App>, mut request: Request, next: Next) -> Response {
    let start = Instant::now();
    let method = request.method().clone();
    let path = request.uri().path().to_owned();
    let is_page = console::is_page(&path);
    let admitted = match () {
        // Pages accept only the login cookie; everything else accepts only a token.
        () if is_page => console::enter(&app, &mut request),
        () if routes::is_public(&path) => {
            // A token is optional on public paths. A caller with a valid one may see more.
            if request.headers().contains_key(header::AUTHORIZATION)
                && let Ok(caller) = identify(&app, &request)
            {
                request.extensions_mut().insert(caller);
            }
            Ok(None)
        }
        () => identify(&app, &request).map(|caller| {
            let principal_id = caller.principal_id.clone();
            request.extensions_mut().insert(caller);
            Some(principal_id)
        }),
    };
    let who = admitted.as_ref().ok().cloned().flatten();
    let answer = async {
        let placed = Placed::of(&app, admitted?.as_ref(), &request)?;
        let response = answered(next, placed.metered(request)).await?;
        Ok(placed.keep(response))
    };
    let mut response = answer.await.unwrap_or_else(|problem| console::refused(&path, problem));
    if is_page {
        console::add_security_headers(&mut response);
    }
    if turns::is_agent_path(&path) {
        response = turns::as_invoke_result(response);
    }
    let line = Line { method: &method, path: &path, who: who.as_ref(), start };
    finish(&app, &line, response)
}

/// What a request holds while it is under way. A stream or a wait occupies its connection, so one principal could
/// otherwise use up all connections.
struct Placed {
    app: Arc<App>,
    /// Whose memory a body takes; none for a request that this process made itself, without a connection.
    holder: Option<Holder>,
    rank: Rank,
    /// The agent, if what the request sends and gets is likely to be stored.
    stores: Option<PrincipalId>,
    held: Option<(Share, Option<InUse>)>,
}

impl Placed {
    /// Takes a share of the requests under way for a caller that is known.
    fn of(app: &Arc<App>, who: Option<&PrincipalId>, request: &Request) -> Result<Self, Problem> {
        let extensions = request.extensions();
        let rank = match (who, extensions.get::<Caller>().map(|caller| caller.role)) {
            (None, _) | (Some(_), Some(Role::Agent)) => Rank::Ordinary,
            // Only people log in to pages.
            (Some(_), Some(Role::Operator | Role::Auditor) | None) => Rank::Reserve,
        };
        let agent = who.filter(|_| rank == Rank::Ordinary && request.method() == Method::POST);
        if let Some(agent) = agent {
            let may_send = app.rates.may_send(agent);
            may_send.map_err(|wait_s| app.too_many(Limit::AgentBytes, agent, wait_s))?;
        }
        let peer = extensions.get::<Peer>().copied();
        let holder = match (who, peer) {
            (Some(who), _) => Some(Holder::Principal(who.clone())),
            (None, Some(Peer::Address(address))) => Some(Holder::Network(Network::of(address))),
            (None, Some(Peer::Local(_)) | None) => None,
        };
        let held = match (who, peer) {
            (Some(who), Some(peer)) => {
                let requests = &app.listener(peer).requests;
                let share = requests.take(Holder::Principal(who.clone()), rank);
                let share = share
                    .ok_or_else(|| app.too_many(Limit::RequestsUnderWay, who, PLACE_RETRY_S))?;
                Some((share, extensions.get::<Connection>().map(Connection::use_it)))
            }
            (None, _) | (Some(_), None) => None,
        };
        Ok(Self { app: Arc::clone(app), holder, rank, stores: agent.cloned(), held })
    }

    /// The request, whose body takes a share of memory while it is read.
    fn metered(&self, request: Request) -> Request {
        match &self.holder {
            Some(holder) => {
                request.map(|body| Metered::body(&self.app, holder.clone(), self.rank, body))
            }
            None => request,
        }
    }

    /// Holds the share until a streamed response is sent. For a response that is complete already, releases it now.
    fn keep(self, response: Response) -> Response {
        let Self { app, stores, held, .. } = self;
        let charge = move |bytes: u64| {
            if let Some(agent) = &stores {
                app.rates.sent(agent, bytes);
            }
        };
        if let Some(bytes) = response.body().size_hint().exact() {
            charge(bytes);
            return response;
        }
        response.map(|body| {
            Body::new(body.map_frame(move |frame| {
                let _held_with_the_body = &held;
                let bytes = frame.data_ref().map_or(0, bytes::Bytes::len);
                charge(u64::try_from(bytes).unwrap_or(u64::MAX));
                frame
            }))
        })
    }
}

/// The handler's response. A panic in the handler becomes an internal error and ends only this request.
async fn answered(next: Next, request: Request) -> Result<Response, Problem> {
    panics::contained(next.run(request)).await.map_err(|_| Problem::internal())
}

fn identify(app: &App, request: &Request) -> Result<Caller, Problem> {
    let peer = request.extensions().get::<Peer>().copied();
    let caller = match caller_of(app, peer, request.headers()) {
        Ok(caller) => caller,
        Err(problem) => {
            if let Some(Peer::Address(address)) = peer {
                app.count_failure(address)?;
                warn!(%address, "a request from {address} without a valid token");
            }
            return Err(problem);
        }
    };
    if let (Some(Peer::Local(process)), "/mcp") = (peer, request.uri().path()) {
        let said = request.headers().get(INPUT_HEADER).and_then(|said| said.to_str().ok());
        app.clients.note(process, said);
    }
    app.count_request(&caller.principal_id)?;
    Ok(caller)
}

fn caller_of(app: &App, peer: Option<Peer>, headers: &HeaderMap) -> Result<Caller, Problem> {
    let is_owner = matches!(peer, Some(Peer::Local(_)));
    if headers.contains_key(header::AUTHORIZATION) {
        let token = bearer(headers).ok_or_else(Problem::unauthenticated)?;
        let now = app.service.gate.world.now();
        let token = app.service.tokens.authenticate(token, now).map_err(|bad| match bad {
            BadToken::Unknown => Problem::unauthenticated(),
            BadToken::Expired(at) => Problem::expired(at),
        })?;
        let (principal_id, role, token_id) = (token.principal_id, token.role, token.token_id);
        return Ok(Caller { principal_id, role, token_id: Some(token_id), is_owner });
    }
    let Some(Peer::Local(process)) = peer else { return Err(Problem::unauthenticated()) };
    let said = headers.get(LOCAL_HEADER).and_then(|said| said.to_str().ok());
    let (name, role) = match said.map(str::parse) {
        Some(Ok(Role::Agent)) => (Role::Agent.as_str(), Role::Agent),
        Some(Ok(Role::Auditor)) => (Role::Auditor.as_str(), Role::Auditor),
        Some(Ok(Role::Operator)) => {
            app.clients.person_at(process).map_err(Problem::no_person)?;
            (TERMINAL_OPERATOR, Role::Operator)
        }
        Some(Err(_)) | None => return Err(Problem::unauthenticated()),
    };
    let principal_id = PrincipalId::parse(name).map_err(|_| Problem::internal())?;
    Ok(Caller { principal_id, role, token_id: None, is_owner })
}

/// The token in `Authorization`, if that header occurs exactly once.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = one_header(headers, "authorization").ok()??.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// A header that may occur at most once.
pub(crate) fn one_header<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a str>, ()> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => value.to_str().map(Some).map_err(|_| ()),
        (Some(_), Some(_)) => Err(()),
    }
}

struct Line<'a> {
    method: &'a Method,
    path: &'a str,
    who: Option<&'a PrincipalId>,
    start: Instant,
}

fn finish(app: &App, line: &Line<'_>, mut response: Response) -> Response {
    let no_store = HeaderValue::from_static("no-store");
    response.headers_mut().entry(header::CACHE_CONTROL).or_insert(no_store);
    if app.service.is_draining() {
        // Clients that keep connections open make the next one to another node.
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    let status = response.status();
    let elapsed = line.start.elapsed();
    app.metrics.request(status, elapsed);
    if is_malformed(status) {
        app.metrics.malformed();
    }
    match app.log {
        AccessLog::Silent => {}
        AccessLog::Lines => {
            let who = line.who.map_or("-", PrincipalId::as_str);
            let ms = (elapsed.as_secs_f64() * 10_000.0).round() / 10.0;
            // The path has only ids, nothing secret. The query could contain anything, so it is not logged.
            let path = text::shortened(&text::printable(line.path), 256);
            // The method comes from the client and can be as long as the head allows.
            let method = text::shortened(line.method.as_str(), METHOD_SHOWN_MAX);
            let status = status.as_u16();
            info!(principal = who, status, ms, "{method} {path} {status} {ms:.1} ms {who}");
        }
    }
    response
}

/// Statuses of requests that a correct client does not send.
fn is_malformed(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::REQUEST_TIMEOUT
            | StatusCode::PAYLOAD_TOO_LARGE
            | StatusCode::UNSUPPORTED_MEDIA_TYPE
            | StatusCode::METHOD_NOT_ALLOWED
    )
}

/// The caller, if it has one of these roles.
fn caller(parts: &Parts, allowed: &[Role]) -> Result<Caller, Problem> {
    let caller = parts.extensions.get::<Caller>().ok_or_else(Problem::unauthenticated)?;
    if allowed.contains(&caller.role) { Ok(caller.clone()) } else { Err(Problem::forbidden()) }
}

/// Declares extractors: the app, and a caller that has one of these roles.
macro_rules! callers {
    ($($(#[$meta:meta])* $vis:vis $name:ident: [$($role:ident),+],)+) => {$(
        $(#[$meta])*
        $vis struct $name($vis Arc<App>, $vis Caller);

        impl FromRequestParts<Arc<App>> for $name {
            type Rejection = Problem;

            async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Problem> {
                Ok(Self(Arc::clone(app), caller(parts, &[$(Role::$role),+])?))
            }
        }
    )+};
}

callers! {
    /// The app, and a caller with any token; what it sees depends on its role.
    pub(super) Reader: [Agent, Operator, Auditor],
    /// The app, and a caller that may propose steps.
    pub Proposer: [Agent, Operator],
    /// The app, and a caller that may decide.
    pub(super) Operator: [Operator],
    /// The app, and a caller that may see everything.
    pub(super) Watcher: [Operator, Auditor],
}
