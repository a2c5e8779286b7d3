//! The audit stream out: a gateway as a process of its own, real receivers, and receivers that are down, slow or lie.

mod archived;
mod syslog;

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use serde_json::{Value, json};

use crate::binary::Place;
use crate::http_client::{Gateway, exchange, proposal, request};
use crate::nodes::House;
use crate::notify::nodes::owner;
use crate::notify::receivers::{Sink, free_address};
use crate::scene::{kill, until, until_within};
use crate::tls::authority::Authority;
use syslog::{Liar, Rsyslog};

/// The key of the webhook.
const KEY: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMfKQ9r8GKYo=";

fn stream(name: &str, kind: &str, more: &str) -> String {
    format!("[[audit]]\nname = {name:?}\nkind = {kind:?}\n{more}\n")
}

fn configure(place: &Place, config: &str) {
    fs::create_dir_all(place.path().join("policies")).unwrap();
    let policy = "@id(\"all\") permit (principal, action, resource);";
    fs::write(place.path().join("policies/all.cedar"), policy).unwrap();
    fs::write(place.path().join("webhook.key"), KEY).unwrap();
    fs::write(place.path().join("stepgate.toml"), config).unwrap();
}

fn think(gateway: &Gateway) {
    let reply = gateway.propose(&proposal("THINK", json!({})));
    assert_eq!(reply.status, 200, "{}", reply.body);
}

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Every event that there is.
fn exported(place: &Place) -> Vec<Value> {
    let output = place.stepgate(["audit", "export"], "");
    assert_eq!(output.code, 0, "{output:?}");
    lines(&output.stdout)
}

fn position(event: &Value) -> u64 {
    let position = event["position"].as_u64().or_else(|| event["metadata"]["sequence"].as_u64());
    position.unwrap_or_else(|| panic!("{event}"))
}

/// What a webhook took.
fn taken(sink: &Sink) -> Vec<Value> {
    let taken = sink.requests().into_iter().filter(|request| request.status == 200);
    taken.flat_map(|request| request.json().as_array().unwrap().clone()).collect()
}

/// What a collector took, read with the official types.
fn collected(sink: &Sink) -> Vec<Value> {
    let taken = sink.requests().into_iter().filter(|request| request.status == 200);
    let records = taken.flat_map(|request| {
        let request: ExportLogsServiceRequest = serde_json::from_str(&request.body).unwrap();
        let scopes = request.resource_logs.into_iter().flat_map(|it| it.scope_logs);
        scopes.flat_map(|it| it.log_records).collect::<Vec<_>>()
    });
    let texts = records.map(|record| match record.body.unwrap().value.unwrap() {
        Any::StringValue(text) => {
            let event: Value = serde_json::from_str(&text).unwrap();
            assert_eq!(record.event_name, event["event_type"].as_str().unwrap());
            assert!(record.time_unix_nano > 1_700_000_000_000_000_000);
            event
        }
        other => panic!("{other:?}"),
    });
    texts.collect()
}

/// Whether none is missing, and those that came for the first time came in order.
fn is_whole(events: &[Value], all: &[Value]) -> bool {
    let mut seen = BTreeSet::new();
    let first: Vec<u64> = events.iter().map(position).filter(|it| seen.insert(*it)).collect();
    assert!(first.is_sorted(), "{first:?}");
    all.iter().all(|event| seen.contains(&position(event)))
}

fn waiting(place: &Place, name: &str) -> (u64, Value) {
    let output = place.stepgate(["audit", "list", "--json"], "");
    let row = lines(&output.stdout).into_iter().find(|row| row["name"] == name);
    let row = row.unwrap_or_else(|| panic!("{output:?}"));
    (row["waiting"].as_u64().unwrap(), row["last_error"].clone())
}

/// The first `tool_called` that a caller sees.
fn first_event(gateway: &Gateway, token: &str) -> Value {
    let mut stream = TcpStream::connect(gateway.address).unwrap();
    let asked = request("GET", "/v1/events?kind=tool_called", token, &[], "");
    stream.write_all(asked.as_bytes()).unwrap();
    let lines = BufReader::new(stream).lines().map(Result::unwrap);
    let mut events = lines.filter_map(|line| Some(line.strip_prefix("data: ")?.to_owned()));
    serde_json::from_str(&events.next().unwrap()).unwrap()
}

#[test]
fn every_kind_gets_every_event_with_addresses_request_ids_and_failed_logins() {
    let authority = Authority::new();
    let (hook, collector, rsyslog) = (Sink::start(), Sink::start(), Rsyslog::start(&authority));
    let place = Place::with(vec![("SSL_CERT_FILE", authority.certificate().into())]);
    let config =
        stream(
            "siem",
            "webhook",
            &format!(
                "url = \"http://{}/in\"\nsecret = {{ file = \"webhook.key\" }}\nformat = \"ocsf\"\n\
             authorization = {{ file = \"siem.token\" }}",
                hook.address
            ),
        ) + &stream("otel", "otlp", &format!("url = \"http://{}/v1/logs\"", collector.address))
            + &stream("log", "syslog", &format!("host = \"localhost\"\nport = {}", rsyslog.port))
            + &stream("file", "file", "path = \"events.jsonl\"")
            + &stream("logins", "file", "path = \"logins.jsonl\"\nevents = [\"login_refused\"]");
    configure(&place, &config);
    fs::write(place.path().join("siem.token"), "Splunk 123\n").unwrap();
    let gateway = Gateway::start(&place);
    let body = proposal("THINK", json!({}));
    let named = request("POST", "/v1/steps", &gateway.agent, &[("x-request-id", "audit-7")], &body);
    assert_eq!(exchange(gateway.address, named.as_bytes()).unwrap().status, 200);
    assert_eq!(gateway.send("GET", "/v1/runs", "not-a-token", "").status, 401);
    let file = |name: &str| lines(&fs::read_to_string(place.path().join(name)).unwrap_or_default());
    until("the failed login is there", || file("logins.jsonl").len() == 1);
    let all = exported(&place);
    let called = all.iter().find(|event| event["event_type"] == "tool_called").unwrap();
    assert_eq!(called["request"], json!({ "address": "127.0.0.1", "id": "audit-7" }));
    assert_eq!(called["principal_id"], "agent");
    assert!(first_event(&gateway, &gateway.operator).get("request").is_some());
    assert!(first_event(&gateway, &gateway.agent).get("request").is_none());
    let refused = all.iter().find(|event| event["event_type"] == "login_refused").unwrap();
    assert_eq!(refused["payload"], json!({ "address": "127.0.0.1", "count": 1 }));
    assert_eq!(&file("logins.jsonl"), std::slice::from_ref(refused));

    until("the file is whole", || file("events.jsonl") == all);
    until("the collector has all", || is_whole(&collected(&collector), &all));
    until("the webhook has all", || is_whole(&taken(&hook), &all));
    let sent = hook.requests().remove(0);
    assert_eq!(sent.header("authorization"), "Splunk 123");
    assert!(sent.header("webhook-signature").starts_with("v1,"));
    let mapped = taken(&hook);
    let mapped = mapped.iter().find(|event| event["metadata"]["event_code"] == "tool_called");
    let mapped = mapped.unwrap();
    assert_eq!(
        (&mapped["class_uid"], &mapped["actor"]["user"]["name"]),
        (&6003.into(), &"agent".into())
    );
    assert_eq!(mapped["src_endpoint"]["ip"], "127.0.0.1");
    assert_eq!(mapped["api"]["request"]["uid"], "audit-7");

    let messages = || rsyslog.messages();
    let received = || messages().into_iter().map(|it| it.event).collect::<Vec<_>>();
    until("rsyslog has all", || is_whole(&received(), &all));
    let login = messages().into_iter().find(|it| it.id == "login_refused").unwrap();
    assert_eq!((login.priority.as_str(), login.program.as_str()), ("audit.warning", "stepgate"));
    assert_eq!(login.event, *refused);
    // A server that never acknowledges is believed after a while.
    until("all have arrived", || waiting(&place, "log") == (0, Value::Null));
    let metrics = gateway.send("GET", "/metrics", &gateway.operator, "").body;
    let count = "stepgate_audit_events_total{stream=\"logins\",outcome=\"delivered\"} 1";
    assert!(metrics.contains(count), "{metrics}");
    assert!(metrics.contains("stepgate_audit_streams_failing{stream=\"log\"} 0"), "{metrics}");
}

#[test]
fn receivers_that_are_down_slow_or_lie_slow_no_step_and_miss_nothing_afterwards() {
    let place = Place::new();
    let (down, slow, small, partial) =
        (free_address(), Sink::start(), Sink::start(), Sink::start());
    let liar = Liar::start();
    let hook = |address: &str| format!("url = \"http://{address}/in\"\ntimeout_ms = 1000");
    let config = stream("down", "webhook", &hook(&down))
        + &stream("slow", "webhook", &hook(&slow.address))
        + &stream("small", "webhook", &hook(&small.address))
        + &stream("partial", "otlp", &hook(&partial.address))
        + &stream(
            "liar",
            "syslog",
            &format!("host = \"127.0.0.1\"\ntls = false\nport = {}", liar.port),
        )
        + &stream("blocked", "file", "path = \"no-such-directory/events.jsonl\"");
    configure(&place, &config);
    slow.answer_after(Duration::from_secs(5));
    small.refuse_above(2000);
    partial.say("{\"partialSuccess\":{\"rejectedLogRecords\":\"1\",\"errorMessage\":\"no\"}}");
    let gateway = Gateway::start(&place);
    let begun = Instant::now();
    for _ in 0..40 {
        think(&gateway);
    }
    // Each try of the slow one alone takes a second: steps wait for none of them.
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(20), "{took:?}");
    for (name, why) in [
        ("down", "refused"),
        ("slow", "timed out"),
        ("partial", "it rejected \"1\" records"),
        ("liar", "the connection ended"),
        ("blocked", "No such file"),
    ] {
        let said = || waiting(&place, name).1.as_str().unwrap_or_default().to_owned();
        until(&format!("{name} says {why}"), || {
            said().contains(why) && waiting(&place, name).0 > 0
        });
    }
    assert_eq!(gateway.send("GET", "/readyz", "", "").status, 200);
    let list = place.stepgate(["audit", "list"], "");
    assert!(list.stdout.contains("LAST ERROR") && list.stdout.contains("otlp"), "{list:?}");

    let doctor = place.stepgate(["doctor"], "");
    assert_eq!(doctor.code, 1, "{doctor:?}");
    for name in ["down", "slow", "partial", "liar", "blocked"] {
        assert!(doctor.stdout.contains(&format!("`{name}` cannot be sent")), "{doctor:?}");
    }

    let down = Sink::at(&down);
    slow.answer_after(Duration::ZERO);
    partial.say("{}");
    liar.be_honest();
    fs::create_dir(place.path().join("no-such-directory")).unwrap();
    let all = exported(&place);
    let patience = Duration::from_secs(90);
    until_within(patience, "the one that was down", || is_whole(&taken(&down), &all));
    until_within(patience, "the slow one", || is_whole(&taken(&slow), &all));
    until_within(patience, "the small one", || is_whole(&taken(&small), &all));
    until_within(patience, "the collector", || is_whole(&collected(&partial), &all));
    until_within(patience, "the liar", || is_whole(&liar.events(), &all));
    let file = place.path().join("no-such-directory/events.jsonl");
    until_within(patience, "the file", || {
        is_whole(&lines(&fs::read_to_string(&file).unwrap_or_default()), &all)
    });
    for name in ["down", "slow", "small", "partial", "liar", "blocked"] {
        until_within(patience, name, || waiting(&place, name) == (0, Value::Null));
    }
}

#[test]
fn a_receiver_that_is_too_slow_for_many_events_at_once_gets_fewer() {
    let (place, sink) = (Place::new(), Sink::start());
    sink.answer(503);
    let url = format!("url = \"http://{}/in\"\ntimeout_ms = 1000", sink.address);
    configure(&place, &stream("slow", "webhook", &url));
    let gateway = Gateway::start(&place);
    (0..60).for_each(|_| think(&gateway));
    let all = exported(&place);
    // All of them together would take several times the timeout.
    sink.take_per_kib(Duration::from_millis(100));
    sink.answer(200);
    let patience = Duration::from_secs(60);
    until_within(patience, "all have arrived", || waiting(&place, "slow") == (0, Value::Null));
    assert!(is_whole(&taken(&sink), &all));
}

#[test]
fn nothing_is_missing_after_a_kill_of_the_gateway_or_of_the_receiver() {
    let authority = Authority::new();
    let mut rsyslog = Rsyslog::start(&authority);
    let hook = Sink::start();
    let place = Place::with(vec![("SSL_CERT_FILE", authority.certificate().into())]);
    let config = stream("log", "syslog", &format!("host = \"localhost\"\nport = {}", rsyslog.port))
        + &stream("hook", "webhook", &format!("url = \"http://{}/in\"", hook.address))
        + &stream("file", "file", "path = \"events.jsonl\"\nrotate_bytes = 65536\nkeep = 1000");
    configure(&place, &config);
    for round in 0..4 {
        let gateway = Gateway::start(&place);
        for step in 0..30 {
            think(&gateway);
            if step == 10 + round {
                rsyslog.restart();
            }
        }
        kill(gateway);
        // As a crash in the middle of a line leaves it.
        let file = place.path().join("events.jsonl");
        let mut bytes = fs::read(&file).unwrap_or_default();
        bytes.extend_from_slice(b"{\"posi");
        fs::write(&file, bytes).unwrap();
    }
    let gateway = Gateway::start(&place);
    think(&gateway);
    let all = exported(&place);
    let patience = Duration::from_secs(90);
    until_within(patience, "rsyslog", || {
        let received: Vec<_> = rsyslog.messages().into_iter().map(|it| it.event).collect();
        let received: BTreeSet<_> = received.iter().map(position).collect();
        all.iter().all(|event| received.contains(&position(event)))
    });
    until_within(patience, "the webhook", || is_whole(&taken(&hook), &all));
    let file = place.path().join("events.jsonl");
    until_within(patience, "the files", || {
        let mut names: Vec<_> =
            (1..=1000).map(|number| file.with_extension(format!("jsonl.{number}"))).collect();
        names.retain(|name| name.exists());
        names.reverse();
        names.push(file.clone());
        let text: String = names.iter().map(|name| fs::read_to_string(name).unwrap()).collect();
        // A file that was just renamed may be read twice or not at all: look again.
        text.ends_with('\n') && is_whole(&lines(&text), &all)
    });
}

#[test]
fn a_range_is_sent_once_more_and_the_stream_stays_where_it_is() {
    let (place, sink) = (Place::new(), Sink::start());
    let config = stream("hook", "webhook", &format!("url = \"http://{}/in\"", sink.address))
        + &stream("now", "file", "path = \"now.jsonl\"\nbegin = \"now\"");
    configure(&place, &config);
    let gateway = Gateway::start(&place);
    for _ in 0..5 {
        think(&gateway);
    }
    let all = exported(&place);
    until("all are there", || is_whole(&taken(&sink), &all));
    until("the cursors are there", || {
        ["hook", "now"].iter().all(|name| waiting(&place, name).0 == 0)
    });
    let before = place.stepgate(["audit", "list", "--json"], "").stdout;
    let (sent, last) = (taken(&sink).len(), all.len() as u64);
    let to = (last - 1).to_string();
    let again = place.stepgate(["audit", "send", "hook", "--from", "3", "--to", &to], "");
    assert_eq!((again.code, again.stdout), (0, format!("hook: {} events sent\n", last - 3)));
    let resent: Vec<u64> = taken(&sink)[sent..].iter().map(position).collect();
    assert_eq!(resent, (3..last).collect::<Vec<_>>());
    assert_eq!(place.stepgate(["audit", "list", "--json"], "").stdout, before);
    let part =
        place.stepgate(["audit", "export", "--from", "4", "--to", "5", "--format", "ocsf"], "");
    assert_eq!(lines(&part.stdout).iter().map(position).collect::<Vec<_>>(), [4, 5]);
    // A stream that begins now has nothing of what was before it.
    let first = fs::read_to_string(place.path().join("now.jsonl")).unwrap();
    assert!(position(&lines(&first)[0]) > 1, "{first}");

    sink.answer(503);
    let failed = place.stepgate(["audit", "send", "hook", "--from", "2"], "");
    assert_eq!(failed.code, 1, "{failed:?}");
    assert!(
        failed.stderr.contains("0 events sent, and no more: go on with --from 2"),
        "{failed:?}"
    );
    let none = place.stepgate(["audit", "send", "nobody"], "");
    assert!(none.code == 1 && none.stderr.contains("the configuration has hook, now"), "{none:?}");
}

#[test]
fn a_syslog_server_whose_certificate_is_not_trusted_gets_nothing_until_it_is() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let rsyslog = Rsyslog::start(&authority);
    let directory = tempfile::tempdir().unwrap();
    let trusted = directory.path().join("trusted.pem");
    fs::copy(stranger.certificate(), &trusted).unwrap();
    let place = Place::with(vec![("SSL_CERT_FILE", trusted.clone().into())]);
    let server = format!("host = \"localhost\"\nport = {}", rsyslog.port);
    configure(&place, &stream("log", "syslog", &server));
    let gateway = Gateway::start(&place);
    think(&gateway);
    let said = || waiting(&place, "log").1.as_str().unwrap_or_default().to_owned();
    until("the error is told", || said().contains("certificate"));
    think(&gateway);
    let (waits, error) = waiting(&place, "log");
    assert!(waits > 0 && rsyslog.messages().is_empty(), "{waits} {error}");
    let doctor = place.stepgate(["doctor"], "");
    assert!(doctor.code == 1 && doctor.stdout.contains("`log` cannot be sent"), "{doctor:?}");
    drop(gateway);
    fs::copy(authority.certificate(), &trusted).unwrap();
    let _gateway = Gateway::start(&place);
    let all = exported(&place);
    let received = || rsyslog.messages().into_iter().map(|it| it.event).collect::<Vec<_>>();
    until("everything has arrived", || is_whole(&received(), &all));
}

#[test]
fn a_node_that_is_killed_leaves_no_gap_in_a_stream_that_another_one_takes_over() {
    let (house, sink) = (House::new(), Sink::start());
    let places = house.two();
    for place in &places {
        configure(
            place,
            &stream("hook", "webhook", &format!("url = \"http://{}/in\"", sink.address)),
        );
    }
    let mut gateways = places.iter().map(Gateway::start).collect::<Vec<_>>();
    until("a node has the cursor", || !owner(&house).is_empty());
    let sender = usize::from(owner(&house) == "second");
    for round in 0..20 {
        gateways.iter().for_each(think);
        if round == 10 {
            // What it sends now has no answer before it is killed.
            until("it has begun to send", || !taken(&sink).is_empty());
            sink.answer_after(Duration::from_secs(5));
        }
    }
    let before = taken(&sink).len();
    kill(gateways.remove(sender));
    sink.answer_after(Duration::ZERO);
    think(&gateways[0]);
    let all = exported(&places[1 - sender]);
    assert!(all.len() > before, "{before} of {}", all.len());
    until("everything has arrived", || is_whole(&taken(&sink), &all));
    assert_eq!(owner(&house), ["second", "first"][sender]);
}
