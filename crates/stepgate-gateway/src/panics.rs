//! What a panic ends (decision 26): a request's handler, or the load of policies, ends alone. Any other panic ends
//! the process at once: its task may hold the lock of a run, a lease or a transaction, and only a new start and
//! recovery are sure to let go of it. Each is counted and logged.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, PanicHookInfo};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use tracing::error;

#[cfg(panic = "abort")]
compile_error!("a panic in a handler must end one request: build with `panic = \"unwind\"`");

static PANICS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// Whether this thread is inside of what may panic alone.
    static IS_CONTAINED: Cell<bool> = const { Cell::new(false) };
}

/// Something panicked, and ended alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Panicked;

impl std::fmt::Display for Panicked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a panic, whose place is in the log")
    }
}

/// Counts and logs every panic of this process from now on. One that is not contained ends the process.
pub fn watch() {
    let printed = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        PANICS.fetch_add(1, Ordering::Relaxed);
        let location = info.location().map(ToString::to_string).unwrap_or_default();
        if tracing::dispatcher::has_been_set() {
            error!(location, "panic at {location}: {}", message(info));
        } else {
            printed(info);
        }
        if !IS_CONTAINED.get() {
            std::process::abort();
        }
    }));
}

/// Number of panics so far.
pub fn count() -> u64 {
    PANICS.load(Ordering::Relaxed)
}

/// Runs a future whose panic ends it alone.
pub async fn contained<F: Future>(future: F) -> Result<F::Output, Panicked> {
    let mut future = pin!(future);
    let poll = |context: &mut Context<'_>| match contained_now(|| future.as_mut().poll(context)) {
        Ok(polled) => polled.map(Ok),
        Err(panicked) => Poll::Ready(Err(panicked)),
    };
    std::future::poll_fn(poll).await
}

/// Does something whose panic ends it alone.
pub fn contained_now<T>(work: impl FnOnce() -> T) -> Result<T, Panicked> {
    let was_contained = IS_CONTAINED.replace(true);
    let done = std::panic::catch_unwind(AssertUnwindSafe(work));
    IS_CONTAINED.set(was_contained);
    done.map_err(|_| Panicked)
}

/// Does something on a blocking thread. Its panic ends it alone.
pub async fn contained_blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Panicked> {
    let done = tokio::task::spawn_blocking(move || contained_now(work)).await;
    // Stopped with the runtime: it is not done, either.
    done.unwrap_or(Err(Panicked))
}

fn message<'a>(info: &'a PanicHookInfo<'_>) -> &'a str {
    let payload = info.payload();
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("without a message")
}

#[cfg(test)]
mod tests;
