//! What operators decide in advance and together: grants, and votes on approvals that need more than one person.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::approval::{Approval, ApprovalStatus};
use crate::approvers;
use crate::consent_cache::{RecordedGrant, used};
use crate::event::EventType;
use crate::event::payload::{ApprovalVoted, GrantRevoked};
use crate::gate::{Fault, Gate};
use crate::grant::{self, Condition, Grant};
use crate::ids::{ApprovalId, ArtifactId, PrincipalId};
use crate::journal::artifact::ToolCall;
use crate::journal::replay;
use crate::limits::Limits;
use crate::ports::StoreError;
use crate::time::Timestamp;
use crate::tool::ToolName;

pub use crate::consent_cache::Revocation;

/// Everyone who voted for an approval.
pub async fn votes(
    gate: &Gate,
    approval_id: ApprovalId,
) -> Result<BTreeSet<PrincipalId>, StoreError> {
    read_on(gate).await?;
    Ok(gate.consents.known_votes(approval_id))
}

/// Everyone who made a grant for this principal that can still be used.
pub async fn granters(
    gate: &Gate,
    principal_id: &PrincipalId,
) -> Result<BTreeSet<PrincipalId>, StoreError> {
    read_on(gate).await?;
    Ok(gate.consents.granters(principal_id, gate.world.now()))
}

/// Reads what was added since the last read.
pub async fn read_on(gate: &Gate) -> Result<(), StoreError> {
    gate.consents.read_on(&*gate.store).await
}

/// Records that a person approves what needs certain people or more than one. A second vote of the same
/// person changes nothing.
pub async fn vote(
    gate: &Gate,
    approval_id: ApprovalId,
    approver_id: &PrincipalId,
    note: Option<String>,
) -> Result<BTreeSet<PrincipalId>, Fault> {
    if !votes(gate, approval_id).await?.contains(approver_id) {
        let vote = ApprovalVoted { approval_id, approver_id: approver_id.clone(), note };
        gate.note(EventType::ApprovalVoted, vote).await?;
    }
    Ok(votes(gate, approval_id).await?)
}

/// What an operator asks for.
#[derive(Clone, Debug)]
pub struct NewGrant {
    /// The approval that it is made from.
    pub approval_id: ApprovalId,
    /// Conditions other than equality, by argument.
    pub args: BTreeMap<String, Condition>,
    /// How many calls it permits.
    pub uses_max: u64,
    /// How long it can be used.
    pub life_ms: u64,
    /// What the operator notes.
    pub note: Option<String>,
}

/// Why a grant was not made. Nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GrantRefused {
    /// There is no such approval.
    #[error("there is no such approval")]
    NoSuchApproval,
    /// The approval was not approved, or its call was refused afterwards.
    #[error("a grant is made from an approval that was approved and whose call was made")]
    NotApproved,
    /// The operator may not decide on such calls.
    #[error(
        "policy names other people for this call, or requires more than one: no grant is possible"
    )]
    NotAnApprover,
    /// The principal that asked may not decide.
    #[error("the principal that asked cannot decide")]
    OwnRequest,
    /// The number of uses, the time or a condition is not possible.
    #[error("{0}")]
    Invalid(String),
    /// An internal error.
    #[error(transparent)]
    Fault(Fault),
}

impl<E: Into<Fault>> From<E> for GrantRefused {
    fn from(error: E) -> Self {
        Self::Fault(error.into())
    }
}

/// Makes a grant from an approval that was approved: for the same principal and the same tool as it was then.
pub async fn create_grant(
    gate: &Gate,
    operator: &PrincipalId,
    new: NewGrant,
) -> Result<GrantStanding, GrantRefused> {
    let approval = gate.store.approval(new.approval_id).await?;
    let approval = approval.ok_or(GrantRefused::NoSuchApproval)?;
    let call = match approval.status {
        ApprovalStatus::Approved => approved_call(gate, &approval).await?,
        ApprovalStatus::Pending | ApprovalStatus::Denied | ApprovalStatus::Expired => None,
    };
    let call = call.ok_or(GrantRefused::NotApproved)?;
    let asked = approval.context.read()?;
    if asked.principal_id == *operator {
        return Err(GrantRefused::OwnRequest);
    }
    let people = BTreeSet::from([operator.clone()]);
    if !approvers::are_enough(&asked.required, &gate.groups, &people) {
        return Err(GrantRefused::NotAnApprover);
    }
    if is_changed(gate, &call) {
        let why = "the tool's definition has changed since that call was approved";
        return Err(GrantRefused::Invalid(why.to_owned()));
    }
    let no_object = || GrantRefused::Invalid("the approved call has no arguments by name".into());
    let approved = call.call.args.as_object().ok_or_else(no_object)?;
    let args = grant::conditions(approved, new.args).map_err(GrantRefused::Invalid)?;
    if let Some(defect) = defect(gate, new.life_ms, new.uses_max) {
        return Err(GrantRefused::Invalid(defect));
    }
    let grant = Grant {
        approval_id: new.approval_id,
        args,
        executor_id: call.meta.executor_id.clone(),
        expires_at: gate.world.now().plus_ms(new.life_ms),
        granted_by: operator.clone(),
        note: new.note,
        principal_id: asked.principal_id.clone(),
        tool_definition_digest: call.meta.tool_definition_digest,
        tool_name: call.call.tool_name,
        tool_server: call.call.tool_server,
        uses_max: new.uses_max,
    };
    let event = gate.note(EventType::GrantCreated, &grant).await?;
    let (grant_id, created_at) = (event.event_id, event.ts);
    Ok(GrantStanding { grant_id, grant, created_at, used: 0, revocation: None })
}

/// The call that an approval led to.
async fn approved_call(gate: &Gate, approval: &Approval) -> Result<Option<ToolCall>, GrantRefused> {
    let Some(dossier) = gate.store.dossier(approval.tool_run_id).await? else { return Ok(None) };
    Ok(replay(&dossier.entries)?.call)
}

/// Whether the tool is no longer defined as it was when it was called.
fn is_changed(gate: &Gate, call: &ToolCall) -> bool {
    let Some(called) = call.meta.tool_definition_digest else { return false };
    let name = ToolName::parse(&call.call.action()).ok();
    let tool = name.and_then(|name| gate.tools.tool(&name));
    tool.is_none_or(|tool| tool.definition_digest != called)
}

/// What is wrong with the time or the number of calls that an operator asks for.
fn defect(gate: &Gate, life_ms: u64, uses_max: u64) -> Option<String> {
    let life_max_ms = gate.limits.grant_life_max_ms;
    if life_ms == 0 {
        Some("the time must be longer than nothing".to_owned())
    } else if life_ms > life_max_ms {
        Some(format!("the time is longer than `limits.grant_life_max_ms`, which is {life_max_ms}"))
    } else if !(1..=Limits::GRANT_USES_MAX).contains(&uses_max) {
        Some(format!("a grant is for 1 to {} calls", Limits::GRANT_USES_MAX))
    } else {
        None
    }
}

/// Revokes a grant. False where there is no such grant, or it was revoked before.
pub async fn revoke_grant(
    gate: &Gate,
    grant_id: ArtifactId,
    revoked_by: PrincipalId,
) -> Result<bool, Fault> {
    read_on(gate).await?;
    let grants = gate.consents.recorded().grants;
    let is_there = grants.get(&grant_id).is_some_and(|made| made.revocation.is_none());
    if is_there {
        gate.note(EventType::GrantRevoked, GrantRevoked { grant_id, revoked_by }).await?;
    }
    Ok(is_there)
}

/// A grant, and what became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrantStanding {
    /// Its id.
    pub grant_id: ArtifactId,
    /// The grant.
    pub grant: Grant,
    /// When it was made.
    pub created_at: Timestamp,
    /// How many calls have used it.
    pub used: u64,
    /// Who revoked it, where an operator has.
    pub revocation: Option<Revocation>,
}

/// Whether a grant can still be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum GrantStatus {
    /// It can be used.
    Active,
    /// Every use of it is taken.
    UsedUp,
    /// Its time is over.
    Expired,
    /// An operator revoked it.
    Revoked,
}

impl GrantStanding {
    /// Whether it can still be used.
    pub fn status(&self, now: Timestamp) -> GrantStatus {
        match &self.revocation {
            Some(_) => GrantStatus::Revoked,
            None if self.used >= self.grant.uses_max => GrantStatus::UsedUp,
            None if now >= self.grant.expires_at => GrantStatus::Expired,
            None => GrantStatus::Active,
        }
    }
}

/// Every grant, newest first.
pub async fn grants(gate: &Gate) -> Result<Vec<GrantStanding>, StoreError> {
    read_on(gate).await?;
    let grants = gate.consents.recorded().grants;
    let mut standings = Vec::with_capacity(grants.len());
    for (grant_id, RecordedGrant { grant, ts, revocation }) in grants.into_iter().rev() {
        let used = used(&*gate.store, grant_id, grant.uses_max).await?.len() as u64;
        standings.push(GrantStanding { grant_id, grant, created_at: ts, used, revocation });
    }
    Ok(standings)
}
