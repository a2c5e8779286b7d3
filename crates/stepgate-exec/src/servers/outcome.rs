//! How a server's answer to a call is judged.

use stepgate_core::digest::Digest;
use stepgate_core::failure::ExecutionFailure;
use stepgate_core::json::{Map, Value};
use stepgate_core::ports::{Effect, Failed, Said};

use super::mcp::ServerAnswer;
use super::schema::Output;
use super::spec::DETAIL_BYTES_MAX;

pub(super) struct Outcome {
    pub(super) effect: Effect,
    /// Whether the server answered: then the breaker counts no failure of the connection.
    pub(super) is_answered: bool,
}

/// Judges an answer that came in time.
pub(super) fn of(
    answer: ServerAnswer,
    output: Option<&Output>,
    output_bytes_max: usize,
) -> Outcome {
    let failed = |failure, detail: String, said, in_doubt| {
        Effect::Failed(Failed { failure, detail: Some(shortened(&detail)), said, in_doubt })
    };
    let (effect, is_answered) = match answer {
        ServerAnswer::Result(result) => (of_result(result, output, output_bytes_max), true),
        ServerAnswer::Error(why, _) => {
            let result = error_result(&why);
            let is_kept = result.len() <= output_bytes_max;
            let said = if is_kept { Said::Error(result) } else { Said::Nothing };
            (failed(ExecutionFailure::ToolFailed, why, said, false), true)
        }
        ServerAnswer::Unreadable(why, digest) => {
            let said = digest.map_or(Said::Nothing, Said::Unusable);
            (failed(ExecutionFailure::OutputInvalid, why, said, true), true)
        }
        ServerAnswer::NotSent(why) => {
            (failed(ExecutionFailure::Unavailable, why, Said::Nothing, false), false)
        }
        ServerAnswer::Lost(why) => {
            (failed(ExecutionFailure::ToolFailed, why, Said::Nothing, true), false)
        }
    };
    Outcome { effect, is_answered }
}

fn of_result(
    mut result: Map<String, Value>,
    output: Option<&Output>,
    output_bytes_max: usize,
) -> Effect {
    let is_error = take_wrapping(&mut result);
    // The numbers stay as they were sent: RFC 8785 would round integers of 64 bits.
    let text = Value::Object(result.clone()).to_string();
    let invalid = |why: &str| {
        Effect::Failed(Failed {
            failure: ExecutionFailure::OutputInvalid,
            detail: Some(shortened(why)),
            said: Said::Unusable(Digest::of_bytes(text.as_bytes())),
            in_doubt: true,
        })
    };
    match is_error {
        Some(Value::Bool(true)) => {
            // The tool reports a failure, so there is no doubt, whatever else the result says. A result that
            // is too long, or has no valid content, is not kept: its reader must be able to parse it.
            let is_kept = text.len() <= output_bytes_max && has_content(&result);
            return Effect::Failed(Failed {
                detail: first_text(&result).map(shortened),
                said: if is_kept { Said::Error(text) } else { Said::Nothing },
                ..ExecutionFailure::ToolFailed.into()
            });
        }
        Some(Value::Bool(false)) | None => {}
        Some(_) => return invalid("isError is neither true nor false"),
    }
    if text.len() > output_bytes_max {
        let why = format!("the result is longer than {output_bytes_max} bytes (output_bytes_max)");
        return invalid(&why);
    }
    if !has_content(&result) {
        return invalid("the result has no list of content");
    }
    match (output, result.get("structuredContent")) {
        (None, _) => Effect::Done(Some(text)),
        (Some(_), None) => {
            invalid("the result has no structuredContent, which its schema asks for")
        }
        (Some(output), Some(structured)) => match output.check(structured) {
            Ok(()) => Effect::Done(Some(text)),
            Err(why) => invalid(&format!("the structuredContent breaks its schema: {why}")),
        },
    }
}

/// Removes the members that are for programs and not for agents, and returns `isError`. The order of the
/// rest stays.
fn take_wrapping(result: &mut Map<String, Value>) -> Option<Value> {
    let is_error = result.get("isError").cloned();
    result.retain(|name, value| match name.as_str() {
        "isError" | "_meta" => false,
        // Newer servers add this member to every complete result.
        "resultType" => value != "complete",
        _ => true,
    });
    is_error
}

/// What a late result says: whether the call was done, and the digest of the result.
pub(super) fn of_late(answer: ServerAnswer) -> Option<(bool, Digest)> {
    match answer {
        ServerAnswer::Result(mut result) => {
            let is_error =
                take_wrapping(&mut result).is_some_and(|said| said != Value::Bool(false));
            let text = Value::Object(result).to_string();
            Some((!is_error, Digest::of_bytes(text.as_bytes())))
        }
        ServerAnswer::Error(_, digest) => Some((false, digest)),
        ServerAnswer::Unreadable(_, digest) => digest.map(|digest| (false, digest)),
        ServerAnswer::NotSent(_) | ServerAnswer::Lost(_) => None,
    }
}

/// A server's JSON-RPC error in the form of a result, so that the caller reads the server's own words,
/// marked as the server's.
fn error_result(said: &str) -> String {
    let printable: String =
        shortened(said).chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let text = format!("The tool server answered with an error: {printable}");
    serde_json::json!({ "content": [{ "type": "text", "text": text }] }).to_string()
}

fn has_content(result: &Map<String, Value>) -> bool {
    let is_block = |block: &Value| block.get("type").is_some_and(Value::is_string);
    let content = result.get("content").and_then(Value::as_array);
    content.is_some_and(|blocks| blocks.iter().all(is_block))
}

fn first_text(result: &Map<String, Value>) -> Option<&str> {
    let blocks = result.get("content")?.as_array()?;
    blocks.iter().find_map(|block| block.get("text")?.as_str())
}

/// A server's text, shortened for a record's detail.
pub(super) fn shortened(text: &str) -> String {
    shortened_to(text, DETAIL_BYTES_MAX)
}

/// At most this many bytes of a server's text, in whole characters.
pub(super) fn shortened_to(text: &str, bytes_max: usize) -> String {
    text.get(..text.floor_char_boundary(bytes_max)).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests;
