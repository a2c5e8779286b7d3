//! EXECUTE: write, act, write. The call is durable before the act, the effect before the answer.

use serde::Serialize;

use super::Stop;
use super::p6_authorize::AuthorizedRequest;
use super::p8_record::Trail;
use super::restore::Sent;
use crate::action::{CORE_SERVER, Call, Touch};
use crate::digest::Digest;
use crate::event::EventType;
use crate::failure::{ExecutionFailure, Failure};
use crate::gate::{Fault, Gate};
use crate::ids::IdempotencyKey;
use crate::journal::artifact::{
    CallMeta, EffectError, EffectMeta, EffectOutcome, EffectStatus, Guarantee, Invocation,
    ToolCall, ToolEffect,
};
use crate::journal::{Artifact, Kind, StateError};
use crate::json::canonical;
use crate::ports::{Dispatch, Effect};

/// A done action: its result, as canonical JSON, where it has one.
#[derive(Debug)]
pub(super) struct ExecutionResult {
    pub(super) output_json: Option<String>,
}

/// Executes what was authorized, and nothing else.
///
/// Spec 000, EXECUTE: "MUST only execute allowlisted actions", "MUST not escalate privileges or
/// reinterpret intent".
pub(super) async fn execute(
    gate: &Gate,
    trail: &mut Trail,
    request: AuthorizedRequest,
) -> Result<ExecutionResult, Stop> {
    append_call(gate, trail, &request)?;
    let AuthorizedRequest { call, key, pre_state, .. } = request;
    let payload = serde_json::json!({ "tool": call.action().name(), "idempotency_key": key });
    trail.note(gate, EventType::ToolCalled, payload);
    match call.touch() {
        // Nothing to lose: RECORD commits call and effect together.
        Touch::Nothing => {}
        Touch::Reads | Touch::Writes => trail.commit_call(gate).await?,
    }
    act(gate, trail, &Sent { call, key, pre_state }, Dispatch::First).await
}

/// Sends a call again whose effect no journal knows (decision D12).
///
/// Spec 004, I3: "If tool_effect NOT recorded: recovery MUST retry dispatch (same tool_call_id,
/// idempotency_key)."
pub(super) async fn execute_again(
    gate: &Gate,
    trail: &mut Trail,
    sent: Sent,
) -> Result<ExecutionResult, Stop> {
    match gate.parked.take(trail.run_id()) {
        Some(hold) => trail.keep(hold),
        None => trail.keep(gate.executor.hold(&sent.call).await),
    }
    let payload = serde_json::json!({ "tool": sent.call.action().name() });
    trail.note(gate, EventType::ToolRedispatched, payload);
    act(gate, trail, &sent, Dispatch::Again).await
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
    let error = EffectError { code: "REFUSED".into(), message: why.clone() };
    let outcome = EffectOutcome { error: Some(error), status: EffectStatus::Denied };
    append_effect(gate, trail, &request.key, outcome, EffectMeta::default())?;
    Ok(Failure::RefusedAtExecution(why))
}

fn append_call(
    gate: &Gate,
    trail: &mut Trail,
    request: &AuthorizedRequest,
) -> Result<(), StateError> {
    let head = trail.journal().head(gate.fresh_id(), gate.world.now());
    let executor_id = match request.call.touch() {
        Touch::Nothing => None,
        Touch::Reads | Touch::Writes => Some(gate.executor.id().to_owned()),
    };
    let call = ToolCall::new(
        head,
        Invocation {
            args: request.args.clone(),
            tool_name: request.call.action().name().into(),
            tool_server: CORE_SERVER.into(),
        },
        request.key.clone(),
        CallMeta {
            executor_id,
            pre_state: request.pre_state.clone(),
            tool_definition_digest: None,
        },
        request.decision.digest,
        request.decision.id,
        head.id,
        request.call.tool_class(),
    );
    trail.journal_mut().advance(Artifact::ToolCall(call), Some(request.key.clone()))?;
    Ok(())
}

async fn act(
    gate: &Gate,
    trail: &mut Trail,
    sent: &Sent,
    dispatch: Dispatch,
) -> Result<ExecutionResult, Stop> {
    let effect = match sent.call.touch() {
        Touch::Nothing => Effect::Done(result_of(&sent.call)),
        Touch::Reads | Touch::Writes => {
            gate.executor.dispatch(&sent.call, sent.pre_state.as_ref(), dispatch).await
        }
    };
    settle(gate, trail, &sent.key, effect)
}

/// The result of an action that touches nothing.
fn result_of(call: &Call) -> Option<String> {
    #[derive(Serialize)]
    struct FinishResult<'a> {
        final_response: &'a str,
    }
    match call {
        Call::Finish { response } => {
            Some(canonical::text_of(&FinishResult { final_response: response }))
        }
        Call::Think
        | Call::ReadFile { .. }
        | Call::ListFiles { .. }
        | Call::WriteFile { .. }
        | Call::CreateDirectory { .. }
        | Call::DeleteFile { .. }
        | Call::RenameFile { .. } => None,
    }
}

/// Puts the effect into the journal; RECORD makes it durable with everything that follows from it.
fn settle(
    gate: &Gate,
    trail: &mut Trail,
    key: &IdempotencyKey,
    effect: Effect,
) -> Result<ExecutionResult, Stop> {
    let once = EffectMeta { guarantee: Some(Guarantee::ExactlyOnce), ..EffectMeta::default() };
    let failed = |status, code: &str, message: &str| EffectOutcome {
        error: Some(EffectError { code: code.into(), message: message.into() }),
        status,
    };
    match effect {
        Effect::Done(output_json) => {
            let result_digest = output_json.as_ref().map(|text| Digest::of_bytes(text.as_bytes()));
            let outcome = EffectOutcome { error: None, status: EffectStatus::Success };
            append_effect(gate, trail, key, outcome, EffectMeta { result_digest, ..once })?;
            Ok(ExecutionResult { output_json })
        }
        Effect::Failed(failure) => {
            let status = status_of(failure);
            let outcome = failed(status, failure.code(), failure.message());
            append_effect(gate, trail, key, outcome, once)?;
            Err(Failure::Execution(failure).into())
        }
        Effect::Refused(rule) => {
            let why = format!("sandbox: {rule}");
            let outcome = failed(EffectStatus::Denied, "REFUSED", &why);
            append_effect(gate, trail, key, outcome, once)?;
            Err(Failure::RefusedAtExecution(why).into())
        }
        Effect::Unknown(why) => Err(Stop::Fault(Fault::Executor(why))),
    }
}

/// A failure that leaves no doubt is FAILURE; one after which something may have happened is ERROR.
fn status_of(failure: ExecutionFailure) -> EffectStatus {
    match failure {
        ExecutionFailure::FileNotFound
        | ExecutionFailure::PathNotFound
        | ExecutionFailure::NotAFile
        | ExecutionFailure::NotADirectory
        | ExecutionFailure::AlreadyExists
        | ExecutionFailure::InvalidUtf8
        | ExecutionFailure::FileTooLarge
        | ExecutionFailure::TooManyEntries
        | ExecutionFailure::PermissionDenied
        | ExecutionFailure::StorageFull
        | ExecutionFailure::ToolFailed
        | ExecutionFailure::Unavailable => EffectStatus::Failure,
        ExecutionFailure::OutputInvalid | ExecutionFailure::Timeout | ExecutionFailure::Io => {
            EffectStatus::Error
        }
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
    trail.guarantee(meta.guarantee);
    let effect = ToolEffect::new(head, meta, outcome, call.digest, call.id, head.id);
    trail.journal_mut().advance(Artifact::ToolEffect(effect), Some(key.clone()))?;
    Ok(())
}
