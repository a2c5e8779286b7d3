//! RECORD: the last transaction of a step. Effect, transition, record, link and events together.

mod trail;

use tracing::instrument;

use super::p7_execute::ExecutionResult;
use super::{Answer, ErrorBody, Recorded, Reply, Stop};
use crate::event::{EventType, payload};
use crate::failure::{Failure, Outcome};
use crate::gate::Gate;
use crate::ports::{StepCommit, StoreError};
use crate::record::Record;
use crate::run::Ending;
use crate::spans::PHASE;

pub(super) use trail::{Asker, Trail};

/// What RECORD made durable; RESPOND needs nothing else.
pub(super) struct TraceRecord {
    pub(super) answer: Answer,
}

/// Writes the record, and with it everything that is not yet durable.
///
/// Spec 000, RECORD: "MUST record" the nine fields, "MUST store reasoning for audit purposes". If the store
/// cannot write, the result is kept and the write is retried while this node owns the trace; without a
/// record there is no answer.
#[instrument(target = PHASE, name = "RECORD", level = "debug", skip_all)]
pub(super) async fn record(
    gate: &Gate,
    trail: &mut Trail,
    ended: Result<ExecutionResult, Failure>,
) -> Result<TraceRecord, Stop> {
    let (output_json, failure) = match ended {
        Ok(ExecutionResult { output_json }) => (output_json, None),
        Err(failure) => (trail.error_said.take(), Some(failure)),
    };
    let failure = failure.as_ref();
    let may_be_redacted = || gate.tools.has_redacted() || gate.policy.has_erasable();
    if failure.is_some_and(Failure::is_before_args) && may_be_redacted() {
        trail.withhold();
    }
    let tail = trail.journal().tail();
    let recorded = Recorded {
        outcome: failure.map_or(Outcome::Success, Failure::outcome),
        output_json,
        error: failure.map(ErrorBody::of),
        detail: failure.and_then(Failure::detail),
        last_entry_digest: tail.state.map(|_| tail.entry_digest),
    };
    let answer = trail.answer(Reply::Recorded(recorded.clone()));
    trail.give_back(gate);
    let closing = payload::StepEnded {
        error_code: failure.map(Failure::code),
        outcome: recorded.outcome,
        tool: answer.action.clone(),
    };
    trail.note(gate, closing_event(failure), closing);

    let body = trail.record_body(gate, failure, &recorded, &answer.body());
    let took_ms = body.completed_at.since_ms(body.received_at);
    let ending = Ending {
        error_json: recorded.error.as_ref().map(ErrorBody::text),
        output_json: recorded.output_json,
        latency_ms: took_ms.saturating_sub(trail.person_ms()),
    };
    let commit = trail.last_commit(Record::seal(&body, ending));
    write(gate, commit).await.map_err(|error| trail.stopped_by(error))?;
    trail.hold = None;
    Ok(TraceRecord { answer })
}

/// Commits, with retries while they are safe and within the limit.
async fn write(gate: &Gate, commit: StepCommit) -> Result<(), StoreError> {
    let run_id = commit.place.run_id;
    let ours = commit.record.as_ref().map(|record| record.digest);
    let is_written = async || -> Result<bool, StoreError> {
        let dossier = gate.store.dossier(run_id).await?;
        let theirs = dossier.and_then(|dossier| dossier.record);
        Ok(theirs.map(|(record, _)| record.digest) == ours)
    };
    let mut attempts_left = gate.limits.record_attempts_max;
    let mut was_lost = false;
    loop {
        attempts_left = attempts_left.saturating_sub(1);
        let error = match gate.store.commit(commit.clone()).await {
            Ok(()) => return Ok(()),
            Err(StoreError::AnswerLost(why)) => {
                // Read back before anything else: the record is there, or not.
                if is_written().await? {
                    return Ok(());
                }
                was_lost = true;
                StoreError::Unavailable(why)
            }
            // The commit whose answer was lost may have arrived after the look.
            Err(StoreError::State(_) | StoreError::KeyTaken)
                if was_lost && is_written().await? =>
            {
                return Ok(());
            }
            Err(error) => error,
        };
        if attempts_left == 0 || !matches!(error, StoreError::Unavailable(_)) {
            return Err(error);
        }
        gate.world.pause(gate.limits.record_retry_pause).await;
    }
}

fn closing_event(failure: Option<&Failure>) -> EventType {
    match failure.map(Failure::code) {
        None => EventType::ToolSucceeded,
        Some("POLICY_VIOLATION") => EventType::PolicyViolation,
        Some(_) => EventType::ToolFailed,
    }
}
