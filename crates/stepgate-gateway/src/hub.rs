//! Wakes waiting callers and event streams as soon as something becomes durable.
//!
//! The store calls the hub after each write. No watcher can slow the store down: watchers of a run see only its
//! latest progress, and streams learn only that there is more to read.
//! The hub also passes on the progress that a tool reports; that is the only thing here that is never durable.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use stepgate_core::approval::Approval;
use stepgate_core::ids::RunId;
use stepgate_core::lock::locked;
use stepgate_core::ports::{Announce, Announcement};
use stepgate_exec::servers::CallProgress;
use tokio::sync::{mpsc, watch};

/// What has happened to a run since its first watcher began.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Progress {
    /// Its approval was decided.
    pub(crate) decided: bool,
    /// It is recorded.
    pub(crate) finished: bool,
    /// The latest progress report of its tool.
    said: Option<CallProgress>,
    /// How many progress reports its tool has sent.
    said_count: u64,
}

/// The watchers of runs, the streams, and the expiry task.
pub struct Hub {
    /// INVARIANT: a run has an entry only while it has a watcher.
    runs: Mutex<HashMap<RunId, watch::Sender<Progress>>>,
    /// Incremented whenever anything happens.
    pulse: watch::Sender<u64>,
    /// New approvals, for the expiry task.
    asked: Mutex<Option<mpsc::UnboundedSender<Approval>>>,
}

impl Hub {
    /// A hub without listeners.
    pub fn new() -> Arc<Self> {
        let (pulse, _) = watch::channel(0);
        Arc::new(Self { runs: Mutex::default(), pulse, asked: Mutex::default() })
    }

    /// Watches one run from now on.
    pub fn watch(self: &Arc<Self>, run_id: RunId) -> RunWatch {
        let mut runs = locked(&self.runs);
        let sender = runs.entry(run_id).or_insert_with(|| watch::channel(Progress::default()).0);
        RunWatch { hub: Arc::clone(self), run_id, progress: sender.subscribe(), heard_count: 0 }
    }

    /// Passes a tool's progress report to the watchers of its run.
    pub(crate) fn progress(&self, said: CallProgress) {
        self.advance(said.run_id, |progress| {
            progress.said = Some(said);
            progress.said_count = progress.said_count.wrapping_add(1);
        });
    }

    /// A receiver that wakes whenever there is more to read.
    pub fn pulse(&self) -> watch::Receiver<u64> {
        self.pulse.subscribe()
    }

    /// Every new approval from now on. There is one receiver, the expiry task: a second call replaces the first.
    pub(crate) fn asked(&self) -> mpsc::UnboundedReceiver<Approval> {
        let (sender, receiver) = mpsc::unbounded_channel();
        *locked(&self.asked) = Some(sender);
        receiver
    }

    /// The runs that have a watcher.
    pub(crate) fn watched_runs(&self) -> Vec<RunId> {
        locked(&self.runs).keys().copied().collect()
    }

    fn advance(&self, run_id: RunId, advance: impl FnOnce(&mut Progress)) {
        if let Some(sender) = locked(&self.runs).get(&run_id) {
            sender.send_modify(advance);
        }
    }

    /// Wakes every event stream.
    pub fn wake(&self) {
        self.pulse.send_modify(|count| *count = count.wrapping_add(1));
    }
}

impl Announce for Hub {
    fn announce(&self, announcement: Announcement) {
        match announcement {
            Announcement::Asked(approval) => {
                if let Some(keeper) = &*locked(&self.asked) {
                    // Without an expiry task nothing expires here. It reads the store when it starts again.
                    let _ = keeper.send(*approval);
                }
            }
            Announcement::Decided(run_id) => {
                self.advance(run_id, |progress| progress.decided = true);
            }
            Announcement::Ended(run_id) => self.advance(run_id, |progress| {
                progress.decided = true;
                progress.finished = true;
            }),
            Announcement::More => {}
        }
        self.wake();
    }
}

/// One watcher of one run.
pub struct RunWatch {
    hub: Arc<Hub>,
    run_id: RunId,
    progress: watch::Receiver<Progress>,
    /// The number of the last progress report that this watcher has seen.
    heard_count: u64,
}

impl RunWatch {
    /// Waits until the run is recorded.
    pub async fn finished(&mut self) {
        self.until(|progress| progress.finished).await;
    }

    pub(crate) async fn decided(&mut self) {
        self.until(|progress| progress.decided).await;
    }

    /// Waits for a progress report that this watcher has not seen, and returns the latest. Progress may start over
    /// when a call is sent again. Cancel-safe: a future dropped early consumes no report.
    pub async fn progressed(&mut self) -> CallProgress {
        loop {
            let heard = self.heard_count;
            let Progress { said, said_count, .. } =
                self.until(|progress| progress.said_count != heard).await;
            self.heard_count = said_count;
            if let Some(said) = said {
                return said;
            }
        }
    }

    /// Waits until the progress satisfies the condition, and returns it.
    async fn until(&mut self, is_enough: impl FnMut(&Progress) -> bool) -> Progress {
        if let Ok(progress) = self.progress.wait_for(is_enough).await {
            return progress.clone();
        }
        // Never reached: the sender lives as long as any watcher.
        std::future::pending().await
    }
}

impl Drop for RunWatch {
    fn drop(&mut self) {
        let mut runs = locked(&self.hub.runs);
        // This receiver is still counted.
        if runs.get(&self.run_id).is_some_and(|sender| sender.receiver_count() <= 1) {
            runs.remove(&self.run_id);
        }
    }
}

#[cfg(test)]
mod tests;
