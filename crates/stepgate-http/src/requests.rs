//! `POST /v1/sessions/{id}/requests`: what the user of a session asked for.

use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::Deserialize;
use stepgate_core::ids::SessionId;
use stepgate_core::requests::{self, NotTold, ToldBy};
use stepgate_gateway::tokens::Role;

use super::{Id, JsonBody, Problem, Proposer};

/// What the user asked for.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Request {
    /// The user's own words. What stands in them has the origin `user`.
    #[schemars(required, with = "String")]
    text: Option<String>,
}

/// Records it. An agent's own token may do so where the configuration trusts the program around its model: for a session of
/// its own, which is opened where it does not exist.
pub(super) async fn tell(
    Proposer(app, caller): Proposer,
    Id(session_id): Id<SessionId>,
    JsonBody(Request { text }): JsonBody<Request>,
) -> Result<StatusCode, Problem> {
    app.may_record(&caller)?;
    let gate = &app.service.gate;
    let text =
        text.ok_or_else(|| Problem::malformed("`text` must have what the user asked for"))?;
    let told_by = match caller.role {
        Role::Operator => {
            gate.store.session(session_id).await?.ok_or_else(Problem::not_found)?;
            ToldBy::Operator
        }
        Role::Agent if gate.facts.tellers.contains(&caller.principal_id) => {
            gate.named_session(session_id, &caller.principal_id).await?;
            ToldBy::Harness
        }
        Role::Agent | Role::Auditor => return Err(Problem::forbidden()),
    };
    match requests::tell(gate, session_id, &text, told_by, &caller.principal_id).await {
        Ok(()) => Ok(StatusCode::NO_CONTENT),
        Err(refused @ NotTold::Length) => Err(Problem::malformed(refused.to_string())),
        Err(refused @ NotTold::TooMany) => Err(Problem::conflict(refused.to_string())),
        Err(NotTold::Fault(fault)) => Err(fault.into()),
    }
}
