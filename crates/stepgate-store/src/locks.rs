//! The locks of traces, within one process. Both engines share them.

use std::collections::{HashMap, VecDeque};
use std::sync::Mutex;
use std::time::Duration;

use stepgate_core::ids::RunId;
use stepgate_core::journal::StateCode;
use stepgate_core::lock::locked;
use tokio::sync::oneshot;

use crate::Result;
use crate::plan::refusal;

/// Default limit of the wait for a trace's lock.
pub(crate) const LOCK_WAIT_DEFAULT: Duration = Duration::from_secs(5);

/// The locked traces, with the queue of waiters for each.
#[derive(Debug)]
pub(crate) struct TraceLocks {
    wait: Duration,
    /// INVARIANT: a trace has an entry exactly while it is locked.
    held: Mutex<HashMap<RunId, VecDeque<oneshot::Sender<()>>>>,
}

impl TraceLocks {
    /// No trace is locked; `wait` limits how long a caller waits.
    pub(crate) fn new(wait: Duration) -> Self {
        Self { wait, held: Mutex::default() }
    }

    /// Takes the lock, or STATE_LOCK_ACQUIRE_FAILED after the wait.
    pub(crate) async fn acquire(&self, trace_id: RunId) -> Result<()> {
        let Some(turn) = self.enter(trace_id) else {
            return Ok(());
        };
        let mut waiting = Waiting { locks: self, trace_id, turn, has_taken: false };
        if tokio::time::timeout(self.wait, &mut waiting.turn).await.is_ok_and(|turn| turn.is_ok()) {
            waiting.has_taken = true;
            return Ok(());
        }
        let detail = format!("trace {trace_id} is held by another for too long");
        Err(refusal(StateCode::LockAcquireFailed, detail))
    }

    /// Passes the lock to the waiter that has waited longest. Releasing a lock that is not held does
    /// nothing.
    pub(crate) fn release(&self, trace_id: RunId) {
        let mut held = locked(&self.held);
        let Some(waiters) = held.get_mut(&trace_id) else {
            return;
        };
        while let Some(next) = waiters.pop_front() {
            if next.send(()).is_ok() {
                return;
            }
        }
        held.remove(&trace_id);
    }

    /// Takes a free lock at once, or a place in the queue.
    fn enter(&self, trace_id: RunId) -> Option<oneshot::Receiver<()>> {
        let mut held = locked(&self.held);
        let Some(waiters) = held.get_mut(&trace_id) else {
            held.insert(trace_id, VecDeque::new());
            return None;
        };
        let (turn, next) = oneshot::channel();
        waiters.retain(|waiter| !waiter.is_closed());
        waiters.push_back(turn);
        Some(next)
    }
}

/// A place in the queue. A waiter that leaves, by timeout or by being dropped, may have been given the lock
/// in the same instant: then the lock passes to the next waiter.
struct Waiting<'a> {
    locks: &'a TraceLocks,
    trace_id: RunId,
    turn: oneshot::Receiver<()>,
    has_taken: bool,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if self.has_taken {
            return;
        }
        self.turn.close();
        if self.turn.try_recv().is_ok() {
            self.locks.release(self.trace_id);
        }
    }
}
