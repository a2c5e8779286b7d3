//! ResponseBuilder: builds the response to the caller (AGN-033).

use stepgate_core::ids::SessionId;

use crate::envelope::{ToolCall, ToolCallResult};
use crate::flow::{Flow, missing};
use crate::ports::Agent;
use crate::response::{Response, ResponseKind};
use crate::stop::Stop;
use crate::turn::Turn;
use crate::turns::CallResponses;

pub(crate) async fn run(flow: &mut Flow<'_>) -> Result<(), Stop> {
    let context = &flow.context;
    let head = head(flow.agent, flow.session_id()?, flow.turn()?);
    let response = match context.response_kind() {
        Some(ResponseKind::Final) => {
            let payload = context.response_payload.as_ref().ok_or_else(|| missing("payload"))?;
            last_word(flow.agent, flow.turn()?, head, payload).await?
        }
        Some(ResponseKind::ClientToolContinuation) => {
            calls_for_client(flow.turn()?, head, &context.client_tool_calls)
        }
        None => return Err(missing("response")),
    };
    flow.context.response = Some(response);
    Ok(())
}

pub(crate) fn head(agent: &Agent, session_id: SessionId, turn: &Turn) -> Response {
    Response {
        session_id: Some(session_id.to_string()),
        turn_id: Some(turn.id.to_string()),
        mode_display_name: Some(agent.profile.mode_display_name.clone()),
        ..Response::default()
    }
}

pub(crate) async fn last_word(
    agent: &Agent,
    turn: &Turn,
    head: Response,
    text: &str,
) -> Result<Response, Stop> {
    let results = tool_results(agent, turn).await?;
    let warnings: Vec<String> =
        turn.answers().filter_map(|answer| answer.cut_off.clone()).collect();
    Ok(Response {
        kind: ResponseKind::Final.as_str().to_owned(),
        primary_output_text: Some(text.to_owned()),
        tool_results: (!results.is_empty()).then_some(results),
        user_warnings: (!warnings.is_empty()).then_some(warnings),
        usage: turn.usage(),
        ..head
    })
}

pub(crate) fn calls_for_client(turn: &Turn, head: Response, calls: &[ToolCall]) -> Response {
    Response {
        kind: ResponseKind::ClientToolContinuation.as_str().to_owned(),
        tool_calls: Some(calls.to_vec()),
        tool_continuation_message: turn.last_answer().and_then(|answer| answer.text.clone()),
        ..head
    }
}

/// The calls that the server made, each with its five-key response, refusals included.
async fn tool_results(agent: &Agent, turn: &Turn) -> Result<Vec<ToolCallResult>, Stop> {
    let responses = CallResponses::of(&agent.gate, [turn]).await?;
    let mut results = Vec::new();
    for call in turn.answers().flat_map(|answer| &answer.calls) {
        let Some(ended) = turn.ended(&call.tool_call_id) else { continue };
        results.push(ToolCallResult {
            tool_call_id: call.tool_call_id.clone(),
            name: call.name.clone(),
            result_json: Some(responses.response_to(ended)?.body()),
            error_message: None,
        });
    }
    Ok(results)
}
