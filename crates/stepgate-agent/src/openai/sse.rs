//! Server-sent events, as far as models send them: the data of each event, with a limit.

/// Longest event.
const EVENT_BYTES_MAX: usize = 1024 * 1024;

/// An event was longer than it may be.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooLong;

/// Takes bytes as they come, and gives the data of every event that is whole.
#[derive(Default)]
pub(super) struct Parser {
    line: Vec<u8>,
    data: Option<Vec<u8>>,
    /// The last byte ended a line with a carriage return; a line feed after it belongs to it.
    after_return: bool,
}

impl Parser {
    pub(super) fn push(&mut self, bytes: &[u8]) -> Result<Vec<Vec<u8>>, TooLong> {
        let mut events = Vec::new();
        for byte in bytes {
            let follows_return = std::mem::take(&mut self.after_return);
            match byte {
                b'\n' if follows_return => {}
                b'\n' => events.extend(self.end_line()?),
                b'\r' => {
                    self.after_return = true;
                    events.extend(self.end_line()?);
                }
                byte => self.line.push(*byte),
            }
            if self.line.len() > EVENT_BYTES_MAX {
                return Err(TooLong);
            }
        }
        Ok(events)
    }

    /// An empty line ends an event; a `data` line adds to it; any other line says nothing to us.
    fn end_line(&mut self) -> Result<Option<Vec<u8>>, TooLong> {
        let line = std::mem::take(&mut self.line);
        if line.is_empty() {
            return Ok(self.data.take());
        }
        let Some(value) = line.strip_prefix(b"data") else { return Ok(None) };
        let value = match value {
            [] => value,
            [b':', b' ', rest @ ..] | [b':', rest @ ..] => rest,
            _ => return Ok(None),
        };
        match &mut self.data {
            Some(data) => {
                data.push(b'\n');
                data.extend_from_slice(value);
            }
            None => self.data = Some(value.to_vec()),
        }
        match self.data.as_ref().map_or(0, Vec::len) {
            length if length > EVENT_BYTES_MAX => Err(TooLong),
            _ => Ok(None),
        }
    }
}
