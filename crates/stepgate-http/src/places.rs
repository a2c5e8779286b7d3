//! Limits how many requests of one principal are under way over the network. A stream or a wait occupies its
//! connection, so one principal could otherwise use up all connections.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};

use axum::body::{Body, HttpBody};
use axum::response::Response;
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use stepgate_core::ids::PrincipalId;
use stepgate_core::lock;

/// One principal may use at most one part in this many of all connections.
const SHARE: usize = 2;

/// The number of requests under way, by principal.
pub(super) struct Places {
    most: usize,
    taken: Mutex<HashMap<PrincipalId, usize>>,
}

/// The place of one request, held until its response is sent.
pub(super) struct Place {
    places: Arc<Places>,
    principal_id: PrincipalId,
}

impl Places {
    pub(super) fn of(connections_max: usize) -> Arc<Self> {
        Arc::new(Self { most: (connections_max / SHARE).max(1), taken: Mutex::default() })
    }

    /// Takes a place for a request of this principal; none if it has reached its limit.
    pub(super) fn take(self: &Arc<Self>, principal_id: &PrincipalId) -> Option<Place> {
        let mut taken = self.taken();
        let count = taken.entry(principal_id.clone()).or_default();
        if *count >= self.most {
            return None;
        }
        *count += 1;
        Some(Place { places: Arc::clone(self), principal_id: principal_id.clone() })
    }

    fn taken(&self) -> MutexGuard<'_, HashMap<PrincipalId, usize>> {
        lock::locked(&self.taken)
    }
}

impl Place {
    /// Holds the place until a streamed response is sent. For a response that is complete already, releases it now.
    pub(super) fn kept_by(self, response: Response) -> Response {
        match response.body().size_hint().exact() {
            Some(_) => response,
            None => response.map(|body| Body::new(Kept { body, _place: self })),
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.taken();
        let left = taken.get_mut(&self.principal_id).map(|count| {
            *count -= 1;
            *count
        });
        if left == Some(0) {
            taken.remove(&self.principal_id);
        }
    }
}

struct Kept {
    body: Body,
    _place: Place,
}

impl HttpBody for Kept {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
