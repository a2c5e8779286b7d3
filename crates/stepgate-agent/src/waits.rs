//! Turns that wait for a person, and how another process continues them when their process is gone.
//!
//! A turn that begins to wait records that in its session's chain, with the node that works on it. When that
//! node is gone and the wait is over, any process can take the turn over: by being the first to write the
//! event that ends the wait. So exactly one node continues it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stepgate_core::event::{Event, EventType, payload};
use stepgate_core::ids::RunId;
use stepgate_core::ports::{Store, StoreError};

use crate::flow::{Flow, Request};
use crate::ports::Agent;
use crate::stop::Stop;
use crate::turn::{Entry, ToolEnded, Turn, TurnId, TurnState};
use crate::turns;

/// Limit of the waits that are recorded for one run: each from another node.
const WAITS_MAX: u64 = 1000;

/// A turn that waits, as recorded in a `turn_waiting` event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "TurnWaiting")]
#[serde(deny_unknown_fields)]
pub struct Wait {
    /// The turn.
    pub turn_id: TurnId,
    /// The call whose run is not over.
    pub tool_call_id: String,
    /// The run.
    pub run_id: RunId,
    /// The number of the turn's event that will end the wait.
    pub number: u64,
    /// The node that works on the turn, where several share the store.
    pub incarnation: Option<u64>,
}

impl Wait {
    /// The wait in an event; none where it is another event, or cannot be parsed.
    pub fn read(event: &Event) -> Option<Self> {
        let is_wait = event.event_type == EventType::TurnWaiting;
        is_wait.then(|| Self::deserialize(&event.payload).ok()).flatten()
    }

    /// The latest wait for the same run: another node may work on the turn by now.
    pub async fn latest(self, store: &dyn Store) -> Result<Self, StoreError> {
        let (_, last) = said(store, self.run_id).await?;
        Ok(last.unwrap_or(self))
    }

    /// Whether the turn has continued since then.
    pub async fn is_over(&self, store: &dyn Store) -> Result<bool, StoreError> {
        Ok(store.event(self.turn_id.event_id(self.number)).await?.is_some())
    }
}

/// Records that the turn waits for this run, unless this node has recorded that already.
pub(crate) async fn note(flow: &Flow<'_>, tool_call_id: &str, run_id: RunId) -> Result<(), Stop> {
    let (gate, turn) = (&flow.agent.gate, flow.turn()?);
    let nodes = gate.store.nodes().await?;
    let wait = Wait {
        turn_id: turn.id,
        tool_call_id: tool_call_id.to_owned(),
        run_id,
        number: turn.next_number(),
        incarnation: nodes.iter().find(|node| node.is_this).map(|node| node.incarnation),
    };
    let (count, last) = said(&*gate.store, run_id).await?;
    if last.as_ref() == Some(&wait) {
        return Ok(());
    }
    let event_id = TurnId::waiting_event_id(run_id, count);
    let (payload, session_id) = (payload::value(&wait), flow.session_id()?);
    let event = gate.event(event_id, EventType::TurnWaiting, payload, session_id);
    Ok(gate.store.append_event(event).await?)
}

/// How many waits for this run are recorded, and the latest.
async fn said(store: &dyn Store, run_id: RunId) -> Result<(u64, Option<Wait>), StoreError> {
    let mut last = None;
    for number in 0..WAITS_MAX {
        match store.event(TurnId::waiting_event_id(run_id, number)).await? {
            Some(event) => last = Wait::read(&event),
            None => return Ok((number, last)),
        }
    }
    Ok((WAITS_MAX, last))
}

/// Takes over a turn whose run is over, if this process is the first. Returns the request of the turn; none
/// where another process was first, or the turn has continued already.
pub async fn take_up(agent: &Agent, wait: &Wait) -> Result<Option<Request>, Stop> {
    let gate = &agent.gate;
    let Some((session_id, turn)) = turns::load(gate, wait.turn_id).await? else {
        return Ok(None);
    };
    if !waits_for(&turn, wait) {
        return Ok(None);
    }
    let Some(session) = gate.store.session(session_id).await? else { return Ok(None) };
    let answer = agent.tools.wait_until_finished(wait.run_id).await?;
    let ended = Entry::ToolEnded(ToolEnded::of(&wait.tool_call_id, &answer));
    if !turns::append_first(gate, session_id, &turn, &ended).await? {
        return Ok(None);
    }
    let served = turn.entries.iter().rev().find_map(Entry::request);
    Ok(served.map(|(correlation_id, _, envelope)| Request {
        principal_id: session.principal_id,
        correlation_id: correlation_id.to_owned(),
        envelope: envelope.clone(),
    }))
}

/// Whether the call of this wait is the turn's next one.
fn waits_for(turn: &Turn, wait: &Wait) -> bool {
    let TurnState::Calling(calls) = turn.state() else { return false };
    let is_next = calls.first().is_some_and(|call| call.tool_call_id == wait.tool_call_id);
    is_next && turn.next_number() == wait.number
}
