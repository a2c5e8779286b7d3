use axum::body::Body;
use axum::http::StatusCode;

use super::*;

fn status(version: Version, headers: &[(&str, &str)]) -> Option<StatusCode> {
    let mut request = Request::builder().method("GET").uri("/healthz").version(version);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let checked = check(&request.body(Body::empty()).unwrap());
    checked.err().map(|problem| problem.into_parts().0)
}

#[test]
fn a_request_has_exactly_one_host() {
    let bad = Some(StatusCode::BAD_REQUEST);
    type Headers = [(&'static str, &'static str)];
    let rows: [(Version, &Headers, Option<StatusCode>); 5] = [
        (Version::HTTP_11, &[("host", "a")], None),
        (Version::HTTP_11, &[], bad),
        (Version::HTTP_11, &[("host", "a"), ("host", "a")], bad),
        (Version::HTTP_10, &[], None),
        (Version::HTTP_10, &[("host", "a"), ("host", "b")], bad),
    ];
    for (version, headers, expected) in rows {
        assert_eq!(status(version, headers), expected, "{version:?} {headers:?}");
    }
}

#[test]
fn a_head_may_be_as_long_as_the_limit_and_not_longer() {
    let rest = "GET /healthz HTTP/1.1\r\nhost: a\r\nx: \r\n\r\n".len();
    let fits = "a".repeat(HEAD_BYTES_MAX - rest);
    assert_eq!(status(Version::HTTP_11, &[("host", "a"), ("x", &fits)]), None);
    let beyond = format!("{fits}a");
    let too_large = Some(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE);
    assert_eq!(status(Version::HTTP_11, &[("host", "a"), ("x", &beyond)]), too_large);
}
