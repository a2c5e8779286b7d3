//! No caller locks others out: connections, unfinished bodies, streams and a disk that fills.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::net::{self, AddressFamily, SocketFlags, SocketType};
use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};
use serde_json::{Value, json};

use crate::binary::Place;
use crate::disk::{RESERVE, SmallDisk};
use crate::http_client::{Gateway, PATIENCE, Reply, exchange, proposal, request};
use crate::mcp::client::Client;
use crate::mcp_scene;
use crate::scene::until;

/// More than any file system here has free.
const PEBIBYTE: u64 = 1 << 50;

fn place_with(config: &str) -> Place {
    let place = Place::new();
    fs::create_dir_all(place.path()).unwrap();
    fs::write(place.path().join("stepgate.toml"), config).unwrap();
    place
}

/// A connection on which this was sent.
fn opened(address: SocketAddr, bytes: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    // The other side may have closed it already.
    let _ = stream.write_all(bytes);
    stream
}

/// The status of an answer whose body goes on.
fn status(stream: &mut TcpStream) -> Option<u16> {
    let mut head = [0; 12];
    stream.read_exact(&mut head).ok()?;
    std::str::from_utf8(&head[9..]).unwrap().parse().ok()
}

/// Whether the other side has closed it.
fn is_closed(stream: &mut TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    let read = stream.read(&mut [0; 64]);
    stream.set_nonblocking(false).unwrap();
    match read {
        Ok(count) => count == 0,
        Err(error) => error.kind() != std::io::ErrorKind::WouldBlock,
    }
}

fn begun(path: &str, token: &str, headers: &[(&str, &str)]) -> String {
    request("POST", path, token, headers, "").replace("length: 0", "length: 1000") + "toke"
}

fn listening(token: &str) -> String {
    request("GET", "/v1/events", token, &[], "")
}

/// Lets this process open many connections.
fn open_many() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    assert!(maximum.is_none_or(|most| most >= 8000), "`ulimit -Hn` is too low: {maximum:?}");
    if current.is_some_and(|current| current < 8000) {
        setrlimit(Resource::Nofile, Rlimit { current: Some(8000), maximum }).unwrap();
    }
}

/// What filled the gateway of 0.1.0, where 3 of 160 requests were answered.
#[test]
fn half_open_connections_slow_bodies_and_streams_leave_operators_and_other_agents_served() {
    open_many();
    let place = Place::new();
    let gateway = Gateway::start_with(&place, &["--quiet"]);
    let address = gateway.address;
    let [greedy, other, third] =
        ["greedy", "other", "third"].map(|name| place.own_token(name, "agent"));
    let slow_step = begun("/v1/steps", &greedy, &[]);
    let slow_login = begun("/login", "", &[("content-type", "application/x-www-form-urlencoded")]);
    let half_open = "GET /healthz HTTP/1.1\r\nhost: te";
    let mut flood: Vec<TcpStream> = Vec::new();
    let mut streams = [0, 0];
    for _ in 0..512 {
        for (token, granted) in [&greedy, &other].into_iter().zip(&mut streams) {
            let mut stream = opened(address, listening(token).as_bytes());
            match status(&mut stream) {
                Some(200) => *granted += 1,
                Some(429) => continue,
                other => panic!("{other:?}"),
            }
            flood.push(stream);
        }
    }
    flood.extend((0..1100).map(|_| opened(address, half_open.as_bytes())));
    flood.extend((0..200).map(|_| opened(address, slow_login.as_bytes())));
    flood.extend((0..100).map(|_| opened(address, slow_step.as_bytes())));
    let (mut served, mut longest) = (0, Duration::ZERO);
    for round in 0..160 {
        // It goes on meanwhile.
        for bytes in [half_open, half_open, &slow_login, &slow_step] {
            flood.push(opened(address, bytes.as_bytes()));
        }
        let start = Instant::now();
        let reply = match round % 4 {
            0 => gateway.send("GET", "/v1/runs", &gateway.operator, ""),
            1 => gateway.send("POST", "/v1/steps", &third, &proposal("THINK", json!({}))),
            2 => gateway.send("GET", "/v1/attention", &gateway.operator, ""),
            _ => gateway.send("GET", "/readyz", "", ""),
        };
        longest = longest.max(start.elapsed());
        served += usize::from(reply.status == 200);
    }
    println!("{served} of 160 served, the longest in {longest:?}; streams {streams:?}");
    assert_eq!(served, 160);
    assert!(longest < Duration::from_secs(5), "{longest:?}");
    // As many as are still free, of 1,024 less 64 for operators.
    assert_eq!(streams.iter().sum::<usize>(), 640, "{streams:?}");
    assert!(gateway.metric("stepgate_http_connections") <= 1024);
    let refused =
        |limit: &str| gateway.metric(&format!("stepgate_refusals_total{{limit=\"{limit}\"}}"));
    assert!(refused("connections_of_address") >= 1000);
    assert!(refused("requests_under_way") >= 384);
    // The command line has a socket of its own.
    assert_eq!(place.stepgate(["token", "list"], "").code, 0);
    gateway.signal(Signal::TERM);
    drop(flood);
    let (code, log) = gateway.end();
    assert_eq!(code, Some(0), "{log}");
    for told in ["serve.connections_per_address_max", "requests under way"] {
        assert_eq!(log.matches(told).count(), 1, "{told}: {log}");
    }
}

/// A connection from another address of this machine.
fn opened_from(last: u8, address: SocketAddr, bytes: &[u8]) -> TcpStream {
    // Not passed on to what other tests start meanwhile.
    let (family, flags) = (AddressFamily::INET, SocketFlags::CLOEXEC);
    let socket = net::socket_with(family, SocketType::STREAM, flags, None).unwrap();
    net::bind(&socket, &SocketAddr::from(([127, 0, 0, last], 0))).unwrap();
    net::connect(&socket, &address).unwrap();
    let mut stream = TcpStream::from(socket);
    let _ = stream.write_all(bytes);
    stream
}

#[test]
fn a_flood_from_many_addresses_displaces_itself() {
    open_many();
    let gateway = Gateway::start_with(&Place::new(), &["--quiet"]);
    let from_all = || (2..10).map(|last| opened_from(last, gateway.address, b"GET /he"));
    // Each address is within its share.
    let mut flood: Vec<_> = (0..200).flat_map(|_| from_all()).collect();
    for _ in 0..40 {
        flood.extend(from_all());
        let reply = gateway.send("GET", "/v1/runs", &gateway.operator, "");
        assert_eq!(reply.status, 200, "{}", reply.body);
        assert_eq!(gateway.propose(&proposal("THINK", json!({}))).status, 200);
    }
    let refused = |limit: &str| format!("stepgate_refusals_total{{limit=\"{limit}\"}}");
    // 1,920 came, and 1,024 have a place.
    assert!(gateway.metric(&refused("connections")) >= 896);
    assert!(gateway.metric("stepgate_http_connections") <= 1024);
}

#[test]
fn at_the_limit_the_oldest_connection_without_a_token_goes_first() {
    let place = place_with("[serve]\nconnections_max = 3\n");
    let gateway = Gateway::start(&place);
    let healthy = || exchange(gateway.address, request("GET", "/healthz", "", &[], "").as_bytes());
    let mut stream = opened(gateway.address, listening(&gateway.agent).as_bytes());
    assert_eq!(status(&mut stream), Some(200));
    let mut idle: Vec<_> = (0..2).map(|_| opened(gateway.address, b"")).collect();
    // Below and at the limit nothing happens; the next one takes the place of the oldest.
    assert_eq!(healthy().unwrap().status, 200);
    until("the oldest is closed", || is_closed(&mut idle[0]));
    assert!(!is_closed(&mut idle[1]) && !is_closed(&mut stream));
}

#[test]
fn where_every_connection_is_in_use_the_next_is_told_so_and_the_owner_gets_in() {
    let place = place_with("[serve]\nconnections_max = 2\n");
    let gateway = Gateway::start(&place);
    let mut streams = [&gateway.agent, &gateway.operator].map(|token| {
        let mut stream = opened(gateway.address, listening(token).as_bytes());
        assert_eq!(status(&mut stream), Some(200));
        stream
    });
    let healthy = request("GET", "/healthz", "", &[], "");
    let refused = exchange(gateway.address, healthy.as_bytes()).unwrap();
    assert_eq!((refused.status, &refused.json()["code"]), (503, &json!("UNAVAILABLE")));
    assert_eq!(place.stepgate(["token", "list"], "").code, 0);
    assert!(streams.iter_mut().all(|stream| !is_closed(stream)));
    drop(streams);
    until("there is a place again", || {
        exchange(gateway.address, healthy.as_bytes()).is_some_and(|reply| reply.status == 200)
    });
}

#[test]
fn an_address_has_its_share_of_connections_without_a_token() {
    let place = place_with("[serve]\nconnections_per_address_max = 2\n");
    let gateway = Gateway::start(&place);
    let mut idle: Vec<_> = (0..3).map(|_| opened(gateway.address, b"GET / HTTP/1.1\r\n")).collect();
    until("the oldest is closed", || is_closed(&mut idle[0]));
    assert!(!is_closed(&mut idle[1]) && !is_closed(&mut idle[2]));
    assert_eq!(gateway.propose(&proposal("THINK", json!({}))).status, 200);
    let counted = gateway.metric("stepgate_refusals_total{limit=\"connections_of_address\"}");
    assert!(counted >= 2, "{counted}");
}

#[test]
fn a_process_that_can_open_no_more_files_closes_connections_that_are_not_in_use() {
    let place = Place::new();
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -n 256; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_stepgate")]);
    limited.env_clear().arg("--data").arg(place.path()).args(["serve", "--bind", "127.0.0.1:0"]);
    let gateway = Gateway::of(limited.stderr(Stdio::piped()), &place.path());
    let flood: Vec<_> = (0..300).map(|_| opened(gateway.address, b"GET / HTTP/1.1\r\n")).collect();
    for _ in 0..20 {
        let reply = gateway.send("GET", "/v1/runs", &gateway.operator, "");
        assert_eq!(reply.status, 200, "{}", reply.body);
    }
    assert!(gateway.metric("stepgate_refusals_total{limit=\"open_files\"}") > 0);
    drop(flood);
    gateway.signal(Signal::TERM);
    let (_, log) = gateway.end();
    assert_eq!(log.matches("can open no more files").count(), 1, "{log}");
}

fn stored(reply: &Reply) -> Option<String> {
    reply.json()["storage"].as_str().map(str::to_owned)
}

#[test]
fn a_disk_with_only_the_reserve_left_refuses_agents_and_serves_operators() {
    let policies = r#"
        @id("ask") @approval("it deletes")
        permit (principal, action == Action::"DELETE_FILE", resource);
        @id("rest")
        permit (principal, action in Action::"core", resource)
        unless { action == Action::"DELETE_FILE" };
    "#;
    let place = mcp_scene::place_with("", policies);
    let (approval, known) = {
        let gateway = Gateway::start(&place);
        let known = proposal("THINK", json!({}));
        let answer = gateway.propose(&known);
        let delete = json!({ "path": "/sandbox/a.txt" });
        fs::write(place.path().join("sandbox/a.txt"), "a").unwrap();
        let asked = gateway.propose(&proposal("DELETE_FILE", delete));
        assert_eq!((answer.status, asked.status), (200, 202), "{}", asked.body);
        assert_eq!(stored(&gateway.send("GET", "/readyz", "", "")), None);
        (asked.json()["result"]["approval_id"].as_str().unwrap().to_owned(), (known, answer.body))
    };
    let config = format!("[store]\nfree_bytes_min = {PEBIBYTE}\n");
    fs::write(place.path().join("stepgate.toml"), config).unwrap();
    let gateway = Gateway::start(&place);
    for _ in 0..3 {
        let refused = gateway.propose(&proposal("THINK", json!({})));
        assert_eq!((refused.status, &refused.json()["code"]), (507, &json!("STORAGE_LOW")));
        assert_eq!(refused.headers["retry-after"], "60");
    }
    // What is recorded needs no room.
    let again = gateway.propose(&known.0);
    assert_eq!((again.status, &again.body), (200, &known.1));
    let client = Client::shaken(&gateway, json!({}));
    assert!(!client.tools().is_empty());
    let called = client.ask("tools/call", json!({ "name": "think", "arguments": {} }));
    assert_eq!(called["error"]["code"], -32000, "{called}");
    assert!(called["error"]["message"].as_str().unwrap().contains("disk is nearly full"));

    let ready = gateway.send("GET", "/readyz", "", "");
    assert_eq!((ready.status, stored(&ready).as_deref()), (200, Some("low")));
    let own = gateway.send("POST", "/v1/steps", &gateway.operator, &proposal("THINK", json!({})));
    assert_eq!(own.status, 200, "{}", own.body);
    let path = format!("/v1/approvals/{approval}/approve");
    let decided = gateway.send("POST", &path, &gateway.operator, "{}");
    assert_eq!((decided.status, &decided.json()["status"]), (200, &json!("approved")));
    until("it is done", || !place.path().join("sandbox/a.txt").exists());
    let needs = gateway.send("GET", "/v1/attention", &gateway.operator, "").json();
    let is_told = |need: &Value| need["kind"] == "disk_low";
    assert!(needs["attention"].as_array().unwrap().iter().any(is_told), "{needs}");
    let refusals = gateway.metric("stepgate_refusals_total{limit=\"free_space\"}");
    assert_eq!(refusals, 4);
    assert!(gateway.metric("stepgate_disk_free_bytes") > 0);
    assert_eq!(place.stepgate(["verify"], "").code, 0);
    let backup = tempfile::TempDir::new().unwrap();
    let backup = backup.path().join("backup");
    assert_eq!(place.stepgate(["backup", backup.to_str().unwrap()], "").code, 0);
    gateway.signal(Signal::TERM);
    let (_, log) = gateway.end();
    assert_eq!(log.matches("than store.free_bytes_min").count(), 1, "{log}");
}

#[test]
fn a_disk_that_fills_refuses_agents_before_it_is_full_and_takes_them_again_when_there_is_room() {
    let Some(disk) = SmallDisk::mount() else {
        println!("no mount namespace here: no disk of its own that could be full");
        return;
    };
    const RESERVED: u64 = 8 << 20;
    let mut command = disk.command(&["serve", "--bind", "127.0.0.1:0"]);
    command.env(RESERVE, RESERVED.to_string()).stderr(Stdio::piped());
    let gateway = Gateway::of(&mut command, &disk.path("data"));
    let think = || gateway.propose(&proposal("THINK", json!({}))).status;
    // For a moment `fill` takes everything, so the gateway may have found the disk full.
    for bytes_left in [RESERVED + (1 << 20), RESERVED - (1 << 20)] {
        disk.fill(bytes_left);
        let expected = if bytes_left < RESERVED { 507 } else { 200 };
        until("agents are served or not", || think() == expected);
        until("operators are served", || {
            let own = proposal("THINK", json!({}));
            gateway.send("POST", "/v1/steps", &gateway.operator, &own).status == 200
        });
        until("it is ready", || gateway.send("GET", "/readyz", "", "").status == 200);
        assert_eq!(think(), expected);
    }
    fs::remove_file(disk.path("filler")).unwrap();
    until("agents are served again", || think() == 200);
}
