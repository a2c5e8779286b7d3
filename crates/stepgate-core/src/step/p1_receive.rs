//! RECEIVE: takes the bytes and begins a step. The payload is kept as received.

use std::sync::Arc;
use tracing::instrument;

use super::Submission;
use super::p8_record::Trail;
use crate::failure::Failure;
use crate::gate::{Fault, Gate};
use crate::ids::RunId;
use crate::run::{Arrival, Payload};
use crate::spans::PHASE;

/// A payload that may be parsed.
#[derive(Clone)]
pub(super) struct StepContext {
    pub(super) payload: Arc<[u8]>,
}

/// Begins a step. The trail is made even if the payload is refused: every step gets a run.
///
/// Spec 000, RECEIVE: "MUST preserve the original payload (immutable)", "MUST generate step_index".
#[instrument(target = PHASE, name = "RECEIVE", level = "debug", skip_all)]
pub(super) async fn receive(
    gate: &Gate,
    run_id: RunId,
    submission: Submission,
) -> Result<(Trail, Result<StepContext, Failure>), Fault> {
    let step_index = gate.store.next_step_index(submission.session_id).await?;
    Ok(begin(gate, run_id, step_index, submission))
}

/// Begins a step without the store.
pub(super) fn begin(
    gate: &Gate,
    run_id: RunId,
    step_index: u64,
    submission: Submission,
) -> (Trail, Result<StepContext, Failure>) {
    let Submission { session_id, principal_id, payload } = submission;
    let received_at = gate.world.now();
    let (payload, context) = look(gate, payload);
    let arrival = Arrival { run_id, session_id, principal_id, step_index, received_at, payload };
    (Trail::begin(arrival, gate.world.request()), context)
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
