//! Following the events from a durable cursor: what receivers of notifications and audit streams have in common.
//!
//! Of several nodes on one store, the one that has taken the cursor follows. The cursor moves after something has
//! arrived, so a process that dies leaves what did not to the next one.

pub(crate) mod counts;
pub(crate) mod post;

use std::sync::Arc;
use std::time::Duration;

use stepgate_core::ports::{Cursor, Store, StoreError};
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::{info, warn};

use crate::service::{Service, wait_until_set};
use counts::{Counts, count};

/// Shortest and longest pause between two tries: exponential backoff with jitter.
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(300);
/// Pause before a cursor that another node has, or a store that does not answer, is tried again.
const LOOK_AGAIN: Duration = Duration::from_secs(2);
/// How long this node relies on having the cursor before it asks again.
const SURE_FOR: Duration = Duration::from_secs(5);
/// Events that come together are read together.
const GATHER: Duration = Duration::from_millis(100);
/// Longest wait: the system clock may be set meanwhile.
const WAIT_MAX: Duration = Duration::from_secs(30);
/// After this many events that are not for the receiver the cursor is moved past them, or after this time: runs stay in
/// the store until every cursor has passed their events.
const PASS_BY: u64 = 10_000;
const PASS_BY_AFTER: Duration = Duration::from_secs(60);

/// Why something did not arrive.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// The receiver does not take it, now or later.
    Refused(String),
    /// A retry may help, after this pause where the receiver asks for one.
    Later(String, Option<Duration>),
}

impl Trouble {
    pub(crate) fn later(why: impl Into<String>) -> Self {
        Self::Later(why.into(), None)
    }

    /// For a person.
    pub(crate) fn why(self) -> String {
        let (Self::Refused(why) | Self::Later(why, _)) = self;
        why
    }
}

/// Why a task stops following.
pub(crate) enum Stop {
    Leaving,
    /// Another node has the cursor.
    Elsewhere,
    Store(StoreError),
}

impl From<StoreError> for Stop {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// A receiver's place in the events.
pub(crate) struct Follower {
    /// What is sent, and to whom, for the log.
    what: String,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) cursor: Cursor,
    pulse: watch::Receiver<u64>,
    leaving: watch::Receiver<bool>,
    sure_until: Instant,
    /// When the cursor was moved.
    moved_at: Instant,
    /// The last error of the store, which is logged once.
    store_error: Option<StoreError>,
}

impl Follower {
    pub(crate) fn new(cursor: String, what: String, service: &Service) -> Self {
        count(&cursor, |_| {});
        Self {
            what,
            store: Arc::clone(&service.gate.store),
            cursor: Cursor { name: cursor, ..Cursor::default() },
            pulse: service.hub.pulse(),
            leaving: service.leaving(),
            sure_until: Instant::now(),
            moved_at: Instant::now(),
            store_error: None,
        }
    }

    /// Takes the cursor; a new one begins at `first`.
    pub(crate) async fn begin(&mut self, first: u64) -> Result<(), Stop> {
        self.cursor.reached = self.take(&self.cursor.name, first).await?;
        self.store_error = None;
        Ok(())
    }

    /// Takes a cursor; a new one begins at `first`.
    pub(crate) async fn take(&self, name: &str, first: u64) -> Result<u64, Stop> {
        self.store.take_cursor(name, first).await?.ok_or(Stop::Elsewhere)
    }

    /// The last position now. An event that comes later wakes the task from its wait.
    pub(crate) async fn newest(&mut self) -> Result<u64, Stop> {
        // Marked as seen before reading: an event that comes in between wakes this task again.
        self.pulse.borrow_and_update();
        Ok(self.store.last_position().await?)
    }

    pub(crate) async fn move_to(&mut self, position: u64) -> Result<(), Stop> {
        self.cursor.reached = self.cursor.reached.max(position);
        self.moved_at = Instant::now();
        match self.store.move_cursor(&self.cursor).await? {
            true => Ok(()),
            false => Err(Stop::Elsewhere),
        }
    }

    /// Moves past events that are not for this receiver, now and then.
    pub(crate) async fn pass_by(&mut self, seen: u64) -> Result<(), Stop> {
        if is_worth_moving(seen.saturating_sub(self.cursor.reached), self.moved_at.elapsed()) {
            self.move_to(seen).await?;
        }
        Ok(())
    }

    /// Asks again whether this node still has the cursor, unless it has asked a moment ago.
    pub(crate) async fn be_sure(&mut self) -> Result<(), Stop> {
        if Instant::now() >= self.sure_until {
            self.take(&self.cursor.name, self.cursor.reached).await?;
            self.sure_until = Instant::now() + SURE_FOR;
        }
        Ok(())
    }

    /// Does the work, unless the process shuts down meanwhile.
    pub(crate) async fn unless_leaving<T>(
        &mut self,
        work: impl Future<Output = T>,
    ) -> Result<T, Stop> {
        tokio::select! {
            done = work => Ok(done),
            () = wait_until_set(&mut self.leaving) => Err(Stop::Leaving),
        }
    }

    pub(crate) async fn rest(&mut self, pause: Duration) -> Result<(), Stop> {
        self.unless_leaving(tokio::time::sleep(pause)).await
    }

    pub(crate) async fn wait(&mut self, most: Duration) -> Result<(), Stop> {
        tokio::select! {
            () = tokio::time::sleep(most.min(WAIT_MAX)) => return Ok(()),
            changed = self.pulse.changed() => changed.map_err(|_| Stop::Leaving)?,
            () = wait_until_set(&mut self.leaving) => return Err(Stop::Leaving),
        }
        self.rest(GATHER).await
    }

    /// Counts what arrived, and says once that it does again.
    pub(crate) async fn arrived(&mut self, messages: u64) -> Result<(), Stop> {
        self.count(|counts| {
            counts.delivered += messages;
            counts.is_failing = false;
        });
        if self.cursor.error.take().is_some() {
            info!(receiver = self.cursor.name, "{} arrive again", self.what);
            self.move_to(self.cursor.reached).await?;
        }
        Ok(())
    }

    /// Counts a try that failed, says so once, and keeps the reason where people look for it.
    pub(crate) async fn failed(&mut self, why: &str) -> Result<(), Stop> {
        self.count(|counts| {
            counts.failed += 1;
            counts.is_failing = true;
        });
        if self.cursor.error.is_none() {
            warn!(receiver = self.cursor.name, "{} fail, and are tried again: {why}", self.what);
        }
        if self.cursor.error.as_deref() != Some(why) {
            self.cursor.error = Some(why.to_owned());
            self.move_to(self.cursor.reached).await?;
        }
        Ok(())
    }

    pub(crate) fn count(&self, change: impl FnOnce(&mut Counts)) {
        count(&self.cursor.name, change);
    }

    /// Rests before following again. None where the process shuts down.
    pub(crate) async fn recover(&mut self, stop: Stop) -> Option<()> {
        match stop {
            Stop::Leaving => return None,
            Stop::Elsewhere => {}
            Stop::Store(error) => {
                if self.store_error.as_ref() != Some(&error) {
                    warn!(receiver = self.cursor.name, "{} go on later: {error}", self.what);
                }
                self.store_error = Some(error);
            }
        }
        self.rest(LOOK_AGAIN).await.ok()
    }
}

/// Whether a cursor that is so many events behind, and has not been moved for so long, is moved.
fn is_worth_moving(behind: u64, since: Duration) -> bool {
    behind >= PASS_BY || (behind > 0 && since >= PASS_BY_AFTER)
}

/// The pause before the next try: half of it is random, so that receivers are not called all at once.
pub(crate) fn pause_after(tries: u32, asked: Option<Duration>) -> Duration {
    let full = PAUSE_MIN.saturating_mul(2_u32.saturating_pow(tries)).min(PAUSE_MAX);
    let mut random = [0];
    // Without randomness the pause is the shortest.
    let _filled = getrandom::fill(&mut random);
    let [random] = random;
    let pause = full / 2 + full.mul_f64(f64::from(random) / 255.0 / 2.0);
    pause.max(asked.unwrap_or_default().min(PAUSE_MAX))
}

#[cfg(test)]
mod tests;
