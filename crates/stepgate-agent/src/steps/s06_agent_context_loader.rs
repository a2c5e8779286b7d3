//! AgentContextLoader: the agent's settings and the earlier turns, for a conversation that continues.

use crate::flow::Flow;
use crate::stop::{Code, Stop};
use crate::turn::{Turn, TurnState};
use crate::turns;

use super::s03_agent_context_resolver::resolve;
use super::s08_reasoner::fail;

pub(crate) async fn run(flow: &mut Flow<'_>) -> Result<(), Stop> {
    let Some(earlier) = earlier(flow).await? else { return Err(too_long(flow).await?) };
    let session = flow.context.session.as_ref();
    let mode = session.and_then(|session| session.mode.clone()).unwrap_or_default();
    resolve(flow, mode, earlier);
    Ok(())
}

/// The turns before this one, oldest first; none where there are too many. Each turn names the one before
/// it.
async fn earlier(flow: &Flow<'_>) -> Result<Option<Vec<Turn>>, Stop> {
    let mut earlier: Vec<Turn> = Vec::new();
    let mut previous = flow.turn()?.opened().and_then(|opened| opened.previous);
    while let Some(id) = previous {
        if earlier.len() >= flow.agent.limits.turns_max {
            return Ok(None);
        }
        let Some((_, turn)) = turns::load(&flow.agent.gate, id).await? else { break };
        previous = turn.opened().and_then(|opened| opened.previous);
        earlier.push(turn);
    }
    earlier.reverse();
    Ok(Some(earlier))
}

/// The conversation has too many turns. A turn that waits for the model is ended. If the limit was lowered
/// later, the turn can be in any other state, and keeps it.
async fn too_long(flow: &mut Flow<'_>) -> Result<Stop, Stop> {
    let turns_max = flow.agent.limits.turns_max;
    let message = format!("the conversation has {turns_max} turns: begin another one");
    let error = Code::ConversationTooLong.error(message);
    match flow.turn()?.state() {
        TurnState::Asking => fail(flow, error).await,
        TurnState::Failed(result) => Ok(Stop::Invoke(result)),
        TurnState::Calling(_) | TurnState::AwaitingClient(_) | TurnState::Final(_) => {
            Ok(error.into())
        }
    }
}
