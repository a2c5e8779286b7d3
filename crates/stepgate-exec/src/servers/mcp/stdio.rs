//! One message a line, over the standard input and output of a process.

use std::io;
use std::sync::Arc;

use rmcp::RoleClient;
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWriteExt, BufReader};
use tokio::process::ChildStdin;
use tokio::sync::{Mutex, mpsc};

use super::tap::{Incoming, ServerAnswer, Tap};
use crate::servers::child::Ends;
use crate::servers::spec::{DROPPED_BYTES_MAX, WRITE_WAIT};

/// Limit of the messages that wait for the SDK. Beyond it the server is not read (backpressure).
const QUEUE_MAX: usize = 64;

/// Both directions.
pub(super) struct Pipe {
    incoming: mpsc::Receiver<RxJsonRpcMessage<RoleClient>>,
    stdin: Arc<Mutex<Option<ChildStdin>>>,
    tap: Arc<Tap>,
}

impl Pipe {
    pub(super) fn new(ends: Ends, tap: Arc<Tap>, message_bytes_max: usize) -> Self {
        let (sender, incoming) = mpsc::channel(QUEUE_MAX);
        let stdin = Arc::new(Mutex::new(Some(ends.stdin)));
        tokio::spawn(read(ends.stdout, Arc::clone(&tap), message_bytes_max, sender));
        Self { incoming, stdin, tap }
    }
}

impl Transport<RoleClient> for Pipe {
    type Error = io::Error;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        let id = self.tap.outgoing(&message);
        let (stdin, tap) = (Arc::clone(&self.stdin), Arc::clone(&self.tap));
        async move {
            let written = match tokio::time::timeout(WRITE_WAIT, write(&stdin, &message)).await {
                Ok(written) => written,
                Err(_) => Err(io::Error::other("it does not read what it is sent")),
            };
            if let Err(error) = &written {
                // Part of a line may have been written: the pipe cannot be used any more.
                let why = if error.kind() == io::ErrorKind::BrokenPipe {
                    "it closed its input".to_owned()
                } else {
                    format!("a message could not be sent: {error}")
                };
                tap.close(&why);
                if let Some(id) = id {
                    tap.put(&id, ServerAnswer::Lost(why));
                }
            }
            written
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        self.incoming.recv().await
    }

    async fn close(&mut self) -> io::Result<()> {
        // A well-behaved server ends when its input is closed.
        drop(self.stdin.lock().await.take());
        Ok(())
    }
}

async fn write(
    stdin: &Mutex<Option<ChildStdin>>,
    message: &TxJsonRpcMessage<RoleClient>,
) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    let mut stdin = stdin.lock().await;
    let stdin = stdin.as_mut().ok_or(io::ErrorKind::NotConnected)?;
    stdin.write_all(&line).await?;
    stdin.flush().await
}

/// Reads until the end, or until the connection must be closed.
async fn read(
    stdout: impl AsyncRead + Unpin,
    tap: Arc<Tap>,
    message_bytes_max: usize,
    sender: mpsc::Sender<RxJsonRpcMessage<RoleClient>>,
) {
    let (reader, bytes_max) = (BufReader::new(stdout), message_bytes_max);
    let mut lines = Lines { reader, bytes_max, dropped_max: DROPPED_BYTES_MAX };
    let why = loop {
        let judged = match lines.next().await {
            Ok(Some(ReadLine::Whole(line))) if line.is_empty() => tap.unasked_for(1),
            Ok(Some(ReadLine::Whole(line))) => tap.incoming(&line),
            Ok(Some(ReadLine::TooLong { beginning, end })) => {
                tap.too_long(&beginning, &end, message_bytes_max)
            }
            Ok(Some(ReadLine::Endless { bytes })) => tap.endless(bytes),
            Ok(None) => break "it closed its output".to_owned(),
            Err(error) => break format!("its output cannot be read: {error}"),
        };
        match judged {
            Incoming::Pass(message) => {
                if sender.send(*message).await.is_err() {
                    break "the connection ended".to_owned();
                }
            }
            Incoming::Done => {}
            Incoming::Close(why) => break why,
        }
    };
    tap.close(&why);
}

enum ReadLine {
    Whole(Vec<u8>),
    TooLong { beginning: Vec<u8>, end: Vec<u8> },
    Endless { bytes: usize },
}

/// Lines with a limit.
struct Lines<R> {
    reader: BufReader<R>,
    bytes_max: usize,
    /// How much of a line beyond that is read and discarded.
    dropped_max: usize,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    /// The next line without its line end, or none at the end of the stream. An incomplete last line is
    /// dropped.
    async fn next(&mut self) -> io::Result<Option<ReadLine>> {
        const BEGINNING_BYTES: usize = 4096;
        const END_BYTES: usize = 128;
        let bytes_max = self.bytes_max.saturating_add(self.dropped_max);
        let (mut line, mut end, mut is_too_long) = (Vec::new(), Vec::new(), false);
        let mut bytes = 0_usize;
        loop {
            let chunk = self.reader.fill_buf().await?;
            if chunk.is_empty() {
                return Ok(None);
            }
            let newline = chunk.iter().position(|byte| *byte == b'\n');
            let piece = chunk.get(..newline.unwrap_or(chunk.len())).unwrap_or_default();
            let used = newline.map_or(piece.len(), |at| at + 1);
            if is_too_long || line.len() + piece.len() > self.bytes_max {
                if !is_too_long {
                    is_too_long = true;
                    end.clone_from(&line);
                    line.extend_from_slice(piece);
                    line.truncate(BEGINNING_BYTES);
                    line.shrink_to_fit();
                }
                end.extend_from_slice(piece);
                let surplus = end.len().saturating_sub(END_BYTES);
                end.drain(..surplus);
                end.shrink_to(BEGINNING_BYTES);
            } else {
                line.extend_from_slice(piece);
            }
            self.reader.consume(used);
            bytes = bytes.saturating_add(used);
            if newline.is_some() {
                return Ok(Some(match is_too_long {
                    true => ReadLine::TooLong { beginning: line, end },
                    false => ReadLine::Whole(line.strip_suffix(b"\r").unwrap_or(&line).to_vec()),
                }));
            }
            if bytes > bytes_max {
                return Ok(Some(ReadLine::Endless { bytes }));
            }
        }
    }
}

#[cfg(test)]
mod tests;
