//! AgentContextLoader: who the agent is and what was said before, for a conversation that goes on.

use crate::context::ConversationContext;
use crate::pipeline::Flow;
use crate::stop::{Code, Stop};
use crate::turn::Turn;
use crate::turns;

use super::s03_agent_context_resolver::agent_context;

pub(crate) async fn run(flow: &mut Flow<'_>) -> Result<(), Stop> {
    let earlier = earlier(flow).await?;
    let session = flow.context.session.as_ref();
    let mode = session.and_then(|session| session.mode.clone()).unwrap_or_default();
    flow.context.agent_context = Some(agent_context(flow));
    flow.context.conversation_context = Some(ConversationContext {
        mode,
        mode_display_name: flow.agent.profile.mode_display_name.clone(),
        earlier,
    });
    Ok(())
}

/// The turns before this one, oldest first. Each names the one before it.
async fn earlier(flow: &Flow<'_>) -> Result<Vec<Turn>, Stop> {
    let mut earlier: Vec<Turn> = Vec::new();
    let mut previous = flow.turn()?.opened().and_then(|opened| opened.previous);
    while let Some(id) = previous {
        if earlier.len() >= flow.agent.limits.turns_max {
            let turns_max = flow.agent.limits.turns_max;
            let message = format!("the conversation has {turns_max} turns: begin another one");
            return Err(Code::ConversationTooLong.stop(message));
        }
        let Some((_, turn)) = turns::load(&flow.agent.gate, id).await? else { break };
        previous = turn.opened().and_then(|opened| opened.previous);
        earlier.push(turn);
    }
    earlier.reverse();
    Ok(earlier)
}
