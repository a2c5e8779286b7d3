//! SessionRestorer: loads the session that the request names, and opens a new turn in it.
//!
//! If the request brings results of the caller's tools, the new turn is provisional: the next step replaces
//! it by the named one, and it is never stored.

use crate::context::AgentSession;
use crate::envelope::ContextType;
use crate::flow::{Flow, missing};
use crate::stop::Stop;
use crate::turn::{Entry, Opened, Turn, TurnId};

pub(crate) async fn run(flow: &mut Flow<'_>) -> Result<(), Stop> {
    let session = flow.context.known.session.as_ref();
    let id = session.ok_or_else(|| missing("known session"))?.session_id;
    let named = named_turn(flow)?;
    let mode = named.opened().map(|opened| opened.mode.clone());
    flow.context.session = Some(AgentSession { id, mode: mode.clone() });
    match flow.context_type()? {
        ContextType::Initial | ContextType::FollowOn => {
            open(flow, Some(named.id), mode.unwrap_or_default()).await
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

/// Opens the turn of this request in the context's session, or finds it open if the request came before.
pub(super) async fn open(
    flow: &mut Flow<'_>,
    previous: Option<TurnId>,
    mode: String,
) -> Result<(), Stop> {
    if let Some((_, turn)) = flow.context.known.own.clone() {
        flow.context.turn = Some(turn.seen_by(&flow.correlation_id));
        return Ok(());
    }
    let opened = Opened {
        correlation_id: flow.correlation_id.clone(),
        request_digest: flow.request_digest,
        previous,
        mode,
        envelope: flow.context.envelope().clone(),
    };
    flow.context.turn = Some(Turn::provisional(flow.own_turn_id()));
    flow.append(Entry::Opened(Box::new(opened))).await
}
