//! A turn that is under way: everything that was heard of it, and its end.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use stepgate_agent::pipeline::Done;
use stepgate_agent::ports::{Listener, Progress, Waiting};
use stepgate_agent::stop::Stop;
use stepgate_agent::turn::TurnId;
use stepgate_core::ids::SessionId;
use tokio::sync::watch;

use crate::service::is_set;

/// A turn that is under way. What was heard is kept until it ends, so that whoever joins late, or reads
/// slowly, misses nothing; an answer's limit and the number of rounds keep it small.
pub struct Live {
    turn_id: Option<TurnId>,
    heard: Mutex<Vec<Progress>>,
    ended: OnceLock<Result<Done, Stop>>,
    /// Counts whatever happened.
    changes: watch::Sender<u64>,
    cancelled: watch::Sender<bool>,
}

impl Live {
    pub(super) fn new(turn_id: Option<TurnId>) -> Self {
        let (changes, _) = watch::channel(0);
        let (cancelled, _) = watch::channel(false);
        Self { turn_id, heard: Mutex::default(), ended: OnceLock::new(), changes, cancelled }
    }

    /// The turn, where the request is one of a turn at all.
    pub fn turn_id(&self) -> Option<TurnId> {
        self.turn_id
    }

    /// Wakes whenever there is more.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// What was heard at this place, counted from 0.
    pub fn heard_at(&self, place: usize) -> Option<Progress> {
        self.heard().get(place).cloned()
    }

    /// The session, once the turn is durable: the first thing that is heard.
    pub fn session_id(&self) -> Option<SessionId> {
        match self.heard().first() {
            Some(Progress::Opened { session_id, .. }) => Some(*session_id),
            Some(
                Progress::Text(_)
                | Progress::Answered
                | Progress::Calling { .. }
                | Progress::Waiting(_)
                | Progress::Called { .. },
            )
            | None => None,
        }
    }

    /// What it waits for now that is not its own.
    pub fn waiting(&self) -> Option<Waiting> {
        match self.heard().last() {
            Some(Progress::Waiting(waiting)) => Some(waiting.clone()),
            Some(
                Progress::Opened { .. }
                | Progress::Text(_)
                | Progress::Answered
                | Progress::Calling { .. }
                | Progress::Called { .. },
            )
            | None => None,
        }
    }

    /// How it ended.
    pub fn ended(&self) -> Option<&Result<Done, Stop>> {
        self.ended.get()
    }

    pub(super) fn end(&self, ended: Result<Done, Stop>) {
        // It ends once: only its own task says so.
        let _ = self.ended.set(ended);
        self.wake();
    }

    /// Stops the turn's task: the turn itself is over already.
    pub(super) fn cancel(&self) {
        self.cancelled.send_replace(true);
    }

    /// Waits until the turn is cancelled.
    pub(super) async fn cancelled(&self) {
        is_set(&mut self.cancelled.subscribe()).await;
    }

    fn wake(&self) {
        self.changes.send_modify(|count| *count = count.wrapping_add(1));
    }

    fn heard(&self) -> MutexGuard<'_, Vec<Progress>> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Listener for Live {
    fn hear(&self, progress: Progress) {
        self.heard().push(progress);
        self.wake();
    }
}
