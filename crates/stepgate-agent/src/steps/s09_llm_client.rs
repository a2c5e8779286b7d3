//! LLMClient: one round with the model. Its answer is untrusted until it is checked here, and durable before
//! any of its calls runs.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};

use stepgate_core::json::strict::{self, Integers};

use crate::envelope::ToolCall;
use crate::flow::{Flow, missing};
use crate::limits::{ANSWER_BYTES_MAX, ARGUMENTS_DEPTH_MAX, CALLS_MAX, TOOL_CALL_ID_BYTES_MAX};
use crate::model::{Completion, Message, ModelError, Offer, Prompt};
use crate::ports::Progress;
use crate::stop::{Code, Stop};
use crate::turn::{Answered, AskedCall, Entry, Turn, TurnState};

use super::s08_reasoner::fail;

pub(crate) enum Round {
    /// The model's final answer, or calls for the caller, are in the context.
    Ended,
    /// The server makes these calls, and the model is asked again.
    ServerCalls(Vec<AskedCall>),
}

/// Continues with the recorded answer, and asks the model if there is none.
pub(crate) async fn run(flow: &mut Flow<'_>) -> Result<Round, Stop> {
    if flow.turn()?.state() == TurnState::Asking {
        ask(flow).await?;
    }
    match flow.turn()?.state() {
        TurnState::Final(text) => {
            flow.context.response_payload = Some(text);
            Ok(Round::Ended)
        }
        TurnState::AwaitingClient(calls) => {
            flow.context.client_tool_calls = calls;
            Ok(Round::Ended)
        }
        TurnState::Calling(calls) => Ok(Round::ServerCalls(calls)),
        TurnState::Failed(result) => Err(Stop::Invoke(result)),
        TurnState::Asking => Err(missing("answer")),
    }
}

async fn ask(flow: &mut Flow<'_>) -> Result<(), Stop> {
    let prompt = flow.context.prompt.as_ref().ok_or_else(|| missing("prompt"))?;
    let bytes: usize = prompt.messages.iter().map(Message::bytes).sum();
    let bytes_max = flow.agent.limits.prompt_bytes_max;
    if bytes > bytes_max {
        let message = format!(
            "the conversation has {bytes} bytes, and a model is told {bytes_max}: begin another one"
        );
        // A retry would be no shorter: the turn ends, so that no caller waits for it.
        return Err(fail(flow, Code::ConversationTooLong.error(message)).await?);
    }
    let answered = match answer(flow, prompt).await {
        Ok(completion) => judge(flow.turn()?, &prompt.offers, completion),
        Err(error) => Err(error),
    };
    match answered {
        Ok(answered) => {
            let message = answered.message();
            flow.append(Entry::Answered(answered)).await?;
            flow.listener.hear(Progress::Answered);
            flow.tell(message);
            Ok(())
        }
        // An invalid answer of the model ends the turn, and is part of it.
        Err(ModelError::Invalid(why)) => {
            Err(fail(flow, Code::ModelOutputInvalid.error(why)).await?)
        }
        // The model gave no answer: the same request, sent again, asks again.
        Err(error @ ModelError::TimedOut) => unanswered(Code::ModelTimedOut, &error),
        Err(error @ ModelError::Unavailable(_)) => unanswered(Code::ModelUnavailable, &error),
        Err(error @ ModelError::Refused(_)) => unanswered(Code::ModelRefused, &error),
    }
}

fn unanswered(code: Code, error: &ModelError) -> Result<(), Stop> {
    Err(code.error(error.to_string()).into())
}

async fn answer(flow: &Flow<'_>, prompt: &Prompt) -> Result<Completion, ModelError> {
    let has_told = AtomicBool::new(false);
    let told = |text: &str| {
        has_told.store(true, Ordering::Relaxed);
        flow.listener.hear(Progress::Text(text.to_owned()));
    };
    let completion = flow.agent.model.complete(prompt, &told).await?;
    // An endpoint may send a whole answer where a stream was requested.
    if let Some(text) = completion.text.as_deref().filter(|_| !has_told.load(Ordering::Relaxed)) {
        told(text);
    }
    Ok(completion)
}

/// The answer, if all of it is valid.
fn judge(turn: &Turn, offers: &[Offer], completion: Completion) -> Result<Answered, ModelError> {
    let Completion { model, text, calls, usage, cut_off } = completion;
    let text = text.filter(|text| !text.trim().is_empty());
    if text.is_none() && calls.is_empty() {
        return invalid("it says nothing and asks for nothing");
    }
    if text.as_ref().is_some_and(|text| text.len() > ANSWER_BYTES_MAX) {
        return invalid(format!("its text is longer than {ANSWER_BYTES_MAX} bytes"));
    }
    if calls.len() > CALLS_MAX {
        return invalid(format!("it asks for more than {CALLS_MAX} calls at once"));
    }
    let earlier = turn.answers().flat_map(|answer| &answer.calls);
    let mut ids: HashSet<String> = earlier.map(|call| call.tool_call_id.clone()).collect();
    let calls = calls.into_iter().map(|call| judge_call(offers, &mut ids, call));
    Ok(Answered { model, text, calls: calls.collect::<Result<_, _>>()?, usage, cut_off })
}

fn judge_call(
    offers: &[Offer],
    ids: &mut HashSet<String>,
    call: ToolCall,
) -> Result<AskedCall, ModelError> {
    let ToolCall { tool_call_id, name, arguments_json } = call;
    let id = shown(&tool_call_id);
    if tool_call_id.trim().is_empty() || tool_call_id.len() > TOOL_CALL_ID_BYTES_MAX {
        return invalid(format!("a call has no id of 1 to {TOOL_CALL_ID_BYTES_MAX} bytes"));
    }
    if !ids.insert(tool_call_id.clone()) {
        return invalid(format!("the id `{id}` of a call was used in this turn before"));
    }
    let Some(offer) = offers.iter().find(|offer| offer.name == name) else {
        let name = shown(&name);
        return invalid(format!("call `{id}` is of the tool `{name}`, which was not offered"));
    };
    let arguments = strict::parse(arguments_json.as_bytes(), ARGUMENTS_DEPTH_MAX, Integers::Any);
    match arguments {
        Ok(arguments) if arguments.is_object() => {}
        Ok(_) => return invalid(format!("the arguments of call `{id}` are not an object")),
        Err(refusal) => {
            return invalid(format!("the arguments of call `{id}` are not strict JSON: {refusal}"));
        }
    }
    Ok(AskedCall { tool_call_id, name, arguments_json, action: offer.action.clone() })
}

fn invalid<T>(why: impl Into<String>) -> Result<T, ModelError> {
    Err(ModelError::Invalid(why.into()))
}

/// The beginning of a model's text, for a message.
fn shown(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(64).collect()
}
