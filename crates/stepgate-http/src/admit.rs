//! The door: who is it, how often, and a line and a count for each answer.

use std::net::IpAddr;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Instant;

use axum::extract::{FromRequestParts, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;
use futures_util::FutureExt;
use stepgate_core::ids::{ArtifactId, PrincipalId};
use stepgate_gateway::text;
use stepgate_gateway::tokens::{BadToken, Role, TERMINAL_OPERATOR};
use tracing::{Instrument, info, info_span, warn};

use super::places::Place;
use super::{AccessLog, App, Problem, console, routes, turns};
use crate::local::Process;

/// Says what a request does on a connection that only the owner of the data directory can make: `agent`
/// proposes, `auditor` reads, `operator` decides.
pub const LOCAL_HEADER: &str = "stepgate-local";
/// Says what a process on this machine reads from.
pub const INPUT_HEADER: &str = "stepgate-input";

/// The name of a request: the caller may give one.
const REQUEST_ID_HEADER: &str = "x-request-id";
/// Longest name of a request that is taken.
const REQUEST_ID_BYTES_MAX: usize = 128;

/// When somebody who has too many requests under way may try again.
const PLACE_RETRY_S: u64 = 1;

/// Where a request comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// Over the network: it needs a token.
    Address(IpAddr),
    /// A process of the same user, or this one: it proposes as the directory's agent and reads what the
    /// directory holds. It decides with a token, or where a person is at its terminal.
    Local(Process),
}

/// Who asks, as proven.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The principal.
    pub principal_id: PrincipalId,
    pub(crate) role: Role,
    /// The token, where one was shown.
    pub token_id: Option<ArtifactId>,
    /// Whether the request came through the data directory, which only its owner can use.
    pub(crate) is_owner: bool,
}

impl Caller {
    /// Whose objects are shown: an agent's own, everybody's to the others.
    pub(crate) fn sees(&self) -> Option<PrincipalId> {
        match self.role {
            Role::Agent => Some(self.principal_id.clone()),
            Role::Operator | Role::Auditor => None,
        }
    }

    /// Whether an object of this principal is shown.
    pub(crate) fn may_see(&self, owner: &PrincipalId) -> bool {
        self.sees().is_none_or(|only| only == *owner)
    }
}

/// Names a request, and lets it in or says why not. Log lines about it have its name, and the response too.
pub(super) async fn admit(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let request_id = request_id(&app, request.headers());
    let span = info_span!("request", request_id = request_id.to_str().unwrap_or_default());
    let mut response = let_in(app, request, next).instrument(span).await;
    response.headers_mut().insert(REQUEST_ID_HEADER, request_id);
    response
}

/// The caller's own name of the request, where it is short and can be seen; a fresh one otherwise.
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
        // A page knows people by their login alone, and everything else by a token alone.
        () if is_page => console::enter(&app, &mut request),
        () if routes::is_public(&path) => {
            // A token is optional on public paths. A caller with a valid one may see more.
            if shows_token(&request)
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
    let peer = request.extensions().get::<Peer>().copied();
    let (who, answer) = match admitted {
        Ok(who) => match placed(&app, who.as_ref(), peer) {
            Ok(place) => {
                let answer = answered(next, request).await;
                (who, answer.map(|response| kept(place, response)))
            }
            Err(problem) => (who, Err(problem)),
        },
        Err(problem) => (None, Err(problem)),
    };
    let mut response = answer.unwrap_or_else(|problem| console::refused(&path, problem));
    if is_page {
        console::dress(&mut response);
    }
    if turns::is_agents(&path) {
        response = turns::in_agents_form(response);
    }
    let line = Line { method: &method, path: &path, who: who.as_ref(), start };
    finish(&app, &line, response)
}

/// A place for a request that came over the network. What comes over the socket is limited there.
fn placed(
    app: &App,
    who: Option<&PrincipalId>,
    peer: Option<Peer>,
) -> Result<Option<Place>, Problem> {
    match (who, peer) {
        (Some(who), Some(Peer::Address(_))) => {
            app.places.take(who).map(Some).ok_or_else(|| Problem::too_many(PLACE_RETRY_S))
        }
        (_, _) => Ok(None),
    }
}

fn kept(place: Option<Place>, response: Response) -> Response {
    match place {
        Some(place) => place.kept_by(response),
        None => response,
    }
}

/// The handler's answer. A panic in it is ours, and ends this request alone.
async fn answered(next: Next, request: Request) -> Result<Response, Problem> {
    let answer = AssertUnwindSafe(next.run(request)).catch_unwind().await;
    answer.map_err(|_| Problem::internal())
}

fn shows_token(request: &Request) -> bool {
    request.headers().contains_key(header::AUTHORIZATION)
}

fn identify(app: &App, request: &Request) -> Result<Caller, Problem> {
    let peer = request.extensions().get::<Peer>().copied();
    let caller = match caller_of(app, peer, request.headers()) {
        Ok(caller) => caller,
        Err(problem) => {
            if let Some(Peer::Address(address)) = peer {
                app.rates.failure(address).map_err(Problem::too_many)?;
                warn!(%address, "refused: a request from {address} without a valid token");
            }
            return Err(problem);
        }
    };
    if let (Some(Peer::Local(process)), "/mcp") = (peer, request.uri().path()) {
        let said = request.headers().get(INPUT_HEADER).and_then(|said| said.to_str().ok());
        app.clients.note(process, said);
    }
    app.rates.request(&caller.principal_id).map_err(Problem::too_many)?;
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

/// The one token of the one header.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let (value, None) = (values.next()?, values.next()) else {
        return None;
    };
    let (scheme, token) = value.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
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
        // Whoever keeps connections makes the next one elsewhere.
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
            let ms = elapsed.as_secs_f64() * 1000.0;
            // The path has ids and nothing secret; a query could hold anything, and is left out.
            let path = text::shortened(&text::printable(line.path), 256);
            // A method can be any word, and as long as a head can be.
            let method = text::shortened(line.method.as_str(), 16);
            let status = status.as_u16();
            info!(principal = who, status, ms, "{method} {path} {status} {ms:.1} ms {who}");
        }
    }
    response
}

/// Requests that no client of ours would send.
fn is_malformed(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::REQUEST_TIMEOUT
            | StatusCode::PAYLOAD_TOO_LARGE
            | StatusCode::UNSUPPORTED_MEDIA_TYPE
            | StatusCode::METHOD_NOT_ALLOWED
    )
}

/// Anyone with a token: what is seen depends on the role.
pub(super) struct Reader(pub(super) Caller);
/// One who may propose steps.
pub struct Proposer(pub Caller);
/// One who may decide.
pub(super) struct Operator(pub(super) Caller);
/// One who may see everything.
pub(super) struct Watcher(pub(super) Caller);

fn caller(parts: &Parts) -> Result<Caller, Problem> {
    parts.extensions.get::<Caller>().cloned().ok_or_else(Problem::unauthenticated)
}

impl<S: Sync> FromRequestParts<S> for Reader {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        caller(parts).map(Self)
    }
}

impl<S: Sync> FromRequestParts<S> for Proposer {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let caller = caller(parts)?;
        match caller.role {
            Role::Agent | Role::Operator => Ok(Self(caller)),
            Role::Auditor => Err(Problem::forbidden()),
        }
    }
}

impl<S: Sync> FromRequestParts<S> for Operator {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let caller = caller(parts)?;
        match caller.role {
            Role::Operator => Ok(Self(caller)),
            Role::Agent | Role::Auditor => Err(Problem::forbidden()),
        }
    }
}

impl<S: Sync> FromRequestParts<S> for Watcher {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let caller = caller(parts)?;
        match caller.role {
            Role::Operator | Role::Auditor => Ok(Self(caller)),
            Role::Agent => Err(Problem::forbidden()),
        }
    }
}
