//! One call: its permit, its timeout, its answer, and an answer that comes too late.

use std::sync::Arc;
use std::time::Instant;

use stepgate_core::call::ServerCall;
use stepgate_core::failure::ExecutionFailure;
use stepgate_core::json::{Map, Value};
use stepgate_core::late::LateResult;
use stepgate_core::lock;
use stepgate_core::ports::{Dispatch, Effect, Failed, Sending};
use stepgate_core::tool::Standing;
use stepgate_core::trace_context::{TRACEPARENT, TRACESTATE, TraceContext};
use tokio::sync::OwnedSemaphorePermit;

use super::Late;
use super::breaker::Admission;
use super::mcp::{Connection, Pending, ServerAnswer};
use super::outcome;
use super::progress::Listener;
use super::server::{ConnectionState, Server};

/// The detail of a call's record when the breaker is open.
const BREAKER_OPEN: &str = "BREAKER_OPEN";

/// A call's permit. Dropped when its effect is committed.
pub(super) struct Turn {
    _permit: OwnedSemaphorePermit,
    server: Arc<Server>,
    is_trial: bool,
}

impl Drop for Turn {
    fn drop(&mut self) {
        if self.is_trial {
            self.server.breaker().trial_is_over();
        }
    }
}

/// The failure of a call that was not sent.
pub(super) fn unavailable(detail: impl Into<String>) -> Failed {
    let detail = Some(outcome::shortened(&detail.into()));
    Failed { detail, ..ExecutionFailure::Unavailable.into() }
}

pub(super) async fn prepare(server: &Arc<Server>) -> Result<Turn, Failed> {
    let wait = server.spec.limits.permit_wait;
    // A call to a server that is down fails without waiting.
    connection(server)?;
    let permit = tokio::time::timeout(wait, Arc::clone(&server.permits).acquire_owned()).await;
    let Ok(Ok(permit)) = permit else {
        let calls = server.spec.limits.concurrency;
        let why = format!("all {calls} calls were busy for {} ms", wait.as_millis());
        return Err(unavailable(why));
    };
    connection(server)?;
    let is_trial = match server.breaker().admit(Instant::now()) {
        Admission::Pass => false,
        Admission::Trial => true,
        Admission::Refused => return Err(unavailable(BREAKER_OPEN)),
    };
    Ok(Turn { _permit: permit, server: Arc::clone(server), is_trial })
}

fn connection(server: &Server) -> Result<Arc<Connection>, Failed> {
    match server.state() {
        ConnectionState::Up(connection) => Ok(connection),
        ConnectionState::Down(why) => Err(unavailable(format!("the server is down: {why}"))),
    }
}

pub(super) async fn dispatch(
    server: &Arc<Server>,
    call: &ServerCall,
    sending: &Sending,
    trace: Option<TraceContext>,
    listener: &Arc<Listener>,
    late: &Late,
) -> Effect {
    let (offer, connection) = match (current(server, call), connection(server)) {
        (Ok(offer), Ok(connection)) => (offer, connection),
        (Err(failed), _) | (_, Err(failed)) => return Effect::Failed(failed),
    };
    let limits = &server.spec.limits;
    let deadline = tokio::time::Instant::now() + offer.timeout;
    let (tool, args) = (call.tool.name.tool(), call.args.clone());
    let sent = connection.call(tool, args, meta(sending, trace), listener);
    let (answer, pending) = match tokio::time::timeout_at(deadline, sent).await {
        Ok(Ok(mut pending)) => match tokio::time::timeout_at(deadline, pending.answer()).await {
            Ok(answer) => (Some(answer), None),
            Err(_) => (None, Some(pending)),
        },
        Ok(Err(why)) => (Some(ServerAnswer::NotSent(why)), None),
        Err(_) => (None, None),
    };
    let Some(answer) = answer else {
        server.breaker().failed(Instant::now());
        if let Some(pending) = pending {
            listen(server, connection, pending, sending, late);
        }
        let detail = Some(format!("no answer within {} ms", offer.timeout.as_millis()));
        return Effect::Failed(Failed { detail, ..ExecutionFailure::Timeout.into() });
    };
    let judged = outcome::of(answer, offer.output.as_deref(), limits.output_bytes_max);
    match judged.is_answered {
        true => server.breaker().answered(),
        false => server.breaker().failed(Instant::now()),
    }
    judged.effect
}

/// The tool as it is offered now, if it is still the one that the decision was about.
fn current(server: &Server, call: &ServerCall) -> Result<super::catalog::Offer, Failed> {
    let offer = lock::read(&server.catalog).offer(&call.tool.name).cloned();
    let offer = offer.ok_or_else(|| unavailable("the server has no such tool"))?;
    let is_same = offer.tool.definition_digest == call.tool.definition_digest;
    match offer.tool.standing {
        Standing::Accepted if is_same => Ok(offer),
        Standing::Accepted | Standing::Changed => {
            Err(unavailable("the tool's definition has changed since the decision"))
        }
        Standing::New => Err(unavailable("no operator has accepted the tool")),
        Standing::Gone => Err(unavailable("the server no longer has the tool")),
    }
}

/// Metadata that is sent beside the arguments, so that the server can act only once, and knows the trace.
fn meta(sending: &Sending, trace: Option<TraceContext>) -> Map<String, Value> {
    let dispatch = match sending.dispatch {
        Dispatch::First => "first",
        Dispatch::Again => "again",
    };
    let members = [
        ("stepgate/dispatch", dispatch.to_owned()),
        ("stepgate/idempotency-key", sending.key.to_string()),
        ("stepgate/tool-call-id", sending.tool_call_id.to_string()),
    ];
    let parent = trace.iter().map(|trace| (TRACEPARENT, trace.parent.to_string()));
    let state = trace.iter().filter_map(|trace| Some((TRACESTATE, trace.state.clone()?)));
    let members = members.into_iter().chain(parent).chain(state);
    members.map(|(name, value)| (name.to_owned(), Value::String(value))).collect()
}

/// Cancels the request, but keeps listening: a late answer is recorded as an event.
fn listen(
    server: &Server,
    connection: Arc<Connection>,
    pending: Pending,
    sending: &Sending,
    late: &Late,
) {
    let permit = Arc::clone(&server.late_permits).try_acquire_owned();
    let (late, run_id) = (Arc::clone(late), sending.run_id);
    tokio::spawn(async move {
        connection.cancel(&pending, "the time of the call is over").await;
        let Ok(_permit) = permit else { return };
        let answer = pending.late_answer().await;
        if let Some((succeeded, result_digest)) = answer.and_then(outcome::of_late) {
            late(LateResult { run_id, succeeded, result_digest });
        }
    });
}
