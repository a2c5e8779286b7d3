//! Checks a request's head before anything else reads it: its length, and exactly one `Host`.

use axum::extract::Request;
use axum::http::{Version, header};

use super::HEAD_BYTES_MAX;
use crate::Problem;

/// Checks a head. The error says what is wrong.
///
/// RFC 9112, 3.2: "A server MUST respond with a 400 (Bad Request) status code to any HTTP/1.1 request message
/// that lacks a Host header field and to any request message that contains more than one Host header field
/// line".
pub(super) fn check(request: &Request) -> Result<(), Problem> {
    if bytes(request) > HEAD_BYTES_MAX {
        return Err(Problem::head_too_large());
    }
    let hosts = request.headers().get_all(header::HOST).iter().count();
    match (hosts, request.version()) {
        (1, _) | (0, Version::HTTP_10) => Ok(()),
        (0, _) => Err(Problem::malformed("there is no `Host` header")),
        (_, _) => Err(Problem::malformed("there are several `Host` headers: send one")),
    }
}

/// The length of the head, written without optional spaces.
fn bytes(request: &Request) -> usize {
    // Spaces and line ends of the request line, and the empty line.
    const REQUEST_LINE: usize = "  HTTP/1.1\r\n".len() + "\r\n".len();
    const HEADER: usize = ": \r\n".len();
    let uri = request.uri();
    let path = uri.path_and_query().map_or(0, |path| path.as_str().len());
    let authority = uri.authority().map_or(0, |authority| authority.as_str().len());
    let headers = request.headers().iter();
    let headers = headers.map(|(name, value)| name.as_str().len() + value.len() + HEADER);
    REQUEST_LINE + request.method().as_str().len() + path + authority + headers.sum::<usize>()
}

#[cfg(test)]
mod tests;
