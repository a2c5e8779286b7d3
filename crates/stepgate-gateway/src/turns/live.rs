//! A turn that is under way: all its progress so far, and its end.

use std::sync::{Mutex, MutexGuard, OnceLock};

use stepgate_agent::pipeline::Done;
use stepgate_agent::ports::{Listener, Progress, Waiting};
use stepgate_agent::stop::Stop;
use stepgate_agent::turn::TurnId;
use stepgate_core::ids::SessionId;
use stepgate_core::lock;
use tokio::sync::watch;

use crate::service::wait_until_set;

/// A turn that is under way. Its progress is kept until it ends, so that a caller that joins late or reads slowly
/// misses nothing. The limits on answers and rounds bound its size.
pub struct Live {
    /// The id of the turn, if the request belongs to a turn at all.
    pub turn_id: Option<TurnId>,
    heard: Mutex<Vec<Progress>>,
    ended: OnceLock<Result<Done, Stop>>,
    /// Incremented whenever anything happens.
    changes: watch::Sender<u64>,
    cancelled: watch::Sender<bool>,
}

impl Live {
    pub(super) fn new(turn_id: Option<TurnId>) -> Self {
        let (changes, _) = watch::channel(0);
        let (cancelled, _) = watch::channel(false);
        Self { turn_id, heard: Mutex::default(), ended: OnceLock::new(), changes, cancelled }
    }

    /// A receiver that wakes whenever there is more to read.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// The progress at this index, from 0.
    pub fn heard_at(&self, place: usize) -> Option<Progress> {
        self.heard().get(place).cloned()
    }

    /// The session, once the turn is durable: it comes with the first progress.
    pub fn session_id(&self) -> Option<SessionId> {
        let heard = self.heard();
        let Some(Progress::Opened { session_id, .. }) = heard.first() else { return None };
        Some(*session_id)
    }

    /// What the turn waits for now outside itself, such as a person's decision.
    pub fn waiting(&self) -> Option<Waiting> {
        let heard = self.heard();
        let Some(Progress::Waiting(waiting)) = heard.last() else { return None };
        Some(waiting.clone())
    }

    /// How it ended.
    pub fn ended(&self) -> Option<&Result<Done, Stop>> {
        self.ended.get()
    }

    pub(super) fn end(&self, ended: Result<Done, Stop>) {
        // Set once: only the turn's own task calls this.
        let _ = self.ended.set(ended);
        self.wake();
    }

    /// Stops the turn's task. The end of the turn is already durable.
    pub(super) fn cancel(&self) {
        self.cancelled.send_replace(true);
    }

    pub(super) async fn cancelled(&self) {
        wait_until_set(&mut self.cancelled.subscribe()).await;
    }

    fn wake(&self) {
        self.changes.send_modify(|count| *count = count.wrapping_add(1));
    }

    fn heard(&self) -> MutexGuard<'_, Vec<Progress>> {
        lock::locked(&self.heard)
    }
}

impl Listener for Live {
    fn hear(&self, progress: Progress) {
        self.heard().push(progress);
        self.wake();
    }
}
