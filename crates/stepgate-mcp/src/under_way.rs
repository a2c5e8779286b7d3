//! The ids under which clients wait in their sessions. The SDK finds an answer's stream by the id alone,
//! so one that is under way twice would give a call the other one's answer. A session where one is
//! under way is in use, and is not let go.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;

/// The ids that are under way, as JSON (`1` and `"1"` are two), by their sessions.
#[derive(Default)]
pub(super) struct UnderWay(Mutex<HashMap<String, HashSet<String>>>);

/// Holds an id until the request is answered, whoever still waits for it.
pub(super) struct Claim {
    under_way: Arc<UnderWay>,
    session: String,
    id: String,
}

impl UnderWay {
    fn sessions(&self) -> MutexGuard<'_, HashMap<String, HashSet<String>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Claims the id; none where it is under way already.
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
