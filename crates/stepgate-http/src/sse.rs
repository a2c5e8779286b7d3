//! Server-sent events, as far as Stepgate sends them: `id`, `event` and one `data` line.

use anyhow::Context;
use axum::body::Body;
use http_body_util::BodyExt;

/// Longest event that is read.
const EVENT_BYTES_MAX: usize = 16 * 1024 * 1024;

/// A stream of events.
pub struct Events {
    body: Body,
    buffer: Vec<u8>,
}

/// One event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// Its id, or nothing.
    pub id: String,
    /// Its type, or nothing.
    pub event_type: String,
    /// What it says.
    pub data: String,
}

impl Events {
    /// The events of a response.
    pub fn new(body: Body) -> Self {
        Self { body, buffer: Vec::new() }
    }

    /// The next event; none where the stream has ended.
    pub async fn next(&mut self) -> anyhow::Result<Option<Received>> {
        loop {
            while let Some(end) = self.buffer.windows(2).position(|pair| pair == b"\n\n") {
                let block: Vec<u8> = self.buffer.drain(..end + 2).collect();
                if let Some(event) = parse(&String::from_utf8_lossy(&block)) {
                    return Ok(Some(event));
                }
            }
            anyhow::ensure!(self.buffer.len() <= EVENT_BYTES_MAX, "an event is too long");
            let Some(frame) = self.body.frame().await else {
                return Ok(None);
            };
            if let Ok(data) = frame.context("the stream broke off")?.into_data() {
                self.buffer.extend_from_slice(&data);
            }
        }
    }
}

/// An event; none where the block is a heartbeat.
fn parse(block: &str) -> Option<Received> {
    let mut event = Received::default();
    for line in block.lines() {
        let Some((name, value)) = line.split_once(':') else { continue };
        let value = value.strip_prefix(' ').unwrap_or(value);
        match name {
            "id" => event.id = value.to_owned(),
            "event" => event.event_type = value.to_owned(),
            "data" => event.data.push_str(value),
            _ => {}
        }
    }
    (!event.data.is_empty()).then_some(event)
}

#[cfg(test)]
mod tests {
    use super::{Received, parse};

    #[test]
    fn an_event_is_read_and_a_heartbeat_is_none() {
        let event = Received { id: "7".into(), event_type: "a".into(), data: "{}".into() };
        assert_eq!(parse("id: 7\nevent: a\ndata: {}\n\n"), Some(event));
        assert_eq!(parse(":\n\n"), None);
    }
}
