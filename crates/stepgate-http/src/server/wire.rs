//! The bytes of a connection. If a request cannot be parsed, the HTTP library itself answers, without a body. Here such
//! an answer gets the JSON body that all other errors have.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::Problem;
use crate::problem::MEDIA_TYPE;

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

/// The refusals that the library itself makes, each with its status line.
fn refusals() -> [(&'static str, Problem); 4] {
    let not_http = || Problem::malformed("the request is not HTTP/1.1");
    [
        ("HTTP/1.1 400 Bad Request\r\n", not_http()),
        ("HTTP/1.0 400 Bad Request\r\n", not_http()),
        ("HTTP/1.1 414 URI Too Long\r\n", Problem::uri_too_long()),
        ("HTTP/1.1 431 Request Header Fields Too Large\r\n", Problem::head_too_large()),
    ]
}

/// The answer over the connection limit.
pub(super) fn too_many_connections() -> String {
    let status = "HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\n";
    refusal(status, &Problem::too_many_connections())
}

/// The answer to a client that does not use TLS on a TLS address.
pub(super) fn speaks_tls() -> String {
    let status = "HTTP/1.1 400 Bad Request\r\n";
    refusal(status, &Problem::malformed("this address speaks TLS: ask it with https://"))
}

fn refusal(head: &str, problem: &Problem) -> String {
    let body = problem.body();
    let length = body.len();
    format!(
        "{head}content-type: {MEDIA_TYPE}\r\ncontent-length: {length}\r\nconnection: close\r\n\
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
    refusals().iter().find_map(|(status, problem)| {
        let at = bytes.windows(status.len()).rposition(|part| part == status.as_bytes())?;
        let (before, head) = bytes.split_at_checked(at)?;
        let head = std::str::from_utf8(head).ok()?;
        let is_empty = head.to_ascii_lowercase().contains("content-length: 0\r\n");
        let is_one = head.matches("\r\n\r\n").count() == 1;
        let replaced = refusal(status, problem);
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
