//! What is offered, and that a call is a step.

use serde_json::{Value, json};

use super::client::{Client, SESSIONS};
use crate::http_client::Gateway;
use crate::scene::Scene;

#[test]
fn only_what_policy_could_permit_is_offered_in_a_stable_order() {
    let scene = Scene::new("honours_key = true");
    let gateway = Gateway::start(&scene.place);
    let tools = Client::of(&gateway).tools();
    let mut sorted = tools.clone();
    sorted.sort();
    assert_eq!(tools, sorted);
    assert!(tools.contains(&"READ_FILE".to_owned()), "{tools:?}");
    assert!(tools.contains(&"fixture__act".to_owned()), "{tools:?}");
    assert!(tools.contains(&"other__look".to_owned()), "{tools:?}");
    // Only one server's tool of this name is permitted to anyone.
    let policies = r#"
        permit (principal == Principal::"operator", action == Action::"fixture.act", resource);
        permit (principal, action == Action::"other.look", resource);
        permit (principal, action == Action::"READ_FILE", resource);
        forbid (principal, action == Action::"READ_FILE", resource);
    "#;
    std::fs::write(scene.place.path().join("policies/all.cedar"), policies).unwrap();
    crate::scene::until("the policies are reloaded", || {
        Client::of(&gateway).tools() == ["other__look"]
    });
}

#[test]
fn a_tool_that_no_operator_has_accepted_is_not_offered() {
    let scene = Scene::new("honours_key = true");
    drop(Gateway::start(&scene.place));
    scene.configure("honours_key = true", &["--tool", "exfiltrate"]);
    let gateway = Gateway::start(&scene.place);
    let is_offered = |name: &str| Client::of(&gateway).tools().iter().any(|tool| tool == name);
    assert!(is_offered("fixture__look") && !is_offered("fixture__exfiltrate"));
    let accepted = scene.stepgate(&["tools", "accept", "fixture.exfiltrate"]);
    assert_eq!(accepted.code, 0, "{accepted:?}");
    crate::scene::until("it is offered", || is_offered("fixture__exfiltrate"));
}

#[test]
fn a_tool_is_offered_with_its_own_description_and_schemas_and_honest_annotations() {
    let scene = Scene::new("honours_key = true");
    let gateway = Gateway::start(&scene.place);
    let answer = Client::of(&gateway).ask("tools/list", json!({}));
    let tool = |name: &str| {
        let tools = answer["result"]["tools"].as_array().unwrap();
        tools.iter().find(|tool| tool["name"] == name).unwrap().clone()
    };
    assert_eq!(
        tool("fixture__act"),
        json!({
            "name": "fixture__act",
            "description": "a tool of the tests",
            "inputSchema": {
                "type": "object",
                "properties": { "value": { "type": "integer", "minimum": 0, "maximum": 100 } },
                "required": ["value"],
            },
            "annotations": {
                "readOnlyHint": false, "destructiveHint": true, "openWorldHint": true,
            },
        })
    );
    assert_eq!(tool("fixture__look")["annotations"]["readOnlyHint"], true);
    assert_eq!(tool("READ_FILE")["outputSchema"]["properties"]["content"]["type"], "string");
}

#[test]
fn a_call_is_a_step_that_its_caller_can_look_up_and_verify() {
    let scene = Scene::new("honours_key = true");
    let gateway = Gateway::start(&scene.place);
    let client = Client::of(&gateway);
    let meta = json!({ "stepgate/reasoning": "the lamp is on" });
    let args = json!({ "path": "/sandbox/a.txt", "content": "hi" });
    let result = client.call_with("WRITE_FILE", args, meta);
    assert_eq!(result["isError"], false);
    let meta = &result["_meta"];
    assert_eq!(meta["stepgate/verdict"], "SUCCESS");
    let run = meta["stepgate/run-id"].as_str().unwrap();
    let export =
        gateway.send("GET", &format!("/v1/runs/{run}/export"), &gateway.operator, "").json();
    let entries = export["entries"].as_array().unwrap();
    let last = entries.last().unwrap();
    assert!(last.to_string().contains(meta["stepgate/entry-digest"].as_str().unwrap()), "{last}");
    assert!(export.to_string().contains("the lamp is on"));
    let read = client.call("READ_FILE", json!({ "path": "/sandbox/a.txt" }));
    assert_eq!(read["content"], json!([{ "type": "text", "text": "hi" }]));
    assert_eq!(read["structuredContent"], json!({ "content": "hi" }));
    // Without a reason the record says that there was none.
    let run = read["_meta"]["stepgate/run-id"].as_str().unwrap();
    let export = gateway.send("GET", &format!("/v1/runs/{run}/export"), &gateway.operator, "");
    assert!(export.body.contains("the MCP client gave no reasoning"));
    drop(gateway);
    scene.verified();
}

#[test]
fn a_tool_of_a_server_answers_with_its_own_result() {
    let scene = Scene::new("honours_key = true");
    let gateway = Gateway::start(&scene.place);
    for client in [Client::of(&gateway), Client::shaken(&gateway, json!({}))] {
        let result = client.call("fixture__look", json!({}));
        assert!(result["content"].is_array(), "{result}");
        assert_eq!(result.get("isError"), None, "{result}");
        assert_eq!(result["_meta"]["stepgate/verdict"], "SUCCESS");
    }
}

/// Refusals that the model can act on are results; the response is beside the words.
#[test]
fn a_refusal_is_a_result_with_the_response_beside_it() {
    let scene = Scene::new("honours_key = true");
    let gateway = Gateway::start(&scene.place);
    let client = Client::of(&gateway);
    let rows = [
        ("READ_FILE", json!({ "path": "/etc/passwd" }), "VALIDATION_ERROR", "INVALID_ARGS"),
        ("READ_FILE", json!({}), "VALIDATION_ERROR", "INVALID_ARGS"),
        ("READ_FILE", json!({ "path": "/sandbox/a.exe" }), "DENIED", "POLICY_VIOLATION"),
        ("READ_FILE", json!({ "path": "/sandbox/no.txt" }), "EXECUTION_ERROR", "EXECUTION_ERROR"),
        ("fixture__act", json!({ "value": 101 }), "VALIDATION_ERROR", "INVALID_ARGS"),
        ("fixture__act", json!({ "value": 1, "more": 1 }), "VALIDATION_ERROR", "INVALID_ARGS"),
        ("fixture__look", json!({ "n": 9007199254740993u64 }), "VALIDATION_ERROR", "INVALID_JSON"),
    ];
    for (name, args, outcome, code) in rows {
        let result = client.call(name, args.clone());
        assert_eq!(result["isError"], true, "{name} {args}");
        assert_eq!(
            result["_meta"]["stepgate/response"]["outcome"], outcome,
            "{name} {args}: {result}"
        );
        assert_eq!(
            result["_meta"]["stepgate/response"]["error"]["error_code"], code,
            "{name} {args}"
        );
        assert_eq!(result["_meta"]["stepgate/verdict"], outcome, "{name} {args}");
        let said = result["content"][0]["text"].as_str().unwrap();
        assert!(said.contains(code), "{said}");
    }
}

#[test]
fn a_key_names_a_call_for_good() {
    let scene = Scene::new("honours_key = true");
    let gateway = Gateway::start(&scene.place);
    let client = Client::of(&gateway);
    let key = json!({ "stepgate/idempotency-key": "order 66" });
    let write = |content: &str| {
        let args = json!({ "path": "/sandbox/a.txt", "content": content });
        client.call_with("WRITE_FILE", args, key.clone())
    };
    let first = write("one");
    assert_eq!(write("one"), first);
    assert_eq!(
        write("two")["_meta"]["stepgate/response"]["error"]["error_code"],
        "IDEMPOTENCY_CONFLICT"
    );
    // What the answer calls the key is a key, too, and the same one.
    let again = json!({ "stepgate/idempotency-key": first["_meta"]["stepgate/idempotency-key"] });
    let args = json!({ "path": "/sandbox/a.txt", "content": "one" });
    assert_eq!(client.call_with("WRITE_FILE", args, again), first);
    // Another principal's equal key is another key.
    let other = Client { token: gateway.operator.clone(), ..Client::of(&gateway) };
    let args = json!({ "path": "/sandbox/a.txt", "content": "two" });
    assert_eq!(other.call_with("WRITE_FILE", args, key)["_meta"]["stepgate/verdict"], "SUCCESS");
}

#[test]
fn what_is_no_call_of_a_tool_is_an_error_of_the_protocol() {
    let scene = Scene::new("honours_key = true");
    let gateway = Gateway::start(&scene.place);
    let client = Client::of(&gateway);
    let long = "k".repeat(201);
    let rows = [
        (json!({ "name": "no_such_tool" }), "there is no tool"),
        (json!({ "name": "fixture.act", "arguments": { "value": 1 } }), "there is no tool"),
        (json!({ "name": "THINK", "_meta": { "stepgate/idempotency-key": "" } }), "1 to 200"),
        (json!({ "name": "THINK", "_meta": { "stepgate/idempotency-key": long } }), "1 to 200"),
        (json!({ "name": "THINK", "_meta": { "stepgate/idempotency-key": 7 } }), "1 to 200"),
        (json!({ "name": "THINK", "_meta": { "stepgate/reasoning": 7 } }), "is a text"),
        (json!({ "name": "THINK", "requestState": "x" }), "requestState"),
    ];
    for (params, expected) in rows {
        let answer = client.ask("tools/call", params.clone());
        assert_eq!(answer["error"]["code"], -32602, "{params}: {answer}");
        let message = answer["error"]["message"].as_str().unwrap();
        assert!(message.contains(expected), "{params}: {message}");
    }
    for method in ["prompts/get", "resources/read", "no/such"] {
        assert!(client.ask(method, json!({ "name": "x", "uri": "x:y" }))["error"].is_object());
    }
}

#[test]
fn the_headers_must_say_what_the_body_says() {
    let scene = Scene::new("honours_key = true");
    let gateway = Gateway::start(&scene.place);
    let client = Client::of(&gateway);
    let message =
        client.message("tools/call", json!({ "name": "THINK", "arguments": {} })).to_string();
    let right = [("mcp-method", "tools/call"), ("mcp-name", "THINK")];
    assert_eq!(client.open("POST", &right, &message).status, 200);
    let wrong: [&[(&str, &str)]; 5] = [
        &[("mcp-method", "tools/list"), ("mcp-name", "THINK")],
        &[("mcp-method", "tools/call"), ("mcp-name", "FINISH")],
        &[("mcp-name", "THINK")],
        &[("mcp-method", "tools/call")],
        &[("mcp-method", "tools/call"), ("mcp-name", "THINK"), ("mcp-protocol-version", SESSIONS)],
    ];
    for headers in wrong {
        let refused = client.open("POST", headers, &message);
        assert_eq!(refused.status, 400, "{headers:?}");
        let refused: Value = serde_json::from_str(&refused.text()).unwrap();
        assert_eq!(refused["error"]["code"], -32020, "{headers:?}: {refused}");
    }
}

#[test]
fn one_server_can_have_its_tools_under_their_own_names() {
    let scene = Scene::new("honours_key = true");
    let config = scene.place.path().join("stepgate.toml");
    let text = std::fs::read_to_string(&config).unwrap();
    std::fs::write(
        &config,
        text.replace("[servers.fixture]\n", "[servers.fixture]\nown_names = true\n"),
    )
    .unwrap();
    let gateway = Gateway::start(&scene.place);
    let client = Client::of(&gateway);
    let tools = client.tools();
    assert!(
        tools.contains(&"act".to_owned()) && tools.contains(&"other__act".to_owned()),
        "{tools:?}"
    );
    assert_eq!(client.call("look", json!({}))["_meta"]["stepgate/verdict"], "SUCCESS");
    drop(gateway);
    // Two servers' own names could be the same.
    std::fs::write(&config, text.replace("]\ncommand", "]\nown_names = true\ncommand")).unwrap();
    let refused = scene.stepgate(&["serve", "--bind", "127.0.0.1:0"]);
    assert_eq!(refused.code, 1);
    assert!(refused.stderr.contains("only one server can"), "{}", refused.stderr);
}

#[test]
fn of_two_tools_with_one_name_the_later_is_off_and_named_and_the_rest_serves() {
    let scene = Scene::with("honours_key = true", &["--tool", "a__look"]);
    let config = scene.place.path().join("stepgate.toml");
    let text = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, text.replace("[servers.other]", "[servers.fixture__a]")).unwrap();
    let words = "the tool `fixture__a.look` is off over MCP: `fixture.a__look` has its name there, \
                 `fixture__a__look`; rename one of the servers";
    let doctor = scene.stepgate(&["doctor"]);
    assert!(doctor.code == 1 && doctor.stdout.contains(words), "{doctor:?}");
    let mut gateway = Gateway::start(&scene.place);
    gateway.until_it_says(words);
    for command in ["tools", "doctor"] {
        let output = scene.stepgate(&[command]);
        assert!(output.stdout.contains(words), "{output:?}");
    }
    let ready = gateway.send("GET", "/readyz", &gateway.operator, "").json();
    assert_eq!((&ready["status"], &ready["tools_off"]), (&json!("ready"), &json!(1)));
    assert_eq!(ready["off"][0]["reason"], "name_taken");
    // The one that has the name is called by it, and the other one by its own over HTTP.
    let client = Client::of(&gateway);
    let result = client.call("fixture__a__look", json!({}));
    let run = result["_meta"]["stepgate/run-id"].as_str().unwrap();
    let run = gateway.send("GET", &format!("/v1/runs/{run}"), &gateway.operator, "").json();
    assert!(run.to_string().contains("a__look"), "{run}");
    let proposal = crate::http_client::proposal("fixture__a.look", json!({}));
    assert_eq!(gateway.propose(&proposal).status, 200);
    assert_eq!(client.call("fixture__look", json!({}))["_meta"]["stepgate/verdict"], "SUCCESS");
}
