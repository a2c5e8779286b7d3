//! Why a step was refused, in words, for the person who ran it.
//!
//! The response itself has a fixed message for each code, because an agent reads it. The record has the rest: which
//! policy denied, and what was wrong with which argument. Who may read the record is decided by the gateway.

use axum::http::Method;
use stepgate_core::bundle::RecordObject;
use stepgate_core::failure::Outcome;
use stepgate_core::ids::RunId;
use stepgate_core::ports::Store;
use stepgate_core::record::RecordBody;

use crate::cli::Global;
use crate::client::{As, Client};
use crate::data_dir::DataDir;
use crate::show;

/// Prints the reason that the store has.
pub(super) async fn tell_from(store: &dyn Store, run_id: RunId) {
    let dossier = store.dossier(run_id).await.ok().flatten();
    let body = dossier.and_then(|dossier| dossier.record?.0.body().ok());
    tell(run_id, body.as_ref());
}

/// Prints the reason that the gateway tells: to an agent's token none.
pub(super) async fn tell_elsewhere(global: &Global, data: &DataDir, run_id: RunId) {
    let body = from_gateway(global, data, run_id).await.ok().flatten();
    tell(run_id, body.as_ref());
}

async fn from_gateway(
    global: &Global,
    data: &DataDir,
    run_id: RunId,
) -> anyhow::Result<Option<RecordBody>> {
    let Some(mut client) = Client::elsewhere(global, data, As::Auditor).await? else {
        return Ok(None);
    };
    let run = client.ask(Method::GET, &format!("/v1/runs/{run_id}"), None).await?.json()?;
    let record = run.get("record").cloned().unwrap_or_default();
    let record: Option<RecordObject> = serde_json::from_value(record)?;
    Ok(record.map(|record| record.body))
}

/// The step is answered already, so a reason that cannot be read changes nothing.
fn tell(run_id: RunId, body: Option<&RecordBody>) {
    if let Some(reason) = body.and_then(reason) {
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
