//! Tracks whether an answer was delivered, by watching its body to the end.
//!
//! Bytes that the connection has accepted count as delivered. Bytes lost after that are not noticed here: only an
//! idempotency key helps then.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Context, Poll};

use axum::body::{Body, HttpBody};
use axum::http::{HeaderMap, header};
use bytes::Bytes;
use hyper::body::Frame;
use serde::Deserialize;
use serde::de::IgnoredAny;
use stepgate_core::ids::ProposalId;
use stepgate_core::lock::locked;

use super::Shared;
use super::unanswered::{CallFingerprint, Stream};

pub(super) struct Delivery {
    shared: Arc<Shared>,
    /// The session of a client that made a handshake: it can resume a broken stream.
    session: Option<String>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    call: Option<(CallFingerprint, ProposalId)>,
    stream: Option<Stream>,
    is_broken: bool,
    has_arrived: bool,
    /// How many watches have begun. Only the latest counts: resuming a stream ends the one before, whose break may be
    /// noticed only later.
    watches: u64,
}

impl Delivery {
    /// The delivery of an answer in this session: the one of the stream that the client resumes, or a new one.
    pub(super) fn of(
        shared: &Arc<Shared>,
        session: Option<String>,
        resumed: Option<u64>,
    ) -> Arc<Self> {
        let stream = session.clone().zip(resumed);
        let stream = stream.map(|(session, number)| Stream { session, number });
        if let Some(delivery) = stream.as_ref().and_then(|stream| shared.streams.find(stream)) {
            return delivery;
        }
        let state = Mutex::new(State { stream, ..State::default() });
        Arc::new(Self { shared: Arc::clone(shared), session, state })
    }

    /// Notes that the answer will be that of this call, which has no idempotency key.
    pub(super) fn carries(&self, sameness: CallFingerprint, proposal_id: ProposalId) {
        let mut state = locked(&self.state);
        if state.is_broken {
            self.shared.unanswered.add(sameness, proposal_id.clone(), state.stream.clone());
        }
        state.call = Some((sameness, proposal_id));
    }

    /// Notes that the answer is sent on this stream of its session.
    fn goes_over(self: &Arc<Self>, number: u64) {
        let mut state = locked(&self.state);
        let Some(session) = self.session.clone().filter(|_| state.stream.is_none()) else {
            return;
        };
        let stream = Stream { session, number };
        state.stream = Some(stream.clone());
        drop(state);
        self.shared.streams.add(stream, self);
    }

    fn broke(&self, watch: u64) {
        let mut state = locked(&self.state);
        if watch != state.watches || state.has_arrived {
            return;
        }
        state.is_broken = true;
        if let Some((sameness, proposal_id)) = state.call.clone() {
            self.shared.unanswered.add(sameness, proposal_id, state.stream.clone());
        }
    }
}

impl Drop for Delivery {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(stream) = &state.stream {
            self.shared.streams.remove(stream);
        }
    }
}

/// The session streams that carry answers now.
#[derive(Default)]
pub(super) struct Streams(Mutex<HashMap<Stream, Weak<Delivery>>>);

impl Streams {
    fn add(&self, stream: Stream, delivery: &Arc<Delivery>) {
        locked(&self.0).insert(stream, Arc::downgrade(delivery));
    }

    fn find(&self, stream: &Stream) -> Option<Arc<Delivery>> {
        // The lock is released first: dropping the last `Arc` here would take the lock again and deadlock.
        let found = locked(&self.0).get(stream).cloned();
        found?.upgrade()
    }

    /// A restarted session counts its streams from the beginning, so a live entry belongs to a newer delivery: keep it.
    fn remove(&self, stream: &Stream) {
        let mut known = locked(&self.0);
        if known.get(stream).is_some_and(|delivery| delivery.strong_count() == 0) {
            known.remove(stream);
        }
    }

    /// Forgets the streams of a session that was dropped: they cannot be resumed any more.
    pub(super) fn end(&self, session: &str) {
        locked(&self.0).retain(|stream, _| stream.session != session);
    }
}

/// Watches one answer. If it is dropped before the answer was sent, the answer is lost.
pub(super) struct Watch {
    delivery: Arc<Delivery>,
    number: u64,
}

impl Watch {
    /// Starts to watch. If the client resumes a stream, the call that was lost with it counts as found again.
    pub(super) fn over(delivery: &Arc<Delivery>) -> Self {
        let mut state = locked(&delivery.state);
        state.watches += 1;
        state.is_broken = false;
        if let Some(call) =
            state.stream.as_ref().and_then(|it| delivery.shared.unanswered.resumed(it))
        {
            state.call = Some(call);
        }
        let number = state.watches;
        drop(state);
        Self { delivery: Arc::clone(delivery), number }
    }

    fn arrived(&self) {
        locked(&self.delivery.state).has_arrived = true;
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.delivery.broke(self.number);
    }
}

/// The sign that an answer was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sign {
    /// The last byte: the body is the answer.
    End,
    /// The event with the answer. A stream that ends without it was cut, by either side.
    Event,
}

impl Sign {
    fn of(headers: &HeaderMap) -> Self {
        let kind = headers.get(header::CONTENT_TYPE).map(|kind| kind.as_bytes());
        match kind.is_some_and(|kind| kind.starts_with(b"application/json")) {
            true => Self::End,
            false => Self::Event,
        }
    }
}

/// A body that is watched until its last byte was sent.
pub(super) struct Watched {
    body: Body,
    sign: Sign,
    watch: Watch,
}

impl Watched {
    pub(super) fn body(headers: &HeaderMap, body: Body, watch: Watch) -> Body {
        let watched = Self { body, sign: Sign::of(headers), watch };
        if watched.sign == Sign::End && watched.body.is_end_stream() {
            watched.watch.arrived();
        }
        Body::new(watched)
    }
}

impl HttpBody for Watched {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        match (&polled, self.sign) {
            (Poll::Ready(None), Sign::End) => self.watch.arrived(),
            (Poll::Ready(Some(Ok(_))), Sign::End) if self.body.is_end_stream() => {
                self.watch.arrived();
            }
            (Poll::Ready(Some(Ok(frame))), Sign::Event) => {
                if let Some(piece) = frame.data_ref() {
                    // A client that has its answer may disconnect before the stream ends.
                    if is_answer(piece) {
                        self.watch.arrived();
                    }
                    if let Some(number) = stream_of(piece) {
                        self.watch.delivery.goes_over(number);
                    }
                }
            }
            (Poll::Ready(_) | Poll::Pending, Sign::End | Sign::Event) => {}
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> hyper::body::SizeHint {
        self.body.size_hint()
    }
}

/// Whether a piece of a stream is the answer, not a notification or request before it: it has an id and no
/// method.
fn is_answer(piece: &Bytes) -> bool {
    #[derive(Deserialize)]
    struct Head {
        id: Option<IgnoredAny>,
        method: Option<IgnoredAny>,
    }
    let lines = piece.split(|byte| *byte == b'\n');
    lines.filter_map(|line| line.strip_prefix(b"data:")).any(|data| {
        serde_json::from_slice(data)
            .is_ok_and(|head: Head| head.id.is_some() && head.method.is_none())
    })
}

fn stream_of(piece: &Bytes) -> Option<u64> {
    let mut lines = piece.split(|byte| *byte == b'\n');
    let id = lines.find_map(|line| line.strip_prefix(b"id:"))?;
    stream_in(std::str::from_utf8(id).ok()?)
}

/// The stream number in an event id `INDEX/STREAM`. Events that answer no request have only an index.
pub(super) fn stream_in(event_id: &str) -> Option<u64> {
    event_id.trim().split_once('/')?.1.parse().ok()
}

#[cfg(test)]
mod tests;
