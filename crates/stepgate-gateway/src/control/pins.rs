//! The accepted definitions of tools: the last `tool_accepted` event of each tool, from whichever node wrote it.

use std::collections::BTreeMap;

use stepgate_core::event::EventType;
use stepgate_core::gate::{Fault, Gate};
use stepgate_core::json::Value;
use stepgate_core::ports::Store;
use stepgate_core::system;
use stepgate_core::tool::ToolName;
use stepgate_exec::servers::{Beside, Pin, Servers};
use tokio::sync::{Mutex, MutexGuard};

/// Accepted definitions, by tool.
pub type Pins = BTreeMap<ToolName, Pin>;

/// Position of the last event that was read. A task that accepts a tool holds this lock, so that no other task
/// replaces the newer definition by an older one.
pub(crate) struct Reading(Mutex<u64>);

impl Reading {
    /// Reads all events.
    pub(crate) async fn begin(gate: &Gate) -> Result<(Self, Pins), Fault> {
        let (pins, seen) = accepted_after(&*gate.store, 0).await?;
        Ok((Self(Mutex::new(seen)), pins))
    }

    /// Reads what other nodes have accepted since the last read.
    pub(super) async fn go_on(&self, gate: &Gate, servers: &Servers) -> Result<(), Fault> {
        let mut seen = self.0.lock().await;
        let (pins, last) = accepted_after(&*gate.store, *seen).await?;
        for (name, pin) in pins {
            servers.pin(&name, pin);
        }
        *seen = last;
        Ok(())
    }

    /// Takes the lock: until it is released, no other task changes what is accepted.
    pub(super) async fn hold(&self) -> MutexGuard<'_, u64> {
        self.0.lock().await
    }
}

/// Everything that was accepted, for commands that only read.
pub async fn accepted(store: &dyn Store) -> Result<Pins, Fault> {
    Ok(accepted_after(store, 0).await?.0)
}

/// What was accepted after this position, and the position up to which events were read.
async fn accepted_after(store: &dyn Store, after: u64) -> Result<(Pins, u64), Fault> {
    // Read before the events: events of other nodes up to this position are not read again.
    let looked_at = store.last_position().await?;
    if looked_at <= after {
        return Ok((Pins::new(), after));
    }
    let events = system::events_since(store, &[EventType::ToolAccepted], after).await?;
    let last = events.last().map_or(looked_at, |placed| placed.position.max(looked_at));
    Ok((events.iter().filter_map(|placed| pin(&placed.event.payload)).collect(), last))
}

fn pin(payload: &Value) -> Option<(ToolName, Pin)> {
    let text = |name: &str| payload.get(name).and_then(Value::as_str);
    // Earlier versions did not store the definition.
    let definition = payload.get("definition").filter(|definition| definition.is_object());
    // Earlier versions did not store the digests of the metadata and the instructions either.
    let digest = |name: &str| text(name).and_then(|digest| digest.parse().ok());
    let beside =
        Beside { meta: digest("meta_digest"), instructions: digest("instructions_digest") };
    let pin = Pin::new(digest("definition_digest")?, definition.cloned(), beside);
    Some((ToolName::parse(text("tool")?).ok()?, pin))
}
