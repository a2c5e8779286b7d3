//! The ids of requests under way, by session. The SDK finds the stream of an answer by the request id alone, so a
//! second request with the same id would get the other one's answer. A session with a request under way is in use
//! and is not dropped.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use serde_json::Value;
use stepgate_core::lock;

/// Session and request id of each request under way. The id is JSON: `1` and `"1"` are different.
#[derive(Default)]
pub(super) struct UnderWay(Mutex<HashSet<(String, String)>>);

/// Holds an id until the request is answered, even if the client has disconnected.
pub(super) struct Claim {
    under_way: Arc<UnderWay>,
    request: (String, String),
}

impl UnderWay {
    /// Claims the id; none if it is already under way.
    pub(super) fn claim(self: &Arc<Self>, session: &str, id: &Value) -> Option<Claim> {
        let request = (session.to_owned(), id.to_string());
        let is_new = lock::locked(&self.0).insert(request.clone());
        is_new.then(|| Claim { under_way: Arc::clone(self), request })
    }

    pub(super) fn is_in_use(&self, session: &str) -> bool {
        lock::locked(&self.0).iter().any(|(used, _)| used == session)
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        lock::locked(&self.under_way.0).remove(&self.request);
    }
}

#[cfg(test)]
mod tests;
