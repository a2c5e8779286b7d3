//! SessionRestorer: the session that the request names, and a new turn in it.
//!
//! For the results of a caller's tools the new turn is provisional: the next step puts the named one in
//! its place, and nothing of it is ever stored.

use stepgate_core::ids::SessionId;

use crate::context::{AgentSession, ContextType};
use crate::pipeline::{Flow, key_taken};
use crate::stop::{Code, Stop};
use crate::turn::{Entry, Opened, Turn, TurnId, TurnState};
use crate::turns;

pub(crate) async fn run(flow: &mut Flow<'_>) -> Result<(), Stop> {
    let session_id = own_session(flow).await?;
    let named = named_turn(flow, session_id).await?;
    let mode = named.opened().map(|opened| opened.mode.clone());
    flow.context.session = Some(AgentSession { id: session_id, mode: mode.clone() });
    match flow.context_type()? {
        ContextType::Initial | ContextType::FollowOn => {
            let opened = Opened {
                correlation_id: flow.correlation_id.clone(),
                request_digest: flow.request_digest,
                previous: Some(named.id),
                mode: mode.unwrap_or_default(),
                envelope: flow.context.envelope().clone(),
            };
            open(flow, session_id, opened, Some(&named)).await
        }
        ContextType::ClientToolCallContinuation => {
            is_free(flow, &named).await?;
            flow.context.turn = Some(Turn::provisional(flow.own_turn_id()));
            Ok(())
        }
    }
}

/// Results may come under a key that opened no turn. Those that came under theirs before are not judged
/// again: their request is told from another by its digest.
async fn is_free(flow: &Flow<'_>, named: &Turn) -> Result<(), Stop> {
    let is_known = named.continued_by(&flow.correlation_id).is_some();
    if is_known || turns::load(&flow.agent.gate, flow.own_turn_id()).await?.is_none() {
        return Ok(());
    }
    Err(key_taken())
}

/// The session that the request names. Another principal's is not there.
async fn own_session(flow: &Flow<'_>) -> Result<SessionId, Stop> {
    let text = flow.context.envelope().session_id.clone().unwrap_or_default();
    let not_found = || Code::SessionNotFound.error("there is no such session here");
    let id: SessionId = text.parse().map_err(|_| Stop::from(not_found()))?;
    match flow.agent.gate.store.session(id).await? {
        Some(session) if session.principal_id == flow.principal_id => Ok(id),
        Some(_) | None => Err(not_found().into()),
    }
}

/// The turn that the request names, in its session.
pub(super) async fn named_turn(flow: &Flow<'_>, session_id: SessionId) -> Result<Turn, Stop> {
    let text = flow.context.envelope().turn_id.clone().unwrap_or_default();
    let not_found = || Code::TurnNotFound.error("there is no such turn in this session");
    let id: TurnId = text.parse().map_err(|_| Stop::from(not_found()))?;
    match turns::load(&flow.agent.gate, id).await? {
        Some((place, turn)) if place == session_id => Ok(turn),
        Some(_) | None => Err(not_found().into()),
    }
}

/// Opens the turn of this request, or finds it open where the request came before.
pub(super) async fn open(
    flow: &mut Flow<'_>,
    session_id: SessionId,
    opened: Opened,
    after: Option<&Turn>,
) -> Result<(), Stop> {
    let id = flow.own_turn_id();
    match turns::load(&flow.agent.gate, id).await? {
        Some((place, turn)) => {
            let known = turn.opened().map(|opened| opened.request_digest);
            flow.same_request(known.unwrap_or(stepgate_core::digest::Digest::ZERO))?;
            if let Some(session) = &mut flow.context.session {
                session.id = place;
            }
            flow.context.turn = Some(turn.seen_by(&flow.correlation_id));
        }
        None => {
            if let Some(previous) = after {
                is_over(previous)?;
            }
            let mut turn = Turn::provisional(id);
            let entry = Entry::Opened(Box::new(opened));
            turns::append(&flow.agent.gate, session_id, &mut turn, entry).await?;
            flow.context.turn = Some(turn);
        }
    }
    Ok(())
}

fn is_over(turn: &Turn) -> Result<(), Stop> {
    let why = match turn.state() {
        TurnState::Final(_) | TurnState::Failed(_) => return Ok(()),
        TurnState::AwaitingClient(_) => "the turn before waits for the results of your tools",
        TurnState::Asking | TurnState::Calling(_) => "the turn before has no answer yet",
    };
    Err(Code::TurnNotFinished.error(why).with("turnId", turn.id).into())
}
