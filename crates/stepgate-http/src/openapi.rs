//! The OpenAPI 3.1 document: paths from the table of routes, schemas from `openapi/components.json`. A test compares
//! the schemas with real answers.

use serde_json::{Map, Value, json};

use super::routes::{Access, Route};
use super::turns;

const COMPONENTS: &str = include_str!("openapi/components.json");

/// The document.
pub(super) fn document(routes: &[Route]) -> Value {
    let mut paths = Map::new();
    for route in routes {
        let operations = paths.entry(route.path).or_insert_with(|| json!({}));
        if let Value::Object(operations) = operations {
            operations.insert(route.method.to_lowercase(), operation(route));
        }
    }
    // Never fails: the file is compiled in, and a test parses it.
    let schemas: Value = serde_json::from_str(COMPONENTS).unwrap_or_default();
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Stepgate",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "The gate that every action of an AI agent passes.",
        },
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } },
        },
    })
}

fn operation(route: &Route) -> Value {
    let doc = &route.doc;
    let mut operation = json!({
        "summary": doc.summary,
        "description": who(route.access),
        "security": security(route.access),
        "responses": responses(route),
    });
    let mut parameters: Vec<Value> = Vec::new();
    if route.path.contains("{id}") {
        parameters.push(parameter("path", "id", "its id", true));
    }
    parameters.extend(doc.query.iter().map(|(name, text)| parameter("query", name, text, false)));
    match (route.method, route.path) {
        ("POST", "/v1/steps") => parameters.extend(step_headers()),
        ("POST", "/v1/agent/turns") => parameters.extend(turn_headers()),
        _ => {}
    }
    if let Value::Object(members) = &mut operation {
        if !parameters.is_empty() {
            members.insert("parameters".into(), parameters.into());
        }
        if let Some(schema) = doc.body {
            let body = json!({ "content": content(schema), "required": schema != "Note" });
            members.insert("requestBody".into(), body);
        }
    }
    operation
}

fn responses(route: &Route) -> Value {
    let mut responses = Map::new();
    for (status, schema) in route.doc.answers {
        let mut response = json!({ "description": route.doc.summary });
        if let (Value::Object(response), false) = (&mut response, schema.is_empty()) {
            response.insert("content".into(), content(schema));
        }
        responses.insert(status.to_string(), response);
    }
    let form = if turns::is_agent_path(route.path) { "InvokeResult" } else { "Error" };
    let error = json!({ "description": "No outcome: see the code", "content": content(form) });
    responses.insert("default".into(), error);
    responses.into()
}

fn content(schema: &str) -> Value {
    let reference = format!("#/components/schemas/{schema}");
    json!({ "application/json": { "schema": { "$ref": reference } } })
}

fn parameter(place: &str, name: &str, text: &str, required: bool) -> Value {
    json!({
        "in": place,
        "name": name,
        "description": text,
        "required": required,
        "schema": { "type": "string" },
    })
}

fn step_headers() -> [Value; 2] {
    [
        parameter("header", "Stepgate-Session", "the session that the step joins", false),
        parameter("header", "Prefer", "`wait=SECONDS`: wait for the outcome", false),
    ]
}

fn turn_headers() -> [Value; 3] {
    [
        parameter("header", "Idempotency-Key", "the request's name: again, it is the same", true),
        parameter("header", "Prefer", "`wait=SECONDS`: wait for so long and no longer", false),
        parameter("header", "Accept", "`text/event-stream`: hear the turn as it goes on", false),
    ]
}

fn who(access: Access) -> &'static str {
    match access {
        Access::Public => "For everybody.",
        Access::Reader => "For every token; an agent sees its own objects alone.",
        Access::Proposer => "For agents and operators.",
        Access::Operator => "For operators.",
        Access::Watcher => "For operators and auditors.",
    }
}

fn security(access: Access) -> Value {
    match access {
        Access::Public => json!([]),
        Access::Reader | Access::Proposer | Access::Operator | Access::Watcher => {
            json!([{ "token": [] }])
        }
    }
}
