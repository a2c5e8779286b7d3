//! Limits how many requests of one principal are under way over the network. A stream or a wait occupies its
//! connection, so one principal could otherwise use up all connections.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use axum::body::{Body, HttpBody};
use axum::response::Response;
use http_body_util::BodyExt;
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
        let mut taken = lock::locked(&self.taken);
        let count = taken.entry(principal_id.clone()).or_default();
        if *count >= self.most {
            return None;
        }
        *count += 1;
        Some(Place { places: Arc::clone(self), principal_id: principal_id.clone() })
    }
}

impl Place {
    /// Holds a place until a streamed response is sent. For a response that is complete already, releases it now.
    pub(super) fn keep(place: Option<Self>, response: Response) -> Response {
        match (place, response.body().size_hint().exact()) {
            (None, _) | (Some(_), Some(_)) => response,
            (Some(place), None) => response.map(|body| {
                Body::new(body.map_frame(move |frame| {
                    let _held_with_the_body = &place;
                    frame
                }))
            }),
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = lock::locked(&self.places.taken);
        if let Some(count) = taken.get_mut(&self.principal_id) {
            *count -= 1;
            if *count == 0 {
                taken.remove(&self.principal_id);
            }
        }
    }
}
