//! Reasoner: asks the model, runs the server's calls one after the other, and asks again.

use stepgate_core::run::Payload;

use crate::flow::Flow;
use crate::invoke::InvokeError;
use crate::limits::REASONING_BYTES_MAX;
use crate::model::Message;
use crate::ports::{Progress, Waiting};
use crate::stop::{Code, Stop};
use crate::turn::{AskedCall, Entry, ToolEnded, TurnState};
use crate::turns::told_of;
use crate::validator::{Step, validate_post_step, validate_pre_step};
use crate::waits;

use super::s09_llm_client::{self, Round};

pub(crate) async fn run(flow: &mut Flow<'_>) -> Result<(), Stop> {
    let (session_id, turn_id) = (flow.session_id()?, flow.turn()?.id);
    flow.listener.hear(Progress::Opened { session_id, turn_id });
    flow.replayed = match flow.turn()?.state() {
        TurnState::Final(_) | TurnState::AwaitingClient(_) => true,
        TurnState::Asking | TurnState::Calling(_) => false,
        TurnState::Failed(result) => return Err(Stop::Invoke(result)),
    };
    loop {
        // LLMClient's PRE is checked before every round, its POST after the last one.
        let found = validate_pre_step(&flow.context, Step::LlmClient);
        flow.judged(found).await?;
        match s09_llm_client::run(flow).await? {
            Round::Ended => break,
            Round::ServerCalls(calls) => {
                let rounds_max = flow.agent.limits.rounds_max;
                let is_last = flow.turn()?.rounds() >= rounds_max;
                // If the model will not see the results, the calls are not run.
                if is_last && !flow.turn()?.asks_client() {
                    return Err(exhausted(flow).await?);
                }
                for call in calls {
                    run_call(flow, &call).await?;
                }
            }
        }
    }
    let found = validate_post_step(&flow.context, Step::LlmClient);
    flow.judged(found).await
}

/// One full step of the gate, with its own record.
async fn run_call(flow: &mut Flow<'_>, call: &AskedCall) -> Result<(), Stop> {
    let (tool_call_id, action) = (call.tool_call_id.clone(), call.action.clone());
    let action = action.unwrap_or_default();
    let arguments_json = call.arguments_json.clone();
    let calling = Progress::Calling { tool_call_id: tool_call_id.clone(), action, arguments_json };
    flow.listener.hear(calling);
    let proposal = proposal(flow, call)?;
    let session_id = flow.session_id()?;
    let mut answer = flow.agent.tools.run(&flow.principal_id, session_id, proposal).await?;
    if answer.is_notice() {
        // If the wait cannot be recorded, the turn continues only when the same request comes again.
        let _noted = waits::note(flow, &tool_call_id, answer.run_id).await;
        flow.listener.hear(Progress::Waiting(Waiting::of(&tool_call_id, &answer)));
        answer = flow.agent.tools.wait_until_finished(answer.run_id).await?;
    }
    let ended = ToolEnded::of(&tool_call_id, &answer);
    let called = Progress::Called {
        tool_call_id: tool_call_id.clone(),
        run_id: answer.run_id,
        outcome: ended.outcome.clone(),
    };
    flow.append(Entry::ToolEnded(ended)).await?;
    flow.listener.hear(called);
    let content = told_of(&flow.agent.gate, &answer).await?;
    flow.tell(Message::Tool { tool_call_id, content });
    Ok(())
}

/// The call as a proposal. Its id follows from the turn and the call, so that the call is made once, however
/// often the turn is repeated. The arguments are inserted as the model spelled them: they are a complete
/// JSON object, or the answer would have been refused, and the gate's own parser checks the rest.
fn proposal(flow: &Flow<'_>, call: &AskedCall) -> Result<Payload, Stop> {
    let turn = flow.turn()?;
    let text = turn.last_answer().and_then(|answer| answer.text.clone());
    let reasoning = text.filter(|text| !text.trim().is_empty());
    let reasoning = reasoning.unwrap_or_else(|| "the model asked for this call".to_owned());
    let head = serde_json::json!({
        "schema_version": "1.0.0",
        "id": turn.id.proposal_id(&call.tool_call_id),
        "reasoning": beginning(&reasoning, REASONING_BYTES_MAX),
        "action": call.action,
    });
    let head = head.to_string();
    let head = head.strip_suffix('}').unwrap_or_default();
    Ok(Payload::whole(format!("{head},\"args\":{}}}", call.arguments_json).into_bytes()))
}

/// The beginning of a text, up to this many bytes.
fn beginning(text: &str, bytes_max: usize) -> &str {
    let mut end = bytes_max.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default()
}

/// The model used all its rounds without an answer: the turn ends, durably.
async fn exhausted(flow: &mut Flow<'_>) -> Result<Stop, Stop> {
    let rounds_max = flow.agent.limits.rounds_max;
    let message = format!("the model asked for tools {rounds_max} times and gave no answer");
    fail(flow, Code::RoundsExhausted.error(message)).await
}

/// Ends the turn without an answer.
pub(super) async fn fail(flow: &mut Flow<'_>, error: InvokeError) -> Result<Stop, Stop> {
    flow.append(Entry::Failed(error.clone().into())).await?;
    Ok(error.into())
}
