//! `/v1/grants`: calls that an operator approves in advance.

use std::collections::BTreeMap;

use axum::Json;
use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stepgate_core::consent::{self, GrantStanding, GrantStatus, NewGrant, Revocation};
use stepgate_core::digest::Digest;
use stepgate_core::grant::Condition;
use stepgate_core::ids::{ApprovalId, ArtifactId, PrincipalId};
use stepgate_core::time::Timestamp;

use super::approvals::checked;
use super::{Id, JsonBody, Operator, Problem, Watcher};

/// A grant as people see it.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Grant")]
pub(super) struct GrantObject {
    grant_id: ArtifactId,
    status: GrantStatus,
    /// Who may make the calls.
    principal_id: PrincipalId,
    /// The tool, by its name in proposals.
    tool: String,
    /// The tool's definition. With another one the grant cannot be used.
    tool_definition_digest: Option<Digest>,
    /// The executor that the calls must go to, where it matters.
    executor_id: Option<String>,
    /// What each argument must be.
    args: BTreeMap<String, Condition>,
    /// How many calls it permits.
    uses_max: u64,
    /// How many calls have used it.
    used: u64,
    created_at: Timestamp,
    expires_at: Timestamp,
    granted_by: PrincipalId,
    note: Option<String>,
    /// The approval that it was made from.
    approval_id: ApprovalId,
    /// Who revoked it, where an operator has.
    revocation: Option<Revocation>,
}

impl GrantObject {
    fn of(standing: GrantStanding, now: Timestamp) -> Self {
        let status = standing.status(now);
        let GrantStanding { grant_id, grant, created_at, used, revocation } = standing;
        Self {
            grant_id,
            status,
            tool: grant.action(),
            principal_id: grant.principal_id,
            tool_definition_digest: grant.tool_definition_digest,
            executor_id: grant.executor_id,
            args: grant.args,
            uses_max: grant.uses_max,
            used,
            created_at,
            expires_at: grant.expires_at,
            granted_by: grant.granted_by,
            note: grant.note,
            approval_id: grant.approval_id,
            revocation,
        }
    }
}

#[derive(Serialize, JsonSchema)]
pub(super) struct Grants {
    grants: Vec<GrantObject>,
}

/// Every grant, newest first.
pub(super) async fn list(Watcher(app, _): Watcher) -> Result<Json<Grants>, Problem> {
    let gate = &app.service.gate;
    let now = gate.world.now();
    let grants = consent::grants(gate).await?.into_iter();
    Ok(Json(Grants { grants: grants.map(|standing| GrantObject::of(standing, now)).collect() }))
}

/// A grant to make from an approval that was approved.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CreateGrant {
    /// The approval.
    #[schemars(required, with = "ApprovalId")]
    approval_id: Option<ApprovalId>,
    /// What arguments must be, where not exactly what was approved.
    #[serde(default)]
    args: BTreeMap<String, Condition>,
    /// How many calls it permits.
    uses_max: u64,
    /// For how many seconds it can be used.
    life_s: u64,
    #[serde(default)]
    note: Option<String>,
}

pub(super) async fn create(
    Operator(app, caller): Operator,
    JsonBody(create): JsonBody<CreateGrant>,
) -> Result<(StatusCode, Json<GrantObject>), Problem> {
    let CreateGrant { approval_id, args, uses_max, life_s, note } = create;
    let approval_id =
        approval_id.ok_or_else(|| Problem::malformed("`approval_id` must name an approval"))?;
    let life_ms = life_s.saturating_mul(1000);
    let new = NewGrant { approval_id, args, uses_max, life_ms, note: checked(note)? };
    let standing = app.service.grant(&caller.principal_id, new).await?;
    let now = app.service.gate.world.now();
    Ok((StatusCode::CREATED, Json(GrantObject::of(standing, now))))
}

/// Revokes a grant. A call that is being decided at this moment may still use it.
pub(super) async fn revoke(
    Operator(app, caller): Operator,
    Id(id): Id<ArtifactId>,
) -> Result<StatusCode, Problem> {
    match consent::revoke_grant(&app.service.gate, id, caller.principal_id).await? {
        true => Ok(StatusCode::NO_CONTENT),
        false => Err(Problem::not_found()),
    }
}
