//! What is assumed about a session when no call is made: to explain a decision, or to foresee one.

use std::collections::{BTreeMap, BTreeSet};

use crate::decimal::Decimal;
use crate::gate::Gate;
use crate::ids::SessionId;
use crate::label::{Carrier, Label};
use crate::labels;
use crate::origin::Origin;
use crate::origins;
use crate::ports::StoreError;
use crate::session_cache::Given;

/// What is assumed when no call is made: labels of a session and of what is read, groups,
/// windows instead of the clock, and what is used of budgets.
#[derive(Clone, Debug, Default)]
pub struct Assumed {
    /// The labels of the session.
    pub labels: BTreeSet<Label>,
    /// The open windows; those that are open now where none are named.
    pub schedule: Option<BTreeSet<String>>,
    /// The groups of the principal; those that the configuration says where none are named.
    pub groups: Option<BTreeSet<String>>,
    /// The labels of the file or the memory, beside what the tool is declared to read.
    pub reads: BTreeSet<Label>,
    /// What the session has been given: where arguments come from follows from it.
    pub given: Given,
    /// The origins of the call's targets, instead of those that follow from it.
    pub targets: Option<BTreeSet<Origin>>,
    /// The same for the addresses in the other arguments.
    pub addresses: Option<BTreeSet<Origin>>,
    /// How many steps the session had.
    pub steps: u64,
    /// How much of budgets is used; nothing of those that are not named.
    pub used: BTreeMap<String, Decimal>,
    /// The windows that were open when the session was opened.
    pub opened: BTreeSet<String>,
}

impl Assumed {
    /// What would be known in a session now. One that does not exist yet has nothing.
    pub async fn of_session(gate: &Gate, session_id: SessionId) -> Result<Self, StoreError> {
        let Some(session) = gate.store.session(session_id).await? else {
            return Ok(Self::default());
        };
        Ok(Self {
            labels: labels::of(gate, &Carrier::Session(session_id)).await?,
            given: origins::given(gate, session_id).await?,
            steps: session.last_step_index,
            opened: gate.facts.schedule.open_at(session.ts),
            ..Self::default()
        })
    }
}
