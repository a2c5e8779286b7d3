//! Whether an answer arrived: its body is watched to its end.
//!
//! What the connection has taken counts as arrived. Bytes that were taken and then lost on the way are
//! not seen here: against that, only a key helps.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll};

use axum::body::{Body, HttpBody};
use axum::http::{HeaderMap, header};
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Frame;
use serde::Deserialize;
use serde::de::IgnoredAny;
use stepgate_core::ids::ProposalId;

use super::unanswered::{Sameness, Stream, Unanswered};

/// The way of one answer.
pub(super) struct Delivery {
    unanswered: Arc<Unanswered>,
    streams: Arc<Streams>,
    /// The session of a client that shook hands: it can take up a broken stream where it broke.
    session: Option<String>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    call: Option<(Sameness, ProposalId)>,
    stream: Option<Stream>,
    is_broken: bool,
    has_arrived: bool,
    /// How often somebody began to watch. Only the last one's word counts: a stream that is taken up
    /// ends the one before, which may not have been seen to break yet.
    watches: u64,
}

impl Delivery {
    pub(super) fn new(
        unanswered: &Arc<Unanswered>,
        streams: &Arc<Streams>,
        session: Option<String>,
    ) -> Arc<Self> {
        Arc::new(Self {
            unanswered: Arc::clone(unanswered),
            streams: Arc::clone(streams),
            session,
            state: Mutex::default(),
        })
    }

    /// The way of the answer that this stream carries, which is taken up again.
    pub(super) fn again(
        unanswered: &Arc<Unanswered>,
        streams: &Arc<Streams>,
        stream: Stream,
    ) -> Arc<Self> {
        if let Some(delivery) = streams.find(&stream) {
            return delivery;
        }
        let delivery = Self::new(unanswered, streams, Some(stream.session.clone()));
        delivery.state().stream = Some(stream);
        delivery
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The answer will be that of this call, which has no key.
    pub(super) fn carries(&self, sameness: Sameness, proposal_id: ProposalId) {
        let mut state = self.state();
        if state.is_broken {
            self.unanswered.add(sameness, proposal_id.clone(), state.stream.clone());
        }
        state.call = Some((sameness, proposal_id));
    }

    /// The answer goes over this stream of its session.
    fn goes_over(self: &Arc<Self>, number: u64) {
        let mut state = self.state();
        let Some(session) = self.session.clone().filter(|_| state.stream.is_none()) else {
            return;
        };
        let stream = Stream { session, number };
        state.stream = Some(stream.clone());
        drop(state);
        self.streams.add(stream, self);
    }

    fn broke(&self, watch: u64) {
        let mut state = self.state();
        if watch != state.watches || state.has_arrived {
            return;
        }
        state.is_broken = true;
        if let Some((sameness, proposal_id)) = state.call.clone() {
            self.unanswered.add(sameness, proposal_id, state.stream.clone());
        }
    }
}

impl Drop for Delivery {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(stream) = &state.stream {
            self.streams.remove(stream);
        }
    }
}

/// The streams of sessions that carry answers now.
#[derive(Default)]
pub(super) struct Streams(Mutex<HashMap<Stream, Weak<Delivery>>>);

impl Streams {
    fn known(&self) -> MutexGuard<'_, HashMap<Stream, Weak<Delivery>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, stream: Stream, delivery: &Arc<Delivery>) {
        self.known().insert(stream, Arc::downgrade(delivery));
    }

    fn find(&self, stream: &Stream) -> Option<Arc<Delivery>> {
        // Dropped with the lock held, the last one would wait for the lock itself.
        let found = self.known().get(stream).cloned();
        found?.upgrade()
    }

    /// A session that begins anew counts its streams anew: one that is alive is another one's.
    fn remove(&self, stream: &Stream) {
        let mut known = self.known();
        if known.get(stream).is_some_and(|delivery| delivery.strong_count() == 0) {
            known.remove(stream);
        }
    }

    /// The session is let go: nobody takes up its streams any more.
    pub(super) fn end(&self, session: &str) {
        self.known().retain(|stream, _| stream.session != session);
    }
}

/// Watches one answer. Dropped before the answer has gone, the answer is lost.
pub(super) struct Watch {
    delivery: Arc<Delivery>,
    number: u64,
}

impl Watch {
    /// Watches from now on. A call that was lost with the stream that is taken up is not lost any more.
    pub(super) fn over(delivery: &Arc<Delivery>) -> Self {
        let mut state = delivery.state();
        state.watches += 1;
        state.is_broken = false;
        if let Some(call) = state.stream.as_ref().and_then(|it| delivery.unanswered.resumed(it)) {
            state.call = Some(call);
        }
        let number = state.watches;
        drop(state);
        Self { delivery: Arc::clone(delivery), number }
    }

    fn arrived(&self) {
        self.delivery.state().has_arrived = true;
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.delivery.broke(self.number);
    }
}

/// What shows that an answer has gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sign {
    /// Its last byte: the body is the answer.
    End,
    /// The event with the answer. A stream that ends without it was cut, whoever cut it.
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

/// A body that is watched until its last byte was taken.
pub(super) struct Watched<B> {
    body: B,
    sign: Sign,
    watch: Watch,
}

impl<B> Watched<B>
where
    B: HttpBody<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<axum::BoxError>,
{
    pub(super) fn body(headers: &HeaderMap, body: B, watch: Watch) -> Body {
        let watched = Self { body, sign: Sign::of(headers), watch };
        if watched.sign == Sign::End && watched.body.is_end_stream() {
            watched.watch.arrived();
        }
        Body::new(watched.map_err(Into::into))
    }
}

impl<B: HttpBody<Data = Bytes> + Unpin> HttpBody for Watched<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        match (&polled, self.sign) {
            (Poll::Ready(None), Sign::End) => self.watch.arrived(),
            (Poll::Ready(Some(Ok(_))), Sign::End) if self.body.is_end_stream() => {
                self.watch.arrived();
            }
            (Poll::Ready(Some(Ok(frame))), Sign::Event) => {
                if let Some(piece) = frame.data_ref() {
                    // A client that has its answer may leave without waiting for the stream's end.
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

/// Whether a piece of a stream is the answer, and not a word on the way to it: it has an id, and no
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

/// The stream that an event says it is of.
fn stream_of(piece: &Bytes) -> Option<u64> {
    let mut lines = piece.split(|byte| *byte == b'\n');
    let id = lines.find_map(|line| line.strip_prefix(b"id:"))?;
    stream_in(std::str::from_utf8(id).ok()?)
}

/// The stream of an event's id: `PLACE/STREAM`. What a session says by itself has a place alone.
pub(super) fn stream_in(event_id: &str) -> Option<u64> {
    event_id.trim().split_once('/')?.1.parse().ok()
}

#[cfg(test)]
mod tests;
