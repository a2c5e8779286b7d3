//! What needs a person, and why.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ids::{ApprovalId, RunId};
use crate::lock;
use crate::spelled::spelled;
use crate::time::Timestamp;

spelled! {
    /// Why something needs a person.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "snake_case")]
    #[schemars(rename = "NeedKind")]
    pub enum Kind {
        /// An approval that no person has decided.
        Approval = "approval",
        /// The call of a run was sent, and whether it acted is unknown.
        InDoubt = "in_doubt",
        /// The executor of a run cannot continue. Recovery tries again.
        Stuck = "stuck",
        /// A run does not verify, so it is neither continued nor ended.
        Quarantined = "quarantined",
        /// A tool was added to a known server, and no operator has accepted it.
        ToolNew = "tool_new",
        /// A tool's definition differs from the accepted one.
        ToolChanged = "tool_changed",
        /// A tool that has a mode cannot be offered.
        ToolUnusable = "tool_unusable",
        /// A tool server cannot be called.
        ServerOff = "server_off",
        /// The policy files could not be loaded: the policies before them stay in force.
        PolicyNotLoaded = "policy_not_loaded",
        /// The shadow policies could not be loaded: they are not asked.
        ShadowNotLoaded = "shadow_not_loaded",
        /// Runs wait for an executor that no living node reaches.
        ExecutorUnreached = "executor_unreached",
        /// The disk of a data directory has only the space that is reserved for operators: agents are refused.
        DiskLow = "disk_low",
    }
}

impl Kind {
    /// The kinds of runs that recovery cannot end.
    pub const OF_RUNS: [Self; 3] = [Self::InDoubt, Self::Stuck, Self::Quarantined];

    /// The message for the caller of the run. The reason is for operators only.
    pub fn notice(self) -> &'static str {
        match self {
            Self::InDoubt => {
                "the call was sent and its result is unknown: an operator must settle this run; asking \
                 again does not send the call again"
            }
            Self::Stuck => {
                "the run cannot go on now and an operator was told; it is tried again without being asked"
            }
            Self::Quarantined => "the run does not verify: an operator must look at it",
            Self::Approval
            | Self::ToolNew
            | Self::ToolChanged
            | Self::ToolUnusable
            | Self::ServerOff
            | Self::PolicyNotLoaded
            | Self::ShadowNotLoaded
            | Self::ExecutorUnreached
            | Self::DiskLow => "an operator must look at it",
        }
    }
}

/// What a need is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// A run.
    Run(RunId),
    /// An approval, and the run that waits for it.
    Approval(ApprovalId, RunId),
    /// A tool, a tool server, a directory or an executor, by its name.
    Part(String),
}

impl Subject {
    /// The run that it is about, if it is about one.
    pub fn run_id(&self) -> Option<RunId> {
        match self {
            Self::Run(run_id) | Self::Approval(_, run_id) => Some(*run_id),
            Self::Part(_) => None,
        }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Run(run_id) => run_id.fmt(f),
            Self::Approval(approval_id, _) => approval_id.fmt(f),
            Self::Part(name) => name.fmt(f),
        }
    }
}

/// Something that needs a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Need {
    /// What it is about.
    pub subject: Subject,
    /// Why.
    pub kind: Kind,
    /// The same in words, for operators.
    pub reason: String,
    /// Since when: when an approval was requested, when anything else was reported.
    pub since: Timestamp,
}

/// Cache of the list of runs that need a person: a new read fetches only what is new. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Reading {
    read: Arc<Mutex<Read>>,
    /// The runs that are being reported.
    telling: Arc<Mutex<BTreeSet<RunId>>>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Read {
    /// The position up to which events were read.
    pub(crate) position: u64,
    /// Runs that had not ended when they were last checked.
    pub(crate) open: BTreeMap<RunId, Need>,
}

/// The runs that a caller reports now. Dropped when it is done.
pub(crate) struct Telling {
    reading: Reading,
    run_ids: BTreeSet<RunId>,
}

impl Telling {
    pub(crate) fn contains(&self, run_id: RunId) -> bool {
        self.run_ids.contains(&run_id)
    }
}

impl Drop for Telling {
    fn drop(&mut self) {
        lock::locked(&self.reading.telling).retain(|run_id| !self.run_ids.contains(run_id));
    }
}

impl Reading {
    /// Why the run needed a person when the list was last read, which happens after every recovery. It does
    /// not read the store, so callers may poll.
    pub(crate) fn kind_of(&self, run_id: RunId) -> Option<Kind> {
        self.read().open.get(&run_id).map(|need| need.kind)
    }

    pub(crate) fn read(&self) -> MutexGuard<'_, Read> {
        lock::locked(&self.read)
    }

    /// Takes the right to report those of these runs that no other caller reports now. It must be taken before
    /// the list is read: otherwise two callers both find a run unreported.
    pub(crate) fn telling(&self, run_ids: impl Iterator<Item = RunId>) -> Telling {
        let mut telling = lock::locked(&self.telling);
        let run_ids = run_ids.filter(|run_id| telling.insert(*run_id)).collect();
        Telling { reading: self.clone(), run_ids }
    }
}

#[cfg(test)]
mod tests;
