//! Turns that wait for a person.

use serde_json::{Value, json};

use super::stage::{Stage, ask, ask_with, calls, hello, look, outcomes};
use crate::http_client::Gateway;
use crate::scene::{approve, until};

fn gated(stage: &Stage) {
    stage.model.says([
        calls(&[("c1", "fixture__act", json!({ "value": 7 }))]),
        json!({ "text": "acted" }),
    ]);
}

/// The turn once it is over.
pub(super) fn over(gateway: &Gateway, turn_id: &Value) -> Value {
    until("the turn is over", || look(gateway, turn_id).json()["state"] == "final");
    look(gateway, turn_id).json()["response"].clone()
}

#[test]
fn without_patience_the_caller_is_told_to_come_again_and_the_turn_goes_on_when_decided() {
    let stage = Stage::new();
    gated(&stage);
    let gateway = stage.gateway();
    let reply = ask(&gateway, "k1", &hello("act"));
    assert_eq!(reply.status, 202, "{}", reply.body);
    let accepted = reply.json();
    let approval = stage.scene.pending();
    let expected = json!({
        "code": "APPROVAL_REQUIRED",
        "sessionId": accepted["sessionId"],
        "turnId": accepted["turnId"],
        "approvalId": approval,
        "runId": accepted["runId"],
        "toolCallId": "c1",
    });
    assert_eq!(accepted, expected);
    assert_eq!(reply.headers["retry-after"], "1");
    let seen = look(&gateway, &accepted["turnId"]).json();
    assert_eq!(seen["state"], "approval_required");
    assert_eq!(seen["approvalId"], approval);
    assert_eq!(ask(&gateway, "k1", &hello("act")).body, reply.body, "the same again, the same");
    assert_eq!(stage.scene.effects(), 0);
    assert_eq!(approve(&gateway, &approval).status, 200);
    let response = over(&gateway, &accepted["turnId"]);
    assert_eq!(response["primaryOutputText"], "acted");
    assert_eq!(outcomes(&response), ["SUCCESS"]);
    let again = ask(&gateway, "k1", &hello("act"));
    assert_eq!((again.status, again.json()), (200, response));
    assert_eq!(stage.scene.effects(), 1);
    assert_eq!(stage.model.asked().len(), 2);
    drop(gateway);
    stage.scene.verified();
}

#[test]
fn with_patience_the_caller_waits_until_a_person_has_said_no() {
    let stage = Stage::new();
    gated(&stage);
    let gateway = stage.gateway();
    let response = std::thread::scope(|scope| {
        let asking =
            scope.spawn(|| ask_with(&gateway, "k1", &[("prefer", "wait=30")], &hello("act")));
        until("a person is asked", || {
            !stage.scene.stepgate(&["approvals", "--json"]).stdout.is_empty()
        });
        let denied = stage.scene.stepgate(&["deny", &stage.scene.pending()]);
        assert_eq!(denied.code, 0, "{}", denied.stderr);
        asking.join().unwrap()
    });
    assert_eq!(response.status, 200, "{}", response.body);
    assert_eq!(outcomes(&response.json()), ["DENIED"]);
    assert_eq!(stage.scene.effects(), 0);
}

#[test]
fn once_it_is_decided_a_caller_waits_for_the_turn_again() {
    let stage = Stage::new();
    gated(&stage);
    std::fs::write(stage.scene.file("hold-before"), "").unwrap();
    let gateway = stage.gateway();
    assert_eq!(ask(&gateway, "k1", &hello("act")).status, 202);
    assert_eq!(approve(&gateway, &stage.scene.pending()).status, 200);
    until("the tool is reached", || stage.scene.file("hold-before.reached").exists());
    let impatient = ask_with(&gateway, "k1", &[("prefer", "wait=0")], &hello("act"));
    assert_eq!((impatient.status, &impatient.json()["code"]), (202, &json!("IN_PROGRESS")));
    let response = std::thread::scope(|scope| {
        let asking = scope.spawn(|| ask(&gateway, "k1", &hello("act")));
        std::fs::remove_file(stage.scene.file("hold-before")).unwrap();
        asking.join().unwrap()
    });
    assert_eq!((response.status, &response.json()["primaryOutputText"]), (200, &json!("acted")));
}

#[test]
fn patience_that_ends_while_the_model_thinks_is_answered_too() {
    let stage = Stage::new();
    stage.model.says([json!({ "text": "at last", "hold": "go" })]);
    let gateway = stage.gateway();
    let reply = ask_with(&gateway, "k1", &[("prefer", "wait=0")], &hello("think"));
    assert_eq!((reply.status, &reply.json()["code"]), (202, &json!("IN_PROGRESS")));
    let turn = reply.json()["turnId"].clone();
    until("it is durable", || look(&gateway, &turn).status == 200);
    assert_eq!(look(&gateway, &turn).json()["state"], "in_progress");
    std::fs::write(stage.model.file("go"), "").unwrap();
    assert_eq!(over(&gateway, &turn)["primaryOutputText"], "at last");
}

#[test]
fn a_turn_of_a_stopped_principal_ends_with_what_the_model_says_to_that() {
    let stage = Stage::new();
    let again = |id: &str| calls(&[(id, "fixture__act", json!({ "value": 7 }))]);
    // Whatever it is told, it tries again.
    stage.model.says([again("c1"), again("c2"), json!({ "text": "I was stopped" })]);
    let gateway = stage.gateway();
    let body = json!({ "target": { "principal": "agent" } }).to_string();
    assert_eq!(gateway.send("POST", "/v1/stops", &gateway.operator, &body).status, 201);
    let response = ask(&gateway, "k1", &hello("act"));
    assert_eq!(response.status, 200, "{}", response.body);
    assert_eq!(response.json()["primaryOutputText"], "I was stopped");
    assert_eq!(outcomes(&response.json()), ["DENIED", "DENIED"]);
    let told = stage.model.asked().pop().unwrap().to_string();
    assert!(told.contains("an operator has stopped these calls"), "{told}");
    assert_eq!(stage.scene.effects(), 0);
}
