//! Who works on a run, and who believes to.

use stepgate_core::ids::RunId;
use stepgate_core::journal::{StateCode, StateError};
use stepgate_core::ports::{StepCommit, StoreError};
use stepgate_core::run::Status;

/// The right to work on a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    pub(crate) incarnation: u64,
    pub(crate) epoch: u64,
}

/// Who works on a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ownership {
    pub(crate) owner: Option<u64>,
    pub(crate) epoch: u64,
    pub(crate) status: Status,
}

/// A commit on its way, with what the node believed when it was sent.
#[derive(Clone)]
pub(crate) struct SentCommit {
    pub(crate) commit: StepCommit,
    pub(crate) claim: Option<Claim>,
    pub(crate) incarnation: u64,
    pub(crate) node: u64,
}

/// The refusal of what a node may no longer do.
pub(crate) fn taken_over(run_id: RunId) -> StoreError {
    let detail = format!("run {run_id} may be another node's by now");
    StateError::new(StateCode::ConcurrentExecution, detail).into()
}
