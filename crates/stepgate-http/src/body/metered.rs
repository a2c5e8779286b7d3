//! A request's body while it is read: its bytes take a share of memory, and are charged to the caller's rates.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::BoxError;
use axum::body::{Body, HttpBody};
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use stepgate_core::ids::PrincipalId;

use crate::App;
use crate::refusals::Limit;
use crate::shares::{Holder, Rank, Share};

/// A body with a share of memory, which is given back when the body is read or given up.
pub(crate) struct Metered {
    body: Body,
    share: Share,
    app: Arc<App>,
    who: Option<PrincipalId>,
    rank: Rank,
    length: u64,
}

/// The caller has its share of memory for bodies.
#[derive(Debug, thiserror::Error)]
#[error("no room for this body")]
pub(super) struct NoRoom;

impl Metered {
    /// The body of a request of this holder.
    pub(crate) fn body(app: &Arc<App>, holder: Holder, rank: Rank, body: Body) -> Body {
        if body.is_end_stream() {
            return body;
        }
        let who = match &holder {
            Holder::Principal(principal_id) => Some(principal_id.clone()),
            Holder::Network(_) => None,
        };
        let share = app.bodies.begin(holder, rank);
        Body::new(Self { body, share, app: Arc::clone(app), who, rank, length: 0 })
    }

    fn grow(&mut self, bytes: usize) -> Result<(), BoxError> {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        self.length = self.length.saturating_add(bytes);
        if self.share.grow(bytes) {
            return Ok(());
        }
        let who = self.who.as_ref().map_or("a caller without a token", PrincipalId::as_str);
        self.app.metrics.refusals.count(Limit::BodyMemory, &who);
        Err(NoRoom.into())
    }
}

impl HttpBody for Metered {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        Poll::Ready(match frame {
            Some(Ok(frame)) => {
                let bytes = frame.data_ref().map_or(0, Bytes::len);
                Some(self.grow(bytes).map(|()| frame))
            }
            Some(Err(error)) => Some(Err(error.into())),
            None => None,
        })
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Metered {
    fn drop(&mut self) {
        let Some(who) = &self.who else { return };
        self.app.rates.body(who, self.length);
        match self.rank {
            Rank::Ordinary => self.app.rates.sent(who, self.length),
            Rank::Reserve => {}
        }
    }
}
