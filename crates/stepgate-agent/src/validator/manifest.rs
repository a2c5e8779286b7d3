//! Section 5: whether results answer calls.
//!
//! "Any failure is a hard gate", and it is reported with the tool's id, its name and the reason.

use stepgate_core::json::strict::{self, Integers};

use super::rule::{self, Rule};
use crate::context::ToolCallManifest;
use crate::envelope::{ToolCall, ToolCallResult, is_present};
use crate::invoke::{InvokeError, InvokeResult};
use crate::limits::RESULT_DEPTH_MAX;

/// Whether results answer calls, one for one (section 5). It stops at the first error.
pub fn validate_tool_call_manifest(manifest: &ToolCallManifest) -> InvokeResult {
    check(manifest).err().map(InvokeResult::from).unwrap_or_default()
}

/// The first problem. An empty manifest has none.
pub(super) fn check(manifest: &ToolCallManifest) -> Result<(), InvokeError> {
    let ToolCallManifest { tool_calls: calls, tool_call_results: results } = manifest;
    if calls.len() != results.len() {
        return Err(uncounted(manifest));
    }
    for (place, (call, result)) in calls.iter().zip(results).enumerate() {
        if result.tool_call_id != call.tool_call_id {
            let (rule, reason) = why_misplaced(manifest, place, result);
            return Err(problem(rule, result, reason));
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
fn is_given(result: &ToolCallResult) -> Result<(), InvokeError> {
    let Some(text) = result.result_json.as_deref().filter(|text| is_present(Some(text))) else {
        let reason = result.error_message.as_deref().filter(|text| is_present(Some(text)));
        return Err(problem(rule::MANIFEST_RESULT, result, reason.unwrap_or("it has no result")));
    };
    let parsed = strict::parse(text.as_bytes(), RESULT_DEPTH_MAX, Integers::Any);
    parsed.map(drop).map_err(|refusal| {
        let reason = format!("its resultJson is not strict JSON: {refusal}");
        problem(rule::MANIFEST_RESULT, result, &reason)
    })
}

/// Too few or too many results: the first call without a result, or else the first surplus result.
fn uncounted(manifest: &ToolCallManifest) -> InvokeError {
    let ToolCallManifest { tool_calls: calls, tool_call_results: results } = manifest;
    let is_answered =
        |call: &&ToolCall| results.iter().any(|result| result.tool_call_id == call.tool_call_id);
    if let Some(call) = calls.iter().find(|call| !is_answered(call)) {
        let reason = "no result answers it";
        return named(rule::MANIFEST_COUNT, &call.tool_call_id, &call.name, reason);
    }
    let surplus = results.iter().enumerate().find_map(|(place, result)| {
        let (rule, reason) = why_misplaced(manifest, place, result);
        (rule == rule::MANIFEST_ID).then(|| problem(rule::MANIFEST_COUNT, result, reason))
    });
    // There is a surplus result, because the ids of a turn's calls are unique.
    surplus.unwrap_or_else(|| rule::MANIFEST_COUNT.broken())
}

/// The id is unknown, repeated, or only in the wrong place.
fn why_misplaced(
    manifest: &ToolCallManifest,
    place: usize,
    result: &ToolCallResult,
) -> (Rule, &'static str) {
    let ToolCallManifest { tool_calls: calls, tool_call_results: results } = manifest;
    let same = |other: &ToolCallResult| other.tool_call_id == result.tool_call_id;
    let is_known = calls.iter().any(|call| call.tool_call_id == result.tool_call_id);
    let is_second = results.iter().take(place).any(same);
    match (is_known, is_second) {
        (false, _) => (rule::MANIFEST_ID, "no call that waits has this id"),
        (true, true) => (rule::MANIFEST_ID, "this call is answered twice"),
        (true, false) => {
            (rule::MANIFEST_ORDER, "it answers another call than the one in its place")
        }
    }
}

fn problem(rule: Rule, result: &ToolCallResult, reason: &str) -> InvokeError {
    named(rule, &result.tool_call_id, &result.name, reason)
}

fn named(rule: Rule, tool_call_id: &str, name: &str, reason: &str) -> InvokeError {
    rule.broken().with("toolCallId", tool_call_id).with("name", name).with("reason", reason)
}
