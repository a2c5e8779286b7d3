//! What users ask for: events of their sessions, so that origins are the same on every node and after every crash.
//!
//! The n-th request of a session is an event whose id follows from the session and n, like the changes of a label.

use crate::digest::Digest;
use crate::event::EventType;
use crate::event::payload::{self, UserRequest};
use crate::gate::{Fault, Gate};
use crate::ids::{ArtifactId, PrincipalId, SessionId};
use crate::journal::StateError;
use crate::ports::{Store, StoreError};

pub use crate::event::payload::ToldBy;

/// Longest request.
pub const REQUEST_BYTES_MAX: usize = 64 * 1024;
/// Most bytes of all requests of one session: each is searched for each argument.
pub const SESSION_BYTES_MAX: usize = 256 * 1024;
/// Most requests of one session.
pub const REQUESTS_MAX: usize = 1000;
/// Requests that one query looks for.
const AT_ONCE: u64 = 8;
/// How often a request is written again under the next number, where others were written at the same time.
const ATTEMPTS_MAX: u32 = 100;

/// Why a request was not recorded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotTold {
    /// It is empty or too long.
    #[error("a request has 1 to {REQUEST_BYTES_MAX} bytes")]
    Length,
    /// The session has too many.
    #[error(
        "a session has at most {REQUESTS_MAX} requests of {SESSION_BYTES_MAX} bytes together: begin another one"
    )]
    TooMany,
    /// An internal error.
    #[error(transparent)]
    Fault(Fault),
}

impl<E: Into<Fault>> From<E> for NotTold {
    fn from(error: E) -> Self {
        Self::Fault(error.into())
    }
}

/// Records what the user of a session asked for. What the session has already is not recorded again.
pub async fn tell(
    gate: &Gate,
    session_id: SessionId,
    text: &str,
    told_by: ToldBy,
    principal_id: &PrincipalId,
) -> Result<(), NotTold> {
    if text.trim().is_empty() || text.len() > REQUEST_BYTES_MAX {
        return Err(NotTold::Length);
    }
    for _ in 0..ATTEMPTS_MAX {
        let told = after(&*gate.store, session_id, 0).await?;
        if told.iter().any(|before| before == text) {
            return Ok(());
        }
        let bytes: usize = told.iter().map(String::len).sum();
        if told.len() >= REQUESTS_MAX || bytes + text.len() > SESSION_BYTES_MAX {
            return Err(NotTold::TooMany);
        }
        let number = told.len() as u64 + 1;
        let event_id = event_id(session_id, number);
        let request =
            UserRequest { principal_id: principal_id.clone(), text: text.to_owned(), told_by };
        let payload = payload::value_from(request, gate.world.request());
        let event = gate.event(event_id, EventType::UserRequest, payload, session_id);
        match gate.store.append_event(event).await {
            Ok(()) => return Ok(()),
            // Another one may have this number, or the answer was lost: the next attempt reads which.
            Err(refused) => match gate.store.event(event_id).await? {
                Some(_) => {}
                None => return Err(refused.into()),
            },
        }
    }
    Err(StoreError::Unavailable("other requests of the session were written meanwhile".into())
        .into())
}

/// The texts of a session's requests after the first `read`, oldest first.
pub(crate) async fn after(
    store: &dyn Store,
    session_id: SessionId,
    read: u64,
) -> Result<Vec<String>, StoreError> {
    let mut texts = Vec::new();
    let mut number = read;
    loop {
        let event_ids: Vec<ArtifactId> =
            (number + 1..=number + AT_ONCE).map(|number| event_id(session_id, number)).collect();
        let events = store.events_by_id(&event_ids).await?;
        for event_id in &event_ids {
            let Some(event) = events.iter().find(|event| event.event_id == *event_id) else {
                return Ok(texts);
            };
            let UserRequest { text, .. } = payload::read(&event.payload)
                .map_err(|error| StateError::checksum(format!("event {event_id}: {error}")))?;
            texts.push(text);
        }
        number += AT_ONCE;
    }
}

fn event_id(session_id: SessionId, number: u64) -> ArtifactId {
    let digest = Digest::of(&("stepgate user request", session_id.to_string(), number));
    ArtifactId::derived([0; 6], &digest)
}
