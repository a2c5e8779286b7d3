//! A result that comes after its tool's timeout (decision 13): the run stays as it is, and an event records
//! the result.

use crate::digest::Digest;
use crate::event::{EventType, payload};
use crate::gate::{Fault, Gate};
use crate::ids::RunId;
use crate::journal::StateCode;
use crate::step;

/// A result that came after the timeout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LateResult {
    /// The run that had timed out.
    pub run_id: RunId,
    /// Whether the tool says that it was done.
    pub succeeded: bool,
    /// SHA-256 of the result.
    pub result_digest: Digest,
}

/// Limit of the attempts to take the trace's lock: together longer than any second dispatch holds it.
const LOCK_ATTEMPTS_MAX: u32 = 720;

/// Appends the event to the run's session.
///
/// A record covers every event before it, so no other task may be about to write a record: the event is
/// written under the trace's lock. If the run is still in doubt, the event is read with the rest of the run
/// by the node that continues it, and by the operator who has to settle it.
pub async fn note(gate: &Gate, late: LateResult) -> Result<(), Fault> {
    let mut attempts_left = LOCK_ATTEMPTS_MAX;
    loop {
        attempts_left -= 1;
        match step::locked(gate, late.run_id, append(gate, &late)).await {
            // Another task holds the trace's lock.
            Err(fault)
                if attempts_left > 0
                    && fault.state_code() == Some(StateCode::LockAcquireFailed) => {}
            done => return done,
        }
    }
}

async fn append(gate: &Gate, late: &LateResult) -> Result<(), Fault> {
    let Some(known) = gate.store.recall(late.run_id).await? else { return Ok(()) };
    let payload = payload::value(payload::LateResult {
        result_digest: late.result_digest,
        succeeded: late.succeeded,
        tool: known.run.tool_name.clone(),
    });
    let event = gate.event_of(&known, EventType::LateResult, payload);
    Ok(gate.store.append_event(event).await?)
}
