//! Cancels a turn for its owner: because a tool of the caller failed, the model cannot be reached, or the
//! answer is no longer wanted.
//!
//! The turn ends like a failed one, by an event in its session's chain, and a follow-on turn is possible.

use stepgate_core::ids::PrincipalId;

use crate::invoke::InvokeResult;
use crate::ports::Agent;
use crate::stop::{Code, Stop};
use crate::turn::{Entry, TurnId, TurnState};
use crate::turns;

/// Limit of the retries where the turn goes on at the same time.
const TRIES_MAX: usize = 16;

/// The result of a cancellation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cancelled {
    /// There is no such turn of this principal.
    NoSuchTurn,
    /// The turn is cancelled, by this request or an earlier one.
    Done,
    /// It had ended in another way before.
    WasOver,
}

/// The result for later requests of the turn.
pub fn cancelled() -> InvokeResult {
    Code::TurnCancelled.error("the turn was cancelled: follow it, or begin another").into()
}

/// Ends the turn, if it belongs to this principal and is not over.
pub async fn cancel(
    agent: &Agent,
    principal_id: &PrincipalId,
    turn_id: TurnId,
) -> Result<Cancelled, Stop> {
    let gate = &agent.gate;
    for _ in 0..TRIES_MAX {
        let Some((session_id, turn)) = turns::load(gate, turn_id).await? else {
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
        // If the turn went on at the same time, it is loaded and tried again.
        let entry = Entry::Failed(cancelled());
        if turns::append_first(gate, session_id, &turn, &entry).await? {
            return Ok(Cancelled::Done);
        }
    }
    Err(turns::in_progress(turn_id))
}
