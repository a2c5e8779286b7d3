//! Making, lifting and listing emergency stops.

use crate::action::{Action, CORE_SERVER};
use crate::consent_cache::Recorded;
use crate::event::EventType;
use crate::event::payload::StopLifted;
use crate::gate::{Fault, Gate};
use crate::ids::{ArtifactId, PrincipalId, RunId};
use crate::machine::State;
use crate::ports::{RunQuery, Store, StoreError};
use crate::run::{Run, Status};
use crate::stop::{CallParties, StopOrder, StopTarget};

pub use crate::consent_cache::{Lift, StopStanding};
pub use crate::stop::Made;

/// Runs that are read at once.
const PAGE: usize = 100;

/// Makes a stop. It is in force on every node when this returns.
pub async fn make(gate: &Gate, order: StopOrder) -> Result<Made<StopStanding>, Fault> {
    let mut stops = in_force(gate).await?.into_iter();
    if let Some(there) = stops.find(|stop| stop.order.target == order.target) {
        return Ok(Made::Before(there));
    }
    let event = gate.note(EventType::StopMade, &order).await?;
    Ok(Made::Now(StopStanding { stop_id: event.event_id, order, made_at: event.ts, lift: None }))
}

/// Lifts a stop, and returns it. None where no stop of this id is in force.
pub async fn lift(
    gate: &Gate,
    stop_id: ArtifactId,
    lifted_by: PrincipalId,
) -> Result<Option<StopStanding>, Fault> {
    let mut stops = list(gate).await?.into_iter();
    let Some(stop) = stops.find(|stop| stop.stop_id == stop_id && stop.lift.is_none()) else {
        return Ok(None);
    };
    let payload = StopLifted { stop_id, lifted_by: lifted_by.clone() };
    let event = gate.note(EventType::StopLifted, payload).await?;
    Ok(Some(StopStanding { lift: Some(Lift { lifted_by, ts: event.ts }), ..stop }))
}

/// Every stop, newest first.
pub async fn list(gate: &Gate) -> Result<Vec<StopStanding>, StoreError> {
    gate.consents.read_on(&*gate.store).await?;
    Ok(gate.consents.recorded().stops.into_values().rev().collect())
}

/// The stops in force, newest first.
pub async fn in_force(gate: &Gate) -> Result<Vec<StopStanding>, StoreError> {
    let stops = list(gate).await?.into_iter();
    Ok(stops.filter(|stop| stop.lift.is_none()).collect())
}

/// The stops in force in a store that is only read, newest first.
pub async fn in_force_of(store: &dyn Store) -> Result<Vec<StopStanding>, StoreError> {
    Ok(Recorded::of(store).await?.stops_in_force().rev().cloned().collect())
}

/// What a stop covers of the runs that are not over.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Covered {
    /// Runs whose call may have been sent, newest first. A stop does not take it back.
    pub running: Vec<RunId>,
    /// How many runs wait for an approval, and are not executed while the stop is in force.
    pub waiting: u64,
}

/// The runs that are not over and that a stop covers. Called after the stop was made, it misses no call that was sent:
/// EXECUTE reads the stops when the call is in the store, so it refuses each call that is not found here.
pub async fn covered(gate: &Gate, target: &StopTarget) -> Result<Covered, StoreError> {
    let mut covered = Covered::default();
    for status in [Status::Started, Status::Approved, Status::ApprovalRequired] {
        let mut query = query(target, status);
        loop {
            let page = gate.store.runs(query.clone()).await?;
            let Some(last) = page.last() else { break };
            query.before = Some(last.arrival.run_id);
            for run in page.iter().filter(|run| is_covered(run, target)) {
                match status == Status::ApprovalRequired {
                    true => covered.waiting += 1,
                    false if is_called(gate, run).await? => {
                        covered.running.push(run.arrival.run_id)
                    }
                    false => {}
                }
            }
        }
    }
    covered.running.sort_unstable_by(|one, other| other.cmp(one));
    Ok(covered)
}

fn query(target: &StopTarget, status: Status) -> RunQuery {
    let (principal_id, session_id) = match target {
        StopTarget::All | StopTarget::Server(_) => (None, None),
        StopTarget::Principal(principal_id) => (Some(principal_id.clone()), None),
        StopTarget::Session(session_id) => (None, Some(*session_id)),
    };
    let status = Some(status);
    RunQuery { principal_id, session_id, status, limit: PAGE, ..RunQuery::default() }
}

fn is_covered(run: &Run, target: &StopTarget) -> bool {
    let tool_name = run.tool_name.as_deref().unwrap_or_default();
    let server = match (Action::parse(tool_name), tool_name.split_once('.')) {
        (Some(_), _) => CORE_SERVER,
        (None, Some((server, _))) => server,
        (None, None) => "",
    };
    let (principal_id, session_id) = (&run.arrival.principal_id, run.arrival.session_id);
    target.covers(CallParties { principal_id, session_id, server })
}

/// Whether the call of a run is in its journal, so that it may have been sent.
async fn is_called(gate: &Gate, run: &Run) -> Result<bool, StoreError> {
    let state = gate.store.load_state(run.arrival.run_id).await?;
    Ok(state.is_some_and(|state| state.current_state == State::Executing))
}
