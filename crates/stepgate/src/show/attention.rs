//! Runs that need a person, as people and programs are told of them: why, since when, and the way out.

use serde::{Deserialize, Serialize};
use stepgate_core::attention::{Kind, Need};
use stepgate_core::ids::RunId;
use stepgate_core::recover::Report;
use stepgate_core::time::Timestamp;

use super::{ERROR, printable};

/// A run that needs a person, in JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct NeedObject {
    pub(crate) run_id: RunId,
    pub(crate) kind: String,
    pub(crate) reason: String,
    pub(crate) since: Timestamp,
    /// What to do about it, with the exact command.
    pub(crate) way_out: String,
}

impl NeedObject {
    pub(crate) fn of(need: &Need) -> Self {
        let Need { run_id, kind, reason, since } = need;
        Self {
            run_id: *run_id,
            kind: kind.as_str().to_owned(),
            reason: reason.clone(),
            since: *since,
            way_out: way_out(*run_id, *kind),
        }
    }

    /// One line. The reason may repeat text from outside.
    pub(crate) fn line(&self) -> String {
        let Self { run_id, kind, reason, since: _, way_out } = self;
        let (kind, reason) = (printable(kind).replace('_', " "), printable(reason));
        format!("{ERROR}{kind}:{ERROR:#} {run_id}: {reason}; {}", printable(way_out))
    }
}

pub(crate) fn line(need: &Need) -> String {
    NeedObject::of(need).line()
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
pub(crate) struct RecoveryObject {
    pub(crate) finished: Vec<RunId>,
    pub(crate) waiting: Vec<RunId>,
    pub(crate) in_doubt: Vec<RunId>,
    pub(crate) quarantined: Vec<LeftRun>,
    pub(crate) stuck: Vec<LeftRun>,
    /// Every run that needs a person, also where an earlier recovery found it.
    pub(crate) attention: Vec<NeedObject>,
}

/// A run that recovery left as it was.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct LeftRun {
    run_id: RunId,
    reason: String,
}

impl RecoveryObject {
    pub(crate) fn of(report: &Report, needs: &[Need]) -> Self {
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

#[cfg(test)]
mod tests;
