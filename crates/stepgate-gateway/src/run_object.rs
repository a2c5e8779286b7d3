//! One run as one JSON object, for every interface that shows a whole run.

use serde_json::{Value, json};
use stepgate_core::bundle::{Bundle, RunObject};
use stepgate_core::event::EventType;
use stepgate_core::ports::Dossier;
use stepgate_core::run::Status;

use crate::attention::NeedObject;

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
