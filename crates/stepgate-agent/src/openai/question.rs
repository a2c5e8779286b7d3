//! The request to the endpoint.

use serde_json::{Value, json};

use crate::envelope::{ClipBoardImage, ToolCall};
use crate::model::{Message, Offer, Prompt};

pub(super) fn body(model: &str, prompt: &Prompt) -> Vec<u8> {
    let messages: Vec<Value> = prompt.messages.iter().map(message).collect();
    let mut body = json!({
        "model": model,
        "messages": messages,
        "stream": true,
        "stream_options": { "include_usage": true },
    });
    if let (Value::Object(members), false) = (&mut body, prompt.offers.is_empty()) {
        let tools: Vec<Value> = prompt.offers.iter().map(offer).collect();
        members.insert("tools".into(), tools.into());
    }
    body.to_string().into_bytes()
}

fn message(message: &Message) -> Value {
    match message {
        Message::System(text) => json!({ "role": "system", "content": text }),
        Message::User { text, images } if images.is_empty() => {
            json!({ "role": "user", "content": text })
        }
        Message::User { text, images } => {
            let mut parts = vec![json!({ "type": "text", "text": text })];
            parts.extend(images.iter().map(image));
            json!({ "role": "user", "content": parts })
        }
        Message::Assistant { text, calls } if calls.is_empty() => {
            json!({ "role": "assistant", "content": text })
        }
        Message::Assistant { text, calls } => {
            let calls: Vec<Value> = calls.iter().map(call).collect();
            json!({ "role": "assistant", "content": text, "tool_calls": calls })
        }
        Message::Tool { tool_call_id, content } => {
            json!({ "role": "tool", "tool_call_id": tool_call_id, "content": content })
        }
    }
}

fn image(image: &ClipBoardImage) -> Value {
    let url = format!("data:{};base64,{}", image.mime_type, image.data);
    json!({ "type": "image_url", "image_url": { "url": url } })
}

fn call(call: &ToolCall) -> Value {
    json!({
        "id": call.tool_call_id,
        "type": "function",
        "function": { "name": call.name, "arguments": call.arguments_json },
    })
}

fn offer(offer: &Offer) -> Value {
    let mut function = json!({ "name": offer.name, "parameters": offer.parameters });
    if let (Value::Object(members), Some(description)) = (&mut function, &offer.description) {
        members.insert("description".into(), description.as_str().into());
    }
    json!({ "type": "function", "function": function })
}
