//! `/v1/runs`: the runs, and how an operator settles a call in doubt.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use stepgate_core::attention;
use stepgate_core::bundle::{Bundle, RunObject};
use stepgate_core::ids::{PrincipalId, RunId, SessionId};
use stepgate_core::json::canonical;
use stepgate_core::ports::{Dossier, RunQuery, RunText, StoreError};
use stepgate_core::run::{Run, Status};
use stepgate_core::step::Settlement;
use stepgate_core::time::Timestamp;
use stepgate_gateway::attention::{NeedObject, RecoveryObject};
use stepgate_gateway::run_object;
use stepgate_gateway::tokens::Role;

use super::admit::{Caller, Operator, Reader, Watcher};
use super::approvals::ApprovalObject;
use super::page::{self, Page};
use super::routes::{Id, Params};
use super::{App, Problem, body, steps};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ListParams {
    before: Option<RunId>,
    session: Option<SessionId>,
    status: Option<Status>,
    tool: Option<String>,
    principal: Option<PrincipalId>,
    since: Option<String>,
    until: Option<String>,
    text: Option<String>,
    limit: Option<usize>,
}

/// Longest text to look for, in bytes: longer than any name of a tool that is indexed.
pub(super) const TEXT_BYTES_MAX: usize = 256;

fn time(name: &str, text: Option<&String>) -> Result<Option<Timestamp>, Problem> {
    let time = text.map(|text| Timestamp::parse_short(text)).transpose();
    time.map_err(|error| Problem::malformed(format!("`{name}`: {error}")))
}

fn text(text: Option<&String>) -> Result<Option<RunText>, Problem> {
    match text {
        Some(text) if text.is_empty() || text.len() > TEXT_BYTES_MAX => {
            Err(Problem::malformed(format!("`text` has 1 to {TEXT_BYTES_MAX} bytes")))
        }
        text => Ok(text.map(|text| RunText::of(text))),
    }
}

#[derive(Serialize)]
pub(super) struct Runs {
    runs: Vec<RunObject>,
    /// Cursor of the next page; none on the last page.
    next_before: Option<RunId>,
    /// Every run that needs a person, on this page or not. Only for callers that may see all runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    attention: Option<Vec<NeedObject>>,
}

pub(super) async fn list(
    State(app): State<Arc<App>>,
    Reader(caller): Reader,
    Params(params): Params<ListParams>,
) -> Result<Json<Runs>, Problem> {
    let (since, until) =
        (time("since", params.since.as_ref())?, time("until", params.until.as_ref())?);
    let text = text(params.text.as_ref())?;
    let Ok(principal_id) = caller.lists(params.principal) else {
        return Ok(Json(Runs { runs: Vec::new(), next_before: None, attention: None }));
    };
    let query = RunQuery {
        before: params.before,
        session_id: params.session,
        principal_id,
        status: params.status,
        tool_name: params.tool,
        since,
        until,
        text,
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
    let runs = rows.iter().map(RunObject::of).collect();
    Ok(Json(Runs { runs, next_before, attention: attention(&app, &caller).await? }))
}

/// The runs that need a person, for callers that may see all runs.
async fn attention(app: &App, caller: &Caller) -> Result<Option<Vec<NeedObject>>, Problem> {
    match caller.sees() {
        Some(_) => Ok(None),
        None => {
            let needs = attention::of(&app.service.gate).await?;
            Ok(Some(needs.iter().map(NeedObject::of).collect()))
        }
    }
}

/// Runs a recovery pass over everything now, instead of waiting for the gateway's next one.
pub(super) async fn recover(
    State(app): State<Arc<App>>,
    _: Watcher,
) -> Result<Json<RecoveryObject>, Problem> {
    let report = app.service.recover().await?;
    Ok(Json(RecoveryObject::of(&report, &attention::of(&app.service.gate).await?)))
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
    let needs = attention(&app, &caller).await?.unwrap_or_default();
    let need = needs.into_iter().find(|need| need.run_id == Some(run_id));
    Ok(Json(match caller.role {
        Role::Agent => agents_view(&app, &dossier),
        Role::Operator | Role::Auditor => run_object::object(&dossier, need.as_ref())?,
    }))
}

/// What an agent may see of its own run. Journal, record and events show who refused it, by which rule, and what
/// operators noted: they are only for operators and auditors.
fn agents_view(app: &App, dossier: &Dossier) -> Value {
    let approval = dossier.approval.as_ref();
    json!({
        "run": RunObject::of(&dossier.run),
        "states": run_object::states(dossier),
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
    let found = app.service.gate.store.dossier(run_id).await;
    if let (Err(StoreError::State(error)), Role::Operator) = (&found, caller.role) {
        return Err(Problem::state(error));
    }
    match found? {
        Some(dossier) if caller.may_see(&dossier.run.arrival.principal_id) => Ok(dossier),
        Some(_) | None => Err(Problem::not_found()),
    }
}

/// How a call in doubt is settled.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Resolve {
    #[serde(default, rename = "as")]
    settled: Option<Word>,
    /// The tool's result, if it succeeded and the result is known.
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
    app.metrics.step(answer.word());
    Ok(steps::respond(answer))
}
