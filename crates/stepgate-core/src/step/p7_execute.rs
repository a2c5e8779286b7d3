//! EXECUTE: write, act, write. The call is durable before the act, the effect before the answer.

use tracing::{Instrument, Span, debug_span, field, instrument};

use super::Stop;
use super::p6_authorize::AuthorizedRequest;
use super::p8_record::Trail;
use super::restore::Sent;
use crate::action::{CoreCall, Touch};
use crate::call::Call;
use crate::digest::Digest;
use crate::event::{EventType, payload};
use crate::failure::{ExecutionFailure, Failure};
use crate::gate::{Fault, Gate};
use crate::ids::{IdempotencyKey, PrincipalId, RunId};
use crate::journal::artifact::{
    CallMeta, EffectError, EffectMeta, EffectOutcome, EffectStatus, Guarantee, Invocation,
    ToolCall, ToolEffect,
};
use crate::journal::{Artifact, Kind, StateError};
use crate::json::{canonical, strict};
use crate::labels::Carrying;
use crate::ports::{Dispatch, Effect, Failed, Said, Sending, StoreError};
use crate::spans::{PHASE, TOOL};
use crate::tool::Delivery;

/// The result of a successful action as canonical JSON, if it has one.
#[derive(Debug)]
pub(super) struct ExecutionResult {
    pub(super) output_json: Option<String>,
}

/// Executes what was authorized, and nothing else.
///
/// Spec 000, EXECUTE: "MUST only execute allowlisted actions", "MUST not escalate privileges or
/// reinterpret intent".
#[instrument(target = PHASE, name = "EXECUTE", level = "debug", skip_all)]
pub(super) async fn execute(
    gate: &Gate,
    trail: &mut Trail,
    request: AuthorizedRequest,
) -> Result<ExecutionResult, Stop> {
    append_call(gate, trail, &request)?;
    let AuthorizedRequest { call, key, pre_state, unready, charges, .. } = request;
    if let Some(failed) = unready {
        // Nothing is sent, so call and effect become durable together, and there is no delivery guarantee.
        return settle(gate, trail, &key, Effect::Failed(failed), EffectMeta::default());
    }
    // Only a commit that charges budgets can be refused and go on without them.
    let uncharged = (!charges.is_empty()).then(|| trail.uncommitted());
    let payload =
        payload::ToolCalled { idempotency_key: key.clone(), tool: call.name().to_owned() };
    trail.note(gate, EventType::ToolCalled, payload);
    match call.touch() {
        // No effect can be lost: RECORD commits call and effect together.
        Touch::Nothing => {}
        Touch::Reads | Touch::Writes => {
            Carrying { gate, place: trail.place(), call: &call }.before().await?;
            if let Err(over) = trail.commit_call(gate, charges).await? {
                uncharged.into_iter().for_each(|before| trail.take_back(before));
                return Err(
                    deny(gate, trail, &key, over.to_string(), EffectMeta::default())?.into()
                );
            }
            // Not before: a stop that comes after this commit finds the call in the store, and names it as running.
            gate.consents.read_before_commit(&*gate.store).await?;
            if let Some(why) = gate.consents.stopped(trail.parties(&call)) {
                return Err(deny(gate, trail, &key, why, EffectMeta::default())?.into());
            }
        }
    }
    let (called, executor_id) = (call.identity(), gate.executor_of(&call));
    let sent = Sent { call, key, pre_state, called, executor_id };
    act(gate, trail, &sent, Dispatch::First).await
}

/// Sends a call again whose effect is not in the journal (decision 12).
///
/// Spec 004, I3: "If tool_effect NOT recorded: recovery MUST retry dispatch (same tool_call_id,
/// idempotency_key)."
#[instrument(target = PHASE, name = "EXECUTE", level = "debug", skip_all)]
pub(super) async fn execute_again(
    gate: &Gate,
    trail: &mut Trail,
    sent: Sent,
) -> Result<ExecutionResult, Stop> {
    hold_again(gate, trail, &sent.call).await?;
    let payload = payload::ToolRedispatched { tool: sent.call.name().to_owned() };
    trail.note(gate, EventType::ToolRedispatched, payload);
    match &sent.call {
        // A second dispatch in the sandbox has no second effect.
        Call::Core(_) => {}
        Call::Server(_) => trail.commit_events(gate).await?,
    }
    act(gate, trail, &sent, Dispatch::Again).await
}

/// Takes the same hold as the first dispatch. The error says so where the call is stopped: it may have been sent before,
/// so it is not over, and recovery tries again until the stop is lifted.
async fn hold_again(gate: &Gate, trail: &mut Trail, call: &Call) -> Result<(), Stop> {
    let hold = match (gate.parked.take(trail.run_id()), call) {
        (Some(hold), _) => hold,
        (None, Call::Core(call)) => gate.executor.hold(call).await.ok_or_else(|| {
            Fault::Executor("others hold the path: recovery tries again in a while".into())
        })?,
        (None, Call::Server(call)) => gate.tools.prepare(call).await.map_err(|failed| {
            let why = failed.detail.unwrap_or_else(|| failed.failure.message().to_owned());
            Stop::Fault(Fault::Executor(format!("{}: {why}", call.tool.name)))
        })?,
    };
    trail.hold = Some(hold);
    gate.consents.read_on(&*gate.store).await?;
    match gate.consents.stopped(trail.parties(call)) {
        Some(why) => Err(Fault::Executor(format!(
            "`{}` is not sent again while it is stopped ({why})",
            call.name()
        ))
        .into()),
        None => Ok(()),
    }
}

/// How an operator or a status tool settles a call in doubt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Settlement {
    /// It was done; the result as JSON, where it is known.
    Succeeded(Option<String>),
    /// It was not done, and must not be sent again.
    Failed,
    /// It must be sent again, with the same call and key.
    Redispatch,
}

impl Settlement {
    /// The name of `Redispatch` in events.
    pub(super) const REDISPATCH: &str = "redispatch";
}

/// Ends a call in doubt as the settlement says.
#[instrument(target = PHASE, name = "EXECUTE", level = "debug", skip_all)]
pub(super) async fn settle_doubt(
    gate: &Gate,
    trail: &mut Trail,
    sent: Sent,
    settlement: Settlement,
    resolved_by: PrincipalId,
    query_run_id: Option<RunId>,
) -> Result<ExecutionResult, Stop> {
    if settlement == Settlement::Redispatch {
        may_go_out_again(gate, &sent, query_run_id)?;
    }
    let run_id = trail.run_id();
    let (word, effect) = match settlement {
        Settlement::Succeeded(result) => {
            if let Some(Err(refusal)) = result.as_deref().map(strict::stored) {
                let why = format!("the result of {run_id} is not strict JSON: {refusal}");
                return Err(Fault::Executor(why).into());
            }
            ("succeeded", Some(Effect::Done(result)))
        }
        Settlement::Failed => {
            let detail = Some(format!("resolved by {resolved_by}"));
            let failed = Failed { detail, ..ExecutionFailure::ToolFailed.into() };
            ("failed", Some(Effect::Failed(failed)))
        }
        Settlement::Redispatch => (Settlement::REDISPATCH, None),
    };
    let payload =
        payload::RunResolved { query_run_id, resolved_as: word, resolved_by: resolved_by.clone() };
    trail.note(gate, EventType::RunResolved, payload);
    let effect = match effect {
        Some(effect) => {
            // Nothing is sent any more: a parked hold is kept until the record is written.
            trail.hold = gate.parked.take(trail.run_id());
            effect
        }
        None => {
            hold_again(gate, trail, &sent.call).await?;
            trail.commit_events(gate).await?;
            let sending = sending(trail, &sent, Dispatch::Again)?;
            send(gate, &sent, sending).await?
        }
    };
    Carrying { gate, place: trail.place(), call: &sent.call }.after(&effect).await?;
    let guarantee = guarantee_of(trail, &sent.call);
    let resolved_by = Some(resolved_by);
    let meta = EffectMeta { guarantee: Some(guarantee), resolved_by, ..EffectMeta::default() };
    settle(gate, trail, &sent.key, effect, meta)
}

/// A call is never sent to a tool that no operator has accepted. A person may send a call again to a tool
/// whose changed definition was accepted; the answer of a status tool is valid only for the definition that
/// was called.
fn may_go_out_again(gate: &Gate, sent: &Sent, query_run_id: Option<RunId>) -> Result<(), Fault> {
    sent.is_reached(gate)?;
    let why = match query_run_id {
        _ if !sent.is_accepted() => "no operator has accepted it as it is: `stepgate tools accept`",
        Some(_) if !sent.is_still_the_same_tool() => "it is not the one that was called",
        Some(_) | None => return Ok(()),
    };
    Err(Fault::Executor(format!("{}: {why}", sent.call.name())))
}

/// Records a call that is refused after it had been authorized: call and effect DENIED together,
/// nothing dispatched.
pub(super) fn refuse(
    gate: &Gate,
    trail: &mut Trail,
    request: AuthorizedRequest,
    why: String,
) -> Result<Failure, StateError> {
    append_call(gate, trail, &request)?;
    deny(gate, trail, &request.key, why, EffectMeta::default())
}

/// Appends the effect DENIED of a call that is in the journal and was not dispatched.
fn deny(
    gate: &Gate,
    trail: &mut Trail,
    key: &IdempotencyKey,
    why: String,
    meta: EffectMeta,
) -> Result<Failure, StateError> {
    let error = EffectError { code: "REFUSED".into(), message: why.clone() };
    let outcome = EffectOutcome { error: Some(error), status: EffectStatus::Denied };
    append_effect(gate, trail, key, outcome, meta)?;
    Ok(Failure::RefusedAtExecution(why))
}

fn append_call(
    gate: &Gate,
    trail: &mut Trail,
    request: &AuthorizedRequest,
) -> Result<(), StateError> {
    let head = trail.journal().head(gate.fresh_id(), gate.world.now());
    let call = ToolCall::new(
        head,
        Invocation {
            args: request.args.clone(),
            tool_name: request.call.tool_name().into(),
            tool_server: request.call.tool_server().into(),
        },
        request.key.clone(),
        CallMeta {
            executor_id: gate.executor_of(&request.call),
            pre_state: request.pre_state.clone(),
            tool_definition_digest: request.call.definition_digest(),
        },
        request.decision.digest,
        request.decision.id,
        head.id,
        request.call.tool_class(),
    );
    trail.advance(Artifact::ToolCall(call), Some(request.key.clone()))?;
    Ok(())
}

async fn act(
    gate: &Gate,
    trail: &mut Trail,
    sent: &Sent,
    dispatch: Dispatch,
) -> Result<ExecutionResult, Stop> {
    let sending = sending(trail, sent, dispatch)?;
    let effect = send(gate, sent, sending).await?;
    Carrying { gate, place: trail.place(), call: &sent.call }.after(&effect).await?;
    let guarantee = Some(guarantee_of(trail, &sent.call));
    let meta = EffectMeta { guarantee, ..EffectMeta::default() };
    settle(gate, trail, &sent.key, effect, meta)
}

/// Sends a call and waits for its effect, if this node still owns the trace. The trail is not borrowed here:
/// its hold is not `Sync`, so a reference to it cannot be kept while this waits.
async fn send(gate: &Gate, sent: &Sent, sending: Sending) -> Result<Effect, StoreError> {
    match &sent.call {
        Call::Core(call) => match call.touch() {
            Touch::Nothing => Ok(Effect::Done(result_of(call))),
            Touch::Reads | Touch::Writes => {
                gate.store.may_dispatch(sending.run_id).await?;
                let pre_state = sent.pre_state.as_ref();
                let dispatched = gate.executor.dispatch(call, pre_state, sending.dispatch);
                Ok(traced(dispatched, tool_span(&sent.call, &sending)).await)
            }
        },
        Call::Server(call) => {
            gate.store.may_dispatch(sending.run_id).await?;
            let dispatched = gate.tools.dispatch(call, &sending);
            let effect = traced(dispatched, tool_span(&sent.call, &sending)).await;
            Ok(match sending.dispatch {
                Dispatch::First => effect,
                Dispatch::Again => still_in_doubt(effect),
            })
        }
    }
}

fn tool_span(call: &Call, sending: &Sending) -> Span {
    let (kind, method) = match call {
        Call::Core(_) => ("internal", None),
        Call::Server(_) => ("client", Some("tools/call")),
    };
    debug_span!(
        target: TOOL,
        "execute_tool",
        otel.name = format_args!("{} {}", method.unwrap_or("execute_tool"), call.name()),
        otel.kind = kind,
        gen_ai.operation.name = "execute_tool",
        gen_ai.tool.name = call.name(),
        gen_ai.tool.call.id = %sending.tool_call_id,
        mcp.method.name = method,
        error.type = field::Empty,
    )
}

/// Runs a call in its span. The span gets the kind of a failure, and nothing of what the tool said.
async fn traced(dispatched: impl Future<Output = Effect>, span: Span) -> Effect {
    let effect = dispatched.instrument(span.clone()).await;
    match &effect {
        Effect::Done(_) => {}
        Effect::Failed(failed) => {
            span.record("error.type", failed.failure.code());
        }
        Effect::Refused(rule) => {
            span.record("error.type", *rule);
        }
        Effect::Unknown(_) => {
            span.record("error.type", "unknown");
        }
    }
    effect
}

/// The parameters of a dispatch: the same tool_call every time.
fn sending(trail: &Trail, sent: &Sent, dispatch: Dispatch) -> Result<Sending, StateError> {
    let tool_call_id = trail.journal().reference(Kind::ToolCall)?.id;
    Ok(Sending { run_id: trail.run_id(), tool_call_id, key: sent.key.clone(), dispatch })
}

/// A second dispatch without an answer says nothing about the first: the call stays in doubt.
fn still_in_doubt(effect: Effect) -> Effect {
    let Effect::Failed(failed) = effect else {
        return effect;
    };
    // Only these two are answers of the tool.
    let was_answered = match failed.failure == ExecutionFailure::ToolFailed {
        true => !failed.in_doubt,
        false => failed.failure == ExecutionFailure::OutputInvalid,
    };
    match was_answered {
        // The second dispatch failed. Whether the first one failed is still unknown.
        true => Effect::Failed(Failed { in_doubt: true, ..failed }),
        false => Effect::Unknown(failed.detail.unwrap_or_else(|| failed.failure.message().into())),
    }
}

/// How often the effect of a call can have happened: the guarantee of its tool, unless the call was sent
/// again without knowing the result of the first dispatch.
fn guarantee_of(trail: &Trail, call: &Call) -> Guarantee {
    match call {
        Call::Core(_) => Guarantee::ExactlyOnce,
        Call::Server(call) => match call.tool.delivery {
            Delivery::Query(_) | Delivery::Ask if trail.was_sent_blindly() => {
                Guarantee::AtLeastOnce
            }
            Delivery::HonoursKey | Delivery::Redispatch | Delivery::Query(_) | Delivery::Ask => {
                call.tool.delivery.guarantee()
            }
        },
    }
}

/// The result of an action without an effect.
fn result_of(call: &CoreCall) -> Option<String> {
    let CoreCall::Finish { response } = call else { return None };
    Some(canonical::text_of(&serde_json::json!({ "final_response": response })))
}

/// Appends the effect to the journal; RECORD commits it with everything that follows from it.
fn settle(
    gate: &Gate,
    trail: &mut Trail,
    key: &IdempotencyKey,
    effect: Effect,
    meta: EffectMeta,
) -> Result<ExecutionResult, Stop> {
    let failed = |status, code: &str, message: &str| EffectOutcome {
        error: Some(EffectError { code: code.into(), message: message.into() }),
        status,
    };
    match effect {
        Effect::Done(output_json) => {
            let result_digest = output_json.as_ref().map(|text| Digest::of_bytes(text.as_bytes()));
            let outcome = EffectOutcome { error: None, status: EffectStatus::Success };
            append_effect(gate, trail, key, outcome, EffectMeta { result_digest, ..meta })?;
            Ok(ExecutionResult { output_json })
        }
        Effect::Failed(Failed { failure, detail, said, in_doubt }) => {
            // A failure that leaves no doubt is FAILURE; one after which something may have happened
            // is ERROR.
            let status = if in_doubt { EffectStatus::Error } else { EffectStatus::Failure };
            let outcome = failed(status, failure.code(), failure.message());
            let (result_digest, kept) = kept(failure, said);
            trail.error_said = kept;
            append_effect(gate, trail, key, outcome, EffectMeta { result_digest, ..meta })?;
            Err(Failure::Execution(failure, detail).into())
        }
        Effect::Refused(rule) => {
            Err(deny(gate, trail, key, format!("sandbox: {rule}"), meta)?.into())
        }
        Effect::Unknown(why) => Err(Stop::Fault(Fault::Executor(why))),
    }
}

/// What is kept of a tool's error result: a digest, and its text where the run keeps it. `verify` can tell
/// from the failure alone which of the two to expect.
fn kept(failure: ExecutionFailure, said: Said) -> (Option<Digest>, Option<String>) {
    match (said, failure.keeps_what_was_said()) {
        (Said::Error(text), true) => (Some(Digest::of_bytes(text.as_bytes())), Some(text)),
        (Said::Error(text), false) => (Some(Digest::of_bytes(text.as_bytes())), None),
        (Said::Unusable(digest), false) => (Some(digest), None),
        (Said::Unusable(_), true) | (Said::Nothing, _) => (None, None),
    }
}

fn append_effect(
    gate: &Gate,
    trail: &mut Trail,
    key: &IdempotencyKey,
    outcome: EffectOutcome,
    meta: EffectMeta,
) -> Result<(), StateError> {
    let call = trail.journal().reference(Kind::ToolCall)?;
    let head = trail.journal().head(gate.fresh_id(), gate.world.now());
    let effect = ToolEffect::new(head, meta, outcome, call.digest, call.id, head.id);
    trail.advance(Artifact::ToolEffect(effect), Some(key.clone()))?;
    Ok(())
}
