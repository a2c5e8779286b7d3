//! Runs as JSON objects, for every interface that shows them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use stepgate_core::bundle::{Bundle, RunObject};
use stepgate_core::event::EventType;
use stepgate_core::ids::{PrincipalId, RunId, SessionId};
use stepgate_core::ports::Dossier;
use stepgate_core::run::{Run, Status};
use stepgate_core::step::ErrorBody;
use stepgate_core::time::Timestamp;

use crate::attention::NeedObject;

/// A run in a list. Arguments and results are JSON values here; the run itself has the texts that its digests cover.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct ListedRun {
    /// The run.
    pub tool_run_id: RunId,
    /// When it arrived.
    pub ts: Timestamp,
    /// The session.
    pub session_id: SessionId,
    /// Who proposed.
    pub principal_id: PrincipalId,
    /// The step's index in its session.
    pub step_index: u64,
    /// The action or tool, where it could be read.
    pub tool_name: Option<String>,
    /// Where it stands.
    pub status: Status,
    /// The arguments as asked, where they could be read.
    #[schemars(with = "Option<Value>")]
    pub input: Option<Box<RawValue>>,
    /// The result. Its numbers are spelled as the tool spelled them.
    #[schemars(with = "Option<Value>")]
    pub output: Option<Box<RawValue>>,
    /// The error, where there is one.
    pub error: Option<ErrorBody>,
    /// How long it took, without the time that a person took.
    pub latency_ms: Option<u64>,
    /// How many bytes were received.
    pub payload_bytes: u64,
}

impl ListedRun {
    /// A run's row as an object of a list. A stored text that was changed to something that is not JSON becomes none:
    /// `verify` reports it.
    pub fn of(run: &Run) -> Self {
        let (arrival, ending) = (&run.arrival, run.ending.as_ref());
        let raw = |text: &String| RawValue::from_string(text.clone()).ok();
        let error = ending.and_then(|ending| ending.error_json.as_ref());
        Self {
            tool_run_id: arrival.run_id,
            ts: arrival.received_at,
            session_id: arrival.session_id,
            principal_id: arrival.principal_id.clone(),
            step_index: arrival.step_index,
            tool_name: run.tool_name.clone(),
            status: run.status,
            input: run.input_json.as_ref().and_then(raw),
            output: ending.and_then(|ending| ending.output_json.as_ref()).and_then(raw),
            error: error.and_then(|text| serde_json::from_str(text).ok()),
            latency_ms: ending.map(|ending| ending.latency_ms),
            payload_bytes: arrival.payload.length,
        }
    }
}

/// Everything about a run.
pub fn object(dossier: &Dossier, need: Option<&NeedObject>) -> anyhow::Result<Value> {
    let bundle = Bundle::of(dossier)?;
    let events: Vec<_> = dossier.events.iter().map(|linked| &linked.event).collect();
    Ok(json!({
        "run": RunObject::of(&dossier.run),
        "states": states(dossier),
        "entries": bundle.entries,
        "artifacts": bundle.artifacts,
        "checkpoint": bundle.checkpoint,
        "record": bundle.record,
        "events": events,
        "approval": dossier.approval,
        "attention": need,
    }))
}

/// The states of the run so far, ending with the present one.
pub fn states(dossier: &Dossier) -> Vec<Status> {
    let has = |event_type| dossier.events.iter().any(|it| it.event.event_type == event_type);
    let mut states = vec![Status::Started];
    if has(EventType::ApprovalRequested) {
        states.push(Status::ApprovalRequired);
    }
    if has(EventType::ApprovalGranted) {
        states.push(Status::Approved);
    }
    let now = dossier.run.status;
    if states.last() != Some(&now) {
        states.push(now);
    }
    states
}

#[cfg(test)]
mod tests;
