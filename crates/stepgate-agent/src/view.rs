//! The present state of a turn, for a reader that did not send its request or no longer waits.

use stepgate_core::event::Event;
use stepgate_core::ids::SessionId;
use stepgate_core::time::Timestamp;

use crate::invoke::InvokeResult;
use crate::ports::Agent;
use crate::response::Response;
use crate::steps::s10_response_builder::{calls_for_client, head, last_word};
use crate::stop::Stop;
use crate::turn::{AskedCall, Turn, TurnId, TurnState};
use crate::turns;

/// The present state of a turn.
#[derive(Clone, Debug, PartialEq)]
pub struct TurnView {
    /// The session whose chain has it.
    pub session_id: SessionId,
    /// The turn.
    pub turn_id: TurnId,
    /// Its progress.
    pub standing: Standing,
}

/// The progress of a turn.
#[derive(Clone, Debug, PartialEq)]
pub enum Standing {
    /// The model must be asked.
    Asking,
    /// This call of the server is next.
    Calling(AskedCall),
    /// There is a response: the final answer, or calls for the caller.
    Answered(Box<Response>),
    /// It ended without an answer.
    Failed(InvokeResult),
}

/// A turn in a list, from the event that opened it.
#[derive(Clone, Debug, PartialEq)]
pub struct ListedTurn {
    /// The session whose chain has it.
    pub session_id: SessionId,
    /// The turn.
    pub turn_id: TurnId,
    /// When it was opened.
    pub ts: Timestamp,
    /// The key of the request that opened it.
    pub correlation_id: String,
    /// The turn before it.
    pub previous: Option<TurnId>,
    /// What the user asked for.
    pub instructions: Option<String>,
}

impl ListedTurn {
    /// The turn that this event opened.
    pub fn of(event: &Event) -> Result<Self, Stop> {
        let (turn_id, opened) = turns::opened(event)?;
        Ok(Self {
            session_id: event.session_id,
            turn_id,
            ts: event.ts,
            correlation_id: opened.correlation_id,
            previous: opened.previous,
            instructions: opened.envelope.instructions,
        })
    }
}

/// The turn of this id; none where there is none.
pub async fn view(agent: &Agent, turn_id: TurnId) -> Result<Option<TurnView>, Stop> {
    let Some((session_id, turn)) = turns::load(&agent.gate, turn_id).await? else {
        return Ok(None);
    };
    let standing = standing(agent, session_id, &turn).await?;
    Ok(Some(TurnView { session_id, turn_id, standing }))
}

async fn standing(agent: &Agent, session_id: SessionId, turn: &Turn) -> Result<Standing, Stop> {
    let head = head(session_id, turn, &agent.profile.mode_display_name);
    Ok(match turn.state() {
        TurnState::Asking => Standing::Asking,
        TurnState::Calling(calls) => {
            calls.into_iter().next().map_or(Standing::Asking, Standing::Calling)
        }
        TurnState::Final(text) => {
            Standing::Answered(Box::new(last_word(agent, turn, head, &text).await?))
        }
        TurnState::AwaitingClient(calls) => {
            Standing::Answered(Box::new(calls_for_client(turn, head, &calls)))
        }
        TurnState::Failed(result) => Standing::Failed(result),
    })
}
