//! A person's part in AUTHORIZE: the question, and the decision.

use std::collections::BTreeSet;
use tracing::instrument;

use super::super::p5_validate_args::ValidatedArgs;
use super::super::p8_record::{Asker, Trail};
use super::super::{Refused, Stop};
use super::{
    AuthorizedRequest, Ground, Judged, Question, Ready, Ruling, append_decision, ask, authorized,
    decision, judge, make_ready,
};
use crate::approval::{Approval, ApprovalContext, ApprovalStatus, Resolution, StoredContext};
use crate::approvers;
use crate::digest::Digest;
use crate::event::{EventType, payload};
use crate::failure::{Failure, OpenLimit};
use crate::gate::{Asking, Gate};
use crate::ids::{ApprovalId, PrincipalId};
use crate::journal::artifact::{DecisionMeta, Verdict};
use crate::journal::{Artifact, Sealed};
use crate::json::{Value, canonical};
use crate::limits::Limits;
use crate::ports::{ApprovalChange, StoreError};
use crate::run::Status;
use crate::spans::PHASE;
use crate::time::Timestamp;

/// Longest arguments that the event of a question repeats, in bytes. The approval has them in any length.
const EVENT_ARGS_BYTES_MAX: usize = 4096;

/// A person's decision on a paused step, or its expiry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Person {
    /// Yes.
    Approves {
        /// Who.
        approver_id: PrincipalId,
        /// What the person noted.
        note: Option<String>,
    },
    /// No.
    Denies {
        /// Who.
        approver_id: PrincipalId,
        /// What the person noted.
        note: Option<String>,
    },
    /// The time limit passed without a decision.
    Nobody,
}

/// Asks a person: request, approval and key become durable together, and no hold is kept. Where a limit on open
/// approvals is reached, the step is refused, and no approval is written.
pub(super) async fn pause(
    gate: &Gate,
    trail: &mut Trail,
    args: ValidatedArgs,
    question: Question,
) -> Result<AuthorizedRequest, Stop> {
    let Question { ground, required, pre_state } = question;
    let asking = gate.parked.begin_asking(trail.principal_id());
    if let Some(limit) = reached(gate, trail.principal_id(), &asking).await? {
        let failure = Failure::TooManyApprovals(limit);
        let rationale = failure.detail().unwrap_or_default();
        append_decision(gate, trail, Verdict::Deny, Ground { rationale, ..ground })?;
        return Err(failure.into());
    }
    let reason = ground.rationale.clone();
    let needs_approval = decision(gate, trail, Verdict::NeedsApproval, ground)?;
    let sealed: Sealed = Artifact::SupervisorDecision(needs_approval.clone()).seal();
    let principal_id = trail.principal_id();
    let now = gate.world.now();
    let context = StoredContext::of(&ApprovalContext {
        args: args.args.clone(),
        call_digest: Digest::of(&args.bound(principal_id, None)),
        executor_id: gate.executor_of(&args.call),
        expires_at: now.plus_ms(gate.limits.approval_ttl_ms),
        needs_approval,
        needs_approval_digest: sealed.digest,
        pre_state,
        principal_id: principal_id.clone(),
        reason: reason.clone(),
        required,
        tool_name: args.call.tool_name().to_owned(),
        tool_server: args.call.tool_server().to_owned(),
    });
    let approval = Approval {
        context,
        approval_id: ApprovalId::new(gate.world.fresh_uuid()),
        resolution: None,
        status: ApprovalStatus::Pending,
        tool_run_id: trail.run_id(),
        ts_requested: now,
    };
    let approval_id = approval.approval_id;
    let is_short = canonical::text_of(&args.args).len() <= EVENT_ARGS_BYTES_MAX;
    let payload = payload::ApprovalRequested {
        approval_digest: approval.digest(),
        approval_id,
        args: is_short.then(|| args.args.clone()),
        expires_at: approval.expires_at(),
        principal_id: trail.principal_id().clone(),
        reason,
        tool: args.call.name().to_owned(),
    };
    trail.note(gate, EventType::ApprovalRequested, payload);
    trail.change_approval(ApprovalChange::Ask(approval));
    trail.commit_as(gate, Status::ApprovalRequired).await?;
    drop(asking);
    Err(Stop::Paused(approval_id))
}

/// The limit that one more open approval of this principal would exceed.
async fn reached(
    gate: &Gate,
    principal_id: &PrincipalId,
    asking: &Asking,
) -> Result<Option<OpenLimit>, StoreError> {
    let Limits { approvals_open_max, approvals_open_total_max, .. } = gate.limits;
    let own = gate.store.open_approvals(Some(principal_id)).await?.saturating_add(asking.count);
    if own > approvals_open_max {
        return Ok(Some(OpenLimit::OfPrincipal(approvals_open_max)));
    }
    let total = gate.store.open_approvals(None).await?.saturating_add(asking.total);
    let free = approvals_open_total_max.checked_sub(total);
    // As with connections: one more than is left then, so that the last one can be taken.
    let is_fair = free.is_some_and(|free| own <= free.saturating_add(1));
    Ok((!is_fair).then_some(OpenLimit::Total(approvals_open_total_max)))
}

/// Decides on a paused request as the person did, if policy still lets a person decide.
///
/// The decision, its event, the approval and, where it is approved, the call become durable together: the next
/// commit of the trail takes them all. `with` are others who have voted, and whose votes count beside this
/// person's.
#[instrument(target = PHASE, name = "AUTHORIZE", level = "debug", skip_all)]
pub(in crate::step) async fn authorize_by_person(
    gate: &Gate,
    trail: &mut Trail,
    args: ValidatedArgs,
    person: Person,
    with: &BTreeSet<PrincipalId>,
) -> Result<Result<AuthorizedRequest, Failure>, Refused> {
    let approval = trail.pending_approval().ok_or(Refused::AlreadyDecided)?;
    let asked = approval.context.read()?;
    let said = Said::by(in_time(person, asked.expires_at, gate.world.now()));
    let approver_ids = deciders(gate, trail.principal_id(), &approval, &said, with).await?;
    let (mut ground, granted) = match said.refusal {
        None => {
            gate.consents.read_on(&*gate.store).await?;
            // The question stays open: once the stop is lifted, the person can approve.
            if let Some(why) = gate.consents.stopped(trail.parties(&args.call)) {
                return Err(Refused::Stopped(why));
            }
            let mut people = approver_ids.clone();
            people.extend(said.approver_id.clone());
            approve_call(gate, &trail.asker(), args, asked, &people).await?
        }
        Some(ref failure) => {
            let (rationale, meta) = ("not approved".to_owned(), DecisionMeta::default());
            (Ground { rationale, policy_hash: None, meta }, Err(failure.clone()))
        }
    };
    ground.meta.approval_id = Some(approval.approval_id);
    ground.meta.approver_id.clone_from(&said.approver_id);
    ground.meta.approver_ids = approver_ids;
    ground.meta.note_digest = said.note.as_ref().map(|note| Digest::of_bytes(note.as_bytes()));
    ground.meta.needs_approval_digest = Some(asked.needs_approval_digest);
    let verdict = if granted.is_ok() { Verdict::Approve } else { Verdict::Deny };
    let decision = append_decision(gate, trail, verdict, ground)?;
    let Said { status, event_type, approver_id, note, .. } = said;
    let resolution = Some(Resolution { approver_id, note, ts_resolved: gate.world.now() });
    let decided = Approval { status, resolution, ..approval };
    // Holds the digest, so that the approval's row can be verified before there is a record.
    let payload = payload::ApprovalDecided {
        approval_digest: decided.digest(),
        approval_id: decided.approval_id,
        approver_id: decided.resolution.as_ref().and_then(|made| made.approver_id.clone()),
    };
    trail.note(gate, event_type, payload);
    trail.change_approval(ApprovalChange::Decide(decided));
    Ok(granted.map(|(judged, ready)| authorized(trail, judged, ready, decision)))
}

/// Everyone who approved, where policies require certain people or more than one. An error where the person
/// may not decide, or where more people must approve.
async fn deciders(
    gate: &Gate,
    asker: &PrincipalId,
    approval: &Approval,
    said: &Said,
    with: &BTreeSet<PrincipalId>,
) -> Result<BTreeSet<PrincipalId>, Refused> {
    let asked = approval.context.read()?;
    let Some(approver_id) = &said.approver_id else { return Ok(BTreeSet::new()) };
    if approver_id == asker {
        return Err(Refused::OwnRequest);
    }
    if !approvers::may_decide(&asked.required, &gate.groups, approver_id) {
        return Err(Refused::NotAnApprover);
    }
    if asked.required.is_empty() || said.status != ApprovalStatus::Approved {
        return Ok(BTreeSet::new());
    }
    gate.consents.read_on(&*gate.store).await?;
    let votes = gate.consents.known_votes(approval.approval_id);
    let mut people: BTreeSet<PrincipalId> = votes.intersection(with).cloned().collect();
    people.insert(approver_id.clone());
    match approvers::are_enough(&asked.required, &gate.groups, &people) {
        true => Ok(people),
        false => Err(Refused::MorePeople),
    }
}

/// A person's decision, with its consequences.
struct Said {
    status: ApprovalStatus,
    event_type: EventType,
    approver_id: Option<PrincipalId>,
    note: Option<String>,
    /// Why the step is refused; none where it is approved.
    refusal: Option<Failure>,
}

impl Said {
    fn by(person: Person) -> Self {
        match person {
            Person::Approves { approver_id, note } => Self {
                status: ApprovalStatus::Approved,
                event_type: EventType::ApprovalGranted,
                approver_id: Some(approver_id),
                note,
                refusal: None,
            },
            Person::Denies { approver_id, note } => Self {
                status: ApprovalStatus::Denied,
                event_type: EventType::ApprovalDenied,
                refusal: Some(Failure::DeniedByOperator {
                    approver_id: approver_id.clone(),
                    note: note.clone(),
                }),
                approver_id: Some(approver_id),
                note,
            },
            Person::Nobody => Self {
                status: ApprovalStatus::Expired,
                event_type: EventType::ApprovalExpired,
                approver_id: None,
                note: None,
                refusal: Some(Failure::ApprovalExpired),
            },
        }
    }
}

/// An approval does not bypass policy: policy is asked again, and the approval replaces only the requirement
/// of a person. The call that would be sent now must be the one that the person saw.
async fn approve_call(
    gate: &Gate,
    asker: &Asker,
    args: ValidatedArgs,
    asked: &ApprovalContext,
    people: &BTreeSet<PrincipalId>,
) -> Result<(Ground, Result<(Judged, Ready), Failure>), Refused> {
    let denied = |ground: Ground| {
        let why = Failure::PolicyViolation(ground.rationale.clone());
        (ground, Err(why))
    };
    let again = ask(gate, asker, args, |_, _| {}).await?;
    let (mut ground, judged, ready) = match judge(gate, again).await {
        Ok(Ruling::Permit(ground, judged, ready)) => (ground, judged, Ok(ready)),
        // Policy may have become stricter since the question was asked.
        Ok(Ruling::Ask(Question { required, .. }, _))
            if !approvers::are_enough(&required, &gate.groups, people) =>
        {
            return Err(Refused::MorePeople);
        }
        Ok(Ruling::Ask(Question { ground, .. }, judged)) => {
            let ready = make_ready(gate, &judged.args.call).await;
            (ground, judged, ready)
        }
        Err(ground) => return Ok(denied(ground)),
    };
    Ok(match ready {
        _ if Digest::of(&judged.args.bound(&asker.principal_id, None)) != asked.call_digest => {
            denied(Ground::of_rule("approval", "the call is no longer the one that was approved"))
        }
        Err(rule) => denied(Ground::of_rule("sandbox", rule)),
        Ok(ready) if !still_stands(gate, asked.pre_state.as_ref(), ready.pre_state.as_ref()) => {
            denied(Ground::of_rule("approval", "the file is no longer the one that was approved"))
        }
        Ok(ready) => {
            ground.rationale = "approved".into();
            (ground, Ok((judged, ready)))
        }
    })
}

/// Whether the file that the person was asked about is the one that the call would change.
fn still_stands(gate: &Gate, asked: Option<&Value>, now: Option<&Value>) -> bool {
    match (asked, now) {
        (Some(asked), Some(now)) => gate.executor.is_as_asked(asked, now),
        (Some(_), None) => false,
        (None, _) => true,
    }
}

/// An approval that comes after the expiry counts as expired: the expiry may not have been recorded yet.
fn in_time(person: Person, expires_at: Timestamp, now: Timestamp) -> Person {
    match person {
        Person::Approves { .. } if now >= expires_at => Person::Nobody,
        Person::Approves { .. } | Person::Denies { .. } | Person::Nobody => person,
    }
}

#[cfg(test)]
mod tests;
