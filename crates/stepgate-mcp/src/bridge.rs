//! `stepgate mcp`: the stdio transport of `/mcp`, for clients that start a process. Each input line is a message
//! and goes to the gateway as its own HTTP request; the gateway's messages are written as output lines.

mod lines;

use std::collections::HashMap;
use std::io;
use std::mem;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::Context;
use async_trait::async_trait;
use axum::body::Body;
use axum::http::{Method, Response, StatusCode, header};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use stepgate_core::json::strict::{self, Integers};
use stepgate_core::lock::locked;
use stepgate_http::sse::Events;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::AbortHandle;
use tracing::warn;

use super::envelope::{DEPTH_MAX, INVALID_REQUEST, PARSE_ERROR};
use super::{BRIDGE_HEADER, SESSION_HEADER};
use lines::{Lines, Next};

/// Most requests sent at one time. Further ones wait in a queue.
const REQUESTS_MAX: usize = 64;
/// Most requests held at one time, including queued ones. More are refused.
const REQUESTS_HELD_MAX: u32 = 1024;
/// Timeout for forwarding a message that has no answer.
const WORD_WAIT_MAX: Duration = Duration::from_secs(10);
/// Timeout for ending the session when the client has left.
const LEAVE_WAIT_MAX: Duration = Duration::from_secs(2);
/// Timeout for writing the last answers of a gateway that has stopped.
const FINISH_WAIT_MAX: Duration = Duration::from_secs(2);
/// Most messages that wait to be written.
const OUTPUT_MAX: usize = 256;
/// Pause before a lost stream of server messages is reconnected.
const RECONNECT_PAUSE: Duration = Duration::from_secs(1);
/// The JSON-RPC code when the gateway could not answer.
const INTERNAL_ERROR: i32 = -32603;
/// From this version on there are no sessions, and every message states its version.
const STATELESS: &str = "2026-07-28";

/// The connection to the gateway: one request, one response.
#[async_trait]
pub trait Exchange: Send + Sync + 'static {
    /// Sends a request. The body of the response arrives later.
    async fn exchange(
        &self,
        method: Method,
        path: &str,
        headers: &[(&'static str, String)],
        body: Vec<u8>,
    ) -> anyhow::Result<Response<Body>>;
}

/// Forwards messages until the input ends, or until `finish` completes. Answers that have arrived by then are still
/// written.
pub async fn carry(
    line: impl Exchange,
    input: impl AsyncRead + Unpin,
    output: impl AsyncWrite + Unpin + Send + 'static,
    finish: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    let (say, said) = mpsc::channel(OUTPUT_MAX);
    let writer = tokio::spawn(write(said, output));
    let bridge = Arc::new(Bridge {
        line: Box::new(line),
        say,
        state: Mutex::default(),
        places: Arc::new(Semaphore::new(REQUESTS_MAX)),
        held: Arc::new(Semaphore::new(REQUESTS_HELD_MAX as usize)),
    });
    let mut lines = Lines::new(input);
    let mut finish = pin!(finish);
    loop {
        let next = tokio::select! {
            next = lines.next() => next?,
            () = &mut finish => {
                let all = bridge.held.acquire_many(REQUESTS_HELD_MAX);
                let _ = tokio::time::timeout(FINISH_WAIT_MAX, all).await;
                break;
            }
        };
        match next {
            Some(Next::Line(text)) => bridge.receive(text).await,
            Some(Next::TooLong) => {
                bridge.refuse(&Value::Null, PARSE_ERROR, "the line is too long").await;
            }
            None => break,
        }
    }
    bridge.leave().await;
    drop(bridge);
    writer.await?
}

async fn write(
    mut said: mpsc::Receiver<Value>,
    mut output: impl AsyncWrite + Unpin,
) -> anyhow::Result<()> {
    while let Some(message) = said.recv().await {
        let line = format!("{message}\n");
        let written = match output.write_all(line.as_bytes()).await {
            Ok(()) => output.flush().await,
            Err(error) => Err(error),
        };
        match written {
            Ok(()) => {}
            // The client has left. What it requested is recorded.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

struct Bridge {
    line: Box<dyn Exchange>,
    say: mpsc::Sender<Value>,
    state: Mutex<State>,
    places: Arc<Semaphore>,
    held: Arc<Semaphore>,
}

#[derive(Default)]
struct State {
    /// The session id from the handshake, if the client made one.
    session: Option<String>,
    version: Option<String>,
    /// Requests under way, by their ids.
    under_way: HashMap<String, AbortHandle>,
    listener: Option<AbortHandle>,
}

impl Bridge {
    async fn receive(self: &Arc<Self>, text: Vec<u8>) {
        let message = match strict::parse(&text, DEPTH_MAX, Integers::Any) {
            Ok(message) if message.is_object() => message,
            Ok(_) => {
                let why = "a message is one JSON object";
                return self.refuse(&Value::Null, INVALID_REQUEST, why).await;
            }
            Err(why) => {
                let why = format!("not strict JSON: {why}");
                return self.refuse(&Value::Null, PARSE_ERROR, &why).await;
            }
        };
        let method = message.get("method").and_then(Value::as_str).unwrap_or_default().to_owned();
        match (method.as_str(), message.get("id")) {
            // Awaited in place: every later message depends on the handshake.
            ("initialize", Some(_)) => self.ask(&message, text).await,
            (_, Some(_)) if !method.is_empty() => self.begin(message, text).await,
            ("notifications/cancelled", None) => self.cancel(&message, text).await,
            ("notifications/initialized", None) => {
                self.forward_notification(&message, text).await;
                self.listen();
            }
            (_, _) => self.forward_notification(&message, text).await,
        }
    }

    /// Begins a request in its own task, which waits for its turn. Later lines are read meanwhile: another request
    /// may depend on them.
    async fn begin(self: &Arc<Self>, message: Value, text: Vec<u8>) {
        let id = message.get("id").cloned().unwrap_or_default();
        let Ok(held) = Arc::clone(&self.held).try_acquire_owned() else {
            let why = "too many requests at one time: come again when some are answered";
            return self.refuse(&id, INTERNAL_ERROR, why).await;
        };
        let id = id.to_string();
        let (bridge, key) = (Arc::clone(self), id.clone());
        let task = tokio::spawn(async move {
            let place = bridge.places.acquire().await;
            bridge.ask(&message, text).await;
            locked(&bridge.state).under_way.remove(&key);
            drop((place, held));
        });
        if !task.is_finished() {
            locked(&self.state).under_way.insert(id, task.abort_handle());
        }
    }

    /// Sends a message that has no answer. The timeout keeps a gateway that does not take it from blocking later
    /// messages.
    async fn forward_notification(self: &Arc<Self>, message: &Value, text: Vec<u8>) {
        let asked = self.ask(message, text);
        if tokio::time::timeout(WORD_WAIT_MAX, asked).await.is_err() {
            warn!("the gateway does not take a message: it is left out");
        }
    }

    /// Cancels a request. With a session, the gateway is told; without one, aborting the request cancels it.
    async fn cancel(self: &Arc<Self>, message: &Value, text: Vec<u8>) {
        if locked(&self.state).session.is_some() {
            return self.forward_notification(message, text).await;
        }
        let id = message.pointer("/params/requestId").map(Value::to_string).unwrap_or_default();
        let under_way = locked(&self.state).under_way.remove(&id);
        if let Some(request) = under_way {
            request.abort();
        }
    }

    /// Sends a message, and writes whatever comes back.
    async fn ask(self: &Arc<Self>, message: &Value, text: Vec<u8>) {
        let id = message.get("id").filter(|_| message.get("method").is_some());
        let answered = self.line.exchange(Method::POST, "/mcp", &self.headers(message), text).await;
        let relayed = match answered {
            Ok(response) => {
                self.note_handshake(message, &response);
                self.relay(response).await
            }
            Err(error) => Err(error),
        };
        match (relayed, id) {
            (Ok(true), _) | (Ok(false), None) => {}
            (Ok(false), Some(id)) => {
                self.refuse(id, INTERNAL_ERROR, "the gateway ended without an answer").await;
            }
            (Err(error), Some(id)) => {
                self.refuse(id, INTERNAL_ERROR, &format!("{error:#}")).await;
            }
            (Err(error), None) => warn!("{error:#}"),
        }
    }

    /// HTTP headers that repeat parts of the message, for servers and proxies that read only headers.
    fn headers(&self, message: &Value) -> Vec<(&'static str, String)> {
        let mut headers = vec![
            ("content-type", "application/json".to_owned()),
            ("accept", "application/json, text/event-stream".to_owned()),
            (BRIDGE_HEADER, "stdio".to_owned()),
        ];
        let text = |pointer: &str| message.pointer(pointer).and_then(Value::as_str);
        let own = text("/params/_meta/io.modelcontextprotocol~1protocolVersion");
        let state = locked(&self.state);
        if let Some(version) = own.or(state.version.as_deref()) {
            headers.push(("mcp-protocol-version", version.to_owned()));
            if version >= STATELESS {
                headers.extend(text("/method").map(|method| ("mcp-method", method.to_owned())));
                let name = ["/params/name", "/params/uri", "/params/taskId"].into_iter();
                let name = name.filter_map(text).next();
                headers.extend(name.map(|name| ("mcp-name", name.to_owned())));
            }
        }
        let session = state.session.clone().filter(|_| own.is_none());
        headers.extend(session.map(|session| (SESSION_HEADER, session)));
        headers
    }

    fn note_handshake(&self, message: &Value, response: &Response<Body>) {
        if message.get("method").and_then(Value::as_str) != Some("initialize") {
            return;
        }
        let session = response.headers().get(SESSION_HEADER);
        let session = session.and_then(|value| value.to_str().ok()).map(str::to_owned);
        locked(&self.state).session = session;
    }

    /// Writes every message of a response. Returns whether one of them answers a request.
    async fn relay(self: &Arc<Self>, response: Response<Body>) -> anyhow::Result<bool> {
        let is_stream = response
            .headers()
            .get(header::CONTENT_TYPE)
            .is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"));
        let status = response.status();
        if is_stream {
            let mut events = Events::new(response.into_body());
            let mut is_answered = false;
            while let Some(event) = events.next().await? {
                if !event.data.is_empty() {
                    is_answered |= self.said(event.data.as_bytes()).await?;
                }
            }
            return Ok(is_answered);
        }
        let body = response.into_body().collect().await.context("the answer broke off")?;
        let body = body.to_bytes();
        match (status, body.is_empty()) {
            (StatusCode::ACCEPTED, _) | (_, true) => Ok(false),
            (_, false) => self.said(&body).await,
        }
    }

    /// Writes one message of the gateway. Returns whether it answers a request.
    async fn said(&self, text: &[u8]) -> anyhow::Result<bool> {
        let message: Value = serde_json::from_slice(text).context("the answer is not JSON")?;
        // A refusal by the gateway's HTTP interface: it is not JSON-RPC.
        if message.get("jsonrpc").is_none() {
            let why = message.get("detail").and_then(Value::as_str);
            anyhow::bail!("{}", why.unwrap_or("the gateway refused the request"));
        }
        if let Some(version) = message.pointer("/result/protocolVersion").and_then(Value::as_str) {
            locked(&self.state).version = Some(version.to_owned());
        }
        let is_answer = message.get("result").is_some() || message.get("error").is_some();
        // Fails only if the client does not read any more. The end of the input then stops the bridge.
        let _ = self.say.send(message).await;
        Ok(is_answer)
    }

    async fn refuse(&self, id: &Value, code: i32, why: &str) {
        let error = json!({ "code": code, "message": why });
        let _ = self.say.send(json!({ "jsonrpc": "2.0", "id": id, "error": error })).await;
    }

    /// Writes the messages that the gateway sends unasked, until the session ends.
    fn listen(self: &Arc<Self>) {
        let bridge = Arc::clone(self);
        let task = tokio::spawn(async move {
            loop {
                let headers = bridge.headers(&Value::Null);
                let stream = bridge.line.exchange(Method::GET, "/mcp", &headers, Vec::new()).await;
                match stream {
                    Ok(response) if response.status().is_success() => {
                        // Reconnect, for whatever reason the stream ended.
                        let _ = bridge.relay(response).await;
                    }
                    Ok(response) if response.status() == StatusCode::METHOD_NOT_ALLOWED => return,
                    Ok(_) | Err(_) => {}
                }
                tokio::time::sleep(RECONNECT_PAUSE).await;
            }
        });
        if let Some(before) = locked(&self.state).listener.replace(task.abort_handle()) {
            before.abort();
        }
    }

    /// Cleans up after the client has left. Submitted steps go on without it.
    async fn leave(self: &Arc<Self>) {
        let (under_way, listener, has_session) = {
            let mut state = locked(&self.state);
            (mem::take(&mut state.under_way), state.listener.take(), state.session.is_some())
        };
        under_way.into_values().chain(listener).for_each(|task| task.abort());
        if has_session {
            let headers = self.headers(&Value::Null);
            // If this fails, the gateway drops the session when it is idle for too long.
            let ended = self.line.exchange(Method::DELETE, "/mcp", &headers, Vec::new());
            let _ = tokio::time::timeout(LEAVE_WAIT_MAX, ended).await;
        }
    }
}
