//! The ids of requests under way, by session. The SDK finds the stream of an answer by the request id alone, so a
//! second request with the same id would get the other one's answer. A session with a request under way is in use
//! and is not dropped.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard};

use serde_json::Value;
use stepgate_core::lock;

/// The request ids under way, as JSON (`1` and `"1"` are different), by session.
#[derive(Default)]
pub(super) struct UnderWay(Mutex<HashMap<String, HashSet<String>>>);

/// Holds an id until the request is answered, even if the client has disconnected.
pub(super) struct Claim {
    under_way: Arc<UnderWay>,
    session: String,
    id: String,
}

impl UnderWay {
    fn sessions(&self) -> MutexGuard<'_, HashMap<String, HashSet<String>>> {
        lock::locked(&self.0)
    }

    /// Claims the id; none if it is already under way.
    pub(super) fn claim(self: &Arc<Self>, session: &str, id: &Value) -> Option<Claim> {
        let (session, id) = (session.to_owned(), id.to_string());
        let is_new = self.sessions().entry(session.clone()).or_default().insert(id.clone());
        is_new.then(|| Claim { under_way: Arc::clone(self), session, id })
    }

    /// Whether a request is under way in the session.
    pub(super) fn is_in_use(&self, session: &str) -> bool {
        self.sessions().contains_key(session)
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut sessions = self.under_way.sessions();
        if let Some(ids) = sessions.get_mut(&self.session) {
            ids.remove(&self.id);
            if ids.is_empty() {
                sessions.remove(&self.session);
            }
        }
    }
}

#[cfg(test)]
mod tests;
