//! PromptContentProviderInitializer: builds the model's prompt, and the list of tools that it may ask for.

use std::collections::HashSet;

use crate::envelope::Envelope;
use crate::flow::{Flow, missing};
use crate::model::{Message, Offer, Prompt};
use crate::stop::Stop;
use crate::turn::{AskedCall, Entry, Turn};
use crate::turns::{CallResponses, answer_to, told_of};

pub(crate) async fn run(flow: &mut Flow<'_>) -> Result<(), Stop> {
    let context = &flow.context;
    let agent = context.agent_context.as_ref().ok_or_else(|| missing("agent"))?;
    let conversation = context.conversation_context.as_ref();
    let conversation = conversation.ok_or_else(|| missing("conversation"))?;
    let mut messages = vec![Message::System(agent.system_prompt.clone())];
    let turns = conversation.earlier.iter().chain([flow.turn()?]);
    let responses = CallResponses::of(&flow.agent.gate, turns).await?;
    for turn in &conversation.earlier {
        messages.extend(whole(told(flow, turn, &responses).await?));
    }
    messages.extend(told(flow, flow.turn()?, &responses).await?);
    // A turn that is over needs no offers, whatever is offered now.
    let offers = if flow.turn()?.is_open() { offers(flow)? } else { Vec::new() };
    flow.context.prompt = Some(Prompt { messages, offers });
    Ok(())
}

/// A turn as messages, as far as it has come.
async fn told(
    flow: &Flow<'_>,
    turn: &Turn,
    responses: &CallResponses,
) -> Result<Vec<Message>, Stop> {
    let mut messages = Vec::new();
    for entry in &turn.entries {
        match entry {
            Entry::Opened(opened) => messages.push(said(&opened.envelope)),
            Entry::Answered(answered) => messages.push(answered.message()),
            Entry::ToolEnded(ended) => {
                let tool_call_id = ended.tool_call_id.clone();
                let content = told_of(&flow.agent.gate, responses.response_to(ended)?).await?;
                messages.push(Message::Tool { tool_call_id, content });
            }
            Entry::Continued(continued) => {
                for result in &continued.envelope.tool_results {
                    let tool_call_id = result.tool_call_id.clone();
                    let content = result.result_json.clone().unwrap_or_default();
                    messages.push(Message::Tool { tool_call_id, content });
                }
                if continued.envelope.has_input() {
                    messages.push(said(&continued.envelope));
                }
            }
            Entry::Failed(_) => messages.extend(begun(flow, turn).await?),
        }
    }
    Ok(messages)
}

/// The results of calls that were already at the gate when their turn was ended. The turn itself does not
/// have them, and without them the model would make the calls again.
async fn begun(flow: &Flow<'_>, turn: &Turn) -> Result<Vec<Message>, Stop> {
    let gate = &flow.agent.gate;
    let mut messages = Vec::new();
    let asked = turn.last_answer().map_or(&[][..], |answer| &answer.calls);
    let is_unknown =
        |call: &&AskedCall| !call.is_clients() && turn.ended(&call.tool_call_id).is_none();
    for AskedCall { tool_call_id, .. } in asked.iter().filter(is_unknown) {
        let answer = answer_to(gate, &flow.principal_id, turn.id, tool_call_id).await?;
        let Some(answer) = answer else { continue };
        let content = told_of(gate, &answer).await?;
        messages.push(Message::Tool { tool_call_id: tool_call_id.clone(), content });
    }
    Ok(messages)
}

/// A failed turn may end with calls that have no result, and models do not accept those. Calls with a result
/// stay: otherwise the model would make them again.
fn whole(mut messages: Vec<Message>) -> Vec<Message> {
    let answered: HashSet<String> = messages.iter().filter_map(answers).collect();
    let asked = messages.iter_mut().enumerate().rev().find_map(|(place, message)| match message {
        Message::Assistant { calls, .. } => (!calls.is_empty()).then_some((place, calls)),
        Message::System(_) | Message::User { .. } | Message::Tool { .. } => None,
    });
    let Some((place, calls)) = asked else { return messages };
    calls.retain(|call| answered.contains(&call.tool_call_id));
    if calls.is_empty() {
        messages.truncate(place);
    }
    messages
}

/// The call whose result a message is.
fn answers(message: &Message) -> Option<String> {
    match message {
        Message::Tool { tool_call_id, .. } => Some(tool_call_id.clone()),
        Message::System(_) | Message::User { .. } | Message::Assistant { .. } => None,
    }
}

/// The user's message, with the attached texts.
fn said(envelope: &Envelope) -> Message {
    let mut text = envelope.instructions.clone().unwrap_or_default();
    for artifact in &envelope.input_artifacts {
        if !text.is_empty() {
            text.push_str("\n\n");
        }
        text.push_str(&format!("[{}]\n{}", artifact.name, artifact.content));
    }
    Message::User { text, images: envelope.clip_board_images.clone() }
}

/// The tools of the gate, and those that the caller runs.
fn offers(flow: &Flow<'_>) -> Result<Vec<Offer>, Stop> {
    let mut offers = flow.agent.tools.offered(&flow.principal_id);
    let declared = flow.context.declared_tools(Some(flow.turn()?));
    let clients = declared.iter().map(|tool| Offer {
        name: tool.name.clone(),
        description: tool.description.clone(),
        parameters: tool.parameters.clone(),
        action: None,
    });
    offers.extend(clients);
    Ok(offers)
}
