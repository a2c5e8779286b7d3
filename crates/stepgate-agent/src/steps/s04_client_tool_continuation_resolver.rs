//! ClientToolContinuationResolver: matches the results of the caller's tools with the calls that they
//! answer.
//!
//! The turn that the request names replaces the provisional one. The manifest was checked with the request,
//! on this same state of the turn, so results become durable only where they fit, and only once.

use crate::context::ToolCallManifest;
use crate::flow::Flow;
use crate::stop::Stop;
use crate::turn::{Continued, Entry};

use super::s02_session_restorer::named_turn;

pub(crate) async fn run(flow: &mut Flow<'_>) -> Result<(), Stop> {
    let turn = named_turn(flow)?;
    flow.context.tool_call_manifest = Some(ToolCallManifest {
        tool_calls: turn.calls_answered_by(&flow.correlation_id),
        tool_call_results: flow.context.envelope().tool_results.clone(),
    });
    let is_recorded = turn.request_digest(&flow.correlation_id).is_some();
    flow.context.turn = Some(turn.seen_by(&flow.correlation_id));
    if is_recorded {
        return Ok(());
    }
    let continued = Continued {
        correlation_id: flow.correlation_id.clone(),
        request_digest: flow.request_digest,
        envelope: flow.context.envelope().clone(),
    };
    flow.append(Entry::Continued(Box::new(continued))).await
}
