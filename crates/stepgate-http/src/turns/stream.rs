//! A turn as server-sent events: text as it is generated, each call with its outcome, and the end.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::response::sse::{Event, KeepAlive};
use axum::response::{IntoResponse, Response, Sse};
use futures_util::stream;
use serde_json::{Value, json};
use stepgate_agent::ports::Progress;
use stepgate_agent::turn::ToolEnded;
use stepgate_gateway::turns::Live;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::super::admit::Caller;
use super::wire::Accepted;
use super::{App, ended, still_waiting, value_of};

/// Longest silence of a stream.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// Streams the turn from its beginning. A request that is refused before its turn is durable gets a normal error
/// response.
pub(super) async fn of(
    app: Arc<App>,
    caller: Caller,
    live: Arc<Live>,
    max_wait: Option<Duration>,
) -> Response {
    let mut changes = live.changes();
    while live.session_id().is_none() {
        if live.ended().is_some() {
            return ended(&live);
        }
        // Cannot fail: `live` owns the sender.
        let _ = changes.changed().await;
    }
    let deadline = max_wait.map(|max_wait| Instant::now() + max_wait);
    let hearing = Hearing { app, caller, live, changes, deadline, told: 0, is_over: false };
    let events = stream::unfold(hearing, |mut hearing| async move {
        let event = hearing.next().await?;
        Some((Ok::<_, Infallible>(event), hearing))
    });
    Sse::new(events).keep_alive(KeepAlive::new().interval(HEARTBEAT)).into_response()
}

/// One client's stream, and how many events it has got.
struct Hearing {
    app: Arc<App>,
    caller: Caller,
    live: Arc<Live>,
    changes: watch::Receiver<u64>,
    deadline: Option<Instant>,
    told: usize,
    is_over: bool,
}

impl Hearing {
    async fn next(&mut self) -> Option<Event> {
        loop {
            if self.is_over || !self.caller.is_live(&self.app) {
                return None;
            }
            self.changes.borrow_and_update();
            // Read before the progress: after the end there is no more progress.
            let has_ended = self.live.ended().is_some();
            if let Some(progress) = self.live.heard_at(self.told) {
                self.told += 1;
                return Some(event_of(&progress));
            }
            if has_ended {
                self.is_over = true;
                return self.end();
            }
            match self.deadline {
                None => self.changes.changed().await.ok()?,
                Some(deadline) => tokio::select! {
                    changed = self.changes.changed() => changed.ok()?,
                    () = sleep_until(deadline) => {
                        self.is_over = true;
                        let waiting = still_waiting(&self.app, self.live.waiting()).await;
                        let accepted = Accepted::of(&self.live, waiting.as_ref());
                        return Some(event("accepted", &json!(accepted)));
                    }
                },
            }
        }
    }

    fn end(&self) -> Option<Event> {
        Some(match self.live.ended()? {
            Ok(done) => event("response", &json!(done.response)),
            Err(stop) => event("error", &value_of(stop)),
        })
    }
}

fn event(name: &str, data: &Value) -> Event {
    Event::default().event(name).data(data.to_string())
}

fn event_of(progress: &Progress) -> Event {
    match progress {
        Progress::Opened { session_id, turn_id } => {
            event("opened", &json!({ "sessionId": session_id, "turnId": turn_id }))
        }
        Progress::Text(text) => event("text", &json!({ "text": text })),
        Progress::Answered => event("answered", &json!({})),
        Progress::Calling(call) => event(
            "tool_call",
            &json!({
                "toolCallId": call.tool_call_id,
                "action": call.action,
                "argumentsJson": call.arguments_json,
            }),
        ),
        Progress::Waiting(waiting) => event(
            "waiting",
            &json!({
                "toolCallId": waiting.tool_call_id,
                "runId": waiting.run_id,
                "approvalId": waiting.approval_id,
            }),
        ),
        Progress::Called(ToolEnded { tool_call_id, run_id, outcome }) => event(
            "tool_result",
            &json!({ "toolCallId": tool_call_id, "runId": run_id, "outcome": outcome }),
        ),
    }
}
