//! Detects a store that went back in time: an old backup restored under nodes that have seen newer events. Answers
//! given since that backup are not in it, and going on would do their work again.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use stepgate_core::ids::ArtifactId;
use stepgate_core::ports::{EventQuery, Store, StoreError};
use tracing::error;

use super::{Service, wait_until_set};

/// How often to poll for the newest event.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The file with the id of the newest event that this node has seen.
const LAST_EVENT: &str = "last_event";

/// Remembers the newest event, and ends the process if the store no longer has it.
pub(super) async fn keep_looking(service: Arc<Service>) {
    // A store that is not shared is held by this process and cannot be replaced under it.
    if service.gate.store.node_id().is_none() {
        return;
    }
    let mut leaving = service.leaving();
    let file = service.control.as_ref().map(|control| file_in(&control.root));
    let mut seen: Option<ArtifactId> = None;
    loop {
        tokio::select! {
            () = tokio::time::sleep(LOOK_EVERY) => {}
            () = wait_until_set(&mut leaving) => return,
        }
        // If the store does not answer, nothing is known about its content: try again.
        let Ok(newest) = look(&*service.gate.store, seen).await else { continue };
        match newest {
            Look::Gone(event_id) => {
                error!("fault: {}", went_back(event_id));
                service.broken.send_replace(true);
                return;
            }
            Look::Newest(newest) if newest != seen => {
                seen = newest;
                if let (Some(file), Some(event_id)) = (&file, newest) {
                    // On failure the next new event writes it again. Until then a restart detects less.
                    let _written = fs::write(file, format!("{event_id}\n"));
                }
            }
            Look::Newest(_) => {}
        }
    }
}

enum Look {
    /// The newest event, if any.
    Newest(Option<ArtifactId>),
    /// This event was in the store before, and is missing now.
    Gone(ArtifactId),
}

async fn look(store: &dyn Store, seen: Option<ArtifactId>) -> Result<Look, StoreError> {
    if let Some(event_id) = seen
        && store.event(event_id).await?.is_none()
    {
        return Ok(Look::Gone(event_id));
    }
    let after = store.last_position().await?.saturating_sub(1);
    let newest = store.events(EventQuery { after, limit: 1, ..EventQuery::default() }).await?;
    Ok(Look::Newest(newest.first().map(|placed| placed.event.event_id).or(seen)))
}

/// Refuses a store that lacks an event that this node has seen.
pub(crate) async fn refuse(store: &dyn Store, root: &Path) -> anyhow::Result<()> {
    let file = file_in(root);
    let Ok(text) = fs::read_to_string(&file) else { return Ok(()) };
    // A crash cut the file off: it proves nothing.
    let Ok(event_id) = text.trim().parse::<ArtifactId>() else { return Ok(()) };
    let found = store.event(event_id).await.context("cannot ask for the last event")?;
    if found.is_none() {
        bail!(
            "{}; if it was restored on purpose, remove `{}` and start again",
            went_back(event_id),
            file.display()
        );
    }
    Ok(())
}

fn file_in(root: &Path) -> PathBuf {
    root.join(LAST_EVENT)
}

fn went_back(event_id: ArtifactId) -> String {
    format!(
        "the store has gone back in time: event {event_id}, which this node has seen, is not in it. It may be \
         an old backup, or a standby without the last commits: what was answered since would be done again"
    )
}
