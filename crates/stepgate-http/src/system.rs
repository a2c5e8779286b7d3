//! Health, readiness, what needs a person, metrics, and the OpenAPI document.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use stepgate_gateway::attention::Attention;
use stepgate_gateway::disk::Disk;

use super::metrics::{Format, Metrics};
use super::tools::OffObject;
use super::{App, Caller, Problem, Reader, Watcher, openapi, routes};

#[derive(Serialize, JsonSchema)]
pub(super) struct Health {
    /// `ok`
    status: &'static str,
}

/// Liveness: the process answers.
pub(super) async fn healthy() -> Json<Health> {
    Json(Health { status: "ok" })
}

#[derive(Serialize, JsonSchema)]
pub(super) struct Ready {
    /// `ready`
    status: &'static str,
    /// `low` where agents are refused because the disk has less free space than `store.free_bytes_min`; absent otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    storage: Option<&'static str>,
    /// How many tool servers are off; absent where everything is on.
    #[serde(skip_serializing_if = "Option::is_none")]
    servers_off: Option<usize>,
    /// How many tools are off; absent where everything is on.
    #[serde(skip_serializing_if = "Option::is_none")]
    tools_off: Option<usize>,
    /// What is off, and why. Only for callers that may see everything.
    #[serde(skip_serializing_if = "Option::is_none")]
    off: Option<Vec<OffObject>>,
}

/// Readiness: the store can be read and written, and the process is not draining. A tool server that is off does not
/// change that, and neither does a disk on which only operators may still write: they are served, and the answer says so.
/// Every caller sees how many parts are off; callers that may see everything also see which.
pub(super) async fn ready(
    State(app): State<Arc<App>>,
    caller: Option<Extension<Caller>>,
) -> Result<Json<Ready>, Problem> {
    if app.service.is_draining() {
        return Err(Problem::unavailable());
    }
    app.service.try_store().await?;
    let off = app.service.control.as_ref().map(|control| control.off());
    let off = off.unwrap_or_default();
    let servers = off.iter().filter(|off| off.tool.is_none()).count();
    let is_off = !off.is_empty();
    let sees_all = caller.is_some_and(|Extension(caller)| caller.sees().is_none());
    Ok(Json(Ready {
        status: "ready",
        storage: app.disk().is_some_and(Disk::is_low).then_some("low"),
        servers_off: is_off.then_some(servers),
        tools_off: is_off.then_some(off.len() - servers),
        off: (is_off && sees_all).then(|| off.iter().map(OffObject::from).collect()),
    }))
}

pub(super) async fn metrics(
    Watcher(app, _): Watcher,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let format = Format::asked(&headers);
    let text = Metrics::text(app.figures().await?, format).map_err(anyhow::Error::from)?;
    Ok(([(header::CONTENT_TYPE, format.content_type())], text).into_response())
}

/// Everything that needs a person, the oldest first.
pub(super) async fn attention(Watcher(app, _): Watcher) -> Result<Json<Attention>, Problem> {
    Ok(Json(app.service.attention().await?))
}

pub(super) async fn openapi(Reader(app, _): Reader) -> Json<Value> {
    Json(openapi::document(&routes::all(&app.mounted)))
}
