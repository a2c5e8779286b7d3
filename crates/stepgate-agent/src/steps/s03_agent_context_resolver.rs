//! AgentContextResolver: the agent's settings, for a new conversation.

use crate::context::ConversationContext;
use crate::flow::Flow;
use crate::turn::Turn;

pub(crate) fn run(flow: &mut Flow<'_>) {
    resolve(flow, flow.agent.profile.mode.clone(), Vec::new());
}

/// The agent's settings are the same in every conversation.
pub(super) fn resolve(flow: &mut Flow<'_>, mode: String, earlier: Vec<Turn>) {
    flow.context.agent_context = Some(flow.agent.profile.clone());
    let mode_display_name = flow.agent.profile.mode_display_name.clone();
    flow.context.conversation_context =
        Some(ConversationContext { mode, mode_display_name, earlier });
}
