//! The ids under which clients wait in their sessions. The SDK finds an answer's stream by the id alone,
//! so one that is under way twice would give a call the other one's answer.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;

/// A session's name, and an id as JSON: `1` and `"1"` are two.
type Name = (String, String);

/// The ids that are under way.
#[derive(Default)]
pub(super) struct UnderWay(Mutex<HashSet<Name>>);

/// Holds an id until the request is answered, whoever still waits for it.
pub(super) struct Claim {
    under_way: Arc<UnderWay>,
    name: Name,
}

impl UnderWay {
    /// Claims the id; none where it is under way already.
    pub(super) fn claim(self: &Arc<Self>, session: &str, id: &Value) -> Option<Claim> {
        let name = (session.to_owned(), id.to_string());
        let mut names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = names.insert(name.clone());
        is_new.then(|| Claim { under_way: Arc::clone(self), name })
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut names = self.under_way.0.lock().unwrap_or_else(PoisonError::into_inner);
        names.remove(&self.name);
    }
}

#[cfg(test)]
mod tests;
