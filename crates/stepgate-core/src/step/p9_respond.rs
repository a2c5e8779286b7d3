//! RESPOND: the five keys, from what was recorded, paused or replayed. Nothing here can fail a step.

use std::collections::BTreeSet;

use tracing::instrument;

use super::p3_validate_schema::Readable;
use super::p8_record::{TraceRecord, Trail};
use super::{Answer, ErrorBody, Recorded, Reply};
use crate::approval::ApprovalStatus;
use crate::archived::ArchivedRun;
use crate::event::{EventType, payload};
use crate::failure::Failure;
use crate::gate::{Fault, Gate};
use crate::ids::{ApprovalId, RunId};
use crate::journal::{StateCode, StateError};
use crate::need::Kind;
use crate::ports::{Dossier, Recollection, StoreError};
use crate::run::Arrival;
use crate::spans::PHASE;

/// The answer to a step that is recorded.
#[instrument(target = PHASE, name = "RESPOND", level = "debug", skip_all)]
pub(super) fn respond(record: TraceRecord) -> Answer {
    record.answer
}

/// The notice that the step waits for a person.
#[instrument(target = PHASE, name = "RESPOND", level = "debug", skip_all)]
pub(super) fn paused(trail: &Trail, approval_id: ApprovalId) -> Answer {
    trail.answer(Reply::ApprovalRequired(approval_id))
}

/// The notice that the result of a call is unknown.
#[instrument(target = PHASE, name = "RESPOND", level = "debug", skip_all)]
pub(super) fn in_doubt(trail: &Trail) -> Answer {
    trail.answer(Reply::InProgress(None))
}

/// The answer to a proposal that is known already; none where its run is archived. A replay is not a step: it writes an
/// event, not a run.
#[instrument(target = PHASE, name = "RESPOND", level = "debug", skip_all)]
pub(super) async fn recalled(gate: &Gate, run_id: RunId) -> Result<Option<Answer>, Fault> {
    let Some(known) = gate.store.recall(run_id).await? else {
        return match gate.store.archived_run(run_id).await? {
            Some(_) => Ok(None),
            None => Err(unknown(run_id).into()),
        };
    };
    let answer = known_answer(gate, &known).await?;
    if known.record.is_none() {
        return Ok(Some(answer));
    }
    let payload = payload::ToolReplayed { tool: known.run.tool_name.clone() };
    let payload = payload::value_from(payload, gate.world.request());
    let event = gate.event_of(&known, EventType::ToolReplayed, payload);
    match gate.store.append_event(event).await {
        // The answer itself is durable. It is given even if the disk is too full to record the replay.
        Ok(()) | Err(StoreError::Unavailable(_)) => Ok(Some(answer)),
        // The run left the store between the two.
        Err(StoreError::State(_)) if gate.store.archived_run(run_id).await?.is_some() => {
            Ok(Some(answer))
        }
        Err(error) => Err(error.into()),
    }
}

/// The answer to a run as it is now: the recorded one, or its notice, or that it is archived. No replay event is
/// written: a caller that waited for an answer has not asked again.
pub async fn answer_of(gate: &Gate, run_id: RunId) -> Result<Answer, Fault> {
    let Some(known) = gate.store.recall(run_id).await? else {
        let kept = gate.store.archived_run(run_id).await?;
        return Ok(archived(&kept.ok_or_else(|| unknown(run_id))?));
    };
    known_answer(gate, &known).await
}

/// The recorded answer, or the notice of a run that is not over.
async fn known_answer(gate: &Gate, known: &Recollection) -> Result<Answer, Fault> {
    if known.record.is_some() {
        return replayed(known);
    }
    let run_id = known.run.arrival.run_id;
    let dossier = gate.store.dossier(run_id).await?;
    notice(gate, &dossier.ok_or_else(|| unknown(run_id))?)
}

/// The answers of runs that are over: one query for all, and one for each that is archived.
pub async fn recorded_answers(gate: &Gate, run_ids: &[RunId]) -> Result<Vec<Answer>, Fault> {
    let known = gate.store.recollections(run_ids).await?;
    let mut answers = known.iter().map(replayed).collect::<Result<Vec<_>, _>>()?;
    let found: BTreeSet<RunId> = answers.iter().map(|answer| answer.run_id).collect();
    for run_id in run_ids.iter().filter(|run_id| !found.contains(run_id)) {
        let kept = gate.store.archived_run(*run_id).await?;
        answers.extend(kept.as_ref().map(archived));
    }
    Ok(answers)
}

/// The answer of a run that has left the store. What it answered then is in its archive.
fn archived(run: &ArchivedRun) -> Answer {
    let failure = Failure::ResultArchived(run.run_id);
    Answer {
        proposal_id: None,
        action: None,
        reply: Reply::Recorded(Recorded {
            outcome: failure.outcome(),
            output_json: None,
            error: Some(ErrorBody::of(&failure)),
            detail: failure.detail(),
            last_entry_digest: None,
        }),
        run_id: run.run_id,
        session_id: run.session_id,
        step_index: run.step_index,
        replayed: true,
    }
}

fn unknown(run_id: RunId) -> StateError {
    StateError::new(StateCode::RecoveryFailed, format!("no run {run_id}"))
}

fn replayed(known: &Recollection) -> Result<Answer, Fault> {
    let Recollection { run, record, .. } = known;
    let Some(record) = record else {
        let detail = format!("run {} has no record", run.arrival.run_id);
        return Err(StateError::new(StateCode::RecoveryFailed, detail).into());
    };
    let body = record.body().map_err(StateError::checksum)?;
    Ok(Answer::recorded(run, &body)?)
}

/// The notice for a known proposal that is not over: the pending approval, or that it is in progress. The
/// run is not verified here, because the notice only shows two ids: recovery verifies it, and so does the
/// request that decides on it.
fn notice(gate: &Gate, dossier: &Dossier) -> Result<Answer, Fault> {
    let Arrival { run_id, session_id, step_index, ref payload, .. } = dossier.run.arrival;
    let pending =
        dossier.approval.as_ref().filter(|approval| approval.status == ApprovalStatus::Pending);
    let reply = match (gate.parked.told().kind_of(run_id), pending) {
        (Some(Kind::Quarantined), _) => {
            let detail = format!("run {run_id} does not verify");
            return Err(StateError::new(StateCode::RecoveryFailed, detail).into());
        }
        (_, Some(approval)) => Reply::ApprovalRequired(approval.approval_id),
        (need, None) => Reply::InProgress(need),
    };
    let unreadable = || StateError::checksum(format!("the payload of run {run_id}"));
    let Readable { id, action, .. } =
        Readable::of_payload(&payload.bytes).ok_or_else(unreadable)?;
    Ok(Answer { proposal_id: id, action, reply, run_id, session_id, step_index, replayed: true })
}
