//! Start here. One step: a proposal's way through the nine phases.
//!
//! There are three entry points: [`run`] takes a new proposal, [`resume`] continues after a person's
//! decision, [`redispatch`] continues after a crash. The types enforce the order: each phase takes the
//! output of the one before it, by value.
//!
//! A phase cannot be entered from outside, so none can be left out:
//!
//! ```compile_fail,E0603
//! use stepgate_core::step::p7_execute::execute;
//! ```

mod answer;
mod p1_receive;
mod p2_parse;
mod p3_validate_schema;
mod p4_validate_action;
mod p5_validate_args;
mod p6_authorize;
mod p7_execute;
mod p8_record;
mod p9_respond;
mod restore;

use std::collections::{BTreeMap, BTreeSet};

use tracing::{Instrument, Span, debug_span, field, instrument};

use crate::assumed::Assumed;
use crate::budgets::Accounts;
use crate::call::Call;
use crate::digest::Digest;
use crate::event::{EventType, payload};
use crate::failure::Failure;
use crate::gate::{Fault, Gate};
use crate::ids::{ApprovalId, IdempotencyKey, PrincipalId, RunId, SessionId};
use crate::journal::{StateCode, StateError};
use crate::machine::State;
use crate::ports::StoreError;
use crate::run::Payload;
use crate::spans::{PHASE, STEP};
use crate::tool::Delivery;

use p1_receive::StepContext;
use p7_execute::ExecutionResult;
use p8_record::Trail;

pub use answer::{Answer, ErrorBody, Recorded, Reply, StepResponse, response_of};
pub use p6_authorize::{Person, Weighed};
pub use p7_execute::Settlement;
pub use p9_respond::{answer_of, recorded_answers};

pub(crate) use p3_validate_schema::Readable;
pub(crate) use p5_validate_args::asked_digest;

use p5_validate_args::ValidatedArgs;
use restore::{Restored, Sent, restore};

/// A payload, with the session and the principal that proposes it.
#[derive(Clone, Debug)]
pub struct Submission {
    /// The session; it belongs to the principal.
    pub session_id: SessionId,
    /// The principal, as authenticated.
    pub principal_id: PrincipalId,
    /// The received bytes. A reader that stops at the limit keeps the beginning and the full length.
    pub payload: Payload,
}

/// Takes a new proposal through all nine phases.
///
/// Spec 000: "A step MUST execute at most one action" and "MUST produce exactly one outcome".
pub async fn run(gate: &Gate, submission: Submission) -> Result<Answer, Fault> {
    run_as(gate, RunId::new(gate.world.fresh_uuid()), submission).await
}

/// Takes a new proposal through all nine phases, under this run id. The id must be fresh; a caller that
/// watches the run from its beginning has to know the id in advance.
#[instrument(
    target = STEP, name = "step", level = "debug", skip_all,
    fields(
        stepgate.run_id = %run_id,
        gen_ai.conversation.id = %submission.session_id,
        stepgate.principal = %submission.principal_id,
        stepgate.tool = field::Empty,
        stepgate.outcome = field::Empty,
    )
)]
pub async fn run_as(gate: &Gate, run_id: RunId, submission: Submission) -> Result<Answer, Fault> {
    let (mut trail, context) = p1_receive::receive(gate, run_id, submission).await?;
    gate.store.lock_new_trace(run_id).await?;
    let ended = attempt(gate, &mut trail, context).await;
    let answer = conclude(gate, trail, ended).await;
    released(gate, run_id, answer).await
}

/// How often a proposal is read, where the policies that decide on it are replaced each time.
const READINGS_MAX: usize = 8;

/// The phases in order, as far as they come. What is erasable is what the policies say that decide: where they were replaced
/// after the proposal was read, and would keep more of it apart, it is read again.
async fn attempt(
    gate: &Gate,
    trail: &mut Trail,
    context: Result<StepContext, Failure>,
) -> Result<ExecutionResult, Stop> {
    let context = context?;
    for _ in 1..READINGS_MAX {
        match attempt_once(gate, trail, context.clone()).await {
            Err(Stop::Reread) => trail.begin_again(),
            ended => return ended,
        }
    }
    attempt_once(gate, trail, context).await
}

/// The phases in order. `?` leaves the attempt, never the step: every failure reaches RECORD and RESPOND.
async fn attempt_once(
    gate: &Gate,
    trail: &mut Trail,
    context: StepContext,
) -> Result<ExecutionResult, Stop> {
    let object = p2_parse::parse(gate, context)?;
    let proposal = p3_validate_schema::validate_schema(gate, trail, object)?;
    let action = p4_validate_action::validate_action(gate, proposal)?;
    let args = p5_validate_args::validate_args(trail, action)?;
    trail.note_erasable(gate);
    p5_validate_args::claim_key(gate, trail, &args).await?;
    let request = p6_authorize::authorize(gate, trail, args).await?;
    p7_execute::execute(gate, trail, request).await
}

/// What would be decided on a proposal, without a run: the sandbox is not read, nothing is recorded, and the
/// idempotency key is not checked.
pub fn weigh(gate: &Gate, submission: &Submission, assumed: &Assumed) -> Result<Weighed, Failure> {
    let run_id = RunId::new(gate.world.fresh_uuid());
    let (mut trail, context) = p1_receive::begin(gate, run_id, 0, submission.clone());
    let object = p2_parse::parse(gate, context?)?;
    let proposal = p3_validate_schema::validate_schema(gate, &mut trail, object)?;
    let action = p4_validate_action::validate_action(gate, proposal)?;
    let args = p5_validate_args::validate_args(&trail, action)?;
    let weighed = p6_authorize::weigh(gate, &submission.principal_id, args, assumed);
    let stopped = gate.consents.stopped(trail.parties(&weighed.call));
    Ok(Weighed { rule: stopped.or(weighed.rule), ..weighed })
}

/// Like [`weigh`], with what is used of the budgets at this moment, where nothing else is assumed. The submission's session
/// is the one whose accounts count.
pub async fn weigh_now(
    gate: &Gate,
    submission: &Submission,
    assumed: &Assumed,
) -> Result<Result<Weighed, Failure>, StoreError> {
    let weighed = match weigh(gate, submission, assumed) {
        Ok(weighed) => weighed,
        Err(failure) => return Ok(Err(failure)),
    };
    let Submission { principal_id, session_id, .. } = submission;
    let accounts = Accounts::read(gate, principal_id, *session_id, &weighed.call).await?;
    let mut used = accounts.used();
    if used.is_empty() {
        return Ok(Ok(weighed));
    }
    used.extend(assumed.used.clone());
    Ok(weigh(gate, submission, &Assumed { used, ..assumed.clone() }))
}

/// Continues a paused step after a person decided or the approval expired.
pub async fn resume(gate: &Gate, approval: ApprovalId, person: Person) -> Result<Answer, Refused> {
    resume_with(gate, approval, person, &BTreeSet::new()).await
}

/// Like [`resume`], where policy requires more than one person: the votes of these people count, too. Whether
/// two people are one in truth is for the caller to know.
pub async fn resume_with(
    gate: &Gate,
    approval: ApprovalId,
    person: Person,
    with: &BTreeSet<PrincipalId>,
) -> Result<Answer, Refused> {
    let approval = gate.store.approval(approval).await?.ok_or(Refused::NoSuchApproval)?;
    let run_id = approval.tool_run_id;
    let resumed = locked(gate, run_id, async {
        let Restored { mut trail, args, .. } = restore(gate, run_id).await?;
        let decided =
            p6_authorize::authorize_by_person(gate, &mut trail, args, person, with).await?;
        let ended = match decided {
            Ok(request) => p7_execute::execute(gate, &mut trail, request).await,
            Err(failure) => Err(Stop::Failure(failure)),
        };
        Ok(conclude(gate, trail, ended).await?)
    });
    resumed.instrument(continued(run_id)).await
}

/// Continues a step that a crash stopped, from the state that its journal proves.
pub async fn redispatch(gate: &Gate, run_id: RunId) -> Result<Answer, Fault> {
    let redispatched = locked(gate, run_id, async {
        let Restored { mut trail, args, state, caps, sent } = restore(gate, run_id).await?;
        if state.is_terminal() {
            return answer_of(gate, run_id).await;
        }
        if let Some(approval) = trail.pending_approval() {
            return Ok(p9_respond::paused(&trail, approval.approval_id));
        }
        trail.note(gate, EventType::RunRecovered, payload::RunRecovered { state });
        let ended = attempt_again(gate, &mut trail, args, state, caps, sent).await;
        conclude(gate, trail, ended).await
    });
    redispatched.instrument(continued(run_id)).await
}

/// The phases in order, from where the journal ends.
async fn attempt_again(
    gate: &Gate,
    trail: &mut Trail,
    args: ValidatedArgs,
    state: State,
    caps: BTreeMap<String, i64>,
    sent: Option<Sent>,
) -> Result<ExecutionResult, Stop> {
    gate.consents.read_on(&*gate.store).await?;
    let request = match (state, sent) {
        (State::Executing, Some(sent)) => {
            sent.is_reached(gate)?;
            return match may_be_sent_again(&sent) {
                true => p7_execute::execute_again(gate, trail, sent).await,
                false => Err(Stop::InDoubt),
            };
        }
        (State::Pending, _) => {
            let deciding = p6_authorize::decide(gate, trail, args);
            deciding.instrument(debug_span!(target: PHASE, "AUTHORIZE")).await?
        }
        (State::Authorized, _) => p6_authorize::authorize_again(gate, trail, args, &caps).await?,
        (State::Executing | State::Completed | State::Failed | State::Denied, _) => {
            return Err(StateError::checksum("the journal does not allow it to go on").into());
        }
    };
    p7_execute::execute(gate, trail, request).await
}

/// Whether recovery may send a call again of its own accord (decision 12). The decision was about the tool
/// as it was then: a call is not sent to a different tool of the same name without a person.
fn may_be_sent_again(sent: &Sent) -> bool {
    match &sent.call {
        Call::Core(_) => true,
        Call::Server(_) if !sent.is_still_the_same_tool() => false,
        Call::Server(call) => match call.tool.delivery {
            Delivery::HonoursKey | Delivery::Redispatch => true,
            Delivery::Query(_) | Delivery::Ask => false,
        },
    }
}

/// Settles a call in doubt as an operator or a status tool says. The step then continues to its record.
pub async fn resolve(
    gate: &Gate,
    run_id: RunId,
    settlement: Settlement,
    resolved_by: PrincipalId,
    query_run_id: Option<RunId>,
) -> Result<Answer, Refused> {
    let resolved = locked(gate, run_id, async {
        let doubt = in_doubt(gate, run_id).await?;
        settled(gate, doubt, settlement, resolved_by, query_run_id).await
    });
    resolved.instrument(continued(run_id)).await
}

/// Settles a call in doubt by the result of a status tool. None where the call's run has new events since
/// the tool was asked, when it had `events_seen`: the answer is out of date.
pub(crate) async fn resolve_as_found(
    gate: &Gate,
    run_id: RunId,
    settlement: Settlement,
    query_run_id: RunId,
    events_seen: usize,
) -> Result<Option<Answer>, Refused> {
    let resolved = locked(gate, run_id, async {
        let doubt = in_doubt(gate, run_id).await?;
        if doubt.0.events_committed() != events_seen {
            return Ok(None);
        }
        let system = PrincipalId::system();
        settled(gate, doubt, settlement, system, Some(query_run_id)).await.map(Some)
    });
    resolved.instrument(continued(run_id)).await
}

/// A run whose call was sent and whose effect is not recorded, with the call.
async fn in_doubt(gate: &Gate, run_id: RunId) -> Result<(Trail, Sent), Refused> {
    let Restored { trail, state, sent, .. } = restore(gate, run_id).await?;
    match sent {
        Some(sent) if state == State::Executing => Ok((trail, sent)),
        Some(_) | None => Err(Refused::NotInDoubt),
    }
}

async fn settled(
    gate: &Gate,
    (mut trail, sent): (Trail, Sent),
    settlement: Settlement,
    resolved_by: PrincipalId,
    query_run_id: Option<RunId>,
) -> Result<Answer, Refused> {
    if settlement == Settlement::Redispatch {
        gate.consents.read_on(&*gate.store).await?;
        if let Some(why) = gate.consents.stopped(trail.parties(&sent.call)) {
            return Err(Refused::Stopped(why));
        }
    }
    let ended =
        p7_execute::settle_doubt(gate, &mut trail, sent, settlement, resolved_by, query_run_id);
    let ended = ended.await;
    Ok(conclude(gate, trail, ended).await?)
}

/// The span of a step that goes on after a decision or a crash.
fn continued(run_id: RunId) -> Span {
    debug_span!(
        target: STEP,
        "step",
        stepgate.run_id = %run_id,
        stepgate.tool = field::Empty,
        stepgate.outcome = field::Empty,
    )
}

/// RECORD and RESPOND, whatever happened before them. The step's span gets the outcome.
async fn conclude(
    gate: &Gate,
    trail: Trail,
    ended: Result<ExecutionResult, Stop>,
) -> Result<Answer, Fault> {
    let answer = concluded(gate, trail, ended).await;
    let span = Span::current();
    match &answer {
        Ok(answer) => {
            span.record("stepgate.tool", answer.action.as_deref());
            span.record("stepgate.outcome", answer.word().as_str());
        }
        Err(_) => {
            span.record("stepgate.outcome", "FAULT");
        }
    }
    answer
}

async fn concluded(
    gate: &Gate,
    mut trail: Trail,
    ended: Result<ExecutionResult, Stop>,
) -> Result<Answer, Fault> {
    let mut ended = ended;
    loop {
        let recorded = match ended {
            Ok(result) => p8_record::record(gate, &mut trail, Ok(result)).await,
            Err(Stop::Failure(failure)) => p8_record::record(gate, &mut trail, Err(failure)).await,
            Err(stop) => Err(stop),
        };
        ended = match recorded {
            Ok(record) => return Ok(p9_respond::respond(record)),
            Err(Stop::Failure(failure)) => Err(Stop::Failure(failure)),
            Err(Stop::KeyTaken { key, asked }) => {
                trail.forget_journal();
                Err(p5_validate_args::known(gate, &mut trail, &key, asked).await?)
            }
            Err(Stop::Known(run_id)) => match p9_respond::recalled(gate, run_id).await? {
                Some(answer) => return Ok(answer),
                None => Err(Stop::Failure(Failure::ResultArchived(run_id))),
            },
            Err(Stop::Paused(approval_id)) => return Ok(p9_respond::paused(&trail, approval_id)),
            Err(Stop::InDoubt) => return Ok(p9_respond::in_doubt(&trail)),
            Err(Stop::Reread) => {
                let why = "the policies are being replaced again and again";
                return Err(StoreError::Unavailable(why.to_owned()).into());
            }
            Err(Stop::Fault(fault)) => {
                // Another node that took the run over (decision 10) may be waiting for this hold, so it is dropped.
                if fault.state_code() != Some(StateCode::ConcurrentExecution) {
                    trail.park(gate);
                }
                return Err(fault);
            }
        };
    }
}

/// Holds the trace's lock around the work (I6).
///
/// Spec 004, I6: "At most one active executor MAY append transitions for a given trace_id at a time."
pub(crate) async fn locked<T, E: From<StoreError>>(
    gate: &Gate,
    run_id: RunId,
    work: impl Future<Output = Result<T, E>>,
) -> Result<T, E> {
    gate.store.acquire_trace_lock(run_id).await?;
    released(gate, run_id, work.await).await
}

async fn released<T>(gate: &Gate, run_id: RunId, done: T) -> T {
    // The work is complete, whether or not the lock is released.
    let _released = gate.store.release_trace_lock(run_id).await;
    done
}

/// Why an attempt ended without a result.
#[derive(Debug)]
enum Stop {
    /// The step failed under its contract; RECORD and RESPOND follow.
    Failure(Failure),
    /// Another step bound the key while this one was deciding.
    KeyTaken { key: IdempotencyKey, asked: Digest },
    /// The policies that decided would keep more of the proposal apart than those that were in force when it was read.
    /// Nothing is durable.
    Reread,
    /// The proposal is known already: its recorded answer, or its notice, is the answer.
    Known(RunId),
    /// The step waits for a person.
    Paused(ApprovalId),
    /// The result of a call is unknown, and the call may not be sent again.
    InDoubt,
    /// An internal error; the caller gets no outcome.
    Fault(Fault),
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Self::Failure(failure)
    }
}

impl<E: Into<Fault>> From<E> for Stop {
    fn from(error: E) -> Self {
        Self::Fault(error.into())
    }
}

/// Why a decision on an approval was not accepted. Nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// There is no such approval.
    #[error("there is no such approval")]
    NoSuchApproval,
    /// Another request decided first.
    #[error("the approval is decided already")]
    AlreadyDecided,
    /// The run is over, or it has not sent a call yet.
    #[error("the run has no call in doubt")]
    NotInDoubt,
    /// The principal that asked may not decide.
    #[error("the principal that asked cannot decide")]
    OwnRequest,
    /// Policy lets other people decide.
    #[error("policy lets other people decide on this call: `@approvers` names them")]
    NotAnApprover,
    /// Policy requires more people.
    #[error("policy requires that more people approve")]
    MorePeople,
    /// A person that is linked to this one approved before.
    #[error(
        "`{0}` has approved, and is linked to you by who made the tokens: another person must approve"
    )]
    LinkedApprover(PrincipalId),
    /// This node does not reach the tool: decide on a node that does.
    #[error(
        "this node does not reach the tool: decide on one that does, `stepgate nodes` shows which"
    )]
    OutOfReach,
    /// An operator has stopped the call. The reason is for the record.
    #[error(
        "an operator has stopped this call: nothing is sent until that is lifted, `stepgate stops` shows it"
    )]
    Stopped(String),
    /// An internal error.
    #[error(transparent)]
    Fault(Fault),
}

impl<E: Into<Fault>> From<E> for Refused {
    fn from(error: E) -> Self {
        match error.into() {
            Fault::Store(StoreError::AlreadyDecided) => Self::AlreadyDecided,
            fault @ (Fault::Store(_) | Fault::Executor(_) | Fault::ForeignSession(_)) => {
                Self::Fault(fault)
            }
        }
    }
}
