//! Whether an answer arrived: its body is watched to its end.
//!
//! What the connection has taken counts as arrived. Bytes that were taken and then lost on the way are
//! not seen here: against that, only a key helps.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use axum::body::{Body, HttpBody};
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Frame;
use serde::Deserialize;
use serde::de::IgnoredAny;
use stepgate_core::ids::ProposalId;

use super::unanswered::{Sameness, Unanswered};

/// The way of one answer.
pub(super) struct Delivery {
    unanswered: Arc<Unanswered>,
    /// The session of a client that shook hands: it can take up a broken stream where it broke.
    session: Option<String>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    call: Option<(Sameness, ProposalId)>,
    is_broken: bool,
}

impl Delivery {
    pub(super) fn new(unanswered: Arc<Unanswered>, session: Option<String>) -> Arc<Self> {
        Arc::new(Self { unanswered, session, state: Mutex::default() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The answer will be that of this call, which has no key.
    pub(super) fn carries(&self, sameness: Sameness, proposal_id: ProposalId) {
        let mut state = self.state();
        if state.is_broken {
            self.unanswered.add(sameness, proposal_id.clone(), self.session.clone());
        }
        state.call = Some((sameness, proposal_id));
    }

    fn broke(&self) {
        let mut state = self.state();
        state.is_broken = true;
        if let Some((sameness, proposal_id)) = state.call.clone() {
            self.unanswered.add(sameness, proposal_id, self.session.clone());
        }
    }
}

/// Watches one answer. Dropped before the answer has gone, the answer is lost.
pub(super) struct Watch(Option<Arc<Delivery>>);

impl Watch {
    pub(super) fn over(delivery: &Arc<Delivery>) -> Self {
        Self(Some(Arc::clone(delivery)))
    }

    fn arrived(&mut self) {
        self.0 = None;
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some(delivery) = &self.0 {
            delivery.broke();
        }
    }
}

/// A body that is watched until its last byte was taken.
pub(super) struct Watched<B> {
    body: B,
    watch: Watch,
}

impl<B> Watched<B>
where
    B: HttpBody<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<axum::BoxError>,
{
    pub(super) fn body(body: B, watch: Watch) -> Body {
        let mut watched = Self { body, watch };
        if watched.body.is_end_stream() {
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
        match &polled {
            Poll::Ready(None) => self.watch.arrived(),
            Poll::Ready(Some(Ok(_))) if self.body.is_end_stream() => self.watch.arrived(),
            // A client that has its answer may leave without waiting for the stream's end.
            Poll::Ready(Some(Ok(frame))) if frame.data_ref().is_some_and(is_answer) => {
                self.watch.arrived();
            }
            Poll::Ready(Some(_)) | Poll::Pending => {}
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

#[cfg(test)]
mod tests;
