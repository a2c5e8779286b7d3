//! A run that does not verify: it cannot be decided on, and every caller who tries is told so.

use serde_json::{Value, json};

use crate::gate::proposal;
use crate::http_client::Gateway;
use crate::scene::{Scene, approve, until};

/// Makes the payload of the only run another one, past the triggers that would refuse it.
pub(crate) fn tamper(scene: &Scene) {
    let connection = rusqlite::Connection::open(scene.place.database()).unwrap();
    let sql = "SELECT name FROM sqlite_schema WHERE type = 'trigger' AND tbl_name = 'tool_runs'";
    let mut triggers = connection.prepare(sql).unwrap();
    let triggers = triggers.query_map([], |row| row.get::<_, String>(0)).unwrap();
    for trigger in triggers.map(Result::unwrap).collect::<Vec<_>>() {
        connection.execute_batch(&format!("DROP TRIGGER {trigger}")).unwrap();
    }
    let other = proposal(1, "fixture.act", json!({ "value": 99 })).into_bytes();
    assert_eq!(connection.execute("UPDATE tool_runs SET payload = ?1", [other]), Ok(1));
}

fn approvals(gateway: &Gateway, query: &str) -> Vec<Value> {
    let listed = gateway.send("GET", &format!("/v1/approvals{query}"), &gateway.operator, "");
    listed.json()["approvals"].as_array().unwrap().clone()
}

#[test]
fn a_quarantined_run_is_not_offered_and_operators_are_told_its_code() {
    let scene = Scene::new("honours_key = true");
    let payload = proposal(1, "fixture.act", json!({ "value": 1 }));
    let gateway = Gateway::start(&scene.place);
    assert_eq!(gateway.propose(&payload).status, 202);
    assert_eq!(gateway.metric("stepgate_approvals_open"), 1);
    let approval = scene.pending();
    // While it is served: the next decision finds it.
    tamper(&scene);
    let refused = approve(&gateway, &approval);
    assert_eq!(refused.status, 409, "{}", refused.body);
    assert_eq!(refused.json()["code"], "STATE_RECOVERY_FAILED");
    let message = refused.json()["detail"].as_str().unwrap().to_owned();
    assert!(message.contains("payload"), "{message}");
    assert_eq!(gateway.metric("stepgate_runs_needing_person{kind=\"quarantined\"}"), 1);
    assert_eq!(gateway.metric("stepgate_approvals_open"), 0);
    drop(gateway);

    // After a start: recovery has found it before a decision is tried.
    let mut gateway = Gateway::start(&scene.place);
    gateway.until_it_says("quarantined");
    assert_eq!(approvals(&gateway, "?status=pending"), Vec::<Value>::new());
    let all = approvals(&gateway, "");
    assert_eq!((all.len(), &all[0]["quarantined"]), (1, &json!(true)));
    let run = all[0]["tool_run_id"].as_str().unwrap();
    let shown = gateway.send("GET", &format!("/v1/runs/{run}"), &gateway.operator, "");
    assert_eq!(shown.json()["attention"]["kind"], "quarantined", "{}", shown.body);
    let agents = gateway.propose(&payload);
    assert_eq!(agents.status, 500, "{}", agents.body);
    assert!(agents.body.contains("an operator must look"), "{}", agents.body);
    assert!(!agents.body.contains("STATE_"), "{}", agents.body);
    let refused = scene.stepgate(&["approve", &approval]);
    assert_eq!(refused.code, 1, "{refused:?}");
    drop(gateway);
    let listed = scene.stepgate(&["approvals"]);
    assert_eq!(listed.stdout, "no approvals\n");
    assert!(listed.stderr.contains("quarantined"), "{listed:?}");
    assert_eq!(scene.stepgate(&["recover"]).code, 1);
    // The decision and a pass of recovery can find it at the same moment; what comes later tells nothing anew.
    assert!((1..=2).contains(&super::events(&scene.place)));
}

#[test]
fn an_approval_that_has_expired_is_not_offered_by_a_command_without_a_gateway() {
    let scene = Scene::new("honours_key = true");
    let config = scene.place.path().join("stepgate.toml");
    let text = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, format!("[limits]\napproval_ttl_ms = 1\n{text}")).unwrap();
    let payload = proposal(1, "fixture.act", json!({ "value": 1 }));
    assert_eq!(scene.place.stepgate(["step", "-"], &payload).code, 13);
    until("it has expired", || scene.stepgate(&["approvals"]).stdout == "no approvals\n");
    let shown = scene.stepgate(&["runs", "show", "last", "--json"]);
    let shown: Value = serde_json::from_str(&shown.stdout).unwrap();
    assert_eq!(
        (&shown["run"]["status"], &shown["approval"]["status"]),
        (&json!("denied"), &json!("expired"))
    );
    scene.verified();
}
