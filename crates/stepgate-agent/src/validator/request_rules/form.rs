//! The parts of a request: key, tools, artifacts, images. Each invalid part is reported.

use std::collections::HashSet;

use super::named_turn;
use crate::context::Context;
use crate::envelope::{
    ClientTool, ClipBoardImage, ContextType, Envelope, InputArtifact, is_present,
};
use crate::invoke::{InvokeError, InvokeResult};
use crate::limits::{
    ARTIFACT_NAME_BYTES_MAX, ARTIFACTS_MAX, CLIENT_TOOLS_MAX, CORRELATION_ID_BYTES_MAX,
    IMAGE_BYTES_MAX, IMAGE_TYPES, IMAGES_MAX, TOOL_NAME_BYTES_MAX,
};
use crate::stop::Code;

pub(super) fn check(context: &Context, found: &mut InvokeResult) {
    let envelope = context.envelope();
    if context.correlation_id.len() > CORRELATION_ID_BYTES_MAX {
        let message = format!("a key has at most {CORRELATION_ID_BYTES_MAX} bytes");
        found.errors.push(invalid("CorrelationId", message));
    }
    tools(context, found);
    artifacts(envelope, found);
    images(envelope, found);
}

fn invalid(field: &str, message: impl Into<String>) -> InvokeError {
    Code::RequestInvalid.error(message).with("field", field)
}

fn tools(context: &Context, found: &mut InvokeResult) {
    const FIELD: &str = "Envelope.Tools";
    let own = &context.envelope().tools;
    if own.len() > CLIENT_TOOLS_MAX {
        let message = format!("a request declares at most {CLIENT_TOOLS_MAX} tools");
        return found.errors.push(invalid(FIELD, message));
    }
    let mut names = HashSet::new();
    for ClientTool { name, parameters, .. } in own {
        let problems = [
            (is_tool_name(name), "a tool's name is 1 to 64 letters, digits, `_` or `-`"),
            (parameters.is_object(), "a tool's parameters are a JSON Schema: an object"),
            (names.insert(name), "a tool is declared once"),
        ];
        for (_, message) in problems.into_iter().filter(|(holds, _)| !holds) {
            found.errors.push(invalid(FIELD, message).with("name", name));
        }
    }
    let is_continuation = context.context_type == Some(ContextType::ClientToolCallContinuation);
    // Tools that another principal has declared are not revealed.
    let named = named_turn(&context.known).ok().filter(|_| is_continuation);
    for tool in context.declared_tools(named) {
        if context.known.server_tools.contains(&tool.name) {
            let message = "a tool of this name is the server's: give yours another one";
            found.errors.push(invalid(FIELD, message).with("name", &tool.name));
        }
    }
}

/// Whether models accept it as a tool's name.
fn is_tool_name(name: &str) -> bool {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    !name.is_empty() && name.len() <= TOOL_NAME_BYTES_MAX && name.chars().all(is_allowed)
}

fn artifacts(envelope: &Envelope, found: &mut InvokeResult) {
    const FIELD: &str = "Envelope.InputArtifacts";
    if envelope.input_artifacts.len() > ARTIFACTS_MAX {
        let message = format!("a request has at most {ARTIFACTS_MAX} artifacts");
        found.errors.push(invalid(FIELD, message));
    }
    for (place, InputArtifact { name, content }) in envelope.input_artifacts.iter().enumerate() {
        if !is_artifact_name(name) {
            let message = format!(
                "an artifact's name is 1 to {ARTIFACT_NAME_BYTES_MAX} bytes without control characters"
            );
            found.errors.push(invalid(FIELD, message).with("place", place));
        }
        if !is_present(Some(content)) {
            found.errors.push(invalid(FIELD, "an artifact must have content").with("place", place));
        }
    }
}

/// One line: the name is printed above the content in the model's prompt.
fn is_artifact_name(name: &str) -> bool {
    is_present(Some(name))
        && name.len() <= ARTIFACT_NAME_BYTES_MAX
        && !name.chars().any(char::is_control)
}

fn images(envelope: &Envelope, found: &mut InvokeResult) {
    const FIELD: &str = "Envelope.ClipBoardImages";
    if envelope.clip_board_images.len() > IMAGES_MAX {
        found.errors.push(invalid(FIELD, format!("a request has at most {IMAGES_MAX} images")));
    }
    for (place, ClipBoardImage { mime_type, data }) in envelope.clip_board_images.iter().enumerate()
    {
        if !IMAGE_TYPES.contains(&mime_type.as_str()) {
            let message = format!("an image's mimeType is one of {}", IMAGE_TYPES.join(", "));
            found.errors.push(invalid(FIELD, message).with("place", place));
        }
        let message = match decoded_bytes(data) {
            Some(1..=IMAGE_BYTES_MAX) => continue,
            Some(_) => format!("an image has 1 to {IMAGE_BYTES_MAX} bytes"),
            None => "an image's data is base64 (RFC 4648, section 4) with its padding".to_owned(),
        };
        found.errors.push(invalid(FIELD, message).with("place", place));
    }
}

/// The decoded length of a base64 text; none where it is not base64.
fn decoded_bytes(text: &str) -> Option<usize> {
    let unpadded = text.strip_suffix("==").or_else(|| text.strip_suffix('=')).unwrap_or(text);
    let is_digit = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    let is_base64 = text.len().is_multiple_of(4)
        && text.len() - unpadded.len() == (4 - unpadded.len() % 4) % 4
        && unpadded.bytes().all(is_digit);
    is_base64.then(|| unpadded.len() / 4 * 3 + (unpadded.len() % 4).saturating_sub(1))
}
