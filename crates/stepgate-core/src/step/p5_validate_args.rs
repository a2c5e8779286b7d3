//! VALIDATE_ARGS: the action's contract, and an id that names no other action.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use serde::Serialize;
use tracing::instrument;

use super::Stop;
use super::p3_validate_schema::Readable;
use super::p4_validate_action::{Registered, ValidatedAction};
use super::p8_record::Trail;
use crate::action::Action;
use crate::call::{Call, ServerCall};
use crate::digest::Digest;
use crate::failure::Failure;
use crate::gate::{Fault, Gate};
use crate::grant::BoundCall;
use crate::idempotency::Binding;
use crate::ids::{IdempotencyKey, PrincipalId, ProposalId};
use crate::json::{Map, Value};
use crate::ports::StoreError;
use crate::run::Run;
use crate::spans::PHASE;
use crate::tool::is_written_as;

/// Arguments that keep the action's contract: from here on there is a call to decide on.
#[derive(Clone)]
pub(super) struct ValidatedArgs {
    pub(super) call: Call,
    /// The arguments as proposed, in their stored form.
    pub(super) args: Value,
    pub(super) key: IdempotencyKey,
    pub(super) asked: Digest,
}

/// The action and arguments that an idempotency key is bound to.
#[derive(Serialize)]
struct Asked<'a> {
    action: &'a str,
    args: &'a Value,
}

/// The digest of the action and arguments as proposed.
pub(crate) fn asked_digest(action: &str, args: &Value) -> Digest {
    Digest::of(&Asked { action, args })
}

/// Spec 000, VALIDATE_ARGS: "MUST apply per-action schema (contract)", "MUST reject unknown keys".
#[instrument(target = PHASE, name = "VALIDATE_ARGS", level = "debug", skip_all)]
pub(super) fn validate_args(
    trail: &Trail,
    action: ValidatedAction,
) -> Result<ValidatedArgs, Failure> {
    let ValidatedAction { id, action, args, written } = action;
    match action {
        Registered::Core(action) => core(trail, id, action, args),
        Registered::Tool(tool) => {
            let checked = tool.contract.check(&args);
            checked.map_err(|broken| Failure::InvalidArgs(broken.to_string()))?;
            let written = written.unwrap_or_else(|| args.clone());
            let call = Call::Server(ServerCall { tool, args });
            Ok(validated(trail, id, call, written))
        }
    }
}

/// The arguments of a proposal that was accepted before. The tool's contract is not checked again, because
/// it may have changed. Redacted arguments come from the original payload: what was redacted when the proposal came is so
/// now, whatever the configuration and the policies say by now.
pub(super) fn recall_args(
    trail: &Trail,
    action: ValidatedAction,
    sealed: Option<Map<String, Value>>,
) -> Result<ValidatedArgs, Failure> {
    let ValidatedAction { id, action, args: written, .. } = action;
    match action {
        Registered::Core(action) => core(trail, id, action, written),
        Registered::Tool(tool) => {
            let args = sealed.unwrap_or_else(|| written.clone());
            let is_redacted = |(name, value): &(&String, &Value)| {
                written.get(*name).map(Digest::of) != Some(Digest::of(value))
            };
            let redacted: Vec<&String> =
                args.iter().filter(is_redacted).map(|(name, _)| name).collect();
            let tool = match redacted.is_empty() {
                true => tool,
                false => Arc::new(tool.redacting(redacted)),
            };
            Ok(validated(trail, id, Call::Server(ServerCall { tool, args }), written))
        }
    }
}

fn core(
    trail: &Trail,
    id: ProposalId,
    action: Action,
    args: Map<String, Value>,
) -> Result<ValidatedArgs, Failure> {
    let call = action.call(&args).map_err(|broken| Failure::InvalidArgs(broken.to_string()))?;
    Ok(validated(trail, id, Call::Core(call), args))
}

fn validated(
    trail: &Trail,
    id: ProposalId,
    call: Call,
    written: Map<String, Value>,
) -> ValidatedArgs {
    let args = Value::Object(written);
    let asked = asked_digest(call.name(), &args);
    ValidatedArgs { call, args, key: IdempotencyKey::of(trail.principal_id(), &id), asked }
}

/// Checks whether the key is free. It is bound when the journal opens; the commit checks again.
///
/// Also reads what operators have decided since the last step, for AUTHORIZE: at the same time, because with a shared
/// store each of the two is a round trip.
///
/// Spec 004, I2: the same key "MUST NOT re-execute; return cached tool_effect".
pub(super) async fn claim_key(
    gate: &Gate,
    trail: &mut Trail,
    args: &ValidatedArgs,
) -> Result<(), Stop> {
    let reading = gate.consents.read_on(&*gate.store);
    let (binding, read) = both(gate.store.binding(&args.key), reading).await;
    match binding? {
        Some(binding) => Err(judge(gate, trail, &binding, args.asked).await?),
        None => Ok(read?),
    }
}

/// Waits for two futures at the same time.
async fn both<A: Future, B: Future>(a: A, b: B) -> (A::Output, B::Output) {
    let (mut a, mut b) = (pin!(a), pin!(b));
    let (mut a_done, mut b_done) = (None, None);
    poll_fn(|context| {
        if a_done.is_none()
            && let Poll::Ready(output) = a.as_mut().poll(context)
        {
            a_done = Some(output);
        }
        if b_done.is_none()
            && let Poll::Ready(output) = b.as_mut().poll(context)
        {
            b_done = Some(output);
        }
        match (a_done.take(), b_done.take()) {
            (Some(a), Some(b)) => Poll::Ready((a, b)),
            (a, b) => {
                (a_done, b_done) = (a, b);
                Poll::Pending
            }
        }
    })
    .await
}

/// The outcome of this step where another step bound the key in the meantime.
pub(super) async fn known(
    gate: &Gate,
    trail: &mut Trail,
    key: &IdempotencyKey,
    asked: Digest,
) -> Result<Stop, Fault> {
    match gate.store.binding(key).await? {
        Some(binding) => Ok(judge(gate, trail, &binding, asked).await?),
        None => Err(Fault::Store(StoreError::KeyTaken)),
    }
}

// `&mut`, because a task that waits can hold no shared reference to a trail.
async fn judge(
    gate: &Gate,
    trail: &mut Trail,
    binding: &Binding,
    asked: Digest,
) -> Result<Stop, StoreError> {
    let is_known = binding.asked_digest == asked
        || match gate.store.recall(binding.trace_id).await {
            Ok(known) => known.is_some_and(|known| is_of(trail, &known.run)),
            // A run that cannot be read answers nothing.
            Err(StoreError::State(_)) => false,
            Err(error) => return Err(error),
        };
    Ok(match is_known {
        true => Stop::Known(binding.trace_id),
        false => Stop::Failure(Failure::IdempotencyConflict),
    })
}

/// Whether a run is about the same proposal. Its stored form is another one where the policies or the configuration have
/// changed since then, or differ between nodes, in what they redact or make erasable.
fn is_of(trail: &Trail, run: &Run) -> bool {
    let stored = Readable::of_payload(&run.arrival.payload.bytes);
    let (Some(stored), Some(came)) = (stored, trail.as_it_came()) else { return false };
    match (&came.args, &stored.args) {
        (Some(Value::Object(came_with)), Some(Value::Object(written))) => {
            came.action == stored.action && is_written_as(came_with, written)
        }
        (Some(_) | None, Some(_) | None) => false,
    }
}

impl ValidatedArgs {
    /// The call as an approval or a grant is bound to it.
    pub(super) fn bound<'a>(
        &'a self,
        principal_id: &'a PrincipalId,
        executor_id: Option<&'a str>,
    ) -> BoundCall<'a> {
        BoundCall {
            args: &self.args,
            executor_id,
            principal_id,
            tool_definition_digest: self.call.definition_digest(),
            tool_name: self.call.tool_name(),
            tool_server: self.call.tool_server(),
        }
    }

    /// The binding that the key gets when the journal opens.
    pub(super) fn binding(&self, trail: &Trail) -> Binding {
        Binding {
            idempotency_key: self.key.clone(),
            tool_server: self.call.tool_server().into(),
            tool_name: self.call.tool_name().into(),
            asked_digest: self.asked,
            trace_id: trail.run_id(),
            settled: false,
        }
    }
}
