//! `/v1/runs`: the runs, and how an operator settles a call in doubt.

use axum::Json;
use axum::response::Response;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use stepgate_core::archive::NamedArchive;
use stepgate_core::attention;
use stepgate_core::bundle::{Bundle, RecordObject, RunObject};
use stepgate_core::ids::{ArtifactId, PrincipalId, RunId, SessionId};
use stepgate_core::journal::{Checkpoint, Entry};
use stepgate_core::json::canonical;
use stepgate_core::ports::{Dossier, RunQuery, RunText, StoreError};
use stepgate_core::run::{Run, Status};
use stepgate_core::step::Settlement;
use stepgate_core::time::Timestamp;
use stepgate_gateway::attention::{NeedObject, RecoveryObject};
use stepgate_gateway::run_object::{self, ListedRun};
use stepgate_gateway::tokens::Role;

use super::approvals::ApprovalObject;
use super::events::EventObject;
use super::page::{self, Page};
use super::{App, Caller, Id, JsonBody, Operator, Params, Problem, Reader, Watcher, steps};

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ListParams {
    /// only runs older than this one
    before: Option<RunId>,
    /// only runs of this session
    session: Option<SessionId>,
    /// only runs with this status
    status: Option<Status>,
    /// only runs of this tool
    tool: Option<String>,
    /// only runs of this principal
    principal: Option<PrincipalId>,
    /// only runs at this time or later, such as 2026-01-31T12:00:00.000Z; the end can be left out
    since: Option<String>,
    /// only runs before this time
    until: Option<String>,
    /// the beginning of a run's id, from 8 characters on, or a part of a tool's name
    text: Option<String>,
    /// at most so many: 1 to 1000, 50 otherwise
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

#[derive(Serialize, JsonSchema)]
pub(super) struct Runs {
    runs: Vec<ListedRun>,
    /// Cursor of the next page; none on the last page.
    next_before: Option<RunId>,
    /// Every run that needs a person, on this page or not. Only for callers that may see all runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    attention: Option<Vec<NeedObject>>,
}

pub(super) async fn list(
    Reader(app, caller): Reader,
    Params(params): Params<ListParams>,
) -> Result<Json<Runs>, Problem> {
    let (since, until) =
        (time("since", params.since.as_ref())?, time("until", params.until.as_ref())?);
    let text = text(params.text.as_ref())?;
    let Ok(principal_id) = caller.lists(params.principal) else {
        return Ok(Json(Runs { runs: Vec::new(), next_before: None, attention: None }));
    };
    let query = RunQuery {
        session_id: params.session,
        principal_id,
        status: params.status,
        tool_name: params.tool,
        since,
        until,
        text,
        ..RunQuery::default()
    };
    let store = &app.service.gate.store;
    let id = |run: &Run| run.arrival.run_id;
    let read = |before, limit| store.runs(RunQuery { before, limit, ..query.clone() });
    let page = page::read(params.limit, params.before, id, weight, read).await?;
    let Page { rows, next_before } = page;
    let runs = rows.iter().map(ListedRun::of).collect();
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
pub(super) async fn recover(Watcher(app, _): Watcher) -> Result<Json<RecoveryObject>, Problem> {
    let report = app.service.recover().await?;
    Ok(Json(RecoveryObject::of(&report, &attention::of(&app.service.gate).await?)))
}

fn weight(run: &Run) -> usize {
    let length = |text: &Option<String>| text.as_ref().map_or(0, String::len);
    let ending = run.ending.as_ref();
    let ending = ending.map_or(0, |it| length(&it.output_json) + length(&it.error_json));
    run.arrival.payload.bytes.len() + length(&run.input_json) + ending
}

/// A run. An agent gets run, states and approval of its own run. The rest shows who refused it, by which rule, and what
/// operators noted: it is only for operators and auditors.
#[derive(Serialize, JsonSchema)]
pub(super) struct RunDetail {
    /// The row: arguments and results as the texts that the digests cover.
    run: RunObject,
    /// The states so far, ending with the present one.
    states: Vec<Status>,
    approval: Option<ApprovalObject>,
    /// The journal, in order.
    #[serde(skip_serializing_if = "Option::is_none")]
    entries: Option<Vec<Entry>>,
    /// The artifacts that the entries are about, in the same order.
    #[serde(skip_serializing_if = "Option::is_none")]
    artifacts: Option<Vec<Value>>,
    /// The last checkpoint.
    #[serde(skip_serializing_if = "Option::is_none")]
    checkpoint: Option<Checkpoint>,
    /// The record, where the step is over.
    #[serde(skip_serializing_if = "Option::is_none")]
    record: Option<RecordObject>,
    /// The events of the run, in order.
    #[serde(skip_serializing_if = "Option::is_none")]
    events: Option<Vec<EventObject>>,
    /// Why it needs a person, where it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    attention: Option<NeedObject>,
}

pub(super) async fn show(
    Reader(app, caller): Reader,
    Id(run_id): Id<RunId>,
) -> Result<Json<RunDetail>, Problem> {
    let dossier = dossier(&app, &caller, run_id).await?;
    stepgate_core::consent::read_on(&app.service.gate).await?;
    let approval = dossier.approval.as_ref();
    let sees_all = caller.sees().is_none();
    let (entries, artifacts, checkpoint, record) = match sees_all {
        true => {
            let Bundle { entries, artifacts, checkpoint, record, .. } = bundle(&dossier)?;
            (Some(entries), Some(artifacts), checkpoint, record)
        }
        false => (None, None, None, None),
    };
    let needs = attention(&app, &caller).await?.unwrap_or_default();
    let events = dossier.events.iter().map(|linked| &linked.event);
    let events = events.map(|event| EventObject::of(&app, &caller, event, approval));
    Ok(Json(RunDetail {
        run: RunObject::of(&dossier.run),
        states: run_object::states(&dossier),
        approval: approval.map(|approval| ApprovalObject::seen_by(caller.role, &app, approval)),
        entries,
        artifacts,
        checkpoint,
        record,
        events: sees_all.then(|| events.collect()),
        attention: needs.into_iter().find(|need| need.run_id == Some(run_id)),
    }))
}

pub(super) async fn export(
    Watcher(app, caller): Watcher,
    Id(run_id): Id<RunId>,
) -> Result<Json<Bundle>, Problem> {
    let dossier = dossier(&app, &caller, run_id).await?;
    Ok(Json(bundle(&dossier)?))
}

fn bundle(dossier: &Dossier) -> Result<Bundle, Problem> {
    Ok(Bundle::of(dossier).map_err(stepgate_core::gate::Fault::from)?)
}

async fn dossier(app: &App, caller: &Caller, run_id: RunId) -> Result<Dossier, Problem> {
    let found = app.service.gate.store.dossier(run_id).await;
    if let (Err(StoreError::State(error)), Role::Operator) = (&found, caller.role) {
        return Err(Problem::state(error));
    }
    match found? {
        Some(dossier) if caller.may_see(&dossier.run.arrival.principal_id) => Ok(dossier),
        Some(_) => Err(Problem::not_found()),
        None => Err(absent(app, caller, run_id).await?),
    }
}

/// Why there is no such run: it is archived, or there never was one that the caller may see.
async fn absent(app: &App, caller: &Caller, run_id: RunId) -> Result<Problem, Problem> {
    let store = &app.service.gate.store;
    let Some(kept) = store.archived_run(run_id).await? else { return Ok(Problem::not_found()) };
    let session = store.session(kept.session_id).await?;
    if !session.is_some_and(|session| caller.may_see(&session.principal_id)) {
        return Ok(Problem::not_found());
    }
    // An agent is told that it is gone, and not where files are.
    let file = match caller.role {
        Role::Agent => None,
        Role::Operator | Role::Auditor => file_of(app, kept.archive_id).await?,
    };
    Ok(Problem::archived(run_id, file.as_deref()))
}

pub(crate) async fn file_of(
    app: &App,
    archive_id: ArtifactId,
) -> Result<Option<String>, StoreError> {
    let event = app.service.gate.store.event(archive_id).await?;
    Ok(event.as_ref().and_then(NamedArchive::read).map(|named| named.archived.file))
}

/// How a call in doubt is settled.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Resolve {
    #[serde(default, rename = "as")]
    settled: Option<Settled>,
    /// The tool's result, if it succeeded and the result is known.
    #[serde(default)]
    result: Option<Value>,
}

// What a person found out about a call in doubt. A doc comment would be in the OpenAPI document.
#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[schemars(rename = "ResolveAs")]
#[serde(rename_all = "snake_case")]
pub(super) enum Settled {
    Succeeded,
    Failed,
    Redispatch,
}

pub(super) async fn resolve(
    Operator(app, caller): Operator,
    Id(run_id): Id<RunId>,
    JsonBody(Resolve { settled, result }): JsonBody<Resolve>,
) -> Result<Response, Problem> {
    let settlement = match (settled, result) {
        (Some(Settled::Succeeded), result) => {
            Settlement::Succeeded(result.map(|result| canonical::text_of(&result)))
        }
        (Some(Settled::Failed), None) => Settlement::Failed,
        (Some(Settled::Redispatch), None) => Settlement::Redispatch,
        (Some(Settled::Failed | Settled::Redispatch), Some(_)) => {
            return Err(Problem::malformed("only what succeeded has a `result`"));
        }
        (None, _) => {
            let message = "`as` must be `succeeded`, `failed` or `redispatch`";
            return Err(Problem::malformed(message));
        }
    };
    dossier(&app, &caller, run_id).await?;
    let answer = app.service.resolve(run_id, settlement, caller.principal_id).await?;
    app.metrics.step();
    Ok(steps::respond(answer))
}
