//! The audit stream out: every event, to the receivers that the configuration names.
//!
//! Start here. Each stream has a task of its own (`stream`), which follows the events from a durable cursor and
//! sends them in batches (`channel`), each event at least once and in order. None is ever skipped: a receiver
//! that refuses one holds up its own stream and nothing else. `history` reads the events, also those of runs that have left
//! the store; `line` and `ocsf` say how an event is written.

mod channel;
mod file;
mod history;
mod line;
mod ocsf;
mod otlp;
mod settings;
mod stream;
mod syslog;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

use stepgate_core::event::EventType;
use stepgate_core::ports::{Store, StoreError};

use crate::follow::Trouble;
use crate::follow::counts::{self, Counts};
use crate::service::{ArchiveSettings, Service};

pub use file::renamed;
pub use line::{Format, Line};
pub use settings::{Beginning, ReceiverSettings, StreamSettings};

use channel::Channel;
use history::{Gap, History};
use line::Lines;
use stream::{Stream, batches};

/// Events per page.
const PAGE: usize = 256;
/// Most bytes of a batch, if it has more than one event.
const BATCH_BYTES_MAX: usize = 1024 * 1024;
/// What the names of streams' cursors begin with.
const CURSORS: &str = "audit/";

/// Starts a task for each stream; they end when the process shuts down. The error names the stream.
/// Events of runs that have left the store are read from these archives.
pub fn begin(
    streams: Vec<StreamSettings>,
    archives: &ArchiveSettings,
    service: &Arc<Service>,
) -> Result<(), String> {
    let streams: Vec<_> = streams
        .into_iter()
        .map(|settings| Stream::new(settings, archives, service))
        .collect::<Result<_, String>>()?;
    for stream in streams {
        tokio::spawn(stream.keep_sending());
    }
    Ok(())
}

/// Checks the settings of every stream, without its secrets. The error names the stream.
pub fn check(streams: &[StreamSettings]) -> Result<(), String> {
    streams.iter().try_for_each(|settings| Channel::new(settings).map(drop))
}

/// The events of a stream in a range of positions, page by page, also those of runs that have left the store.
pub struct Pages<'a> {
    store: &'a dyn Store,
    history: History,
    lines: Lines,
    after: u64,
    last: u64,
    lost: Vec<String>,
}

impl<'a> Pages<'a> {
    /// Those of these types, all where none is named, in these positions.
    pub fn new(
        store: &'a dyn Store,
        archives: &ArchiveSettings,
        format: Format,
        events: Vec<EventType>,
        positions: RangeInclusive<u64>,
    ) -> Self {
        let (first, last) = positions.into_inner();
        let history = History::new(events, archives.clone());
        let (lines, after) = (Lines::new(format), first.saturating_sub(1));
        Self { store, history, lines, after, last, lost: Vec::new() }
    }

    /// The next page; empty at the end.
    pub async fn next(&mut self) -> Result<Vec<Line>, StoreError> {
        loop {
            let newest = self.store.last_position().await?.min(self.last);
            if self.after >= newest {
                return Ok(Vec::new());
            }
            let page = self.history.page(self.store, self.after, newest, self.last).await;
            let mut page = match page {
                Ok(page) => page,
                Err(Gap::Store(error)) => return Err(error),
                Err(Gap::Archive(lost)) => {
                    self.history.give_up(lost.archive_id);
                    self.lost.push(lost.why);
                    continue;
                }
            };
            self.after = page.end;
            page.events.retain(|placed| placed.position <= self.last);
            if !page.events.is_empty() {
                return self.lines.of(self.store, &page.events).await;
            }
        }
    }

    /// The archives that were passed over, because their events cannot be had; each with how many events it has.
    pub fn lost(self) -> Vec<String> {
        self.lost
    }
}

/// Sends a range of events once more: the cursor stays where it is. `tell` is told the position of each that has
/// arrived, at the end where a receiver acknowledges nothing; the error says why the next ones did not. Returns the
/// archives whose events could not be sent.
pub async fn send_again(
    store: &dyn Store,
    archives: &ArchiveSettings,
    settings: &StreamSettings,
    positions: RangeInclusive<u64>,
    mut tell: impl FnMut(u64),
) -> Result<Vec<String>, String> {
    let mut channel = Channel::new(settings)?;
    let is_certain_at_once = channel.certain_after().is_zero();
    let mut uncertain = Vec::new();
    let StreamSettings { format, events, .. } = settings;
    let mut pages = Pages::new(store, archives, *format, events.clone(), positions);
    loop {
        let page = pages.next().await.map_err(|error| error.to_string())?;
        if page.is_empty() {
            break;
        }
        for batch in batches(&page) {
            channel.send(batch).await.map_err(Trouble::why)?;
            uncertain.extend(batch.iter().map(|line| line.position));
            if is_certain_at_once {
                uncertain.drain(..).for_each(&mut tell);
            }
        }
    }
    channel.close().await.map_err(Trouble::why)?;
    uncertain.into_iter().for_each(tell);
    Ok(pages.lost())
}

/// The cursor of a stream.
pub fn cursor_of(stream: &str) -> String {
    format!("{CURSORS}{stream}")
}

/// What became of each stream's events, by its name.
pub fn counts() -> BTreeMap<String, Counts> {
    counts::counts(CURSORS)
}
