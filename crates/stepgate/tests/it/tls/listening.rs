//! What may come to an address that speaks TLS, and what an address may be.

use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;

use rustix::process::Signal;
use rustls::version::{TLS12, TLS13};

use super::{NAMES, client, connect, here, is_answered, place, url};
use crate::binary::Place;
use crate::http_client::{Gateway, PATIENCE, proposal, request};
use crate::scene::until;
use crate::tls::authority::Authority;

/// One who connects, says this much, and nothing more.
fn silent(gateway: &Gateway, bytes: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(here(gateway)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(bytes).unwrap();
    stream
}

/// The beginning of a handshake that promises more.
const HALF_A_HELLO: &[u8] = &[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3];

#[test]
fn both_versions_are_spoken_and_http_1_1_alone_inside() {
    let authority = Authority::new();
    let place = place(&authority, "");
    let gateway = Gateway::start(&place);
    for version in [&TLS12, &TLS13] {
        let mut config = authority.client(&[version]);
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let mut connection = connect(gateway.address, config).unwrap();
        assert_eq!(connection.conn.alpn_protocol(), Some(b"http/1.1".as_slice()));
        assert!(is_answered(&mut connection) && is_answered(&mut connection), "{version:?}");
    }
    let mut config = authority.client(&[&TLS13]);
    config.alpn_protocols = vec![b"h2".to_vec()];
    assert!(connect(gateway.address, config).is_err());
}

#[test]
fn a_handshake_that_never_comes_keeps_nobody_waiting() {
    let authority = Authority::new();
    let place = place(&authority, "connections_max = 5\nhead_timeout_ms = 600000\n");
    let gateway = Gateway::start(&place);
    let mut stuck = vec![silent(&gateway, b""), silent(&gateway, HALF_A_HELLO)];
    stuck.extend((0..2).map(|_| silent(&gateway, b"")));
    let client = client(&authority.certificate(), &gateway.agent);
    for _ in 0..3 {
        let output = client.stepgate(["--url", &url(&gateway), "run", "THINK"], "");
        assert_eq!(output.code, 0, "{output:?}");
    }
    // Each of them has a place, and the oldest gives way to the next: one that shows a token is served all the same.
    for _ in 0..3 {
        stuck.extend((0..6).map(|_| silent(&gateway, b"")));
        let output = client.stepgate(["--url", &url(&gateway), "run", "THINK"], "");
        assert_eq!(output.code, 0, "{output:?}");
    }
    drop(stuck);
    // Neither does the end wait for one.
    let _stuck = [silent(&gateway, b""), silent(&gateway, HALF_A_HELLO)];
    assert_eq!(client.stepgate(["--url", &url(&gateway), "run", "THINK"], "").code, 0);
    gateway.signal(Signal::TERM);
    let (code, log) = gateway.end();
    assert!(code == Some(0) && !log.contains("did not finish in time"), "{log}");
}

#[test]
fn a_handshake_has_a_deadline() {
    let authority = Authority::new();
    let place = place(&authority, "head_timeout_ms = 1000\n");
    let gateway = Gateway::start(&place);
    for mut stuck in [silent(&gateway, b""), silent(&gateway, HALF_A_HELLO)] {
        assert_eq!(stuck.read(&mut [0]).unwrap(), 0);
    }
    let client = client(&authority.certificate(), &gateway.agent);
    // A machine that is busy may be too slow for so short a deadline.
    until("it still serves", || {
        client.stepgate(["--url", &url(&gateway), "run", "THINK"], "").code == 0
    });
}

#[test]
fn whoever_speaks_no_tls_is_told_so_and_the_connection_ends_cleanly() {
    let authority = Authority::new();
    let place = place(&authority, "");
    let gateway = Gateway::start(&place);
    let body = proposal("THINK", serde_json::json!({}));
    let step = request("POST", "/v1/steps", &gateway.agent, &[], &body);
    let large = request("POST", "/v1/steps", &gateway.agent, &[], &" ".repeat(32 * 1024));
    for bytes in [step.as_bytes(), large.as_bytes(), b"SSH-2.0-a\r\n", &[0]] {
        let mut stream = silent(&gateway, bytes);
        let mut answer = String::new();
        while !answer.ends_with('}') {
            let mut part = [0; 512];
            let count = stream.read(&mut part).unwrap();
            assert_ne!(count, 0, "{answer}");
            answer.push_str(std::str::from_utf8(&part[..count]).unwrap());
        }
        assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
        assert!(
            answer.contains("\"detail\":\"this address speaks TLS: ask it with https://\","),
            "{answer}"
        );
        assert_eq!(stream.read(&mut [0]).unwrap(), 0);
        // Whoever was still sending is not cut off, or the answer could be lost to the reset.
        for _ in 0..3 {
            stream.write_all(b"more").unwrap();
        }
    }
    // A handshake that turns to nonsense ends too, and nothing of all that was a run.
    let mut answer = Vec::new();
    let nonsense = [HALF_A_HELLO, &[0xff; 600]].concat();
    let _ = silent(&gateway, &nonsense).read_to_end(&mut answer);
    assert!(answer.first() != Some(&b'H'), "{answer:?}");
    assert_eq!(place.stepgate(["runs"], "").stdout, "no runs\n");
}

#[test]
fn with_tls_every_address_may_be_listened_on_and_no_flag_is_needed() {
    let authority = Authority::new();
    let files = tempfile::tempdir().unwrap();
    authority.issue(NAMES, 2, files.path());
    let [certificate, key] =
        ["gate.pem", "gate.key"].map(|name| files.path().join(name).display().to_string());
    let place = Place::new();
    let flags = ["--tls-certificate", &certificate, "--tls-key", &key];
    let gateway = Gateway::start_at(&place, "0.0.0.0:0", &flags);
    let client = client(&authority.certificate(), &gateway.agent);
    assert_eq!(client.stepgate(["--url", &url(&gateway), "run", "THINK"], "").code, 0);
    gateway.signal(Signal::TERM);
    let (code, log) = gateway.end();
    assert_eq!(code, Some(0), "{log}");
    assert!(!log.contains("warning"), "{log}");
}

#[test]
fn a_pair_that_cannot_be_used_is_refused_before_anything_listens() {
    let authority = Authority::new();
    let files = tempfile::tempdir().unwrap();
    authority.issue(NAMES, 2, files.path());
    let file = |name: &str| files.path().join(name).display().to_string();
    let (certificate, key) = (file("gate.pem"), file("gate.key"));
    fs::copy(&key, file("old.key")).unwrap();
    authority.issue(NAMES, 2, files.path());
    let pem = |kind: &str| format!("-----BEGIN {kind}-----\nAAAA\n-----END {kind}-----\n");
    fs::write(file("nonsense"), "nonsense").unwrap();
    fs::write(file("bad.pem"), pem("CERTIFICATE")).unwrap();
    fs::write(file("bad.key"), pem("PRIVATE KEY")).unwrap();
    fs::write(file("torn"), "-----BEGIN CERTIFICATE-----\nAAAA\n").unwrap();
    for (certificate, key, expected) in [
        (&file("none"), &key, "cannot read `FILES/none`"),
        (&certificate, &file("none"), "cannot read `FILES/none`"),
        (&file("nonsense"), &key, "`FILES/nonsense` has no certificate in PEM"),
        (&key, &key, "`FILES/gate.key` has no certificate in PEM"),
        (&certificate, &certificate, "`FILES/gate.pem` has no private key in PEM"),
        (&file("torn"), &key, "`FILES/torn` is not PEM"),
        (&file("bad.pem"), &key, "`FILES/bad.pem` cannot be used"),
        (&certificate, &file("bad.key"), "`FILES/bad.key` is not a usable key"),
        (&certificate, &file("old.key"), "`FILES/old.key` is not the key of the certificate"),
    ] {
        let place = Place::new();
        let flags = ["serve", "--bind", "127.0.0.1:0"];
        let pair = ["--tls-certificate", certificate, "--tls-key", key];
        let output = place.stepgate(flags.into_iter().chain(pair), "");
        let expected = expected.replace("FILES", &files.path().display().to_string());
        assert!(output.code == 1 && output.stderr.contains(&expected), "{expected}: {output:?}");
        assert!(!place.path().exists(), "{expected}");
    }
}

#[test]
fn half_a_pair_is_refused() {
    let place = Place::new();
    for (flag, other) in
        [("--tls-certificate", "--tls-key <FILE>"), ("--tls-key", "--tls-certificate <FILE>")]
    {
        let output = place.stepgate(["serve", flag, "a"], "");
        assert!(output.code == 1 && output.stderr.contains(other), "{output:?}");
    }
    fs::create_dir_all(place.path()).unwrap();
    for (key, other) in [("tls_certificate", "tls_key"), ("tls_key", "tls_certificate")] {
        fs::write(place.path().join("stepgate.toml"), format!("[serve]\n{key} = \"a\"\n")).unwrap();
        let output = place.stepgate(["serve", "--bind", "nowhere"], "");
        let expected = format!("serve.{key} needs serve.{other}: name both files");
        assert!(output.code == 1 && output.stderr.contains(&expected), "{output:?}");
    }
}

#[test]
fn what_is_odd_about_a_pair_is_said_at_the_start_and_by_the_doctor() {
    let authority = Authority::new();
    let place = place(&authority, "");
    let doctor = || {
        let output = place.stepgate(["doctor"], "");
        let row = output.stdout.lines().find(|line| line.contains("  certificate  ")).unwrap();
        let (is_ok, found) = row.split_once("certificate").unwrap();
        (is_ok.starts_with("ok"), found.to_owned())
    };
    let (is_ok, row) = doctor();
    assert!(is_ok && row.contains("gate.pem`, which ends at 20"), "{row}");
    fs::set_permissions(place.path().join("gate.key"), Permissions::from_mode(0o644)).unwrap();
    let exposed = "gate.key` is open to others (mode 644)";
    let (is_ok, row) = doctor();
    assert!(!is_ok && row.contains(exposed), "{row}");
    authority.issue(NAMES, -1, &place.path());
    let (is_ok, row) = doctor();
    assert!(!is_ok && row.contains("gate.pem` ended at 20"), "{row}");
    fs::set_permissions(place.path().join("gate.key"), Permissions::from_mode(0o644)).unwrap();
    let mut gateway = Gateway::start(&place);
    gateway.until_it_says(exposed);
    gateway.until_it_says("gate.pem` ended at 20");
}
