//! RESPOND: the five keys, from what was recorded, paused or replayed. Nothing here can fail a step.

use super::Answer;
use super::p8_record::{TraceRecord, Trail};
use crate::approval::ApprovalStatus;
use crate::digest::Digest;
use crate::event::{Event, EventType};
use crate::failure::Outcome;
use crate::gate::{Fault, Gate};
use crate::ids::{ApprovalId, RunId};
use crate::journal::{StateCode, StateError};
use crate::json::canonical;
use crate::need::Kind;
use crate::ports::{Dossier, Recollection, StoreError};
use crate::record::RecordBody;
use crate::run::{Arrival, Notice, Run, Word};

/// Spec 000, RESPOND: "MUST follow a fixed response schema", "MUST include proposal_id (if
/// available)", "MUST include action (if available)".
pub(super) fn compose(
    proposal_id: Option<&str>,
    action: Option<&str>,
    word: Word,
    result: Option<&str>,
    error: Option<&str>,
) -> String {
    format!(
        r#"{{"proposal_id":{},"action":{},"outcome":"{}","result":{},"error":{}}}"#,
        canonical::text_of(&proposal_id),
        canonical::text_of(&action),
        word.as_str(),
        result.unwrap_or("null"),
        error.unwrap_or("null"),
    )
}

/// The answer to a step that is recorded.
pub(super) fn respond(record: TraceRecord) -> Answer {
    record.answer
}

/// The notice that a person is asked.
pub(super) fn paused(trail: &Trail, approval_id: ApprovalId) -> Answer {
    let word = Word::Notice(Notice::ApprovalRequired);
    let result = approval_notice(approval_id, trail.run_id());
    trail.answer(word, trail.response(word, Some(&result), None), false)
}

/// The notice that nobody knows yet what became of a call.
pub(super) fn in_doubt(trail: &Trail) -> Answer {
    let word = Word::Notice(Notice::InProgress);
    let result = progress_notice(trail.run_id(), None);
    trail.answer(word, trail.response(word, Some(&result), None), false)
}

fn progress_notice(run_id: RunId, need: Option<Kind>) -> String {
    canonical::text_of(&match need {
        Some(kind) => serde_json::json!({
            "message": kind.notice(),
            "needs_person": kind.as_str(),
            "run_id": run_id,
        }),
        None => serde_json::json!({ "run_id": run_id }),
    })
}

fn approval_notice(approval_id: ApprovalId, run_id: RunId) -> String {
    canonical::text_of(&serde_json::json!({ "approval_id": approval_id, "run_id": run_id }))
}

/// The answer to a step that arrived like this. When it arrived is no part of it.
pub(super) fn answer(arrival: &Arrival, word: Word, response: String, replayed: bool) -> Answer {
    Answer {
        response,
        word,
        run_id: arrival.run_id,
        session_id: arrival.session_id,
        step_index: arrival.step_index,
        replayed,
    }
}

/// The response that a recorded run was answered with: a view of its row and its record.
pub fn response_of(run: &Run, record: &RecordBody) -> String {
    let ending = run.ending.as_ref();
    compose(
        record.proposal_id.as_deref(),
        record.action.as_deref(),
        Word::Outcome(record.outcome),
        answered(record.outcome, ending.and_then(|ending| ending.output_json.as_deref())),
        ending.and_then(|ending| ending.error_json.as_deref()),
    )
}

/// The result that is answered. What a tool said about its failure stands in the run's row and nowhere in
/// the response, whose texts are fixed.
pub(super) fn answered(outcome: Outcome, output_json: Option<&str>) -> Option<&str> {
    match outcome {
        Outcome::Success => output_json,
        Outcome::ValidationError | Outcome::Denied | Outcome::ExecutionError => None,
    }
}

/// The answer to a proposal that is known already. A replay is no step: an event, no run.
pub(super) async fn recalled(gate: &Gate, run_id: RunId) -> Result<Answer, Fault> {
    let known = recall(gate, run_id).await?;
    if known.record.is_none() {
        let dossier = gate.store.dossier(run_id).await?;
        return notice(gate, &dossier.ok_or_else(|| unknown(run_id))?);
    }
    let answer = replayed(&known)?;
    let event = Event {
        event_id: gate.fresh_id(),
        event_type: EventType::ToolReplayed,
        payload: serde_json::json!({ "tool": known.run.tool_name }),
        run_id: Some(run_id),
        sequence_number: known.last_sequence_number,
        session_id: known.run.arrival.session_id,
        ts: gate.world.now(),
    };
    match gate.store.append_event(event).await {
        // The answer itself is durable. A disk that is too full to note the replay is no reason to keep it.
        Ok(()) | Err(StoreError::Unavailable(_)) => Ok(answer),
        Err(error) => Err(error.into()),
    }
}

/// The answer to a run as it stands: the recorded one, or its notice. Nothing is written: whoever
/// waited for an answer has not asked again.
pub async fn answer_of(gate: &Gate, run_id: RunId) -> Result<Answer, Fault> {
    let known = recall(gate, run_id).await?;
    if known.record.is_some() {
        return replayed(&known);
    }
    let dossier = gate.store.dossier(run_id).await?;
    notice(gate, &dossier.ok_or_else(|| unknown(run_id))?)
}

/// The answer of a run that is over.
pub(super) async fn recorded(gate: &Gate, run_id: RunId) -> Result<Answer, Fault> {
    replayed(&recall(gate, run_id).await?)
}

/// Costs the same however often it was asked: the events of earlier replays are not read.
async fn recall(gate: &Gate, run_id: RunId) -> Result<Recollection, Fault> {
    Ok(gate.store.recall(run_id).await?.ok_or_else(|| unknown(run_id))?)
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
    let response = response_of(run, &body);
    if Digest::of_bytes(response.as_bytes()) != body.response_digest {
        return Err(StateError::checksum("the recorded response has changed").into());
    }
    Ok(answer(&run.arrival, Word::Outcome(body.outcome), response, true))
}

/// The notice for a known proposal that is not over: the same question again, or patience.
fn notice(gate: &Gate, dossier: &Dossier) -> Result<Answer, Fault> {
    let arrival = &dossier.run.arrival;
    let pending =
        dossier.approval.as_ref().filter(|approval| approval.status == ApprovalStatus::Pending);
    let (word, result) = match pending {
        Some(approval) => (
            Word::Notice(Notice::ApprovalRequired),
            approval_notice(approval.approval_id, arrival.run_id),
        ),
        None => {
            let need = gate.parked.told().kind_of(arrival.run_id);
            (Word::Notice(Notice::InProgress), progress_notice(arrival.run_id, need))
        }
    };
    let trail = super::restore::proposal_of(gate, dossier)?;
    Ok(answer(arrival, word, trail.response(word, Some(&result), None), true))
}
