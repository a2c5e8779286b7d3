//! What operators have decided in advance and together: grants, and the votes on approvals that need more
//! than one person.
//!
//! Both are events of the system session. A process keeps a cache of them and reads what was added since,
//! each time before it relies on it. So a grant that another node revoked is not used here.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::{Arc, Mutex, MutexGuard};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::approval::ApprovalStatus;
use crate::approvers::{self, Required};
use crate::attention;
use crate::event::payload::{ApprovalVoted, GrantRevoked};
use crate::event::{Event, EventType};
use crate::gate::{Fault, Gate};
use crate::grant::{self, Condition, Grant, GrantedCall, use_event_id};
use crate::ids::{ApprovalId, ArtifactId, PrincipalId};
use crate::journal::artifact::ToolCall;
use crate::journal::{Artifact, StateError, replay};
use crate::limits::Limits;
use crate::lock;
use crate::ports::{Store, StoreError};
use crate::time::Timestamp;

/// The events that hold grants and votes.
const TYPES: [EventType; 3] =
    [EventType::GrantCreated, EventType::GrantRevoked, EventType::ApprovalVoted];

/// Cache of the grants and votes of a store.
#[derive(Clone, Debug, Default)]
pub struct Consents(Arc<Mutex<Known>>);

#[derive(Debug, Default)]
struct Known {
    /// The position up to which events were read.
    position: u64,
    consents: Recorded,
    /// Uses that steps of this process are writing now.
    writing: HashSet<(ArtifactId, u64)>,
}

/// The grants and votes that events record.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recorded {
    /// Every grant, also those that were revoked or have expired.
    pub(crate) grants: BTreeMap<ArtifactId, Made>,
    revoked: BTreeMap<ArtifactId, Revocation>,
    /// Who voted for which approval.
    pub(crate) votes: BTreeMap<ApprovalId, BTreeSet<PrincipalId>>,
}

/// A grant, with the time of its event.
#[derive(Clone, Debug)]
pub(crate) struct Made {
    pub(crate) grant: Grant,
    pub(crate) ts: Timestamp,
}

/// Who revoked a grant, and when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Revocation {
    /// Who.
    pub revoked_by: PrincipalId,
    /// When.
    pub ts: Timestamp,
}

impl Recorded {
    /// Reads all of them.
    pub(crate) async fn of(store: &dyn Store) -> Result<Self, StoreError> {
        let mut recorded = Self::default();
        for placed in attention::told_since(store, &TYPES, 0).await? {
            recorded.add(&placed.event)?;
        }
        Ok(recorded)
    }

    fn add(&mut self, event: &Event) -> Result<(), StateError> {
        let unreadable = |error: serde_json::Error| {
            StateError::checksum(format!("event {}: {error}", event.event_id))
        };
        let payload = event.payload.clone();
        match event.event_type {
            EventType::GrantCreated => {
                let grant = serde_json::from_value(payload).map_err(unreadable)?;
                self.grants.insert(event.event_id, Made { grant, ts: event.ts });
            }
            EventType::GrantRevoked => {
                let GrantRevoked { grant_id, revoked_by } =
                    serde_json::from_value(payload).map_err(unreadable)?;
                self.revoked.insert(grant_id, Revocation { revoked_by, ts: event.ts });
            }
            EventType::ApprovalVoted => {
                let vote: ApprovalVoted = serde_json::from_value(payload).map_err(unreadable)?;
                self.votes.entry(vote.approval_id).or_default().insert(vote.approver_id);
            }
            _ => {}
        }
        Ok(())
    }
}

impl Consents {
    fn known(&self) -> MutexGuard<'_, Known> {
        lock::locked(&self.0)
    }

    /// Reads what this and other processes have added since the last read.
    async fn read_on(&self, store: &dyn Store) -> Result<(), StoreError> {
        let position = self.known().position;
        // Read first: no event is added later at a smaller position, so events up to it need not be read
        // again.
        let newest = store.last_position().await?;
        if newest <= position {
            return Ok(());
        }
        let added = attention::told_since(store, &TYPES, position).await?;
        let mut known = self.known();
        for placed in &added {
            known.consents.add(&placed.event)?;
        }
        let read = added.last().map_or(newest, |last| newest.max(last.position));
        known.position = known.position.max(read);
        Ok(())
    }

    /// The grants that cover a call now, the one that ends first in front.
    fn covering(
        &self,
        gate: &Gate,
        call: GrantedCall<'_>,
        required: &[Required],
    ) -> Vec<(ArtifactId, Grant)> {
        let (known, now) = (self.known(), gate.world.now());
        let Recorded { grants, revoked, .. } = &known.consents;
        let is_good = |(grant_id, made): &(&ArtifactId, &Made)| {
            let Made { grant, .. } = made;
            let people = BTreeSet::from([grant.granted_by.clone()]);
            !revoked.contains_key(grant_id)
                && now < grant.expires_at
                && grant.covers(call)
                && approvers::are_enough(required, &gate.groups, &people)
        };
        let mut good: Vec<_> = grants.iter().filter(is_good).collect();
        good.sort_by_key(|(grant_id, made)| (made.grant.expires_at, **grant_id));
        good.into_iter().map(|(grant_id, made)| (*grant_id, made.grant.clone())).collect()
    }

    /// Takes the first use of a grant that no step of this process is writing.
    fn reserve(
        &self,
        grant_id: ArtifactId,
        grant: &Grant,
        used: &BTreeSet<u64>,
    ) -> Option<GrantUse> {
        let mut known = self.known();
        let mut free = (1..=grant.uses_max).filter(|number| !used.contains(number));
        let number = free.find(|number| known.writing.insert((grant_id, *number)))?;
        Some(GrantUse { consents: self.clone(), grant_id, number, expires_at: grant.expires_at })
    }
}

/// A use of a grant that a step is about to write. Dropping it makes it free for other steps of this
/// process, unless it was written.
#[derive(Debug)]
pub(crate) struct GrantUse {
    consents: Consents,
    pub(crate) grant_id: ArtifactId,
    /// Which use it is, from 1.
    pub(crate) number: u64,
    /// Until when the grant can be used.
    pub(crate) expires_at: Timestamp,
}

impl GrantUse {
    /// The id of its event.
    pub(crate) fn event_id(&self) -> ArtifactId {
        use_event_id(self.grant_id, self.number)
    }
}

impl Drop for GrantUse {
    fn drop(&mut self) {
        self.consents.known().writing.remove(&(self.grant_id, self.number));
    }
}

/// A use of a grant that covers this call; none where a person must be asked.
pub(crate) async fn take_use(
    gate: &Gate,
    call: GrantedCall<'_>,
    required: &[Required],
) -> Result<Option<GrantUse>, StoreError> {
    let consents = &gate.consents;
    consents.read_on(&*gate.store).await?;
    for (grant_id, grant) in consents.covering(gate, call, required) {
        let used = used(&*gate.store, grant_id, grant.uses_max).await?;
        if let Some(taken) = consents.reserve(grant_id, &grant, &used) {
            return Ok(Some(taken));
        }
    }
    Ok(None)
}

/// The numbers of the uses that are recorded.
async fn used(
    store: &dyn Store,
    grant_id: ArtifactId,
    uses_max: u64,
) -> Result<BTreeSet<u64>, StoreError> {
    let uses_max = uses_max.min(Limits::GRANT_USES_MAX);
    let numbers: BTreeMap<ArtifactId, u64> =
        (1..=uses_max).map(|number| (use_event_id(grant_id, number), number)).collect();
    let event_ids: Vec<ArtifactId> = numbers.keys().copied().collect();
    let events = store.events_by_id(&event_ids).await?;
    Ok(events.iter().filter_map(|event| numbers.get(&event.event_id).copied()).collect())
}

/// Everyone who voted for an approval.
pub async fn votes(
    gate: &Gate,
    approval_id: ApprovalId,
) -> Result<BTreeSet<PrincipalId>, StoreError> {
    read_on(gate).await?;
    Ok(known_votes(gate, approval_id))
}

/// Reads what was added since the last read.
pub async fn read_on(gate: &Gate) -> Result<(), StoreError> {
    gate.consents.read_on(&*gate.store).await
}

/// Everyone who had voted for an approval when the events were last read.
pub fn known_votes(gate: &Gate, approval_id: ApprovalId) -> BTreeSet<PrincipalId> {
    gate.consents.known().consents.votes.get(&approval_id).cloned().unwrap_or_default()
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
    #[error("policy lets other people decide on this call, or more than one")]
    NotAnApprover,
    /// The principal that asked may not decide.
    #[error("the principal that asked cannot decide")]
    OwnRequest,
    /// The number of uses, the time or a condition is not possible.
    #[error("{0}")]
    Invalid(String),
    /// An internal error.
    #[error(transparent)]
    Fault(#[from] Fault),
}

impl From<StoreError> for GrantRefused {
    fn from(error: StoreError) -> Self {
        Self::Fault(error.into())
    }
}

impl From<StateError> for GrantRefused {
    fn from(error: StateError) -> Self {
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
    let now = gate.world.now();
    let grant = Grant {
        approval_id: new.approval_id,
        args: conditions(&call, new.args)?,
        expires_at: now.plus_ms(checked_life(gate, new.life_ms)?),
        granted_by: operator.clone(),
        note: new.note,
        principal_id: asked.principal_id.clone(),
        tool_definition_digest: call.meta.tool_definition_digest,
        tool_name: call.call.tool_name,
        tool_server: call.call.tool_server,
        uses_max: checked_uses(new.uses_max)?,
    };
    let event = gate.note(EventType::GrantCreated, &grant).await?;
    let (grant_id, created_at) = (event.event_id, event.ts);
    Ok(GrantStanding { grant_id, grant, created_at, used: 0, revocation: None })
}

/// The call that an approval led to.
async fn approved_call(
    gate: &Gate,
    approval: &crate::approval::Approval,
) -> Result<Option<ToolCall>, GrantRefused> {
    let Some(dossier) = gate.store.dossier(approval.tool_run_id).await? else { return Ok(None) };
    let artifacts = replay(&dossier.entries)?.artifacts.into_iter();
    Ok(artifacts.into_iter().find_map(|artifact| match artifact {
        Artifact::ToolCall(call) => Some(call),
        Artifact::ActionRequest(_) | Artifact::SupervisorDecision(_) | Artifact::ToolEffect(_) => {
            None
        }
    }))
}

fn conditions(
    call: &ToolCall,
    chosen: BTreeMap<String, Condition>,
) -> Result<BTreeMap<String, Condition>, GrantRefused> {
    let no_object = || GrantRefused::Invalid("the approved call has no arguments by name".into());
    let approved = call.call.args.as_object().ok_or_else(no_object)?;
    grant::conditions(approved, chosen).map_err(GrantRefused::Invalid)
}

fn checked_life(gate: &Gate, life_ms: u64) -> Result<u64, GrantRefused> {
    let max = gate.limits.grant_life_max_ms;
    match life_ms {
        0 => Err(GrantRefused::Invalid("the time must be longer than nothing".into())),
        life_ms if life_ms > max => {
            let why = format!("the time is longer than `limits.grant_life_max_ms`, which is {max}");
            Err(GrantRefused::Invalid(why))
        }
        life_ms => Ok(life_ms),
    }
}

fn checked_uses(uses_max: u64) -> Result<u64, GrantRefused> {
    match uses_max {
        1..=Limits::GRANT_USES_MAX => Ok(uses_max),
        _ => {
            let why = format!("a grant is for 1 to {} calls", Limits::GRANT_USES_MAX);
            Err(GrantRefused::Invalid(why))
        }
    }
}

/// Revokes a grant. False where there is no such grant, or it was revoked before.
pub async fn revoke_grant(
    gate: &Gate,
    grant_id: ArtifactId,
    revoked_by: PrincipalId,
) -> Result<bool, Fault> {
    gate.consents.read_on(&*gate.store).await?;
    let is_there = {
        let known = gate.consents.known();
        let Recorded { grants, revoked, .. } = &known.consents;
        grants.contains_key(&grant_id) && !revoked.contains_key(&grant_id)
    };
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

impl GrantStatus {
    /// The spelling that users know.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::UsedUp => "used_up",
            Self::Expired => "expired",
            Self::Revoked => "revoked",
        }
    }
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
    gate.consents.read_on(&*gate.store).await?;
    let Recorded { grants, revoked, .. } = gate.consents.known().consents.clone();
    let mut standings = Vec::with_capacity(grants.len());
    for (grant_id, Made { grant, ts }) in grants.into_iter().rev() {
        let used = used(&*gate.store, grant_id, grant.uses_max).await?;
        standings.push(GrantStanding {
            grant_id,
            used: used.len() as u64,
            created_at: ts,
            revocation: revoked.get(&grant_id).cloned(),
            grant,
        });
    }
    Ok(standings)
}
