//! The system session: it chains the openings of all others, and what operators do.

use crate::event::EventType;
use crate::ids::PrincipalId;
use crate::ports::{EventQuery, PlacedEvent, Store, StoreError};

/// Events that are read at once.
const PAGE: usize = 1000;

/// The events of these types in the system session after a position, oldest first.
pub async fn events_since(
    store: &dyn Store,
    event_types: &[EventType],
    position: u64,
) -> Result<Vec<PlacedEvent>, StoreError> {
    let mut query = EventQuery {
        after: position,
        back_from: None,
        principal_id: Some(PrincipalId::system()),
        event_types: event_types.to_vec(),
        loose_only: true,
        limit: PAGE,
    };
    let mut found = Vec::new();
    loop {
        let page = store.events(query.clone()).await?;
        let Some(last) = page.last() else { return Ok(found) };
        query.after = last.position;
        found.extend(page);
    }
}
