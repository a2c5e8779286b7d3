//! A call that a person decides on, for each kind of client.

use serde_json::{Value, json};

use super::client::Client;
use crate::http_client::Gateway;
use crate::scene::{Scene, approve, kill, until};

const TASKS: &str = "io.modelcontextprotocol/tasks";

fn knows_tasks() -> Value {
    json!({ "extensions": { TASKS: {} } })
}

fn opens_pages() -> Value {
    json!({ "elicitation": { "url": {} } })
}

fn act() -> Value {
    json!({ "name": "fixture__act", "arguments": { "value": 7 } })
}

/// A gateway where calls wait for a person this long.
fn gateway(scene: &Scene, wait_ms: u64) -> Gateway {
    let config = scene.place.path().join("stepgate.toml");
    let text = std::fs::read_to_string(&config).unwrap();
    if !text.contains("[mcp]") {
        std::fs::write(&config, format!("[mcp]\nwait_ms = {wait_ms}\n{text}")).unwrap();
    }
    Gateway::start(&scene.place)
}

/// Waits until the run of a notice is over: what is asked for again before that may be a notice again.
fn until_over(gateway: &Gateway, notice: &Value) {
    let run = notice["_meta"]["stepgate/run-id"].as_str().unwrap();
    until("the run is over", || {
        let shown = gateway.send("GET", &format!("/v1/runs/{run}"), &gateway.agent, "").json();
        shown["run"]["status"] == "ok"
    });
}

#[test]
fn a_client_that_waits_is_told_how_it_goes_and_gets_the_result_when_it_is_granted() {
    let scene = Scene::new("honours_key = true");
    let gateway = gateway(&scene, 60_000);
    for client in [Client::of(&gateway), Client::shaken(&gateway, json!({}))] {
        let effects = scene.effects();
        let mut params = act();
        params["_meta"] = json!({ "progressToken": "p" });
        let mut incoming = client.begin("tools/call", params);
        let progress = incoming.next().unwrap();
        assert_eq!(progress["method"], "notifications/progress");
        assert_eq!(progress["params"]["progressToken"], "p");
        assert_eq!(scene.effects(), effects);
        assert_eq!(approve(&gateway, &scene.pending()).status, 200);
        let answer = incoming.messages().pop().unwrap();
        assert_eq!(answer["result"]["_meta"]["stepgate/verdict"], "SUCCESS", "{answer}");
        assert_eq!(answer["result"]["structuredContent"], json!({ "value": 7 }));
        assert_eq!(scene.effects(), effects + 1);
    }
}

#[test]
fn when_patience_ends_the_notice_says_how_to_ask_again_and_the_same_call_is_joined() {
    let scene = Scene::new("honours_key = true");
    let gateway = gateway(&scene, 50);
    let client = Client::of(&gateway);
    let notice = client.call("fixture__act", json!({ "value": 7 }));
    assert_eq!(notice["isError"], false);
    assert_eq!(notice["_meta"]["stepgate/response"]["outcome"], "APPROVAL_REQUIRED");
    let approval = scene.pending();
    assert_eq!(notice["_meta"]["stepgate/approval-id"], *approval);
    let said = notice["content"][0]["text"].as_str().unwrap();
    assert!(said.contains(&approval) && said.contains("same call again"), "{said}");
    // Asked again it is the same question, also after a restart.
    let again = client.call("fixture__act", json!({ "value": 7 }));
    assert_eq!(again["_meta"]["stepgate/run-id"], notice["_meta"]["stepgate/run-id"]);
    kill(gateway);
    let gateway = Gateway::start(&scene.place);
    let client = Client::of(&gateway);
    // Another question is another one.
    let other = client.call("fixture__act", json!({ "value": 8 }));
    assert_ne!(other["_meta"]["stepgate/run-id"], notice["_meta"]["stepgate/run-id"]);
    assert_eq!(approve(&gateway, &approval).status, 200);
    until_over(&gateway, &notice);
    let result = client.call("fixture__act", json!({ "value": 7 }));
    assert_eq!(result["_meta"]["stepgate/run-id"], notice["_meta"]["stepgate/run-id"]);
    assert_eq!(result["structuredContent"], json!({ "value": 7 }));
    assert_eq!(scene.effects(), 1);
    // The answer has been given now: the next call is a new one.
    let fresh = client.call("fixture__act", json!({ "value": 7 }));
    assert_ne!(fresh["_meta"]["stepgate/run-id"], notice["_meta"]["stepgate/run-id"]);
}

#[test]
fn a_notice_is_kept_after_the_run_has_ended_and_the_gateway_was_restarted() {
    let scene = Scene::new("honours_key = true");
    let gateway = gateway(&scene, 50);
    let notice = Client::of(&gateway).call("fixture__act", json!({ "value": 7 }));
    let key = notice["_meta"]["stepgate/idempotency-key"].as_str().unwrap();
    let said = notice["content"][0]["text"].as_str().unwrap();
    assert!(said.contains(key), "{said}");
    assert_eq!(approve(&gateway, &scene.pending()).status, 200);
    until_over(&gateway, &notice);
    kill(gateway);
    let gateway = Gateway::start(&scene.place);
    let client = Client::of(&gateway);
    let result = client.call("fixture__act", json!({ "value": 7 }));
    assert_eq!(result["_meta"]["stepgate/run-id"], notice["_meta"]["stepgate/run-id"]);
    assert_eq!(result["structuredContent"], json!({ "value": 7 }));
    // It was answered now: the next one is a question of its own.
    let fresh = client.call("fixture__act", json!({ "value": 7 }));
    assert_ne!(fresh["_meta"]["stepgate/run-id"], notice["_meta"]["stepgate/run-id"]);
    assert_eq!(scene.effects(), 1);
}

#[test]
fn a_denied_call_says_so_and_is_never_executed() {
    let scene = Scene::new("honours_key = true");
    let gateway = gateway(&scene, 60_000);
    let client = Client::of(&gateway);
    let mut params = act();
    params["_meta"] = json!({ "progressToken": 1 });
    let mut incoming = client.begin("tools/call", params);
    incoming.next().unwrap();
    let path = format!("/v1/approvals/{}/deny", scene.pending());
    assert_eq!(gateway.send("POST", &path, &gateway.operator, "").status, 200);
    let answer = incoming.messages().pop().unwrap();
    assert_eq!(answer["result"]["isError"], true);
    assert_eq!(
        answer["result"]["_meta"]["stepgate/response"]["error"]["error_code"],
        "APPROVAL_DENIED"
    );
    assert_eq!(scene.effects(), 0);
}

#[test]
fn a_client_that_knows_tasks_gets_one_at_once_and_asks_after_it_also_after_a_restart() {
    let scene = Scene::new("honours_key = true");
    let gateway = gateway(&scene, 60_000);
    let client = Client::with(&gateway, knows_tasks());
    let created = client.ask("tools/call", act())["result"].clone();
    assert_eq!(created["resultType"], "task", "{created}");
    assert_eq!(created["status"], "working");
    let task = created["taskId"].as_str().unwrap().to_owned();
    kill(gateway);
    let gateway = Gateway::start(&scene.place);
    let client = Client::with(&gateway, knows_tasks());
    let get = || client.ask("tasks/get", json!({ "taskId": task }))["result"].clone();
    assert_eq!(get()["status"], "working");
    // Another principal's task is none.
    let token = gateway.operator.clone();
    let other = Client { token, ..Client::with(&gateway, knows_tasks()) };
    assert_eq!(other.ask("tasks/get", json!({ "taskId": task }))["error"]["code"], -32602);
    // To cancel is noted, and decides nothing.
    let cancelled = client.ask("tasks/cancel", json!({ "taskId": task }));
    assert!(cancelled["result"].is_object(), "{cancelled}");
    assert_eq!(approve(&gateway, &scene.pending()).status, 200);
    until("the task is over", || get()["status"] == "completed");
    let result = &get()["result"];
    assert_eq!(result["structuredContent"], json!({ "value": 7 }));
    assert_eq!(result["_meta"]["stepgate/run-id"], *task);
    assert_eq!(scene.effects(), 1);
    for id in ["x", "0198b2c4-7a51-7cc0-9f2e-2f6a4a6f8f10"] {
        assert_eq!(client.ask("tasks/get", json!({ "taskId": id }))["error"]["code"], -32602);
    }
}

#[test]
fn tasks_are_only_for_clients_that_declare_them() {
    let scene = Scene::new("honours_key = true");
    let gateway = gateway(&scene, 50);
    let answer = Client::of(&gateway).ask("tasks/get", json!({ "taskId": "x" }));
    assert_eq!(answer["error"]["code"], -32021, "{answer}");
}

#[test]
fn a_client_that_opens_pages_is_given_the_approvals_page_and_comes_back() {
    let scene = Scene::new("honours_key = true");
    let gateway = gateway(&scene, 200);
    let client = Client::with(&gateway, opens_pages());
    let asked = client.ask("tools/call", act())["result"].clone();
    assert_eq!(asked["resultType"], "input_required", "{asked}");
    let approval = scene.pending();
    let request = &asked["inputRequests"]["approval"];
    assert_eq!(request["method"], "elicitation/create");
    assert_eq!(request["params"]["mode"], "url");
    assert_eq!(request["params"]["url"], format!("{}/approvals/{approval}", gateway.url()));
    let back = || {
        let mut params = act();
        params["requestState"] = asked["requestState"].clone();
        params["inputResponses"] = json!({ "approval": { "action": "accept" } });
        client.ask("tools/call", params)["result"].clone()
    };
    // Nobody has decided yet, so it is asked once more; what the client says decides nothing.
    assert_eq!(back()["resultType"], "input_required");
    assert_eq!(scene.effects(), 0);
    assert_eq!(approve(&gateway, &approval).status, 200);
    until("the run is over", || {
        let listed = gateway.send("GET", "/v1/runs?tool=fixture.act", &gateway.agent, "").json();
        listed["runs"][0]["status"] == "ok"
    });
    assert_eq!(back()["structuredContent"], json!({ "value": 7 }));
    assert_eq!(scene.effects(), 1);
}

#[test]
fn a_client_of_a_session_is_asked_to_open_the_page_while_it_waits() {
    let scene = Scene::new("honours_key = true");
    let gateway = gateway(&scene, 60_000);
    let client = Client::shaken(&gateway, opens_pages());
    let mut incoming = client.begin("tools/call", act());
    let request = incoming.next().unwrap();
    assert_eq!(request["method"], "elicitation/create", "{request}");
    let approval = scene.pending();
    let url = request["params"]["url"].as_str().unwrap();
    assert!(url.ends_with(&format!("/approvals/{approval}")), "{url}");
    let accepted =
        json!({ "jsonrpc": "2.0", "id": request["id"], "result": { "action": "accept" } });
    assert_eq!(client.open("POST", &[], &accepted.to_string()).status, 202);
    // To have seen the page is not to have approved.
    assert_eq!(scene.effects(), 0);
    assert_eq!(approve(&gateway, &approval).status, 200);
    let answer = incoming.messages().pop().unwrap();
    assert_eq!(answer["result"]["structuredContent"], json!({ "value": 7 }), "{answer}");
}

#[test]
fn a_client_that_declines_to_open_the_page_waits_like_one_that_cannot() {
    let scene = Scene::new("honours_key = true");
    let gateway = gateway(&scene, 60_000);
    let client = Client::shaken(&gateway, opens_pages());
    let mut incoming = client.begin("tools/call", act());
    let request = incoming.next().unwrap();
    let declined =
        json!({ "jsonrpc": "2.0", "id": request["id"], "result": { "action": "decline" } });
    assert_eq!(client.open("POST", &[], &declined.to_string()).status, 202);
    // What comes after the decline is answered after it was read.
    client.call("THINK", json!({}));
    assert_eq!(scene.effects(), 0);
    assert_eq!(approve(&gateway, &scene.pending()).status, 200);
    let answer = incoming.messages().pop().unwrap();
    assert_eq!(answer["result"]["structuredContent"], json!({ "value": 7 }), "{answer}");
    assert_eq!(scene.effects(), 1);
}

#[test]
fn a_client_without_a_session_that_declines_the_page_waits_and_then_gets_the_notice() {
    let scene = Scene::new("honours_key = true");
    let gateway = gateway(&scene, 50);
    let client = Client::with(&gateway, opens_pages());
    let asked = client.ask("tools/call", act())["result"].clone();
    for action in ["decline", "cancel"] {
        let mut params = act();
        params["requestState"] = asked["requestState"].clone();
        params["inputResponses"] = json!({ "approval": { "action": action } });
        let notice = client.ask("tools/call", params)["result"].clone();
        assert_eq!(notice["resultType"], "complete", "{notice}");
        assert_eq!(notice["_meta"]["stepgate/verdict"], "APPROVAL_REQUIRED", "{notice}");
        let said = notice["content"][0]["text"].as_str().unwrap();
        assert!(said.contains("make the same call again later"), "{said}");
    }
}
