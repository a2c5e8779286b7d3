//! AUTHORIZE: stops, names, extensions, pins, policy, and the state of the sandbox. Without a permit the answer is
//! no.
//!
//! An [`AuthorizedRequest`] can only be made here, and only together with its decision in the
//! journal. What a person adds to it is in `person.rs`, what a grant adds in `granted.rs`, how a policy lowers arguments in `cap.rs`.

mod cap;
mod granted;
mod person;

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::Poll;
use tracing::instrument;

use super::Stop;
use super::p5_validate_args::ValidatedArgs;
use super::p7_execute;
use super::p8_record::{Asker, Trail};
use crate::action::{CoreCall, Touch};
use crate::approvers::Required;
use crate::assumed::Assumed;
use crate::budget::Charge;
use crate::budgets::Accounts;
use crate::call::{Call, ServerCall};
use crate::digest::Digest;
use crate::event::EventType;
use crate::facts::Facts;
use crate::failure::Failure;
use crate::gate::{Extensions, Gate};
use crate::ids::{IdempotencyKey, PrincipalId};
use crate::journal::artifact::{
    ActionRequest, DecisionMeta, Invocation, RequestMeta, SupervisorDecision, Verdict,
};
use crate::journal::{Artifact, Kind, Reference, StateError};
use crate::json::Value;
use crate::labels;
use crate::origins;
use crate::ports::{
    ApprovalNeed, Failed, Hold, PolicyDecision, PolicyRequest, PolicyVerdict, StoreError,
};
use crate::run::Status;
use crate::shadow;
use crate::spans::PHASE;
use crate::tool::Standing;

pub use person::Person;

pub(super) use cap::tighten;
pub(super) use person::authorize_by_person;

/// A call that was permitted. EXECUTE takes nothing else.
pub(super) struct AuthorizedRequest {
    /// The call as it is sent.
    pub(super) call: Call,
    /// Its arguments in their stored form.
    pub(super) args: Value,
    pub(super) key: IdempotencyKey,
    pub(super) pre_state: Option<Value>,
    /// Why the call cannot be sent although it is permitted.
    pub(super) unready: Option<Failed>,
    pub(super) decision: Reference,
    /// What the call takes from budgets.
    pub(super) charges: Vec<Charge>,
    /// Private, so that only this module can make an `AuthorizedRequest`.
    _authority: Authority,
}

struct Authority;

/// Opens the journal and decides.
///
/// Spec 000, AUTHORIZE: "MUST explicitly deny violations (no best-effort execution)".
#[instrument(target = PHASE, name = "AUTHORIZE", level = "debug", skip_all)]
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
        args.call.intent().into(),
        RequestMeta { asked_digest: args.asked, principal_id },
        Invocation {
            args: args.args.clone(),
            tool_name: args.call.tool_name().into(),
            tool_server: args.call.tool_server().into(),
        },
        args.call.resources(),
        args.call.risk_level(),
    );
    trail.advance(Artifact::ActionRequest(request), None)?;
    trail.binding = Some(args.binding(trail));
    Ok(())
}

/// Decides on a request that is in the journal and pending.
pub(super) async fn decide(
    gate: &Gate,
    trail: &mut Trail,
    args: ValidatedArgs,
) -> Result<AuthorizedRequest, Stop> {
    let ruling = match stopped(gate, trail, &args) {
        Some(ground) => Err(ground),
        None => judge_visibly(gate, trail, args).await?,
    };
    match ruling {
        Ok(Ruling::Permit(ground, judged, ready)) => {
            let decision = append_decision(gate, trail, Verdict::Approve, ground)?;
            Ok(authorized(trail, judged, ready, decision))
        }
        Ok(Ruling::Ask(question, judged)) => {
            match granted::authorize(gate, trail, &question, judged).await? {
                Ok(request) => Ok(request),
                Err(judged) => person::pause(gate, trail, judged.args, question).await,
            }
        }
        Err(ground) => {
            let why = ground.rationale.clone();
            append_decision(gate, trail, Verdict::Deny, ground)?;
            Err(Failure::PolicyViolation(why).into())
        }
    }
}

/// Why a call that a stop covers is denied, whatever policy says.
fn stopped(gate: &Gate, trail: &Trail, args: &ValidatedArgs) -> Option<Ground> {
    let rationale = gate.consents.stopped(trail.parties(&args.call))?;
    let meta = DecisionMeta { policies: vec!["stop".to_owned()], ..DecisionMeta::default() };
    Some(Ground { rationale, policy_hash: None, meta })
}

/// Decides. A call that has to wait for a permit of its server is an accepted request: its row is written
/// before it waits, so that operators see it and a crash does not lose it.
async fn judge_visibly(
    gate: &Gate,
    trail: &mut Trail,
    args: ValidatedArgs,
) -> Result<Result<Ruling, Ground>, Stop> {
    let waits_for_a_place = matches!(args.call, Call::Server(_));
    let asked = ask(gate, &trail.asker(), args, |request, in_force| {
        // The event is part of a commit that is made anyway.
        if let Some(shadow) = gate.policy.shadow(request, in_force) {
            let difference = shadow::difference(request, in_force, &shadow);
            trail.note(gate, EventType::PolicyDiffers, difference);
        }
    })
    .await?;
    if !trail.is_open() && asked.shows_erasable() {
        return Err(Stop::Reread);
    }
    let mut judging = pin!(judge(gate, asked));
    if let Some(ruling) = at_once(judging.as_mut()).await {
        return Ok(ruling);
    }
    if waits_for_a_place && !trail.is_open() {
        trail.commit_as(gate, Status::Started).await?;
    }
    Ok(judging.await)
}

/// Polls a future once: its output, or none where it has to wait.
async fn at_once<F: Future>(mut future: Pin<&mut F>) -> Option<F::Output> {
    let polled = poll_fn(|context| Poll::Ready(future.as_mut().poll(context))).await;
    match polled {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

fn authorized(
    trail: &mut Trail,
    judged: Judged,
    ready: Ready,
    decision: Reference,
) -> AuthorizedRequest {
    let Ready { pre_state, hold, unready } = ready;
    let Judged { args: ValidatedArgs { call, args, key, .. }, charges } = judged;
    trail.hold = Some(hold);
    let _authority = Authority;
    AuthorizedRequest { call, args, key, pre_state, unready, decision, charges, _authority }
}

/// The joint ruling of names, pins, policy and sandbox, where they do not deny the call.
enum Ruling {
    Permit(Ground, Judged, Ready),
    Ask(Question, Judged),
}

/// A call that may be sent.
struct Judged {
    /// The arguments as they would be sent.
    args: ValidatedArgs,
    /// What the call takes from budgets.
    charges: Vec<Charge>,
}

/// The question to a person.
struct Question {
    ground: Ground,
    /// What policies require of the people who decide.
    required: Vec<Required>,
    /// The state before the call, where the person decides on that too.
    pre_state: Option<Value>,
}

/// A call that an executor has checked and is ready to run.
struct Ready {
    pre_state: Option<Value>,
    hold: Hold,
    unready: Option<Failed>,
}

impl Ready {
    fn at_once() -> Self {
        Self { pre_state: None, hold: Box::new(()), unready: None }
    }
}

/// Why a decision was taken, for the journal.
#[derive(Clone)]
struct Ground {
    rationale: String,
    policy_hash: Option<Digest>,
    meta: DecisionMeta,
}

/// A policy's decision, with the facts that it knew.
type Decided<'a> = (&'a PolicyDecision, &'a Facts);

impl Ground {
    fn of_policy((policy, facts): Decided<'_>, cap: Option<Value>, rationale: String) -> Self {
        let defaults = Some(&policy.defaults).filter(|defaults| !defaults.is_empty());
        Self {
            rationale,
            policy_hash: Some(policy.policy_hash),
            meta: DecisionMeta {
                policies: policy.policies.clone(),
                cap,
                defaults: defaults.cloned().map(Value::Object),
                facts: facts.recorded(),
                ..DecisionMeta::default()
            },
        }
    }

    /// A policy permits the call, but with caps that its contract does not allow.
    fn of_cap(decided: Decided<'_>, rule: &str) -> Self {
        let caps = decided.0.caps.iter().map(|(name, max)| (name.clone(), Value::from(*max)));
        Self::of_policy(decided, Some(Value::Object(caps.collect())), format!("cap: {rule}"))
    }

    /// A rule of the sandbox or of the pins, which no policy can override.
    fn of_rule(keeper: &str, rule: &str) -> Self {
        Self {
            rationale: format!("{keeper}: {rule}"),
            policy_hash: None,
            meta: DecisionMeta { policies: vec![keeper.to_owned()], ..DecisionMeta::default() },
        }
    }
}

/// What is known beside a call, and the accounts that it is charged to, where budgets cover it.
async fn known_beside(
    gate: &Gate,
    asker: &Asker,
    call: &Call,
) -> Result<(Facts, Accounts), StoreError> {
    let Asker { ref principal_id, session_id, step_index } = *asker;
    let mut facts = gate.facts_of(principal_id, call);
    labels::add_to(&mut facts, gate, session_id, call).await?;
    let accounts = Accounts::read(gate, principal_id, session_id, call).await?;
    facts.used = accounts.used();
    let needs = gate.policy.needs(call.name());
    if needs.opened {
        let session = gate.store.session(session_id).await?;
        let session = session.ok_or(StoreError::UnknownSession(session_id))?;
        facts.opened = Some(gate.facts.schedule.open_at(session.ts));
    }
    facts.steps = needs.steps.then(|| step_index.saturating_sub(1));
    if needs.origins {
        let given = origins::given(gate, session_id).await?;
        (facts.targets, facts.addresses) =
            origins::origins_of(&given, call, &gate.facts.directories);
    }
    Ok((facts, accounts))
}

/// What policy says about a call, or the rule that refuses it whatever policy says.
struct Asked {
    args: ValidatedArgs,
    facts: Facts,
    policy: Result<PolicyDecision, Ground>,
    charges: Vec<Charge>,
}

impl Asked {
    /// Whether an argument is stored as it is that the policies which decided make erasable: the set was replaced after the
    /// proposal was read.
    fn shows_erasable(&self) -> bool {
        match (&self.policy, &self.args.call) {
            (Ok(decision), Call::Server(call)) => !decision.erasable.are_hidden_in(call),
            (Ok(_) | Err(_), Call::Core(_)) | (Err(_), Call::Server(_)) => false,
        }
    }
}

/// Names first, then policy: a call that is refused by its name reaches neither policy nor the sandbox. Nothing waits
/// after the decision, so that what `decided` notes is part of the commit that opens the run.
async fn ask(
    gate: &Gate,
    asker: &Asker,
    args: ValidatedArgs,
    decided: impl FnOnce(PolicyRequest<'_>, &PolicyDecision),
) -> Result<Asked, StoreError> {
    loop {
        let (facts, accounts) = known_beside(gate, asker, &args.call).await?;
        if let Some(ground) = judge_name(gate, &args.call) {
            return Ok(Asked { args, facts, policy: Err(ground), charges: Vec::new() });
        }
        let call = args.call.written().into_owned();
        let request =
            PolicyRequest { principal_id: &asker.principal_id, call: &call, facts: &facts };
        let decision = gate.policy.decide(request);
        // None: the policy set was replaced after the budgets were read.
        if let Some(charges) = accounts.charges(&decision.due) {
            decided(request, &decision);
            return Ok(Asked { args, facts, policy: Ok(decision), charges });
        }
    }
}

/// Then the caps, then the sandbox. The error says why the call is denied.
async fn judge(gate: &Gate, asked: Asked) -> Result<Ruling, Ground> {
    let Asked { args, facts, policy, charges } = asked;
    let policy = policy?;
    let decided = (&policy, &facts);
    let need = match &policy.verdict {
        PolicyVerdict::Permit => None,
        PolicyVerdict::RequireApproval(need) => Some(need.clone()),
        PolicyVerdict::Deny => {
            let rationale = match (&policy.detail, policy.policies.as_slice()) {
                (Some(detail), _) => detail.clone(),
                (None, []) => "no policy permits it".to_owned(),
                (None, policies) => format!("denied by {}", policies.join(", ")),
            };
            return Err(Ground::of_policy(decided, None, rationale));
        }
    };
    let (args, cap) =
        cap::lower(args, &policy.caps).map_err(|rule| Ground::of_cap(decided, rule))?;
    let refused = |rule: &str| Ground::of_rule("sandbox", rule);
    let judged = Judged { args, charges };
    let Some(ApprovalNeed { reason, required }) = need else {
        let ready = make_ready(gate, &judged.args.call).await.map_err(refused)?;
        let ground = Ground::of_policy(decided, cap, "permitted by policy".to_owned());
        return Ok(Ruling::Permit(ground, judged, ready));
    };
    // No hold is kept while a person decides.
    let pre_state = look(gate, &judged.args.call).await.map_err(refused)?;
    let ground = Ground::of_policy(decided, cap, reason);
    Ok(Ruling::Ask(Question { ground, required, pre_state }, judged))
}

/// What names, pins and policy say about a call, before the executor is asked.
#[derive(Clone, Debug)]
pub struct Weighed {
    /// The call.
    pub call: Call,
    /// The rule that refuses it whatever policy says: a rule of the sandbox, of the pins, or of the caps.
    pub rule: Option<String>,
    /// What policy says.
    pub decision: PolicyDecision,
    /// What policy knew beside the call.
    pub facts: Facts,
}

/// Reports what would be decided, and decides nothing.
pub(super) fn weigh(
    gate: &Gate,
    principal_id: &PrincipalId,
    args: ValidatedArgs,
    assumed: &Assumed,
) -> Weighed {
    let written = args.call.written().into_owned();
    let known = gate.facts_of(principal_id, &args.call);
    let mut facts = Facts {
        labels: assumed.labels.clone(),
        schedule: assumed.schedule.clone().unwrap_or_else(|| known.schedule.clone()),
        groups: assumed.groups.clone().unwrap_or_else(|| known.groups.clone()),
        reads: known.reads.union(&assumed.reads).cloned().collect(),
        opened: Some(assumed.opened.clone()),
        steps: Some(assumed.steps),
        used: assumed.used.clone(),
        ..known
    };
    if gate.policy.needs(args.call.name()).origins {
        let (targets, addresses) =
            origins::origins_of(&assumed.given, &args.call, &gate.facts.directories);
        facts.targets = assumed.targets.clone().unwrap_or(targets);
        facts.addresses = assumed.addresses.clone().unwrap_or(addresses);
    }
    let decision =
        gate.policy.decide(PolicyRequest { principal_id, call: &written, facts: &facts });
    let by_name = judge_name(gate, &args.call);
    let ground = by_name.or_else(|| match decision.verdict {
        PolicyVerdict::Deny => None,
        PolicyVerdict::Permit | PolicyVerdict::RequireApproval(_) => {
            let refused = cap::lower(args, &decision.caps).err();
            refused.map(|rule| Ground::of_cap((&decision, &facts), rule))
        }
    });
    Weighed { call: written, rule: ground.map(|ground| ground.rationale), decision, facts }
}

/// Refuses a call for its name, or for the standing of the tool that the name refers to.
fn judge_name(gate: &Gate, call: &Call) -> Option<Ground> {
    match call {
        Call::Core(call) => {
            broken_name_rule(&gate.extensions, call).map(|rule| Ground::of_rule("sandbox", &rule))
        }
        Call::Server(ServerCall { tool, .. }) => match tool.standing {
            Standing::Accepted => None,
            Standing::Changed => {
                Some(Ground::of_rule("pin", "the definition has changed since it was accepted"))
            }
            Standing::New => {
                Some(Ground::of_rule("pin", "the tool is new and no operator has accepted it"))
            }
            Standing::Gone => Some(Ground::of_rule("pin", "the tool is gone")),
        },
    }
}

/// Asks the executor for everything that the call needs.
async fn make_ready(gate: &Gate, call: &Call) -> Result<Ready, &'static str> {
    match call {
        Call::Core(call) => match call.touch() {
            Touch::Nothing => Ok(Ready::at_once()),
            Touch::Reads | Touch::Writes => {
                let prepared = gate.executor.prepare(call).await?;
                Ok(Ready { pre_state: prepared.pre_state, hold: prepared.hold, unready: None })
            }
        },
        Call::Server(call) => Ok(match gate.tools.prepare(call).await {
            Ok(hold) => Ready { hold, ..Ready::at_once() },
            Err(failed) => Ready { unready: Some(failed), ..Ready::at_once() },
        }),
    }
}

/// Asks the executor whether it would refuse. Keeps only the state that a person decides on beside the call:
/// which file is deleted or renamed, even if another file is at its path later.
async fn look(gate: &Gate, call: &Call) -> Result<Option<Value>, &'static str> {
    match call {
        Call::Core(core) => {
            let ready = make_ready(gate, call).await?;
            Ok(ready.pre_state.filter(|_| core.is_about_a_file_that_stands()))
        }
        Call::Server(_) => Ok(None),
    }
}

/// Spec 000, AUTHORIZE: "MUST enforce file extension restrictions".
fn broken_name_rule(extensions: &Extensions, call: &CoreCall) -> Option<String> {
    if call.paths().iter().any(|path| path.has_reserved_component()) {
        return Some("reserved name".to_owned());
    }
    let (allowed, key) = match call.touch() {
        Touch::Nothing | Touch::Reads => (&extensions.read, "sandbox.read_extensions"),
        Touch::Writes => (&extensions.write, "sandbox.write_extensions"),
    };
    let is_allowed = |extension: &str| allowed.iter().any(|allowed| allowed == extension);
    let all_allowed = call.file_paths().iter().all(|path| path.extension().is_some_and(is_allowed));
    (!all_allowed).then(|| {
        let allowed: Vec<String> = allowed.iter().map(|allowed| format!(".{allowed}")).collect();
        format!("file extension: `{key}` in stepgate.toml allows {}", allowed.join(", "))
    })
}

fn append_decision(
    gate: &Gate,
    trail: &mut Trail,
    verdict: Verdict,
    ground: Ground,
) -> Result<Reference, StateError> {
    let decision = decision(gate, trail, verdict, ground)?;
    trail.advance(Artifact::SupervisorDecision(decision), None)
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

/// Asks policy again for a request that was authorized before a crash. If it is refused now, a call with
/// effect DENIED is recorded and nothing is dispatched (decision 11).
#[instrument(target = PHASE, name = "AUTHORIZE", level = "debug", skip_all)]
pub(super) async fn authorize_again(
    gate: &Gate,
    trail: &mut Trail,
    args: ValidatedArgs,
    caps: &BTreeMap<String, i64>,
) -> Result<AuthorizedRequest, Stop> {
    let decision = trail.journal().reference(Kind::SupervisorDecision)?;
    // The call that the decision was about: only this call may go on under it.
    let decided = tighten(args.clone(), caps).map_err(StateError::checksum)?;
    let ruling = match stopped(gate, trail, &args) {
        Some(ground) => Err(ground),
        None => judge(gate, ask(gate, &trail.asker(), args, |_, _| {}).await?).await,
    };
    let ready = match ruling {
        Ok(Ruling::Permit(_, judged, _) | Ruling::Ask(_, judged))
            if judged.args.args != decided.args =>
        {
            Err("policy now caps the arguments differently".to_owned())
        }
        Ok(Ruling::Permit(_, judged, ready)) => Ok((judged.charges, ready)),
        Ok(Ruling::Ask(question, judged))
            if granted::still_covers(gate, trail, &question, &judged.args).await? =>
        {
            let ready = make_ready(gate, &judged.args.call).await;
            ready.map(|ready| (judged.charges, ready)).map_err(|rule| format!("sandbox: {rule}"))
        }
        Ok(Ruling::Ask(..)) => Err("policy now asks for an approval".to_owned()),
        Err(ground) => Err(ground.rationale),
    };
    match ready {
        Ok((charges, ready)) => {
            Ok(authorized(trail, Judged { args: decided, charges }, ready, decision))
        }
        Err(why) => {
            let refused = Judged { args: decided, charges: Vec::new() };
            let request = authorized(trail, refused, Ready::at_once(), decision);
            Err(Stop::Failure(p7_execute::refuse(gate, trail, request, why)?))
        }
    }
}
