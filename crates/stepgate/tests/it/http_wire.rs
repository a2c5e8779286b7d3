//! What comes over a real connection, good and bad: always JSON, never a hang.

use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::binary::Place;
use crate::http_client::{Gateway, PATIENCE, exchange, proposal, read, request};
use crate::random::Random;

fn place_with(config: &str) -> Place {
    let place = Place::new();
    std::fs::create_dir_all(place.path()).unwrap();
    std::fs::write(place.path().join("stepgate.toml"), config).unwrap();
    place
}

#[test]
fn a_step_over_http_is_answered_with_its_response_and_again_with_the_same() {
    let place = Place::new();
    let gateway = Gateway::start(&place);
    let body = proposal("WRITE_FILE", json!({ "path": "/sandbox/a.txt", "content": "hi" }));
    let first = gateway.propose(&body);
    assert_eq!((first.status, &first.json()["outcome"]), (200, &json!("SUCCESS")));
    assert!(!first.headers.contains_key("idempotent-replayed"));
    let second = gateway.propose(&body);
    assert_eq!((second.status, &second.body), (200, &first.body));
    assert_eq!(second.headers["idempotent-replayed"], "true");
    assert_eq!(second.headers["stepgate-run"], first.headers["stepgate-run"]);
    assert_eq!(std::fs::read_to_string(place.path().join("sandbox/a.txt")).unwrap(), "hi");
}

#[test]
fn what_is_no_http_gets_a_json_error_and_is_counted() {
    let gateway = Gateway::start(&Place::new());
    let long_header = format!("GET / HTTP/1.1\r\nhost: a\r\nx: {}\r\n\r\n", "a".repeat(200_000));
    let just_too_long =
        format!("GET / HTTP/1.1\r\nhost: a\r\nx: {}\r\n\r\n", "a".repeat(65 * 1024));
    let many: String = (0..500).map(|number| format!("x{number}: 1\r\n")).collect();
    let many_headers = format!("GET / HTTP/1.1\r\nhost: a\r\n{many}\r\n");
    let long_path = format!("GET /{} HTTP/1.1\r\nhost: a\r\n\r\n", "a".repeat(70_000));
    let rows: Vec<(&str, Vec<u8>)> = vec![
        ("garbage", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 hello\r\n\r\n".to_vec()),
        ("words", b"good morning\r\n\r\n".to_vec()),
        ("no version", b"GET /\r\n\r\n".to_vec()),
        ("another version", b"GET / HTTP/9.9\r\n\r\n".to_vec()),
        ("a bad header", b"GET / HTTP/1.1\r\nhost : a\r\n\r\n".to_vec()),
        ("a bad length", b"POST /v1/steps HTTP/1.1\r\ncontent-length: x\r\n\r\n".to_vec()),
        (
            "two lengths",
            b"POST /v1/steps HTTP/1.1\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab".to_vec(),
        ),
        ("a long header", long_header.into_bytes()),
        ("a header of 65 KiB", just_too_long.into_bytes()),
        ("no host", b"GET /healthz HTTP/1.1\r\n\r\n".to_vec()),
        ("two hosts", b"GET /healthz HTTP/1.1\r\nhost: a\r\nhost: a\r\n\r\n".to_vec()),
        ("many headers", many_headers.into_bytes()),
        ("a long path", long_path.into_bytes()),
    ];
    let before = gateway.metric("stepgate_http_malformed_requests_total");
    let count = u64::try_from(rows.len()).unwrap();
    for (name, bytes) in rows {
        let reply = exchange(gateway.address, &bytes).unwrap_or_else(|| panic!("{name}: nothing"));
        assert!([400, 414, 431].contains(&reply.status), "{name}: {reply:?}");
        assert_eq!(reply.headers["content-type"], "application/problem+json", "{name}");
        assert_eq!(reply.headers["content-length"], reply.body.len().to_string(), "{name}");
        assert!(reply.json()["code"].is_string(), "{name}");
    }
    // A connection is counted when it is over, which the other side learns first.
    let counted = || gateway.metric("stepgate_http_malformed_requests_total") - before;
    let begin = Instant::now();
    while counted() < count {
        assert!(begin.elapsed() < PATIENCE, "{} of {count}", counted());
    }
    assert_eq!(counted(), count);
    assert_eq!(gateway.propose(&proposal("THINK", json!({}))).status, 200);
}

#[test]
fn random_bytes_never_stop_the_gateway() {
    let gateway = Gateway::start(&Place::new());
    let good = request("POST", "/v1/steps", &gateway.agent, &[], &proposal("THINK", json!({})));
    let mut source = Random(0x9e37_79b9_7f4a_7c15);
    let mut random = |below: usize| usize::try_from(source.below(1_000_003)).unwrap() % below;
    for _ in 0..300 {
        let mut bytes = good.clone().into_bytes();
        for _ in 0..=random(6) {
            let at = random(bytes.len());
            match random(3) {
                0 => bytes[at] = u8::try_from(random(256)).unwrap(),
                1 => drop(bytes.drain(at..(at + random(20)).min(bytes.len()))),
                _ => bytes.truncate(at.max(1)),
            }
        }
        let mut stream = TcpStream::connect(gateway.address).unwrap();
        let _ = stream.write_all(&bytes);
        // It will not say more, so nobody has to wait for it.
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let status = read(&mut stream).map_or(0, |reply| reply.status);
        assert!(status < 500, "{status}: {}", String::from_utf8_lossy(&bytes));
    }
    assert_eq!(gateway.propose(&proposal("THINK", json!({}))).status, 200);
}

#[test]
fn whoever_is_too_slow_is_not_waited_for() {
    let place = place_with("[serve]\nhead_timeout_ms = 1000\nbody_timeout_ms = 1000\n");
    let gateway = Gateway::start(&place);
    let start = Instant::now();
    // A head that never ends.
    assert!(exchange(gateway.address, b"GET /healthz HTTP/1.1\r\nhost: a\r\n").is_none());
    // A body that never comes.
    let head =
        request("POST", "/v1/steps", &gateway.agent, &[], "").replace("length: 0", "length: 9");
    let reply = exchange(gateway.address, head.as_bytes()).unwrap();
    assert_eq!((reply.status, &reply.json()["code"]), (408, &json!("TIMEOUT")));
    assert!(start.elapsed() < Duration::from_secs(10));
    assert_eq!(gateway.metric("stepgate_http_malformed_requests_total"), 2);
}

#[test]
fn a_body_beyond_every_limit_is_refused_while_it_comes() {
    let place = place_with("[serve]\nbody_bytes_max = 1048576\n");
    let gateway = Gateway::start(&place);
    let reply = gateway.propose(&"x".repeat(4 * 1024 * 1024));
    assert_eq!((reply.status, &reply.json()["code"]), (413, &json!("BODY_TOO_LARGE")));
    assert_eq!(gateway.send("GET", "/v1/runs", &gateway.agent, "").json()["runs"], json!([]));
}

#[test]
fn a_request_is_one_request_and_its_path_is_what_it_says() {
    let place = Place::new();
    let gateway = Gateway::start(&place);
    let head = format!("host: a\r\nauthorization: Bearer {}\r\n", gateway.agent);
    let close = "connection: close\r\n\r\n";
    let hidden = "GET /healthz HTTP/1.1\r\nhost: a\r\n\r\n";
    let chunked = format!("{:x}\r\n{hidden}\r\n0\r\n\r\n", hidden.len());
    let rows = [
        ("a proxy's request", format!("CONNECT a:80 HTTP/1.1\r\n{head}{close}"), 404),
        ("a server's options", format!("OPTIONS * HTTP/1.1\r\n{head}{close}"), 404),
        ("an absolute address", format!("GET http://a/v1/runs HTTP/1.1\r\n{head}{close}"), 200),
        ("a public one, two slashes", format!("GET //healthz HTTP/1.1\r\nhost: a\r\n{close}"), 401),
        ("a spelled-out letter", format!("GET /v1/%72uns HTTP/1.1\r\n{head}{close}"), 404),
        ("a way up", format!("GET /healthz/../v1/runs HTTP/1.1\r\nhost: a\r\n{close}"), 401),
        ("another case", format!("GET /HEALTHZ HTTP/1.1\r\nhost: a\r\n{close}"), 401),
        (
            "two lengths of a body",
            format!(
                "POST /v1/steps HTTP/1.1\r\n{head}content-length: 4\r\n\
                 transfer-encoding: chunked\r\n{close}{chunked}"
            ),
            400,
        ),
        (
            "a body in an unknown form",
            format!("POST /v1/steps HTTP/1.1\r\n{head}transfer-encoding: x\r\n{close}{hidden}"),
            400,
        ),
        ("a long word", format!("{} /x HTTP/1.1\r\n{head}{close}", "A".repeat(30_000)), 404),
        ("a path with colours", format!("GET /%1b[31m\u{202e}x HTTP/1.1\r\n{head}{close}"), 404),
    ];
    for (name, request, status) in rows {
        let reply = exchange(gateway.address, request.as_bytes()).unwrap();
        assert_eq!(reply.status, status, "{name}: {reply:?}");
        // A second answer would stand in the body.
        reply.json();
    }
    gateway.signal(rustix::process::Signal::TERM);
    let (_, log) = gateway.end();
    for line in log.lines() {
        assert!(line.chars().count() < 400 && !line.contains('\u{1b}'), "{line}");
    }
}

#[test]
fn a_connection_is_kept_for_the_next_request() {
    let gateway = Gateway::start(&Place::new());
    let mut stream = TcpStream::connect(gateway.address).unwrap();
    let think = || {
        let body = proposal("THINK", json!({}));
        request("POST", "/v1/steps", &gateway.agent, &[], &body)
    };
    let kept = think().replace("connection: close\r\n", "");
    stream.write_all(format!("{kept}{}", think()).as_bytes()).unwrap();
    let reply = read(&mut stream).unwrap();
    assert_eq!(reply.body.matches("\"outcome\":\"SUCCESS\"").count(), 2, "{reply:?}");
}
