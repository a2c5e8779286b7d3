//! `POST /v1/policy/evaluate`: what policy would decide on a proposal, without a run.

use std::collections::BTreeMap;

use axum::Json;
use axum::body::Body;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stepgate_core::digest::Digest;
use stepgate_core::failure::Failure;
use stepgate_core::ids::{PrincipalId, SessionId};
use stepgate_core::json::{Map, Value};
use stepgate_core::ports::{PolicyDecision, PolicyVerdict};
use stepgate_core::run::Payload;
use stepgate_core::step::{self, Submission, Weighed};
use stepgate_policy::Explanation;

use super::{App, Params, Problem, Watcher, body};

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct EvaluateParams {
    /// The principal to evaluate for; by default the caller.
    principal: Option<PrincipalId>,
}

/// The decision in one word.
#[derive(Clone, Copy, Serialize, JsonSchema)]
#[schemars(rename = "Verdict")]
#[serde(rename_all = "snake_case")]
pub(super) enum VerdictWord {
    Permit,
    RequireApproval,
    Deny,
}

/// The result of the evaluation.
#[derive(Serialize, JsonSchema)]
pub(super) struct Evaluation {
    pub(super) tool: String,
    pub(super) verdict: VerdictWord,
    /// Why a person is needed.
    pub(super) reason: Option<String>,
    /// The sandbox or pin rule that refuses it, whatever policy says.
    pub(super) rule: Option<String>,
    pub(super) policies: Vec<String>,
    policy_hash: Digest,
    pub(super) caps: BTreeMap<String, i64>,
    /// Why it is denied, if the policies' names do not show it.
    pub(super) detail: Option<String>,
    /// The declared defaults that policies saw, by JSON Pointer.
    defaults: Map<String, Value>,
    /// Every policy that was evaluated, with its file and line.
    pub(super) explanation: Option<Explanation>,
}

pub(super) async fn evaluate(
    Watcher(app, caller): Watcher,
    Params(params): Params<EvaluateParams>,
    body: Body,
) -> Result<Json<Evaluation>, Problem> {
    let payload = body::payload(&app, body).await?;
    let principal_id = params.principal.unwrap_or(caller.principal_id);
    weighed(&app, principal_id, payload).map(Json).map_err(|failure| Problem::invalid(&failure))
}

/// What would be decided on a proposal, or why it is not a valid one.
pub(super) fn weighed(
    app: &App,
    principal_id: PrincipalId,
    payload: Payload,
) -> Result<Evaluation, Failure> {
    let gate = &app.service.gate;
    let session_id = SessionId::new(gate.world.fresh_uuid());
    let submission = Submission { session_id, principal_id, payload };
    let weighed = step::weigh(gate, &submission)?;
    let policy = app.service.control.as_ref().map(|control| control.policy.current());
    let explanation = policy.map(|policy| policy.explain(&submission.principal_id, &weighed.call));
    Ok(evaluation(weighed, explanation))
}

fn evaluation(weighed: Weighed, explanation: Option<Explanation>) -> Evaluation {
    let Weighed { call, rule, decision } = weighed;
    let PolicyDecision { verdict, policies, policy_hash, caps, detail, defaults } = decision;
    let (verdict, reason) = match verdict {
        PolicyVerdict::Permit => (VerdictWord::Permit, None),
        PolicyVerdict::RequireApproval(need) => (VerdictWord::RequireApproval, Some(need.reason)),
        PolicyVerdict::Deny => (VerdictWord::Deny, None),
    };
    let verdict = if rule.is_some() { VerdictWord::Deny } else { verdict };
    let tool = call.name().to_owned();
    Evaluation {
        tool,
        verdict,
        reason,
        rule,
        policies,
        policy_hash,
        caps,
        detail,
        defaults,
        explanation,
    }
}
