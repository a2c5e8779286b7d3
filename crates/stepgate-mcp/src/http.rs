//! The HTTP handler of `/mcp`: it reads each message strictly before the SDK does, checks that the session belongs to
//! the caller, and watches the answer until it is sent.

use std::sync::{Arc, OnceLock};

use axum::Json;
use axum::body::Body;
use axum::extract::Request;
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use http_body_util::Full;
use rmcp::model::InitializeRequestParams;
use serde_json::{Value, json};
use stepgate_core::gate::Fault;
use stepgate_http::{App, Caller, Peer, Problem, body};
use tracing::Span;

use super::delivery::{Delivery, Watch, Watched, stream_in};
use super::envelope::{self, INVALID_PARAMS, INVALID_REQUEST, Malformed, Message};
use super::listening::Listener;
use super::sessions::{ClientAbilities, REQUEST_INFO, RequestInfo, ServeFailure, session_of};
use super::{BRIDGE_HEADER, Door, SESSION_HEADER};

/// The `_meta` key in which a request without a handshake states its version.
const VERSION_META: &str = "io.modelcontextprotocol/protocolVersion";

/// The JSON-RPC error code of a call that is refused because the disk is nearly full: the first of those that are the
/// server's own.
const STORAGE_LOW: i32 = -32000;

pub(super) async fn serve(
    door: &Door,
    app: &App,
    caller: Caller,
    request: Request,
) -> Result<Response, Problem> {
    let session = client_session(request.headers())?;
    if let Some(name) = &session
        && !door.is_session_of(name, &caller).await?
    {
        return Ok(said(StatusCode::NOT_FOUND, "there is no such session: initialize again"));
    }
    let method = request.method().clone();
    let (mut parts, body) = request.into_parts();
    let (bytes, message) = match method == Method::POST {
        true => match read(app, &parts.headers, body, &caller).await? {
            (bytes, Ok(Message { value, spelled })) => {
                if let Some(spelled) = spelled {
                    parts.extensions.insert(spelled);
                }
                (bytes, Some(value))
            }
            (_, Err(malformed)) => return Ok(refusal(malformed)),
        },
        false => (Default::default(), None),
    };
    let message = message.as_ref();
    if let (Some(name), Some(id)) = (&session, message.and_then(request_id)) {
        match door.shared.under_way.claim(name, id) {
            // Stored with the request, so the claim lives until the request is answered.
            Some(claim) => drop(parts.extensions.insert(Arc::new(claim))),
            None => {
                let why = "a request with this id is under way in this session";
                return Ok(refused(message, INVALID_REQUEST, why));
            }
        }
    }
    let shared = &door.shared;
    let listener = Listener::of(&parts, message);
    let delivery = Delivery::of(shared, session.clone(), resumed_stream(&parts));
    let watch = Watch::over(&delivery);
    parts.extensions.insert(delivery);
    // The SDK calls the handler from a task of its own.
    parts.extensions.insert(Span::current());
    let request = Request::from_parts(parts, Full::new(bytes));
    let opening = match message.and_then(handshake) {
        Some(Ok(capabilities)) => {
            Some((shared.service.open_session(&caller.principal_id).await?, capabilities))
        }
        Some(Err(why)) => return Ok(refused(message, INVALID_PARAMS, &why)),
        None => None,
    };
    // Trusted only over the local socket. Over the network a client could set this header to skip the header checks,
    // and so deceive a proxy that filters by headers.
    let is_local = matches!(request.extensions().get(), Some(Peer::Local(_)));
    let is_bridged = is_local && request.headers().contains_key(BRIDGE_HEADER);
    let failure = Arc::new(OnceLock::new());
    let principal_id = caller.principal_id.clone();
    let arrival = RequestInfo { principal_id, opening, is_bridged, failure: Arc::clone(&failure) };
    let answered = REQUEST_INFO.scope(arrival, door.transport.handle(request)).await;
    if let Some(failure) = failure.get() {
        return Ok(failure_response(*failure));
    }
    if let Some(name) = session.filter(|_| answered.status().is_success())
        && method == Method::DELETE
    {
        shared.end(name);
    }
    if method == Method::DELETE && answered.status() == StatusCode::ACCEPTED {
        // 202 would mean that the session ends later, but it has ended already.
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    let (parts, body) = answered.map(Body::new).into_parts();
    let body = match listener {
        Some(listener) => listener.body(&shared.service, &caller, body),
        None => Watched::body(&parts.headers, body, watch),
    };
    Ok(Response::from_parts(parts, body))
}

/// The stream of an answer that a client resumes.
pub(super) fn resumed_stream(parts: &Parts) -> Option<u64> {
    let last = parts.headers.get("last-event-id").filter(|_| parts.method == Method::GET)?;
    stream_in(last.to_str().ok()?)
}

fn failure_response(failure: ServeFailure) -> Response {
    match failure {
        ServeFailure::Gone => {
            let why = "there is no such stream any more: send the call again";
            said(StatusCode::NOT_FOUND, why)
        }
        ServeFailure::Full => {
            let why = "every session is in use: come again later, or raise mcp.sessions_max";
            said(StatusCode::SERVICE_UNAVAILABLE, why)
        }
    }
}

/// Reads the message strictly: the SDK and this crate must not read it differently.
async fn read(
    app: &App,
    headers: &HeaderMap,
    body: Body,
    caller: &Caller,
) -> Result<(bytes::Bytes, Result<Message, Malformed>), Problem> {
    if headers.contains_key(header::CONTENT_ENCODING) {
        return Err(Problem::unsupported_media_type());
    }
    let bytes = body::whole(app, body).await?;
    let message = envelope::read(&bytes).and_then(|message| may_send(app, caller, message));
    Ok((bytes, message))
}

fn refusal(Malformed { id, code, why }: Malformed) -> Response {
    // With an id, and only its parameters wrong or the disk nearly full, the request was understood.
    let status = match code {
        INVALID_PARAMS | STORAGE_LOW if !id.is_null() => StatusCode::OK,
        _ => StatusCode::BAD_REQUEST,
    };
    let error = json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code, "message": why } });
    (status, Json(error)).into_response()
}

/// The same for a message that was read.
fn refused(message: Option<&Value>, code: i32, why: &str) -> Response {
    let id = message.and_then(|message| message.get("id")).cloned().unwrap_or_default();
    refusal(Malformed { id, code, why: why.to_owned() })
}

/// What a handshake says about its client. A request that states its version itself is not a handshake.
fn handshake(message: &Value) -> Option<Result<ClientAbilities, String>> {
    let params = message.get("params").cloned().unwrap_or_default();
    let is_stateless = params.get("_meta").is_some_and(|meta| meta.get(VERSION_META).is_some());
    if message.get("method")? != "initialize" || is_stateless {
        return None;
    }
    let params = serde_json::from_value::<InitializeRequestParams>(params);
    Some(match params {
        Ok(params) => Ok(ClientAbilities::of(&params)),
        Err(error) => Err(format!("the handshake is not as it should be: {error}")),
    })
}

/// Refuses an agent's call, which would be recorded, while the disk has only what is reserved for operators.
fn may_send(app: &App, caller: &Caller, message: Message) -> Result<Message, Malformed> {
    if message.value.get("method").is_none_or(|method| method != "tools/call") {
        return Ok(message);
    }
    match app.may_record(caller) {
        Ok(()) => Ok(message),
        Err(problem) => {
            let id = message.value.get("id").cloned().unwrap_or_default();
            Err(Malformed { id, code: STORAGE_LOW, why: problem.message().to_owned() })
        }
    }
}

fn request_id(message: &Value) -> Option<&Value> {
    message.get("method").and(message.get("id"))
}

fn client_session(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    let mut values = headers.get_all(SESSION_HEADER).iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => match value.to_str() {
            Ok(name) => Ok(Some(name.to_owned())),
            Err(_) => Err(Problem::malformed("`Mcp-Session-Id` is not text")),
        },
        (Some(_), Some(_)) => Err(Problem::malformed("there are two `Mcp-Session-Id`")),
    }
}

fn said(status: StatusCode, message: &str) -> Response {
    let error = json!({ "code": INVALID_REQUEST, "message": message });
    (status, Json(json!({ "jsonrpc": "2.0", "id": null, "error": error }))).into_response()
}

impl Door {
    /// Whether the session belongs to this caller and has not ended. A session of another caller counts as unknown.
    async fn is_session_of(&self, name: &str, caller: &Caller) -> Result<bool, Fault> {
        let Some(session_id) = session_of(name) else { return Ok(false) };
        if self.shared.is_ended(name) {
            return Ok(false);
        }
        self.shared.service.has_session(&caller.principal_id, session_id).await
    }
}
