//! RECEIVE: takes the bytes and begins a step. The payload is kept as received.

use std::sync::Arc;

use super::Submission;
use super::p8_record::Trail;
use crate::failure::Failure;
use crate::gate::{Fault, Gate};
use crate::ids::RunId;
use crate::run::{Arrival, Payload};

/// A payload that may be parsed.
pub(super) struct StepContext {
    pub(super) payload: Arc<[u8]>,
}

/// Begins a step. The trail is made even if the payload is refused: every step gets a run.
///
/// Spec 000, RECEIVE: "MUST preserve the original payload (immutable)", "MUST generate step_index".
pub(super) async fn receive(
    gate: &Gate,
    run_id: RunId,
    submission: Submission,
) -> Result<(Trail, Result<StepContext, Failure>), Fault> {
    let Submission { session_id, principal_id, payload } = submission;
    let (kept, context) = look(gate, payload);
    let arrival = Arrival {
        run_id,
        session_id,
        principal_id,
        step_index: gate.store.next_step_index(session_id).await?,
        received_at: gate.world.now(),
        payload: kept,
    };
    Ok((Trail::begin(arrival), context))
}

/// Begins a step that will not be recorded: the store is not used.
pub(super) fn rehearse(
    gate: &Gate,
    submission: &Submission,
) -> (Trail, Result<StepContext, Failure>) {
    let Submission { session_id, principal_id, payload } = submission.clone();
    let (kept, context) = look(gate, payload);
    let arrival = Arrival {
        run_id: RunId::new(gate.world.fresh_uuid()),
        session_id,
        principal_id,
        step_index: 0,
        received_at: gate.world.now(),
        payload: kept,
    };
    (Trail::begin(arrival), context)
}

/// The part of a payload that is kept, and whether it may be parsed.
fn look(gate: &Gate, payload: Payload) -> (Payload, Result<StepContext, Failure>) {
    let limit = gate.limits.payload_bytes_max;
    let length = payload.length;
    let kept = match payload.bytes.get(..limit) {
        Some(beginning) if beginning.len() < payload.bytes.len() => beginning.into(),
        Some(_) | None => payload.bytes,
    };
    let is_too_large = u64::try_from(limit).is_ok_and(|limit| length > limit);
    let context = match length {
        0 => Err(Failure::EmptyPayload),
        _ if is_too_large => Err(Failure::PayloadTooLarge),
        _ => Ok(StepContext { payload: Arc::clone(&kept) }),
    };
    (Payload { bytes: kept, length }, context)
}
