//! A client-side reader of the gateway's server-sent events.

use std::collections::VecDeque;

use anyhow::Context;
use axum::body::Body;
use http_body_util::BodyExt;
use stepgate_core::sse::{Event, Parser, Unreadable};

/// Longest event that is read.
const EVENT_BYTES_MAX: usize = 16 * 1024 * 1024;

/// A stream of events.
pub struct Events {
    body: Body,
    parser: Parser,
    read: VecDeque<Received>,
}

/// One event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// Its id, or empty.
    pub id: String,
    /// Its type, or empty.
    pub event_type: String,
    /// Its data.
    pub data: String,
}

impl Events {
    /// The events of a response.
    pub fn new(body: Body) -> Self {
        Self { body, parser: Parser::new(EVENT_BYTES_MAX), read: VecDeque::new() }
    }

    /// The next event; none at the end of the stream.
    pub async fn next(&mut self) -> anyhow::Result<Option<Received>> {
        loop {
            if let Some(event) = self.read.pop_front() {
                return Ok(Some(event));
            }
            let Some(frame) = self.body.frame().await else {
                return Ok(None);
            };
            if let Ok(data) = frame.context("the stream broke off")?.into_data() {
                let events = self.parser.feed(&data).map_err(|why| match why {
                    Unreadable::TooLong => anyhow::anyhow!("an event is too long"),
                    Unreadable::NotUtf8 => anyhow::anyhow!("an event is not UTF-8"),
                })?;
                self.read.extend(events.into_iter().filter_map(received));
            }
        }
    }
}

/// An event; none if it has no data.
fn received(Event { data, id, event_type }: Event) -> Option<Received> {
    let (id, event_type) = (id.unwrap_or_default(), event_type.unwrap_or_default());
    data.filter(|data| !data.is_empty()).map(|data| Received { id, event_type, data })
}

#[cfg(test)]
mod tests;
