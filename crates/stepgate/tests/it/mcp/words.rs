//! The words for the model: every refusal and every notice says what happened and what to do, in the text, and
//! has no structured content that clients would show instead.

use serde_json::{Value, json};

use super::client::Client;
use crate::http_client::Gateway;
use crate::scene::{Scene, until};

fn said(result: &Value) -> &str {
    assert_eq!(result.get("structuredContent"), None, "{result}");
    result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("no words in {result}"))
}

fn configured(more: &str, flags: &[&str]) -> Scene {
    let scene = Scene::with("honours_key = true", flags);
    let config = scene.place.path().join("stepgate.toml");
    let text = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, format!("{more}{text}")).unwrap();
    scene
}

#[test]
fn a_refusal_and_a_failure_say_what_happened_and_what_to_do_and_nothing_else_is_shown() {
    let scene = configured("", &["--tool", "error"]);
    let gateway = Gateway::start(&scene.place);
    let rows: [(&str, Value, &[&str]); 7] = [
        (
            "fixture__act",
            json!({ "value": 101 }),
            &["INVALID_ARGS", "value", "correct the arguments"],
        ),
        ("fixture__act", json!({ "value": 1, "colour": 2 }), &["colour", "correct the arguments"]),
        ("READ_FILE", json!({ "path": "/sandbox/a.exe" }), &["DENIED", "Do not try again"]),
        ("READ_FILE", json!({ "path": "/sandbox/no.txt" }), &["FILE_NOT_FOUND", "It was not done"]),
        ("fixture__flood", json!({}), &["OUTPUT_INVALID", "longer than", "may have been done"]),
        (
            "fixture__error",
            json!({}),
            &["The tool server answered with an error: the lamp is broken"],
        ),
        ("fixture__crash", json!({}), &["UPSTREAM_ERROR", "may have been done"]),
    ];
    let clients = [Client::of(&gateway), Client::shaken(&gateway, json!({}))];
    for client in &clients {
        for (name, args, words) in &rows {
            // A server that has crashed is started again.
            until("the server answers", || {
                let looked = client.call("fixture__look", json!({}));
                looked["_meta"]["stepgate/verdict"] == "SUCCESS"
            });
            assert_words(&client.call(name, args.clone()), words);
        }
    }
    until("the server answers", || {
        let looked = clients[0].call("fixture__look", json!({}));
        looked["_meta"]["stepgate/verdict"] == "SUCCESS"
    });
    // The last one: the server has only one thread, and it hangs.
    let hung = clients[0].call("fixture__hang", json!({}));
    assert_words(
        &hung,
        &["TIMEOUT", "no answer within 300 ms", "timeout_ms", "may have been done"],
    );
    drop(clients);
    drop(gateway);
    scene.verified();
}

fn assert_words(result: &Value, words: &[&str]) {
    assert_eq!(result["isError"], true, "{result}");
    for word in words {
        assert!(said(result).contains(word), "`{word}` is not in {result}");
    }
}

#[test]
fn a_notice_says_how_to_go_on_and_nothing_else_is_shown() {
    let scene = configured("[mcp]\nwait_ms = 50\n", &[]);
    let gateway = Gateway::start(&scene.place);
    for client in [Client::of(&gateway), Client::shaken(&gateway, json!({}))] {
        let notice = client.call("fixture__act", json!({ "value": 7 }));
        assert!(said(&notice).contains("make the same call again later"), "{notice}");
        assert_eq!(notice["_meta"]["stepgate/response"]["outcome"], "APPROVAL_REQUIRED");
    }
}

#[test]
fn what_an_operator_notes_and_which_policy_decided_is_not_told_to_the_model() {
    let scene = configured("[mcp]\nwait_ms = 60000\n", &[]);
    let gateway = Gateway::start(&scene.place);
    let client = Client::of(&gateway);
    let mut params = json!({ "name": "fixture__act", "arguments": { "value": 7 } });
    params["_meta"] = json!({ "progressToken": 1 });
    let mut incoming = client.begin("tools/call", params);
    incoming.next().unwrap();
    let denied = scene.stepgate(&["deny", &scene.pending(), "--note", "she is on holiday"]);
    assert_eq!(denied.code, 0, "{}", denied.stderr);
    let answer = incoming.messages().pop().unwrap();
    let words = said(&answer["result"]);
    assert!(words.contains("a person said no") && words.contains("Do not try again"), "{words}");
    assert!(!answer.to_string().contains("holiday"), "{answer}");
}
