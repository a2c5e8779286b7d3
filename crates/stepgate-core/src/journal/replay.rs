//! Replay: a journal proven from its first entry to its last. Recovery and `verify` read the same
//! bytes through the same function.

use super::artifact::Artifact;
use crate::time::Timestamp;

use super::{Appended, Checkpoint, Reference, StateCode, StateError, Tail};

/// A journal whose entries were all proven.
#[derive(Clone, Debug)]
pub struct Replayed {
    /// Its end.
    pub tail: Tail,
    /// Its artifacts, in order.
    pub artifacts: Vec<Artifact>,
    /// How to name them.
    pub references: Vec<Reference>,
    /// The tail after each entry and the time of the entry, for checkpoints.
    tails: Vec<(Tail, Timestamp)>,
}

/// Proves every digest, link, transition and reference of a journal.
///
/// Spec 004, I1: "Recovery MUST replay the log to reconstruct current state."
pub fn replay(entries: &[Appended]) -> Result<Replayed, StateError> {
    let mut replayed = Replayed {
        tail: Tail::EMPTY,
        artifacts: Vec::with_capacity(entries.len()),
        references: Vec::with_capacity(entries.len()),
        tails: Vec::with_capacity(entries.len()),
    };
    let mut called_under = None;
    for appended in entries {
        replayed.tail = replayed.tail.accept(&appended.entry)?;
        let artifact = appended.prove()?;
        check_reference(replayed.references.last(), &artifact)?;
        check_place(replayed.artifacts.first(), &artifact)?;
        let entry = &appended.entry;
        if called_under.is_some() && called_under != entry.idempotency_key.as_ref() {
            return Err(StateError::checksum("an effect under another key than its call"));
        }
        called_under = entry.idempotency_key.as_ref();
        replayed.references.push(Reference {
            kind: entry.artifact_type,
            id: entry.artifact_id,
            digest: entry.artifact_digest,
            ts: entry.ts,
        });
        replayed.artifacts.push(artifact);
        replayed.tails.push((replayed.tail, entry.ts));
    }
    Ok(replayed)
}

/// Each artifact names the one before it, by id and digest.
fn check_reference(before: Option<&Reference>, artifact: &Artifact) -> Result<(), StateError> {
    let named = match artifact {
        Artifact::ActionRequest(_) => None,
        Artifact::SupervisorDecision(decision) => {
            Some((decision.action_request_id, decision.action_request_digest))
        }
        Artifact::ToolCall(call) => {
            Some((call.supervisor_decision_id, call.supervisor_decision_digest))
        }
        Artifact::ToolEffect(effect) => Some((effect.tool_call_id, effect.tool_call_digest)),
    };
    if named == before.map(|before| (before.id, before.digest)) {
        Ok(())
    } else {
        Err(StateError::checksum("an artifact does not name the one before it"))
    }
}

/// All artifacts of a journal belong to one trace in one session.
fn check_place(first: Option<&Artifact>, artifact: &Artifact) -> Result<(), StateError> {
    match first {
        Some(first) if first.place() != artifact.place() => {
            Err(StateError::checksum("an artifact of another trace"))
        }
        Some(_) | None => Ok(()),
    }
}

impl Replayed {
    /// Compares a checkpoint with the journal that it fixes.
    pub fn check(&self, checkpoint: &Checkpoint) -> Result<(), StateError> {
        let number = checkpoint.checkpoint_sequence_number;
        let tail = usize::try_from(number)
            .ok()
            .and_then(|number| number.checked_sub(1))
            .and_then(|index| self.tails.get(index));
        let state = &checkpoint.checkpoint_state;
        let place = self.artifacts.first().map(Artifact::place);
        let is_ours = place == Some((state.trace_id, state.plan_id));
        match tail {
            _ if !checkpoint.is_sound() => {
                Err(StateError::checksum(format!("checkpoint {number} has another digest")))
            }
            Some((tail, ts)) if is_ours && checkpoint.fixes(tail) && checkpoint.ts == *ts => Ok(()),
            Some(_) => {
                Err(StateError::checksum(format!("checkpoint {number} fixes another journal")))
            }
            None => Err(StateError::new(
                StateCode::SequenceGap,
                format!("checkpoint {number} stands where the journal has no entry"),
            )),
        }
    }
}
