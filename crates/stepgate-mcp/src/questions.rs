//! Open approvals of calls without an idempotency key. An equal call of the same principal joins the open approval
//! instead of requesting another: the person sees it once, and the effect happens once.
//!
//! Two calls with different keys are two intentions, and are never joined. Approvals requested on another node or
//! before the gateway started are not known here; `unanswered.rs` finds the latter.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use stepgate_core::ids::ProposalId;
use tokio::sync::{Mutex, MutexGuard};

use super::unanswered::CallFingerprint;

/// Number of shards, each with its own lock: calls wait for each other only within one shard.
const PARTS: usize = 64;
/// Most approvals that a shard remembers. Above that the shard is cleared, and an equal call requests another
/// approval.
const QUESTIONS_PER_PART_MAX: usize = 1024;

/// One shard, locked while a call looks for an equal one and submits.
pub(super) type Part = HashMap<CallFingerprint, ProposalId>;

/// The open approvals, keyed by what makes two calls equal.
pub(super) struct Questions(Vec<Mutex<Part>>);

impl Default for Questions {
    fn default() -> Self {
        Self((0..PARTS).map(|_| Mutex::default()).collect())
    }
}

impl Questions {
    /// Locks the shard of this call. Never none: every hash has a shard.
    pub(super) async fn part(&self, sameness: CallFingerprint) -> Option<MutexGuard<'_, Part>> {
        let mut hasher = DefaultHasher::new();
        sameness.hash(&mut hasher);
        let parts = u64::try_from(self.0.len()).unwrap_or(u64::MAX);
        let number = usize::try_from(hasher.finish() % parts).unwrap_or_default();
        Some(self.0.get(number)?.lock().await)
    }
}

/// Notes that this call now waits for approval.
pub(super) fn note(part: &mut Part, sameness: CallFingerprint, proposal_id: ProposalId) {
    if part.len() >= QUESTIONS_PER_PART_MAX {
        part.clear();
    }
    part.insert(sameness, proposal_id);
}
