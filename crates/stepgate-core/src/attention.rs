//! Runs that need a person, because recovery cannot end them by itself.
//!
//! Each such run is reported once, as an event in the system session: a run that does not verify cannot be
//! trusted with an event of its own. [`list`] reads those events back and leaves out the runs that have
//! ended since. Every place that shows such runs (standard error, metrics, `runs`, `doctor`, `recover`)
//! shows this list. What needs a person beside runs is in `parts.rs`.

use std::collections::BTreeMap;

use crate::event::{EventType, payload};
use crate::gate::{Fault, Gate};
use crate::ids::RunId;
use crate::need::Read;
pub use crate::need::{Kind, Need, Reading, Subject};
use crate::ports::{Store, StoreError};
use crate::recover::Report;
use crate::system;

/// The runs that need a person, in the order in which they came.
pub async fn list(store: &dyn Store, reading: &Reading) -> Result<Vec<Need>, StoreError> {
    let Read { position, mut open } = reading.read().clone();
    // Read first: no event is added later at a smaller position, so events up to it need not be read again.
    let newest = store.last_position().await?;
    let told = system::events_since(store, &[EventType::RunNeedsPerson], position).await?;
    let position = told.last().map_or(newest, |last| newest.max(last.position));
    open.extend(told.iter().filter_map(|placed| {
        let told: payload::RunNeedsPerson = payload::read(&placed.event.payload).ok()?;
        let payload::RunNeedsPerson { kind, reason, run_id } = told;
        let (subject, since) = (Subject::Run(run_id), placed.event.ts);
        Some((run_id, Need { subject, kind, reason, since }))
    }));
    let mut still = BTreeMap::new();
    for (run_id, need) in open {
        if !is_over(store, run_id).await? {
            still.insert(run_id, need);
        }
    }
    let mut read = reading.read();
    if read.position <= position {
        *read = Read { position, open: still.clone() };
    }
    Ok(still.into_values().collect())
}

/// Whether a run has ended. One that is archived has; one that cannot be read counts as not ended.
async fn is_over(store: &dyn Store, run_id: RunId) -> Result<bool, StoreError> {
    match store.recall(run_id).await {
        Ok(Some(known)) => Ok(known.run.status.is_final()),
        Ok(None) => Ok(store.archived_run(run_id).await?.is_some()),
        Err(StoreError::State(_)) => Ok(false),
        Err(error) => Err(error),
    }
}

/// The list of this gate's store.
pub async fn of(gate: &Gate) -> Result<Vec<Need>, StoreError> {
    list(&*gate.store, gate.parked.told()).await
}

/// Reports the runs that a recovery left to people, unless they are reported already. Returns the new ones.
pub async fn tell(gate: &Gate, report: &Report) -> Result<Vec<Need>, Fault> {
    let mut found = Vec::new();
    for run_id in &report.in_doubt {
        let tool = gate.store.recall(*run_id).await?.and_then(|known| known.run.tool_name);
        let tool = tool.as_deref().unwrap_or("a tool");
        let why = format!("`{tool}` was called, and whether it acted is unknown");
        found.push((*run_id, Kind::InDoubt, why));
    }
    let is_held = |run_id: &RunId| report.held.contains(run_id);
    let stuck = report.stuck.iter().filter(|(run_id, _)| !is_held(run_id));
    found.extend(stuck.map(|(run_id, why)| (*run_id, Kind::Stuck, why.clone())));
    let broken = report.quarantined.iter();
    found.extend(broken.map(|(run_id, why)| (*run_id, Kind::Quarantined, why.clone())));
    tell_all(gate, found).await
}

/// Reports that a run does not verify, where another check than recovery found it.
pub async fn tell_quarantined(gate: &Gate, run_id: RunId, why: String) -> Result<Vec<Need>, Fault> {
    tell_all(gate, vec![(run_id, Kind::Quarantined, why)]).await
}

async fn tell_all(gate: &Gate, found: Vec<(RunId, Kind, String)>) -> Result<Vec<Need>, Fault> {
    if found.is_empty() {
        return Ok(Vec::new());
    }
    let telling = gate.parked.told().telling(found.iter().map(|(run_id, ..)| *run_id));
    let known = of(gate).await?;
    let mut told = Vec::new();
    for (run_id, kind, reason) in found.into_iter().filter(|(run_id, ..)| telling.contains(*run_id))
    {
        let before =
            known.iter().find(|need| need.subject == Subject::Run(run_id) && need.kind == kind);
        if let Some(before) = before
            && !was_resolved_since(gate, run_id, before).await?
        {
            continue;
        }
        let payload = payload::RunNeedsPerson { kind, reason: reason.clone(), run_id };
        let event = gate.note(EventType::RunNeedsPerson, payload).await?;
        told.push(Need { subject: Subject::Run(run_id), kind, reason, since: event.ts });
    }
    Ok(told)
}

/// Whether a person has acted on it since it was reported: then the present finding is new.
async fn was_resolved_since(gate: &Gate, run_id: RunId, need: &Need) -> Result<bool, StoreError> {
    match gate.store.dossier(run_id).await {
        Ok(dossier) => Ok(dossier.is_some_and(|dossier| {
            dossier.events.iter().any(|linked| {
                linked.event.event_type == EventType::RunResolved && linked.event.ts >= need.since
            })
        })),
        Err(StoreError::State(_)) => Ok(false),
        Err(error) => Err(error),
    }
}
