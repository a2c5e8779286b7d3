//! `/mcp`: what comes is read strictly before the SDK sees it, belongs to whoever shows the token, and
//! its answer is watched until it has gone.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Json;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use http_body_util::Full;
use rmcp::model::InitializeRequestParams;
use serde_json::{Value, json};
use stepgate_core::gate::Fault;
use stepgate_core::json::strict::{self, Integers};

use super::delivery::{Delivery, Watch, Watched};
use super::sessions::{ARRIVAL, Arrival, Manner, session_of};
use super::{BRIDGE_HEADER, Door, SESSION_HEADER};
use crate::http::{App, Caller, Problem, Proposer, body};

/// Deepest message: a proposal's arguments are judged by the gate's own limit.
pub(super) const DEPTH_MAX: usize = 128;
/// Where a request without a handshake names its version.
const VERSION_META: &str = "io.modelcontextprotocol/protocolVersion";
/// The protocol's codes for what cannot be read.
pub(super) const PARSE_ERROR: i32 = -32700;
pub(super) const INVALID_REQUEST: i32 = -32600;
const INVALID_PARAMS: i32 = -32602;

pub(crate) async fn serve(
    State(app): State<Arc<App>>,
    Proposer(caller): Proposer,
    request: Request,
) -> Result<Response, Problem> {
    let door = &app.mcp;
    let session = client_session(request.headers())?;
    if let Some(name) = &session
        && !door.is_session_of(name, &caller).await?
    {
        return Ok(missing("there is no such session: initialize again"));
    }
    let is_resumed = request.headers().contains_key("last-event-id");
    let method = request.method().clone();
    let (mut parts, body) = request.into_parts();
    let (bytes, message) = match method == Method::POST {
        true => match read(&app, &parts.headers, body, &caller).await? {
            Ok((bytes, message)) => (bytes, Some(message)),
            Err(refusal) => return Ok(refusal),
        },
        false => (Default::default(), None),
    };
    if let (Some(name), Some(id)) = (&session, message.as_ref().and_then(request_id)) {
        match door.shared.under_way.claim(name, id) {
            // Beside the request, it lives until the request is answered.
            Some(claim) => drop(parts.extensions.insert(Arc::new(claim))),
            None => {
                let why = "a request with this id is under way in this session";
                return Ok(refusal(&message, INVALID_REQUEST, why));
            }
        }
    }
    let delivery = Delivery::new(Arc::clone(&door.shared.unanswered), session.clone());
    let watch = Watch::over(&delivery);
    parts.extensions.insert(delivery);
    let request = Request::from_parts(parts, Full::new(bytes));
    let opening = match message.as_ref().and_then(handshake) {
        Some(Ok(manner)) => {
            Some((door.shared.service.open_session(&caller.principal_id).await?, manner))
        }
        Some(Err(why)) => return Ok(refusal(&message, INVALID_PARAMS, &why)),
        None => None,
    };
    let is_bridged = request.headers().contains_key(BRIDGE_HEADER);
    let is_gone = Arc::new(AtomicBool::new(false));
    let arrival = Arrival { opening, is_bridged, is_gone: Arc::clone(&is_gone) };
    let answered = ARRIVAL.scope(arrival, door.transport.handle(request)).await;
    if is_gone.load(Ordering::Relaxed) {
        return Ok(missing("there is no such stream any more: send the call again"));
    }
    if let Some(name) = session.filter(|_| answered.status().is_success()) {
        if method == Method::GET && is_resumed {
            door.shared.unanswered.resumed(&name);
        }
        if method == Method::DELETE {
            door.shared.end(name);
        }
    }
    Ok(answered.map(|body| Watched::body(body, watch)))
}

/// The message, read strictly: what the SDK would take for one thing must not be another to us.
async fn read(
    app: &App,
    headers: &HeaderMap,
    body: Body,
    caller: &Caller,
) -> Result<Result<(bytes::Bytes, Value), Response>, Problem> {
    if headers.contains_key(header::CONTENT_ENCODING) {
        return Err(Problem::unsupported_media_type());
    }
    let bytes = body::whole(app, body).await?;
    app.count_body(caller, u64::try_from(bytes.len()).unwrap_or(u64::MAX));
    let message = match strict::parse(&bytes, DEPTH_MAX, Integers::Any) {
        Ok(message) => message,
        Err(why) => {
            let why = format!("not strict JSON: {why}");
            return Ok(Err(refusal(&None, PARSE_ERROR, &why)));
        }
    };
    // Several at once were in an older version; nothing could be said of each one's own fate.
    if !message.is_object() {
        return Ok(Err(refusal(&None, INVALID_REQUEST, "a message is one JSON object")));
    }
    Ok(Ok((bytes, message)))
}

/// An error in the protocol's own words.
fn refusal(message: &Option<Value>, code: i32, why: &str) -> Response {
    let id = message.as_ref().and_then(|message| message.get("id")).cloned().unwrap_or_default();
    let error = json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code, "message": why } });
    (StatusCode::BAD_REQUEST, Json(error)).into_response()
}

/// What a handshake says of its client. Requests that name their version themselves have none.
fn handshake(message: &Value) -> Option<Result<Manner, String>> {
    let params = message.get("params").cloned().unwrap_or_default();
    let is_stateless = params.get("_meta").is_some_and(|meta| meta.get(VERSION_META).is_some());
    if message.get("method")? != "initialize" || is_stateless {
        return None;
    }
    let params = serde_json::from_value::<InitializeRequestParams>(params);
    Some(match params {
        Ok(params) => Ok(Manner::of(&params)),
        Err(error) => Err(format!("the handshake is not as it should be: {error}")),
    })
}

/// The id of a message that wants an answer.
fn request_id(message: &Value) -> Option<&Value> {
    message.get("method").and(message.get("id"))
}

fn client_session(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    let mut values = headers.get_all(SESSION_HEADER).iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => {
            let name =
                value.to_str().map_err(|_| Problem::malformed("`Mcp-Session-Id` is not text"))?;
            Ok(Some(name.to_owned()))
        }
        (Some(_), Some(_)) => Err(Problem::malformed("there are two `Mcp-Session-Id`")),
    }
}

/// What the protocol says where a session, or the stream of an answer, is not known.
fn missing(message: &str) -> Response {
    let error = json!({ "jsonrpc": "2.0", "id": null, "error": { "code": INVALID_REQUEST, "message": message } });
    (StatusCode::NOT_FOUND, Json(error)).into_response()
}

impl Door {
    /// Whether the session is this caller's, and not over. Another's is as good as none.
    async fn is_session_of(&self, name: &str, caller: &Caller) -> Result<bool, Fault> {
        let Some(session_id) = session_of(name) else { return Ok(false) };
        if self.shared.is_ended(name) {
            return Ok(false);
        }
        let session = self.shared.service.gate.store.session(session_id).await?;
        Ok(session.is_some_and(|session| session.principal_id == caller.principal_id))
    }
}
