//! The bytes of a connection. If a request cannot be parsed, the HTTP library itself answers, without a body. Here such
//! an answer gets the JSON body that all other errors have.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use serde_json::json;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A stream that adds a body to the library's empty refusals.
pub(super) struct Wire<S> {
    stream: S,
    /// The bytes to write instead of those we were given, and how many of them are written.
    instead: Option<(Vec<u8>, usize)>,
}

impl<S> Wire<S> {
    pub(super) fn new(stream: S) -> Self {
        Self { stream, instead: None }
    }
}

/// The refusals that the library itself makes: `(status line, code, message)`.
const REFUSALS: [(&str, &str, &str); 4] = [
    ("HTTP/1.1 400 Bad Request\r\n", "MALFORMED", "the request is not HTTP/1.1"),
    ("HTTP/1.0 400 Bad Request\r\n", "MALFORMED", "the request is not HTTP/1.1"),
    ("HTTP/1.1 414 URI Too Long\r\n", "URI_TOO_LONG", "the path is too long"),
    (
        "HTTP/1.1 431 Request Header Fields Too Large\r\n",
        "HEAD_TOO_LARGE",
        "the request's head is too large",
    ),
];

/// The answer over the connection limit.
pub(super) fn too_many_connections() -> String {
    let status = "HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\n";
    refusal(status, "UNAVAILABLE", "too many connections: come again")
}

/// The answer to a client that does not use TLS on a TLS address.
pub(super) fn speaks_tls() -> String {
    let status = "HTTP/1.1 400 Bad Request\r\n";
    refusal(status, "MALFORMED", "this address speaks TLS: ask it with https://")
}

fn refusal(head: &str, code: &str, message: &str) -> String {
    let body = json!({ "error": { "code": code, "message": message } }).to_string();
    let length = body.len();
    format!(
        "{head}content-type: application/json\r\ncontent-length: {length}\r\nconnection: close\r\n\
         cache-control: no-store\r\n\r\n{body}"
    )
}

/// What to write instead, if these bytes end with an answer that has no body.
///
/// INVARIANT: each of our own answers with one of these statuses has a body. So one without a body is the library's,
/// and it is the last on its connection.
fn completed(bytes: &[u8]) -> Option<Vec<u8>> {
    if !bytes.ends_with(b"\r\n\r\n") {
        return None;
    }
    REFUSALS.iter().find_map(|(status, code, message)| {
        let at = bytes.windows(status.len()).rposition(|part| part == status.as_bytes())?;
        let (before, head) = bytes.split_at_checked(at)?;
        let head = std::str::from_utf8(head).ok()?;
        let is_empty = head.to_ascii_lowercase().contains("content-length: 0\r\n");
        let is_one = head.matches("\r\n\r\n").count() == 1;
        let replaced = refusal(status, code, message);
        (is_empty && is_one).then(|| [before, replaced.as_bytes()].concat())
    })
}

impl<S: AsyncRead + Unpin> AsyncRead for Wire<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Wire<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        let this = self.get_mut();
        if this.instead.is_none() {
            match completed(bytes) {
                Some(instead) => this.instead = Some((instead, 0)),
                None => return Pin::new(&mut this.stream).poll_write(cx, bytes),
            }
        }
        while let Some((instead, written)) = &mut this.instead {
            let rest = instead.get(*written..).unwrap_or_default();
            if rest.is_empty() {
                this.instead = None;
                break;
            }
            *written += ready!(Pin::new(&mut this.stream).poll_write(cx, rest))?;
        }
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
