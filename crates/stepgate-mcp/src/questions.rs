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

/// The open approvals, keyed by what makes two calls equal.
pub(super) struct Questions(Vec<Mutex<HashMap<CallFingerprint, ProposalId>>>);

/// One locked shard, held while a call looks for an equal one and submits.
pub(super) struct Part<'a>(MutexGuard<'a, HashMap<CallFingerprint, ProposalId>>);

impl Default for Questions {
    fn default() -> Self {
        Self((0..PARTS).map(|_| Mutex::default()).collect())
    }
}

impl Questions {
    /// Locks the shard of this call. Never none: every hash has a shard.
    pub(super) async fn part(&self, sameness: CallFingerprint) -> Option<Part<'_>> {
        let mut hasher = DefaultHasher::new();
        sameness.hash(&mut hasher);
        let parts = u64::try_from(self.0.len()).unwrap_or(u64::MAX);
        let number = usize::try_from(hasher.finish() % parts).unwrap_or_default();
        Some(Part(self.0.get(number)?.lock().await))
    }
}

impl Part<'_> {
    /// The call that may have an open approval for the same thing.
    pub(super) fn asked(&self, sameness: CallFingerprint) -> Option<ProposalId> {
        self.0.get(&sameness).cloned()
    }

    /// Notes that this call now waits for approval.
    pub(super) fn note(&mut self, sameness: CallFingerprint, proposal_id: ProposalId) {
        if self.0.len() >= QUESTIONS_PER_PART_MAX {
            self.0.clear();
        }
        self.0.insert(sameness, proposal_id);
    }

    /// Forgets a call whose approval is not open any more.
    pub(super) fn forget(&mut self, sameness: CallFingerprint) {
        self.0.remove(&sameness);
    }
}
