//! `/v1/approvals`: approvals, and the decisions on them.

use std::collections::BTreeSet;

use axum::Json;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use stepgate_core::approval::{Approval, ApprovalContext, ApprovalStatus, Resolution};
use stepgate_core::approvers::Required;
use stepgate_core::attention::{self, Kind};
use stepgate_core::consent;
use stepgate_core::digest::Digest;
use stepgate_core::ids::{ApprovalId, IdPrefix, PrincipalId, RunId};
use stepgate_core::journal::artifact::SupervisorDecision;
use stepgate_core::ports::ApprovalQuery;
use stepgate_core::step::{Answer, Person, Refused, StepResponse};
use stepgate_core::time::Timestamp;
use stepgate_gateway::service::Decided;
use stepgate_gateway::tokens::Role;

use super::page::{self, Page};
use super::problem::ProblemObject;
use super::{App, Caller, Id, JsonBody, Operator, Params, Problem, Reader};

/// Most approvals that one request decides.
pub(super) const BATCH_MAX: usize = 100;
pub(super) const NOTE_BYTES_MAX: usize = 4096;

/// An approval as people see it.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Approval")]
pub(super) struct ApprovalObject {
    approval_id: ApprovalId,
    tool_run_id: RunId,
    status: ApprovalStatus,
    ts_requested: Timestamp,
    expires_at: Option<Timestamp>,
    /// What is decided on: the call as it would be made, the requester, and why a person is needed.
    /// None where the stored text cannot be read: `verify` reports it.
    context: Option<ContextObject>,
    resolution: Option<Resolution>,
    /// Who has approved so far, where policy requires more people. Not for agents.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    approved_by: BTreeSet<PrincipalId>,
    /// Its run does not verify, so it cannot be decided on.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    quarantined: bool,
    /// The URL of its page, for the person who decides.
    url: String,
    /// The step's response, if the step ended together with the decision.
    #[serde(skip_serializing_if = "Option::is_none")]
    response: Option<StepResponse>,
}

/// What is decided on.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ApprovalContext")]
struct ContextObject {
    /// The arguments as they would be sent.
    args: Value,
    /// The digest of the call: the approval is valid for no other.
    call_digest: Digest,
    expires_at: Timestamp,
    /// The file that would be deleted or renamed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pre_state: Option<Value>,
    /// Who asks.
    principal_id: PrincipalId,
    /// Why a person is needed.
    reason: String,
    tool_name: String,
    /// The tool's server; `core` for core actions.
    tool_server: String,
    /// The executor that the call was meant for. Not for agents.
    #[serde(skip_serializing_if = "Option::is_none")]
    executor_id: Option<String>,
    /// The decision that asks for a person. Not for agents.
    #[serde(skip_serializing_if = "Option::is_none")]
    needs_approval: Option<SupervisorDecision>,
    /// Its digest. Not for agents.
    #[serde(skip_serializing_if = "Option::is_none")]
    needs_approval_digest: Option<Digest>,
    /// What policies require of the people who decide; empty where any one operator may. Not for agents.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    required: Vec<Required>,
}

impl ContextObject {
    /// An agent does not see the policies that required approval.
    fn of(context: &ApprovalContext, is_for_agent: bool) -> Self {
        let shown = Some(context).filter(|_| !is_for_agent);
        Self {
            args: context.args.clone(),
            call_digest: context.call_digest,
            expires_at: context.expires_at,
            pre_state: context.pre_state.clone(),
            principal_id: context.principal_id.clone(),
            reason: context.reason.clone(),
            tool_name: context.tool_name.clone(),
            tool_server: context.tool_server.clone(),
            executor_id: shown.and_then(|it| it.executor_id.clone()),
            needs_approval: shown.map(|it| it.needs_approval.clone()),
            needs_approval_digest: shown.map(|it| it.needs_approval_digest),
            required: shown.map(|it| it.required.clone()).unwrap_or_default(),
        }
    }
}

impl ApprovalObject {
    /// As this role may see it: the agent that requested it sees neither the operator's note, nor who has approved, nor
    /// the policies that required approval.
    pub(super) fn seen_by(role: Role, app: &App, approval: &Approval) -> Self {
        let is_for_agent = role == Role::Agent;
        let mut resolution = approval.resolution.clone();
        if let Some(resolution) = resolution.as_mut().filter(|_| is_for_agent) {
            resolution.note = None;
        }
        Self {
            approval_id: approval.approval_id,
            tool_run_id: approval.tool_run_id,
            status: match approval.has_expired(app.service.gate.world.now()) {
                true => ApprovalStatus::Expired,
                false => approval.status,
            },
            ts_requested: approval.ts_requested,
            expires_at: approval.expires_at(),
            context: approval.context.read().ok().map(|it| ContextObject::of(it, is_for_agent)),
            resolution,
            approved_by: match is_for_agent {
                true => BTreeSet::new(),
                false => app.service.gate.consents.known_votes(approval.approval_id),
            },
            quarantined: false,
            url: app.public_url.approval(approval.approval_id),
            response: None,
        }
    }

    fn decided(app: &App, decided: &Decided) -> Self {
        let response = decided.answer.as_ref().map(Answer::response);
        Self { response, ..Self::seen_by(Role::Operator, app, &decided.approval) }
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ListParams {
    /// only those that were asked before this one
    before: Option<ApprovalId>,
    /// only those whose id begins with this, from 8 characters on
    id_prefix: Option<IdPrefix>,
    /// only those with this status
    status: Option<ApprovalStatus>,
    /// only those that this principal's runs wait for
    principal: Option<PrincipalId>,
    /// at most so many: 1 to 1000, 50 otherwise
    limit: Option<usize>,
}

#[derive(Serialize, JsonSchema)]
pub(super) struct Approvals {
    approvals: Vec<ApprovalObject>,
    /// Cursor of the next page; none on the last page.
    next_before: Option<ApprovalId>,
}

pub(super) async fn list(
    Reader(app, caller): Reader,
    Params(params): Params<ListParams>,
) -> Result<Json<Approvals>, Problem> {
    let Ok(principal_id) = caller.lists(params.principal) else {
        return Ok(Json(Approvals { approvals: Vec::new(), next_before: None }));
    };
    let query = ApprovalQuery {
        id_prefix: params.id_prefix,
        status: params.status,
        principal_id,
        ..ApprovalQuery::default()
    };
    let store = &app.service.gate.store;
    let id = |approval: &Approval| approval.approval_id;
    let weight = |approval: &Approval| approval.context.text().len();
    let read = |before, limit| store.approvals(ApprovalQuery { before, limit, ..query.clone() });
    let page = page::read(params.limit, params.before, id, weight, read).await?;
    let Page { rows, next_before } = page;
    consent::read_on(&app.service.gate).await?;
    let offered = rows.iter().map(|approval| ApprovalObject::seen_by(caller.role, &app, approval));
    let quarantined = quarantined(&app).await?;
    let offered = offered.map(|object| match quarantined.contains(&object.tool_run_id) {
        true => ApprovalObject { quarantined: true, ..object },
        false => object,
    });
    // Approvals that cannot be decided any more are left out, although their row still says `pending`.
    let pending = ApprovalStatus::Pending;
    let is_open = |it: &ApprovalObject| it.status == pending && !it.quarantined;
    let approvals = offered.filter(|it| params.status != Some(pending) || is_open(it)).collect();
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
    Reader(app, caller): Reader,
    Id(id): Id<ApprovalId>,
) -> Result<Json<ApprovalObject>, Problem> {
    let store = &app.service.gate.store;
    let approval = store.approval(id).await?.ok_or_else(Problem::not_found)?;
    match store.dossier(approval.tool_run_id).await? {
        Some(dossier) if caller.may_see(&dossier.run.arrival.principal_id) => {
            let quarantined = quarantined(&app).await?.contains(&approval.tool_run_id);
            consent::read_on(&app.service.gate).await?;
            let object = ApprovalObject::seen_by(caller.role, &app, &approval);
            Ok(Json(ApprovalObject { quarantined, ..object }))
        }
        Some(_) | None => Err(Problem::not_found()),
    }
}

#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Note {
    #[serde(default)]
    note: Option<String>,
}

pub(super) async fn approve(
    Operator(app, caller): Operator,
    Id(id): Id<ApprovalId>,
    JsonBody(Note { note }): JsonBody<Note>,
) -> Result<Json<ApprovalObject>, Problem> {
    one(&app, &caller, Decision::Approve, id, note).await
}

pub(super) async fn deny(
    Operator(app, caller): Operator,
    Id(id): Id<ApprovalId>,
    JsonBody(Note { note }): JsonBody<Note>,
) -> Result<Json<ApprovalObject>, Problem> {
    one(&app, &caller, Decision::Deny, id, note).await
}

async fn one(
    app: &App,
    caller: &Caller,
    decision: Decision,
    id: ApprovalId,
    note: Option<String>,
) -> Result<Json<ApprovalObject>, Problem> {
    let said = decision.by(&caller.principal_id, checked(note)?);
    let decided = app.service.decide(id, said).await?;
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
#[derive(Clone, Copy, Deserialize, JsonSchema)]
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
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Batch {
    #[serde(default)]
    decision: Option<Decision>,
    #[serde(default)]
    ids: Vec<ApprovalId>,
    #[serde(default)]
    note: Option<String>,
}

#[derive(Serialize, JsonSchema)]
pub(super) struct BatchResults {
    results: Vec<BatchResult>,
}

/// The result for one id: its approval, or the same error as for a single request.
#[derive(Serialize, JsonSchema)]
struct BatchResult {
    approval_id: ApprovalId,
    status: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    approval: Option<ApprovalObject>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<ProblemObject>,
}

pub(super) async fn decide(
    Operator(app, caller): Operator,
    JsonBody(Batch { decision, ids, note }): JsonBody<Batch>,
) -> Result<Json<BatchResults>, Problem> {
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
    let (status, approval, error) = match decided {
        Ok(decided) => (200, Some(ApprovalObject::decided(app, &decided)), None),
        Err(refused) => {
            let error = Problem::from(refused).object();
            (error.status, None, Some(error))
        }
    };
    BatchResult { approval_id, status, approval, error }
}
