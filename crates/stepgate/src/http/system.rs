//! How the gateway itself does, and what it offers.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::admit::{Reader, Watcher};
use super::metrics::Present;
use super::{App, Problem, openapi};

/// The process is there.
pub(super) async fn healthy() -> Json<Value> {
    Json(json!({ "status": "ok" }))
}

/// The store answers, and the process is not on its way out.
pub(super) async fn ready(State(app): State<Arc<App>>) -> Result<Json<Value>, Problem> {
    if app.service.is_draining() {
        return Err(Problem::unavailable());
    }
    app.service.gate.store.run_ids(None, 1).await?;
    Ok(Json(json!({ "status": "ready" })))
}

pub(super) async fn metrics(State(app): State<Arc<App>>, _: Watcher) -> Result<Response, Problem> {
    let store = &app.service.gate.store;
    let present = Present {
        approvals_open: store.open_approvals(None).await?,
        steps_running: app.service.running(),
        runs_unreached: store.unreached().await?.iter().map(|waiting| waiting.runs).sum(),
    };
    let text = app.metrics.text(&present).map_err(anyhow::Error::from)?;
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    Ok(([(header::CONTENT_TYPE, kind)], text).into_response())
}

pub(super) async fn openapi(_: Reader) -> Json<Value> {
    Json(openapi::document())
}
