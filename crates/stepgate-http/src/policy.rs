//! `POST /v1/policy/evaluate`: what policy would decide on a proposal, without a run. `GET /v1/policy/shadow`: where
//! the shadow policies would have decided otherwise.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stepgate_core::assumed::Assumed;
use stepgate_core::consent;
use stepgate_core::digest::Digest;
use stepgate_core::failure::Failure;
use stepgate_core::gate::Gate;
use stepgate_core::ids::{InvalidId, PrincipalId, SessionId};
use stepgate_core::json::{Map, Value};
use stepgate_core::origin::{self, Origin};
use stepgate_core::ports::{PolicyVerdict, StoreError};
use stepgate_core::run::Payload;
use stepgate_core::step::{self, Submission, Weighed};
use stepgate_gateway::control::Shadow;
use stepgate_gateway::differences::{self, Differences, Of, ShadowObject};
use stepgate_policy::{Explanation, PolicySet};

use super::{App, Params, Problem, Watcher, body};

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct EvaluateParams {
    /// The principal to evaluate for; by default the caller.
    principal: Option<PrincipalId>,
    /// A session whose labels, requests and records policies see; by default those of a new one.
    session: Option<SessionId>,
    /// Labels that policies see as the session's, beside those that it has: `untrusted,secret`.
    #[serde(default)]
    labels: String,
    /// The windows that policies see as open, instead of those that are: `office,on-call`.
    schedule: Option<String>,
    /// Where policies see the call's targets come from, instead of where they do: `user` or `directory/contacts`.
    targets: Option<String>,
    /// The same for the addresses in the other arguments.
    addresses: Option<String>,
    /// What is used of budgets, instead of what is: `payments=75.00,calls=3`.
    #[serde(default)]
    used: String,
    /// How many steps policies see that the session had, instead of those that it had.
    steps: Option<u64>,
    /// The windows that policies see as open when the session was opened, instead of those that were: `office`.
    opened: Option<String>,
    /// The groups that policies see the principal in, instead of those of the configuration: `finance,interns`.
    groups: Option<String>,
    /// Labels that the file or the memory has, beside what the tool is declared to read: `untrusted`.
    #[serde(default)]
    reads: String,
    /// Whether to ask the shadow policies instead of those in force.
    #[serde(default)]
    shadow: bool,
}

impl EvaluateParams {
    /// What policies are to know beside the call.
    async fn assumed(&self, gate: &Gate) -> Result<Assumed, Problem> {
        let names = gate.facts.names(&gate.groups);
        let session = match self.session {
            Some(session_id) => Assumed::of_session(gate, session_id).await?,
            None => Assumed::default(),
        };
        let mut labels = session.labels.clone();
        let label = |text: &str| {
            let known = names.labels.iter().find(|label| label.as_str() == text);
            known.cloned().ok_or_else(|| unknown("label", text))
        };
        for text in listed(&self.labels) {
            labels.insert(label(text)?);
        }
        let windows = |windows: &str| {
            let known =
                |text| names.windows.get(text).cloned().ok_or_else(|| unknown("window", text));
            listed(windows).map(known).collect::<Result<BTreeSet<String>, _>>()
        };
        let schedule = self.schedule.as_deref().map(windows);
        let opened = self.opened.as_deref().map(windows).transpose()?;
        let groups = self.groups.as_deref().map(|groups| {
            let known =
                |text| names.groups.get(text).cloned().ok_or_else(|| unknown("group", text));
            listed(groups).map(known).collect::<Result<_, _>>()
        });
        let used = listed(&self.used).map(|text| {
            let (name, used) = text.split_once('=').unwrap_or((text, ""));
            let used =
                used.parse().map_err(|error: InvalidId| Problem::malformed(error.to_string()));
            Ok((name.trim().to_owned(), used?))
        });
        Ok(Assumed {
            labels,
            schedule: schedule.transpose()?,
            groups: groups.transpose()?,
            reads: listed(&self.reads).map(label).collect::<Result<_, _>>()?,
            targets: self.targets.as_deref().map(origins).transpose()?,
            addresses: self.addresses.as_deref().map(origins).transpose()?,
            used: used.collect::<Result<_, Problem>>()?,
            steps: self.steps.unwrap_or(session.steps),
            opened: opened.unwrap_or_else(|| session.opened.clone()),
            ..session
        })
    }
}

/// The origins in a list with commas, with those that include them.
fn origins(names: &str) -> Result<BTreeSet<Origin>, Problem> {
    let origin = |name: &str| name.parse().map_err(|_| unknown("origin", name));
    let origins: BTreeSet<Origin> = listed(names).map(origin).collect::<Result<_, _>>()?;
    Ok(origin::widened(&origins))
}

fn listed(names: &str) -> impl Iterator<Item = &str> {
    names.split(',').map(str::trim).filter(|name| !name.is_empty())
}

fn unknown(kind: &str, name: &str) -> Problem {
    Problem::malformed(format!("there is no {kind} `{name}`"))
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
    /// The stop, or the rule of the sandbox or the pins, that refuses it, whatever policy says.
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
    let assumed = params.assumed(&app.service.gate).await?;
    consent::read_on(&app.service.gate).await?;
    let principal_id = params.principal.unwrap_or(caller.principal_id);
    let asked = Asked { principal_id, session_id: params.session, payload };
    let evaluation = match params.shadow {
        false => weighed(&app, asked, &assumed).await?,
        true => {
            let shadow = shadow_of(&app).ok_or_else(|| Problem::conflict(NO_SHADOW))?;
            let set = shadow.candidate().map_err(Problem::conflict)?.set;
            let gate = Gate { policy: Arc::clone(&set) as _, ..app.service.gate.clone() };
            weighed_by(&gate, Some(set), asked, &assumed).await?
        }
    };
    evaluation.map(Json).map_err(|failure| Problem::invalid(&failure))
}

/// What would be decided on a proposal, or why it is not a valid one.
pub(super) async fn weighed(
    app: &App,
    asked: Asked,
    assumed: &Assumed,
) -> Result<Result<Evaluation, Failure>, StoreError> {
    let set = app.service.control.as_ref().map(|control| control.policy.current());
    weighed_by(&app.service.gate, set, asked, assumed).await
}

/// A proposal that is only weighed.
pub(super) struct Asked {
    pub(super) principal_id: PrincipalId,
    /// A new one where none is named.
    pub(super) session_id: Option<SessionId>,
    pub(super) payload: Payload,
}

async fn weighed_by(
    gate: &Gate,
    policy: Option<Arc<PolicySet>>,
    asked: Asked,
    assumed: &Assumed,
) -> Result<Result<Evaluation, Failure>, StoreError> {
    let Asked { principal_id, session_id, payload } = asked;
    let session_id = session_id.unwrap_or_else(|| SessionId::new(gate.world.fresh_uuid()));
    let submission = Submission { session_id, principal_id, payload };
    Ok(step::weigh_now(gate, &submission, assumed).await?.map(|weighed| {
        let explanation = policy
            .map(|policy| policy.explain(&submission.principal_id, &weighed.call, &weighed.facts));
        evaluation(weighed, explanation)
    }))
}

fn evaluation(weighed: Weighed, explanation: Option<Explanation>) -> Evaluation {
    let Weighed { call, rule, decision, .. } = weighed;
    let (verdict, reason) = match decision.verdict {
        PolicyVerdict::Permit => (VerdictWord::Permit, None),
        PolicyVerdict::RequireApproval(need) => (VerdictWord::RequireApproval, Some(need.reason)),
        PolicyVerdict::Deny => (VerdictWord::Deny, None),
    };
    Evaluation {
        tool: call.name().to_owned(),
        verdict: if rule.is_some() { VerdictWord::Deny } else { verdict },
        reason,
        rule,
        policies: decision.policies,
        policy_hash: decision.policy_hash,
        caps: decision.caps,
        detail: decision.detail,
        defaults: decision.defaults,
        explanation,
    }
}

const NO_SHADOW: &str =
    "there are no shadow policies: `policy.shadow` in stepgate.toml names their directory";

/// Differences that are listed by default, and at most.
const LISTED: usize = 20;
const LISTED_MAX: usize = 1000;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ShadowParams {
    /// Also differences of earlier candidates.
    #[serde(default)]
    all: bool,
    /// How many of the newest differences to list.
    limit: Option<usize>,
}

/// The shadow policies, and where they differ.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "PolicyShadow")]
pub(super) struct ShadowAnswer {
    /// None where the configuration names none.
    shadow: Option<ShadowObject>,
    /// Those of the present candidate, or of all.
    differences: Differences,
}

pub(super) async fn shadow(
    Watcher(app, _): Watcher,
    Params(params): Params<ShadowParams>,
) -> Result<Json<ShadowAnswer>, Problem> {
    let limit = match params.limit.unwrap_or(LISTED) {
        limit @ 0..=LISTED_MAX => limit,
        _ => return Err(Problem::malformed(format!("`limit` must be at most {LISTED_MAX}"))),
    };
    let shadow = shadow_of(&app).map(|shadow| ShadowObject::of(&shadow));
    let candidate = shadow.as_ref().and_then(|shadow| shadow.candidate.as_ref());
    let of = match params.all {
        true => Some(Of::All),
        false => candidate.map(|candidate| Of::Candidate(candidate.policy_hash)),
    };
    let differences = match of {
        Some(of) => differences::read(&*app.service.gate.store, of, limit).await?,
        None => Differences::default(),
    };
    Ok(Json(ShadowAnswer { shadow, differences }))
}

fn shadow_of(app: &App) -> Option<Arc<Shadow>> {
    app.service.control.as_ref()?.shadow.clone()
}
