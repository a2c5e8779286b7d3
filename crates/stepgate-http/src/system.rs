//! Health, readiness, metrics, and the OpenAPI document.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use serde_json::{Value, json};
use stepgate_core::approval::ApprovalStatus;
use stepgate_core::attention::{self, Kind, Need};
use stepgate_core::ids::RunId;
use stepgate_core::ports::{ApprovalQuery, Store, StoreError};

use super::admit::{Caller, Reader, Watcher};
use super::metrics::Present;
use super::tools::OffObject;
use super::{App, Problem, openapi, routes};

/// Approvals per page.
const PAGE: usize = 1000;

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
    let store = &app.service.gate.store;
    let needs = attention::of(&app.service.gate).await?;
    let present = Present {
        approvals_open: approvals_open(&**store, &needs).await?,
        steps_running: app.service.running(),
        runs_unreached: store.unreached().await?.iter().map(|waiting| waiting.runs).sum(),
        needs,
    };
    let text = app.metrics.text(&present).map_err(anyhow::Error::from)?;
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    Ok(([(header::CONTENT_TYPE, kind)], text).into_response())
}

/// How many approvals a person can decide on. Those of runs that do not verify stay open, and are not counted.
async fn approvals_open(store: &dyn Store, needs: &[Need]) -> Result<u64, StoreError> {
    let open = store.open_approvals(None).await?;
    let quarantined = needs.iter().filter(|need| need.kind == Kind::Quarantined);
    let quarantined: BTreeSet<RunId> = quarantined.map(|need| need.run_id).collect();
    if quarantined.is_empty() {
        return Ok(open);
    }
    let status = Some(ApprovalStatus::Pending);
    let mut query = ApprovalQuery { status, limit: PAGE, ..ApprovalQuery::default() };
    let mut decidable = open;
    loop {
        let page = store.approvals(query.clone()).await?;
        let Some(last) = page.last() else { return Ok(decidable) };
        query.before = Some(last.approval_id);
        for _ in page.iter().filter(|it| quarantined.contains(&it.tool_run_id)) {
            decidable = decidable.saturating_sub(1);
        }
    }
}

pub(super) async fn openapi(State(app): State<Arc<App>>, _: Reader) -> Json<Value> {
    Json(openapi::document(&routes::all(&app.mounted)))
}
