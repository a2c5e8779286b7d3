//! Turns an answer into a tool result, with the proof in `_meta`.

use rmcp::model::{CallToolResult, ContentBlock, MetaObject, ResultType};
use serde_json::{Value, json};
use stepgate_core::action::Action;
use stepgate_core::failure::Outcome;
use stepgate_core::gate::Fault;
use stepgate_core::step::{Answer, Recorded, Reply};
use stepgate_core::words;

use super::Shared;
use super::call::KEY_META;

/// The five-key response of the other interfaces, if the result is not the tool's own.
const RESPONSE_META: &str = "stepgate/response";

pub(super) async fn of(shared: &Shared, answer: &Answer) -> Result<CallToolResult, Fault> {
    let recorded = match &answer.reply {
        Reply::Recorded(recorded) => recorded,
        Reply::ApprovalRequired(_) | Reply::InProgress(_) => {
            return Ok(notice(shared, answer, String::new()));
        }
    };
    match recorded.outcome {
        Outcome::Success => {
            let action = answer.action.as_deref().unwrap_or_default();
            return Ok(with_meta(succeeded(action, &answer.result()), meta(answer)));
        }
        Outcome::ExecutionError => {
            if let Some(result) = own_words(recorded) {
                return Ok(with_meta(result, meta(answer)));
            }
        }
        Outcome::ValidationError | Outcome::Denied => {}
    }
    let words = words::of_run(&shared.service.gate, answer.run_id, recorded).await?;
    let result = CallToolResult::error(vec![ContentBlock::text(words)]);
    Ok(with_response(with_meta(result, meta(answer)), answer))
}

fn with_meta(mut result: CallToolResult, meta: MetaObject) -> CallToolResult {
    result.meta = Some(meta);
    result
}

/// Puts the response into `_meta`. Never into `structuredContent`: several clients show the model only that, without
/// the text, and clients validate it against the tool's output schema.
fn with_response(mut result: CallToolResult, answer: &Answer) -> CallToolResult {
    let response = serde_json::to_value(answer.response()).unwrap_or_default();
    result.meta.get_or_insert_default().0.insert(RESPONSE_META.to_owned(), response);
    result
}

/// A result that says that there is no outcome yet.
pub(super) fn notice(shared: &Shared, answer: &Answer, text: String) -> CallToolResult {
    let action = answer.action.as_deref().unwrap_or_default();
    // Clients accept from a tool with an output schema only structured results or errors.
    let is_error = shared.catalog().has_output_schema(action);
    let result = CallToolResult::success(vec![ContentBlock::text(text)]);
    let mut result = with_meta(result, meta(answer));
    result.is_error = Some(is_error);
    with_response(result, answer)
}

/// The `_meta` with which a client can look up and verify its own call.
fn meta(answer: &Answer) -> MetaObject {
    let mut meta = MetaObject::new();
    let mut set = |name: &str, value: Value| {
        meta.0.insert(name.to_owned(), value);
    };
    set("stepgate/run-id", json!(answer.run_id));
    set("stepgate/verdict", json!(answer.word().as_str()));
    if let Reply::Recorded(Recorded { last_entry_digest: Some(digest), .. }) = &answer.reply {
        set("stepgate/entry-digest", json!(digest));
    }
    if let Some(id) = &answer.proposal_id {
        set(KEY_META, json!(id.as_str()));
    }
    if let Some(id) = answer.approval_id() {
        set("stepgate/approval-id", json!(id));
    }
    meta
}

fn succeeded(action: &str, result: &Value) -> CallToolResult {
    match Action::parse(action) {
        Some(_) => of_core(result),
        None => of_tool(result).unwrap_or_else(|| of_core(result)),
    }
}

/// The result of a tool server, unchanged except for `result_type`: the server need not set it, but our client may
/// need it.
fn of_tool(result: &Value) -> Option<CallToolResult> {
    let mut result: CallToolResult = serde_json::from_value(result.clone()).ok()?;
    result.result_type = Some(ResultType::COMPLETE);
    Some(result)
}

fn of_core(result: &Value) -> CallToolResult {
    let text = |name: &str| result.get(name).and_then(Value::as_str).map(str::to_owned);
    let said = text("content").or_else(|| text("final_response"));
    let said = said.unwrap_or_else(|| match result.is_null() {
        true => Outcome::Success.as_str().to_owned(),
        false => result.to_string(),
    });
    let mut shown = CallToolResult::success(vec![ContentBlock::text(said)]);
    shown.structured_content = result.is_object().then(|| result.clone());
    shown
}

fn own_words(recorded: &Recorded) -> Option<CallToolResult> {
    let said = recorded.output_json.as_deref()?;
    let mut result = of_tool(&serde_json::from_str(said).ok()?)?;
    result.is_error = Some(true);
    Some(result)
}

#[cfg(test)]
mod tests;
