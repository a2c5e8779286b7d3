//! Clients that send what no client should: a clear error, nothing hangs, and the others go on.

use serde_json::{Value, json};

use super::client::{Client, STATELESS};
use crate::http_client::{Gateway, exchange, request};
use crate::scene::{Scene, until};

#[test]
fn nobody_speaks_without_a_token_and_an_auditor_calls_nothing() {
    let scene = Scene::new("honours_key = true");
    let gateway = Gateway::start(&scene.place);
    let made = scene.stepgate(&["token", "create", "--name", "eye", "--role", "auditor", "--json"]);
    let made: Value = serde_json::from_str(made.stdout.trim()).unwrap();
    let auditor = made["token"].as_str().unwrap();
    for (token, expected) in [("", 401), ("sg_wrong", 401), (auditor, 403)] {
        let client = Client { token: token.to_owned(), ..Client::of(&gateway) };
        assert_eq!(client.begin("tools/list", json!({})).status, expected, "{token}");
    }
    let request = request("POST", "/mcp", "", &[], "{}");
    assert_eq!(exchange(gateway.address, request.as_bytes()).unwrap().status, 401);
}

#[test]
fn what_is_not_strict_json_is_refused_before_anything_reads_it() {
    let scene = Scene::new("honours_key = true");
    let gateway = Gateway::start(&scene.place);
    let client = Client::of(&gateway);
    let call =
        client.message("tools/call", json!({ "name": "THINK", "arguments": {} })).to_string();
    let deep = format!("{}1{}", "[".repeat(200), "]".repeat(200));
    let rows = [
        (String::new(), -32700),
        ("{".to_owned(), -32700),
        (call.replace("\"THINK\"", "\"THINK\",\"name\":\"FINISH\""), -32700),
        (call.replace("\"THINK\"", "\"THINK\",\"n\\u0061me\":\"FINISH\""), -32700),
        (call.replace("\"arguments\":{}", &format!("\"arguments\":{{\"a\":{deep}}}")), -32700),
        (format!("{call}{call}"), -32700),
        (format!("[{call}]"), -32600),
        ("7".to_owned(), -32600),
    ];
    for (body, code) in rows {
        let refused =
            client.open("POST", &[("mcp-method", "tools/call"), ("mcp-name", "THINK")], &body);
        assert_eq!(refused.status, 400, "{body:.80}");
        let refused: Value = serde_json::from_str(&refused.text()).unwrap();
        assert_eq!(refused["error"]["code"], code, "{body:.80}");
    }
    assert_eq!(client.call("THINK", json!({}))["_meta"]["stepgate/verdict"], "SUCCESS");
}

#[test]
fn a_body_that_is_too_long_is_refused_and_the_others_go_on() {
    let scene = Scene::new("honours_key = true");
    let gateway = Gateway::start(&scene.place);
    let client = Client::of(&gateway);
    let long = "x".repeat(9 * 1024 * 1024);
    let message = client
        .message("tools/call", json!({ "name": "FINISH", "arguments": { "response": long } }));
    let headers = [("mcp-method", "tools/call"), ("mcp-name", "FINISH")];
    assert_eq!(client.open("POST", &headers, &message.to_string()).status, 413);
    // Longer than a proposal may be, and shorter than a body may be: the gate itself says so.
    let long = "x".repeat(2 * 1024 * 1024);
    let result = client.call("FINISH", json!({ "response": long }));
    assert_eq!(result["_meta"]["stepgate/response"]["error"]["error_code"], "PAYLOAD_TOO_LARGE");
}

#[test]
fn foreign_origins_and_foreign_names_of_the_gateway_are_refused() {
    let scene = Scene::new("honours_key = true");
    let config = scene.place.path().join("stepgate.toml");
    let text = std::fs::read_to_string(&config).unwrap();
    let more = "[mcp]\nallowed_origins = [\"https://app.example.com:443\"]\nallowed_hosts = [\"gate.example.com\"]\n";
    std::fs::write(&config, format!("{more}{text}")).unwrap();
    let gateway = Gateway::start(&scene.place);
    let client = Client::of(&gateway);
    let message = client.message("tools/list", json!({})).to_string();
    let rows = [
        (("origin", "https://app.example.com"), 200),
        (("origin", "http://evil.example"), 403),
        // Loopback names, with any port: no page of another machine can have one.
        (("origin", "http://localhost:7420"), 200),
        (("origin", "http://localhost"), 200),
        (("origin", "http://127.0.0.1:5173"), 200),
        (("origin", "http://[::1]:5173"), 200),
        (("origin", "http://localhost.evil.example"), 403),
        (("origin", "http://127.0.0.1.evil.example:5173"), 403),
        (("origin", "null"), 403),
        (("host", "gate.example.com"), 200),
        (("host", "127.0.0.1:7420"), 200),
        (("host", "evil.example"), 403),
    ];
    for (header, expected) in rows {
        let answered = client.open("POST", &[("mcp-method", "tools/list"), header], &message);
        assert_eq!(answered.status, expected, "{header:?}");
    }
}

#[test]
fn messages_out_of_order_and_versions_that_nobody_speaks_are_refused() {
    let scene = Scene::new("honours_key = true");
    let gateway = Gateway::start(&scene.place);
    let client = Client::of(&gateway);
    // An answer to a question that was never asked.
    let answer = json!({ "jsonrpc": "2.0", "id": 5, "result": {} }).to_string();
    assert_eq!(client.open("POST", &[], &answer).status, 400);
    // A call of a client that should have shaken hands.
    let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" }).to_string();
    let early = client.open("POST", &[("mcp-protocol-version", "2025-11-25")], &call);
    assert!(early.status >= 400, "{}", early.status);
    let message =
        client.message("tools/list", json!({})).to_string().replace(STATELESS, "2031-01-01");
    let headers = [("mcp-method", "tools/list"), ("mcp-protocol-version", "2031-01-01")];
    let refused = client.open("POST", &headers, &message);
    assert_eq!(refused.status, 400);
    for method in ["PUT", "PATCH"] {
        assert_eq!(client.open(method, &[], "{}").status, 405);
    }
    assert_eq!(client.call("THINK", json!({}))["_meta"]["stepgate/verdict"], "SUCCESS");
}

/// What a tool server does wrong is an error of that call alone.
#[test]
fn a_tool_server_that_misbehaves_harms_no_other_call() {
    let scene = Scene::new("honours_key = true");
    let gateway = Gateway::start(&scene.place);
    let client = Client::of(&gateway);
    let rows = [
        ("fixture__flood", "Tool returned an invalid result"),
        ("fixture__hang", "Tool timed out"),
    ];
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..20 {
                let other = client.call("other__look", json!({}));
                assert_eq!(other["_meta"]["stepgate/verdict"], "SUCCESS");
            }
        });
        for (name, message) in rows {
            let result = Client::of(&gateway).call(name, json!({}));
            assert_eq!(result["isError"], true, "{name}");
            assert_eq!(result["_meta"]["stepgate/response"]["error"]["message"], message, "{name}");
        }
    });
    // What a tool itself says of its failure comes through as it is.
    let refused = client.call("other__refuse", json!({}));
    assert_eq!(refused["content"], json!([{ "type": "text", "text": "no" }]));
    assert_eq!(refused["isError"], true);
    let crashed = client.call("other__crash", json!({}));
    assert_eq!(crashed["_meta"]["stepgate/response"]["error"]["message"], "Tool failed");
    until("the server is started again", || {
        client.call("other__look", json!({}))["_meta"]["stepgate/verdict"] == "SUCCESS"
    });
}

/// Answers find their way by the id: one that is in use is not given to a second request.
#[test]
fn an_id_that_is_under_way_in_a_session_is_refused_to_another_request() {
    let scene = Scene::new("honours_key = true");
    let policies = "permit (principal, action, resource);";
    std::fs::write(scene.place.path().join("policies/all.cedar"), policies).unwrap();
    let gateway = Gateway::start(&scene.place);
    let client = Client::shaken(&gateway, json!({}));
    let other = Client::shaken(&gateway, json!({}));
    let call = json!({ "name": "fixture__act", "arguments": { "value": 1 } });
    let call = client.message("tools/call", call);
    let list = json!({ "jsonrpc": "2.0", "id": call["id"], "method": "tools/list" });
    let ask = |client: &Client<'_>, message: &Value| {
        let answered = client.open("POST", &[], &message.to_string());
        (answered.status, answered.messages().pop().unwrap())
    };

    std::fs::write(scene.file("hold-after"), "").unwrap();
    std::thread::scope(|scope| {
        let held = scope.spawn(|| ask(&client, &call));
        until("the tool is reached", || scene.file("hold-after.reached").exists());
        for message in [&list, &call] {
            let (status, refused) = ask(&client, message);
            assert_eq!(status, 400, "{refused}");
            let message = "a request with this id is under way in this session";
            assert_eq!(refused["error"], json!({ "code": -32600, "message": message }));
        }
        assert!(ask(&other, &list).1["result"]["tools"].is_array());
        std::fs::remove_file(scene.file("hold-after")).unwrap();
        let (_, answer) = held.join().unwrap();
        assert_eq!(answer["result"]["structuredContent"], json!({ "value": 1 }));
    });
    assert!(ask(&client, &list).1["result"]["tools"].is_array());
    assert_eq!(scene.effects(), 1);
}

#[test]
fn what_is_no_message_is_an_error_of_the_protocol_and_repeats_little_of_it() {
    let scene = Scene::new("honours_key = true");
    let gateway = Gateway::start(&scene.place);
    let (stateless, shaken) = (Client::of(&gateway), Client::shaken(&gateway, json!({})));
    let call = |params: Value| stateless.message("tools/call", params).to_string();
    let rows = [
        (call(json!({ "name": "THINK", "arguments": [1] })), -32602),
        (call(json!({ "name": 5 })), -32602),
        (json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call" }).to_string(), -32602),
        (json!({ "jsonrpc": "2.0", "id": 1.5, "method": "tools/list" }).to_string(), -32600),
        (json!({ "jsonrpc": "2.0", "id": null, "method": "tools/list" }).to_string(), -32600),
        (json!({ "jsonrpc": "1.0", "id": 1, "method": "tools/list" }).to_string(), -32600),
        ("{}".to_owned(), -32600),
    ];
    for client in [&stateless, &shaken] {
        for (body, code) in &rows {
            let refused = client.open("POST", &[("mcp-method", "tools/call")], body);
            assert_eq!(refused.headers["content-type"], "application/json", "{body}");
            let refused: Value = serde_json::from_str(&refused.text()).unwrap();
            assert_eq!(refused["error"]["code"], *code, "{body}");
        }
        let name = "x".repeat(8000);
        let answer = client.ask("tools/call", json!({ "name": name, "arguments": {} }));
        assert_eq!(answer["error"]["code"], -32602);
        assert!(answer.to_string().len() < 300, "{answer}");
    }
}

#[test]
fn a_session_is_named_after_the_version_that_is_spoken_in_it() {
    let scene = Scene::new("honours_key = true");
    let gateway = Gateway::start(&scene.place);
    let rows = [("2025-06-18", "2025-06-18"), ("2027-01-01", "2025-11-25"), ("a\nb", "2025-11-25")];
    for (asked, spoken) in rows {
        let incoming = Client::of(&gateway).handshake(asked);
        assert_eq!(incoming.status, 200, "{asked}");
        let name = incoming.headers["mcp-session-id"].as_str().unwrap().to_owned();
        assert_eq!(name.split('.').nth(1), Some(spoken), "{asked}");
        let answer = incoming.messages().pop().unwrap();
        assert_eq!(answer["result"]["protocolVersion"], spoken, "{asked}");
    }
}

/// A number that cannot be held exactly would be executed as another one.
#[test]
fn integers_that_cannot_be_held_are_refused_by_the_gate_and_never_rounded() {
    let scene = Scene::new("honours_key = true");
    let gateway = Gateway::start(&scene.place);
    for client in [Client::of(&gateway), Client::shaken(&gateway, json!({}))] {
        for number in ["12345678901234567890123", "9007199254740993", "-98765432109876543210"] {
            let params = json!({ "name": "other__look", "arguments": { "n": "NUMBER" } });
            let message = client.message("tools/call", params).to_string();
            let message = message.replace("\"NUMBER\"", number);
            let headers = [("mcp-method", "tools/call"), ("mcp-name", "other__look")];
            let answer = client.open("POST", &headers, &message).messages().pop().unwrap();
            let response = &answer["result"]["_meta"]["stepgate/response"];
            assert_eq!(response["error"]["error_code"], "INVALID_JSON", "{answer}");
        }
    }
}

/// Only a bridge on this machine has no headers to repeat arguments in.
#[test]
fn nobody_on_the_network_can_switch_the_check_of_the_headers_off() {
    let scene = Scene::with("honours_key = true", &["--header-of", "look"]);
    let gateway = Gateway::start(&scene.place);
    let client = Client::of(&gateway);
    let params = json!({ "name": "other__look", "arguments": { "region": "north" } });
    let message = client.message("tools/call", params).to_string();
    let headers = [("mcp-method", "tools/call"), ("mcp-name", "other__look")];
    let call = |more: &[(&str, &str)]| {
        let headers: Vec<_> = headers.iter().chain(more).copied().collect();
        client.open("POST", &headers, &message).messages().pop().unwrap()
    };
    assert!(call(&[("mcp-param-region", "north")])["result"].is_object());
    for more in [&[("mcp-param-region", "south")][..], &[]] {
        let bridged: Vec<_> = more.iter().chain(&[("stepgate-bridge", "stdio")]).copied().collect();
        let (refused, also) = (call(more), call(&bridged));
        assert!(refused["error"].is_object(), "{refused}");
        assert_eq!(refused["error"], also["error"]);
    }
}
