//! The definitions of tools that operators know: the last `tool_accepted` event of each tool.

use std::collections::BTreeMap;

use stepgate_core::digest::Digest;
use stepgate_core::event::EventType;
use stepgate_core::gate::{Fault, Gate};
use stepgate_core::json::Value;
use stepgate_core::tool::ToolName;

/// Accepted definitions, by tool.
pub(crate) type Pins = BTreeMap<ToolName, Digest>;

/// Reads them from the system session.
pub(crate) async fn load(gate: &Gate) -> Result<Pins, Fault> {
    let noted = gate.noted(&[EventType::ToolAccepted]).await?;
    let pin = |payload: &Value| {
        let text = |name: &str| payload.get(name).and_then(Value::as_str);
        Some((ToolName::parse(text("tool")?).ok()?, text("definition_digest")?.parse().ok()?))
    };
    Ok(noted.iter().filter_map(|event| pin(&event.payload)).collect())
}
