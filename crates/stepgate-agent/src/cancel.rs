//! A turn that its owner gives up: because a tool of the caller's failed, the model cannot be reached, or
//! the answer is no longer wanted.
//!
//! The turn is over as one that failed is, by an event in its session's chain, and can be followed.

use stepgate_core::ids::PrincipalId;

use crate::invoke::InvokeResult;
use crate::ports::Agent;
use crate::stop::{Code, Stop};
use crate::turn::{Entry, TurnId, TurnState};
use crate::turns;

/// How often a turn that goes on meanwhile is tried to be stopped.
const TRIES_MAX: usize = 16;

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cancelled {
    /// There is no such turn of this principal.
    NoSuchTurn,
    /// It is over, and it is this that ended it, now or before.
    Done,
    /// It had ended otherwise before.
    WasOver,
}

/// What the turn's requests get from then on.
pub fn cancelled() -> InvokeResult {
    Code::TurnCancelled.error("the turn was cancelled: follow it, or begin another").into()
}

/// Ends the turn, where it is this principal's and not over.
pub async fn cancel(
    agent: &Agent,
    principal_id: &PrincipalId,
    turn_id: TurnId,
) -> Result<Cancelled, Stop> {
    let gate = &agent.gate;
    for _ in 0..TRIES_MAX {
        let Some((session_id, mut turn)) = turns::load(gate, turn_id).await? else {
            return Ok(Cancelled::NoSuchTurn);
        };
        match gate.store.session(session_id).await? {
            Some(session) if session.principal_id == *principal_id => {}
            Some(_) | None => return Ok(Cancelled::NoSuchTurn),
        }
        match turn.state() {
            TurnState::Failed(result) if result == cancelled() => return Ok(Cancelled::Done),
            TurnState::Failed(_) | TurnState::Final(_) => return Ok(Cancelled::WasOver),
            TurnState::Asking | TurnState::Calling(_) | TurnState::AwaitingClient(_) => {}
        }
        // Where the turn went on in this very moment, it is looked at again.
        let entry = Entry::Failed(cancelled());
        if turns::append_first(gate, session_id, &mut turn, entry).await? {
            return Ok(Cancelled::Done);
        }
    }
    Err(turns::in_progress(turn_id))
}
