//! Questions to a person that are open, of calls without a key. An equal call of the same principal joins the
//! question instead of asking it once more: the person sees it once, and the effect happens once.
//!
//! Two calls with two keys are two intentions, and are never joined. What is open on another node, or was
//! before the gateway started, is not known here: the latter is found by `unanswered.rs`.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use stepgate_core::ids::ProposalId;
use tokio::sync::{Mutex, MutexGuard};

use super::unanswered::Sameness;

/// Calls that ask at the same time wait for each other only within one part.
const PARTS: usize = 64;
/// Most questions that a part remembers. Beyond them all of its questions are forgotten: an equal call then
/// asks again.
const QUESTIONS_PER_PART_MAX: usize = 1024;

/// The open questions, by what makes two calls the same.
pub(super) struct Questions(Vec<Mutex<HashMap<Sameness, ProposalId>>>);

/// The questions of one part, held while a call looks for its equal and asks.
pub(super) struct Part<'a>(MutexGuard<'a, HashMap<Sameness, ProposalId>>);

impl Default for Questions {
    fn default() -> Self {
        Self((0..PARTS).map(|_| Mutex::default()).collect())
    }
}

impl Questions {
    /// Waits for the part of this call. None never happens: there is a part for every number.
    pub(super) async fn part(&self, sameness: Sameness) -> Option<Part<'_>> {
        let mut hasher = DefaultHasher::new();
        sameness.hash(&mut hasher);
        let parts = u64::try_from(self.0.len()).unwrap_or(u64::MAX);
        let number = usize::try_from(hasher.finish() % parts).unwrap_or_default();
        Some(Part(self.0.get(number)?.lock().await))
    }
}

impl Part<'_> {
    /// The call that may have asked the same.
    pub(super) fn asked(&self, sameness: Sameness) -> Option<ProposalId> {
        self.0.get(&sameness).cloned()
    }

    /// This call asks now.
    pub(super) fn note(&mut self, sameness: Sameness, proposal_id: ProposalId) {
        if self.0.len() >= QUESTIONS_PER_PART_MAX {
            self.0.clear();
        }
        self.0.insert(sameness, proposal_id);
    }

    /// What this call asked is not open any more.
    pub(super) fn forget(&mut self, sameness: Sameness) {
        self.0.remove(&sameness);
    }
}
