//! Answers that were lost: which second call is joined to the first, and which is a call of its own.

use std::fs;

use serde_json::{Value, json};

use super::client::Client;
use crate::http_client::Gateway;
use crate::scene::{Scene, kill, until};

/// A scene where `act` needs nobody, so that a call runs at once.
fn scene() -> Scene {
    let scene = Scene::new("honours_key = true");
    let policies = "permit (principal, action, resource);";
    fs::write(scene.place.path().join("policies/all.cedar"), policies).unwrap();
    scene
}

fn act() -> Value {
    json!({ "name": "fixture__act", "arguments": { "value": 1 } })
}

/// Begins a call, and hangs up while the tool is at it.
fn lose(scene: &Scene, client: &Client<'_>) {
    fs::write(scene.file("hold-after"), "").unwrap();
    client.hang_up("tools/call", act(), || {
        until("the tool is reached", || scene.file("hold-after.reached").exists());
    });
    fs::remove_file(scene.file("hold-after.reached")).unwrap();
}

fn let_go(scene: &Scene) {
    fs::remove_file(scene.file("hold-after")).unwrap();
}

/// How many runs of the tool there are.
fn runs(gateway: &Gateway) -> usize {
    let listed = gateway.send("GET", "/v1/runs?tool=fixture.act", &gateway.agent, "").json();
    listed["runs"].as_array().unwrap().len()
}

#[test]
fn a_call_whose_stream_broke_is_joined_by_the_same_call() {
    let scene = scene();
    let gateway = Gateway::start(&scene.place);
    for client in [Client::of(&gateway), Client::shaken(&gateway, json!({}))] {
        let before = runs(&gateway);
        lose(&scene, &client);
        // The gateway sees the broken connection by and by; the tool is still at it meanwhile.
        until("the break is seen", || gateway.metric("stepgate_http_connections") <= 1);
        let_go(&scene);
        let result = client.call("fixture__act", json!({ "value": 1 }));
        assert_eq!(result["structuredContent"], json!({ "value": 1 }));
        assert_eq!(runs(&gateway), before + 1);
        // It was answered now, so the next one is a call of its own.
        client.call("fixture__act", json!({ "value": 1 }));
        assert_eq!(runs(&gateway), before + 2);
    }
}

#[test]
fn a_different_call_or_another_principals_is_not_joined() {
    let scene = scene();
    let gateway = Gateway::start(&scene.place);
    let client = Client::of(&gateway);
    lose(&scene, &client);
    until("the break is seen", || gateway.metric("stepgate_http_connections") <= 1);
    let_go(&scene);
    client.call("fixture__act", json!({ "value": 2 }));
    let other = Client { token: gateway.operator.clone(), ..Client::of(&gateway) };
    other.call("fixture__act", json!({ "value": 1 }));
    until("all of them acted", || scene.effects() == 3);
}

#[test]
fn two_live_calls_are_two_calls() {
    let scene = scene();
    let gateway = Gateway::start(&scene.place);
    std::thread::scope(|scope| {
        let call = || Client::of(&gateway).call("fixture__act", json!({ "value": 1 }));
        let calls = [scope.spawn(call), scope.spawn(call)];
        let runs = calls.map(|call| call.join().unwrap()["_meta"]["stepgate/run-id"].clone());
        assert_ne!(runs[0], runs[1]);
    });
    assert_eq!(scene.effects(), 2);
}

#[test]
fn a_call_that_the_gateway_died_with_is_joined_after_the_restart() {
    fn client_of(gateway: &Gateway, shakes_hands: bool) -> Client<'_> {
        match shakes_hands {
            true => Client::shaken(gateway, json!({})),
            false => Client::of(gateway),
        }
    }
    for shakes_hands in [true, false] {
        let scene = scene();
        let gateway = Gateway::start(&scene.place);
        fs::write(scene.file("hold-after"), "").unwrap();
        client_of(&gateway, shakes_hands).hang_up("tools/call", act(), || {
            until("the tool is reached", || scene.file("hold-after.reached").exists());
            gateway.signal(rustix::process::Signal::KILL);
        });
        kill(gateway);
        let_go(&scene);
        let gateway = Gateway::start(&scene.place);
        let result = client_of(&gateway, shakes_hands).call("fixture__act", json!({ "value": 1 }));
        assert_eq!(result["structuredContent"], json!({ "value": 1 }), "{result}");
        assert_eq!(runs(&gateway), 1);
        assert_eq!(scene.effects(), 1);
    }
}

#[test]
fn a_call_with_a_key_gets_its_recorded_result_after_the_gateway_died() {
    let scene = scene();
    let gateway = Gateway::start(&scene.place);
    let key = json!({ "stepgate/idempotency-key": "again" });
    let call = |gateway: &Gateway| {
        Client::of(gateway).call_with("fixture__act", json!({ "value": 1 }), key.clone())
    };
    let first = call(&gateway);
    kill(gateway);
    let gateway = Gateway::start(&scene.place);
    assert_eq!(call(&gateway), first);
    assert_eq!(scene.effects(), 1);
}

#[test]
fn after_a_while_the_same_call_is_a_new_intention() {
    let scene = scene();
    let config = scene.place.path().join("stepgate.toml");
    let text = fs::read_to_string(&config).unwrap();
    fs::write(&config, format!("[mcp]\njoin_ms = 0\n{text}")).unwrap();
    let gateway = Gateway::start(&scene.place);
    let client = Client::of(&gateway);
    lose(&scene, &client);
    until("the break is seen", || gateway.metric("stepgate_http_connections") <= 1);
    let_go(&scene);
    until("it is over", || {
        let listed = gateway.send("GET", "/v1/runs?tool=fixture.act", &gateway.agent, "").json();
        listed["runs"][0]["status"] == "ok"
    });
    std::thread::sleep(std::time::Duration::from_millis(2));
    client.call("fixture__act", json!({ "value": 1 }));
    assert_eq!(runs(&gateway), 2);
}
