//! A result that comes after its tool's time was over (decision D13): the run stays as it ended, and
//! an event says what came.

use std::time::Duration;

use crate::digest::Digest;
use crate::event::{Event, EventType};
use crate::gate::{Fault, Gate};
use crate::ids::RunId;

/// What came, and when it was too late for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LateResult {
    /// The run that had timed out.
    pub run_id: RunId,
    /// Whether the tool says that it was done.
    pub succeeded: bool,
    /// SHA-256 of what came.
    pub result_digest: Digest,
}

/// How long an event waits for the record of its run.
const RECORD_POLL: Duration = Duration::from_millis(50);
const RECORD_POLLS_MAX: u32 = 1200;

/// Appends the event to the run's session. The record covers every event before it, so the event waits
/// for the record.
pub async fn note(gate: &Gate, late: LateResult) -> Result<(), Fault> {
    for _ in 0..RECORD_POLLS_MAX {
        let Some(known) = gate.store.recall(late.run_id).await? else { return Ok(()) };
        if known.record.is_none() {
            gate.world.pause(RECORD_POLL).await;
            continue;
        }
        let event = Event {
            event_id: gate.fresh_id(),
            event_type: EventType::LateResult,
            payload: serde_json::json!({
                "result_digest": late.result_digest,
                "succeeded": late.succeeded,
                "tool": known.run.tool_name,
            }),
            run_id: Some(late.run_id),
            sequence_number: known.last_sequence_number,
            session_id: known.run.arrival.session_id,
            ts: gate.world.now(),
        };
        return Ok(gate.store.append_event(event).await?);
    }
    Ok(())
}
