//! The OpenAPI 3.1 document. Paths come from the table of routes, and schemas from the types that the handlers read
//! and write.

mod plain;
mod schemas;

use schemars::Schema;
use serde_json::{Map, Value, json};

use super::problem::ProblemObject;
use super::routes::{Access, Content, Header, Route};
use super::turns;
pub(super) use schemas::{SchemaOf, Schemas, inline, reference};
use stepgate_agent::invoke::InvokeResult;

pub(super) fn document(routes: &[Route]) -> Value {
    let mut schemas = Schemas::new();
    let mut paths = Map::new();
    for route in routes {
        let operations = paths.entry(route.path).or_insert_with(|| json!({}));
        if let Value::Object(operations) = operations {
            operations.insert(route.method.to_lowercase(), operation(route, &mut schemas));
        }
    }
    let mut document = json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Stepgate",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "The gate that every action of an AI agent passes.",
        },
        "paths": paths,
        "components": {
            "schemas": schemas.finish(),
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } },
        },
    });
    plain::simplify(&mut document);
    document
}

fn operation(route: &Route, schemas: &mut Schemas) -> Value {
    let mut operation = json!({
        "operationId": route.name,
        "summary": route.summary,
        "description": route.access.words(),
        "tags": [tag(route.path)],
        "security": if route.access == Access::Public { json!([]) } else { json!([{ "token": [] }]) },
        "responses": responses(route, schemas),
    });
    if let Value::Object(members) = &mut operation {
        let parameters = parameters(route, schemas);
        if !parameters.is_empty() {
            members.insert("parameters".into(), parameters.into());
        }
        if let Some(body) = route.body {
            let content = json!({ "application/json": { "schema": schemas.read(body.schema) } });
            let body = json!({ "content": content, "required": body.is_required });
            members.insert("requestBody".into(), body);
        }
    }
    operation
}

/// Groups the operations: `runs` for `/v1/runs/{id}`.
fn tag(path: &str) -> &str {
    match path.strip_prefix("/v1/") {
        Some(rest) => rest.split('/').next().unwrap_or(rest),
        None if path.starts_with("/mcp") => "mcp",
        None => "system",
    }
}

fn parameters(route: &Route, schemas: &mut Schemas) -> Vec<Value> {
    let id = route.id.map(|id| {
        let schema = schemas.read(id);
        json!({ "in": "path", "name": "id", "required": true, "schema": schema })
    });
    let query = route.query.map(|query| query_parameters(&schemas.read(query)));
    let headers = route.headers.iter().map(header);
    id.into_iter().chain(query.into_iter().flatten()).chain(headers).collect()
}

/// One parameter for each member of the type that reads the query.
fn query_parameters(schema: &Schema) -> Vec<Value> {
    let members = schema.get("properties").and_then(Value::as_object);
    let parameter = |(name, schema): (&String, &Value)| {
        let mut schema = schema.clone();
        let description = schema.as_object_mut().and_then(|schema| schema.remove("description"));
        // A parameter that is not given is absent, never null.
        plain::remove_null(&mut schema);
        json!({
            "in": "query",
            "name": name,
            "description": description.unwrap_or_else(|| json!("")),
            "required": false,
            "schema": schema,
        })
    };
    members.into_iter().flatten().map(parameter).collect()
}

fn header(header: &Header) -> Value {
    json!({
        "in": "header",
        "name": header.name,
        "description": header.description,
        "required": header.is_required,
        "schema": { "type": "string" },
    })
}

fn responses(route: &Route, schemas: &mut Schemas) -> Value {
    let mut responses = Map::new();
    for (status, content) in &route.answers {
        let mut response = json!({ "description": route.summary });
        if let (Value::Object(response), Some(content)) = (&mut response, body(*content, schemas)) {
            response.insert("content".into(), content);
        }
        responses.insert(status.to_string(), response);
    }
    let (kind, schema) = match turns::is_agent_path(route.path) {
        true => ("application/json", schemas.written(reference::<InvokeResult>)),
        false => ("application/problem+json", schemas.written(reference::<ProblemObject>)),
    };
    let error = json!({
        "description": "No regular answer: see the code",
        "content": { kind: { "schema": schema } },
    });
    responses.insert("default".into(), error);
    responses.into()
}

fn body(content: Content, schemas: &mut Schemas) -> Option<Value> {
    match content {
        Content::Nothing => None,
        Content::Json(schema) => {
            Some(json!({ "application/json": { "schema": schemas.written(schema) } }))
        }
        Content::Text(kind) => Some(json!({ kind: { "schema": { "type": "string" } } })),
    }
}
