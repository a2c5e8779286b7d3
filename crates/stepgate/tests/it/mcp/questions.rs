//! Questions to a person: equal ones are one, and one principal has only so many.

use std::sync::Barrier;
use std::sync::mpsc::{Sender, channel};
use std::thread;

use serde_json::{Value, json};

use super::client::Client;
use crate::http_client::{Gateway, PATIENCE};
use crate::scene::{Scene, approve, until};

fn configured(more: &str) -> Scene {
    let scene = Scene::new("honours_key = true");
    let config = scene.place.path().join("stepgate.toml");
    let text = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, format!("{more}{text}")).unwrap();
    scene
}

fn open(gateway: &Gateway) -> Vec<Value> {
    let path = "/v1/approvals?status=pending&limit=1000";
    let listed = gateway.send("GET", path, &gateway.operator, "").json();
    listed["approvals"].as_array().unwrap().clone()
}

fn act(value: u64) -> Value {
    json!({ "name": "fixture__act", "arguments": { "value": value }, "_meta": { "progressToken": 1 } })
}

fn run_of(result: &Value) -> &str {
    result["_meta"]["stepgate/run-id"].as_str().unwrap_or_else(|| panic!("no run in {result}"))
}

#[test]
fn equal_calls_that_wait_are_one_question_and_one_effect_and_each_gets_the_answer() {
    const CALLERS: usize = 12;
    let scene = configured("[mcp]\nwait_ms = 60000\n");
    let gateway = Gateway::start(&scene.place);
    let (begin, (waits, waiting)) = (Barrier::new(CALLERS), channel());
    let results: Vec<Value> = thread::scope(|scope| {
        let (gateway, begin) = (&gateway, &begin);
        let call = |number: usize, waits: Sender<()>| {
            let client = match number % 2 {
                0 => Client::of(gateway),
                _ => Client::shaken(gateway, json!({})),
            };
            begin.wait();
            let mut incoming = client.begin("tools/call", act(7));
            // It is told that it waits, so it has asked, or has joined the question.
            incoming.next().unwrap();
            waits.send(()).unwrap();
            incoming.messages().pop().unwrap()["result"].clone()
        };
        let callers = (0..CALLERS).map(|number| {
            let waits = waits.clone();
            scope.spawn(move || call(number, waits))
        });
        let callers: Vec<_> = callers.collect();
        (0..CALLERS).for_each(|_| waiting.recv_timeout(PATIENCE).unwrap());
        let asked = open(gateway);
        assert_eq!(asked.len(), 1, "{asked:?}");
        assert_eq!(scene.effects(), 0);
        assert_eq!(approve(gateway, asked[0]["approval_id"].as_str().unwrap()).status, 200);
        callers.into_iter().map(|caller| caller.join().unwrap()).collect()
    });
    for result in &results {
        assert_eq!(result["_meta"]["stepgate/verdict"], "SUCCESS", "{result}");
        assert_eq!(run_of(result), run_of(&results[0]));
    }
    assert_eq!(scene.effects(), 1);
    drop(gateway);
    scene.verified();
}

#[test]
fn two_keys_are_two_intentions_and_what_was_decided_is_asked_anew() {
    let scene = configured("[mcp]\nwait_ms = 50\n");
    let gateway = Gateway::start(&scene.place);
    let client = Client::of(&gateway);
    let keyed = |key: &str| {
        let key = json!({ "stepgate/idempotency-key": key });
        client.call_with("fixture__act", json!({ "value": 7 }), key)
    };
    let (one, other) = (keyed("one"), keyed("other"));
    assert_ne!(run_of(&one), run_of(&other));
    // Neither is joined by a call that has no key, and that one asks once.
    let free = client.call("fixture__act", json!({ "value": 7 }));
    assert!(run_of(&free) != run_of(&one) && run_of(&free) != run_of(&other));
    assert_eq!(open(&gateway).len(), 3);
    // Another principal's equal call is another question.
    let operator = Client { token: gateway.operator.clone(), ..Client::of(&gateway) };
    let theirs = operator.call("fixture__act", json!({ "value": 7 }));
    assert_ne!(run_of(&theirs), run_of(&free));
}

/// A task is answered at once, so no call waits for it; the question stays open.
#[test]
fn a_task_of_an_equal_call_is_the_same_task_until_a_person_has_decided() {
    let scene = configured("");
    let gateway = Gateway::start(&scene.place);
    let knows_tasks = json!({ "extensions": { "io.modelcontextprotocol/tasks": {} } });
    let client = Client::with(&gateway, knows_tasks);
    let task = || {
        let created = client.ask("tools/call", act(7))["result"].clone();
        created["taskId"].as_str().unwrap_or_else(|| panic!("no task: {created}")).to_owned()
    };
    let first = task();
    assert_eq!(task(), first);
    assert_eq!(open(&gateway).len(), 1);
    let path = format!("/v1/approvals/{}/deny", scene.pending());
    assert_eq!(gateway.send("POST", &path, &gateway.operator, "").status, 200);
    assert_ne!(task(), first);
    assert_eq!(scene.effects(), 0);
}

#[test]
fn a_principal_has_only_so_many_open_questions_and_the_others_are_not_kept_from_asking() {
    const CALLERS: u64 = 40;
    let scene = configured("[limits]\napprovals_open_max = 3\n[mcp]\nwait_ms = 0\n");
    let gateway = Gateway::start(&scene.place);
    let results: Vec<Value> = thread::scope(|scope| {
        let gateway = &gateway;
        let callers = (0..CALLERS).map(|value| {
            scope.spawn(move || Client::of(gateway).call("fixture__act", json!({ "value": value })))
        });
        let callers: Vec<_> = callers.collect();
        callers.into_iter().map(|caller| caller.join().unwrap()).collect()
    });
    let (asked, refused): (Vec<_>, Vec<_>) = results
        .iter()
        .partition(|result| result["_meta"]["stepgate/verdict"] == "APPROVAL_REQUIRED");
    assert!((1..=3).contains(&asked.len()), "{} were asked", asked.len());
    assert_eq!(open(&gateway).len(), asked.len());
    for result in refused {
        let response = &result["_meta"]["stepgate/response"];
        assert_eq!(response["outcome"], "DENIED", "{result}");
        assert_eq!(response["error"]["error_code"], "APPROVAL_DENIED", "{result}");
        let words = result["content"][0]["text"].as_str().unwrap();
        assert!(words.contains("limits.approvals_open_max is 3"), "{words}");
    }
    // One at a time it is exact.
    let client = Client::of(&gateway);
    for value in 50..60 {
        client.call("fixture__act", json!({ "value": value }));
    }
    assert_eq!(open(&gateway).len(), 3);
    // Another principal has questions of its own, and a decision makes room.
    let operator = Client { token: gateway.operator.clone(), ..Client::of(&gateway) };
    let theirs = operator.call("fixture__act", json!({ "value": 70 }));
    assert_eq!(theirs["_meta"]["stepgate/verdict"], "APPROVAL_REQUIRED", "{theirs}");
    let agents = open(&gateway);
    let of_agent = agents.iter().find(|approval| approval["context"]["principal_id"] == "agent");
    let id = of_agent.unwrap()["approval_id"].as_str().unwrap();
    let path = format!("/v1/approvals/{id}/deny");
    assert_eq!(gateway.send("POST", &path, &gateway.operator, "").status, 200);
    until("there is room", || {
        let again = client.call("fixture__act", json!({ "value": 80 }));
        again["_meta"]["stepgate/verdict"] == "APPROVAL_REQUIRED"
    });
    assert_eq!(scene.effects(), 0);
    drop(gateway);
    scene.verified();
}
