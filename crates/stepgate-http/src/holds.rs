//! `/v1/holds`: legal holds, which keep runs in the store.

use axum::Json;
use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stepgate_core::hold::{self, HoldOrder, HoldStanding, HoldTarget, Made};
use stepgate_core::ids::{ArtifactId, PrincipalId};
use stepgate_core::stops::Lift;
use stepgate_core::time::Timestamp;

use super::approvals::checked;
use super::{Id, JsonBody, Operator, Problem, Watcher};

/// A hold as people see it.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Hold")]
pub(super) struct HoldObject {
    hold_id: ArtifactId,
    /// Which runs stay. None where a newer version made the hold: then every run stays.
    target: Option<HoldTarget>,
    /// Whether it is in force.
    in_force: bool,
    made_at: Timestamp,
    held_by: Option<PrincipalId>,
    note: Option<String>,
    /// Who lifted it, where an operator has.
    lift: Option<Lift>,
}

impl From<HoldStanding> for HoldObject {
    fn from(standing: HoldStanding) -> Self {
        let HoldStanding { hold_id, order, made_at, lift } = standing;
        let (target, held_by, note) = match order {
            Some(HoldOrder { held_by, note, target }) => (Some(target), Some(held_by), note),
            None => (None, None, None),
        };
        Self { hold_id, target, in_force: lift.is_none(), made_at, held_by, note, lift }
    }
}

#[derive(Serialize, JsonSchema)]
pub(super) struct Holds {
    holds: Vec<HoldObject>,
}

/// Every hold, newest first.
pub(super) async fn list(Watcher(app, _): Watcher) -> Result<Json<Holds>, Problem> {
    let holds = hold::list(&*app.service.gate.store).await?;
    Ok(Json(Holds { holds: holds.into_iter().rev().map(HoldObject::from).collect() }))
}

/// Which runs to hold.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct MakeHold {
    /// Which runs.
    #[schemars(required, with = "HoldTarget")]
    target: Option<HoldTarget>,
    /// Why; it is recorded.
    #[serde(default)]
    note: Option<String>,
}

/// Makes a hold. Where the same is held already, the answer is the hold in force.
pub(super) async fn make(
    Operator(app, caller): Operator,
    JsonBody(MakeHold { target, note }): JsonBody<MakeHold>,
) -> Result<(StatusCode, Json<HoldObject>), Problem> {
    let target =
        target.ok_or_else(|| Problem::malformed("`target` must say which runs to hold"))?;
    let order = HoldOrder { held_by: caller.principal_id, note: checked(note)?, target };
    Ok(match hold::make(&app.service.gate, order).await? {
        Made::Now(hold) => (StatusCode::CREATED, Json(hold.into())),
        Made::Before(hold) => (StatusCode::OK, Json(hold.into())),
    })
}

pub(super) async fn lift(
    Operator(app, caller): Operator,
    Id(id): Id<ArtifactId>,
) -> Result<Json<HoldObject>, Problem> {
    let lifted = hold::lift(&app.service.gate, id, caller.principal_id).await?;
    lifted.map(|hold| Json(hold.into())).ok_or_else(Problem::not_found)
}
