//! Runs that need a person, as people and programs are shown them: the reason, since when, and what to do.

use serde::{Deserialize, Serialize};
use stepgate_core::attention::{Kind, Need};
use stepgate_core::ids::RunId;
use stepgate_core::recover::Report;
use stepgate_core::time::Timestamp;
use tracing::error;

use crate::text::printable;

/// A run that needs a person, in JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NeedObject {
    /// The run.
    pub run_id: RunId,
    /// Why it needs one, in one word.
    pub kind: String,
    /// What happened.
    pub reason: String,
    /// Since when.
    pub since: Timestamp,
    /// What to do about it, with the exact command.
    pub way_out: String,
}

impl NeedObject {
    /// Builds the JSON object of one need.
    pub fn of(need: &Need) -> Self {
        let Need { run_id, kind, reason, since } = need;
        Self {
            run_id: *run_id,
            kind: kind.as_str().to_owned(),
            reason: reason.clone(),
            since: *since,
            way_out: way_out(*run_id, *kind),
        }
    }

    /// Logs it as one line for the operator.
    pub(crate) fn log(&self) {
        let Self { run_id, kind, reason, since: _, way_out } = self;
        let (what, reason) = (kind.replace('_', " "), printable(reason));
        error!(%run_id, kind, "{what}: {run_id}: {reason}; {way_out}");
    }
}

fn way_out(run_id: RunId, kind: Kind) -> String {
    match kind {
        Kind::InDoubt => format!(
            "look whether it acted, then `stepgate runs resolve {run_id} --succeeded` or `--failed`; \
             `--redispatch` sends it again"
        ),
        Kind::Stuck => format!(
            "recovery tries again by itself; to settle it, `stepgate runs resolve {run_id} --succeeded` \
             or `--failed`"
        ),
        Kind::Quarantined => "`stepgate verify` names what does not hold".to_owned(),
    }
}

/// What a recovery did, in JSON.
#[derive(Debug, Serialize, Deserialize)]
pub struct RecoveryObject {
    /// Runs that it finished.
    pub finished: Vec<RunId>,
    /// Runs that wait for an approval.
    pub waiting: Vec<RunId>,
    /// Runs whose call may or may not have acted.
    pub in_doubt: Vec<RunId>,
    /// Runs that do not verify.
    pub quarantined: Vec<LeftRun>,
    /// Runs that it could not finish this time.
    pub stuck: Vec<LeftRun>,
    /// Every run that needs a person now, including those that an earlier recovery found.
    pub attention: Vec<NeedObject>,
}

/// A run that recovery left as it was.
#[derive(Debug, Serialize, Deserialize)]
pub struct LeftRun {
    run_id: RunId,
    reason: String,
}

impl RecoveryObject {
    /// Builds the JSON object of a recovery report. `needs`: every run that needs a person now.
    pub fn of(report: &Report, needs: &[Need]) -> Self {
        let left = |runs: &[(RunId, String)]| {
            let one =
                |(run_id, why): &(RunId, String)| LeftRun { run_id: *run_id, reason: why.clone() };
            runs.iter().map(one).collect()
        };
        Self {
            finished: report.finished.clone(),
            waiting: report.waiting.clone(),
            in_doubt: report.in_doubt.clone(),
            quarantined: left(&report.quarantined),
            stuck: left(&report.stuck),
            attention: needs.iter().map(NeedObject::of).collect(),
        }
    }
}
