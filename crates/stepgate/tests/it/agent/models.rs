//! Models that misbehave.

use serde_json::{Value, json};

use super::stage::{
    ModelProcess, Stage, after, ask, ask_with, calls, codes, hello, look, write_file,
};
use crate::http_client::Gateway;

#[test]
fn calls_that_are_malformed_are_refused_cleanly_and_nothing_runs() {
    let good = json!(["c1", "WRITE_FILE", write_file("a.txt").to_string()]);
    let with = |call: Value| json!({ "calls": [good.clone(), call] });
    let rows = [
        with(json!(["c2", "WRITE_FILE", "{\"path\":"])),
        with(json!(["c2", "WRITE_FILE", "{\"path\":\"a\",\"path\":\"b\"}"])),
        with(json!(["c2", "WRITE_FILE", "\"text\""])),
        with(json!(["c2", "launch_missiles", "{}"])),
        with(json!(["c1", "READ_FILE", "{}"])),
        json!({ "calls": [good.clone()], "finish": "length" }),
        json!({ "text": "" }),
        json!({ "raw": "not JSON" }),
        json!({ "raw": "{\"choices\":[],\"choices\":[]}" }),
        json!({ "raw_stream": ["{\"choices\":[{\"delta\":{\"content\":7}}]}"] }),
        json!({ "raw_stream": ["{\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":5}]}}]}"] }),
    ];
    let stage = Stage::new();
    let gateway = stage.gateway();
    let count = rows.len();
    for (number, row) in rows.into_iter().enumerate() {
        stage.model.says([row.clone()]);
        let key = format!("k{number}");
        let reply = ask(&gateway, &key, &hello("go"));
        assert_eq!(reply.status, 424, "{row}: {}", reply.body);
        assert_eq!(codes(&reply), ["MODEL_OUTPUT_INVALID"], "{row}");
        assert_eq!(ask(&gateway, &key, &hello("go")).body, reply.body, "it is recorded");
    }
    assert_eq!(stage.model.asked().len(), count);
    assert!(!stage.sandbox("a.txt").exists());
    drop(gateway);
    stage.scene.verified();
}

#[test]
fn a_model_that_loops_is_stopped_and_the_conversation_can_go_on() {
    let stage = Stage::new();
    let round =
        |n: usize| calls(&[(&*format!("c{n}"), "LIST_FILES", json!({"path": "/sandbox/"}))]);
    stage.model.says((0..8).map(round));
    let gateway = stage.gateway();
    let reply = ask(&gateway, "k1", &hello("go"));
    assert_eq!((reply.status, codes(&reply)), (424, vec!["ROUNDS_EXHAUSTED".to_owned()]));
    assert_eq!(stage.model.asked().len(), 8);
    let events = gateway.send("GET", "/v1/runs", &gateway.agent, "").json();
    let run = &events["runs"][0];
    let session = run["session_id"].as_str().unwrap();
    assert_eq!(events["runs"].as_array().unwrap().len(), 7, "nobody would be told of the eighth");
    stage.model.says([json!({ "text": "sorry" })]);
    // The turn's id follows from who asked and with which key.
    let principal = stepgate_core::ids::PrincipalId::parse("agent").unwrap();
    let turn = stepgate_agent::turn::TurnId::of(&principal, "k1").to_string();
    assert_eq!(look(&gateway, &json!(turn)).json()["state"], "failed");
    let follow = after(&json!({ "sessionId": session, "turnId": turn }), "what happened?");
    let reply = ask(&gateway, "k2", &follow);
    assert_eq!((reply.status, &reply.json()["primaryOutputText"]), (200, &json!("sorry")));
}

#[test]
fn a_model_that_does_not_answer_in_time_is_asked_again_by_the_same_request() {
    let stage = Stage::with("timeout_ms = 10000", ModelProcess::start());
    stage.model.says([
        calls(&[("c1", "WRITE_FILE", write_file("a.txt"))]),
        json!({ "hang": true }),
        json!({ "text": "done" }),
    ]);
    let gateway = stage.gateway();
    let reply = ask(&gateway, "k1", &hello("go"));
    assert_eq!((reply.status, codes(&reply)), (504, vec!["MODEL_TIMED_OUT".to_owned()]));
    let reply = ask(&gateway, "k1", &hello("go"));
    assert_eq!((reply.status, &reply.json()["primaryOutputText"]), (200, &json!("done")));
    let runs = gateway.send("GET", "/v1/runs", &gateway.agent, "").json();
    assert_eq!(runs["runs"].as_array().unwrap().len(), 1, "its call was made once");
}

#[test]
fn trouble_that_passes_is_tried_again_and_trouble_that_stays_is_told() {
    let model = ModelProcess::start();
    let key = model.file("key");
    std::fs::write(&key, "sk-secret\n").unwrap();
    let stage = Stage::with(&format!("key_file = {key:?}"), model);
    let busy = |status: u16| json!({ "status": status, "retry_after": "0", "body": "busy" });
    stage.model.says([busy(503), busy(429), json!({ "text": "now" })]);
    let mut gateway = stage.gateway();
    let reply = ask(&gateway, "k1", &hello("go"));
    assert_eq!((reply.status, &reply.json()["primaryOutputText"]), (200, &json!("now")));
    stage.model.says([busy(500), busy(500), busy(500)]);
    let reply = ask(&gateway, "k2", &hello("go"));
    assert_eq!((reply.status, codes(&reply)), (502, vec!["MODEL_UNAVAILABLE".to_owned()]));
    stage.model.says([json!({ "status": 401, "body": "the key sk-sec*** is wrong" })]);
    let reply = ask(&gateway, "k3", &hello("go"));
    assert_eq!((reply.status, codes(&reply)), (502, vec!["MODEL_REFUSED".to_owned()]));
    assert!(!reply.body.contains("sk-"), "what the endpoint says is for the operator");
    gateway.until_it_says("is wrong");
    stage.model.says([json!({ "break": true, "text": "half an ans" })]);
    let reply = ask(&gateway, "k4", &hello("go"));
    assert_eq!((reply.status, codes(&reply)), (502, vec!["MODEL_UNAVAILABLE".to_owned()]));
    stage.model.says([json!({ "text": "whole", "whole": true })]);
    let reply = ask(&gateway, "k4", &hello("go"));
    assert_eq!((reply.status, &reply.json()["primaryOutputText"]), (200, &json!("whole")));
    for asked in stage.model.asked() {
        assert_eq!(asked["authorization"], "Bearer sk-secret");
    }
}

/// A stage whose model has this key.
fn with_key(key: &str) -> Stage {
    let model = ModelProcess::start();
    let file = model.file("key");
    std::fs::write(&file, key).unwrap();
    Stage::with(&format!("key_file = {file:?}"), model)
}

#[test]
fn an_endpoint_that_repeats_the_key_tells_it_to_nobody() {
    let key = "sk-0123456789/abcdef";
    let stage = with_key(key);
    let text = |text: &str| json!({ "choices": [{ "delta": { "content": text } }] }).to_string();
    let error = json!({ "error": { "message": format!("Bearer {key} is no more") } }).to_string();
    let long = format!("{}{key}", "x".repeat(490));
    let duplicate = format!("{{\"{key}\":1,\"{key}\":2}}");
    let rows = [
        (json!({ "raw_stream": [text("half an ans"), error] }), 502, "MODEL_UNAVAILABLE"),
        (json!({ "status": 401, "body": format!("{key} is wrong") }), 502, "MODEL_REFUSED"),
        (json!({ "status": 401, "body": long }), 502, "MODEL_REFUSED"),
        (json!({ "raw": duplicate }), 424, "MODEL_OUTPUT_INVALID"),
        (json!({ "text": format!("my key is {key}") }), 424, "MODEL_OUTPUT_INVALID"),
        (json!({ "text": format!("it is {key}"), "whole": true }), 424, "MODEL_OUTPUT_INVALID"),
        (calls(&[("c1", "WRITE_FILE", write_file(key))]), 424, "MODEL_OUTPUT_INVALID"),
        (calls(&[("c1", key, json!({}))]), 424, "MODEL_OUTPUT_INVALID"),
    ];
    let gateway = stage.gateway();
    let accept = [("accept", "text/event-stream")];
    for (number, (line, status, code)) in rows.into_iter().enumerate() {
        stage.model.says([line.clone(), line]);
        let reply = ask(&gateway, &format!("k{number}"), &hello("go"));
        assert_eq!((reply.status, codes(&reply)), (status, vec![code.to_owned()]), "{number}");
        let stream = ask_with(&gateway, &format!("s{number}"), &accept, &hello("go"));
        for body in [&reply.body, &stream.body] {
            assert!(!body.contains("sk-"), "{number}: {body}");
        }
        assert!(stream.body.contains(code), "{number}: {}", stream.body);
    }
    gateway.signal(rustix::process::Signal::INT);
    let (_, log) = gateway.end();
    assert!(log.contains("Bearer *** is no more") && log.contains("*** is wrong"), "{log}");
    assert!(!log.contains("sk-"), "{log}");
    let database = std::fs::read(stage.scene.place.database()).unwrap();
    assert!(!database.windows(key.len()).any(|part| part == key.as_bytes()), "no record has it");
    stage.scene.verified();
}

#[test]
fn a_proxy_of_the_environment_is_not_on_the_way_to_this_machine() {
    let stage = with_key("sk-secret");
    let proxy = ModelProcess::start();
    for model in [&stage.model, &proxy] {
        model.says([json!({ "text": "here" })]);
    }
    let mut command = stage.scene.place.command(["serve", "--bind", "127.0.0.1:0"]);
    for name in ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"] {
        command.env(name, format!("http://{}", proxy.address));
    }
    let command = command.stderr(std::process::Stdio::piped());
    let gateway = Gateway::of(command, &stage.scene.place.path());
    let reply = ask(&gateway, "k1", &hello("go"));
    assert_eq!((reply.status, &reply.json()["primaryOutputText"]), (200, &json!("here")));
    assert_eq!((stage.model.asked().len(), proxy.asked().len()), (1, 0));
}

#[test]
fn an_answer_that_was_cut_off_comes_with_a_warning() {
    let stage = Stage::new();
    stage.model.says([json!({ "text": "to be or", "finish": "length" })]);
    let gateway = stage.gateway();
    let reply = ask(&gateway, "k1", &hello("go")).json();
    assert_eq!(reply["primaryOutputText"], "to be or");
    assert_eq!(reply["userWarnings"], json!(["the answer was cut off at the model's limit"]));
}
