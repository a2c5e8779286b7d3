//! Panics are contained (decision 26): the request or the task that panics ends, and everything else goes on.
//! Each is counted and logged.

use std::panic::PanicHookInfo;
use std::sync::atomic::{AtomicU64, Ordering};

use tracing::error;

#[cfg(panic = "abort")]
compile_error!("a panic must end one request and not the process: build with `panic = \"unwind\"`");

static PANICS: AtomicU64 = AtomicU64::new(0);

/// Counts and logs every panic of this process from now on, instead of printing it.
pub fn count_and_log() {
    std::panic::set_hook(Box::new(|info| {
        PANICS.fetch_add(1, Ordering::Relaxed);
        let location = info.location().map(ToString::to_string).unwrap_or_default();
        error!(location, "panic: {}", message(info));
    }));
}

/// How many there were.
pub fn count() -> u64 {
    PANICS.load(Ordering::Relaxed)
}

fn message<'a>(info: &'a PanicHookInfo<'_>) -> &'a str {
    let payload = info.payload();
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("without a message")
}
