//! The journal of a trace: an append-only log in which each entry names its predecessor's digest.
//!
//! Only [`Journal`] makes entries, and only [`Tail::accept`] judges them: for the store before it writes an
//! entry, for recovery and `verify` after they read one.

pub mod artifact;
pub mod checkpoint;
pub mod entry;
mod replay;

use crate::digest::Digest;
use crate::ids::{ArtifactId, IdempotencyKey, RunId, SessionId};
use crate::machine::{self, State};
use crate::spelled::spelled;
use crate::time::Timestamp;

pub use artifact::{Artifact, Kind, Sealed};
pub use checkpoint::{Checkpoint, ExecutionState};
pub use entry::{Appended, Entry, Tail};
pub use replay::{Replayed, replay};

spelled! {
    /// The six stable codes of spec 004.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum StateCode {
        /// An illegal pair, a `from_state` that is not the current one, or a call without its id.
        InvalidTransition = "STATE_INVALID_TRANSITION",
        /// A gap or a duplicate in the sequence.
        SequenceGap = "STATE_SEQUENCE_GAP",
        /// A digest that does not follow from what it covers.
        ChecksumMismatch = "STATE_CHECKSUM_MISMATCH",
        /// No journal where there must be one, or a trace that does not verify.
        RecoveryFailed = "STATE_RECOVERY_FAILED",
        /// The trace's lock was not obtained within the wait.
        LockAcquireFailed = "STATE_LOCK_ACQUIRE_FAILED",
        /// Another executor took the trace over.
        ConcurrentExecution = "STATE_CONCURRENT_EXECUTION",
    }
}

impl StateCode {
    /// Whether the code means that a journal ends elsewhere than its writer expected.
    pub(crate) fn is_about_the_tail(self) -> bool {
        matches!(self, Self::SequenceGap | Self::ChecksumMismatch)
    }
}

/// A journal that cannot be continued, or not with this entry.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {detail}", code.as_str())]
pub struct StateError {
    /// One of the six.
    pub code: StateCode,
    /// What exactly, for the operator.
    pub detail: String,
}

impl StateError {
    /// An error with its code.
    pub fn new(code: StateCode, detail: impl Into<String>) -> Self {
        Self { code, detail: detail.into() }
    }

    /// STATE_CHECKSUM_MISMATCH.
    pub fn checksum(detail: impl Into<String>) -> Self {
        Self::new(StateCode::ChecksumMismatch, detail)
    }
}

/// How one artifact names another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reference {
    /// Its kind.
    pub kind: Kind,
    /// Its id.
    pub id: ArtifactId,
    /// Its digest.
    pub digest: Digest,
    /// When it was made.
    pub ts: Timestamp,
}

/// How long a request waited for its decision; where a person was asked, this includes the person's time.
pub(crate) fn decided_after_ms(references: &[Reference]) -> u64 {
    let made = |kind| references.iter().find(|reference| reference.kind == kind).map(|it| it.ts);
    match (made(Kind::ActionRequest), made(Kind::SupervisorDecision)) {
        (Some(asked), Some(decided)) => decided.since_ms(asked),
        (None, _) | (_, None) => 0,
    }
}

/// The journal of one trace while a step or recovery holds it.
///
/// INVARIANT: `pending` follows from `tail` as it was when `pending` was last taken, entry by entry.
#[derive(Clone, Debug)]
pub struct Journal {
    run_id: RunId,
    session_id: SessionId,
    tail: Tail,
    references: Vec<Reference>,
    pending: Vec<Appended>,
}

impl Journal {
    /// The journal of a trace that has no entry yet.
    pub fn empty(run_id: RunId, session_id: SessionId) -> Self {
        Self::continued(run_id, session_id, Tail::EMPTY, Vec::new())
    }

    /// Continues a journal whose entries were replayed up to this tail.
    pub fn continued(
        run_id: RunId,
        session_id: SessionId,
        tail: Tail,
        references: Vec<Reference>,
    ) -> Self {
        Self { run_id, session_id, tail, references, pending: Vec::new() }
    }

    /// The end of the journal, with the entries that are not committed yet.
    pub fn tail(&self) -> &Tail {
        &self.tail
    }

    /// The artifact of this kind, for the one that follows from it.
    pub fn reference(&self, kind: Kind) -> Result<Reference, StateError> {
        self.references.iter().rfind(|reference| reference.kind == kind).copied().ok_or_else(|| {
            let detail = format!("the journal has no {}", kind.as_str());
            StateError::new(StateCode::InvalidTransition, detail)
        })
    }

    /// How long the request waited for its decision.
    pub(crate) fn decided_after_ms(&self) -> u64 {
        decided_after_ms(&self.references)
    }

    /// The head of a new artifact of this trace.
    pub fn head(&self, id: ArtifactId, ts: Timestamp) -> artifact::Head {
        artifact::Head { id, trace_id: self.run_id, plan_id: self.session_id, ts }
    }

    /// Appends an artifact; it becomes durable with the next commit.
    ///
    /// Spec 004, I1: "State transitions MUST be append-only and MUST NOT be overwritten."
    pub fn advance(
        &mut self,
        artifact: Artifact,
        key: Option<IdempotencyKey>,
    ) -> Result<Reference, StateError> {
        let to_state = match (self.tail.state, artifact.as_move()) {
            (None, None) => State::Pending,
            (Some(from), Some(by)) => machine::next(from, by).map_err(|illegal| {
                StateError::new(StateCode::InvalidTransition, illegal.to_string())
            })?,
            (None, Some(_)) | (Some(_), None) => {
                return Err(StateError::new(
                    StateCode::InvalidTransition,
                    "a journal opens with its action_request, once",
                ));
            }
        };
        let tool_call_id = artifact.tool_call_id();
        let sealed = artifact.seal();
        let entry = Entry::after(&self.tail, self.run_id, to_state, &sealed, tool_call_id, key);
        self.tail = self.tail.accept_hashed(&entry)?;
        let reference = entry.reference();
        self.references.push(reference);
        self.pending.push(Appended { entry, artifact: sealed });
        Ok(reference)
    }

    /// The checkpoint of the journal as it is now; none before genesis. Its time is that of the last entry,
    /// so that it can be recomputed.
    pub fn checkpoint(&self) -> Option<Checkpoint> {
        let last = self.references.last()?;
        Checkpoint::of(self.run_id, self.session_id, &self.tail, last.ts)
    }

    /// Takes what is not yet committed.
    pub fn take_pending(&mut self) -> Vec<Appended> {
        std::mem::take(&mut self.pending)
    }
}

#[cfg(test)]
mod tests;
