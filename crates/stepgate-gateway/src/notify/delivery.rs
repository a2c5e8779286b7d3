//! The task of one receiver: follows the events from its cursor, and sends each message at least once.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use stepgate_core::event::{Event, EventType};
use stepgate_core::ids::ApprovalId;
use stepgate_core::ports::{Cursor, EventQuery, PlacedEvent, StoreError, World};
use tracing::{error, warn};

use super::channel::Channel;
use super::cursor_of;
use super::message::{Message, approval_of, readable};
use super::settings::ReceiverSettings;
use super::timers::{Timer, Timers};
use crate::follow::{Follower, Stop, Trouble, pause_after};
use crate::service::Service;

/// How often a message is tried that its receiver refuses for good.
const REFUSED_TRIES_MAX: u32 = 5;
/// Events per page.
const PAGE: usize = 64;

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
    follower: Follower,
    world: Arc<dyn World>,
    /// The last position when the timers started.
    started_at: u64,
}

impl Delivery {
    pub(super) fn new(
        receiver: ReceiverSettings,
        public_url: Option<String>,
        service: &Service,
    ) -> Result<Self, String> {
        let (name, channel) = (&receiver.name, Channel::new(&receiver)?);
        let follower = Follower::new(cursor_of(name), format!("notifications to {name}"), service);
        if let Some(why) = channel.problem() {
            warn!(receiver = name, "notifications to {name} cannot be sent yet: {why}");
        }
        Ok(Self {
            channel,
            follower,
            receiver,
            public_url,
            world: Arc::clone(&service.gate.world),
            started_at: 0,
        })
    }

    pub(super) async fn keep_telling(mut self) {
        loop {
            let Err(stop) = self.follow().await;
            if self.follower.recover(stop).await.is_none() {
                return;
            }
        }
    }

    async fn follow(&mut self) -> Result<Infallible, Stop> {
        let newest = self.follower.newest().await?;
        self.follower.begin(newest).await?;
        self.started_at = newest;
        let mut timers = self.take_timers().await?;
        let mut seen = self.follower.cursor.reached;
        loop {
            let newest = self.follower.newest().await?;
            let page = self.read(seen, &timers).await?;
            for placed in &page {
                self.handle(placed, &mut timers).await?;
                seen = placed.position;
            }
            if !page.is_empty() {
                continue;
            }
            seen = seen.max(newest);
            self.follower.pass_by(seen).await?;
            self.fire(&mut timers).await?;
            let now = u64::try_from(self.world.now().as_millisecond()).unwrap_or(0);
            let next = timers.next_at().map(|at| Duration::from_millis(at.saturating_sub(now)));
            self.follower.wait(next.unwrap_or(Duration::MAX)).await?;
        }
    }

    async fn take_timers(&self) -> Result<Timers, Stop> {
        let now = u64::try_from(self.world.now().as_millisecond()).unwrap_or(0);
        let mut taken = Vec::new();
        for timer in Timers::of(&self.receiver) {
            let reached = self.follower.take(&timer.cursor, now).await?;
            taken.push((timer, reached));
        }
        Ok(Timers::start(taken, &*self.follower.store).await?)
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
        self.follower.store.events(query).await
    }

    async fn handle(&mut self, placed: &PlacedEvent, timers: &mut Timers) -> Result<(), Stop> {
        let PlacedEvent { position, event } = placed;
        if !timers.is_empty() && event.event_type == EventType::ApprovalRequested {
            let approval = approval_of(&*self.follower.store, event).await?;
            // Those from before the start were found among the open approvals.
            let is_new = *position > self.started_at;
            approval.iter().for_each(|approval| timers.add(approval, is_new));
        }
        if self.receiver.events.contains(&event.event_type) {
            self.deliver(Subject::Event(event)).await?;
            self.follower.move_to(*position).await?;
        }
        Ok(())
    }

    /// Sends the reminders and escalations that are due.
    async fn fire(&mut self, timers: &mut Timers) -> Result<(), Stop> {
        while let Some((timer, id)) = timers.next(self.world.now()) {
            self.deliver(Subject::Open(&timer, id)).await?;
            let reached = timers.done();
            let cursor = Cursor { name: timer.cursor, reached, error: None };
            if !self.follower.store.move_cursor(&cursor).await? {
                return Err(Stop::Elsewhere);
            }
        }
        Ok(())
    }

    /// Sends until the message arrives, or is given up.
    async fn deliver(&mut self, subject: Subject<'_>) -> Result<(), Stop> {
        let (mut tries, mut refused) = (0, 0);
        loop {
            self.follower.be_sure().await?;
            let Some(message) = self.compose(&subject).await? else { return Ok(()) };
            let sent = self.follower.unless_leaving(self.channel.send(&message)).await?;
            let (why, asked) = match sent {
                Ok(()) => return self.follower.arrived(1).await,
                Err(Trouble::Later(why, asked)) => (why, asked),
                Err(Trouble::Refused(why)) => {
                    refused += 1;
                    if refused >= REFUSED_TRIES_MAX {
                        return self.give_up(&message, &why).await;
                    }
                    (why, None)
                }
            };
            self.follower.failed(&why).await?;
            self.follower.rest(pause_after(tries, asked)).await?;
            tries += 1;
        }
    }

    async fn compose(&self, subject: &Subject<'_>) -> Result<Option<Message>, StoreError> {
        let url = self.public_url.as_deref();
        match subject {
            Subject::Event(event) => Message::of_event(&*self.follower.store, event, url).await,
            Subject::Open(timer, id) => {
                let approval = readable(self.follower.store.approval(*id).await)?;
                Ok(approval.and_then(|it| timer.message(&it, self.world.now(), url)))
            }
        }
    }

    /// Skips a message that the receiver does not take.
    async fn give_up(&mut self, message: &Message, why: &str) -> Result<(), Stop> {
        let (receiver, message_id) = (&self.receiver.name, &message.id);
        error!(receiver, message_id, "{receiver} refuses a notification, which is skipped: {why}");
        self.follower.count(|counts| {
            counts.failed += 1;
            counts.skipped += 1;
            counts.is_failing = true;
        });
        self.follower.cursor.error = Some(format!("a message was skipped: {why}"));
        self.follower.move_to(self.follower.cursor.reached).await
    }
}
