//! Section 5: whether results answer calls.
//!
//! "Any failure is a hard gate", and it is reported with the tool's id, its name and the reason.

use stepgate_core::json::strict::{self, Integers};

use super::rule::{self, Rule};
use crate::context::ToolCallManifest;
use crate::envelope::{ToolCall, ToolCallResult, is_present};
use crate::invoke::InvokeError;
use crate::limits::RESULT_DEPTH_MAX;

/// The first problem. An empty manifest has none.
pub(super) fn check(manifest: &ToolCallManifest) -> Result<(), Box<InvokeError>> {
    let ToolCallManifest { tool_calls: calls, tool_call_results: results } = manifest;
    if calls.len() != results.len() {
        return Err(uncounted(calls, results));
    }
    for (place, (call, result)) in calls.iter().zip(results).enumerate() {
        if result.tool_call_id != call.tool_call_id {
            return Err(misplaced(calls, results, place, result));
        }
        if result.name != call.name {
            let reason = format!("the call is of `{}`", call.name);
            return Err(problem(rule::MANIFEST_NAME, result, &reason));
        }
        is_given(result)?;
    }
    Ok(())
}

/// "All ToolCallResults MUST contain ResultJson": a text that is JSON.
fn is_given(result: &ToolCallResult) -> Result<(), Box<InvokeError>> {
    let Some(text) = result.result_json.as_deref().filter(|text| is_present(Some(text))) else {
        let reason = result.error_message.as_deref().filter(|text| is_present(Some(text)));
        return Err(problem(rule::MANIFEST_RESULT, result, reason.unwrap_or("it has no result")));
    };
    match strict::parse(text.as_bytes(), RESULT_DEPTH_MAX, Integers::Any) {
        Ok(_) => Ok(()),
        Err(refusal) => {
            let reason = format!("its resultJson is not strict JSON: {refusal}");
            Err(problem(rule::MANIFEST_RESULT, result, &reason))
        }
    }
}

/// Too few or too many results: the first call without a result, or else the first surplus result.
fn uncounted(calls: &[ToolCall], results: &[ToolCallResult]) -> Box<InvokeError> {
    let is_answered =
        |call: &&ToolCall| results.iter().any(|result| result.tool_call_id == call.tool_call_id);
    if let Some(call) = calls.iter().find(|call| !is_answered(call)) {
        let reason = "no result answers it";
        return named(rule::MANIFEST_COUNT, &call.tool_call_id, &call.name, reason);
    }
    let is_too_much = |(place, result): &(usize, &ToolCallResult)| {
        why_misplaced(calls, results, *place, result).1 != OUT_OF_ORDER
    };
    let extra = results.iter().enumerate().find(is_too_much);
    match extra.or_else(|| results.iter().enumerate().next_back()) {
        Some((place, result)) => {
            let (_, reason) = why_misplaced(calls, results, place, result);
            problem(rule::MANIFEST_COUNT, result, reason)
        }
        None => named(rule::MANIFEST_COUNT, "", "", "there is nothing to answer"),
    }
}

const OUT_OF_ORDER: &str = "it answers another call than the one in its place";

fn misplaced(
    calls: &[ToolCall],
    results: &[ToolCallResult],
    place: usize,
    result: &ToolCallResult,
) -> Box<InvokeError> {
    let (rule, reason) = why_misplaced(calls, results, place, result);
    problem(rule, result, reason)
}

/// The id is unknown, repeated, or only in the wrong place.
fn why_misplaced(
    calls: &[ToolCall],
    results: &[ToolCallResult],
    place: usize,
    result: &ToolCallResult,
) -> (Rule, &'static str) {
    let same = |other: &ToolCallResult| other.tool_call_id == result.tool_call_id;
    let is_known = calls.iter().any(|call| call.tool_call_id == result.tool_call_id);
    let is_second = results.iter().take(place).any(same);
    match (is_known, is_second) {
        (false, _) => (rule::MANIFEST_ID, "no call that waits has this id"),
        (true, true) => (rule::MANIFEST_ID, "this call is answered twice"),
        (true, false) => (rule::MANIFEST_ORDER, OUT_OF_ORDER),
    }
}

fn problem(rule: Rule, result: &ToolCallResult, reason: &str) -> Box<InvokeError> {
    named(rule, &result.tool_call_id, &result.name, reason)
}

fn named(rule: Rule, tool_call_id: &str, name: &str, reason: &str) -> Box<InvokeError> {
    let error = rule.broken().with("toolCallId", tool_call_id);
    Box::new(error.with("name", name).with("reason", reason))
}
