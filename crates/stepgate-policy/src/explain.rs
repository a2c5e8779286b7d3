//! Explains a decision: every policy that was evaluated, with its file and line.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;
use stepgate_core::approvers::Required;
use stepgate_core::call::Call;
use stepgate_core::digest::Digest;
use stepgate_core::facts::Facts;
use stepgate_core::ids::PrincipalId;
use stepgate_core::json::{Map, Value};

use crate::answer::{CedarAnswer, Verdict, joined};
use crate::budget::{ExplainedBudget, Priced};
use crate::evaluate::{Evaluation, Outcome};
use crate::question::CedarQuestion;
use crate::rule::{Effect, Rule};
use crate::set::{Entry, PolicySet};
use crate::subject::Subject;
use crate::unseen::{ExplainedUnseen, blind_spots};
use crate::who::Who;

/// Why a call is decided as it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Explanation {
    /// The principal.
    pub principal: PrincipalId,
    /// The action.
    pub action: String,
    /// The answer.
    pub verdict: Verdict,
    /// Why a person must decide.
    pub reason: Option<String>,
    /// The policies that decided.
    pub policies: Vec<String>,
    /// The largest value that an argument may have.
    pub caps: BTreeMap<String, i64>,
    /// Digest of the policy set.
    pub policy_hash: Digest,
    /// Why Cedar was not asked, if it was not; then the call is denied.
    pub not_asked: Option<String>,
    /// Why it is denied, where the policies' names do not explain it.
    pub detail: Option<String>,
    /// Arguments that the tool would get and policies cannot see, with the policies that read them.
    pub unseen: Vec<ExplainedUnseen>,
    /// The declared defaults that policies saw for omitted arguments, by JSON Pointer.
    pub defaults: Map<String, Value>,
    /// The budgets that cover the call as it would be sent.
    pub budgets: Vec<ExplainedBudget>,
    /// What policies knew beside the call.
    pub facts: Facts,
    /// The requests to Cedar: one, or two for the source and the destination of a RENAME_FILE; then the same
    /// for the call with its caps applied.
    pub requests: Vec<ExplainedRequest>,
    /// Values of the arguments that would deny a call, because policies read the arguments and cannot see
    /// such values.
    pub notes: Vec<String>,
}

/// One request to Cedar.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ExplainedRequest {
    /// The resource, as a policy would name it.
    pub resource: String,
    /// Whether it is about the arguments with the caps applied.
    pub is_capped: bool,
    /// The answer.
    pub verdict: Verdict,
    /// Why a person must decide.
    pub reason: Option<String>,
    /// The policies that decided.
    pub decided_by: Vec<String>,
    /// Every policy whose scope allows the action, in the order of files and lines.
    pub policies: Vec<ExplainedPolicy>,
}

/// One policy that was evaluated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ExplainedPolicy {
    /// Its name.
    pub name: String,
    /// Whether it permits or forbids.
    pub effect: Effect,
    /// The file.
    pub file: String,
    /// The line where it begins.
    pub line: Option<usize>,
    /// Whether it matched.
    pub outcome: Outcome,
    /// Why a person must decide, where it matches.
    pub approval: Option<String>,
    /// Who must decide, where it matches and not any one operator may.
    pub required: Option<Required>,
    /// Its caps, where it matches.
    pub caps: BTreeMap<String, i64>,
}

impl PolicySet {
    /// Explains how this call would be decided.
    pub fn explain(&self, principal_id: &PrincipalId, call: &Call, facts: &Facts) -> Explanation {
        let who = Who::of(principal_id, &facts.groups);
        // Redacted arguments are digests here, as when the gate asks.
        let call = call.written();
        let (mut requests, mut unseen, mut budgets) = (Vec::new(), Vec::new(), Vec::new());
        let answer = self.judge(&who, &call, facts, |entry, asked_call, asked| {
            let is_capped = !std::ptr::eq(asked_call, &*call);
            let questions = asked.questions.iter();
            requests.extend(questions.map(|question| self.explained(entry, question, is_capped)));
            budgets = asked.priced.iter().map(Priced::explained).collect();
            if !is_capped {
                unseen = self.unseen(entry, &who, asked);
            }
        });
        let (answer, not_asked) = match answer {
            Ok(answer) => (answer, None),
            Err(unaskable) => (CedarAnswer::default(), Some(unaskable.to_string())),
        };
        Explanation {
            principal: principal_id.clone(),
            action: call.name().to_owned(),
            verdict: answer.verdict,
            reason: reason_of(&answer),
            policies: answer.policies.into_iter().collect(),
            caps: answer.caps,
            policy_hash: self.digest,
            not_asked,
            detail: answer.detail,
            unseen,
            defaults: answer.defaults,
            requests,
            budgets,
            facts: facts.clone(),
            notes: self.notes(&who, &call),
        }
    }

    /// Values that the policies for a call like this cannot see.
    fn notes(&self, who: &Who, call: &Call) -> Vec<String> {
        let Some(entry) = self.entries.get(call.name()) else { return Vec::new() };
        let Subject::Tool { args, .. } = &entry.subject else { return Vec::new() };
        let candidates = self.candidates(entry, who);
        let spots = candidates
            .flat_map(|rule| blind_spots(rule, args).into_iter().map(move |spot| (rule, spot)));
        spots.map(|(rule, spot)| spot.told(rule)).collect()
    }

    fn explained(
        &self,
        entry: &Entry,
        question: &CedarQuestion,
        is_capped: bool,
    ) -> ExplainedRequest {
        let answer = self.answer(entry, question);
        let mut evaluation = Evaluation::of(question);
        ExplainedRequest {
            resource: question.resource.to_string(),
            is_capped,
            verdict: answer.verdict,
            reason: reason_of(&answer),
            decided_by: answer.policies.into_iter().collect(),
            policies: self
                .rules_of(entry)
                .map(|rule| explained_policy(rule, rule.condition.outcome(&mut evaluation)))
                .collect(),
        }
    }
}

fn explained_policy(rule: &Rule, outcome: Outcome) -> ExplainedPolicy {
    ExplainedPolicy {
        name: rule.name.clone(),
        effect: rule.effect,
        file: rule.file.clone(),
        line: rule.place.map(|place| place.line),
        outcome,
        approval: rule.approval.clone(),
        required: rule.required.clone(),
        caps: rule.caps.clone(),
    }
}

fn reason_of(answer: &CedarAnswer) -> Option<String> {
    (answer.verdict == Verdict::Approval).then(|| joined(&answer.reasons))
}
