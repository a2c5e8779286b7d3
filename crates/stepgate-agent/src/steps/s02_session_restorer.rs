//! SessionRestorer: loads the session that the request names, and opens a new turn in it.
//!
//! If the request brings results of the caller's tools, the new turn is provisional: the next step replaces
//! it by the named one, and it is never stored.

use stepgate_core::ids::SessionId;

use crate::context::AgentSession;
use crate::envelope::ContextType;
use crate::flow::{Flow, missing};
use crate::stop::Stop;
use crate::turn::{Entry, Opened, Turn};
use crate::turns;

pub(crate) async fn run(flow: &mut Flow<'_>) -> Result<(), Stop> {
    let session = flow.context.known.session.as_ref();
    let session_id = session.ok_or_else(|| missing("known session"))?.session_id;
    let named = named_turn(flow)?;
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
            open(flow, session_id, opened).await
        }
        ContextType::ClientToolCallContinuation => {
            flow.context.turn = Some(Turn::provisional(flow.own_turn_id()));
            Ok(())
        }
    }
}

/// The turn that the request names, as it was when the request was checked.
pub(super) fn named_turn(flow: &Flow<'_>) -> Result<Turn, Stop> {
    let named = flow.context.known.named.as_ref();
    named.map(|(_, turn)| turn.clone()).ok_or_else(|| missing("named turn"))
}

/// Opens the turn of this request, or finds it open if the request came before.
pub(super) async fn open(
    flow: &mut Flow<'_>,
    session_id: SessionId,
    opened: Opened,
) -> Result<(), Stop> {
    let turn = match flow.context.known.own.clone() {
        Some((place, turn)) => {
            if let Some(session) = &mut flow.context.session {
                session.id = place;
            }
            turn.seen_by(&flow.correlation_id)
        }
        None => {
            let mut turn = Turn::provisional(flow.own_turn_id());
            let entry = Entry::Opened(Box::new(opened));
            turns::append(&flow.agent.gate, session_id, &mut turn, entry).await?;
            turn
        }
    };
    flow.context.turn = Some(turn);
    Ok(())
}
