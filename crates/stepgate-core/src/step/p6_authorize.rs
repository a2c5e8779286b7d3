//! AUTHORIZE: sandbox names, extensions, policy, and the file system itself. Silence means no.
//!
//! An [`AuthorizedRequest`] can only be made here, and only together with its decision in the
//! journal.

use serde::Serialize;

use super::p5_validate_args::ValidatedArgs;
use super::p7_execute;
use super::p8_record::Trail;
use super::{Refused, Stop};
use crate::action::{CORE_SERVER, Call, Touch};
use crate::approval::{Approval, ApprovalStatus, Resolution};
use crate::digest::Digest;
use crate::event::EventType;
use crate::failure::Failure;
use crate::gate::{Extensions, Gate};
use crate::ids::{ApprovalId, IdempotencyKey, PrincipalId};
use crate::journal::artifact::{
    ActionRequest, DecisionMeta, Invocation, RequestMeta, SupervisorDecision, Verdict,
};
use crate::journal::{Artifact, Kind, Reference, Sealed, StateError};
use crate::json::{Value, canonical, strict};
use crate::ports::{ApprovalChange, PolicyDecision, PolicyRequest, PolicyVerdict, Prepared};
use crate::time::Timestamp;

/// A call that was decided in favour of. EXECUTE takes nothing else.
pub(super) struct AuthorizedRequest {
    pub(super) call: Call,
    pub(super) args: Value,
    pub(super) key: IdempotencyKey,
    pub(super) pre_state: Option<Value>,
    pub(super) decision: Reference,
    /// Nobody outside this file can make one.
    _authority: Authority,
}

struct Authority;

/// What a person, or time, said to a paused step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Person {
    /// Yes.
    Grants {
        /// Who.
        approver_id: PrincipalId,
        /// What the person noted.
        note: Option<String>,
    },
    /// No.
    Refuses {
        /// Who.
        approver_id: PrincipalId,
        /// What the person noted.
        note: Option<String>,
    },
    /// Nobody said anything in time.
    Nobody,
}

/// Opens the journal and decides.
///
/// Spec 000, AUTHORIZE: "MUST explicitly deny violations (no best-effort execution)".
pub(super) async fn authorize(
    gate: &Gate,
    trail: &mut Trail,
    args: ValidatedArgs,
) -> Result<AuthorizedRequest, Stop> {
    open_journal(gate, trail, &args)?;
    decide(gate, trail, args).await
}

fn open_journal(gate: &Gate, trail: &mut Trail, args: &ValidatedArgs) -> Result<(), StateError> {
    let head = trail.journal().head(gate.fresh_id(), gate.world.now());
    let principal_id = trail.principal_id().clone();
    let request = ActionRequest::new(
        head,
        head.id,
        principal_id.clone(),
        Some(args.key.clone()),
        args.call.action().intent().into(),
        RequestMeta { asked_digest: args.asked, principal_id },
        Invocation {
            args: args.args.clone(),
            tool_name: args.call.action().name().into(),
            tool_server: CORE_SERVER.into(),
        },
        args.call.resources(),
        args.call.risk_level(),
    );
    trail.journal_mut().advance(Artifact::ActionRequest(request), None)?;
    trail.bind_key(args.binding(trail));
    Ok(())
}

/// Decides on a request that is in the journal and pending.
pub(super) async fn decide(
    gate: &Gate,
    trail: &mut Trail,
    args: ValidatedArgs,
) -> Result<AuthorizedRequest, Stop> {
    match judge(gate, trail.principal_id(), &args.call).await {
        Ruling::Permit(policy, prepared) => {
            let ground = Ground::of_policy(&policy, "permitted by policy");
            let decision = append_decision(gate, trail, Verdict::Approve, ground)?;
            Ok(authorized(trail, args, prepared, decision))
        }
        Ruling::Ask(policy, reason) => pause(gate, trail, args, policy, reason).await,
        Ruling::Deny(ground) => {
            let why = ground.rationale.clone();
            append_decision(gate, trail, Verdict::Deny, ground)?;
            Err(Failure::PolicyViolation(why).into())
        }
    }
}

fn authorized(
    trail: &mut Trail,
    args: ValidatedArgs,
    prepared: Prepared,
    decision: Reference,
) -> AuthorizedRequest {
    trail.keep(prepared.hold);
    let ValidatedArgs { call, args, key, .. } = args;
    let pre_state = prepared.pre_state;
    AuthorizedRequest { call, args, key, pre_state, decision, _authority: Authority }
}

/// What the sandbox and the policy say together.
enum Ruling {
    Permit(PolicyDecision, Prepared),
    Ask(PolicyDecision, String),
    Deny(Ground),
}

/// Why a decision was taken, for the journal.
struct Ground {
    rationale: String,
    policy_hash: Option<Digest>,
    meta: DecisionMeta,
}

impl Ground {
    fn of_policy(policy: &PolicyDecision, rationale: &str) -> Self {
        Self {
            rationale: rationale.to_owned(),
            policy_hash: Some(policy.policy_hash),
            meta: DecisionMeta { policies: policy.policies.clone(), ..DecisionMeta::default() },
        }
    }

    fn of_person() -> Self {
        Self { rationale: "not approved".into(), policy_hash: None, meta: DecisionMeta::default() }
    }

    fn of_sandbox(rule: &str) -> Self {
        Self {
            rationale: format!("sandbox: {rule}"),
            policy_hash: None,
            meta: DecisionMeta { policies: vec!["sandbox".into()], ..DecisionMeta::default() },
        }
    }
}

/// Names first, then policy, then the file system: what is refused by its name is never looked at.
async fn judge(gate: &Gate, principal_id: &PrincipalId, call: &Call) -> Ruling {
    if let Some(rule) = broken_name_rule(&gate.extensions, call) {
        return Ruling::Deny(Ground::of_sandbox(rule));
    }
    let policy = gate.policy.decide(PolicyRequest { principal_id, call });
    let reason = match &policy.verdict {
        PolicyVerdict::Permit => None,
        PolicyVerdict::RequireApproval(reason) => Some(reason.clone()),
        PolicyVerdict::Deny => {
            let rationale = match policy.policies.as_slice() {
                [] => "no policy permits it".to_owned(),
                policies => format!("denied by {}", policies.join(", ")),
            };
            return Ruling::Deny(Ground::of_policy(&policy, &rationale));
        }
    };
    match (prepare(gate, call).await, reason) {
        (Err(rule), _) => Ruling::Deny(Ground::of_sandbox(rule)),
        (Ok(prepared), None) => Ruling::Permit(policy, prepared),
        // Nothing is held while a person thinks.
        (Ok(_), Some(reason)) => Ruling::Ask(policy, reason),
    }
}

async fn prepare(gate: &Gate, call: &Call) -> Result<Prepared, &'static str> {
    match call.touch() {
        Touch::Nothing => Ok(Prepared { pre_state: None, hold: Box::new(()) }),
        Touch::Reads | Touch::Writes => gate.executor.prepare(call).await,
    }
}

/// Spec 000, AUTHORIZE: "MUST enforce file extension restrictions".
fn broken_name_rule(extensions: &Extensions, call: &Call) -> Option<&'static str> {
    if call.paths().iter().any(|path| path.has_reserved_component()) {
        return Some("reserved name");
    }
    let allowed = match call.touch() {
        Touch::Nothing | Touch::Reads => &extensions.read,
        Touch::Writes => &extensions.write,
    };
    let is_allowed = |extension: &str| allowed.iter().any(|allowed| allowed == extension);
    let all_allowed = call.file_paths().iter().all(|path| path.extension().is_some_and(is_allowed));
    (!all_allowed).then_some("file extension")
}

fn append_decision(
    gate: &Gate,
    trail: &mut Trail,
    verdict: Verdict,
    ground: Ground,
) -> Result<Reference, StateError> {
    let decision = decision(gate, trail, verdict, ground)?;
    trail.journal_mut().advance(Artifact::SupervisorDecision(decision), None)
}

fn decision(
    gate: &Gate,
    trail: &Trail,
    verdict: Verdict,
    ground: Ground,
) -> Result<SupervisorDecision, StateError> {
    let request = trail.journal().reference(Kind::ActionRequest)?;
    let head = trail.journal().head(gate.fresh_id(), gate.world.now());
    Ok(SupervisorDecision::new(
        head,
        request.digest,
        request.id,
        verdict,
        ground.meta,
        ground.policy_hash,
        ground.rationale,
        head.id,
    ))
}

/// What a person is shown, and what the approval is bound to.
#[derive(Serialize)]
struct ApprovalContext<'a> {
    args: &'a Value,
    call_digest: Digest,
    expires_at: Timestamp,
    needs_approval: &'a SupervisorDecision,
    needs_approval_digest: Digest,
    principal_id: &'a PrincipalId,
    reason: &'a str,
    tool_name: &'a str,
    tool_server: &'a str,
}

/// What an approval is good for: this call by this principal, and no other.
#[derive(Serialize)]
struct BoundCall<'a> {
    args: &'a Value,
    principal_id: &'a PrincipalId,
    tool_name: &'a str,
    tool_server: &'a str,
}

/// Asks a person: request, question and key become durable together, and nothing is held.
async fn pause(
    gate: &Gate,
    trail: &mut Trail,
    args: ValidatedArgs,
    policy: PolicyDecision,
    reason: String,
) -> Result<AuthorizedRequest, Stop> {
    let ground = Ground::of_policy(&policy, &reason);
    let needs_approval = decision(gate, trail, Verdict::NeedsApproval, ground)?;
    let sealed: Sealed = Artifact::SupervisorDecision(needs_approval.clone()).seal();
    let tool_name = args.call.action().name();
    let principal_id = trail.principal_id();
    let now = gate.world.now();
    let context = ApprovalContext {
        args: &args.args,
        call_digest: Digest::of(&BoundCall {
            args: &args.args,
            principal_id,
            tool_name,
            tool_server: CORE_SERVER,
        }),
        expires_at: now.plus_ms(gate.limits.approval_ttl_ms),
        needs_approval: &needs_approval,
        needs_approval_digest: sealed.digest,
        principal_id,
        reason: &reason,
        tool_name,
        tool_server: CORE_SERVER,
    };
    let approval = Approval {
        approval_context_json: canonical::text_of(&context),
        approval_id: ApprovalId::new(gate.world.fresh_uuid()),
        resolution: None,
        status: ApprovalStatus::Pending,
        tool_run_id: trail.run_id(),
        ts_requested: now,
    };
    let approval_id = approval.approval_id;
    let payload = serde_json::json!({
        "approval_digest": approval.digest(),
        "approval_id": approval_id,
        "reason": reason,
        "tool": tool_name,
    });
    trail.note(gate, EventType::ApprovalRequested, payload);
    trail.change_approval(ApprovalChange::Ask(approval));
    trail.commit_pause(gate).await?;
    Err(Stop::Paused(approval_id))
}

/// Decides on a paused request as a person did, if policy still lets a person decide.
///
/// The decision, its event, the approval and, on a grant, the call become durable together: the next
/// commit of the trail takes them all.
pub(super) async fn authorize_by_person(
    gate: &Gate,
    trail: &mut Trail,
    args: ValidatedArgs,
    person: Person,
) -> Result<Result<AuthorizedRequest, Failure>, Refused> {
    let approval = trail.pending_approval().ok_or(Refused::AlreadyDecided)?;
    let said = Said::by(person);
    if said.approver_id.as_ref() == Some(trail.principal_id()) {
        return Err(Refused::OwnRequest);
    }
    let (mut ground, granted) = match said.refusal {
        None => grant(gate, trail.principal_id(), &args.call).await,
        Some(ref failure) => (Ground::of_person(), Err(failure.clone())),
    };
    ground.meta.approval_id = Some(approval.approval_id);
    ground.meta.approver_id.clone_from(&said.approver_id);
    ground.meta.note_digest = said.note.as_ref().map(|note| Digest::of_bytes(note.as_bytes()));
    ground.meta.needs_approval_digest = Some(needs_approval_digest(&approval)?);
    let verdict = if granted.is_ok() { Verdict::Approve } else { Verdict::Deny };
    let decision = append_decision(gate, trail, verdict, ground)?;
    let Said { status, event_type, approver_id, note, .. } = said;
    let resolution = Some(Resolution { approver_id, note, ts_resolved: gate.world.now() });
    let decided = Approval { status, resolution, ..approval };
    // The digest, so that the row is provable before there is a record.
    let payload = serde_json::json!({
        "approval_digest": decided.digest(),
        "approval_id": decided.approval_id,
        "approver_id": decided.resolution.as_ref().and_then(|made| made.approver_id.as_ref()),
    });
    trail.note(gate, event_type, payload);
    trail.change_approval(ApprovalChange::Decide(decided));
    Ok(granted.map(|prepared| authorized(trail, args, prepared, decision)))
}

/// A person's word, with what follows from it.
struct Said {
    status: ApprovalStatus,
    event_type: EventType,
    approver_id: Option<PrincipalId>,
    note: Option<String>,
    /// Why the step is refused; none on a grant.
    refusal: Option<Failure>,
}

impl Said {
    fn by(person: Person) -> Self {
        let (status, event_type, approver_id, note, refusal) = match person {
            Person::Grants { approver_id, note } => {
                let approver_id = Some(approver_id);
                (ApprovalStatus::Approved, EventType::ApprovalGranted, approver_id, note, None)
            }
            Person::Refuses { approver_id, note } => (
                ApprovalStatus::Denied,
                EventType::ApprovalDenied,
                Some(approver_id),
                note,
                Some(Failure::DeniedByOperator),
            ),
            Person::Nobody => (
                ApprovalStatus::Expired,
                EventType::ApprovalExpired,
                None,
                None,
                Some(Failure::ApprovalExpired),
            ),
        };
        Self { status, event_type, approver_id, note, refusal }
    }
}

/// A grant does not bypass policy: it is asked again, and only what needed a person is settled.
async fn grant(
    gate: &Gate,
    principal_id: &PrincipalId,
    call: &Call,
) -> (Ground, Result<Prepared, Failure>) {
    let denied = |ground: Ground| {
        let why = Failure::PolicyViolation(ground.rationale.clone());
        (ground, Err(why))
    };
    match judge(gate, principal_id, call).await {
        Ruling::Permit(policy, prepared) => (Ground::of_policy(&policy, "approved"), Ok(prepared)),
        Ruling::Ask(policy, _) => match prepare(gate, call).await {
            Ok(prepared) => (Ground::of_policy(&policy, "approved"), Ok(prepared)),
            Err(rule) => denied(Ground::of_sandbox(rule)),
        },
        Ruling::Deny(ground) => denied(ground),
    }
}

fn needs_approval_digest(approval: &Approval) -> Result<Digest, Refused> {
    let context = strict::stored(&approval.approval_context_json)
        .map_err(|refusal| StateError::checksum(format!("approval context: {refusal}")))?;
    context
        .get("needs_approval_digest")
        .and_then(Value::as_str)
        .and_then(|digest| digest.parse().ok())
        .ok_or_else(|| StateError::checksum("approval context without its decision").into())
}

/// Policy again, for a request that was authorized before a crash. What is refused now is recorded as
/// a call with effect DENIED, and nothing is dispatched (decision D11).
pub(super) async fn authorize_again(
    gate: &Gate,
    trail: &mut Trail,
    args: ValidatedArgs,
) -> Result<AuthorizedRequest, Stop> {
    let decision = trail.journal().reference(Kind::SupervisorDecision)?;
    match judge(gate, trail.principal_id(), &args.call).await {
        Ruling::Permit(_, prepared) => Ok(authorized(trail, args, prepared, decision)),
        Ruling::Ask(..) if trail.was_approved() => match prepare(gate, &args.call).await {
            Ok(prepared) => Ok(authorized(trail, args, prepared, decision)),
            Err(rule) => Err(refuse(gate, trail, args, decision, format!("sandbox: {rule}"))?),
        },
        Ruling::Ask(..) => {
            let why = "policy now asks for an approval".to_owned();
            Err(refuse(gate, trail, args, decision, why)?)
        }
        Ruling::Deny(ground) => Err(refuse(gate, trail, args, decision, ground.rationale)?),
    }
}

fn refuse(
    gate: &Gate,
    trail: &mut Trail,
    args: ValidatedArgs,
    decision: Reference,
    why: String,
) -> Result<Stop, StateError> {
    let ValidatedArgs { call, args, key, .. } = args;
    let request =
        AuthorizedRequest { call, args, key, pre_state: None, decision, _authority: Authority };
    p7_execute::refuse(gate, trail, request, why).map(Stop::Failure)
}
