//! The ways to a collector: gRPC, TLS, and headers from a file; and which traces go there.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use super::collector::{Collector, Protocol};
use super::{
    CALLER, TRACE, assert_chain, has_line, has_steps, hex, look, scene, scene_at, spans_counted,
    spans_of, trace, traceparent,
};
use crate::binary::Place;
use crate::http_client::Gateway;
use crate::scene::{Scene, until, until_within};
use crate::tls::authority::Authority;

const PARTS: [&str; 4] = ["tools/call fixture.look", "EXECUTE", "step", "POST /v1/steps"];

#[test]
fn traces_log_lines_and_metrics_come_over_grpc_too() {
    let collector = Collector::start(Protocol::Grpc);
    let scene = scene(&format!("http://{}", collector.address), Protocol::Grpc.configured());
    let gateway = Gateway::start(&scene.place);
    look(&gateway, &[("traceparent", &traceparent())]);
    let spans = trace(|| spans_of(collector.messages("traces")), "POST /v1/steps");
    assert_chain(&spans, &PARTS);
    until("the line of the request", || has_line(collector.messages("logs")));
    until("the count of steps", || has_steps(collector.messages("metrics")));
}

/// A gateway that trusts this authority alone, and sends a secret header to the collector over TLS.
fn secret_scene(trusted: &Authority, collector: &Collector, protocol: Protocol) -> Scene {
    let place = Place::with(vec![("SSL_CERT_FILE", trusted.certificate().into())]);
    let endpoint = format!("https://localhost:{}", collector.address.port());
    let more =
        format!("{}\n[otlp.headers.authorization]\nfile = \"otlp.key\"\n", protocol.configured());
    let scene = scene_at(place, &endpoint, &more);
    fs::write(scene.place.path().join("otlp.key"), "Bearer secret\n").unwrap();
    scene
}

#[test]
fn a_collector_whose_certificate_ssl_cert_file_vouches_for_gets_everything_over_tls() {
    let authority = Authority::new();
    let directory = tempfile::tempdir().unwrap();
    authority.issue("DNS:localhost", 2, directory.path());
    for protocol in [Protocol::Http, Protocol::Grpc] {
        let collector = Collector::with_tls(protocol, directory.path());
        let scene = secret_scene(&authority, &collector, protocol);
        let gateway = Gateway::start(&scene.place);
        look(&gateway, &[("traceparent", &traceparent())]);
        let spans = trace(|| spans_of(collector.messages("traces")), "POST /v1/steps");
        assert_chain(&spans, &PARTS);
        until("the line of the request", || has_line(collector.messages("logs")));
        let calls = collector.calls();
        assert!(calls.iter().all(|call| call.headers["authorization"] == "Bearer secret"));
    }
}

#[test]
fn a_collector_whose_certificate_is_not_trusted_gets_nothing_and_no_step_fails() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let directory = tempfile::tempdir().unwrap();
    authority.issue("DNS:localhost", 2, directory.path());
    for protocol in [Protocol::Http, Protocol::Grpc] {
        let collector = Collector::with_tls(protocol, directory.path());
        let scene = secret_scene(&stranger, &collector, protocol);
        let gateway = Gateway::start(&scene.place);
        look(&gateway, &[("traceparent", &traceparent())]);
        let dropped = || spans_counted(&gateway, "dropped") > 0;
        until_within(Duration::from_secs(60), "the spans are counted as dropped", dropped);
        assert_eq!(spans_counted(&gateway, "sent"), 0);
        let doctor = scene.stepgate(&["doctor"]);
        assert!(doctor.code == 1 && doctor.stdout.contains("it cannot be reached"), "{doctor:?}");
        assert_eq!(collector.calls().len(), 0);
    }
}

/// The ids of the traces that have spans, once the trace of a request is whole.
fn traces(collector: &Collector, is_last: impl Fn(&str) -> bool) -> BTreeSet<String> {
    let spans = || spans_of(collector.messages("traces"));
    let is_whole =
        || spans().iter().any(|it| it.name == "POST /v1/steps" && is_last(&hex(&it.trace_id)));
    until("the trace of the request", is_whole);
    spans().into_iter().map(|span| hex(&span.trace_id)).collect()
}

#[test]
fn of_traces_that_begin_here_none_is_recorded_at_0_percent_and_the_callers_word_counts() {
    let collector = Collector::start(Protocol::Http);
    let scene = scene(&format!("http://{}", collector.address), "sample_percent = 0");
    let gateway = Gateway::start(&scene.place);
    look(&gateway, &[]);
    look(&gateway, &[("traceparent", &traceparent())]);
    assert_eq!(traces(&collector, |id| id == TRACE), BTreeSet::from([TRACE.to_owned()]));
}

#[test]
fn of_traces_that_begin_here_all_are_recorded_at_100_percent_and_the_callers_word_counts() {
    let collector = Collector::start(Protocol::Http);
    let scene = scene(&format!("http://{}", collector.address), "sample_percent = 100");
    let gateway = Gateway::start(&scene.place);
    let not_sampled = format!("00-{TRACE}-{CALLER}-00");
    look(&gateway, &[("traceparent", &not_sampled)]);
    // The tool's server is told that it is not recorded.
    let meta = fs::read_to_string(scene.file("meta.json")).unwrap();
    let meta: serde_json::Value = serde_json::from_str(&meta).unwrap();
    let passed_on = meta["traceparent"].as_str().unwrap();
    assert!(passed_on.contains(TRACE) && passed_on.ends_with("-00"), "{passed_on}");
    for expected in 1..=3 {
        look(&gateway, &[]);
        let spans = || spans_of(collector.messages("traces"));
        let whole = || spans().iter().filter(|it| it.name == "POST /v1/steps").count();
        until("one trace more", || whole() == expected);
    }
    let seen = traces(&collector, |_| true);
    assert!(seen.len() >= 3 && !seen.contains(TRACE), "{seen:?}");
}

#[test]
fn a_header_is_read_again_from_its_file_for_each_request() {
    let collector = Collector::start(Protocol::Http);
    let secret = "[otlp.headers.authorization]\nfile = \"otlp.key\"\n";
    let scene = scene(&format!("http://{}", collector.address), secret);
    let file = scene.place.path().join("otlp.key");
    let replace = |text: &str| {
        let beside = file.with_extension("new");
        fs::write(&beside, text).unwrap();
        fs::rename(beside, &file).unwrap();
    };
    replace("Bearer first\n");
    let gateway = Gateway::start(&scene.place);
    let last = || Some(collector.calls().last()?.headers["authorization"].clone());
    until("the first value", || last().is_some_and(|value| value == "Bearer first"));
    replace("Bearer second\n");
    until("the second value", || last().is_some_and(|value| value == "Bearer second"));
    // Without its file nothing is sent, and nothing else happens.
    fs::remove_file(&file).unwrap();
    look(&gateway, &[]);
    until("the spans are counted as dropped", || spans_counted(&gateway, "dropped") > 0);
    let before = collector.calls().len();
    replace("Bearer third\n");
    until("it goes on", || collector.calls().len() > before);
    let values = collector.calls().into_iter().map(|call| call.headers["authorization"].clone());
    let mut values: Vec<_> = values.collect();
    values.dedup();
    assert_eq!(values, ["Bearer first", "Bearer second", "Bearer third"]);
}
