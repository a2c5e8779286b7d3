//! Recovery (decision D11): a table from where a journal ends to what happens next.

use crate::approval::ApprovalStatus;
use crate::gate::{Fault, Gate};
use crate::ids::RunId;
use crate::journal::{StateCode, replay};
use crate::machine::State;
use crate::ports::{Dossier, StoreError};
use crate::step;

/// What recovery does with a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// Decide with today's policy.
    Decide,
    /// Leave it: a person is asked.
    Wait,
    /// Policy again, then dispatch for the first time.
    Dispatch,
    /// Dispatch again, with the same call and key.
    Redispatch,
    /// Nothing: it is over.
    Read,
    /// Leave it, and tell the operator: the journal and the approval contradict each other.
    Quarantine,
}

/// The table. `approval` is that of the trace, where a person was asked.
pub fn remedy(state: State, approval: Option<ApprovalStatus>) -> Remedy {
    match state {
        State::Pending => match approval {
            None => Remedy::Decide,
            Some(ApprovalStatus::Pending) => Remedy::Wait,
            // A decision and its transition are one commit: one without the other was made by hand.
            Some(ApprovalStatus::Approved | ApprovalStatus::Denied | ApprovalStatus::Expired) => {
                Remedy::Quarantine
            }
        },
        State::Authorized => match approval {
            None | Some(ApprovalStatus::Approved) => Remedy::Dispatch,
            Some(ApprovalStatus::Pending | ApprovalStatus::Denied | ApprovalStatus::Expired) => {
                Remedy::Quarantine
            }
        },
        State::Executing => match approval {
            None | Some(ApprovalStatus::Approved) => Remedy::Redispatch,
            Some(ApprovalStatus::Pending | ApprovalStatus::Denied | ApprovalStatus::Expired) => {
                Remedy::Quarantine
            }
        },
        State::Completed | State::Failed | State::Denied => match approval {
            Some(ApprovalStatus::Pending) => Remedy::Quarantine,
            None
            | Some(ApprovalStatus::Approved | ApprovalStatus::Denied | ApprovalStatus::Expired) => {
                Remedy::Read
            }
        },
    }
}

/// What recovery did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Runs that were brought to their end.
    pub finished: Vec<RunId>,
    /// Runs that wait for a person.
    pub waiting: Vec<RunId>,
    /// Runs whose journal does not verify, with the reason. The others go on without them.
    pub quarantined: Vec<(RunId, String)>,
}

/// Brings every unfinished run to its end, or says why it stays.
///
/// Only a fault of the store or the executor stops it; the next recovery goes on from there.
pub async fn recover(gate: &Gate) -> Result<Report, Fault> {
    let mut report = Report::default();
    for run_id in gate.store.unfinished_runs().await? {
        match recover_run(gate, run_id).await {
            Ok(Remedy::Wait) => report.waiting.push(run_id),
            Ok(Remedy::Quarantine) => {
                report.quarantined.push((run_id, "journal and approval contradict".into()));
            }
            Ok(Remedy::Decide | Remedy::Dispatch | Remedy::Redispatch | Remedy::Read) => {
                report.finished.push(run_id);
            }
            Err(Fault::Store(StoreError::State(error))) => {
                report.quarantined.push((run_id, error.to_string()));
            }
            Err(fault) => return Err(fault),
        }
    }
    Ok(report)
}

/// Applies the table to one run. Spec 004's steps 1 to 6: lock, checkpoint, replay, go on, unlock.
async fn recover_run(gate: &Gate, run_id: RunId) -> Result<Remedy, Fault> {
    let Some(dossier) = gate.store.dossier(run_id).await? else { return Ok(Remedy::Read) };
    let remedy = remedy_for(&dossier)?;
    match remedy {
        Remedy::Decide | Remedy::Dispatch | Remedy::Redispatch => {
            step::redispatch(gate, run_id).await?;
        }
        Remedy::Read | Remedy::Wait | Remedy::Quarantine => {}
    }
    Ok(remedy)
}

fn remedy_for(dossier: &Dossier) -> Result<Remedy, Fault> {
    let run_id = dossier.run.arrival.run_id;
    let failed = |why: String| {
        crate::journal::StateError::new(StateCode::RecoveryFailed, format!("run {run_id}: {why}"))
    };
    let replayed = replay(&dossier.entries).map_err(|error| failed(error.to_string()))?;
    let state = replayed.tail.state.ok_or_else(|| failed("no journal".into()))?;
    Ok(remedy(state, dossier.approval.as_ref().map(|approval| approval.status)))
}
