//! How Cedar's response is interpreted: any error denies, and a required approval overrides a plain permit.

use std::collections::{BTreeMap, BTreeSet};

use cedar_policy::{AuthorizationError, Decision, PolicyId, Response};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stepgate_core::approvers::Required;
use stepgate_core::digest::Digest;
use stepgate_core::json::{Map, Value};
use stepgate_core::ports::{ApprovalNeed, PolicyDecision, PolicyVerdict};

use crate::cap;
use crate::rule::{Effect, Rule};

/// The three answers, the strictest last.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[schemars(rename = "PolicyVerdict")]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The call is allowed.
    Permit,
    /// A person decides.
    Approval,
    /// The call is not allowed.
    #[default]
    Deny,
}

impl Verdict {
    /// The spelling that users know.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Permit => "permit",
            Self::Approval => "approval",
            Self::Deny => "deny",
        }
    }

    /// The verdict of a decision.
    pub fn of(decision: &PolicyDecision) -> Self {
        match decision.verdict {
            PolicyVerdict::Permit => Self::Permit,
            PolicyVerdict::RequireApproval(_) => Self::Approval,
            PolicyVerdict::Deny => Self::Deny,
        }
    }
}

/// The answer to one question, or to all questions about a call. By default, where no policy applies: deny.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CedarAnswer {
    pub(crate) verdict: Verdict,
    /// Why a person must decide.
    pub(crate) reasons: BTreeSet<String>,
    /// Who must decide, where not any one operator may.
    pub(crate) required: BTreeSet<Required>,
    /// The names of the policies that decided.
    pub(crate) policies: BTreeSet<String>,
    pub(crate) caps: BTreeMap<String, i64>,
    /// Why it is denied, where the policies' names do not explain it.
    pub(crate) detail: Option<String>,
    /// The declared defaults that policies saw.
    pub(crate) defaults: Map<String, Value>,
}

impl CedarAnswer {
    fn deny(policies: BTreeSet<String>) -> Self {
        Self { policies, ..Self::default() }
    }

    /// A denial that the names of these policies do not explain.
    pub(crate) fn refuse(policies: BTreeSet<String>, detail: String) -> Self {
        Self { detail: Some(detail), ..Self::deny(policies) }
    }

    /// The answer to every question about an action, if all its policies are unconditional: the same answer
    /// as Cedar's, without asking it.
    pub(crate) fn standing<'a>(rules: impl Iterator<Item = &'a Rule>) -> Option<Self> {
        let rules: Vec<&Rule> = rules.collect();
        if !rules.iter().all(|rule| rule.is_unconditional()) {
            return None;
        }
        let (forbids, permits): (Vec<&Rule>, Vec<&Rule>) =
            rules.into_iter().partition(|rule| rule.effect == Effect::Forbid);
        Some(match (forbids.as_slice(), permits.as_slice()) {
            ([], []) => Self::default(),
            ([], permits) => Self::permitted(permits),
            (forbids, _) => Self::deny(forbids.iter().map(|rule| rule.name.clone()).collect()),
        })
    }

    /// The joint answer of these permits.
    fn permitted(rules: &[&Rule]) -> Self {
        let mut answer = Self { verdict: Verdict::Permit, ..Self::default() };
        for rule in rules {
            answer.policies.insert(rule.name.clone());
            cap::unite(&mut answer.caps, &rule.caps);
            if let Some(reason) = &rule.approval {
                answer.verdict = Verdict::Approval;
                answer.reasons.insert(reason.clone());
                answer.required.extend(rule.required.clone());
            }
        }
        answer
    }

    /// The meaning of Cedar's response. `rule` finds a policy by its id.
    pub(crate) fn of<'a>(
        rule: impl Fn(&PolicyId) -> Option<&'a Rule>,
        response: &Response,
    ) -> Self {
        let mut policies: BTreeSet<String> = errored(response).map(|(name, _)| name).collect();
        let has_errors = !policies.is_empty();
        let deciding = response.diagnostics().reason();
        match response.decision() {
            Decision::Deny => {
                policies.extend(deciding.map(name_of));
                Self::deny(policies)
            }
            // Cedar itself would skip a policy with an error, even one that forbids.
            Decision::Allow if has_errors => Self::deny(policies),
            Decision::Allow => {
                let rules: Option<Vec<_>> = deciding.map(rule).collect();
                rules.map_or_else(Self::default, |rules| Self::permitted(&rules))
            }
        }
    }

    /// Both must agree: the stricter answer wins.
    pub(crate) fn and(mut self, other: Self) -> Self {
        match (self.verdict == Verdict::Deny, other.verdict == Verdict::Deny) {
            (true, false) => return self,
            (false, true) => return other,
            (true, true) | (false, false) => {}
        }
        self.verdict = self.verdict.max(other.verdict);
        self.policies.extend(other.policies);
        // A denial has neither reasons nor caps.
        self.reasons.extend(other.reasons);
        self.required.extend(other.required);
        cap::unite(&mut self.caps, &other.caps);
        self
    }

    /// The answer in the gate's form.
    pub(crate) fn into_decision(self, policy_hash: Digest) -> PolicyDecision {
        let verdict = match self.verdict {
            Verdict::Permit => PolicyVerdict::Permit,
            Verdict::Approval => PolicyVerdict::RequireApproval(ApprovalNeed {
                reason: joined(&self.reasons),
                required: self.required.into_iter().collect(),
            }),
            Verdict::Deny => PolicyVerdict::Deny,
        };
        let Self { policies, caps, detail, defaults, .. } = self;
        let policies = policies.into_iter().collect();
        PolicyDecision { verdict, policies, policy_hash, caps, detail, defaults }
    }
}

/// Several reasons as one text for the person.
pub(crate) fn joined(reasons: &BTreeSet<String>) -> String {
    reasons.iter().map(String::as_str).collect::<Vec<_>>().join("; ")
}

/// The name that is the policy's id, unescaped.
fn name_of(id: &PolicyId) -> String {
    AsRef::<str>::as_ref(id).to_owned()
}

/// The policies that could not be evaluated, and why.
pub(crate) fn errored(response: &Response) -> impl Iterator<Item = (String, String)> {
    response.diagnostics().errors().map(|error| match error {
        AuthorizationError::PolicyEvaluationError(error) => {
            (name_of(error.policy_id()), crate::finding::one_line(&error.inner().to_string()))
        }
    })
}
