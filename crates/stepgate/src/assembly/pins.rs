//! The definitions of tools that operators know: the last `tool_accepted` event of each tool.

use std::collections::BTreeMap;

use stepgate_core::digest::Digest;
use stepgate_core::event::EventType;
use stepgate_core::gate::Gate;
use stepgate_core::json::Value;
use stepgate_core::ports::{EventQuery, StoreError};
use stepgate_core::tool::ToolName;

/// Accepted definitions, by tool.
pub(crate) type Pins = BTreeMap<ToolName, Digest>;

/// Events that are read at once.
const PAGE: usize = 1000;

/// Reads them from the system session.
pub(crate) async fn load(gate: &Gate) -> Result<Pins, StoreError> {
    let mut pins = Pins::new();
    let mut after = 0;
    loop {
        let query = EventQuery {
            after,
            event_types: vec![EventType::ToolAccepted],
            loose_only: true,
            limit: PAGE,
            ..EventQuery::default()
        };
        let page = gate.store.events(query).await?;
        for placed in &page {
            let text = |name: &str| placed.event.payload.get(name).and_then(Value::as_str);
            let tool = text("tool").and_then(|name| ToolName::parse(name).ok());
            let digest = text("definition_digest").and_then(|digest| digest.parse().ok());
            if let (Some(tool), Some(digest)) = (tool, digest) {
                pins.insert(tool, digest);
            }
        }
        match page.last() {
            Some(newest) => after = newest.position,
            None => return Ok(pins),
        }
    }
}
