//! Facts: what policies can know beside the call. Each is recorded with the decision, so that the decision can be
//! taken again.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::decimal::Decimal;
use crate::label::Label;
use crate::origin::Origin;

/// What policies knew beside the call.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Facts {
    /// The origins that every address in the arguments has, those that are targets apart.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub addresses: BTreeSet<Origin>,
    /// The position of the newest event when the labels were read. Every label of an event up to here was seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub as_of: Option<u64>,
    /// The groups that the principal is in.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub groups: BTreeSet<String>,
    /// What the session has taken in before this call.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub labels: BTreeSet<Label>,
    /// The windows of the schedule that were open when the session was opened.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub opened: Option<BTreeSet<String>>,
    /// What the result of the call brings in: as the tool is declared, and what the file or memory has.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub reads: BTreeSet<Label>,
    /// The windows of the schedule that were open.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub schedule: BTreeSet<String>,
    /// What the call carries out, as the tool is declared.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub sends: BTreeSet<Label>,
    /// How many steps the session was given before this one. Numbers can be skipped, so it may be fewer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps: Option<u64>,
    /// The origins that every target of the call has.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub targets: BTreeSet<Origin>,
    /// How much was used of each budget that covers the call, in the window of the decision.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub used: BTreeMap<String, Decimal>,
}

impl Facts {
    /// The facts, where there are any.
    pub(crate) fn recorded(&self) -> Option<Box<Self>> {
        (*self != Self::default()).then(|| Box::new(self.clone()))
    }
}

/// The names that facts can have. A policy that names another one is refused.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FactNames {
    /// Groups of principals.
    pub groups: BTreeSet<String>,
    /// Labels.
    pub labels: BTreeSet<Label>,
    /// Windows of the schedule.
    pub windows: BTreeSet<String>,
    /// Directories of values.
    pub directories: BTreeSet<String>,
}

/// Facts that are looked up only where policies ask for them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FactNeeds {
    /// Where arguments come from.
    pub origins: bool,
    /// When the session was opened.
    pub opened: bool,
    /// How many steps the session had.
    pub steps: bool,
}

impl FactNeeds {
    /// What either needs.
    pub fn or(self, other: Self) -> Self {
        Self {
            origins: self.origins || other.origins,
            opened: self.opened || other.opened,
            steps: self.steps || other.steps,
        }
    }
}
