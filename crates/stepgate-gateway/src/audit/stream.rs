//! The task of one stream: follows the events from its cursor, and sends them in batches.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tracing::warn;

use super::channel::Channel;
use super::history::{Gap, History, Page};
use super::line::{Line, Lines};
use super::settings::{Beginning, StreamSettings};
use super::{BATCH_BYTES_MAX, PAGE, cursor_of};
use crate::follow::{Follower, Stop, Trouble, pause_after};
use crate::service::{ArchiveSettings, Service};

/// The task of one stream.
pub(super) struct Stream {
    settings: StreamSettings,
    channel: Channel,
    history: History,
    lines: Lines,
    follower: Follower,
    /// Sent, and not certain to have arrived.
    uncertain: VecDeque<Sent>,
    /// How often the connection ended since something has certainly arrived.
    breaks: u32,
    /// How often an archive could not be read since one was.
    losses: u32,
    /// Most events that are sent at once: fewer after a try that failed, for a receiver that is slow or takes only so much.
    batch_max: usize,
}

/// A batch that was sent.
struct Sent {
    /// When it will have arrived, if the connection is still open then.
    certain_at: Instant,
    /// The position of its last event.
    last: u64,
    events: u64,
}

impl Stream {
    pub(super) fn new(
        settings: StreamSettings,
        archives: &ArchiveSettings,
        service: &Service,
    ) -> Result<Self, String> {
        let (name, channel) = (&settings.name, Channel::new(&settings)?);
        let follower = Follower::new(cursor_of(name), format!("audit events to {name}"), service);
        if let Some(why) = channel.problem() {
            warn!(stream = name, "audit events to {name} cannot be sent yet: {why}");
        }
        Ok(Self {
            channel,
            history: History::new(settings.events.clone(), archives.clone()),
            lines: Lines::new(settings.format),
            follower,
            settings,
            uncertain: VecDeque::new(),
            breaks: 0,
            losses: 0,
            batch_max: PAGE,
        })
    }

    pub(super) async fn keep_sending(mut self) {
        loop {
            let Err(stop) = self.follow().await;
            if self.follower.recover(stop).await.is_none() {
                return;
            }
        }
    }

    async fn follow(&mut self) -> Result<Infallible, Stop> {
        let first = match self.settings.beginning {
            Beginning::Start => 0,
            Beginning::Now => self.follower.newest().await?,
        };
        self.follower.begin(first).await?;
        self.uncertain.clear();
        let mut seen = self.follower.cursor.reached;
        loop {
            let is_broken = self.channel.is_broken();
            if is_broken {
                // Only here, where nothing is sent: what was sent before is not taken for sent over the new one.
                self.channel.reset();
            }
            if is_broken && !self.uncertain.is_empty() {
                self.uncertain.clear();
                let why = "the connection ended: the last events are sent again";
                self.pause(why, self.breaks, None).await?;
                self.breaks = self.breaks.saturating_add(1);
                seen = self.follower.cursor.reached;
            }
            let newest = self.follower.newest().await?;
            let Some(Page { events, end }) = self.page(seen, newest).await? else { continue };
            if !events.is_empty() {
                let lines = self.lines.of(&*self.follower.store, &events).await?;
                match self.send(&lines).await? {
                    true => seen = end,
                    false => seen = self.follower.cursor.reached,
                }
            } else {
                seen = end;
                self.settle().await?;
                if self.uncertain.is_empty() {
                    self.follower.pass_by(seen).await?;
                }
                if end < newest {
                    continue;
                }
                let next = self.uncertain.front().map(|sent| sent.certain_at);
                let next = next.map_or(Duration::MAX, |at| at.duration_since(Instant::now()));
                self.follower.wait(next).await?;
            }
        }
    }

    /// The next events. None where an archive that has some cannot be read: that is tried again, and nothing is skipped.
    async fn page(&mut self, seen: u64, newest: u64) -> Result<Option<Page>, Stop> {
        let store = Arc::clone(&self.follower.store);
        let page = self.history.page(&*store, seen, newest, u64::MAX);
        match self.follower.unless_leaving(page).await? {
            Ok(page) => {
                if std::mem::take(&mut self.losses) > 0 {
                    self.follower.arrived(0).await?;
                }
                Ok(Some(page))
            }
            Err(Gap::Store(error)) => Err(error.into()),
            Err(Gap::Archive(lost)) => {
                self.pause(&lost.why, self.losses, None).await?;
                self.losses = self.losses.saturating_add(1);
                Ok(None)
            }
        }
    }

    /// Sends until every line has arrived. False where earlier ones may not have: they are sent again first.
    async fn send(&mut self, lines: &[Line]) -> Result<bool, Stop> {
        let (mut rest, mut tries, mut has_failed) = (lines, 0, false);
        while let Some(batch) = batches(rest).next() {
            let batch = batch.get(..self.batch_max.min(batch.len())).unwrap_or(batch);
            self.follower.be_sure().await?;
            let sent = self.follower.unless_leaving(self.channel.send(batch)).await?;
            if sent.is_err() {
                has_failed = true;
                self.batch_max = (batch.len() / 2).max(1);
            }
            match sent {
                Ok(()) => {
                    self.sent(batch).await?;
                    rest = rest.get(batch.len()..).unwrap_or_default();
                    tries = 0;
                    continue;
                }
                // It may be too much at once, or one that the receiver does not like.
                Err(Trouble::Refused(why)) if batch.len() > 1 => {
                    self.follower.failed(&why).await?;
                    continue;
                }
                Err(Trouble::Refused(why)) => self.pause(&why, tries, None).await?,
                Err(Trouble::Later(why, asked)) => self.pause(&why, tries, asked).await?,
            }
            tries += 1;
            if !self.uncertain.is_empty() {
                self.uncertain.clear();
                return Ok(false);
            }
        }
        if !has_failed {
            self.batch_max = (self.batch_max * 2).min(PAGE);
        }
        Ok(true)
    }

    async fn pause(&mut self, why: &str, tries: u32, asked: Option<Duration>) -> Result<(), Stop> {
        self.follower.failed(why).await?;
        self.follower.rest(pause_after(tries, asked)).await
    }

    /// Notes what was sent, and moves the cursor as far as it is certain.
    async fn sent(&mut self, batch: &[Line]) -> Result<(), Stop> {
        let certain_at = Instant::now() + self.channel.certain_after();
        let events = batch.len() as u64;
        let sent = batch.last().map(|line| Sent { certain_at, last: line.position, events });
        self.uncertain.extend(sent);
        self.settle().await
    }

    /// Moves the cursor past what has certainly arrived.
    async fn settle(&mut self) -> Result<(), Stop> {
        if self.channel.is_broken() {
            return Ok(());
        }
        let now = Instant::now();
        let (mut reached, mut events) = (None, 0);
        while let Some(sent) = self.uncertain.pop_front_if(|sent| sent.certain_at <= now) {
            (reached, events) = (Some(sent.last), events + sent.events);
        }
        let Some(position) = reached else { return Ok(()) };
        self.breaks = 0;
        self.follower.arrived(events).await?;
        self.follower.move_to(position).await
    }
}

/// The lines in parts that can be sent at once.
pub(super) fn batches(lines: &[Line]) -> impl Iterator<Item = &[Line]> {
    let mut bytes = 0;
    lines.chunk_by(move |before, after| {
        bytes += before.text.len();
        let fits = bytes + after.text.len() <= BATCH_BYTES_MAX;
        if !fits {
            bytes = 0;
        }
        fits
    })
}
