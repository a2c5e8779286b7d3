//! `/v1/agent/turns` (spec 003): a request in, the model's last word or calls for the caller out.
//!
//! A turn is a task of its own. When the caller's patience ends before the turn does, the answer is 202
//! and says what it waits for; the same request again, or a look at the turn, gets the rest.

mod stream;
mod wire;

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::Value;
use stepgate_agent::cancel::Cancelled;
use stepgate_agent::invoke::{InvokeError, InvokeResult};
use stepgate_agent::pipeline::Done;
use stepgate_agent::ports::Waiting;
use stepgate_agent::stop::{Code, Stop};
use stepgate_agent::turn::TurnId;
use stepgate_core::approval::ApprovalStatus;
use stepgate_gateway::turns::{Conversations, Live};
use tokio::time::{Instant, sleep_until};

use super::admit::{Caller, Proposer, Reader};
use super::problem::Said;
use super::routes::Id;
use super::steps::patience;
use super::{App, Problem, REPLAYED_HEADER, SESSION_HEADER, body};
use wire::{Accepted, TurnObject, TurnRequest};

/// The request's own name: the same again gets the same turn.
const KEY_HEADER: &str = "idempotency-key";

pub(super) async fn open(
    State(app): State<Arc<App>>,
    Proposer(caller): Proposer,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let conversations = conversations(&app)?;
    let patience = patience(&headers, app.limits.wait_max)?;
    let correlation_id = key(&headers)?;
    let request: TurnRequest =
        body::json_up_to(&app, &headers, body, conversations.request_bytes_max).await?;
    let envelope = request.envelope(&conversations.org, &caller.principal_id);
    let begun = conversations.begin(caller.principal_id.clone(), correlation_id, envelope);
    let live = begun.ok_or_else(|| Problem::too_many(1))?;
    if wants_stream(&headers) {
        return Ok(stream::of(app, caller, live, patience).await);
    }
    match until(&app, &live, patience).await {
        Ended::Done => Ok(ended(&live)),
        Ended::Impatient(waiting) => Ok(accepted(&live, waiting)),
    }
}

/// What came of waiting.
enum Ended {
    Done,
    /// The caller's patience ended first.
    Impatient(Option<Waiting>),
}

/// Waits for the turn's end. Without `Prefer: wait` the caller waits as long as the turn works by
/// itself, and not for a person; with it, for so long and no longer.
async fn until(app: &App, live: &Live, patience: Option<Duration>) -> Ended {
    let mut changes = live.changes();
    let begin = Instant::now();
    loop {
        changes.borrow_and_update();
        if live.ended().is_some() {
            return Ended::Done;
        }
        let waiting = still_waiting(app, live.waiting()).await;
        let patience = match (&waiting, patience) {
            (_, Some(patience)) => Some(patience),
            (None, None) => None,
            (Some(Waiting { approval_id: Some(_), .. }), None) => Some(Duration::ZERO),
            // A call that another request or recovery is at, or one in doubt: nobody can tell which.
            (Some(Waiting { approval_id: None, .. }), None) => Some(app.limits.wait_max),
        };
        let end = async {
            match patience {
                Some(patience) => sleep_until(begin + patience).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            // The sender lives in `live`, so this cannot fail.
            _ = changes.changed() => {}
            // Looked at again: it may have been decided meanwhile.
            () = end => return Ended::Impatient(still_waiting(app, live.waiting()).await),
        }
    }
}

/// What a turn waits for, unless that is decided already: then it works by itself again.
async fn still_waiting(app: &App, waiting: Option<Waiting>) -> Option<Waiting> {
    let waiting = waiting?;
    let Some(approval_id) = waiting.approval_id else { return Some(waiting) };
    let approval = app.service.gate.store.approval(approval_id).await.ok().flatten();
    let is_open = approval.is_none_or(|approval| approval.status == ApprovalStatus::Pending);
    is_open.then_some(waiting)
}

fn ended(live: &Live) -> Response {
    match live.ended() {
        Some(Ok(done)) => answer(done),
        Some(Err(stop)) => refusal(stop),
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

/// Why there is no answer: the InvokeResult, under the status that fits its first error.
fn refusal(stop: &Stop) -> Response {
    match stop {
        Stop::Invoke(result) => (status(result), Json(result)).into_response(),
        Stop::Fault(fault) => Problem::from(fault.clone()).into_response(),
    }
}

fn status(result: &InvokeResult) -> StatusCode {
    match result.errors.first().and_then(Code::of) {
        // A rule of the specification.
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
        // Nothing is decided: the same request again asks the model again.
        Some(Code::ModelTimedOut) => StatusCode::GATEWAY_TIMEOUT,
        Some(Code::ModelUnavailable | Code::ModelRefused) => StatusCode::BAD_GATEWAY,
        // The turn is over, and asking again changes nothing.
        Some(Code::ModelOutputInvalid | Code::RoundsExhausted) => StatusCode::FAILED_DEPENDENCY,
    }
}

/// The turn goes on, and the caller need not wait.
fn accepted(live: &Live, waiting: Option<Waiting>) -> Response {
    let body = Json(Accepted::of(live, waiting.as_ref()));
    let retry = [(header::RETRY_AFTER, HeaderValue::from_static("1"))];
    (StatusCode::ACCEPTED, retry, body).into_response()
}

pub(super) async fn show(
    State(app): State<Arc<App>>,
    Reader(caller): Reader,
    Id(turn_id): Id<TurnId>,
) -> Result<Json<TurnObject>, Problem> {
    let conversations = conversations(&app)?;
    let found = conversations.look(turn_id).await.map_err(problem)?;
    let (view, look) = found.ok_or_else(Problem::not_found)?;
    is_seen(&app, &caller, &view.session_id).await?;
    Ok(Json(TurnObject::of(&view, look)))
}

/// Ends a turn that is not over. Only its owner may: for others it is not there. The same again, or on a
/// turn that is over, changes nothing and shows it.
pub(super) async fn cancel(
    State(app): State<Arc<App>>,
    Proposer(caller): Proposer,
    Id(turn_id): Id<TurnId>,
) -> Result<Json<TurnObject>, Problem> {
    let conversations = conversations(&app)?;
    match conversations.cancel(&caller.principal_id, turn_id).await.map_err(problem)? {
        Cancelled::Done | Cancelled::WasOver => {}
        Cancelled::NoSuchTurn => return Err(Problem::not_found()),
    }
    let found = conversations.look(turn_id).await.map_err(problem)?;
    let (view, look) = found.ok_or_else(Problem::not_found)?;
    Ok(Json(TurnObject::of(&view, look)))
}

/// Another principal's turn is not there.
async fn is_seen(
    app: &App,
    caller: &Caller,
    session_id: &stepgate_core::ids::SessionId,
) -> Result<(), Problem> {
    match app.service.gate.store.session(*session_id).await? {
        Some(session) if caller.may_see(&session.principal_id) => Ok(()),
        Some(_) | None => Err(Problem::not_found()),
    }
}

fn problem(stop: Stop) -> Problem {
    match stop {
        Stop::Fault(fault) => fault.into(),
        // The turn goes on faster than it can be ended.
        Stop::Invoke(_) => Problem::unavailable(),
    }
}

fn conversations(app: &App) -> Result<&Arc<Conversations>, Problem> {
    app.agent.get().ok_or_else(Problem::no_agent)
}

/// The key; none is an empty one, and the rules say what they think of that.
fn key(headers: &HeaderMap) -> Result<String, Problem> {
    let mut keys = headers.get_all(KEY_HEADER).iter();
    match (keys.next().map(HeaderValue::to_str), keys.next()) {
        (None, _) => Ok(String::new()),
        (Some(Ok(key)), None) => Ok(key.trim().to_owned()),
        (Some(_), _) => Err(Problem::malformed("`Idempotency-Key` is one line of plain text")),
    }
}

fn wants_stream(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let mut kinds = accepted.flat_map(|text| text.split(','));
    kinds.any(|kind| kind.split(';').next().unwrap_or_default().trim() == "text/event-stream")
}

/// The InvokeResult that a stream ends with.
fn value_of(stop: &Stop) -> Value {
    let result = match stop {
        Stop::Invoke(result) => result.clone(),
        Stop::Fault(fault) => invoke_result(&Problem::from(fault.clone()).said()),
    };
    serde_json::to_value(result).unwrap_or_default()
}

/// Whether a path is the agent's. What goes wrong there is an InvokeResult, wherever it goes wrong.
pub(super) fn is_agents(path: &str) -> bool {
    path.starts_with("/v1/agent/")
}

/// A refusal of the door's, or of a handler's, in the agent's form.
pub(super) fn in_agents_form(response: Response) -> Response {
    let Some(said) = response.extensions().get::<Said>() else { return response };
    let body = serde_json::to_string(&invoke_result(said)).unwrap_or_default();
    let (mut parts, _) = response.into_parts();
    parts.headers.remove(header::CONTENT_LENGTH);
    Response::from_parts(parts, Body::from(body))
}

fn invoke_result(said: &Said) -> InvokeResult {
    InvokeError::new(said.code, said.message.clone()).into()
}
