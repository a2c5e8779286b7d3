//! AgentSessionCreator: opens a session for a new conversation, and its first turn.

use stepgate_core::ids::SessionId;

use crate::context::AgentSession;
use crate::flow::{Flow, missing};
use crate::stop::Stop;
use crate::turn::Opened;

use super::s02_session_restorer::open;

pub(crate) async fn run(flow: &mut Flow<'_>) -> Result<(), Stop> {
    let conversation = flow.context.conversation_context.as_ref();
    let mode = conversation.ok_or_else(|| missing("conversation"))?.mode.clone();
    let session_id = session(flow).await?;
    let opened = Opened {
        correlation_id: flow.correlation_id.clone(),
        request_digest: flow.request_digest,
        previous: None,
        mode: mode.clone(),
        envelope: flow.context.envelope().clone(),
    };
    flow.context.session = Some(AgentSession { id: session_id, mode: Some(mode) });
    open(flow, session_id, opened).await
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
