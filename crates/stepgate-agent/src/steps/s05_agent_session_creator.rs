//! AgentSessionCreator: opens a session for a new conversation, and its first turn.

use stepgate_core::ids::SessionId;

use crate::context::AgentSession;
use crate::flow::{Flow, missing};
use crate::stop::Stop;

use super::s02_session_restorer::open;

pub(crate) async fn run(flow: &mut Flow<'_>) -> Result<(), Stop> {
    let conversation = flow.context.conversation_context.as_ref();
    let mode = conversation.ok_or_else(|| missing("conversation"))?.mode.clone();
    let id = session(flow).await?;
    flow.context.session = Some(AgentSession { id, mode: Some(mode.clone()) });
    open(flow, None, mode).await
}

/// The session of the turn that this request opened before, or a fresh one.
async fn session(flow: &Flow<'_>) -> Result<SessionId, Stop> {
    let gate = &flow.agent.gate;
    if let Some((session_id, _)) = &flow.context.known.own {
        return Ok(*session_id);
    }
    let fresh = SessionId::new(gate.world.fresh_uuid());
    Ok(gate.named_session(fresh, &flow.principal_id).await?.session_id)
}
