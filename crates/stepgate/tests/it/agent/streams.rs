//! Turns as server-sent events.

use serde_json::{Value, json};

use super::stage::{Stage, ask, ask_with, calls, hello, write_file};

/// The events of a stream: their names and their data.
fn events(body: &str) -> Vec<(String, Value)> {
    // The body comes in chunks; their lengths stand on lines of their own.
    let lines: Vec<&str> = body.lines().map(str::trim_end).collect();
    let mut events = Vec::new();
    let mut name = String::new();
    for line in lines {
        if let Some(text) = line.strip_prefix("event: ") {
            name = text.to_owned();
        } else if let Some(text) = line.strip_prefix("data: ") {
            events.push((name.clone(), serde_json::from_str(text).unwrap()));
        }
    }
    events
}

#[test]
fn a_stream_tells_the_text_as_it_comes_and_each_call_with_its_outcome() {
    let stage = Stage::new();
    let mut first = calls(&[("c1", "WRITE_FILE", write_file("a.txt"))]);
    first["text"] = json!("I write.");
    stage.model.says([first, json!({ "text": "written" })]);
    let gateway = stage.gateway();
    let accept = [("accept", "text/event-stream")];
    let reply = ask_with(&gateway, "k1", &accept, &hello("write"));
    assert_eq!(reply.status, 200);
    assert!(reply.headers["content-type"].starts_with("text/event-stream"));
    let events = events(&reply.body);
    let names: Vec<&str> = events.iter().map(|(name, _)| name.as_str()).collect();
    let expected = [
        "opened",
        "text",
        "text",
        "answered",
        "tool_call",
        "tool_result",
        "text",
        "text",
        "answered",
        "response",
    ];
    assert_eq!(names, expected);
    assert_eq!(events[1].1["text"], "I wri");
    assert_eq!(events[4].1["action"], "WRITE_FILE");
    assert_eq!(events[5].1["outcome"], "SUCCESS");
    let again = ask(&gateway, "k1", &hello("write"));
    assert_eq!(events[9].1, again.json());
    assert_eq!(events[0].1["turnId"], again.json()["turnId"]);
}

#[test]
fn a_request_that_is_refused_at_once_is_no_stream_and_one_that_fails_later_ends_with_the_error() {
    let stage = Stage::new();
    stage.model.says([json!({ "raw": "nonsense" })]);
    let gateway = stage.gateway();
    let accept = [("accept", "text/event-stream")];
    let refused = ask_with(&gateway, "k1", &accept, &json!({}));
    assert_eq!(
        (refused.status, &refused.json()["errors"][0]["code"]),
        (400, &json!("AGN-036/3.1/input"))
    );
    let reply = ask_with(&gateway, "k2", &accept, &hello("go"));
    let events = events(&reply.body);
    let (name, data) = events.last().unwrap();
    assert_eq!(
        (name.as_str(), &data["errors"][0]["code"]),
        ("error", &json!("MODEL_OUTPUT_INVALID"))
    );
}

#[test]
fn a_stream_whose_patience_ends_says_what_the_turn_waits_for() {
    let stage = Stage::new();
    stage.model.says([calls(&[("c1", "fixture__act", json!({ "value": 7 }))])]);
    let gateway = stage.gateway();
    // However slow the machine is, a person is asked before the patience of the stream begins.
    assert_eq!(ask(&gateway, "k1", &hello("act")).status, 202);
    let headers = [("accept", "text/event-stream"), ("prefer", "wait=1")];
    let reply = ask_with(&gateway, "k1", &headers, &hello("act"));
    let events = events(&reply.body);
    let (name, data) = events.last().unwrap();
    assert_eq!((name.as_str(), &data["code"]), ("accepted", &json!("APPROVAL_REQUIRED")));
    assert_eq!(data["approvalId"], stage.scene.pending());
}
