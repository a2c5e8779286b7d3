//! Checks that the bytes are a JSON-RPC message, strictly and before the SDK sees them. The SDK would misread some
//! malformed messages, or answer them with an error that is not JSON-RPC.

use serde::de::IgnoredAny;
use serde_json::Value;
use stepgate_core::json::strict::{self, Integers, Refusal};

/// Deepest nesting of a message. The gate has its own limit for a proposal's arguments.
pub(super) const DEPTH_MAX: usize = 128;
/// Longest method name: an error repeats it.
const METHOD_BYTES_MAX: usize = 128;

/// JSON-RPC error codes for messages that are malformed.
pub(super) const PARSE_ERROR: i32 = -32700;
pub(super) const INVALID_REQUEST: i32 = -32600;
pub(super) const INVALID_PARAMS: i32 = -32602;

#[derive(Debug, PartialEq)]
pub(super) struct Message {
    pub(super) value: Value,
    /// The arguments of a call as the client spelled them, if parsing changed a number. The gate refuses them, and
    /// must see the original text for that.
    pub(super) spelled: Option<RawArguments>,
}

/// Arguments as the client spelled them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RawArguments(pub(super) String);

/// What is wrong with a message, and its id if that could be read.
#[derive(Debug, PartialEq)]
pub(super) struct Malformed {
    pub(super) id: Value,
    pub(super) code: i32,
    pub(super) why: String,
}

pub(super) fn read(bytes: &[u8]) -> Result<Message, Malformed> {
    let (value, is_exact) = match strict::parse(bytes, DEPTH_MAX, Integers::Exact) {
        Ok(value) => (value, true),
        Err(Refusal::NumberRange) => {
            let value = strict::parse(bytes, DEPTH_MAX, Integers::Any).map_err(not_strict)?;
            (value, false)
        }
        Err(why) => return Err(not_strict(why)),
    };
    check(&value)?;
    let spelled = if is_exact { None } else { spelled(bytes) };
    Ok(Message { value, spelled })
}

fn not_strict(why: Refusal) -> Malformed {
    Malformed { id: Value::Null, code: PARSE_ERROR, why: format!("not strict JSON: {why}") }
}

/// The rules of JSON-RPC, and those for the parameters of `tools/call`.
fn check(message: &Value) -> Result<(), Malformed> {
    let id = message.get("id").filter(|id| is_id(id)).cloned().unwrap_or_default();
    let wrong = |code, why: &str| Err(Malformed { id: id.clone(), code, why: why.to_owned() });
    // Version 2025-03-26 has batches. Each call has its own wait, key and delivery, so batches are refused.
    if message.is_array() {
        return wrong(INVALID_REQUEST, "batches are not taken: send each message by itself");
    }
    if !message.is_object() {
        return wrong(INVALID_REQUEST, "a message is one JSON object");
    }
    if message.get("jsonrpc").is_none_or(|version| version != "2.0") {
        return wrong(INVALID_REQUEST, "`jsonrpc` is \"2.0\"");
    }
    if message.get("id").is_some_and(|id| !is_id(id)) {
        return wrong(INVALID_REQUEST, "an id is a text or a whole number");
    }
    let Some(method) = message.get("method") else {
        let is_answer = message.get("result").is_some() != message.get("error").is_some();
        return match is_answer && message.get("id").is_some() {
            true => Ok(()),
            false => wrong(INVALID_REQUEST, "a message has a method, or is an answer with an id"),
        };
    };
    if method.as_str().is_none_or(|name| name.len() > METHOD_BYTES_MAX) {
        let why = format!("a method is a text of at most {METHOD_BYTES_MAX} bytes");
        return wrong(INVALID_REQUEST, &why);
    }
    let params = message.get("params");
    if params.is_some_and(|params| !params.is_object()) {
        return wrong(INVALID_PARAMS, "`params` is an object");
    }
    match wrong_call(params.unwrap_or(&Value::Null)) {
        Some(why) if method == "tools/call" => wrong(INVALID_PARAMS, why),
        Some(_) | None => Ok(()),
    }
}

/// What the SDK accepts as an id. A number with a fraction part is refused: the SDK would not tell 1.0 from 1.
fn is_id(id: &Value) -> bool {
    id.is_string() || id.is_i64()
}

fn wrong_call(params: &Value) -> Option<&'static str> {
    let is = |name: &str, is_right: fn(&Value) -> bool| {
        params.get(name).is_none_or(|value| value.is_null() || is_right(value))
    };
    if !params.get("name").is_some_and(Value::is_string) {
        Some("`name` is the name of a tool")
    } else if !is("arguments", Value::is_object) {
        Some("`arguments` is an object")
    } else if !is("_meta", Value::is_object) {
        Some("`_meta` is an object")
    } else if !is("requestState", Value::is_string) {
        Some("`requestState` is a text")
    } else {
        None
    }
}

/// The arguments of a call, if a number in them cannot be represented exactly.
fn spelled(bytes: &[u8]) -> Option<RawArguments> {
    let text = std::str::from_utf8(bytes).ok()?;
    let arguments = member(member(text, "params")?, "arguments")?;
    let is_exact = strict::parse(arguments.as_bytes(), DEPTH_MAX, Integers::Exact).is_ok();
    (!is_exact).then(|| RawArguments(arguments.to_owned()))
}

/// The text of a member, in the text of an object that was already validated.
fn member<'a>(object: &'a str, name: &str) -> Option<&'a str> {
    let mut rest = object.trim_start().strip_prefix('{')?;
    loop {
        let (key, after) = first_value(rest)?;
        let (value, after) = first_value(after.trim_start().strip_prefix(':')?)?;
        if serde_json::from_str::<String>(key).is_ok_and(|key| key == name) {
            return Some(value);
        }
        rest = after.trim_start().strip_prefix(',')?;
    }
}

/// The first JSON value of a text, and the rest.
fn first_value(text: &str) -> Option<(&str, &str)> {
    let text = text.trim_start();
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<IgnoredAny>();
    values.next()?.ok()?;
    text.split_at_checked(values.byte_offset())
}

#[cfg(test)]
mod tests;
