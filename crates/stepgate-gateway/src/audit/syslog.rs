//! A stream over syslog: RFC 5424 messages, each with its length before it (RFC 5425, RFC 6587), over TLS or TCP.
//!
//! A receiver never says what it has. So a message counts as arrived when the connection was still open
//! [`Syslog::CERTAIN_AFTER`] after it was sent: by then the receiver's machine has acknowledged its bytes, because
//! the kernel ends a connection whose bytes are not acknowledged in [`UNACKNOWLEDGED_MAX`], and keeps few bytes of its own
//! ([`SEND_BUFFER`]) that a slow receiver has not even been sent. Where the connection ends before, the messages are
//! sent again.

use std::io::ErrorKind;
use std::time::Duration;

use rustix::net::sockopt;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf, split};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use super::line::{Level, Line};
use crate::follow::Trouble;
use crate::tls::Tls;

/// How long bytes may be under way.
const UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(5);
/// Bytes that the kernel takes before the receiver's machine does (it doubles them, for its own needs). A receiver that
/// takes less than this in [`Syslog::CERTAIN_AFTER`] is too slow to be sure of.
const SEND_BUFFER: usize = 32 * 1024;
/// Facility "log audit".
const FACILITY: u8 = 13;

trait Stream: AsyncRead + AsyncWrite + Send + Sync + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Sync + Unpin> Stream for T {}

/// A client of one syslog server.
pub(super) struct Syslog {
    host: String,
    port: u16,
    tls: Option<Tls>,
    timeout: Duration,
    connection: Option<Connection>,
}

struct Connection {
    writer: WriteHalf<Box<dyn Stream>>,
    /// Ends when the connection ends, and says whether the server has ended it in order.
    reader: JoinHandle<bool>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

impl Syslog {
    pub(super) const CERTAIN_AFTER: Duration = Duration::from_secs(8);

    pub(super) fn new(host: &str, port: u16, tls: bool, timeout: Duration) -> Result<Self, String> {
        let tls = tls.then(|| Tls::to(host, &[])).transpose();
        let tls = tls.map_err(|error| format!("{error:#}"))?;
        Ok(Self { host: host.to_owned(), port, tls, timeout, connection: None })
    }

    pub(super) async fn send(&mut self, lines: &[Line]) -> Result<(), Trouble> {
        let mut bytes = Vec::new();
        for line in lines {
            let message = message(line);
            bytes.extend_from_slice(format!("{} {message}", message.len()).as_bytes());
        }
        let timeout = self.timeout;
        let sent = tokio::time::timeout(timeout, self.write(&bytes)).await;
        let sent = sent.unwrap_or_else(|_| Err("it takes too long".to_owned()));
        sent.map_err(|why| {
            self.connection = None;
            Trouble::later(why)
        })
    }

    async fn write(&mut self, bytes: &[u8]) -> Result<(), String> {
        let mut connection = match self.connection.take() {
            Some(open) => open,
            None => self.connect().await?,
        };
        let writer = &mut connection.writer;
        writer.write_all(bytes).await.map_err(|error| error.to_string())?;
        writer.flush().await.map_err(|error| error.to_string())?;
        self.connection = Some(connection);
        Ok(())
    }

    async fn connect(&self) -> Result<Connection, String> {
        let tcp = TcpStream::connect((self.host.as_str(), self.port)).await;
        let tcp = tcp.map_err(|error| format!("no connection to {}: {error}", self.host))?;
        let limit = u32::try_from(UNACKNOWLEDGED_MAX.as_millis()).unwrap_or(u32::MAX);
        let limited = sockopt::set_tcp_user_timeout(&tcp, limit)
            .and_then(|()| sockopt::set_socket_send_buffer_size(&tcp, SEND_BUFFER));
        limited.map_err(|error| error.to_string())?;
        let stream: Box<dyn Stream> = match &self.tls {
            Some(tls) => Box::new(tls.connect(tcp).await.map_err(|error| format!("{error:#}"))?),
            None => Box::new(tcp),
        };
        let (reader, writer) = split(stream);
        Ok(Connection { writer, reader: tokio::spawn(read_to_end(reader)) })
    }

    /// Whether a connection ended since something was sent over it.
    pub(super) fn is_broken(&self) -> bool {
        self.connection.as_ref().is_none_or(|open| open.reader.is_finished())
    }

    /// Gives up the connection: the next messages are sent over a new one.
    pub(super) fn reset(&mut self) {
        self.connection = None;
    }

    /// Ends the connection, and waits until the server has ended it, too.
    pub(super) async fn close(mut self) -> Result<(), Trouble> {
        let Some(mut open) = self.connection.take() else { return Ok(()) };
        let closing = async {
            open.writer.shutdown().await.ok()?;
            (&mut open.reader).await.ok()
        };
        match tokio::time::timeout(self.timeout, closing).await {
            Ok(Some(true)) => Ok(()),
            Ok(Some(false)) => {
                Err(Trouble::later("it broke the connection: the last events may be missing"))
            }
            Ok(None) | Err(_) => {
                Err(Trouble::later("it did not end the connection: the last events may be missing"))
            }
        }
    }
}

/// What a server says means nothing; that it ends the connection does. True where it has ended it, and not broken it.
async fn read_to_end(mut reader: ReadHalf<Box<dyn Stream>>) -> bool {
    let mut buffer = [0; 512];
    loop {
        match reader.read(&mut buffer).await {
            Ok(0) => return true,
            Ok(_) => {}
            // Many servers end a connection without the farewell of TLS.
            Err(error) => return error.kind() == ErrorKind::UnexpectedEof,
        }
    }
}

fn message(line: &Line) -> String {
    let severity = match line.level {
        Level::Warning => 4,
        Level::Notice => 5,
        Level::Info => 6,
    };
    let uname = rustix::system::uname();
    let host = uname.nodename().to_string_lossy();
    let host: String = host.chars().filter(char::is_ascii_graphic).take(255).collect();
    let host = if host.is_empty() { "-" } else { &host };
    let (priority, pid) = (FACILITY * 8 + severity, std::process::id());
    let Line { ts, event_type, text, .. } = line;
    format!("<{priority}>1 {ts} {host} stepgate {pid} {} - {text}", event_type.as_str())
}
