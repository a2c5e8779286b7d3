//! How far a call has come, as its server says while it runs.
//!
//! It is told on as it comes and decides nothing: a call has no more time for it. What a server says
//! that cannot be so (going backwards, no number, too much of it) is dropped.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use stepgate_core::ids::RunId;
use stepgate_core::json::{Map, Value};
use stepgate_core::lock::locked;

use super::outcome::shortened_to;
use super::spec::{PROGRESS_MESSAGE_BYTES_MAX, PROGRESS_PER_SECOND_MAX};

/// How far a call has come, in the words of its tool.
#[derive(Clone, Debug, PartialEq)]
pub struct CallProgress {
    /// The run.
    pub run_id: RunId,
    /// How far: finite, and more than the last time this call was told of.
    pub progress: f64,
    /// How far it is in all, where the tool knows.
    pub total: Option<f64>,
    /// What it says to people, shortened.
    pub message: Option<String>,
}

/// What is told how far calls have come. It must not block.
pub type Progress = Arc<dyn Fn(CallProgress) + Send + Sync>;

/// Whoever wants to know of one call. There is one as long as the call is under way.
pub(super) struct Listener {
    run_id: RunId,
    tell: Progress,
    heard: Mutex<Heard>,
}

/// What was told on so far.
struct Heard {
    progress: f64,
    /// When the present second began, and how often there was something in it.
    since: Instant,
    count: u32,
}

impl Listener {
    pub(super) fn new(run_id: RunId, tell: Progress) -> Arc<Self> {
        let heard = Heard { progress: f64::NEG_INFINITY, since: Instant::now(), count: 0 };
        Arc::new(Self { run_id, tell, heard: Mutex::new(heard) })
    }

    /// Tells on what a notification says. Whether it did: it may be nothing, or too much.
    pub(super) fn hear(&self, params: &Map<String, Value>, now: Instant) -> bool {
        let Some(said) = self.read(params) else { return false };
        if !locked(&self.heard).admits(said.progress, now) {
            return false;
        }
        (self.tell)(said);
        true
    }

    fn read(&self, params: &Map<String, Value>) -> Option<CallProgress> {
        let progress = params.get("progress").and_then(finite)?;
        // Some servers write what they do not know as null.
        let total = match params.get("total") {
            None | Some(Value::Null) => None,
            Some(total) => Some(finite(total)?),
        };
        let message = match params.get("message") {
            None | Some(Value::Null) => None,
            Some(message) => Some(shortened_to(message.as_str()?, PROGRESS_MESSAGE_BYTES_MAX)),
        };
        Some(CallProgress { run_id: self.run_id, progress, total, message })
    }
}

impl Heard {
    /// MCP: "The progress value MUST increase with each notification". Whoever gets it from here relies
    /// on that.
    fn admits(&mut self, progress: f64, now: Instant) -> bool {
        const WINDOW: Duration = Duration::from_secs(1);
        if now.saturating_duration_since(self.since) >= WINDOW {
            (self.since, self.count) = (now, 0);
        }
        let is_admitted = progress > self.progress && self.count < PROGRESS_PER_SECOND_MAX;
        if is_admitted {
            self.progress = progress;
            self.count += 1;
        }
        is_admitted
    }
}

fn finite(value: &Value) -> Option<f64> {
    value.as_f64().filter(|number| number.is_finite())
}

#[cfg(test)]
mod tests;
