//! Server-sent events, with a limit on each. Tool servers, models and our own gateway send them.

/// One event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// Its lines of data, joined.
    pub data: Option<String>,
    /// The id from which the stream can be resumed.
    pub id: Option<String>,
    /// What kind of event it is.
    pub event_type: Option<String>,
}

/// Why a stream cannot be read any further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreadable {
    /// An event is longer than the limit.
    TooLong,
    /// A line is not UTF-8.
    NotUtf8,
}

/// Assembles events from chunks of bytes.
#[derive(Debug, Default)]
pub struct Parser {
    line: Vec<u8>,
    event: Event,
    event_bytes: usize,
    event_bytes_max: usize,
    is_after_return: bool,
}

impl Parser {
    /// A parser with this limit on the bytes of an event.
    pub fn new(event_bytes_max: usize) -> Self {
        Self { event_bytes_max, ..Self::default() }
    }

    /// The events that this chunk completes. An event with neither data nor an id is dropped.
    pub fn feed(&mut self, piece: &[u8]) -> Result<Vec<Event>, Unreadable> {
        let mut events = Vec::new();
        for byte in piece {
            // Every byte counts towards the limit until an event is returned: an endless stream of comments
            // and empty lines must hit it.
            self.event_bytes += 1;
            if self.event_bytes > self.event_bytes_max {
                return Err(Unreadable::TooLong);
            }
            let is_second_half = *byte == b'\n' && std::mem::take(&mut self.is_after_return);
            match byte {
                b'\n' if is_second_half => {}
                b'\n' | b'\r' => {
                    self.is_after_return = *byte == b'\r';
                    events.extend(self.end_line()?);
                }
                byte => {
                    self.is_after_return = false;
                    self.line.push(*byte);
                }
            }
        }
        Ok(events)
    }

    fn end_line(&mut self) -> Result<Option<Event>, Unreadable> {
        let line = String::from_utf8(std::mem::take(&mut self.line));
        let line = line.map_err(|_| Unreadable::NotUtf8)?;
        if line.is_empty() {
            let event = std::mem::take(&mut self.event);
            let has_come = event.data.is_some() || event.id.is_some();
            if has_come {
                self.event_bytes = 0;
            }
            return Ok(has_come.then_some(event));
        }
        let (field, value) = line.split_once(':').unwrap_or((&line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "data" => match &mut self.event.data {
                Some(data) => {
                    data.push('\n');
                    data.push_str(value);
                }
                None => self.event.data = Some(value.to_owned()),
            },
            "id" => self.event.id = Some(value.to_owned()),
            "event" => self.event.event_type = Some(value.to_owned()),
            // Comments and retry times are ignored.
            _ => {}
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests;
