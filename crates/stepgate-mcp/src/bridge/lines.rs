//! Reads lines, with a limit on their length.

use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};

const LINE_BYTES_MAX: usize = 8 * 1024 * 1024;

pub(super) struct Lines<R> {
    reader: BufReader<R>,
}

pub(super) enum Next {
    Line(Vec<u8>),
    /// The line was too long: it was read to its end and discarded.
    TooLong,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    pub(super) fn new(input: R) -> Self {
        Self { reader: BufReader::new(input) }
    }

    /// The next line that is not empty; none at the end of the input.
    pub(super) async fn next(&mut self) -> std::io::Result<Option<Next>> {
        let mut line = Vec::new();
        let mut is_too_long = false;
        loop {
            let chunk = self.reader.fill_buf().await?;
            if chunk.is_empty() {
                // A last line without a line break is incomplete and is not a message.
                return Ok(None);
            }
            let end = chunk.iter().position(|byte| *byte == b'\n');
            let taken = end.map_or(chunk.len(), |end| end + 1);
            let text = chunk.get(..end.unwrap_or(taken)).unwrap_or_default();
            is_too_long |= line.len() + text.len() > LINE_BYTES_MAX;
            match is_too_long {
                true => line.clear(),
                false => line.extend_from_slice(text),
            }
            self.reader.consume(taken);
            if end.is_none() {
                continue;
            }
            if is_too_long {
                return Ok(Some(Next::TooLong));
            }
            if line.last() == Some(&b'\r') {
                line.pop();
            }
            if !line.is_empty() {
                return Ok(Some(Next::Line(line)));
            }
        }
    }
}

#[cfg(test)]
mod tests;
