//! Legal holds: an operator's order that runs stay in the store until it is lifted.
//!
//! An order is an event of the system session, and its id is the event's id.

use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::consent_cache::Lift;
use crate::event::EventType;
use crate::event::payload::{self, HoldLifted};
use crate::gate::{Fault, Gate};
use crate::ids::{ArtifactId, PrincipalId, RunId, SessionId};
use crate::ports::{Store, StoreError};
use crate::run::{Arrival, Run};
use crate::system;
use crate::time::Timestamp;

pub use crate::stop::Made;

/// An operator's order to keep runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "StoredHold")]
pub struct HoldOrder {
    /// Who made it.
    pub held_by: PrincipalId,
    /// What that person noted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Which runs stay.
    pub target: HoldTarget,
}

/// Which runs a hold covers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum HoldTarget {
    /// The runs of a principal.
    Principal(PrincipalId),
    /// The runs of a session.
    Session(SessionId),
    /// One run.
    Run(RunId),
}

impl HoldTarget {
    fn covers(&self, whose: Option<&PrincipalId>, session: SessionId, run: RunId) -> bool {
        match self {
            Self::Principal(principal_id) => Some(principal_id) == whose,
            Self::Session(session_id) => *session_id == session,
            Self::Run(run_id) => *run_id == run,
        }
    }
}

impl fmt::Display for HoldTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Principal(principal_id) => write!(f, "principal `{principal_id}`"),
            Self::Session(session_id) => write!(f, "session {session_id}"),
            Self::Run(run_id) => write!(f, "run {run_id}"),
        }
    }
}

/// A hold, and whether it is in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HoldStanding {
    /// Its id.
    pub hold_id: ArtifactId,
    /// The order. None where a newer version made it in another form: then it covers every run.
    pub order: Option<HoldOrder>,
    /// When it was made.
    pub made_at: Timestamp,
    /// Who lifted it. None while it is in force.
    pub lift: Option<Lift>,
}

/// The holds in force.
#[derive(Clone, Debug, Default)]
pub struct Held(Vec<HoldStanding>);

impl Held {
    /// Whether a run stays; `whose` is its principal, where that is known.
    pub fn covers(&self, whose: Option<&PrincipalId>, session: SessionId, run: RunId) -> bool {
        let mut orders = self.0.iter().map(|hold| hold.order.as_ref());
        orders.any(|order| order.is_none_or(|order| order.target.covers(whose, session, run)))
    }

    /// Whether a run that is in the store stays.
    pub fn covers_run(&self, run: &Run) -> bool {
        let Arrival { principal_id, session_id, run_id, .. } = &run.arrival;
        self.covers(Some(principal_id), *session_id, *run_id)
    }
}

/// Makes a hold. Runs that it covers and that are in the store when this returns stay there.
pub async fn make(gate: &Gate, order: HoldOrder) -> Result<Made<HoldStanding>, Fault> {
    let is_same =
        |hold: &HoldStanding| hold.order.as_ref().is_some_and(|there| there.target == order.target);
    let Held(holds) = in_force(&*gate.store).await?;
    if let Some(there) = holds.into_iter().find(is_same) {
        return Ok(Made::Before(there));
    }
    let event = gate.note(EventType::HoldMade, &order).await?;
    let order = Some(order);
    Ok(Made::Now(HoldStanding { hold_id: event.event_id, order, made_at: event.ts, lift: None }))
}

/// Lifts a hold, and returns it. None where no hold of this id is in force.
pub async fn lift(
    gate: &Gate,
    hold_id: ArtifactId,
    lifted_by: PrincipalId,
) -> Result<Option<HoldStanding>, Fault> {
    let Held(holds) = in_force(&*gate.store).await?;
    let Some(hold) = holds.into_iter().find(|hold| hold.hold_id == hold_id) else {
        return Ok(None);
    };
    let payload = HoldLifted { hold_id, lifted_by: lifted_by.clone() };
    let event = gate.note(EventType::HoldLifted, payload).await?;
    Ok(Some(HoldStanding { lift: Some(Lift { lifted_by, ts: event.ts }), ..hold }))
}

/// Every hold, oldest first.
pub async fn list(store: &dyn Store) -> Result<Vec<HoldStanding>, StoreError> {
    let types = [EventType::HoldMade, EventType::HoldLifted];
    let mut holds: BTreeMap<ArtifactId, HoldStanding> = BTreeMap::new();
    for placed in system::events_since(store, &types, 0).await? {
        let event = placed.event;
        if event.event_type == EventType::HoldMade {
            let order = payload::read(&event.payload).ok();
            let hold_id = event.event_id;
            let hold = HoldStanding { hold_id, order, made_at: event.ts, lift: None };
            holds.insert(hold_id, hold);
        } else if let Ok(HoldLifted { hold_id, lifted_by }) = payload::read(&event.payload)
            && let Some(hold) = holds.get_mut(&hold_id)
        {
            hold.lift.get_or_insert(Lift { lifted_by, ts: event.ts });
        }
    }
    Ok(holds.into_values().collect())
}

/// The holds in force.
pub async fn in_force(store: &dyn Store) -> Result<Held, StoreError> {
    let holds = list(store).await?.into_iter();
    Ok(Held(holds.filter(|hold| hold.lift.is_none()).collect()))
}
