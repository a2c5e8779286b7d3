//! kill -9 in the middle of a turn: the same request again goes on, and nothing runs twice.

use std::fs;

use rusqlite::Connection;
use serde_json::{Value, json};

use super::stage::{Stage, ask, ask_with, calls, hello, look, outcomes, write_file};
use super::waits::over;
use crate::scene::{approve, kill, until};

fn key_of(gateway: &crate::http_client::Gateway, key: &str) -> Value {
    let reply = ask_with(gateway, key, &[("prefer", "wait=0")], &hello("act"));
    assert_eq!(reply.status, 202, "{}", reply.body);
    reply.json()["turnId"].clone()
}

fn actions() -> Value {
    calls(&[
        ("c1", "WRITE_FILE", write_file("a.txt")),
        ("c2", "RENAME_FILE", json!({"source": "/sandbox/a.txt", "destination": "/sandbox/b.txt"})),
        ("c3", "fixture__act", json!({ "value": 7 })),
    ])
}

/// The three calls had their effects once each, and the turn has their recorded results.
fn ended(stage: &Stage, response: &Value) {
    assert_eq!(response["primaryOutputText"], "done", "{response}");
    assert_eq!(outcomes(response), ["SUCCESS", "SUCCESS", "SUCCESS"]);
    assert_eq!(stage.scene.effects(), 1);
    assert!(stage.sandbox("b.txt").exists() && !stage.sandbox("a.txt").exists());
    let runs = stage.scene.stepgate(&["runs", "--json"]).stdout;
    assert_eq!(runs.lines().count(), 3, "each call is one run");
}

#[test]
fn killed_while_the_model_thinks_the_same_request_goes_on_with_the_recorded_results() {
    let stage = Stage::new();
    stage.model.says([actions(), json!({ "hang": true })]);
    let gateway = stage.gateway();
    let turn = key_of(&gateway, "k1");
    until("a person is asked", || look(&gateway, &turn).json()["state"] == "approval_required");
    approve(&gateway, &stage.scene.pending());
    until("the model is asked again", || stage.model.asked().len() == 2);
    kill(gateway);
    let gateway = stage.gateway();
    assert_eq!(look(&gateway, &turn).json()["state"], "stopped");
    stage.model.says([json!({ "text": "done" })]);
    let reply = ask(&gateway, "k1", &hello("act"));
    assert_eq!(reply.status, 200, "{}", reply.body);
    ended(&stage, &reply.json());
    assert_eq!(reply.json()["turnId"], turn);
    let told: Vec<String> = stage.model.told();
    assert_eq!(told, ["system", "user", "assistant", "tool", "tool", "tool"]);
    drop(gateway);
    stage.scene.verified();
}

#[test]
fn killed_while_a_tool_acts_the_call_is_taken_up_and_acts_once() {
    for point in ["hold-before", "hold-after"] {
        let stage = Stage::new();
        stage.model.says([actions(), json!({ "text": "done" })]);
        fs::write(stage.scene.file(point), "").unwrap();
        let gateway = stage.gateway();
        let turn = key_of(&gateway, "k1");
        until("a person is asked", || look(&gateway, &turn).json()["state"] == "approval_required");
        approve(&gateway, &stage.scene.pending());
        until("the tool is reached", || stage.scene.file(&format!("{point}.reached")).exists());
        kill(gateway);
        until("the tool server is gone too", || !stage.scene.has_processes());
        fs::remove_file(stage.scene.file(point)).unwrap();
        let gateway = stage.gateway();
        let reply = ask_with(&gateway, "k1", &[("prefer", "wait=30")], &hello("act"));
        assert_eq!(reply.status, 200, "{point}: {}", reply.body);
        ended(&stage, &reply.json());
        assert_eq!(stage.model.asked().len(), 2, "what the model had said was not asked again");
        drop(gateway);
        stage.scene.verified();
    }
}

/// A turn whose gateway was killed while a person was asked.
fn killed_while_asked(stage: &Stage) -> (Value, String) {
    stage.model.says([actions(), json!({ "text": "done" })]);
    let gateway = stage.gateway();
    let turn = key_of(&gateway, "k1");
    until("a person is asked", || look(&gateway, &turn).json()["state"] == "approval_required");
    let approval = stage.scene.pending();
    until("it is noted", || {
        let database = Connection::open(stage.scene.place.database()).unwrap();
        let sql = "SELECT count(*) FROM events WHERE event_type = 'turn_waiting'";
        database.query_row(sql, [], |row| row.get(0)).is_ok_and(|count: i64| count == 1)
    });
    kill(gateway);
    (turn, approval)
}

#[test]
fn killed_while_a_person_is_asked_the_decision_counts_and_the_turn_goes_on_by_itself() {
    let stage = Stage::new();
    let (turn, approval) = killed_while_asked(&stage);
    let gateway = stage.gateway();
    let seen = look(&gateway, &turn).json();
    assert_eq!(
        (&seen["state"], &seen["approvalId"]),
        (&json!("approval_required"), &json!(approval))
    );
    assert_eq!(approve(&gateway, &approval).status, 200);
    let response = over(&gateway, &turn);
    ended(&stage, &response);
    let again = ask(&gateway, "k1", &hello("act"));
    assert_eq!((again.status, again.json()), (200, response));
    assert_eq!(stage.model.asked().len(), 2, "the model was asked once more");
    drop(gateway);
    stage.scene.verified();
}

#[test]
fn what_is_decided_while_nobody_serves_is_gone_on_with_at_the_next_start() {
    let stage = Stage::new();
    let (turn, approval) = killed_while_asked(&stage);
    let approved = stage.scene.stepgate(&["approve", &approval]);
    assert_eq!(approved.code, 0, "{}", approved.stderr);
    let gateway = stage.gateway();
    ended(&stage, &over(&gateway, &turn));
    assert_eq!(stage.model.asked().len(), 2, "the model was asked once more");
    drop(gateway);
    stage.scene.verified();
}
