//! A stopped step, rebuilt from the store's data alone.

use std::collections::BTreeMap;

use super::p1_receive::StepContext;
use super::p3_validate_schema::Readable;
use super::p5_validate_args::ValidatedArgs;
use super::p8_record::Trail;
use super::{p2_parse, p3_validate_schema, p4_validate_action, p5_validate_args, p6_authorize};
use crate::call::Call;
use crate::digest::Digest;
use crate::failure::Failure;
use crate::gate::{Fault, Gate};
use crate::ids::{IdempotencyKey, RunId};
use crate::journal::artifact::{ToolCall, ToolClass};
use crate::journal::{Journal, StateCode, StateError};
use crate::json::{Value, strict};
use crate::machine::State;
use crate::ports::Dossier;
use crate::tool::Standing;
use crate::verify;

/// A call as it was sent, or is about to be.
pub(super) struct Sent {
    pub(super) call: Call,
    pub(super) key: IdempotencyKey,
    pub(super) pre_state: Option<Value>,
    /// The tool's definition and class when it was called.
    pub(super) called: (Option<Digest>, ToolClass),
    /// The executor that it was sent to.
    pub(super) executor_id: Option<String>,
}

impl Sent {
    /// Whether the tool is the same as when it was called, and accepted by an operator.
    pub(super) fn is_still_the_same_tool(&self) -> bool {
        self.is_accepted() && self.called == self.call.identity()
    }

    /// Whether an operator has accepted the tool as it is now.
    pub(super) fn is_accepted(&self) -> bool {
        match &self.call {
            Call::Core(_) => true,
            Call::Server(call) => call.tool.standing == Standing::Accepted,
        }
    }

    /// Whether this node reaches the executor that the call was sent to.
    pub(super) fn is_reached(&self, gate: &Gate) -> Result<(), Fault> {
        match &self.executor_id {
            Some(id) if !gate.answers_for(self.call.tool_server(), id) => Err(Fault::Executor(
                format!("`{id}` is not reached from this node: one that does goes on with the run"),
            )),
            Some(_) | None => Ok(()),
        }
    }
}

/// A step that can continue.
pub(super) struct Restored {
    pub(super) trail: Trail,
    pub(super) args: ValidatedArgs,
    pub(super) state: State,
    /// The caps that the decision names.
    pub(super) caps: BTreeMap<String, i64>,
    pub(super) sent: Option<Sent>,
}

/// Spec 004, recovery logic 2 and 3: "Load checkpoint, validate digest", "Replay log entries, verify
/// chain". A trace that does not verify, as an auditor would verify it, is left alone:
/// STATE_RECOVERY_FAILED.
pub(super) async fn restore(gate: &Gate, run_id: RunId) -> Result<Restored, Fault> {
    let dossier =
        gate.store.dossier(run_id).await?.ok_or_else(|| failed(run_id, "there is no such run"))?;
    let restored = rebuild(gate, &dossier).map_err(|error| failed(run_id, &error.to_string()))?;
    if restored.state != State::Executing {
        // The call is not durable after all: the next attempt takes a new hold.
        drop(gate.parked.take(run_id));
    }
    Ok(restored)
}

fn failed(run_id: RunId, why: &str) -> StateError {
    StateError::new(StateCode::RecoveryFailed, format!("run {run_id}: {why}"))
}

fn rebuild(gate: &Gate, dossier: &Dossier) -> Result<Restored, StateError> {
    let arrival = &dossier.run.arrival;
    let replayed = verify::run::prove(dossier)?;
    let state = replayed
        .tail
        .state
        .ok_or_else(|| failed(arrival.run_id, "an unfinished run without a journal"))?;
    let journal =
        Journal::continued(arrival.run_id, arrival.session_id, replayed.tail, replayed.references);
    let mut trail = Trail::restored(dossier, journal);
    let args = proposal(gate, &mut trail, dossier)?;
    if replayed.request.is_some_and(|request| request.meta.asked_digest != args.asked) {
        return Err(StateError::checksum("the payload is not what was asked"));
    }
    let caps = replayed.decision.map(|decision| decision.meta.caps()).unwrap_or_default();
    let sent = replayed.call.map(|call| as_sent(args.clone(), &caps, &call)).transpose()?;
    Ok(Restored { trail, args, state, caps, sent })
}

/// The call that was sent according to the journal: the request, lowered by the decision's caps.
fn as_sent(
    asked: ValidatedArgs,
    caps: &BTreeMap<String, i64>,
    call: &ToolCall,
) -> Result<Sent, StateError> {
    let lowered = p6_authorize::tighten(asked, caps).map_err(StateError::checksum)?;
    // Compared by digest: the journal and the agent's payload may spell the same number differently.
    if Digest::of(&lowered.args) != Digest::of(&call.call.args) {
        return Err(StateError::checksum("the journal's call is not the one that was decided on"));
    }
    Ok(Sent {
        call: lowered.call,
        key: call.idempotency_key.clone(),
        pre_state: call.meta.pre_state.clone(),
        called: (call.meta.tool_definition_digest, call.tool_class),
        executor_id: call.meta.executor_id.clone(),
    })
}

/// The proposal of a run whose journal is open, through the same phases as the first time. Today's limits
/// and contracts do not apply: a proposal that was accepted stays accepted.
fn proposal(
    gate: &Gate,
    trail: &mut Trail,
    dossier: &Dossier,
) -> Result<ValidatedArgs, StateError> {
    let unreadable =
        |failure: Failure| StateError::checksum(format!("payload: {}", failure.code()));
    let payload = &dossier.run.arrival.payload;
    let context = StepContext { payload: payload.bytes.clone() };
    let object = p2_parse::parse_within(&context, strict::DEPTH_MAX).map_err(unreadable)?;
    let proposal = p3_validate_schema::recall_schema(trail, object).map_err(unreadable)?;
    let action = p4_validate_action::recall_action(gate, proposal).map_err(unreadable)?;
    let sealed = match dossier.record {
        // The original payload was erased: nothing is sent any more.
        Some(_) => None,
        None => Readable::unsealed(dossier.sealed.as_ref(), payload, &action.args)?,
    };
    p5_validate_args::recall_args(trail, action, sealed).map_err(unreadable)
}
