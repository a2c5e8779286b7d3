//! AgentContextResolver: the agent's settings, for a new conversation.

use crate::context::{AgentContext, ConversationContext};
use crate::flow::Flow;

pub(crate) fn run(flow: &mut Flow<'_>) {
    let profile = &flow.agent.profile;
    flow.context.agent_context = Some(agent_context(flow));
    flow.context.conversation_context = Some(ConversationContext {
        mode: profile.mode.clone(),
        mode_display_name: profile.mode_display_name.clone(),
        earlier: Vec::new(),
    });
}

/// The agent's settings are the same in every conversation.
pub(super) fn agent_context(flow: &Flow<'_>) -> AgentContext {
    AgentContext {
        model: flow.agent.model.name().to_owned(),
        system_prompt: flow.agent.profile.system_prompt.clone(),
    }
}
