//! Rules for a request beyond section 3: its parts are within their limits, and it fits its place in the
//! conversation. All of them are checked after RequestHandler, before anything is durable.

mod form;

use super::{manifest, validate_core};
use crate::context::{Context, Known, ToolCallManifest};
use crate::envelope::{ContextType, ToolCall, ToolCallResult};
use crate::invoke::{InvokeError, InvokeResult};
use crate::stop::Code;
use crate::turn::{Turn, TurnState};

/// The core rules and the request's form are checked completely; its place only if both hold.
pub(super) fn check(context: &Context) -> InvokeResult {
    let mut found = validate_core(context);
    // A recorded request was checked when it came, and must get its recorded answer.
    if is_recorded(context) {
        return found;
    }
    form::check(context, &mut found);
    if found.is_success() {
        found.errors.extend(place(context).err());
    }
    found
}

/// Whether this same request came before.
fn is_recorded(context: &Context) -> bool {
    let Known { own, named, request_digest, .. } = &context.known;
    let turn = match context.context_type {
        Some(ContextType::Initial | ContextType::FollowOn) => own.as_ref(),
        Some(ContextType::ClientToolCallContinuation) => {
            named.as_ref().filter(|_| own_session(&context.known).is_ok())
        }
        None => None,
    };
    let recorded = turn.and_then(|(_, turn)| turn.request_digest(&context.correlation_id));
    recorded.is_some() && recorded == *request_digest
}

/// Whether the request fits the place in the conversation that it names.
fn place(context: &Context) -> Result<(), InvokeError> {
    let known = &context.known;
    match context.context_type {
        None => Ok(()),
        Some(ContextType::Initial) => is_free(known),
        Some(ContextType::FollowOn) => {
            let named = named_turn(known)?;
            is_free(known)?;
            is_over(named)
        }
        Some(ContextType::ClientToolCallContinuation) => {
            let named = named_turn(known)?;
            is_free(known)?;
            // A key that brought results is also used up within their turn.
            if named.request_digest(&context.correlation_id).is_some() {
                return Err(key_taken());
            }
            let results = &context.envelope().tool_results;
            let tool_calls = awaited(named, results)?;
            let tool_call_results = results.clone();
            manifest::check(&ToolCallManifest { tool_calls, tool_call_results })
        }
    }
}

/// Another principal's session counts as missing.
fn own_session(known: &Known) -> Result<(), InvokeError> {
    match (&known.session, &known.asker) {
        (Some(session), Some(asker)) if session.principal_id == *asker => Ok(()),
        (Some(_) | None, _) => Err(Code::SessionNotFound.error("there is no such session here")),
    }
}

fn named_turn(known: &Known) -> Result<&Turn, InvokeError> {
    own_session(known)?;
    let session_id = known.session.as_ref().map(|session| session.session_id);
    match &known.named {
        Some((place, turn)) if Some(*place) == session_id => Ok(turn),
        Some(_) | None => Err(Code::TurnNotFound.error("there is no such turn in this session")),
    }
}

/// A key that opened a turn can neither open another one nor bring results.
fn is_free(known: &Known) -> Result<(), InvokeError> {
    if known.own.is_none() { Ok(()) } else { Err(key_taken()) }
}

fn key_taken() -> InvokeError {
    let message = "this idempotency key was used for another request: take a fresh one";
    Code::IdempotencyConflict.error(message)
}

fn is_over(turn: &Turn) -> Result<(), InvokeError> {
    let why = match turn.state() {
        TurnState::Final(_) | TurnState::Failed(_) => return Ok(()),
        TurnState::AwaitingClient(_) => "the turn before waits for the results of your tools",
        TurnState::Asking | TurnState::Calling(_) => "the turn before has no answer yet",
    };
    Err(Code::TurnNotFinished.error(why).with("turnId", turn.id))
}

/// The calls that wait for the caller. It is an error if there are none, or if a result is for a tool that
/// the server runs.
fn awaited(turn: &Turn, results: &[ToolCallResult]) -> Result<Vec<ToolCall>, InvokeError> {
    let is_on_server = |result: &&ToolCallResult| {
        let mut asked = turn.answers().flat_map(|answer| &answer.calls);
        asked.any(|call| !call.is_clients() && call.tool_call_id == result.tool_call_id)
    };
    if let Some(result) = results.iter().find(is_on_server) {
        return Err(refused(Code::ToolRunsOnServer, Some(result), "the server runs this tool"));
    }
    let reason = match turn.state() {
        TurnState::AwaitingClient(calls) => return Ok(calls),
        TurnState::Asking | TurnState::Final(_) | TurnState::Failed(_) => {
            "the turn waits for no results: they came before, or were never asked for"
        }
        TurnState::Calling(_) => "the server's own calls come first: ask for the turn again",
    };
    Err(refused(Code::ToolResultsNotAwaited, results.first(), reason))
}

/// The failure with the result's id and name, and the reason.
fn refused(code: Code, result: Option<&ToolCallResult>, reason: &str) -> InvokeError {
    let error = code.error(reason).with("reason", reason);
    match result {
        Some(it) => error.with("toolCallId", &it.tool_call_id).with("name", &it.name),
        None => error,
    }
}
