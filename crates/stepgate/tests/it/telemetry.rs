//! OpenTelemetry: what a collector gets of a gateway, read with the official types; and a collector that is down, slow or
//! lying.

mod collector;
mod ways;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write;
use std::time::Duration;

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use prost::Message;
use serde_json::{Value, json};

use crate::binary::Place;
use crate::deploy::free_address;
use crate::gate::proposal;
use crate::http_client::{Gateway, exchange, request};
use crate::mcp::client::Client;
use crate::notify::receivers::Sink;
use crate::scene::{Scene, until};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const CALLER: &str = "b7ad6b7169203331";

fn traceparent() -> String {
    format!("00-{TRACE}-{CALLER}-01")
}

/// A scene whose gateway sends to this collector.
fn scene(endpoint: &str, more: &str) -> Scene {
    scene_at(Place::new(), endpoint, more)
}

fn scene_at(place: Place, endpoint: &str, more: &str) -> Scene {
    let scene = Scene::at(place, "", &[]);
    let file = scene.place.path().join("stepgate.toml");
    let mut file = fs::OpenOptions::new().append(true).open(file).unwrap();
    writeln!(file, "[otlp]\nendpoint = \"{endpoint}\"\nmetrics_interval_ms = 200\n{more}").unwrap();
    scene
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn spans_of(messages: impl IntoIterator<Item = Vec<u8>>) -> Vec<Span> {
    let read = |bytes: Vec<u8>| ExportTraceServiceRequest::decode(bytes.as_slice()).unwrap();
    let resources = messages.into_iter().map(read).flat_map(|request| request.resource_spans);
    let scopes = resources.flat_map(|resource| resource.scope_spans);
    scopes.flat_map(|scope| scope.spans).collect()
}

fn messages(collector: &Sink, path: &str) -> Vec<Vec<u8>> {
    let requests = collector.requests().into_iter().filter(|request| request.path == path);
    requests.map(|request| request.bytes).collect()
}

fn trace(spans: impl Fn() -> Vec<Span>, outermost: &str) -> BTreeMap<String, Span> {
    trace_of(TRACE, spans, outermost)
}

/// The spans of a trace, by name, once the outermost one has come.
fn trace_of(
    trace_id: &str,
    spans: impl Fn() -> Vec<Span>,
    outermost: &str,
) -> BTreeMap<String, Span> {
    let ours = || spans().into_iter().filter(|span| hex(&span.trace_id) == trace_id);
    until(outermost, || ours().any(|span| span.name == outermost));
    ours().map(|span| (span.name.clone(), span)).collect()
}

fn texts(attributes: &[KeyValue]) -> BTreeMap<&str, &str> {
    attributes
        .iter()
        .filter_map(|attribute| match attribute.value.as_ref()?.value.as_ref()? {
            Any::StringValue(value) => Some((attribute.key.as_str(), value.as_str())),
            _ => None,
        })
        .collect()
}

/// Asserts that each span is the child of the next one, and the last one the caller's child.
fn assert_chain(spans: &BTreeMap<String, Span>, chain: &[&str]) {
    for (child, parent) in chain.iter().zip(chain.iter().skip(1)) {
        assert_eq!(spans[*child].parent_span_id, spans[*parent].span_id, "{child} in {parent}");
    }
    assert_eq!(hex(&spans[*chain.last().unwrap()].parent_span_id), CALLER);
}

fn look(gateway: &Gateway, headers: &[(&str, &str)]) {
    let mut body: Value = serde_json::from_str(&proposal(1, "fixture.look", json!({}))).unwrap();
    body["reasoning"] = "a-secret-thought".into();
    let request = request("POST", "/v1/steps", &gateway.agent, headers, &body.to_string());
    let reply = exchange(gateway.address, request.as_bytes()).unwrap();
    assert_eq!(reply.json()["outcome"], "SUCCESS", "{}", reply.body);
}

#[test]
fn a_step_is_one_trace_from_the_callers_request_to_the_tool_and_back() {
    let collector = Sink::start();
    let scene = scene(&format!("http://{}", collector.address), "");
    let gateway = Gateway::start(&scene.place);
    look(&gateway, &[("traceparent", &traceparent()), ("tracestate", "vendor=1")]);
    let spans = trace(|| spans_of(messages(&collector, "/v1/traces")), "POST /v1/steps");

    assert_chain(&spans, &["tools/call fixture.look", "EXECUTE", "step", "POST /v1/steps"]);
    let names: BTreeSet<&str> = spans.keys().map(String::as_str).collect();
    let expected = [
        "RECEIVE",
        "PARSE",
        "VALIDATE_SCHEMA",
        "VALIDATE_ACTION",
        "VALIDATE_ARGS",
        "AUTHORIZE",
        "EXECUTE",
        "RECORD",
        "RESPOND",
        "commit",
        "step",
        "tools/call fixture.look",
        "POST /v1/steps",
    ];
    assert!(expected.iter().all(|name| names.contains(name)), "{names:?}");
    let tool = &spans["tools/call fixture.look"];
    assert_eq!(tool.kind, i32::from(SpanKind::Client));
    assert_eq!(texts(&tool.attributes)["gen_ai.operation.name"], "execute_tool");
    assert_eq!(texts(&tool.attributes)["gen_ai.tool.name"], "fixture.look");
    assert_eq!(texts(&spans["step"].attributes)["stepgate.outcome"], "SUCCESS");
    assert_eq!(spans["POST /v1/steps"].trace_state, "vendor=1");
    assert!(spans.values().all(|span| span.end_time_unix_nano >= span.start_time_unix_nano));

    // The tool's server goes on with the trace.
    let meta = fs::read_to_string(scene.file("meta.json")).unwrap();
    let meta: Value = serde_json::from_str(&meta).unwrap();
    assert_eq!(meta["traceparent"], format!("00-{TRACE}-{}-01", hex(&tool.span_id)));
    assert_eq!(meta["tracestate"], "vendor=1");

    // Nothing of a call's content leaves.
    let all = collector.requests();
    assert!(all.iter().all(|request| !request.body.contains("a-secret-thought")));
}

/// Whether a log line of the request, with its trace, is among these messages.
fn has_line(messages: Vec<Vec<u8>>) -> bool {
    messages.into_iter().any(|bytes| {
        let request = ExportLogsServiceRequest::decode(bytes.as_slice()).unwrap();
        let scopes = request.resource_logs.into_iter().flat_map(|it| it.scope_logs);
        let mut lines = scopes.flat_map(|scope| scope.log_records);
        lines.any(|line| {
            let text = line.body.and_then(|body| body.value);
            let is_line = matches!(text, Some(Any::StringValue(text)) if text.starts_with("POST /v1/steps 200"));
            is_line && hex(&line.trace_id) == TRACE
        })
    })
}

/// Whether the count of steps is among these messages.
fn has_steps(messages: Vec<Vec<u8>>) -> bool {
    messages.into_iter().any(|bytes| {
        let request = ExportMetricsServiceRequest::decode(bytes.as_slice()).unwrap();
        let scopes = request.resource_metrics.into_iter().flat_map(|it| it.scope_metrics);
        let mut metrics = scopes.flat_map(|scope| scope.metrics);
        metrics.any(|metric| {
            let is_sum = matches!(&metric.data, Some(Data::Sum(sum)) if sum.is_monotonic && sum.data_points.len() == 1);
            metric.name == "stepgate_steps" && is_sum
        })
    })
}

#[test]
fn log_lines_and_metrics_come_too_and_a_line_has_its_trace() {
    let collector = Sink::start();
    let secret = "[otlp.headers.authorization]\nfile = \"otlp.key\"\n";
    let scene = scene(&format!("http://{}/", collector.address), secret);
    fs::write(scene.place.path().join("otlp.key"), "Bearer of-the-collector\n").unwrap();
    let gateway = Gateway::start(&scene.place);
    look(&gateway, &[("traceparent", &traceparent())]);
    until("the line of the request", || has_line(messages(&collector, "/v1/logs")));
    until("the count of steps", || has_steps(messages(&collector, "/v1/metrics")));
    let mut requests = collector.requests().into_iter();
    assert!(requests.all(|it| it.header("authorization") == "Bearer of-the-collector"));
}

#[test]
fn a_call_over_mcp_goes_on_with_the_trace_of_its_metadata() {
    let collector = Sink::start();
    let scene = scene(&format!("http://{}", collector.address), "");
    let gateway = Gateway::start(&scene.place);
    // With a session the SDK calls the handler from a task of its own.
    for (client, offset) in [(Client::of(&gateway), 0), (Client::shaken(&gateway, json!({})), 1)] {
        let trace_id = format!("{:032x}", u128::from_str_radix(TRACE, 16).unwrap() + offset);
        let meta = json!({ "traceparent": format!("00-{trace_id}-{CALLER}-01") });
        let params = json!({ "name": "fixture__look", "arguments": {}, "_meta": meta });
        let answer = client.begin("tools/call", params).messages().pop().unwrap();
        assert_ne!(answer["result"]["isError"], true, "{answer}");
        let outermost = "tools/call fixture__look";
        let sent = || spans_of(messages(&collector, "/v1/traces"));
        let spans = trace_of(&trace_id, sent, outermost);
        assert_chain(&spans, &["tools/call fixture.look", "EXECUTE", "step", outermost]);
        // The request itself has a trace of its own; the call is linked to it.
        let link = &spans[outermost].links[0];
        until("the request's own trace", || {
            let requests = sent().into_iter().filter(|span| span.name == "POST /mcp");
            requests.map(|span| span.span_id).any(|id| id == link.span_id)
        });
    }
}

#[test]
fn without_a_collector_the_callers_trace_still_goes_on_to_the_tool() {
    let scene = Scene::new("");
    let gateway = Gateway::start(&scene.place);
    look(&gateway, &[("traceparent", &traceparent())]);
    let meta = fs::read_to_string(scene.file("meta.json")).unwrap();
    let meta: Value = serde_json::from_str(&meta).unwrap();
    assert_eq!(meta["traceparent"], traceparent());
}

/// The number of records of this outcome that were spans.
fn spans_counted(gateway: &Gateway, outcome: &str) -> u64 {
    let labels = format!("{{signal=\"traces\",outcome=\"{outcome}\"}}");
    gateway.metric(&format!("stepgate_otlp_records_total{labels}"))
}

#[test]
fn a_collector_that_is_down_slow_or_lying_slows_no_step_and_what_it_loses_is_counted() {
    let slow = Sink::start();
    slow.answer_after(Duration::from_secs(600));
    let lying = Sink::start();
    lying.answer(418);
    let collectors = [free_address().to_string(), slow.address.clone(), lying.address.clone()];
    for address in collectors {
        let scene = scene(&format!("http://{address}"), "queue_max = 4\ntimeout_ms = 60000");
        let gateway = Gateway::start(&scene.place);
        // One that waited for the collector would take longer than the client waits for an answer.
        for id in 1..=20 {
            let reply = gateway.propose(&proposal(id, "THINK", json!({})));
            assert_eq!(reply.json()["outcome"], "SUCCESS", "{}", reply.body);
        }
        until("what does not fit is counted", || spans_counted(&gateway, "dropped") > 0);
        assert_eq!(spans_counted(&gateway, "sent"), 0);
        gateway.signal(rustix::process::Signal::TERM);
        let (code, _) = gateway.end();
        assert_eq!(code, Some(0), "{address}");
    }
}

#[test]
fn a_collector_that_cannot_be_is_refused_before_anything_is_served() {
    for (endpoint, more, why) in [
        ("ftp://collector", "", "is neither http nor https"),
        ("collector", "", "is no URL"),
        ("http://127.0.0.1:1", "sample_percent = 101", "otlp.sample_percent is 101"),
        ("http://127.0.0.1:1", "protocol = \"http/json\"", "unknown variant"),
        ("http://127.0.0.1:1", "[otlp.headers.x]\n", "name `env` or `file`"),
        ("http://collector.invalid", "[otlp.headers.x]\nfile = \"x\"\n", "use https"),
        ("http://127.0.0.1:1", "[otlp.headers.\"a b\"]\nfile = \"x\"\n", "is no name of a header"),
    ] {
        let scene = scene(endpoint, more);
        let output = scene.stepgate(&["serve", "--bind", "127.0.0.1:0"]);
        assert_eq!(output.code, 1, "{output:?}");
        assert!(output.stderr.contains(why), "{}", output.stderr);
    }
}
