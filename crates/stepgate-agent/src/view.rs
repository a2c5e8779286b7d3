//! The present state of a turn, for a reader that did not send its request or no longer waits.

use stepgate_core::ids::SessionId;
use stepgate_core::step::Answer;

use crate::invoke::InvokeResult;
use crate::ports::{Agent, Waiting};
use crate::response::Response;
use crate::steps::s10_response_builder::{calls_for_client, head, last_word};
use crate::stop::Stop;
use crate::turn::{AskedCall, TurnId, TurnState};
use crate::turns;

pub use crate::turns::opened;

/// The progress of a turn.
#[derive(Clone, Debug, PartialEq)]
pub enum Standing {
    /// The model must be asked, or a call of the server must be made.
    Open,
    /// A call of the server waits for a person's decision, or its outcome is unknown.
    Waiting(Waiting),
    /// There is a response: the final answer, or calls for the caller.
    Answered(Box<Response>),
    /// It ended without an answer.
    Failed(InvokeResult),
}

/// The progress of the turn of this id, and the session whose chain has it; none where there is none.
pub async fn view(agent: &Agent, turn_id: TurnId) -> Result<Option<(SessionId, Standing)>, Stop> {
    let Some((session_id, turn)) = turns::load(&agent.gate, turn_id).await? else {
        return Ok(None);
    };
    let head = head(agent, session_id, &turn);
    let standing = match turn.state() {
        TurnState::Asking => Standing::Open,
        TurnState::Calling(calls) => {
            let waiting = waits_for(agent, session_id, turn_id, calls.first()).await?;
            waiting.map_or(Standing::Open, Standing::Waiting)
        }
        TurnState::Final(text) => {
            Standing::Answered(Box::new(last_word(agent, &turn, head, &text).await?))
        }
        TurnState::AwaitingClient(calls) => {
            Standing::Answered(Box::new(calls_for_client(&turn, head, &calls)))
        }
        TurnState::Failed(result) => Standing::Failed(result),
    };
    Ok(Some((session_id, standing)))
}

/// What the turn's call waits for, if its run has begun and is not over.
async fn waits_for(
    agent: &Agent,
    session_id: SessionId,
    turn_id: TurnId,
    call: Option<&AskedCall>,
) -> Result<Option<Waiting>, Stop> {
    let (gate, Some(AskedCall { tool_call_id, .. })) = (&agent.gate, call) else { return Ok(None) };
    let Some(session) = gate.store.session(session_id).await? else { return Ok(None) };
    let answer = turns::answer_to(gate, &session.principal_id, turn_id, tool_call_id).await?;
    let notice = answer.filter(Answer::is_notice);
    Ok(notice.map(|answer| Waiting::of(tool_call_id, &answer)))
}
