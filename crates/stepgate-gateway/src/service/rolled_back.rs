//! Detects a store that went back in time: an old backup restored under nodes that have seen newer events. Answers
//! given since that backup are not in it, and going on would do their work again. An event that left the store with its
//! archived run is no such thing.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use stepgate_core::ids::{ArtifactId, RunId};
use stepgate_core::ports::{EventQuery, PlacedEvent, Store, StoreError};
use tracing::error;

use super::{Service, sleep_unless_set};

/// How often to poll for the newest event.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The file with the id of the newest event that this node has seen, and of its run where it has one.
const LAST_EVENT: &str = "last_event";

/// Remembers the newest event, and ends the process if the store no longer has it.
pub(super) async fn keep_looking(service: Arc<Service>) {
    // A store that is not shared is held by this process and cannot be replaced under it.
    if service.gate.store.node_id().is_none() {
        return;
    }
    let mut leaving = service.leaving();
    let file = service.control.as_ref().map(|control| file_in(&control.root));
    let mut seen: Option<Seen> = None;
    while sleep_unless_set(LOOK_EVERY, &mut leaving).await {
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
                if let (Some(file), Some(seen)) = (&file, newest) {
                    // On failure the next new event writes it again. Until then a restart detects less.
                    let _written = fs::write(file, seen.text());
                }
            }
            Look::Newest(_) => {}
        }
    }
}

/// An event that was in the store.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Seen {
    event_id: ArtifactId,
    run_id: Option<RunId>,
}

impl Seen {
    fn text(self) -> String {
        let run_id = self.run_id.map(|run_id| format!(" {run_id}")).unwrap_or_default();
        format!("{}{run_id}\n", self.event_id)
    }

    /// None where a crash cut the text off: it proves nothing.
    fn read(text: &str) -> Option<Self> {
        let mut words = text.split_whitespace();
        let event_id = words.next()?.parse().ok()?;
        let run_id = words.next().map(str::parse).transpose().ok()?;
        Some(Self { event_id, run_id })
    }

    /// Whether the store does not have it any more, and it did not leave with an archived run.
    async fn is_gone(self, store: &dyn Store) -> Result<bool, StoreError> {
        if store.event(self.event_id).await?.is_some() {
            return Ok(false);
        }
        Ok(match self.run_id {
            Some(run_id) => store.archived_run(run_id).await?.is_none(),
            None => true,
        })
    }
}

enum Look {
    /// The newest event, if any.
    Newest(Option<Seen>),
    /// This event was in the store before, and is missing now.
    Gone(ArtifactId),
}

async fn look(store: &dyn Store, seen: Option<Seen>) -> Result<Look, StoreError> {
    if let Some(seen) = seen
        && seen.is_gone(store).await?
    {
        return Ok(Look::Gone(seen.event_id));
    }
    let after = store.last_position().await?.saturating_sub(1);
    let newest = store.events(EventQuery { after, limit: 1, ..EventQuery::default() }).await?;
    let of = |placed: &PlacedEvent| Seen {
        event_id: placed.event.event_id,
        run_id: placed.event.run_id,
    };
    Ok(Look::Newest(newest.first().map(of).or(seen)))
}

/// Refuses a store that lacks an event that this node has seen.
pub(crate) async fn refuse(store: &dyn Store, root: &Path) -> anyhow::Result<()> {
    let file = file_in(root);
    let Ok(text) = fs::read_to_string(&file) else { return Ok(()) };
    let Some(seen) = Seen::read(&text) else { return Ok(()) };
    if seen.is_gone(store).await.context("cannot ask for the last event")? {
        let event_id = seen.event_id;
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
