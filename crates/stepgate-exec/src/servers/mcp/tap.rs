//! Checks every message of a server before the SDK sees any of it.
//!
//! A message is parsed strictly: one with a duplicate key is not an answer. The answer to one of our
//! requests goes to its caller as it was sent; the SDK gets an empty answer in its place, so that it forgets
//! the request. Progress of a call goes to its listener. Unsolicited messages are dropped, except the
//! notification that the list of tools has changed; a server that exceeds the rate limit for them is
//! disconnected.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use rmcp::model::{
    ClientJsonRpcMessage, EmptyResult, GetExtensions, GetMeta, JsonRpcMessage, RequestId,
    ServerJsonRpcMessage,
};
use stepgate_core::digest::Digest;
use stepgate_core::json::strict::{self, Integers};
use stepgate_core::json::{Map, Value};
use stepgate_core::lock::locked;
use tokio::sync::{Notify, oneshot, watch};

use super::message::{self, Kind};
use crate::servers::progress::Listener;
use crate::servers::spec::ServerLimits;

/// The outcome of a request.
#[derive(Debug)]
pub(crate) enum ServerAnswer {
    /// A result, as it was sent.
    Result(Map<String, Value>),
    /// A JSON-RPC error: its message, and the digest of the whole error.
    Error(String, Digest),
    /// An answer that cannot be parsed: why, and its digest where it was complete.
    Unreadable(String, Option<Digest>),
    /// No answer, and the request was not sent.
    NotSent(String),
    /// No answer, and it is unknown what the server did.
    Lost(String),
}

impl ServerAnswer {
    /// The result, or why there is none.
    pub(super) fn into_result(self) -> Result<Map<String, Value>, String> {
        match self {
            Self::Result(result) => Ok(result),
            Self::Error(why, _) | Self::Unreadable(why, _) => Err(why),
            Self::NotSent(why) | Self::Lost(why) => Err(why),
        }
    }
}

/// The place for an answer, and the listener for progress until then. It travels with the request through
/// the SDK.
#[derive(Clone)]
pub(super) struct Slot {
    sender: Arc<Mutex<Option<oneshot::Sender<ServerAnswer>>>>,
    listener: Weak<Listener>,
}

impl Slot {
    pub(super) fn new(listener: Weak<Listener>) -> (Self, oneshot::Receiver<ServerAnswer>) {
        let (sender, receiver) = oneshot::channel();
        (Self { sender: Arc::new(Mutex::new(Some(sender))), listener }, receiver)
    }

    fn is_waited_for(&self) -> bool {
        locked(&self.sender).as_ref().is_some_and(|sender| !sender.is_closed())
    }

    fn put(&self, answer: ServerAnswer) {
        if let Some(sender) = locked(&self.sender).take() {
            // The caller may have stopped waiting.
            let _ = sender.send(answer);
        }
    }
}

/// How to handle a message.
pub(super) enum Incoming {
    /// Pass this to the SDK.
    Pass(Box<ServerJsonRpcMessage>),
    Done,
    Close(String),
}

/// The message filter of one connection.
pub(super) struct Tap {
    waiting: Mutex<Waiting>,
    has_shaken_hands: AtomicBool,
    has_misbehaved: AtomicBool,
    unasked: Mutex<Unasked>,
    unasked_per_second_max: u32,
    unasked_bytes_per_second_max: usize,
    list_changed: Arc<Notify>,
    closed: watch::Sender<Option<String>>,
}

#[derive(Default)]
struct Waiting {
    slots: HashMap<RequestId, Slot>,
    /// Request ids by progress token.
    tokens: HashMap<RequestId, RequestId>,
    is_closed: bool,
}

impl Waiting {
    /// Removes the requests whose callers no longer wait.
    fn tidy(&mut self) {
        self.slots.retain(|_, slot| slot.is_waited_for());
        self.tokens.retain(|_, id| self.slots.contains_key(id));
    }

    fn listener(&self, token: &RequestId) -> Option<Arc<Listener>> {
        self.slots.get(self.tokens.get(token)?)?.listener.upgrade()
    }
}

struct Unasked {
    since: Instant,
    count: u32,
    bytes: usize,
}

impl Tap {
    pub(super) fn new(limits: &ServerLimits, list_changed: Arc<Notify>) -> Self {
        Self {
            waiting: Mutex::default(),
            has_shaken_hands: AtomicBool::new(false),
            has_misbehaved: AtomicBool::new(false),
            unasked: Mutex::new(Unasked { since: Instant::now(), count: 0, bytes: 0 }),
            unasked_per_second_max: limits.unasked_per_second_max,
            unasked_bytes_per_second_max: limits.message_bytes_max,
            list_changed,
            closed: watch::Sender::new(None),
        }
    }

    /// Registers the waiter for a request that is about to be sent.
    pub(super) fn outgoing(&self, message: &ClientJsonRpcMessage) -> Option<RequestId> {
        let JsonRpcMessage::Request(request) = message else {
            return None;
        };
        let slot = request.request.extensions().get::<Slot>()?;
        let mut waiting = locked(&self.waiting);
        waiting.tidy();
        match waiting.is_closed {
            true => slot.put(ServerAnswer::NotSent("the connection is closed".to_owned())),
            false => {
                // The SDK gives every request a token of its own.
                if let Some(token) = request.request.get_meta().get_progress_token() {
                    waiting.tokens.insert(token.0, request.id.clone());
                }
                waiting.slots.insert(request.id.clone(), slot.clone());
            }
        }
        Some(request.id.clone())
    }

    /// From now on every answer belongs to a request of a caller outside the SDK.
    pub(super) fn shook_hands(&self) {
        self.has_shaken_hands.store(true, Ordering::Relaxed);
    }

    /// Whether a caller still waits for the answer to this request.
    pub(super) fn is_waited_for(&self, id: &RequestId) -> bool {
        locked(&self.waiting).slots.get(id).is_some_and(Slot::is_waited_for)
    }

    /// Delivers an answer to its waiter; returns whether the request was registered.
    pub(super) fn put(&self, id: &RequestId, answer: ServerAnswer) -> bool {
        let slot = locked(&self.waiting).slots.remove(id);
        slot.map(|slot| slot.put(answer)).is_some()
    }

    pub(super) fn incoming(&self, bytes: &[u8]) -> Incoming {
        let message = match strict::parse(bytes, strict::DEPTH_MAX, Integers::Any) {
            Ok(Value::Object(message)) => message,
            Ok(_) => return self.unasked_for(bytes.len()),
            Err(refusal) => return self.unreadable(bytes, &refusal),
        };
        match message::kind_of(&message) {
            Kind::Response(id) => self.response(id, message, bytes.len()),
            Kind::Request => match self.unasked_for(bytes.len()) {
                Incoming::Done => passed(message).unwrap_or(Incoming::Done),
                flood @ (Incoming::Close(_) | Incoming::Pass(_)) => flood,
            },
            Kind::Notification(method) => match method.as_str() {
                "notifications/progress" if self.progress(&message) => Incoming::Done,
                "notifications/tools/list_changed" => {
                    self.list_changed.notify_one();
                    self.unasked_for(bytes.len())
                }
                _ => self.unasked_for(bytes.len()),
            },
            Kind::Other => self.unasked_for(bytes.len()),
        }
    }

    /// Passes progress to the call's listener. Returns whether it was passed on; if not, it counts as an
    /// unsolicited message.
    fn progress(&self, message: &Map<String, Value>) -> bool {
        let Some(params) = message.get("params").and_then(Value::as_object) else { return false };
        let token = params.get("progressToken").and_then(message::request_id);
        let listener = token.and_then(|token| locked(&self.waiting).listener(&token));
        listener.is_some_and(|listener| listener.hear(params, Instant::now()))
    }

    fn response(&self, id: RequestId, mut message: Map<String, Value>, bytes: usize) -> Incoming {
        if !locked(&self.waiting).slots.contains_key(&id) {
            // The SDK itself sends requests only during the handshake. A later one is an answer to no
            // request, or to a request whose caller no longer waits.
            if self.has_shaken_hands.load(Ordering::Relaxed) {
                return self.unasked_for(bytes);
            }
            return passed(message).unwrap_or_else(Incoming::Close);
        }
        let answer = match (message.remove("result"), message.remove("error")) {
            (Some(Value::Object(result)), None) => ServerAnswer::Result(result),
            (None, Some(error)) => {
                let said = error.get("message").and_then(Value::as_str).unwrap_or("no message");
                ServerAnswer::Error(said.to_owned(), Digest::of_bytes(error.to_string().as_bytes()))
            }
            (_, _) => {
                ServerAnswer::Unreadable("the response has no result object".to_owned(), None)
            }
        };
        self.put(&id, answer);
        forgotten(id)
    }

    /// A message that is not strict JSON counts as the answer to its request, if it names one. Text that is
    /// not JSON at all is noise: many programs print to their standard output.
    fn unreadable(&self, bytes: &[u8], refusal: &strict::Refusal) -> Incoming {
        let id = message::id_in_beginning(bytes).or_else(|| message::id_in_end(bytes));
        let answer =
            || ServerAnswer::Unreadable(refusal.to_string(), Some(Digest::of_bytes(bytes)));
        match id {
            Some(id) if self.put(&id, answer()) => forgotten(id),
            Some(_) | None => self.unasked_for(bytes.len()),
        }
    }

    /// A message that was too long to be kept: only its beginning and its end are known.
    pub(super) fn too_long(&self, beginning: &[u8], end: &[u8], bytes_max: usize) -> Incoming {
        let why = format!("a message was longer than {bytes_max} bytes");
        let id = message::id_in_beginning(beginning).or_else(|| message::id_in_end(end));
        match id {
            Some(id) if self.put(&id, ServerAnswer::Unreadable(why.clone(), None)) => forgotten(id),
            // It may have been the answer to any request.
            Some(_) | None => self.misbehaved(why),
        }
    }

    pub(super) fn endless(&self, bytes: usize) -> Incoming {
        self.misbehaved(format!("it wrote {bytes} bytes without an end of line"))
    }

    /// An unsolicited message of this length.
    pub(super) fn unasked_for(&self, bytes: usize) -> Incoming {
        const WINDOW: Duration = Duration::from_secs(1);
        let mut unasked = locked(&self.unasked);
        if unasked.since.elapsed() >= WINDOW {
            *unasked = Unasked { since: Instant::now(), count: 0, bytes: 0 };
        }
        unasked.count = unasked.count.saturating_add(1);
        unasked.bytes = unasked.bytes.saturating_add(bytes);
        let (count_max, bytes_max) =
            (self.unasked_per_second_max, self.unasked_bytes_per_second_max);
        let much = match (unasked.count > count_max, unasked.bytes > bytes_max) {
            (true, _) => format!("{count_max} messages"),
            (false, true) => format!("{bytes_max} bytes"),
            (false, false) => return Incoming::Done,
        };
        self.misbehaved(format!("it sent more than {much} a second that nobody asked for"))
    }

    /// The server broke the protocol or a rate limit.
    fn misbehaved(&self, why: String) -> Incoming {
        self.has_misbehaved.store(true, Ordering::Relaxed);
        Incoming::Close(why)
    }

    pub(super) fn has_misbehaved(&self) -> bool {
        self.has_misbehaved.load(Ordering::Relaxed)
    }

    /// Ends the connection: every waiter learns that no answer will come.
    pub(super) fn close(&self, why: &str) {
        let slots = {
            let mut waiting = locked(&self.waiting);
            waiting.is_closed = true;
            std::mem::take(&mut waiting.slots)
        };
        self.give_up(why);
        for slot in slots.into_values() {
            slot.put(ServerAnswer::Lost(why.to_owned()));
        }
    }

    /// Accepts no new requests; present waiters may still get an answer.
    pub(super) fn give_up(&self, why: &str) {
        self.closed.send_if_modified(|closed| {
            let is_first = closed.is_none();
            closed.get_or_insert_with(|| why.to_owned());
            is_first
        });
    }

    pub(super) fn why_closed(&self) -> Option<String> {
        self.closed.borrow().clone()
    }

    pub(super) async fn closed(&self) -> String {
        let mut closed = self.closed.subscribe();
        let why = closed.wait_for(Option::is_some).await;
        why.ok().and_then(|why| why.clone()).unwrap_or_default()
    }
}

fn passed(message: Map<String, Value>) -> Result<Incoming, String> {
    serde_json::from_value(Value::Object(message))
        .map(|message| Incoming::Pass(Box::new(message)))
        .map_err(|error| format!("it sent what is not MCP: {error}"))
}

/// Lets the SDK forget a request whose answer bypassed it.
fn forgotten(id: RequestId) -> Incoming {
    let nothing = EmptyResult::from(());
    Incoming::Pass(Box::new(JsonRpcMessage::response(nothing.into(), id)))
}
