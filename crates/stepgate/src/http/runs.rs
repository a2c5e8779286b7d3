//! `/v1/runs`: what happened, and what an operator says of a call in doubt.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use stepgate_core::bundle::{Bundle, RunObject};
use stepgate_core::ids::{RunId, SessionId};
use stepgate_core::json::canonical;
use stepgate_core::ports::{Dossier, RunQuery};
use stepgate_core::run::{Run, Status};
use stepgate_core::step::Settlement;

use super::admit::{Caller, Operator, Reader, Watcher};
use super::approvals::ApprovalObject;
use super::page::{self, Page};
use super::routes::{Id, Params};
use super::{App, Problem, body, steps};
use crate::show::timeline;
use crate::tokens::Role;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ListParams {
    before: Option<RunId>,
    session: Option<SessionId>,
    status: Option<Status>,
    tool: Option<String>,
    limit: Option<usize>,
}

#[derive(Serialize)]
pub(super) struct Runs {
    runs: Vec<RunObject>,
    /// Goes on where this page ends; none where it is the last.
    next_before: Option<RunId>,
}

pub(super) async fn list(
    State(app): State<Arc<App>>,
    Reader(caller): Reader,
    Params(params): Params<ListParams>,
) -> Result<Json<Runs>, Problem> {
    let query = RunQuery {
        before: params.before,
        session_id: params.session,
        principal_id: caller.sees(),
        status: params.status,
        tool_name: params.tool,
        limit: 0,
    };
    let store = &app.service.gate.store;
    let Page { rows, is_full } = page::read(params.limit, weight, |last: Option<Run>, limit| {
        let before = last.map(|run| run.arrival.run_id).or(query.before);
        let query = RunQuery { before, limit, ..query.clone() };
        async move { Ok(store.runs(query).await?) }
    })
    .await?;
    let next_before = rows.last().filter(|_| is_full).map(|run| run.arrival.run_id);
    Ok(Json(Runs { runs: rows.iter().map(RunObject::of).collect(), next_before }))
}

fn weight(run: &Run) -> usize {
    let length = |text: &Option<String>| text.as_ref().map_or(0, String::len);
    let ending = run.ending.as_ref();
    let ending = ending.map_or(0, |it| length(&it.output_json) + length(&it.error_json));
    run.arrival.payload.bytes.len() + length(&run.input_json) + ending
}

pub(super) async fn show(
    State(app): State<Arc<App>>,
    Reader(caller): Reader,
    Id(run_id): Id<RunId>,
) -> Result<Json<Value>, Problem> {
    let dossier = dossier(&app, &caller, run_id).await?;
    Ok(Json(match caller.role {
        Role::Agent => agents_view(&app, &dossier),
        Role::Operator | Role::Auditor => timeline::object(&dossier)?,
    }))
}

/// What an agent may know of its own run. Journal, record and events say who refused it, by which rule,
/// and what operators noted: they are for operators and auditors.
fn agents_view(app: &App, dossier: &Dossier) -> Value {
    let approval = dossier.approval.as_ref();
    json!({
        "run": RunObject::of(&dossier.run),
        "states": timeline::states(dossier),
        "approval": approval.map(|approval| ApprovalObject::for_agent(app, approval)),
    })
}

pub(super) async fn export(
    State(app): State<Arc<App>>,
    Watcher(caller): Watcher,
    Id(run_id): Id<RunId>,
) -> Result<Json<Bundle>, Problem> {
    let dossier = dossier(&app, &caller, run_id).await?;
    let bundle = Bundle::of(&dossier).map_err(stepgate_core::gate::Fault::from)?;
    Ok(Json(bundle))
}

async fn dossier(app: &App, caller: &Caller, run_id: RunId) -> Result<Dossier, Problem> {
    match app.service.gate.store.dossier(run_id).await? {
        Some(dossier) if caller.may_see(&dossier.run.arrival.principal_id) => Ok(dossier),
        Some(_) | None => Err(Problem::not_found()),
    }
}

/// What became of a call in doubt.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Resolve {
    #[serde(default, rename = "as")]
    settled: Option<Word>,
    /// What the tool gave, where it succeeded and that is known.
    #[serde(default)]
    result: Option<Value>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Word {
    Succeeded,
    Failed,
    Redispatch,
}

pub(super) async fn resolve(
    State(app): State<Arc<App>>,
    Operator(caller): Operator,
    Id(run_id): Id<RunId>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let Resolve { settled, result } = body::json(&app, &headers, body).await?;
    let settlement = match (settled, result) {
        (Some(Word::Succeeded), result) => {
            Settlement::Succeeded(result.map(|result| canonical::text_of(&result)))
        }
        (Some(Word::Failed), None) => Settlement::Failed,
        (Some(Word::Redispatch), None) => Settlement::Redispatch,
        (Some(Word::Failed | Word::Redispatch), Some(_)) => {
            return Err(Problem::malformed("only what succeeded has a `result`"));
        }
        (None, _) => {
            let message = "`as` must be `succeeded`, `failed` or `redispatch`";
            return Err(Problem::malformed(message));
        }
    };
    dossier(&app, &caller, run_id).await?;
    let answer = app.service.resolve(run_id, settlement, caller.principal_id).await?;
    app.metrics.step(answer.word);
    Ok(steps::respond(answer))
}
