//! `/runs/{id}`: one run as a timeline, the decision, and its journal as a chain whose digests the browser recomputes.

mod view;

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};
use serde::{Deserialize, Serialize};
use stepgate_core::attention;
use stepgate_core::bundle::Bundle;
use stepgate_core::digest::Digest;
use stepgate_core::gate::Fault;
use stepgate_core::ids::RunId;
use stepgate_core::journal::Entry;
use stepgate_core::ports::{Dossier, StoreError};
use stepgate_core::step::Settlement;

use super::trouble::Trouble;
use super::visitor::Visitor;
use super::{form, html};
use crate::routes::Id;
use crate::{App, Problem};
use view::RunPage;

pub(super) async fn show(
    State(app): State<Arc<App>>,
    visitor: Visitor,
    id: Result<Id<RunId>, Problem>,
) -> Result<Response, Trouble> {
    let dossier = dossier(&app, id).await?;
    let gate = &app.service.gate;
    let needs = attention::of(gate).await?;
    let run_id = Some(dossier.run.arrival.run_id);
    let need = needs.iter().find(|need| need.subject.run_id() == run_id);
    Ok(html(StatusCode::OK, &RunPage::of(&dossier, need, &visitor, gate.world.now())?))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SettleForm {
    csrf: String,
    settlement: Settled,
}

/// What a person found out about a call in doubt.
#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Settled {
    Succeeded,
    Failed,
    Redispatch,
}

/// Settles a call in doubt, as `POST /v1/runs/{id}/resolve` does.
pub(super) async fn settle(
    State(app): State<Arc<App>>,
    visitor: Visitor,
    id: Result<Id<RunId>, Problem>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Trouble> {
    let SettleForm { csrf, settlement } = form::read(&app, &headers, body).await?;
    visitor.may_change(&csrf)?;
    let Ok(Id(run_id)) = id else { return Err(Trouble::no_such("run")) };
    let settlement = match settlement {
        Settled::Succeeded => Settlement::Succeeded(None),
        Settled::Failed => Settlement::Failed,
        Settled::Redispatch => Settlement::Redispatch,
    };
    let answer = app.service.resolve(run_id, settlement, visitor.principal_id).await?;
    app.metrics.step(answer.word());
    Ok(Redirect::to(&format!("/runs/{run_id}")).into_response())
}

/// The texts that the digests of a run cover, for the browser.
#[derive(Serialize)]
pub(super) struct Chain {
    entries: Vec<ChainEntry>,
    record: Option<ChainRecord>,
}

#[derive(Serialize)]
struct ChainEntry {
    entry: Entry,
    /// The canonical text of the artifact.
    artifact: String,
}

#[derive(Serialize)]
struct ChainRecord {
    text: String,
    digest: Digest,
}

pub(super) async fn chain(
    State(app): State<Arc<App>>,
    _: Visitor,
    id: Result<Id<RunId>, Problem>,
) -> Result<Json<Chain>, Trouble> {
    let Dossier { entries, record, .. } = dossier(&app, id).await?;
    let entries = entries
        .into_iter()
        .map(|appended| ChainEntry { artifact: appended.artifact.text, entry: appended.entry });
    let record = record.map(|(record, _)| ChainRecord { text: record.text, digest: record.digest });
    Ok(Json(Chain { entries: entries.collect(), record }))
}

/// The run as a file that anyone can verify.
pub(super) async fn export(
    State(app): State<Arc<App>>,
    _: Visitor,
    id: Result<Id<RunId>, Problem>,
) -> Result<Response, Trouble> {
    let dossier = dossier(&app, id).await?;
    let bundle = Bundle::of(&dossier).map_err(Fault::from)?;
    let name = format!("attachment; filename=\"{}.json\"", dossier.run.arrival.run_id);
    let mut response = Json(bundle).into_response();
    // Never fails: a run's id has only hexadecimal digits and hyphens.
    if let Ok(name) = HeaderValue::from_str(&name) {
        response.headers_mut().insert(header::CONTENT_DISPOSITION, name);
    }
    Ok(response)
}

async fn dossier(app: &App, id: Result<Id<RunId>, Problem>) -> Result<Dossier, Trouble> {
    let Ok(Id(run_id)) = id else { return Err(Trouble::no_such("run")) };
    match app.service.gate.store.dossier(run_id).await {
        Ok(Some(dossier)) => Ok(dossier),
        Ok(None) => Err(Trouble::no_such("run")),
        Err(StoreError::State(error)) => Err(Trouble::does_not_verify(&error)),
        Err(error) => Err(error.into()),
    }
}
