//! `/runs/{id}`: one run as a timeline, the decision, and its journal as a chain whose digests the browser recomputes.

mod view;

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
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

use super::form::Sent;
use super::{Trouble, Visit, html};
use crate::runs::{Settled, file_of};
use crate::{App, Id, Problem};
use view::RunPage;

pub(super) async fn show(
    Visit(app, visitor): Visit,
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
pub(super) struct SettleForm {
    csrf: String,
    settlement: Settled,
}

/// Settles a call in doubt, as `POST /v1/runs/{id}/resolve` does.
pub(super) async fn settle(
    Visit(app, visitor): Visit,
    id: Result<Id<RunId>, Problem>,
    Sent(SettleForm { csrf, settlement }): Sent<SettleForm>,
) -> Result<Response, Trouble> {
    visitor.may_change(&csrf)?;
    let Ok(Id(run_id)) = id else { return Err(Trouble::no_such("run")) };
    let settlement = match settlement {
        Settled::Succeeded => Settlement::Succeeded(None),
        Settled::Failed => Settlement::Failed,
        Settled::Redispatch => Settlement::Redispatch,
    };
    app.service.resolve(run_id, settlement, visitor.principal_id).await?;
    app.metrics.step();
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
    Visit(app, _): Visit,
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
    Visit(app, _): Visit,
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
        Ok(None) => Err(absent(app, run_id).await?),
        Err(StoreError::State(error)) => Err(Trouble::does_not_verify(&error)),
        Err(error) => Err(error.into()),
    }
}

async fn absent(app: &App, run_id: RunId) -> Result<Trouble, StoreError> {
    let Some(kept) = app.service.gate.store.archived_run(run_id).await? else {
        return Ok(Trouble::no_such("run"));
    };
    Ok(Trouble::archived(file_of(app, kept.archive_id).await?.as_deref()))
}
