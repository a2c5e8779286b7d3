//! Why a step was refused, in words, for the person who ran it.
//!
//! The response itself has a fixed message for each code, because an agent reads it. The record has the rest: which
//! policy denied, and what was wrong with which argument. Who may read the record is decided by the gateway.

use stepgate_core::bundle::RecordObject;
use stepgate_core::failure::Outcome;
use stepgate_core::ids::RunId;
use stepgate_core::ports::Store;
use stepgate_core::record::RecordBody;

use crate::client::{Client, Role};
use crate::data_dir::DataDir;
use crate::show;

pub(super) async fn from_store(store: &dyn Store, run_id: RunId) -> Option<RecordBody> {
    let dossier = store.dossier(run_id).await.ok().flatten();
    dossier.and_then(|dossier| dossier.record?.0.body().ok())
}

/// The record that the gateway shows: none to an agent's token.
pub(super) async fn from_gateway(
    data: &DataDir,
    run_id: RunId,
) -> anyhow::Result<Option<RecordBody>> {
    let Some(mut client) = Client::elsewhere(data, Role::Auditor).await? else {
        return Ok(None);
    };
    let run = client.get(&format!("/v1/runs/{run_id}")).await?;
    let record = run.get("record").cloned().unwrap_or_default();
    let record: Option<RecordObject> = serde_json::from_value(record)?;
    Ok(record.map(|record| record.body))
}

/// Prints the reason. The step is answered already, so one that cannot be read changes nothing.
pub(super) fn tell(run_id: RunId, body: Option<RecordBody>) {
    if let Some(reason) = body.as_ref().and_then(reason) {
        show::note(format!("{reason}; `stepgate runs show {run_id}` has everything"));
    }
}

fn reason(body: &RecordBody) -> Option<String> {
    let word = match body.outcome {
        Outcome::Success => return None,
        Outcome::ValidationError => "not valid",
        Outcome::Denied => "denied",
        Outcome::ExecutionError => "failed",
    };
    let phase = body.phase_failed_at?.as_str();
    let code = body.error_code.as_deref().unwrap_or("-");
    let detail = body.detail.as_deref().unwrap_or("the record has no detail");
    Some(show::printable(&format!("{word} in {phase}, {code}: {detail}")))
}
