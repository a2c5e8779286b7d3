//! What becomes durable is announced here: waiting callers and event streams are woken at once.
//!
//! The store calls the hub after each write. No listener can slow it down: a run's watchers see only the
//! latest of its progress, and streams are told that there is more, not what.
//! What a tool says of its own progress is announced here too; it is the one thing that is never durable.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use stepgate_core::approval::Approval;
use stepgate_core::ids::RunId;
use stepgate_core::ports::{Announce, Announcement};
use stepgate_exec::servers::CallProgress;
use tokio::sync::{mpsc, watch};

/// How far a run has come since somebody began to watch it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Progress {
    /// Its approval was decided.
    pub(crate) decided: bool,
    /// It is recorded.
    pub(crate) finished: bool,
    /// What its tool said last of how far it has come.
    said: Option<CallProgress>,
    /// How often it has said something.
    said_count: u64,
}

/// Who wants to know what.
pub struct Hub {
    /// INVARIANT: a run has an entry only while somebody watches it.
    runs: Mutex<HashMap<RunId, watch::Sender<Progress>>>,
    /// Counts whatever happened.
    pulse: watch::Sender<u64>,
    /// Questions to people, for whoever keeps the time.
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

    /// Tells whoever watches the run how far its tool says that it has come.
    pub(crate) fn progress(&self, said: CallProgress) {
        self.advance(said.run_id, |progress| {
            progress.said = Some(said);
            progress.said_count = progress.said_count.wrapping_add(1);
        });
    }

    /// Wakes whenever there is more to read.
    pub fn pulse(&self) -> watch::Receiver<u64> {
        self.pulse.subscribe()
    }

    /// Every question to a person from now on. There is one who keeps the time.
    pub(crate) fn asked(&self) -> mpsc::UnboundedReceiver<Approval> {
        let (sender, receiver) = mpsc::unbounded_channel();
        *locked(&self.asked) = Some(sender);
        receiver
    }

    /// How many runs are watched.
    #[cfg(test)]
    pub(crate) fn watched(&self) -> usize {
        locked(&self.runs).len()
    }

    /// The runs that somebody watches.
    pub(crate) fn watched_runs(&self) -> Vec<RunId> {
        locked(&self.runs).keys().copied().collect()
    }

    fn advance(&self, run_id: RunId, advance: impl FnOnce(&mut Progress)) {
        if let Some(sender) = locked(&self.runs).get(&run_id) {
            sender.send_modify(advance);
        }
    }

    /// Wakes whoever follows what happens.
    pub fn wake(&self) {
        self.pulse.send_modify(|count| *count = count.wrapping_add(1));
    }
}

impl Announce for Hub {
    fn announce(&self, announcement: Announcement) {
        match announcement {
            Announcement::Asked(approval) => {
                if let Some(keeper) = &*locked(&self.asked) {
                    // A keeper that is gone keeps no time, and reads the store when it comes back.
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

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One watcher of one run.
pub struct RunWatch {
    hub: Arc<Hub>,
    run_id: RunId,
    progress: watch::Receiver<Progress>,
    /// Up to where it has heard what the tool said.
    heard_count: u64,
}

impl RunWatch {
    /// Until the run is recorded.
    pub async fn finished(&mut self) {
        self.until(|progress| progress.finished).await;
    }

    /// Until its approval is decided.
    pub(crate) async fn decided(&mut self) {
        self.until(|progress| progress.decided).await;
    }

    /// Until the run's tool says more of how far it has come than was heard here; the latest of it. It may
    /// begin anew where a call is sent again. Dropped before it is over, it has heard nothing.
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

    /// How far the run has come when it is far enough.
    async fn until(&mut self, is_enough: impl FnMut(&Progress) -> bool) -> Progress {
        if let Ok(progress) = self.progress.wait_for(is_enough).await {
            return progress.clone();
        }
        // The sender lives as long as a watcher does, so this is never reached; and if it were, there
        // would be nothing to wake up for.
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
