//! How the outcomes of policies are interpreted: any error denies, and a required approval overrides a plain permit.

use std::collections::{BTreeMap, BTreeSet};

use stepgate_core::approvers::Required;
use stepgate_core::budget::Due;
use stepgate_core::digest::Digest;
use stepgate_core::json::{Map, Value};
use stepgate_core::ports::{ApprovalNeed, PolicyDecision, PolicyErasable, PolicyVerdict};

pub use stepgate_core::ports::PolicyAnswer as Verdict;

use crate::cap;
use crate::evaluate::Outcome;
use crate::rule::{Effect, Rule};

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
    /// What the call takes from budgets.
    pub(crate) due: Vec<Due>,
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
        let is_same_for_all = rules.iter().all(|rule| rule.is_unconditional());
        is_same_for_all.then(|| Self::of(rules.into_iter().map(|rule| (rule, Outcome::Matched))))
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

    /// The answer that follows from each policy's outcome. A forbid wins, and so does an error: Cedar itself would skip a
    /// policy with an error, even one that forbids.
    pub(crate) fn of<'a>(outcomes: impl Iterator<Item = (&'a Rule, Outcome)>) -> Self {
        let (mut permits, mut denials) = (Vec::new(), BTreeSet::new());
        for (rule, outcome) in outcomes {
            match (outcome, rule.effect) {
                (Outcome::NotMatched, _) => {}
                (Outcome::Matched, Effect::Permit) => permits.push(rule),
                (Outcome::Matched, Effect::Forbid) | (Outcome::Errored(_), _) => {
                    denials.insert(rule.name.clone());
                }
            }
        }
        match (denials.is_empty(), permits.is_empty()) {
            (false, _) => Self::deny(denials),
            (true, true) => Self::default(),
            (true, false) => Self::permitted(&permits),
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
        let Self { policies, caps, detail, defaults, due, .. } = self;
        let policies = policies.into_iter().collect();
        let erasable = PolicyErasable::default();
        PolicyDecision { verdict, policies, policy_hash, caps, detail, defaults, due, erasable }
    }
}

/// Several reasons as one text for the person.
pub(crate) fn joined(reasons: &BTreeSet<String>) -> String {
    reasons.iter().map(String::as_str).collect::<Vec<_>>().join("; ")
}
