//! The progress of a call, as its server reports it.
//!
//! Progress is passed on as it comes and decides nothing: it does not extend the call's timeout. Invalid
//! progress (decreasing, not a number, over the rate limit) is dropped.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use stepgate_core::ids::RunId;
use stepgate_core::json::{Map, Value};
use stepgate_core::lock::locked;

use super::outcome::shortened_to;
use super::spec::{PROGRESS_MESSAGE_BYTES_MAX, PROGRESS_PER_SECOND_MAX};

/// The progress of a call, as its tool reports it.
#[derive(Clone, Debug, PartialEq)]
pub struct CallProgress {
    /// The run.
    pub run_id: RunId,
    /// The value: finite, and greater than the last one passed on for this call.
    pub progress: f64,
    /// The value at completion, where the tool knows it.
    pub total: Option<f64>,
    /// The tool's message for people, shortened.
    pub message: Option<String>,
}

/// Callback for the progress of calls. It must not block.
pub type Progress = Arc<dyn Fn(CallProgress) + Send + Sync>;

/// The listener for one call. It exists as long as the call is in progress.
pub(super) struct Listener {
    run_id: RunId,
    tell: Progress,
    heard: Mutex<Heard>,
}

/// What was passed on so far.
struct Heard {
    progress: f64,
    /// When the present one-second window began, and how many were passed on in it.
    since: Instant,
    count: u32,
}

impl Listener {
    pub(super) fn new(run_id: RunId, tell: Progress) -> Arc<Self> {
        let heard = Heard { progress: f64::NEG_INFINITY, since: Instant::now(), count: 0 };
        Arc::new(Self { run_id, tell, heard: Mutex::new(heard) })
    }

    /// Passes a notification on. Returns whether it did: it may be invalid, or over the rate limit.
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
        // Some servers send null for an unknown value.
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
    /// MCP: "The progress value MUST increase with each notification". The clients of this gateway rely on
    /// that.
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
