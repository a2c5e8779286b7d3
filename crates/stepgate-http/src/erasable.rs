//! `/v1/erasable`: arguments that are kept apart until an operator erases them.

use axum::Json;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stepgate_core::erasable::{self, ErasableErased, ErasableTarget, Found};
use stepgate_core::ids::{ArtifactId, PrincipalId, RunId};
use stepgate_core::json::{Map, Value};
use stepgate_core::time::Timestamp;

use super::approvals::checked;
use super::{Id, JsonBody, Operator, Problem};

/// The erasable arguments of a run.
#[derive(Serialize, JsonSchema)]
pub(super) struct ErasableObject {
    run_id: RunId,
    /// The arguments; none where they are erased.
    arguments: Option<Map<String, Value>>,
    /// Who erased them, where an operator has.
    erased: Option<ErasureObject>,
}

/// An erasure.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Erasure")]
pub(super) struct ErasureObject {
    /// The event that records it.
    event_id: ArtifactId,
    erased_at: Timestamp,
    erased_by: PrincipalId,
    reason: String,
}

/// The erasable arguments of a run, or who erased them.
pub(super) async fn show(
    Operator(app, _): Operator,
    Id(run_id): Id<RunId>,
) -> Result<Json<ErasableObject>, Problem> {
    let store = &*app.service.gate.store;
    if let Some(row) = store.erasable(run_id).await? {
        let arguments = row.arguments().map_err(|error| Problem::state(&error))?;
        let locked = || Problem::conflict("they are encrypted under a key that is not here");
        let arguments = Some(arguments.ok_or_else(locked)?);
        return Ok(Json(ErasableObject { run_id, arguments, erased: None }));
    }
    let none = || Problem::nothing_there("the run has no erasable arguments, and never had any");
    let erasure = erasable::erasure_of(store, run_id).await?.ok_or_else(none)?;
    let (event, ErasableErased { erased_by, reason, .. }) = erasure;
    let (event_id, erased_at) = (event.event_id, event.ts);
    let erased = Some(ErasureObject { event_id, erased_at, erased_by, reason });
    Ok(Json(ErasableObject { run_id, arguments: None, erased }))
}

/// Which erasable arguments are looked for.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct FindErasable {
    /// Which ones.
    #[schemars(required, with = "ErasableTarget")]
    target: Option<ErasableTarget>,
}

/// Finds runs with erasable arguments. Nothing changes.
pub(super) async fn find(
    Operator(app, _): Operator,
    JsonBody(FindErasable { target }): JsonBody<FindErasable>,
) -> Result<Json<Found>, Problem> {
    let found = erasable::find(&*app.service.gate.store, &meant(target)?).await?;
    Ok(Json(found))
}

/// Which erasable arguments to erase.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Erase {
    /// Which ones.
    #[schemars(required, with = "ErasableTarget")]
    target: Option<ErasableTarget>,
    /// Why; it is recorded.
    #[schemars(required, with = "String")]
    reason: Option<String>,
}

pub(super) async fn erase(
    Operator(app, caller): Operator,
    JsonBody(Erase { target, reason }): JsonBody<Erase>,
) -> Result<Json<Found>, Problem> {
    let target = meant(target)?;
    let reason = checked(reason)?.ok_or_else(|| Problem::malformed("`reason` must say why"))?;
    let gate = &app.service.gate;
    Ok(Json(erasable::erase(gate, &target, &reason, &caller.principal_id).await?))
}

fn meant(target: Option<ErasableTarget>) -> Result<ErasableTarget, Problem> {
    match target {
        Some(ErasableTarget::Containing(text)) if text.is_empty() => {
            Err(Problem::malformed("`containing` must not be empty: every text contains that"))
        }
        Some(target) => Ok(target),
        None => Err(Problem::malformed("`target` must say which erasable arguments are meant")),
    }
}
