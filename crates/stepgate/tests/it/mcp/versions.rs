//! Older versions of the protocol: their handshake, their calls, and the one thing of theirs that is refused.

use serde_json::{Value, json};

use super::client::Client;
use crate::http_client::Gateway;
use crate::scene::Scene;

/// The versions before the ones that the other tests speak.
const OLDER: [&str; 3] = ["2024-11-05", "2025-03-26", "2025-06-18"];

/// A client of this version, which knows of no version header, after its handshake.
fn shaken<'a>(gateway: &'a Gateway, version: &'static str) -> Client<'a> {
    let mut client = Client::of(gateway);
    let incoming = client.handshake(version);
    assert_eq!(incoming.status, 200, "{version}");
    client.session = Some(incoming.headers["mcp-session-id"].as_str().unwrap().to_owned());
    let answer = incoming.messages().pop().unwrap();
    assert_eq!(answer["result"]["protocolVersion"], version, "{answer}");
    // An empty header is not sent.
    client.version = "";
    let initialized = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    let headers = [("mcp-protocol-version", "")];
    assert_eq!(client.open("POST", &headers, &initialized.to_string()).status, 202);
    client
}

fn ask(client: &Client<'_>, method: &str, params: Value) -> Value {
    let message = client.message(method, params).to_string();
    let answer = client.open("POST", &[("mcp-protocol-version", "")], &message);
    answer.messages().pop().unwrap()
}

#[test]
fn clients_of_older_versions_shake_hands_list_and_call() {
    let scene = Scene::new("honours_key = true");
    let gateway = Gateway::start(&scene.place);
    for version in OLDER {
        let client = shaken(&gateway, version);
        let listed = ask(&client, "tools/list", json!({}));
        assert!(listed["result"]["tools"].as_array().unwrap().len() > 8, "{version}: {listed}");
        let params = json!({ "name": "fixture__look", "arguments": {} });
        let called = ask(&client, "tools/call", params);
        assert_eq!(called["result"]["structuredContent"], json!({ "effects": 0 }), "{called}");
        let params = json!({ "name": "READ_FILE", "arguments": {} });
        let refused = ask(&client, "tools/call", params);
        assert_eq!(refused["result"]["isError"], true, "{version}: {refused}");
    }
    drop(gateway);
    scene.verified();
}

/// Version 2025-03-26 has batches; they are refused, and the error says what to do instead.
#[test]
fn a_batch_is_refused_with_words_and_the_session_goes_on() {
    let scene = Scene::new("honours_key = true");
    let gateway = Gateway::start(&scene.place);
    let client = shaken(&gateway, "2025-03-26");
    let one = client.message("tools/list", json!({}));
    let headers = [("mcp-protocol-version", "")];
    let refused = client.open("POST", &headers, &json!([one, one]).to_string());
    assert_eq!(refused.status, 400);
    let refused = refused.messages().pop().unwrap();
    assert_eq!(refused["error"]["code"], -32600);
    let said = refused["error"]["message"].as_str().unwrap();
    assert!(said.contains("send each message by itself"), "{said}");
    assert!(ask(&client, "tools/list", json!({}))["result"]["tools"].is_array());
}

#[test]
fn a_tools_title_stands_where_older_clients_and_where_newer_ones_look_for_it() {
    let scene = Scene::with("honours_key = true", &["--title", "Turn the lamp on"]);
    let gateway = Gateway::start(&scene.place);
    let listed = ask(&shaken(&gateway, "2025-03-26"), "tools/list", json!({}));
    let tools = listed["result"]["tools"].as_array().unwrap();
    let act = tools.iter().find(|tool| tool["name"] == "fixture__act").unwrap();
    assert_eq!(act["title"], "Turn the lamp on");
    assert_eq!(act["annotations"]["title"], "Turn the lamp on");
    // What the configuration says of the tool stays beside it.
    assert_eq!(act["annotations"]["destructiveHint"], true);
}
