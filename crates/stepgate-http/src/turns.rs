//! `/v1/agent/turns` (spec 003): takes a request, and returns the model's final answer or tool calls for the caller.
//!
//! A turn runs in its own task. If the caller's wait ends before the turn does, the answer is 202 and says what the
//! turn waits for. Sending the same request again, or a GET of the turn, returns the rest.

mod stream;
mod wire;

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use stepgate_agent::cancel::Cancelled;
use stepgate_agent::flow::Request;
use stepgate_agent::invoke::{InvokeError, InvokeResult};
use stepgate_agent::pipeline::Done;
use stepgate_agent::ports::Waiting;
use stepgate_agent::stop::{Code, Stop};
use stepgate_agent::turn::TurnId;
use stepgate_core::approval::ApprovalStatus;
use stepgate_core::event::Event;
use stepgate_core::ids::{ArtifactId, IdPrefix, PrincipalId, SessionId};
use stepgate_core::ports::TurnQuery;
use stepgate_gateway::turns::{Conversations, Live};
use tokio::time::{Instant, sleep_until};

use super::admit::one_header;
use super::page::{self, Page};
use super::problem::Said;
use super::steps::max_wait;
use super::{
    App, Id, Params, Problem, Proposer, REPLAYED_HEADER, Reader, SESSION_HEADER, body, sessions,
};
pub(super) use wire::{Accepted, TurnObject, TurnRequest, Turns};

/// The idempotency key of the request: the same key gets the same turn.
const KEY_HEADER: &str = "idempotency-key";

pub(super) async fn open(
    Proposer(app, caller): Proposer,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let conversations = conversations(&app)?;
    app.may_record(&caller)?;
    let max_wait = max_wait(&headers, app.limits.wait_max)?;
    let correlation_id = key(&headers)?;
    let request: TurnRequest =
        body::json(&app, &headers, body, conversations.request_bytes_max).await?;
    let envelope = request.envelope(&conversations.org, &caller.principal_id);
    let principal_id = caller.principal_id.clone();
    let begun = conversations.begin(Request { principal_id, correlation_id, envelope });
    let live = begun.ok_or_else(|| Problem::too_many(1))?;
    if wants_stream(&headers) {
        return Ok(stream::of(app, caller, live, max_wait).await);
    }
    Ok(until(&app, &live, max_wait).await)
}

/// Answers at the turn's end, or when the caller's wait is over. Without `Prefer: wait` the caller waits while the turn
/// makes progress, but not for a person. With it, the caller waits exactly that long.
async fn until(app: &App, live: &Live, max_wait: Option<Duration>) -> Response {
    let mut changes = live.changes();
    let begin = Instant::now();
    loop {
        changes.borrow_and_update();
        if live.ended().is_some() {
            return ended(live);
        }
        let waiting = still_waiting(app, live.waiting()).await;
        let max_wait = match (&waiting, max_wait) {
            (_, Some(max_wait)) => Some(max_wait),
            (None, None) => None,
            (Some(Waiting { approval_id: Some(_), .. }), None) => Some(Duration::ZERO),
            // The call is in doubt, or another request or recovery works on it. That cannot be told apart here.
            (Some(Waiting { approval_id: None, .. }), None) => Some(app.limits.wait_max),
        };
        let end = async {
            match max_wait {
                Some(max_wait) => sleep_until(begin + max_wait).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            // Cannot fail: `live` owns the sender.
            _ = changes.changed() => {}
            // Checked again: the approval may have been decided meanwhile.
            () = end => return accepted(live, still_waiting(app, live.waiting()).await),
        }
    }
}

/// What a turn waits for; none if it is decided already, because then the turn goes on.
async fn still_waiting(app: &App, waiting: Option<Waiting>) -> Option<Waiting> {
    let waiting = waiting?;
    let Some(approval_id) = waiting.approval_id else { return Some(waiting) };
    let approval = app.service.gate.store.approval(approval_id).await.ok().flatten();
    let is_open = approval.is_none_or(|approval| approval.status == ApprovalStatus::Pending);
    is_open.then_some(waiting)
}

/// The response of a turn that is over. An error has the status that fits its first one.
fn ended(live: &Live) -> Response {
    match live.ended() {
        Some(Ok(done)) => answer(done),
        Some(Err(Stop::Invoke(result))) => (status(result), Json(result)).into_response(),
        Some(Err(Stop::Fault(fault))) => Problem::from(fault.clone()).into_response(),
        None => Problem::internal().into_response(),
    }
}

fn answer(Done { response, replayed }: &Done) -> Response {
    let mut answer = Json(response).into_response();
    let session = response.session_id.as_deref().unwrap_or_default();
    if let Ok(session) = HeaderValue::from_str(session) {
        answer.headers_mut().insert(SESSION_HEADER, session);
    }
    if *replayed {
        answer.headers_mut().insert(REPLAYED_HEADER, HeaderValue::from_static("true"));
    }
    answer
}

fn status(result: &InvokeResult) -> StatusCode {
    match result.errors.first().and_then(Code::of) {
        // An error of a rule in the specification.
        None => StatusCode::BAD_REQUEST,
        Some(Code::RequestInvalid | Code::ToolRunsOnServer) => StatusCode::BAD_REQUEST,
        Some(Code::SessionNotFound | Code::TurnNotFound) => StatusCode::NOT_FOUND,
        Some(
            Code::TurnNotFinished
            | Code::TurnInProgress
            | Code::TurnCancelled
            | Code::ToolResultsNotAwaited,
        ) => StatusCode::CONFLICT,
        Some(Code::IdempotencyConflict) => StatusCode::UNPROCESSABLE_ENTITY,
        Some(Code::ConversationTooLong) => StatusCode::PAYLOAD_TOO_LARGE,
        // The turn is not over: the same request asks the model again.
        Some(Code::ModelTimedOut) => StatusCode::GATEWAY_TIMEOUT,
        Some(Code::ModelUnavailable | Code::ModelRefused) => StatusCode::BAD_GATEWAY,
        // The turn is over: the same request gets the same answer.
        Some(Code::ModelOutputInvalid | Code::RoundsExhausted) => StatusCode::FAILED_DEPENDENCY,
    }
}

/// The 202 response: the turn goes on without the caller.
fn accepted(live: &Live, waiting: Option<Waiting>) -> Response {
    let body = Json(Accepted::of(live, waiting.as_ref()));
    let retry = [(header::RETRY_AFTER, HeaderValue::from_static("1"))];
    (StatusCode::ACCEPTED, retry, body).into_response()
}

pub(super) async fn show(
    Reader(app, caller): Reader,
    Id(turn_id): Id<TurnId>,
) -> Result<Json<TurnObject>, Problem> {
    let turn = find(&app, turn_id).await?.ok_or_else(Problem::not_found)?;
    sessions::visible(&app, &caller, turn.session_id).await?;
    Ok(Json(turn))
}

/// A turn as it stands; none where there is none.
pub(super) async fn find(app: &App, turn_id: TurnId) -> Result<Option<TurnObject>, Problem> {
    let found = conversations(app)?.look(turn_id).await.map_err(problem)?;
    Ok(found.map(TurnObject::of))
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ListParams {
    /// only turns that were opened before this one
    before: Option<ArtifactId>,
    /// only those whose id begins with this, from 8 characters on
    id_prefix: Option<IdPrefix>,
    /// only turns of this session
    session: Option<SessionId>,
    /// only turns of this principal
    principal: Option<PrincipalId>,
    /// at most so many: 1 to 1000, 50 otherwise
    limit: Option<usize>,
}

/// Turns, newest first: of a session, of a principal, or all.
pub(super) async fn list(
    Reader(app, caller): Reader,
    Params(params): Params<ListParams>,
) -> Result<Json<Turns>, Problem> {
    let Ok(principal_id) = caller.lists(params.principal) else {
        return Ok(Json(Turns::default()));
    };
    let ListParams { before, id_prefix, session: session_id, limit, .. } = params;
    let query = TurnQuery { id_prefix, session_id, principal_id, ..TurnQuery::default() };
    let store = &app.service.gate.store;
    let id = |event: &Event| event.event_id;
    let weight = |event: &Event| event.payload.to_string().len();
    let read = |before, limit| store.opened_turns(TurnQuery { before, limit, ..query.clone() });
    let Page { rows, next_before } = page::read(limit, before, id, weight, read).await?;
    Ok(Json(Turns::of(&rows, next_before.is_some()).map_err(problem)?))
}

/// Cancels a turn that is not over. Only its owner may; for others it does not exist. Idempotent: a turn that is
/// already over is returned unchanged.
pub(super) async fn cancel(
    Proposer(app, caller): Proposer,
    Id(turn_id): Id<TurnId>,
) -> Result<Json<TurnObject>, Problem> {
    let cancelled = conversations(&app)?.cancel(&caller.principal_id, turn_id).await;
    match cancelled.map_err(problem)? {
        Cancelled::Done | Cancelled::WasOver => {}
        Cancelled::NoSuchTurn => return Err(Problem::not_found()),
    }
    find(&app, turn_id).await?.map(Json).ok_or_else(Problem::not_found)
}

fn problem(stop: Stop) -> Problem {
    match stop {
        Stop::Fault(fault) => fault.into(),
        // The turn advanced at the same time: the cancellation lost the race.
        Stop::Invoke(_) => Problem::unavailable(),
    }
}

fn conversations(app: &App) -> Result<&Arc<Conversations>, Problem> {
    app.agent.get().ok_or_else(Problem::no_agent)
}

/// The idempotency key. A missing key becomes an empty one, which the rules then judge.
fn key(headers: &HeaderMap) -> Result<String, Problem> {
    match one_header(headers, KEY_HEADER) {
        Ok(key) => Ok(key.unwrap_or_default().trim().to_owned()),
        Err(()) => Err(Problem::malformed("`Idempotency-Key` is one line of plain text")),
    }
}

fn wants_stream(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let mut kinds = accepted.flat_map(|text| text.split(','));
    kinds.any(|kind| kind.split(';').next().unwrap_or_default().trim() == "text/event-stream")
}

/// The InvokeResult with which a stream ends.
fn value_of(stop: &Stop) -> Value {
    let result = match stop {
        Stop::Invoke(result) => result.clone(),
        Stop::Fault(fault) => invoke_result(&Problem::from(fault.clone()).said()),
    };
    serde_json::to_value(result).unwrap_or_default()
}

/// Whether a path belongs to the agent. Every error there, from whatever layer, is an InvokeResult.
pub(super) fn is_agent_path(path: &str) -> bool {
    path.starts_with("/v1/agent/")
}

/// Converts an error of the middleware or of a handler to an InvokeResult.
pub(super) fn as_invoke_result(response: Response) -> Response {
    let Some(said) = response.extensions().get::<Said>() else { return response };
    let body = serde_json::to_string(&invoke_result(said)).unwrap_or_default();
    let (mut parts, _) = response.into_parts();
    parts.headers.remove(header::CONTENT_LENGTH);
    parts.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Response::from_parts(parts, Body::from(body))
}

fn invoke_result(said: &Said) -> InvokeResult {
    InvokeError::new(said.code, said.message.clone()).into()
}
