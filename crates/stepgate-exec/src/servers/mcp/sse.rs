//! Server-sent events, with a limit on each.

/// One event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Event {
    pub(super) data: Option<String>,
    pub(super) id: Option<String>,
}

/// An event is longer than the limit, or not UTF-8.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unreadable;

/// Puts events together from pieces.
pub(super) struct Parser {
    line: Vec<u8>,
    event: Event,
    event_bytes: usize,
    event_bytes_max: usize,
    is_after_return: bool,
}

impl Parser {
    pub(super) fn new(event_bytes_max: usize) -> Self {
        Self {
            line: Vec::new(),
            event: Event::default(),
            event_bytes: 0,
            event_bytes_max,
            is_after_return: false,
        }
    }

    /// The events that are complete with this piece.
    pub(super) fn feed(&mut self, piece: &[u8]) -> Result<Vec<Event>, Unreadable> {
        let mut events = Vec::new();
        for byte in piece {
            // Every byte counts until an event comes of it: comments and empty lines without end do not.
            self.event_bytes += 1;
            if self.event_bytes > self.event_bytes_max {
                return Err(Unreadable);
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
        let line = String::from_utf8(std::mem::take(&mut self.line)).map_err(|_| Unreadable)?;
        if line.is_empty() {
            let event = std::mem::take(&mut self.event);
            let has_come = event != Event::default();
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
            // Comments, names and retry times say nothing to us.
            _ => {}
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests;
