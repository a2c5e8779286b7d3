//! `/v1/approvals`: approvals, and the decisions on them.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::IntoResponse;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use stepgate_core::approval::{Approval, ApprovalStatus, Resolution};
use stepgate_core::attention::{self, Kind};
use stepgate_core::ids::{ApprovalId, PrincipalId, RunId};
use stepgate_core::ports::ApprovalQuery;
use stepgate_core::step::{Answer, Person, Refused};
use stepgate_core::time::Timestamp;
use stepgate_gateway::service::Decided;
use stepgate_gateway::tokens::Role;

use super::admit::{Caller, Operator, Reader};
use super::page::{self, Page};
use super::routes::{Id, Params};
use super::{App, Problem, body};

/// Most approvals that one request decides.
pub(super) const BATCH_MAX: usize = 100;
/// Longest note.
pub(super) const NOTE_BYTES_MAX: usize = 4096;

/// An approval as people see it.
#[derive(Serialize)]
pub(super) struct ApprovalObject {
    approval_id: ApprovalId,
    tool_run_id: RunId,
    status: ApprovalStatus,
    ts_requested: Timestamp,
    expires_at: Option<Timestamp>,
    /// What is decided on: the call as it would be made, the requester, and why a person is needed.
    context: Value,
    resolution: Option<Resolution>,
    /// Its run does not verify, so it cannot be decided on.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    quarantined: bool,
    /// The URL of its page, for the person who decides.
    url: String,
    /// The step's response, if the step ended together with the decision.
    #[serde(skip_serializing_if = "Option::is_none")]
    response: Option<Value>,
}

impl ApprovalObject {
    fn of(app: &App, approval: &Approval) -> Self {
        Self {
            approval_id: approval.approval_id,
            tool_run_id: approval.tool_run_id,
            status: match approval.has_expired(app.service.gate.world.now()) {
                true => ApprovalStatus::Expired,
                false => approval.status,
            },
            ts_requested: approval.ts_requested,
            expires_at: approval.expires_at(),
            context: serde_json::to_value(approval.context.read().ok()).unwrap_or_default(),
            resolution: approval.resolution.clone(),
            quarantined: false,
            url: app.public_url.approval(approval.approval_id),
            response: None,
        }
    }

    /// As the agent that requested it sees it: without the operator's note, and without the policies that required
    /// approval.
    pub(super) fn for_agent(app: &App, approval: &Approval) -> Self {
        let mut object = Self::of(app, approval);
        if let Some(resolution) = &mut object.resolution {
            resolution.note = None;
        }
        if let Value::Object(members) = &mut object.context {
            for name in ["executor_id", "needs_approval", "needs_approval_digest"] {
                members.remove(name);
            }
        }
        object
    }

    /// As this caller may see it.
    fn seen_by(caller: &Caller, app: &App, approval: &Approval) -> Self {
        match caller.role {
            Role::Agent => Self::for_agent(app, approval),
            Role::Operator | Role::Auditor => Self::of(app, approval),
        }
    }

    fn decided(app: &App, decided: &Decided) -> Self {
        let response = decided.answer.as_ref().map(Answer::to_value);
        Self { response, ..Self::of(app, &decided.approval) }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ListParams {
    before: Option<ApprovalId>,
    status: Option<ApprovalStatus>,
    limit: Option<usize>,
}

#[derive(Serialize)]
pub(super) struct Approvals {
    approvals: Vec<ApprovalObject>,
    /// Cursor of the next page; none on the last page.
    next_before: Option<ApprovalId>,
}

pub(super) async fn list(
    State(app): State<Arc<App>>,
    Reader(caller): Reader,
    Params(params): Params<ListParams>,
) -> Result<Json<Approvals>, Problem> {
    let query = ApprovalQuery {
        before: params.before,
        status: params.status,
        principal_id: caller.sees(),
        ..ApprovalQuery::default()
    };
    let store = &app.service.gate.store;
    let weight = |approval: &Approval| approval.context.text().len();
    let read = |last: Option<Approval>, limit| {
        let before = last.map(|approval| approval.approval_id).or(query.before);
        let query = ApprovalQuery { before, limit, ..query.clone() };
        async move { Ok(store.approvals(query).await?) }
    };
    let Page { rows, is_full } = page::read(params.limit, weight, read).await?;
    let next_before = rows.last().filter(|_| is_full).map(|approval| approval.approval_id);
    let offered = rows.iter().map(|approval| ApprovalObject::seen_by(&caller, &app, approval));
    let quarantined = quarantined(&app).await?;
    let offered = offered.map(|object| match quarantined.contains(&object.tool_run_id) {
        true => ApprovalObject { quarantined: true, ..object },
        false => object,
    });
    // Approvals that cannot be decided any more are left out, although their row still says `pending`.
    let is_open =
        |object: &ApprovalObject| object.status == ApprovalStatus::Pending && !object.quarantined;
    let is_wanted =
        |object: &ApprovalObject| params.status != Some(ApprovalStatus::Pending) || is_open(object);
    let approvals = offered.filter(is_wanted).collect();
    Ok(Json(Approvals { approvals, next_before }))
}

/// Runs that do not verify.
async fn quarantined(app: &App) -> Result<Vec<RunId>, Problem> {
    let needs = attention::of(&app.service.gate).await?.into_iter();
    let quarantined = needs.filter(|need| need.kind == Kind::Quarantined);
    Ok(quarantined.filter_map(|need| need.subject.run_id()).collect())
}

/// One approval. To an agent, approvals of other principals do not exist.
pub(super) async fn show(
    State(app): State<Arc<App>>,
    Reader(caller): Reader,
    Id(id): Id<ApprovalId>,
) -> Result<Json<ApprovalObject>, Problem> {
    let store = &app.service.gate.store;
    let approval = store.approval(id).await?.ok_or_else(Problem::not_found)?;
    match store.dossier(approval.tool_run_id).await? {
        Some(dossier) if caller.may_see(&dossier.run.arrival.principal_id) => {
            Ok(Json(ApprovalObject::of(&app, &approval)))
        }
        Some(_) | None => Err(Problem::not_found()),
    }
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Note {
    #[serde(default)]
    note: Option<String>,
}

pub(super) async fn approve(
    State(app): State<Arc<App>>,
    Operator(caller): Operator,
    Id(id): Id<ApprovalId>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<ApprovalObject>, Problem> {
    let Note { note } = body::json(&app, &headers, body).await?;
    one(&app, &caller, Decision::Approve, id, checked(note)?).await
}

pub(super) async fn deny(
    State(app): State<Arc<App>>,
    Operator(caller): Operator,
    Id(id): Id<ApprovalId>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<ApprovalObject>, Problem> {
    let Note { note } = body::json(&app, &headers, body).await?;
    one(&app, &caller, Decision::Deny, id, checked(note)?).await
}

async fn one(
    app: &App,
    caller: &Caller,
    decision: Decision,
    id: ApprovalId,
    note: Option<String>,
) -> Result<Json<ApprovalObject>, Problem> {
    let decided = app.service.decide(id, decision.by(&caller.principal_id, note)).await?;
    Ok(Json(ApprovalObject::decided(app, &decided)))
}

/// Checks the length of a note. An empty note counts as none.
pub(super) fn checked(note: Option<String>) -> Result<Option<String>, Problem> {
    match note {
        Some(note) if note.len() > NOTE_BYTES_MAX => {
            Err(Problem::malformed(format!("a note has at most {NOTE_BYTES_MAX} bytes")))
        }
        Some(note) if note.is_empty() => Ok(None),
        note => Ok(note),
    }
}

/// A person's decision on an approval.
#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Decision {
    Approve,
    Deny,
}

impl Decision {
    pub(super) fn by(self, operator: &PrincipalId, note: Option<String>) -> Person {
        let approver_id = operator.clone();
        match self {
            Self::Approve => Person::Approves { approver_id, note },
            Self::Deny => Person::Denies { approver_id, note },
        }
    }
}

/// Several approvals, each named by its id: there is no "all".
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Batch {
    #[serde(default)]
    decision: Option<Decision>,
    #[serde(default)]
    ids: Vec<ApprovalId>,
    #[serde(default)]
    note: Option<String>,
}

#[derive(Serialize)]
pub(super) struct BatchResults {
    results: Vec<BatchResult>,
}

/// The result for one id: its approval, or the same error as for a single request.
#[derive(Serialize)]
struct BatchResult {
    approval_id: ApprovalId,
    status: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    approval: Option<ApprovalObject>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Value>,
}

pub(super) async fn decide(
    State(app): State<Arc<App>>,
    Operator(caller): Operator,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<BatchResults>, Problem> {
    let Batch { decision, ids, note } = body::json(&app, &headers, body).await?;
    let decision =
        decision.ok_or_else(|| Problem::malformed("`decision` must be `approve` or `deny`"))?;
    if ids.is_empty() || ids.len() > BATCH_MAX {
        return Err(Problem::malformed(format!("`ids` must name from 1 to {BATCH_MAX}")));
    }
    let note = checked(note)?;
    let mut results = Vec::with_capacity(ids.len());
    for id in ids {
        let said = decision.by(&caller.principal_id, note.clone());
        results.push(result(&app, id, app.service.decide(id, said).await));
    }
    Ok(Json(BatchResults { results }))
}

fn result(app: &App, approval_id: ApprovalId, decided: Result<Decided, Refused>) -> BatchResult {
    match decided {
        Ok(decided) => BatchResult {
            approval_id,
            status: 200,
            approval: Some(ApprovalObject::decided(app, &decided)),
            error: None,
        },
        Err(refused) => {
            let problem = Problem::from(refused);
            let body: Value = serde_json::from_str(&problem.body()).unwrap_or_default();
            let status = problem.into_response().status().as_u16();
            BatchResult { approval_id, status, approval: None, error: body.get("error").cloned() }
        }
    }
}
