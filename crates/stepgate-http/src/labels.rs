//! `/v1/labels`: what sessions, files and memories have taken in.

use std::collections::BTreeSet;

use axum::Json;
use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stepgate_core::event::payload::LabelAdded;
use stepgate_core::gate::Gate;
use stepgate_core::ids::SessionId;
use stepgate_core::label::{Carrier, Label};
use stepgate_core::labels;
use stepgate_core::path::SandboxPath;

use super::approvals::checked;
use super::{JsonBody, Operator, Params, Problem, Watcher};

/// What the labels are of: exactly one of the three.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CarrierParams {
    /// A session.
    session: Option<SessionId>,
    /// A file or directory of this node's sandbox: `/sandbox/a.txt`.
    path: Option<String>,
    /// A memory that the configuration names.
    memory: Option<String>,
}

impl CarrierParams {
    fn carrier(self, gate: &Gate) -> Result<Carrier, Problem> {
        match (self.session, self.path, self.memory) {
            (Some(session_id), None, None) => Ok(Carrier::Session(session_id)),
            (None, Some(path), None) => {
                let is_root = path.trim_end_matches('/') == "/sandbox";
                let path = if is_root { "/sandbox/".to_owned() } else { path };
                let path = SandboxPath::directory(&path)
                    .map_err(|error| Problem::malformed(error.to_string()))?;
                Ok(labels::carrier_of(gate, &path))
            }
            (None, None, Some(name)) => Ok(Carrier::Memory(name)),
            (_, _, _) => Err(Problem::malformed("name one of `session`, `path` and `memory`")),
        }
    }
}

/// The labels of one thing.
#[derive(Serialize, JsonSchema)]
pub(super) struct LabelsObject {
    labels: BTreeSet<Label>,
    /// How each came: the newest event that added it.
    additions: Vec<LabelAdded>,
}

pub(super) async fn list(
    Watcher(app, _): Watcher,
    Params(of): Params<CarrierParams>,
) -> Result<Json<LabelsObject>, Problem> {
    let gate = &app.service.gate;
    let additions = labels::additions(gate, &of.carrier(gate)?).await?;
    let labels = additions.iter().map(|added| added.label.clone()).collect();
    Ok(Json(LabelsObject { labels, additions }))
}

/// A label to take away.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RemoveLabel {
    /// The label.
    #[schemars(required, with = "Label")]
    label: Option<Label>,
    /// Why.
    #[serde(default)]
    note: Option<String>,
}

/// Takes a label away. The next call that brings it in adds it again.
pub(super) async fn remove(
    Operator(app, caller): Operator,
    Params(of): Params<CarrierParams>,
    JsonBody(RemoveLabel { label, note }): JsonBody<RemoveLabel>,
) -> Result<StatusCode, Problem> {
    let gate = &app.service.gate;
    let label = label.ok_or_else(|| Problem::malformed("`label` must name a label"))?;
    let (carrier, note) = (of.carrier(gate)?, checked(note)?);
    match labels::remove(gate, carrier, label, caller.principal_id, note).await? {
        true => Ok(StatusCode::NO_CONTENT),
        false => Err(Problem::not_found()),
    }
}
