//! The binding of an idempotency key (decision 7).

use crate::digest::Digest;
use crate::ids::{IdempotencyKey, RunId};

/// What a key is bound to. It never expires.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binding {
    /// The key.
    pub idempotency_key: IdempotencyKey,
    /// The tool's server.
    pub tool_server: String,
    /// The tool.
    pub tool_name: String,
    /// Digest of the action and its arguments as proposed.
    pub asked_digest: Digest,
    /// The trace that acts under the key.
    pub trace_id: RunId,
    /// Whether the effect is recorded; until then the call is in flight.
    pub settled: bool,
}

impl Binding {
    /// Whether this trace has a call in flight under the key.
    pub fn is_in_flight(&self, trace_id: RunId) -> bool {
        self.trace_id == trace_id && !self.settled
    }
}
