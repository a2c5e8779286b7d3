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
        flow.check(validate_pre_step, Step::LlmClient).await?;
        match s09_llm_client::run(flow).await? {
            Round::Ended => break,
            Round::ServerCalls(calls) => {
                let rounds_max = flow.agent.limits.rounds_max;
                let is_last = flow.turn()?.rounds() >= rounds_max;
                // If the model will not see the results, the calls are not run.
                if is_last && !flow.turn()?.asks_client() {
                    let message =
                        format!("the model asked for tools {rounds_max} times and gave no answer");
                    return Err(fail(flow, Code::RoundsExhausted.error(message)).await?);
                }
                for call in calls {
                    run_call(flow, &call).await?;
                }
            }
        }
    }
    flow.check(validate_post_step, Step::LlmClient).await
}

/// One full step of the gate, with its own record.
async fn run_call(flow: &mut Flow<'_>, call: &AskedCall) -> Result<(), Stop> {
    let tool_call_id = call.tool_call_id.clone();
    flow.listener.hear(Progress::Calling(call.clone()));
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
    flow.append(Entry::ToolEnded(ended.clone())).await?;
    flow.listener.hear(Progress::Called(ended));
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
    let mut reasoning = reasoning.unwrap_or_else(|| "the model asked for this call".to_owned());
    reasoning.truncate(reasoning.floor_char_boundary(REASONING_BYTES_MAX));
    let id = turn.id.proposal_id(&call.tool_call_id);
    let action = call.action.as_deref();
    Ok(Payload::proposal(id, &reasoning, action.unwrap_or_default(), &call.arguments_json))
}

/// Ends the turn without an answer, durably.
pub(super) async fn fail(flow: &mut Flow<'_>, error: InvokeError) -> Result<Stop, Stop> {
    flow.append(Entry::Failed(error.clone().into())).await?;
    Ok(error.into())
}
