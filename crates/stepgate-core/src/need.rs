//! A run that needs a person, and why.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use crate::event::Event;
use crate::ids::RunId;
use crate::json::Value;
use crate::lock;
use crate::time::Timestamp;

/// Why a run needs a person.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Its call was sent, and whether it acted is unknown.
    InDoubt,
    /// Its executor cannot continue. Recovery tries again.
    Stuck,
    /// It does not verify, so it is neither continued nor ended.
    Quarantined,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 3] = [Self::InDoubt, Self::Stuck, Self::Quarantined];

    /// The spelling in events, metrics and answers.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::InDoubt => "in_doubt",
            Self::Stuck => "stuck",
            Self::Quarantined => "quarantined",
        }
    }

    /// The kind that an event spells.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text)
    }

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
        }
    }
}

/// A run that needs a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Need {
    /// The run.
    pub run_id: RunId,
    /// Why.
    pub kind: Kind,
    /// The same in words, for operators.
    pub reason: String,
    /// When it was reported.
    pub since: Timestamp,
}

impl Need {
    pub(crate) fn of(event: &Event) -> Option<Self> {
        let text = |name: &str| event.payload.get(name).and_then(Value::as_str);
        Some(Self {
            run_id: text("run_id")?.parse().ok()?,
            kind: Kind::parse(text("kind")?)?,
            reason: text("reason")?.to_owned(),
            since: event.ts,
        })
    }
}

/// Cache of the list of runs that need a person: a new read fetches only what is new. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Reading(Arc<Mutex<Read>>);

#[derive(Clone, Debug, Default)]
pub(crate) struct Read {
    /// The position up to which events were read.
    pub(crate) position: u64,
    /// Runs that had not ended when they were last checked.
    pub(crate) open: BTreeMap<RunId, Need>,
}

impl Reading {
    /// Why the run needed a person when the list was last read, which happens after every recovery. It does
    /// not read the store, so callers may poll.
    pub(crate) fn kind_of(&self, run_id: RunId) -> Option<Kind> {
        self.read().open.get(&run_id).map(|need| need.kind)
    }

    pub(crate) fn read(&self) -> MutexGuard<'_, Read> {
        lock::locked(&self.0)
    }
}
