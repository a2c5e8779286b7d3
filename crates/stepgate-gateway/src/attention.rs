//! What needs a person, as people and programs are shown it: the reason, since when, and what to do.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stepgate_core::attention::{Kind, Need};
use stepgate_core::ids::RunId;
use stepgate_core::recover::Report;
use stepgate_core::time::Timestamp;
use tracing::error;

use crate::text::printable;

/// Everything that needs a person, in JSON.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Attention {
    /// What needs one, the oldest first. Of very many approvals only the oldest ones.
    pub attention: Vec<NeedObject>,
    /// How much of each kind needs one, listed or not.
    pub counts: BTreeMap<String, u64>,
}

/// Something that needs a person, in JSON.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Need")]
pub struct NeedObject {
    /// What it is about: the id of a run or an approval, or the name of a tool, a server, an executor or a directory.
    pub subject: String,
    /// The run, where it is about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
    /// Why it needs one, in one word.
    #[schemars(with = "Kind")]
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
        let Need { subject, kind, reason, since } = need;
        let (run_id, subject) = (subject.run_id(), subject.to_string());
        Self {
            run_id,
            kind: kind.as_str().to_owned(),
            reason: reason.clone(),
            since: *since,
            way_out: way_out(&subject, *kind),
            subject,
        }
    }

    /// Logs it as one line for the operator.
    pub(crate) fn log(&self) {
        let Self { subject, run_id, kind, reason, since: _, way_out } = self;
        let run_id = run_id.map(tracing::field::display);
        let (what, reason) = (kind.replace('_', " "), printable(reason));
        error!(run_id, kind, "{what}: {}: {reason}; {way_out}", printable(subject));
    }
}

/// What to do about it. In the table, `SUBJECT` stands for what it is about.
fn way_out(subject: &str, kind: Kind) -> String {
    let text = match kind {
        Kind::Approval => "`stepgate approve SUBJECT` or `stepgate deny SUBJECT`",
        Kind::InDoubt => {
            "look whether it acted, then `stepgate runs resolve SUBJECT --succeeded` or `--failed`; \
             `--redispatch` sends it again"
        }
        Kind::Stuck => {
            "recovery tries again by itself; to settle it, `stepgate runs resolve SUBJECT --succeeded` \
             or `--failed`"
        }
        Kind::Quarantined => "`stepgate verify` names what does not hold",
        Kind::ToolNew | Kind::ToolChanged => {
            "look with `stepgate tools diff SUBJECT`, then `stepgate tools accept SUBJECT`"
        }
        Kind::ToolUnusable => {
            "change the tool server or its configuration; `stepgate tools` shows what is off"
        }
        Kind::ServerOff => {
            "it is tried again by itself; `stepgate doctor` says what its configuration lacks"
        }
        Kind::PolicyNotLoaded => {
            "the policies before stay in force; `stepgate policy check` names what is wrong"
        }
        Kind::ShadowNotLoaded => {
            "the policies in force go on; `stepgate policy check SUBJECT` names what is wrong"
        }
        Kind::DiskLow => {
            "free some space, or move old backups away; operators can decide, look and back up meanwhile"
        }
        Kind::ExecutorUnreached => {
            "start the node that reached it again; `stepgate nodes` shows the nodes"
        }
    };
    text.replace("SUBJECT", subject)
}

/// What a recovery did, in JSON.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Recovery")]
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
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
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
