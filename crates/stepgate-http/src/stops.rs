//! `/v1/stops`: emergency stops.

use axum::Json;
use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stepgate_core::action::CORE_SERVER;
use stepgate_core::ids::{ArtifactId, PrincipalId, RunId};
use stepgate_core::stop::{StopOrder, StopTarget};
use stepgate_core::stops::{self, Lift, StopStanding};
use stepgate_core::time::Timestamp;
use stepgate_core::tool::is_server_name;
use stepgate_gateway::service::Stopped;

use super::approvals::checked;
use super::{Id, JsonBody, Operator, Problem, Watcher};

/// Most running calls that an answer names.
const NAMED_MAX: usize = 10;

/// A stop as people see it.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Stop")]
pub(super) struct StopObject {
    stop_id: ArtifactId,
    /// What is stopped.
    target: StopTarget,
    /// Whether it is in force.
    in_force: bool,
    made_at: Timestamp,
    stopped_by: PrincipalId,
    note: Option<String>,
    /// Who lifted it, where an operator has.
    lift: Option<Lift>,
}

impl From<StopStanding> for StopObject {
    fn from(standing: StopStanding) -> Self {
        let StopStanding { stop_id, order, made_at, lift } = standing;
        let StopOrder { note, stopped_by, target } = order;
        Self { stop_id, target, in_force: lift.is_none(), made_at, stopped_by, note, lift }
    }
}

#[derive(Serialize, JsonSchema)]
pub(super) struct Stops {
    stops: Vec<StopObject>,
}

/// Every stop, newest first.
pub(super) async fn list(Watcher(app, _): Watcher) -> Result<Json<Stops>, Problem> {
    let stops = stops::list(&app.service.gate).await?;
    Ok(Json(Stops { stops: stops.into_iter().map(StopObject::from).collect() }))
}

/// What to stop.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct MakeStop {
    /// What calls.
    #[schemars(required, with = "StopTarget")]
    target: Option<StopTarget>,
    /// Why; it is recorded, and not told to agents.
    #[serde(default)]
    note: Option<String>,
}

/// A stop, and what it could not take back.
#[derive(Serialize, JsonSchema)]
pub(super) struct MadeStop {
    stop: StopObject,
    /// How many calls may have been sent before it. They are not taken back.
    running: usize,
    /// The runs of the newest of these calls, at most 10.
    running_run_ids: Vec<RunId>,
    /// How many runs wait for an approval. They cannot be approved while the stop is in force.
    waiting: u64,
    /// That nothing of this name is known. The stop is in force all the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    warning: Option<String>,
}

/// Stops calls. Where the same is stopped already, the answer is the stop in force.
pub(super) async fn make(
    Operator(app, caller): Operator,
    JsonBody(MakeStop { target, note }): JsonBody<MakeStop>,
) -> Result<(StatusCode, Json<MadeStop>), Problem> {
    let target = target.ok_or_else(|| Problem::malformed("`target` must say what to stop"))?;
    if let Some(why) = defect(&target) {
        return Err(Problem::malformed(why));
    }
    let order = StopOrder { note: checked(note)?, stopped_by: caller.principal_id, target };
    let Stopped { stop, is_new, covered, warning } = app.service.stop(order).await?;
    let made = MadeStop {
        stop: stop.into(),
        running: covered.running.len(),
        running_run_ids: covered.running.into_iter().take(NAMED_MAX).collect(),
        waiting: covered.waiting,
        warning,
    };
    Ok((if is_new { StatusCode::CREATED } else { StatusCode::OK }, Json(made)))
}

/// Why a target can never be the target of a call.
pub(super) fn defect(target: &StopTarget) -> Option<&'static str> {
    match target {
        StopTarget::Server(server) if server != CORE_SERVER && !is_server_name(server) => {
            Some("no tool server can have this name; `core` is the built-in actions")
        }
        StopTarget::All
        | StopTarget::Principal(_)
        | StopTarget::Session(_)
        | StopTarget::Server(_) => None,
    }
}

pub(super) async fn lift(
    Operator(app, caller): Operator,
    Id(id): Id<ArtifactId>,
) -> Result<Json<StopObject>, Problem> {
    let lifted = app.service.lift(id, caller.principal_id).await?;
    lifted.map(|stop| Json(stop.into())).ok_or_else(Problem::not_found)
}
