//! ClientToolContinuationResolver: the results of the caller's tools beside the calls that they answer.
//!
//! The turn that the request names takes the place of the provisional one. Results become durable only
//! when the manifest is valid, and only once.

use crate::context::{Envelope, ToolCall, ToolCallManifest, ToolCallResult};
use crate::pipeline::Flow;
use crate::stop::{Code, Stop};
use crate::turn::{Continued, Entry, Turn, TurnState};
use crate::validator::validate_tool_call_manifest;

use super::s02_session_restorer::named_turn;

pub(crate) async fn run(flow: &mut Flow<'_>) -> Result<(), Stop> {
    let turn = named_turn(flow, flow.session_id()?).await?;
    if let Some(known) = turn.continued_by(&flow.correlation_id) {
        flow.same_request(known.request_digest)?;
        let manifest = ToolCallManifest {
            tool_calls: turn.calls_answered_by(&flow.correlation_id),
            tool_call_results: known.envelope.tool_results.clone(),
        };
        flow.context.tool_call_manifest = Some(manifest);
        flow.context.turn = Some(turn.seen_by(&flow.correlation_id));
        return Ok(());
    }
    let calls = awaited(&turn, flow.context.envelope())?;
    let results = flow.context.envelope().tool_results.clone();
    let manifest = ToolCallManifest { tool_calls: calls, tool_call_results: results };
    let is_valid = validate_tool_call_manifest(&manifest).is_success();
    flow.context.tool_call_manifest = Some(manifest);
    flow.context.turn = Some(turn);
    if is_valid {
        let continued = Continued {
            correlation_id: flow.correlation_id.clone(),
            request_digest: flow.request_digest,
            envelope: flow.context.envelope().clone(),
        };
        flow.append(Entry::Continued(Box::new(continued))).await?;
    }
    Ok(())
}

/// The calls that wait for the caller; a hard failure where none does, or where a result is for a tool
/// that the server runs.
fn awaited(turn: &Turn, envelope: &Envelope) -> Result<Vec<ToolCall>, Stop> {
    let is_on_server = |result: &&ToolCallResult| {
        let mut asked = turn.answers().flat_map(|answer| &answer.calls);
        asked.any(|call| !call.is_clients() && call.tool_call_id == result.tool_call_id)
    };
    if let Some(result) = envelope.tool_results.iter().find(is_on_server) {
        return Err(refused(Code::ToolRunsOnServer, Some(result), "the server runs this tool"));
    }
    let first = envelope.tool_results.first();
    match turn.state() {
        TurnState::AwaitingClient(calls) => Ok(calls),
        TurnState::Asking | TurnState::Final(_) | TurnState::Failed(_) => {
            let reason = "the turn waits for no results: they came before, or were never asked for";
            Err(refused(Code::ToolResultsNotAwaited, first, reason))
        }
        TurnState::Calling(_) => {
            let reason = "the server's own calls come first: ask for the turn again";
            Err(refused(Code::ToolResultsNotAwaited, first, reason))
        }
    }
}

/// The failure with the result's id and name, and the reason.
fn refused(code: Code, result: Option<&ToolCallResult>, reason: &str) -> Stop {
    let error = code.error(reason).with("reason", reason);
    match result {
        Some(it) => error.with("toolCallId", &it.tool_call_id).with("name", &it.name).into(),
        None => error.into(),
    }
}
