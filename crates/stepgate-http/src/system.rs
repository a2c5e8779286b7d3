//! Health, readiness, what needs a person, metrics, and the OpenAPI document.

use std::sync::Arc;

use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use serde_json::{Value, json};
use stepgate_gateway::attention::Attention;

use super::admit::{Caller, Reader, Watcher};
use super::metrics::Present;
use super::tools::OffObject;
use super::{App, Problem, openapi, routes};

/// Liveness: the process answers.
pub(super) async fn healthy() -> Json<Value> {
    Json(json!({ "status": "ok" }))
}

/// Readiness: the store can be read and written, and the process is not draining. A tool server that is off does not
/// change that. Every caller sees how many parts are off; callers that may see everything also see which.
pub(super) async fn ready(
    State(app): State<Arc<App>>,
    caller: Option<Extension<Caller>>,
) -> Result<Json<Value>, Problem> {
    if app.service.is_draining() {
        return Err(Problem::unavailable());
    }
    app.service.try_store().await?;
    let off = app.service.control.as_ref().map(|control| control.off());
    let off = off.unwrap_or_default();
    let mut ready = json!({ "status": "ready" });
    if let Value::Object(members) = &mut ready
        && !off.is_empty()
    {
        let servers = off.iter().filter(|off| off.tool.is_none()).count();
        members.insert("servers_off".into(), servers.into());
        members.insert("tools_off".into(), (off.len() - servers).into());
        if caller.is_some_and(|Extension(caller)| caller.sees().is_none()) {
            let named: Vec<OffObject> = off.iter().map(OffObject::from).collect();
            members.insert("off".into(), json!(named));
        }
    }
    Ok(Json(ready))
}

pub(super) async fn metrics(State(app): State<Arc<App>>, _: Watcher) -> Result<Response, Problem> {
    let attention = app.service.attention_counts().await?;
    let present = Present { steps_running: app.service.running(), attention };
    let text = app.metrics.text(&present).map_err(anyhow::Error::from)?;
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    Ok(([(header::CONTENT_TYPE, kind)], text).into_response())
}

/// Everything that needs a person, the oldest first.
pub(super) async fn attention(
    State(app): State<Arc<App>>,
    _: Watcher,
) -> Result<Json<Attention>, Problem> {
    Ok(Json(app.service.attention().await?))
}

pub(super) async fn openapi(State(app): State<Arc<App>>, _: Reader) -> Json<Value> {
    Json(openapi::document(&routes::all(&app.mounted)))
}
