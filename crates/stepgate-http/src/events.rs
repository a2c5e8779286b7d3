//! `GET /v1/events`: the history as a stream that a client can resume.
//!
//! Each stream reads the store at its own pace; the hub only wakes it. So a slow client delays no other.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Sse;
use axum::response::sse::{Event, KeepAlive};
use futures_util::{Stream, stream};
use serde::Deserialize;
use stepgate_core::ports::{EventQuery, PlacedEvent};
use stepgate_gateway::service::wait_until_set;
use tokio::sync::watch;

use super::admit::{Caller, Reader};
use super::routes::Params;
use super::{App, Problem};

/// Events per page.
const PAGE: usize = 256;
/// Largest possible position: the largest integer of SQL.
const POSITION_MAX: u64 = i64::MAX.unsigned_abs();
/// Longest silence of a stream.
const HEARTBEAT: Duration = Duration::from_secs(15);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StreamParams {
    /// An id, or `latest`.
    after: Option<String>,
}

pub(super) async fn follow(
    State(app): State<Arc<App>>,
    Reader(caller): Reader,
    Params(params): Params<StreamParams>,
    headers: HeaderMap,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, Problem> {
    let asked = match headers.get("last-event-id").map(|id| id.to_str()) {
        None => params.after.as_deref().unwrap_or("0"),
        Some(Ok(id)) => id,
        Some(Err(_)) => return Err(not_ours()),
    };
    let last_seen = match asked {
        "latest" => app.service.gate.store.last_position().await?,
        id => id.parse().ok().filter(|id| *id <= POSITION_MAX).ok_or_else(not_ours)?,
    };
    let stream = Following {
        pulse: app.service.hub.pulse(),
        leaving: app.service.leaving(),
        app,
        caller,
        after: last_seen,
        read: VecDeque::new(),
    };
    let events = stream::unfold(stream, |mut following| async move {
        let placed = following.next().await?;
        Some((Ok(event(&placed)), following))
    });
    Ok(Sse::new(events).keep_alive(KeepAlive::new().interval(HEARTBEAT)))
}

fn not_ours() -> Problem {
    Problem::malformed("`Last-Event-ID` and `after` take the id of an event of this stream")
}

fn event(placed: &PlacedEvent) -> Event {
    let data = serde_json::to_string(&placed.event).unwrap_or_default();
    Event::default()
        .id(placed.position.to_string())
        .event(placed.event.event_type.as_str())
        .data(data)
}

/// One client's stream, and its position.
struct Following {
    app: Arc<App>,
    caller: Caller,
    pulse: watch::Receiver<u64>,
    leaving: watch::Receiver<bool>,
    after: u64,
    read: VecDeque<PlacedEvent>,
}

impl Following {
    /// The next event. None ends the stream: the process shuts down, the token is not valid any more, or the store
    /// does not answer. The client then reconnects with the last id.
    async fn next(&mut self) -> Option<PlacedEvent> {
        loop {
            // Checked also for events that were read earlier: that may be long ago.
            if !self.is_still_good() {
                return None;
            }
            if let Some(placed) = self.read.pop_front() {
                self.after = placed.position;
                return Some(placed);
            }
            // Marked as seen before reading: an event that comes in between wakes this task again.
            self.pulse.borrow_and_update();
            let query = EventQuery {
                after: self.after,
                principal_id: self.caller.sees(),
                limit: PAGE,
                ..EventQuery::default()
            };
            let store = &self.app.service.gate.store;
            let looked_at = store.last_position().await.ok()?;
            if looked_at > self.after {
                self.read = store.events(query).await.ok()?.into();
            }
            if self.read.is_empty() {
                // Skip events that this caller may not see, so that they are not read again.
                self.after = self.after.max(looked_at);
                // Events from before the shutdown began are sent first.
                if *self.leaving.borrow() {
                    return None;
                }
                tokio::select! {
                    changed = self.pulse.changed() => changed.ok()?,
                    () = wait_until_set(&mut self.leaving) => {}
                }
            }
        }
    }

    /// Whether the token is still valid: a stream ends with its token.
    fn is_still_good(&self) -> bool {
        let is_good = |token| self.app.service.is_live(token);
        self.caller.token_id.is_none_or(is_good)
    }
}
