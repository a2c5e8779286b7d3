//! The three chains over HTTP.

use serde_json::{Value, json};

use super::stage::{Stage, after, ask, ask_with, calls, codes, hello, look, outcomes, write_file};
use crate::console::{log_in, page};
use crate::http_client::Gateway;
use crate::scene::until;

#[test]
fn a_question_gets_its_answer_and_the_same_again_gets_the_recorded_one() {
    let stage = Stage::new();
    stage.model.says([json!({ "text": "good morning" })]);
    let gateway = stage.gateway();
    let first = ask(&gateway, "k1", &hello("hello?"));
    assert_eq!(first.status, 200, "{}", first.body);
    let response = first.json();
    let expected = json!({
        "kind": "final",
        "sessionId": response["sessionId"],
        "turnId": response["turnId"],
        "modeDisplayName": "General",
        "primaryOutputText": "good morning",
        "usage": { "promptTokens": 11, "completionTokens": 7 },
    });
    assert_eq!(response, expected);
    assert_eq!(first.headers["stepgate-session"], response["sessionId"].as_str().unwrap());
    let again = ask(&gateway, "k1", &hello("hello?"));
    assert_eq!((again.status, &again.body), (200, &first.body));
    assert_eq!(again.headers["idempotent-replayed"], "true");
    let asked = stage.model.asked();
    assert_eq!(asked.len(), 1);
    assert_eq!(asked[0]["path"], "/v1/chat/completions");
    assert_eq!(asked[0]["authorization"], json!(null));
    assert_eq!(stage.model.told(), ["system", "user"]);
    let seen = look(&gateway, &response["turnId"]).json();
    assert_eq!((&seen["state"], &seen["response"]), (&json!("final"), &response));
    drop(gateway);
    stage.scene.verified();
}

#[test]
fn an_auditor_sees_on_the_page_of_a_turn_what_was_asked_called_and_answered() {
    let stage = Stage::new();
    stage.model.says([
        calls(&[("c1", "WRITE_FILE", write_file("a.txt")), ("c2", "fixture__look", json!({}))]),
        json!({ "text": "<b>written</b>" }),
        json!({ "text": "you are welcome" }),
    ]);
    let gateway = stage.gateway();
    let first = ask(&gateway, "k1", &hello("write <i>it</i>\u{202e}")).json();
    let second = ask(&gateway, "k2", &after(&first, "thank you")).json();
    let (_, cookie) = log_in(&gateway, &gateway.operator, "/");
    let of = |turn: &Value| format!("/turns/{}", turn["turnId"].as_str().unwrap());
    let shown = page(&gateway, &of(&first), &cookie);
    assert_eq!(shown.status, 200, "{}", shown.body);
    for text in [
        "answered",
        "write &#60;i&#62;it&#60;/i&#62;",
        "U+202E",
        "WRITE_FILE",
        "fixture.look",
        "SUCCESS",
        "&#60;b&#62;written&#60;/b&#62;",
        "22 read",
    ] {
        assert!(shown.body.contains(text), "{text} is not in\n{}", shown.body);
    }
    assert!(!shown.body.contains("<b>written") && !shown.body.contains('\u{202e}'));
    let next = page(&gateway, &of(&second), &cookie).body;
    assert!(next.contains(&of(&first)) && next.contains("you are welcome"), "{next}");
    let session = format!("/sessions/{}", session_id(&first));
    let session = page(&gateway, &session, &cookie).body;
    assert!(session.contains(&of(&first)) && session.contains(&of(&second)), "{session}");
    assert_eq!(page(&gateway, &format!("/turns/{}", session_id(&first)), &cookie).status, 404);
}

fn session_id(response: &Value) -> &str {
    response["sessionId"].as_str().unwrap()
}

#[test]
fn the_model_is_told_what_a_tool_says_of_its_failure() {
    let stage = Stage::new();
    stage.model.says([calls(&[("c1", "fixture__refuse", json!({}))]), json!({ "text": "sorry" })]);
    let gateway = stage.gateway();
    let answer = ask(&gateway, "k1", &hello("try")).json();
    assert_eq!(outcomes(&answer), ["EXECUTION_ERROR"], "{answer}");
    let asked = stage.model.asked();
    let told = asked.last().unwrap()["body"]["messages"][3]["content"].as_str().unwrap();
    let response = answer["toolResults"][0]["resultJson"].as_str().unwrap();
    let words = told.strip_prefix(response).unwrap_or_else(|| panic!("{told}"));
    assert!(words.contains("\"text\":\"no\""), "{told}");
}

#[test]
fn server_calls_are_steps_of_the_session_and_the_conversation_goes_on() {
    let stage = Stage::new();
    stage.model.says([
        calls(&[
            ("c1", "WRITE_FILE", write_file("a.txt")),
            ("c2", "fixture__look", json!({})),
            ("c3", "READ_FILE", json!({ "path": "/etc/passwd" })),
        ]),
        json!({ "text": "written" }),
        json!({ "text": "you are welcome" }),
    ]);
    let gateway = stage.gateway();
    let first = ask(&gateway, "k1", &hello("write")).json();
    assert_eq!(outcomes(&first), ["SUCCESS", "SUCCESS", "VALIDATION_ERROR"], "{first}");
    assert!(stage.sandbox("a.txt").exists());
    let session = first["sessionId"].as_str().unwrap();
    let runs = gateway.send("GET", &format!("/v1/runs?session={session}"), &gateway.agent, "");
    assert_eq!(runs.json()["runs"].as_array().unwrap().len(), 3);
    let second = ask(&gateway, "k2", &after(&first, "thank you")).json();
    assert_eq!(second["primaryOutputText"], "you are welcome");
    assert_eq!(second["sessionId"], first["sessionId"]);
    let told = ["system", "user", "assistant", "tool", "tool", "tool", "assistant", "user"];
    assert_eq!(stage.model.told(), told);
    // The model is told what to do now; the caller gets the response alone.
    let asked = stage.model.asked();
    let refusal = asked.last().unwrap()["body"]["messages"][5]["content"].as_str().unwrap();
    let response = first["toolResults"][2]["resultJson"].as_str().unwrap();
    let words = refusal.strip_prefix(response).unwrap_or_else(|| panic!("{refusal}"));
    assert!(words.starts_with("\nVALIDATION_ERROR ("), "{words}");
    assert!(words.contains("correct the arguments"), "{words}");
    let asked = stage.model.asked();
    let offered = asked[0]["body"]["tools"].as_array().unwrap();
    let names: Vec<&str> =
        offered.iter().map(|tool| tool["function"]["name"].as_str().unwrap()).collect();
    assert!(names.contains(&"fixture__act") && names.contains(&"WRITE_FILE"), "{names:?}");
    assert!(!names.contains(&"FINISH"), "an answer is how a turn finishes: {names:?}");
    drop(gateway);
    stage.scene.verified();
}

#[test]
fn client_calls_end_the_request_and_their_results_are_taken_once() {
    let stage = Stage::new();
    stage.model.says([
        calls(&[
            ("s1", "WRITE_FILE", write_file("a.txt")),
            ("c1", "pick", json!({ "n": 1 })),
            ("c2", "show", json!({})),
        ]),
        json!({ "text": "done" }),
    ]);
    let gateway = stage.gateway();
    let tool = |name: &str| json!({ "name": name, "parameters": { "type": "object" } });
    let asked = json!({ "instructions": "go", "tools": [tool("pick"), tool("show")] });
    let first = ask(&gateway, "k1", &asked).json();
    let expected = json!({
        "kind": "client_tool_continuation",
        "sessionId": first["sessionId"],
        "turnId": first["turnId"],
        "modeDisplayName": "General",
        "toolCalls": [
            { "toolCallId": "c1", "name": "pick", "argumentsJson": "{\"n\":1}" },
            { "toolCallId": "c2", "name": "show", "argumentsJson": "{}" },
        ],
    });
    assert_eq!(first, expected);
    assert!(stage.sandbox("a.txt").exists(), "the server's calls run first");
    assert_eq!(look(&gateway, &first["turnId"]).json()["state"], "client_tools_required");
    let brought = |results: &[(&str, &str)]| {
        let results = results.iter().map(
            |(id, name)| json!({ "toolCallId": id, "name": name, "resultJson": "{\"ok\":true}" }),
        );
        let results: Vec<_> = results.collect();
        json!({
            "sessionId": first["sessionId"],
            "turnId": first["turnId"],
            "toolResults": results,
        })
    };
    let (one, two) = (("c1", "pick"), ("c2", "show"));
    type Row<'a> = (&'a [(&'a str, &'a str)], u16, &'a str, &'a str);
    let rows: [Row<'_>; 5] = [
        (&[two, one], 400, "AGN-036/5/order", "c2"),
        (&[one], 400, "AGN-036/5/count", "c2"),
        (&[one, ("c9", "show")], 400, "AGN-036/5/tool_call_id", "c9"),
        (&[one, ("c2", "pick")], 400, "AGN-036/5/name", "c2"),
        (&[("s1", "WRITE_FILE"), two], 400, "TOOL_RUNS_ON_SERVER", "s1"),
    ];
    for (number, (results, status, code, id)) in rows.into_iter().enumerate() {
        let refused = ask(&gateway, &format!("bad{number}"), &brought(results));
        assert_eq!(refused.status, status, "{}", refused.body);
        let error = &refused.json()["errors"][0];
        assert_eq!((&error["code"], &error["details"]["toolCallId"]), (&json!(code), &json!(id)));
        assert!(error["details"]["name"].is_string() && error["details"]["reason"].is_string());
    }
    let taken = ask(&gateway, "k2", &brought(&[one, two]));
    assert_eq!((taken.status, &taken.json()["primaryOutputText"]), (200, &json!("done")));
    let again = ask(&gateway, "k2", &brought(&[one, two]));
    assert_eq!((again.status, &again.body), (200, &taken.body));
    let second = ask(&gateway, "k3", &brought(&[one, two]));
    assert_eq!((second.status, codes(&second)), (409, vec!["TOOL_RESULTS_NOT_AWAITED".to_owned()]));
    let error = &second.json()["errors"][0]["details"];
    assert_eq!((&error["toolCallId"], &error["name"]), (&json!("c1"), &json!("pick")));
    assert_eq!(ask(&gateway, "k1", &asked).json(), first, "the first request again as it was");
    drop(gateway);
    stage.scene.verified();
}

#[test]
fn requests_that_break_a_rule_are_refused_with_every_violation() {
    let stage = Stage::new();
    let gateway = stage.gateway();
    let nothing = ask(&gateway, "", &json!({}));
    assert_eq!(nothing.status, 400);
    assert_eq!(codes(&nothing), ["AGN-036/3/correlation_id", "AGN-036/3.1/input"]);
    let no_turn = ask(&gateway, "k", &json!({ "instructions": "x", "sessionId": "y" }));
    assert_eq!((no_turn.status, codes(&no_turn)), (400, vec!["AGN-036/3/type".to_owned()]));
    let unknown = "0198b2c4-7a51-7cc0-9f2e-2f6a4a6f8f10";
    let nowhere = json!({ "instructions": "x", "sessionId": unknown, "turnId": unknown });
    let nowhere = ask(&gateway, "k", &nowhere);
    assert_eq!((nowhere.status, codes(&nowhere)), (404, vec!["SESSION_NOT_FOUND".to_owned()]));
    for body in [json!({ "org": "mine" }), json!({ "user": { "id": "root" } }), json!([])] {
        assert_eq!(ask(&gateway, "k", &body).status, 400, "who asks is never in the body: {body}");
    }
    assert_eq!(look(&gateway, &json!(unknown)).status, 404);
    assert_eq!(stage.model.asked().len(), 0);
}

#[test]
fn a_turn_of_another_principal_is_not_there_and_a_key_is_ones_own() {
    let stage = Stage::new();
    stage.model.says([json!({ "text": "one" }), json!({ "text": "two" })]);
    let mut gateway = stage.gateway();
    let first = ask(&gateway, "k1", &hello("a")).json();
    let made = json!({ "name": "other", "role": "agent" }).to_string();
    let other = gateway.send("POST", "/v1/tokens", &gateway.operator, &made).json();
    let path = format!("/v1/agent/turns/{}", first["turnId"].as_str().unwrap());
    assert_eq!(gateway.send("GET", &path, &gateway.operator, "").status, 200);
    gateway.agent = other["token"].as_str().unwrap().to_owned();
    assert_eq!(look(&gateway, &first["turnId"]).status, 404);
    assert_eq!(ask(&gateway, "k2", &after(&first, "b")).status, 404);
    let own = ask(&gateway, "k1", &hello("a")).json();
    assert_eq!(own["primaryOutputText"], "two", "the same key of another is another turn");
    assert_ne!(own["turnId"], first["turnId"]);
    // Each finds its turns again without an id, and only its own.
    let listed = |token: &str, query: &str| {
        let reply = gateway.send("GET", &format!("/v1/agent/turns{query}"), token, "");
        assert_eq!(reply.status, 200, "{}", reply.body);
        let turns = reply.json();
        let document = gateway.send("GET", "/openapi.json", token, "").json();
        check(&document, "Turns", &turns);
        turns["turns"].as_array().unwrap().clone()
    };
    let of_session = format!("?session={}", first["sessionId"].as_str().unwrap());
    let rows = [
        (&gateway.agent, String::new(), vec![&own]),
        (&gateway.agent, of_session.clone(), vec![]),
        (&gateway.agent, "?principal=agent".to_owned(), vec![]),
        (&gateway.operator, String::new(), vec![&own, &first]),
        (&gateway.operator, of_session, vec![&first]),
        (&gateway.operator, "?principal=agent".to_owned(), vec![&first]),
        (&gateway.operator, "?limit=1".to_owned(), vec![&own]),
    ];
    for (token, query, expected) in rows {
        let turns = listed(token, &query);
        let ids: Vec<&Value> = turns.iter().map(|turn| &turn["turnId"]).collect();
        let expected: Vec<&Value> = expected.iter().map(|turn| &turn["turnId"]).collect();
        assert_eq!(ids, expected, "{query}");
    }
    let turn = &listed(&gateway.operator, "?principal=agent")[0];
    assert_eq!((&turn["idempotencyKey"], &turn["instructions"]), (&json!("k1"), &json!("a")));
}

/// Whether a value is as the published document says.
pub(super) fn check(document: &Value, name: &str, value: &Value) {
    let schema = json!({
        "$ref": format!("#/components/schemas/{name}"),
        "components": { "schemas": document["components"]["schemas"] },
    });
    let validator = jsonschema::validator_for(&schema).unwrap();
    let errors: Vec<String> = validator.iter_errors(value).map(|error| error.to_string()).collect();
    assert!(errors.is_empty(), "{name}: {errors:?}\n{value}");
}

#[test]
fn requests_and_answers_are_as_the_openapi_document_says() {
    let stage = Stage::new();
    stage.model.says([
        calls(&[("c1", "pick", json!({}))]),
        calls(&[("c2", "WRITE_FILE", write_file("a.txt"))]),
        json!({ "text": "done" }),
        calls(&[("c3", "fixture__act", json!({ "value": 7 }))]),
    ]);
    let gateway = stage.gateway();
    let document = gateway.send("GET", "/openapi.json", &gateway.agent, "").json();
    let tool = json!({ "name": "pick", "parameters": { "type": "object" } });
    let first = json!({ "instructions": "go", "tools": [tool] });
    check(&document, "TurnRequest", &first);
    let calls = ask(&gateway, "k1", &first).json();
    check(&document, "TurnResponse", &calls);
    check(&document, "Turn", &look(&gateway, &calls["turnId"]).json());
    let result = json!({ "toolCallId": "c1", "name": "pick", "resultJson": "1" });
    let brought = json!({
        "sessionId": calls["sessionId"], "turnId": calls["turnId"], "toolResults": [result],
    });
    check(&document, "TurnRequest", &brought);
    let last = ask(&gateway, "k2", &brought).json();
    check(&document, "TurnResponse", &last);
    let accepted = ask(&gateway, "k3", &hello("act"));
    assert_eq!(accepted.status, 202);
    check(&document, "TurnAccepted", &accepted.json());
    check(&document, "Turn", &look(&gateway, &accepted.json()["turnId"]).json());
    check(&document, "InvokeResult", &ask(&gateway, "", &json!({})).json());
}

#[test]
fn a_gateway_without_a_model_says_so() {
    let scene = crate::scene::Scene::new("honours_key = true");
    let gateway = crate::http_client::Gateway::start(&scene.place);
    let reply = ask(&gateway, "k1", &hello("a"));
    assert_eq!((reply.status, codes(&reply)), (501, vec!["NO_AGENT".to_owned()]));
}

#[test]
fn whatever_goes_wrong_at_the_agents_routes_has_one_form() {
    let stage = Stage::new();
    let mut gateway = stage.gateway();
    let document = gateway.send("GET", "/openapi.json", &gateway.agent, "").json();
    let unknown = json!("0198b2c4-7a51-7cc0-9f2e-2f6a4a6f8f10");
    let cancelled = "/v1/agent/turns/0198b2c4-7a51-7cc0-9f2e-2f6a4a6f8f10/cancel";
    let rows = [
        (400, "MALFORMED", ask(&gateway, "k", &json!([]))),
        (400, "MALFORMED", ask_with(&gateway, "k", &[("prefer", "wait=x")], &hello("a"))),
        (404, "NOT_FOUND", look(&gateway, &unknown)),
        (404, "NOT_FOUND", gateway.send("POST", cancelled, &gateway.agent, "")),
        (405, "METHOD_NOT_ALLOWED", gateway.send("PUT", "/v1/agent/turns", &gateway.agent, "")),
        (400, "AGN-036/3.1/input", ask(&gateway, "k", &json!({}))),
    ];
    for (status, code, reply) in rows {
        assert_eq!((reply.status, codes(&reply)), (status, vec![code.to_owned()]));
        check(&document, "InvokeResult", &reply.json());
        let length = reply.headers["content-length"].parse::<usize>().unwrap();
        assert_eq!(
            (length, &*reply.headers["content-type"]),
            (reply.body.len(), "application/json")
        );
    }
    gateway.agent = "nobody".into();
    let stranger = ask(&gateway, "k", &hello("a"));
    assert_eq!((stranger.status, codes(&stranger)), (401, vec!["UNAUTHENTICATED".to_owned()]));
    assert!(stranger.headers.contains_key("www-authenticate"));
}

/// The calls for the caller that a first request comes to.
fn asked_to_pick(stage: &Stage, gateway: &Gateway) -> Value {
    stage.model.says([calls(&[("c1", "pick", json!({}))])]);
    let tool = json!({ "name": "pick", "parameters": { "type": "object" } });
    ask(gateway, "k1", &json!({ "instructions": "go", "tools": [tool] })).json()
}

#[test]
fn results_beside_a_bad_declaration_are_refused_and_not_eaten() {
    let stage = Stage::new();
    let gateway = stage.gateway();
    let tool = json!({ "name": "READ_FILE", "parameters": { "type": "object" } });
    let bad = json!({ "instructions": "go", "tools": [tool] });
    assert_eq!(codes(&ask(&gateway, "k1", &bad)), ["REQUEST_INVALID"]);
    let first = asked_to_pick(&stage, &gateway);
    let result = json!({ "toolCallId": "c1", "name": "pick", "resultJson": "1" });
    let mut brought = after(&first, "");
    brought["toolResults"] = json!([result]);
    brought["tools"] = json!([tool]);
    let refused = ask(&gateway, "k2", &brought);
    assert_eq!((refused.status, codes(&refused)), (400, vec!["REQUEST_INVALID".to_owned()]));
    assert_eq!(look(&gateway, &first["turnId"]).json()["state"], "client_tools_required");
    brought["tools"] = json!([]);
    stage.model.says([json!({ "text": "done" })]);
    assert_eq!(ask(&gateway, "k2", &brought).json()["primaryOutputText"], "done");
    drop(gateway);
    stage.scene.verified();
}

#[test]
fn a_turn_is_cancelled_by_its_owner_alone_and_the_session_goes_on() {
    let stage = Stage::new();
    let gateway = stage.gateway();
    let document = gateway.send("GET", "/openapi.json", &gateway.agent, "").json();
    let first = asked_to_pick(&stage, &gateway);
    let path = format!("/v1/agent/turns/{}/cancel", first["turnId"].as_str().unwrap());
    let made = json!({ "name": "other", "role": "agent" }).to_string();
    let other = gateway.send("POST", "/v1/tokens", &gateway.operator, &made).json();
    for token in [other["token"].as_str().unwrap(), &gateway.operator] {
        assert_eq!(gateway.send("POST", &path, token, "").status, 404, "it is another's");
    }
    assert_eq!(look(&gateway, &first["turnId"]).json()["state"], "client_tools_required");
    for _ in 0..2 {
        let cancelled = gateway.send("POST", &path, &gateway.agent, "");
        assert_eq!(cancelled.status, 200, "{}", cancelled.body);
        let turn = cancelled.json();
        check(&document, "Turn", &turn);
        assert_eq!(
            (&turn["state"], &turn["errors"][0]["code"]),
            (&json!("failed"), &json!("TURN_CANCELLED"))
        );
    }
    let mut late = after(&first, "");
    late["toolResults"] = json!([{ "toolCallId": "c1", "name": "pick", "resultJson": "1" }]);
    assert_eq!(codes(&ask(&gateway, "k2", &late)), ["TOOL_RESULTS_NOT_AWAITED"]);
    stage.model.says([json!({ "text": "go on" })]);
    let next = ask(&gateway, "k3", &after(&first, "never mind")).json();
    assert_eq!(
        (&next["primaryOutputText"], &next["sessionId"]),
        (&json!("go on"), &first["sessionId"])
    );
    drop(gateway);
    stage.scene.verified();
}

#[test]
fn cancelling_ends_what_works_on_the_turn_and_those_who_wait_for_it() {
    let stage = Stage::new();
    stage.model.says([json!({ "hang": true }), json!({ "text": "better" })]);
    let gateway = stage.gateway();
    let headers = [("prefer", "wait=0")];
    let begun = ask_with(&gateway, "k1", &headers, &hello("think")).json();
    assert_eq!(begun["code"], "IN_PROGRESS");
    // The turn is durable before the model is asked, and the first of the model's answers is for this turn.
    until("the model is asked", || stage.model.has_been_asked());
    let path = format!("/v1/agent/turns/{}/cancel", begun["turnId"].as_str().unwrap());
    let waited = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| ask(&gateway, "k1", &hello("think")));
        assert_eq!(gateway.send("POST", &path, &gateway.agent, "").json()["state"], "failed");
        waiting.join().unwrap()
    });
    assert_eq!((waited.status, codes(&waited)), (409, vec!["TURN_CANCELLED".to_owned()]));
    let session = look(&gateway, &begun["turnId"]).json();
    assert_eq!(ask(&gateway, "k2", &after(&session, "on")).json()["primaryOutputText"], "better");
}
