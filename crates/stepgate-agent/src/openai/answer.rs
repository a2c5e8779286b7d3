//! An answer that comes as a whole. Unknown members are ignored; the members that are used must have the
//! right type.

use serde_json::{Map, Value};
use stepgate_core::json::strict::{self, Integers};

use crate::envelope::ToolCall;
use crate::model::{Completion, ModelError};
use crate::response::Usage;

const DEPTH_MAX: usize = 64;

pub(super) fn read(body: &[u8]) -> Result<Completion, ModelError> {
    let root = object(body)?;
    let choice = only_choice(&root)?;
    let message = choice.get("message").and_then(Value::as_object);
    let message = message.ok_or_else(|| invalid("its choice has no message"))?;
    let completion = Completion {
        model: text(&root, "model")?.unwrap_or_default(),
        text: text(message, "content")?.or(text(message, "refusal")?),
        calls: calls(message)?,
        usage: usage(&root)?,
        cut_off: cut_off(text(choice, "finish_reason")?.as_deref()),
    };
    whole(completion)
}

/// One JSON object, read strictly.
pub(super) fn object(body: &[u8]) -> Result<Map<String, Value>, ModelError> {
    match strict::parse(body, DEPTH_MAX, Integers::Any) {
        Ok(Value::Object(members)) => Ok(members),
        Ok(_) => Err(invalid("it is not a JSON object")),
        Err(refusal) => Err(invalid(format!("it is not strict JSON: {refusal}"))),
    }
}

/// One answer was requested, and no other number is accepted.
fn only_choice(root: &Map<String, Value>) -> Result<&Map<String, Value>, ModelError> {
    let choices = root.get("choices").and_then(Value::as_array);
    match choices.map(Vec::as_slice) {
        Some([Value::Object(choice)]) => Ok(choice),
        Some(_) | None => Err(invalid("it does not have exactly one choice")),
    }
}

fn calls(message: &Map<String, Value>) -> Result<Vec<ToolCall>, ModelError> {
    if message.get("function_call").is_some_and(|call| !call.is_null()) {
        return Err(invalid("it has a call of the old kind, `function_call`"));
    }
    tool_calls(message)?.iter().map(call).collect()
}

/// The list of calls, or of their pieces; empty where there is none.
pub(super) fn tool_calls(message: &Map<String, Value>) -> Result<&[Value], ModelError> {
    match message.get("tool_calls") {
        None | Some(Value::Null) => Ok(&[]),
        Some(Value::Array(calls)) => Ok(calls),
        Some(_) => Err(invalid("its `tool_calls` are not a list")),
    }
}

fn call(call: &Value) -> Result<ToolCall, ModelError> {
    let call = call.as_object().ok_or_else(|| invalid("one of its calls is not an object"))?;
    let function = call.get("function").and_then(Value::as_object);
    let function = function.ok_or_else(|| invalid("one of its calls is of no function"))?;
    let needed = |members: &Map<String, Value>, name: &str| {
        text(members, name)?.ok_or_else(|| invalid(format!("one of its calls has no `{name}`")))
    };
    Ok(ToolCall {
        tool_call_id: needed(call, "id")?,
        name: needed(function, "name")?,
        arguments_json: needed(function, "arguments")?,
    })
}

/// A text, or none; any other type is refused.
pub(super) fn text(members: &Map<String, Value>, name: &str) -> Result<Option<String>, ModelError> {
    match members.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(_) => Err(invalid(format!("its `{name}` is not a text"))),
    }
}

/// The tokens used, if the answer states them.
pub(super) fn usage(root: &Map<String, Value>) -> Result<Option<Usage>, ModelError> {
    let usage = root.get("usage").filter(|usage| !usage.is_null());
    let Some(usage) = usage else { return Ok(None) };
    let count = |name: &str| usage.get(name).and_then(Value::as_u64);
    match (count("prompt_tokens"), count("completion_tokens")) {
        (Some(prompt_tokens), Some(completion_tokens)) => {
            Ok(Some(Usage { prompt_tokens, completion_tokens }))
        }
        (_, _) => Err(invalid("its `usage` does not count tokens")),
    }
}

/// Why an answer is incomplete.
pub(super) fn cut_off(finish_reason: Option<&str>) -> Option<String> {
    match finish_reason {
        Some("length") => Some("the answer was cut off at the model's limit".to_owned()),
        Some("content_filter") => Some("the answer was cut off by the model's filter".to_owned()),
        Some(_) | None => None,
    }
}

/// Calls in an incomplete answer may not be the calls that the model meant.
pub(super) fn whole(completion: Completion) -> Result<Completion, ModelError> {
    match (&completion.cut_off, completion.calls.is_empty()) {
        (Some(_), false) => Err(invalid("it was cut off in the middle of its calls")),
        (Some(_), true) | (None, _) => Ok(completion),
    }
}

pub(super) fn invalid(why: impl Into<String>) -> ModelError {
    ModelError::Invalid(why.into())
}
