use std::collections::BTreeSet;

use super::*;
use crate::{openapi, routes};

/// A validator for a schema of the document.
fn schema(name: &str) -> jsonschema::Validator {
    let document = openapi::document(&routes::all(&mounted()));
    let schemas = &document["components"]["schemas"];
    assert!(schemas.get(name).is_some(), "there is no schema {name}");
    let whole = json!({
        "$ref": format!("#/components/schemas/{name}"),
        "components": { "schemas": schemas },
    });
    jsonschema::validator_for(&whole).unwrap()
}

#[track_caller]
fn check(name: &str, value: &Value) {
    let errors: Vec<String> =
        schema(name).iter_errors(value).map(|error| error.to_string()).collect();
    assert!(errors.is_empty(), "{name}: {errors:?}\n{value}");
}

#[test]
fn the_document_has_the_routes_of_the_router() {
    let document = openapi::document(&routes::all(&mounted()));
    let (mut documented, mut names) = (BTreeSet::new(), BTreeSet::new());
    for (path, operations) in document["paths"].as_object().unwrap() {
        for (method, operation) in operations.as_object().unwrap() {
            documented.insert((method.to_uppercase(), path.clone()));
            assert!(operation["responses"]["default"].is_object());
            let name = operation["operationId"].as_str().unwrap();
            assert!(names.insert(name.to_owned()), "two operations have the name {name}");
            let id = operation["parameters"].as_array().into_iter().flatten();
            let id = id.filter(|it| it["in"] == "path").count();
            assert_eq!(id, path.matches("{id}").count(), "{path}");
        }
    }
    let routed: BTreeSet<_> = routes::all(&mounted())
        .iter()
        .map(|route| (route.method.to_owned(), route.path.to_owned()))
        .collect();
    assert_eq!(documented, routed);
    for route in routes::all(&mounted()) {
        assert_eq!(routes::is_public(route.path), route.access == routes::Access::Public);
    }
}

#[test]
fn the_pages_table_has_the_routes_of_the_router() {
    let page = include_str!("../../../../docs/http.md");
    let named = page.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` |"));
    let named: BTreeSet<_> = named
        .filter_map(|(route, _)| route.split_once(' '))
        .filter(|(_, path)| path.starts_with('/'))
        .collect();
    let routed: BTreeSet<_> =
        routes::all(&mounted()).iter().map(|route| (route.method, route.path)).collect();
    assert_eq!(named, routed);
}

#[tokio::test]
async fn every_route_of_the_document_is_there() {
    let house = House::new().await;
    for route in routes::all(&mounted()) {
        let path = route.path.replace("{id}", &fresh_id());
        let request = house.request(route.method, &path, &house.olga, String::new());
        let response = house.router.clone().oneshot(request).await.unwrap();
        assert_ne!(response.status(), 405, "{path}");
        if response.status() == 404 {
            assert!(route.path.contains("{id}"), "{path}");
        }
    }
}

#[tokio::test]
async fn real_answers_are_as_the_document_says() {
    let house = House::new().await;
    let (approval, run) = house.ask(&house.alice, "d").await;
    let (other, _) = house.ask(&house.alice, "e").await;
    let done = house.propose(&house.alice, &proposal("THINK", json!({}))).await;
    check("StepResponse", &done.json());
    check("StepResponse", &house.propose(&house.alice, "{").await.json());
    let session = done.header("stepgate-session").unwrap();
    let evaluated = house
        .post(
            &house.olga,
            "/v1/policy/evaluate",
            proposal("DELETE_FILE", json!({ "path": "/sandbox/a.txt" })),
        )
        .await;
    assert_eq!(evaluated.json()["verdict"], "require_approval");
    check("Evaluation", &evaluated.json());
    let bad = house.post(&house.olga, "/v1/policy/evaluate", "{").await;
    assert_eq!(bad.status, 422);
    check("Problem", &bad.json());
    let token = json!({ "name": "ci", "role": "agent" });
    check("CreateToken", &token);
    check("Token", &house.post(&house.olga, "/v1/tokens", token).await.json());
    for (path, name) in [
        ("/v1/runs".to_owned(), "Runs"),
        (format!("/v1/runs/{run}"), "RunDetail"),
        (format!("/v1/runs/{run}/export"), "Bundle"),
        ("/v1/approvals".to_owned(), "Approvals"),
        ("/v1/attention".to_owned(), "Attention"),
        ("/v1/sessions".to_owned(), "Sessions"),
        ("/v1/agent/turns".to_owned(), "Turns"),
        (format!("/v1/approvals/{approval}"), "Approval"),
        (format!("/v1/sessions/{session}"), "Session"),
        ("/v1/tools".to_owned(), "Tools"),
        ("/v1/tokens".to_owned(), "Tokens"),
        ("/healthz".to_owned(), "Health"),
        ("/readyz".to_owned(), "Ready"),
        ("/nothing".to_owned(), "Problem"),
    ] {
        check(name, &house.get(&house.olga, &path).await.json());
    }
    let path = format!("/v1/approvals/{approval}/approve");
    check("Approval", &house.post(&house.olga, &path, "").await.json());
    let batch = json!({ "decision": "deny", "ids": [other, fresh_id()], "note": "no" });
    check("Batch", &batch);
    check("BatchResults", &house.post(&house.olga, "/v1/approvals/decide", batch).await.json());
    let whole = house.until(&run, "ok").await;
    check("RunDetail", &whole);
    for event in whole["events"].as_array().unwrap() {
        check("Event", event);
    }
    check("RunDetail", &house.get(&house.alice, &format!("/v1/runs/{run}")).await.json());
    let resolved = house
        .post(&house.olga, &format!("/v1/runs/{run}/resolve"), json!({ "as": "failed" }))
        .await;
    assert_eq!(resolved.status, 409);
    check("Problem", &resolved.json());
}

#[tokio::test]
async fn what_policy_would_say_leaves_no_run() {
    let house = House::new().await;
    let rows = [
        (proposal("THINK", json!({})), "permit"),
        (proposal("READ_FILE", json!({ "path": "/sandbox/forbidden.txt" })), "deny"),
        (proposal("READ_FILE", json!({ "path": "/sandbox/a.exe" })), "deny"),
        (proposal("CREATE_DIRECTORY", json!({ "path": "/sandbox/a" })), "require_approval"),
    ];
    for (body, verdict) in rows {
        let reply = house.post(&house.olga, "/v1/policy/evaluate?principal=alice", body).await;
        assert_eq!(reply.json()["verdict"], verdict, "{}", reply.body);
    }
    assert_eq!(house.get(&house.olga, "/v1/runs").await.json()["runs"], json!([]));
}

#[test]
fn the_schemas_name_each_other_and_no_two_types_have_one_name() {
    let document = openapi::document(&routes::all(&mounted()));
    let schemas = document["components"]["schemas"].as_object().unwrap();
    let text = document.to_string();
    let named: BTreeSet<&str> = text
        .split("#/components/schemas/")
        .skip(1)
        .map(|rest| rest.split('"').next().unwrap())
        .collect();
    let there: BTreeSet<&str> = schemas.keys().map(String::as_str).collect();
    assert_eq!(named, there);
    // Of two types with one name, the second would get a number.
    let numbered = |name: &&str| name.ends_with(|last: char| last.is_ascii_digit());
    assert_eq!(there.iter().copied().filter(numbered).collect::<Vec<_>>(), Vec::<&str>::new());
}

#[tokio::test]
async fn the_schema_of_a_proposal_takes_what_the_gate_takes() {
    let house = House::new().await;
    let schema = schema("Proposal");
    let path = json!({ "path": "/sandbox/a.txt" });
    let rows = [
        ("THINK", json!({}), true),
        ("THINK", json!({ "x": 1 }), false),
        ("FINISH", json!({ "response": "x" }), true),
        ("FINISH", json!({}), false),
        ("READ_FILE", path.clone(), true),
        ("READ_FILE", json!({ "path": 1 }), false),
        ("LIST_FILES", json!({ "path": "/sandbox/" }), true),
        ("WRITE_FILE", json!({ "path": "/sandbox/a.txt", "content": "x" }), true),
        ("WRITE_FILE", json!({ "path": "/sandbox/a.txt", "content": "" }), false),
        ("WRITE_FILE", path.clone(), false),
        ("CREATE_DIRECTORY", json!({ "path": "/sandbox/d" }), true),
        ("DELETE_FILE", path.clone(), true),
        (
            "RENAME_FILE",
            json!({ "source": "/sandbox/a.txt", "destination": "/sandbox/b.txt" }),
            true,
        ),
        ("RENAME_FILE", path, false),
    ];
    for (action, args, is_valid) in rows {
        let body = proposal(action, args);
        let answer = house.propose(&house.alice, &body).await;
        assert_eq!(answer.json()["outcome"] != "VALIDATION_ERROR", is_valid, "{body}");
        assert_eq!(schema.is_valid(&serde_json::from_str(&body).unwrap()), is_valid, "{body}");
    }
    assert!(schema.is_valid(&serde_json::from_str(&proposal("home.light", json!({}))).unwrap()));
    let tools = house.get(&house.alice, "/v1/tools").await.json();
    for tool in tools["tools"].as_array().unwrap() {
        assert_eq!(tool["input_schema"]["type"], "object", "{tool}");
    }
}

#[tokio::test]
async fn a_list_has_no_json_in_strings_and_no_number_is_changed() {
    let house = House::new().await;
    house.propose(&house.alice, &proposal("FINISH", json!({ "response": "1e2" }))).await;
    house.propose(&house.alice, &proposal("READ_FILE", json!({ "path": "/sandbox/no.txt" }))).await;
    let list = house.get(&house.olga, "/v1/runs").await.json();
    let [failed, finished] = list["runs"].as_array().unwrap().as_slice() else { panic!("{list}") };
    assert_eq!(failed["input"], json!({ "path": "/sandbox/no.txt" }));
    assert_eq!(failed["error"]["error_code"], "EXECUTION_ERROR");
    assert_eq!(finished["output"], json!({ "final_response": "1e2" }));
}
