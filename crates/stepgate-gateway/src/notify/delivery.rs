//! The task of one receiver: follows the events from its cursor, and sends each message at least once.
//!
//! Of several nodes on one store, the one that has taken the receiver's cursor sends. The cursor moves after a
//! message has arrived, so a process that dies leaves its messages to the next one.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use stepgate_core::event::{Event, EventType};
use stepgate_core::ids::ApprovalId;
use stepgate_core::ports::{Cursor, EventQuery, PlacedEvent, Store, StoreError, World};
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::{error, info, warn};

use super::channel::{Channel, Trouble};
use super::counts::count;
use super::cursor_of;
use super::message::{Message, approval_of, readable};
use super::settings::ReceiverSettings;
use super::timers::{Timer, Timers};
use crate::service::{Service, wait_until_set};

/// Shortest and longest pause between two tries: exponential backoff with jitter.
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(300);
/// How often a message is tried that its receiver refuses for good.
const REFUSED_TRIES_MAX: u32 = 5;
/// Pause before a cursor that another node has, or a store that does not answer, is tried again.
const LOOK_AGAIN: Duration = Duration::from_secs(2);
/// How long this node relies on having the cursor before it asks again.
const SURE_FOR: Duration = Duration::from_secs(5);
/// Events that come together are read together.
const GATHER: Duration = Duration::from_millis(100);
/// Longest wait: the system clock may be set meanwhile.
const WAIT_MAX: Duration = Duration::from_secs(30);
/// Events per page.
const PAGE: usize = 64;
/// After this many events that are not for this receiver the cursor is moved past them.
const PASS_BY: u64 = 10_000;

/// Why a task stops following.
enum Stop {
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

/// What a message is about. It is composed for each try, so that it says what holds then.
enum Subject<'a> {
    Event(&'a Event),
    Open(&'a Timer, ApprovalId),
}

/// The task of one receiver.
pub(super) struct Delivery {
    receiver: ReceiverSettings,
    public_url: Option<String>,
    channel: Channel,
    store: Arc<dyn Store>,
    world: Arc<dyn World>,
    pulse: watch::Receiver<u64>,
    leaving: watch::Receiver<bool>,
    cursor: Cursor,
    sure_until: Instant,
    /// The last position when the timers started.
    started_at: u64,
    /// The last error of the store, which is logged once.
    store_error: Option<StoreError>,
}

impl Delivery {
    pub(super) fn new(
        receiver: ReceiverSettings,
        public_url: Option<String>,
        service: &Service,
    ) -> Result<Self, String> {
        let (name, channel) = (&receiver.name, Channel::new(&receiver)?);
        count(name, |_| {});
        if let Some(why) = channel.problem() {
            warn!(receiver = name, "notifications to {name} cannot be sent yet: {why}");
        }
        Ok(Self {
            channel,
            cursor: Cursor { name: cursor_of(&receiver.name), ..Cursor::default() },
            receiver,
            public_url,
            store: Arc::clone(&service.gate.store),
            world: Arc::clone(&service.gate.world),
            pulse: service.hub.pulse(),
            leaving: service.leaving(),
            sure_until: Instant::now(),
            started_at: 0,
            store_error: None,
        })
    }

    /// Follows the events until the process shuts down.
    pub(super) async fn keep_telling(mut self) {
        loop {
            let Err(stop) = self.follow().await;
            match stop {
                Stop::Leaving => return,
                Stop::Elsewhere => {}
                Stop::Store(error) => {
                    if self.store_error.as_ref() != Some(&error) {
                        let receiver = &self.receiver.name;
                        warn!(receiver, "notifications to {receiver} go on later: {error}");
                    }
                    self.store_error = Some(error);
                }
            }
            if self.rest(LOOK_AGAIN).await.is_err() {
                return;
            }
        }
    }

    async fn follow(&mut self) -> Result<Infallible, Stop> {
        let newest = self.store.last_position().await?;
        let reached = self.take(&self.cursor.name, newest).await?;
        self.cursor.reached = reached;
        self.started_at = newest;
        let mut timers = self.take_timers().await?;
        self.store_error = None;
        let mut seen = reached;
        loop {
            // Marked as seen before reading: an event that comes in between wakes this task again.
            self.pulse.borrow_and_update();
            let newest = self.store.last_position().await?;
            let page = self.read(seen, &timers).await?;
            for placed in &page {
                self.handle(placed, &mut timers).await?;
                seen = placed.position;
            }
            if !page.is_empty() {
                continue;
            }
            seen = seen.max(newest);
            if seen - self.cursor.reached.min(seen) >= PASS_BY {
                self.move_to(seen).await?;
            }
            self.fire(&mut timers).await?;
            self.wait(&timers).await?;
        }
    }

    /// Takes a cursor; a new one begins at `first`.
    async fn take(&self, name: &str, first: u64) -> Result<u64, Stop> {
        self.store.take_cursor(name, first).await?.ok_or(Stop::Elsewhere)
    }

    async fn take_timers(&self) -> Result<Timers, Stop> {
        let now = u64::try_from(self.world.now().as_millisecond()).unwrap_or(0);
        let mut taken = Vec::new();
        for timer in Timers::of(&self.receiver) {
            let reached = self.take(&timer.cursor, now).await?;
            taken.push((timer, reached));
        }
        Ok(Timers::start(taken, &*self.store).await?)
    }

    async fn read(&self, after: u64, timers: &Timers) -> Result<Vec<PlacedEvent>, StoreError> {
        let mut event_types = self.receiver.events.clone();
        if !timers.is_empty() && !event_types.contains(&EventType::ApprovalRequested) {
            event_types.push(EventType::ApprovalRequested);
        }
        // No type would mean every type.
        if event_types.is_empty() {
            return Ok(Vec::new());
        }
        let query = EventQuery { after, event_types, limit: PAGE, ..EventQuery::default() };
        self.store.events(query).await
    }

    async fn handle(&mut self, placed: &PlacedEvent, timers: &mut Timers) -> Result<(), Stop> {
        let PlacedEvent { position, event } = placed;
        if !timers.is_empty() && event.event_type == EventType::ApprovalRequested {
            let approval = approval_of(&*self.store, event).await?;
            // Those from before the start were found among the open approvals.
            let is_new = *position > self.started_at;
            approval.iter().for_each(|approval| timers.add(approval, is_new));
        }
        if self.receiver.events.contains(&event.event_type) {
            self.deliver(Subject::Event(event)).await?;
            self.move_to(*position).await?;
        }
        Ok(())
    }

    /// Sends the reminders and escalations that are due.
    async fn fire(&mut self, timers: &mut Timers) -> Result<(), Stop> {
        while let Some((timer, id)) = timers.next(self.world.now()) {
            self.deliver(Subject::Open(&timer, id)).await?;
            let reached = timers.done();
            let cursor = Cursor { name: timer.cursor, reached, error: None };
            if !self.store.move_cursor(&cursor).await? {
                return Err(Stop::Elsewhere);
            }
        }
        Ok(())
    }

    /// Sends until the message arrives, or is given up.
    async fn deliver(&mut self, subject: Subject<'_>) -> Result<(), Stop> {
        let (mut tries, mut refused) = (0, 0);
        loop {
            self.be_sure().await?;
            let Some(message) = self.compose(&subject).await? else { return Ok(()) };
            let sent = tokio::select! {
                sent = self.channel.send(&message) => sent,
                () = wait_until_set(&mut self.leaving) => return Err(Stop::Leaving),
            };
            let (why, asked) = match sent {
                Ok(()) => return self.arrived().await,
                Err(Trouble::Later(why, asked)) => (why, asked),
                Err(Trouble::Refused(why)) => {
                    refused += 1;
                    if refused >= REFUSED_TRIES_MAX {
                        return self.give_up(&message, &why).await;
                    }
                    (why, None)
                }
            };
            self.failed(&why).await?;
            self.rest(pause_after(tries, asked)).await?;
            tries += 1;
        }
    }

    async fn compose(&self, subject: &Subject<'_>) -> Result<Option<Message>, StoreError> {
        let url = self.public_url.as_deref();
        match subject {
            Subject::Event(event) => Message::of_event(&*self.store, event, url).await,
            Subject::Open(timer, id) => {
                let approval = readable(self.store.approval(*id).await)?;
                Ok(approval.and_then(|it| timer.message(&it, self.world.now(), url)))
            }
        }
    }

    async fn arrived(&mut self) -> Result<(), Stop> {
        let receiver = &self.receiver.name;
        count(receiver, |counts| {
            counts.delivered += 1;
            counts.is_failing = false;
        });
        if self.cursor.error.take().is_some() {
            info!(receiver, "notifications to {receiver} arrive again");
            self.move_to(self.cursor.reached).await?;
        }
        Ok(())
    }

    async fn failed(&mut self, why: &str) -> Result<(), Stop> {
        let receiver = &self.receiver.name;
        count(receiver, |counts| {
            counts.failed += 1;
            counts.is_failing = true;
        });
        if self.cursor.error.is_none() {
            warn!(receiver, "notifications to {receiver} fail, and are tried again: {why}");
        }
        if self.cursor.error.as_deref() != Some(why) {
            self.cursor.error = Some(why.to_owned());
            self.move_to(self.cursor.reached).await?;
        }
        Ok(())
    }

    /// Skips a message that the receiver does not take.
    async fn give_up(&mut self, message: &Message, why: &str) -> Result<(), Stop> {
        let (receiver, message_id) = (&self.receiver.name, &message.id);
        error!(receiver, message_id, "{receiver} refuses a notification, which is skipped: {why}");
        count(receiver, |counts| {
            counts.failed += 1;
            counts.skipped += 1;
            counts.is_failing = true;
        });
        self.cursor.error = Some(format!("a message was skipped: {why}"));
        self.move_to(self.cursor.reached).await
    }

    async fn move_to(&mut self, position: u64) -> Result<(), Stop> {
        self.cursor.reached = self.cursor.reached.max(position);
        match self.store.move_cursor(&self.cursor).await? {
            true => Ok(()),
            false => Err(Stop::Elsewhere),
        }
    }

    /// Asks again whether this node still has the cursor, unless it has asked a moment ago.
    async fn be_sure(&mut self) -> Result<(), Stop> {
        if Instant::now() >= self.sure_until {
            self.take(&self.cursor.name, self.cursor.reached).await?;
            self.sure_until = Instant::now() + SURE_FOR;
        }
        Ok(())
    }

    async fn rest(&mut self, pause: Duration) -> Result<(), Stop> {
        tokio::select! {
            () = tokio::time::sleep(pause) => Ok(()),
            () = wait_until_set(&mut self.leaving) => Err(Stop::Leaving),
        }
    }

    /// Waits for an event, or for a timer.
    async fn wait(&mut self, timers: &Timers) -> Result<(), Stop> {
        let now = u64::try_from(self.world.now().as_millisecond()).unwrap_or(0);
        let next = timers.next_at().map(|at| Duration::from_millis(at.saturating_sub(now)));
        tokio::select! {
            () = tokio::time::sleep(next.unwrap_or(WAIT_MAX).min(WAIT_MAX)) => return Ok(()),
            changed = self.pulse.changed() => changed.map_err(|_| Stop::Leaving)?,
            () = wait_until_set(&mut self.leaving) => return Err(Stop::Leaving),
        }
        self.rest(GATHER).await
    }
}

/// The pause before the next try: half of it is random, so that receivers are not called all at once.
fn pause_after(tries: u32, asked: Option<Duration>) -> Duration {
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
