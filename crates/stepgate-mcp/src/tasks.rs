//! Tasks: a run that a client polls. The run is durable before its task is named, so nothing is stored here, and a
//! restart changes nothing.

use rmcp::ErrorData;
use rmcp::model::{
    CreateTaskResult, DetailedTask, ExtensionCapabilities, GetTaskResult, JsonObject,
    ServerCapabilities, TASKS_EXTENSION_ID, Task, TaskPayload, TaskStatus,
};
use stepgate_core::gate::Fault;
use stepgate_core::ids::RunId;
use stepgate_core::ports::Recollection;
use stepgate_core::run::{Status, Word};
use stepgate_core::step::{self, Answer};

use super::call::{McpCaller, fault};
use super::{Shared, result};

/// How often a client should poll.
const POLL_INTERVAL_MS: u64 = 1000;

pub(super) fn is_declared(extensions: &ExtensionCapabilities) -> bool {
    extensions.contains_key(TASKS_EXTENSION_ID)
}

pub(super) fn with(mut capabilities: ServerCapabilities) -> ServerCapabilities {
    let extensions = capabilities.extensions.get_or_insert_default();
    extensions.insert(TASKS_EXTENSION_ID.to_owned(), JsonObject::new());
    capabilities
}

pub(super) async fn created(shared: &Shared, answer: &Answer) -> Result<CreateTaskResult, Fault> {
    let known = shared.service.gate.store.recall(answer.run_id).await?;
    let task = match &known {
        Some(known) => task(known),
        None => Task::new(answer.run_id.to_string(), TaskStatus::Working, "", ""),
    };
    let notice = result::notice(shared, answer, String::new());
    Ok(CreateTaskResult::new(task).with_meta(notice.meta.unwrap_or_default()))
}

pub(super) async fn get(
    shared: &Shared,
    asker: &McpCaller,
    task_id: &str,
) -> Result<GetTaskResult, ErrorData> {
    let known = own(shared, asker, task_id).await?;
    let gate = &shared.service.gate;
    let answer = step::answer_of(gate, known.run.arrival.run_id).await.map_err(fault)?;
    let payload = match answer.word() {
        Word::Notice(_) => TaskPayload::Working,
        Word::Outcome(_) => {
            let result = result::of(shared, &answer).await.map_err(fault)?;
            let result = serde_json::to_value(result).unwrap_or_default();
            TaskPayload::Completed { result: result.as_object().cloned().unwrap_or_default() }
        }
    };
    Ok(GetTaskResult::new(DetailedTask::new(task(&known), payload)))
}

/// The run of a task. A run of another principal counts as unknown.
pub(super) async fn own(
    shared: &Shared,
    asker: &McpCaller,
    task_id: &str,
) -> Result<Recollection, ErrorData> {
    let unknown = || ErrorData::invalid_params("there is no such task", None);
    let run_id: RunId = task_id.parse().map_err(|_| unknown())?;
    let known = shared.service.gate.store.recall(run_id).await;
    let known = known.map_err(|error| fault(error.into()))?.ok_or_else(unknown)?;
    if known.run.arrival.principal_id == asker.principal_id { Ok(known) } else { Err(unknown()) }
}

fn task(known: &Recollection) -> Task {
    let created = known.run.arrival.received_at;
    let body = known.record.as_ref().and_then(|record| record.body().ok());
    let updated = body.map_or(created, |body| body.completed_at);
    let run_id = known.run.arrival.run_id;
    let task = Task::new(
        run_id.to_string(),
        TaskStatus::Working,
        created.to_string(),
        updated.to_string(),
    )
    .with_poll_interval_ms(POLL_INTERVAL_MS);
    match known.run.status {
        Status::ApprovalRequired => task.with_status_message("an operator must approve this call"),
        Status::Started
        | Status::Approved
        | Status::Ok
        | Status::Error
        | Status::Timeout
        | Status::Denied => task,
    }
}
