//! Sessions of clients that shake hands, and what such clients are told.

use std::fs;

use serde_json::json;

use super::client::Client;
use crate::http_client::Gateway;
use crate::scene::{Scene, kill};

#[test]
fn a_session_is_a_session_of_the_gate_and_goes_on_after_a_restart() {
    let scene = Scene::new("honours_key = true");
    let gateway = Gateway::start(&scene.place);
    let client = Client::shaken(&gateway, json!({}));
    let first = client.call("THINK", json!({}));
    let session = client.session.clone();
    kill(gateway);
    let gateway = Gateway::start(&scene.place);
    let client = Client { session, ..Client::shaken(&gateway, json!({})) };
    let second = client.call("THINK", json!({}));
    let session_of = |result: &serde_json::Value| {
        let run = result["_meta"]["stepgate/run-id"].as_str().unwrap();
        let shown = gateway.send("GET", &format!("/v1/runs/{run}"), &gateway.agent, "").json();
        shown["run"]["session_id"].clone()
    };
    assert_eq!(session_of(&first), session_of(&second));
    let name = client.session.as_ref().unwrap();
    assert!(name.starts_with(session_of(&first).as_str().unwrap()), "{name}");
}

#[test]
fn a_session_is_only_its_own_principals_and_ends_when_its_client_says_so() {
    let scene = Scene::new("honours_key = true");
    let gateway = Gateway::start(&scene.place);
    let client = Client::shaken(&gateway, json!({}));
    let status = |client: &Client<'_>| client.begin("tools/list", json!({})).status;
    assert_eq!(status(&client), 200);
    let session = client.session.clone();
    let other =
        Client { token: gateway.operator.clone(), session, ..Client::shaken(&gateway, json!({})) };
    assert_eq!(status(&other), 404);
    for name in ["x", "0198b2c4-7a51-7cc0-9f2e-2f6a4a6f8f10.2025-11-25.u", ""] {
        let foreign =
            Client { session: Some(name.to_owned()), ..Client::shaken(&gateway, json!({})) };
        assert_eq!(status(&foreign), 404, "{name}");
    }
    assert_eq!(client.open("DELETE", &[], "").status, 204);
    assert_eq!(status(&client), 404);
}

#[test]
fn beyond_the_limit_the_oldest_session_is_let_go_and_its_client_does_not_notice() {
    let scene = Scene::new("honours_key = true");
    let config = scene.place.path().join("stepgate.toml");
    let text = fs::read_to_string(&config).unwrap();
    fs::write(&config, format!("[mcp]\nsessions_max = 2\n{text}")).unwrap();
    let gateway = Gateway::start(&scene.place);
    let clients = [(); 4].map(|()| Client::shaken(&gateway, json!({})));
    for client in &clients {
        assert_eq!(client.call("THINK", json!({}))["_meta"]["stepgate/verdict"], "SUCCESS");
    }
}

#[test]
fn a_change_of_what_is_offered_is_announced_to_both_kinds_of_clients() {
    let scene = Scene::new("honours_key = true");
    let gateway = Gateway::start(&scene.place);
    let shaken = Client::shaken(&gateway, json!({}));
    let mut stream = shaken.open("GET", &[], "");
    assert_eq!(stream.status, 200);
    let params = json!({ "notifications": { "toolsListChanged": true } });
    let stateless = Client::of(&gateway);
    let mut subscription = stateless.begin("subscriptions/listen", params);
    let acknowledged = subscription.next().unwrap();
    assert_eq!(acknowledged["method"], "notifications/subscriptions/acknowledged");
    let policies = "permit (principal, action == Action::\"THINK\", resource);";
    fs::write(scene.place.path().join("policies/all.cedar"), policies).unwrap();
    for stream in [&mut stream, &mut subscription] {
        let word = stream.next().unwrap();
        assert_eq!(word["method"], "notifications/tools/list_changed", "{word}");
    }
    assert_eq!(stateless.tools(), ["THINK"]);
}

#[test]
fn a_client_that_says_several_times_that_it_is_ready_is_told_of_a_change_once() {
    let scene = Scene::new("honours_key = true");
    let gateway = Gateway::start(&scene.place);
    let client = Client::shaken(&gateway, json!({}));
    let initialized = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    for _ in 0..10 {
        assert_eq!(client.open("POST", &[], &initialized.to_string()).status, 202);
    }
    let mut stream = client.open("GET", &[], "");
    let policies = "permit (principal, action == Action::\"THINK\", resource);";
    fs::write(scene.place.path().join("policies/all.cedar"), policies).unwrap();
    assert_eq!(stream.next().unwrap()["method"], "notifications/tools/list_changed");
    // What else was said by now comes before this.
    client.call("THINK", json!({}));
    assert_eq!(client.open("DELETE", &[], "").status, 204);
    assert_eq!(stream.messages(), Vec::<serde_json::Value>::new());
}

#[test]
fn a_stream_does_not_outlive_its_token() {
    let scene = Scene::new("honours_key = true");
    let gateway = Gateway::start(&scene.place);
    let made = scene.stepgate(&["token", "create", "--name", "guest", "--role", "agent", "--json"]);
    let made: serde_json::Value = serde_json::from_str(made.stdout.trim()).unwrap();
    let token = made["token"].as_str().unwrap();
    let shaken = Client::shaken_as(&gateway, token);
    let mut stream = shaken.open("GET", &[], "");
    let params = json!({ "notifications": { "toolsListChanged": true } });
    let stateless = Client { token: token.to_owned(), ..Client::of(&gateway) };
    let mut subscription = stateless.begin("subscriptions/listen", params);
    subscription.next().unwrap();
    let revoked = scene.stepgate(&["token", "revoke", made["token_id"].as_str().unwrap()]);
    assert_eq!(revoked.code, 0, "{}", revoked.stderr);
    let policies = "permit (principal, action == Action::\"THINK\", resource);";
    fs::write(scene.place.path().join("policies/all.cedar"), policies).unwrap();
    for stream in [&mut stream, &mut subscription] {
        assert_eq!(stream.next(), None);
    }
}
