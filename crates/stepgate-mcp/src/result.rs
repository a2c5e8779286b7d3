//! An answer as a tool result, with its proof beside it.

use rmcp::model::{CallToolResult, ContentBlock, MetaObject, ResultType};
use serde_json::{Value, json};
use stepgate_core::action::Action;
use stepgate_core::failure::Outcome;
use stepgate_core::gate::Fault;
use stepgate_core::journal::artifact::EffectStatus;
use stepgate_core::journal::{Appended, Artifact, StateError};
use stepgate_core::ports::Recollection;
use stepgate_core::record::RecordBody;
use stepgate_core::run::Word;
use stepgate_core::step::Answer;

use super::call::KEY_META;
use super::{Shared, words};

/// The response as every other door gives it, where it is not the tool's own result.
const RESPONSE_META: &str = "stepgate/response";

/// The result of a run that is over.
pub(super) async fn of(shared: &Shared, answer: &Answer) -> Result<CallToolResult, Fault> {
    let store = &shared.service.gate.store;
    let known = store.recall(answer.run_id).await?;
    let record = known.as_ref().and_then(|known| known.record.as_ref());
    let record = record.map(|record| record.body().map_err(StateError::checksum)).transpose()?;
    let response: Value = serde_json::from_str(&answer.response).unwrap_or_default();
    let outcome = match answer.word {
        Word::Outcome(outcome) => outcome,
        Word::Notice(_) => return Ok(notice(shared, answer, String::new())),
    };
    let proof = meta(answer, &response, record.as_ref());
    let is_in_doubt = match outcome {
        Outcome::Success => return Ok(with_meta(succeeded(&response), proof)),
        Outcome::ExecutionError => match own_words(known.as_ref()) {
            Some(result) => return Ok(with_meta(result, proof)),
            None => is_in_doubt(&store.list_log_entries(answer.run_id, 0).await?)?,
        },
        Outcome::ValidationError | Outcome::Denied => false,
    };
    let words = words::of_refusal(
        &response,
        words::Known {
            detail: record.as_ref().and_then(|record| record.detail.as_deref()),
            is_in_doubt,
            payload_bytes_max: shared.service.gate.limits.payload_bytes_max,
        },
    );
    let result = CallToolResult::error(vec![ContentBlock::text(words)]);
    Ok(with_response(with_meta(result, proof), response))
}

/// Whether the call may have been done although it failed, as the journal has it.
fn is_in_doubt(entries: &[Appended]) -> Result<bool, StateError> {
    let last = entries.last().map(Appended::prove).transpose()?;
    Ok(match last {
        Some(Artifact::ToolEffect(effect)) => effect.outcome.status == EffectStatus::Error,
        Some(
            Artifact::ActionRequest(_) | Artifact::SupervisorDecision(_) | Artifact::ToolCall(_),
        )
        | None => false,
    })
}

fn with_meta(mut result: CallToolResult, meta: MetaObject) -> CallToolResult {
    result.meta = Some(meta);
    result
}

/// Puts the response beside the proof. Never into `structuredContent`: several clients show the model that
/// and nothing of the words, and clients hold it to the tool's output schema.
fn with_response(mut result: CallToolResult, response: Value) -> CallToolResult {
    result.meta.get_or_insert_default().0.insert(RESPONSE_META.to_owned(), response);
    result
}

/// A result that only says that there is none yet.
pub(super) fn notice(shared: &Shared, answer: &Answer, text: String) -> CallToolResult {
    let response: Value = serde_json::from_str(&answer.response).unwrap_or_default();
    let action = response.get("action").and_then(Value::as_str).unwrap_or_default();
    // A tool with an output schema gives structured results or errors: clients refuse anything else.
    let is_error = shared.catalog().has_output_schema(action);
    let result = CallToolResult::success(vec![ContentBlock::text(text)]);
    let mut result = with_meta(result, meta(answer, &response, None));
    result.is_error = Some(is_error);
    with_response(result, response)
}

/// What lets a client look its own call up and verify it.
fn meta(answer: &Answer, response: &Value, record: Option<&RecordBody>) -> MetaObject {
    let mut meta = MetaObject::new();
    let mut set = |name: &str, value: Value| {
        meta.0.insert(name.to_owned(), value);
    };
    set("stepgate/run-id", json!(answer.run_id));
    set("stepgate/verdict", json!(answer.word.as_str()));
    if let Some(digest) = record.and_then(|record| record.last_entry_digest) {
        set("stepgate/entry-digest", json!(digest));
    }
    if let Some(id) = response.get("proposal_id").filter(|id| id.is_string()) {
        set(KEY_META, id.clone());
    }
    if let Some(id) = response.pointer("/result/approval_id") {
        set("stepgate/approval-id", id.clone());
    }
    meta
}

fn succeeded(response: &Value) -> CallToolResult {
    let result = response.get("result").unwrap_or(&Value::Null);
    let is_core = response.get("action").and_then(Value::as_str).and_then(Action::parse).is_some();
    match is_core {
        true => of_core(result),
        false => of_tool(result).unwrap_or_else(|| of_core(result)),
    }
}

/// What a tool server gave, as it gave it. What kind of result it is, it did not have to say; our client
/// may have to read it.
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

/// What a tool itself said of its failure, where it said something.
fn own_words(known: Option<&Recollection>) -> Option<CallToolResult> {
    let said = known?.run.ending.as_ref()?.output_json.as_deref()?;
    let mut result = of_tool(&serde_json::from_str(said).ok()?)?;
    result.is_error = Some(true);
    Some(result)
}

#[cfg(test)]
mod tests;
