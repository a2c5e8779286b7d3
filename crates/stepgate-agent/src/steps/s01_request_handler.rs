//! RequestHandler: what came becomes a context, and its type follows from what is there.

use std::collections::HashSet;

use crate::context::{ClientTool, ContextType, Envelope};
use crate::limits::{CLIENT_TOOLS_MAX, CORRELATION_ID_BYTES_MAX, TOOL_NAME_BYTES_MAX};
use crate::pipeline::Flow;
use crate::stop::{Code, Stop};

pub(crate) fn run(flow: &mut Flow<'_>) -> Result<(), Stop> {
    let context = &mut flow.context;
    // A mixture that is of no type stays without one, and the rules say so.
    let context_type = ContextType::of(context.envelope());
    context.context_type = context_type.map_or("", ContextType::as_str).to_owned();
    context.time_stamp = flow.agent.gate.world.now().to_string();
    context.correlation_id = flow.correlation_id.clone();
    within_limits(&flow.correlation_id, context.envelope())
}

/// What cannot be is refused before anything is durable.
fn within_limits(correlation_id: &str, envelope: &Envelope) -> Result<(), Stop> {
    let invalid = |message: String| Err(Code::RequestInvalid.stop(message));
    if correlation_id.len() > CORRELATION_ID_BYTES_MAX {
        return invalid(format!("a key has at most {CORRELATION_ID_BYTES_MAX} bytes"));
    }
    if envelope.tools.len() > CLIENT_TOOLS_MAX {
        return invalid(format!("a request declares at most {CLIENT_TOOLS_MAX} tools"));
    }
    let mut names = HashSet::new();
    for ClientTool { name, parameters, .. } in &envelope.tools {
        if !is_tool_name(name) {
            let message = "a tool's name is 1 to 64 letters, digits, `_` or `-`";
            return Err(Code::RequestInvalid.error(message).with("name", name).into());
        }
        if !parameters.is_object() {
            let message = "a tool's parameters are a JSON Schema: an object";
            return Err(Code::RequestInvalid.error(message).with("name", name).into());
        }
        if !names.insert(name) {
            let message = "a tool is declared once";
            return Err(Code::RequestInvalid.error(message).with("name", name).into());
        }
    }
    Ok(())
}

/// Whether models take it as a tool's name.
pub(crate) fn is_tool_name(name: &str) -> bool {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    !name.is_empty() && name.len() <= TOOL_NAME_BYTES_MAX && name.chars().all(is_allowed)
}
