//! Replay: a journal proven from its first entry to its last. Recovery and `verify` read the same
//! bytes through the same function.

use super::artifact::{ActionRequest, Artifact, SupervisorDecision, ToolCall, ToolEffect};
use crate::ids::{RunId, SessionId};
use crate::time::Timestamp;

use super::{Appended, Checkpoint, Reference, StateCode, StateError, Tail};

/// A journal whose entries were all proven. The machine lets it have each of the four artifacts once.
#[derive(Clone, Debug)]
pub struct Replayed {
    /// Its end.
    pub tail: Tail,
    /// What the agent asked for.
    pub request: Option<ActionRequest>,
    /// What was decided.
    pub decision: Option<SupervisorDecision>,
    /// What was sent to the executor.
    pub call: Option<ToolCall>,
    /// The result of the call.
    pub effect: Option<ToolEffect>,
    /// How to name them, in order.
    pub references: Vec<Reference>,
    /// The trace and session that they all name.
    pub(crate) place: Option<(RunId, SessionId)>,
    /// The tail after each entry and the time of the entry, for checkpoints.
    tails: Vec<(Tail, Timestamp)>,
}

/// Proves every digest, link, transition and reference of a journal.
///
/// Spec 004, I1: "Recovery MUST replay the log to reconstruct current state."
pub fn replay(entries: &[Appended]) -> Result<Replayed, StateError> {
    let mut replayed = Replayed {
        tail: Tail::EMPTY,
        request: None,
        decision: None,
        call: None,
        effect: None,
        references: Vec::with_capacity(entries.len()),
        place: None,
        tails: Vec::with_capacity(entries.len()),
    };
    let mut called_under = None;
    for appended in entries {
        replayed.tail = replayed.tail.accept(&appended.entry)?;
        let artifact = appended.prove()?;
        check_reference(replayed.references.last(), &artifact)?;
        if *replayed.place.get_or_insert(artifact.place()) != artifact.place() {
            return Err(StateError::checksum("an artifact of another trace"));
        }
        let entry = &appended.entry;
        if called_under.is_some() && called_under != entry.idempotency_key.as_ref() {
            return Err(StateError::checksum("an effect under another key than its call"));
        }
        called_under = entry.idempotency_key.as_ref();
        replayed.references.push(entry.reference());
        replayed.tails.push((replayed.tail, entry.ts));
        match artifact {
            Artifact::ActionRequest(request) => replayed.request = Some(request),
            Artifact::SupervisorDecision(decision) => replayed.decision = Some(decision),
            Artifact::ToolCall(call) => replayed.call = Some(call),
            Artifact::ToolEffect(effect) => replayed.effect = Some(effect),
        }
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

impl Replayed {
    /// Compares a checkpoint with the journal that it fixes.
    pub fn check(&self, checkpoint: &Checkpoint) -> Result<(), StateError> {
        let number = checkpoint.checkpoint_sequence_number;
        let tail = usize::try_from(number)
            .ok()
            .and_then(|number| number.checked_sub(1))
            .and_then(|index| self.tails.get(index));
        let expected = tail.zip(self.place).and_then(|((tail, ts), (trace_id, plan_id))| {
            Checkpoint::of(trace_id, plan_id, tail, *ts)
        });
        match expected {
            Some(expected) if expected == *checkpoint => Ok(()),
            _ if !checkpoint.is_sound() => {
                Err(StateError::checksum(format!("checkpoint {number} has another digest")))
            }
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
