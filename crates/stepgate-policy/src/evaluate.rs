//! Asks Cedar's evaluator which policies match a question.
//!
//! Cedar's `Authorizer` builds the condition of each policy again for each request, and maps of all policies that do
//! not match: with 200 policies this takes longer than the evaluation. Here each condition is built once, and what
//! several policies ask is evaluated once. A test compares the outcomes with the `Authorizer`'s.

use std::collections::HashMap;
use std::sync::Arc;

use cedar_policy::Policy;
use cedar_policy_core::ast::{Expr, ExprKind, Literal, SlotEnv, StaticallyTyped, ValueKind};
use cedar_policy_core::evaluator::Evaluator;
use cedar_policy_core::extensions::Extensions;
use schemars::JsonSchema;
use serde::Serialize;

use crate::finding::one_line;
use crate::question::CedarQuestion;

/// The result of evaluating a policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "PolicyOutcome")]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// All its conditions are met.
    Matched,
    /// A condition is not met.
    NotMatched,
    /// It could not be evaluated, so the call is denied.
    Errored(String),
}

/// When a policy matches: the parts that `&&` joins, from its scope on. They are evaluated up to the first that is false.
#[derive(Clone, Debug)]
pub(crate) struct Condition(Vec<Part>);

#[derive(Clone, Debug)]
struct Part {
    expr: Expr,
    /// Its number among the parts of a set of policies. Equal parts have the same, and are evaluated once for a question.
    number: Option<usize>,
}

impl Condition {
    pub(crate) fn of(policy: &Policy) -> Self {
        let mut parts = Vec::new();
        split(&policy.as_ref().condition(), &mut parts);
        Self(parts)
    }

    /// Numbers the parts of the conditions of a set.
    pub(crate) fn number<'a>(conditions: impl Iterator<Item = &'a mut Self>) {
        let mut numbers = HashMap::new();
        for part in conditions.flat_map(|condition| &mut condition.0) {
            let next = numbers.len();
            part.number = Some(*numbers.entry(part.expr.clone()).or_insert(next));
        }
    }

    /// Whether the policy matches.
    pub(crate) fn outcome(&self, evaluation: &mut Evaluation<'_>) -> Outcome {
        for part in &self.0 {
            match evaluation.value_of(part) {
                Ok(true) => {}
                Ok(false) => return Outcome::NotMatched,
                Err(why) => return Outcome::Errored(why),
            }
        }
        Outcome::Matched
    }
}

/// The parts of `a && (b && c)`, without those that are plainly true, as a scope without constraints is.
fn split(expr: &Expr, parts: &mut Vec<Part>) {
    if let ExprKind::And { left, right } = expr.expr_kind() {
        split(left, parts);
        split(right, parts);
    } else if !matches!(expr.expr_kind(), ExprKind::Lit(Literal::Bool(true))) {
        parts.push(Part { expr: without_places(expr), number: None });
    }
}

/// The expression without its places in the text, which Cedar would copy to every value that it calculates. Those of rarer
/// expressions are left.
#[expect(clippy::wildcard_enum_match_arm, reason = "what is not named here is taken as it is")]
fn without_places(expr: &Expr) -> Expr {
    let bare = |expr: &Arc<Expr>| without_places(expr);
    match expr.expr_kind() {
        ExprKind::Lit(literal) => Expr::val(literal.clone()),
        ExprKind::Var(variable) => Expr::var(*variable),
        ExprKind::And { left, right } => Expr::and(bare(left), bare(right)),
        ExprKind::Or { left, right } => Expr::or(bare(left), bare(right)),
        ExprKind::UnaryApp { op, arg } => Expr::unary_app(*op, bare(arg)),
        ExprKind::BinaryApp { op, arg1, arg2 } => Expr::binary_app(*op, bare(arg1), bare(arg2)),
        ExprKind::GetAttr { expr, attr } => Expr::get_attr(bare(expr), attr.clone()),
        ExprKind::HasAttr { expr, attr } => Expr::has_attr(bare(expr), attr.clone()),
        ExprKind::Like { expr, pattern } => Expr::like(bare(expr), pattern.clone()),
        ExprKind::ExtensionFunctionApp { fn_name, args } => {
            let args = args.iter().map(without_places).collect();
            Expr::call_extension_fn(fn_name.clone(), args)
        }
        _ => expr.clone(),
    }
}

/// The evaluation of policies for one question.
pub(crate) struct Evaluation<'q> {
    evaluator: Evaluator<'q>,
    /// There are no templates, so nothing is bound to a slot.
    no_slots: SlotEnv,
    /// The parts of conditions that were evaluated without an error, by their numbers.
    known: Vec<Option<bool>>,
}

impl<'q> Evaluation<'q> {
    pub(crate) fn of(question: &'q CedarQuestion) -> Self {
        let CedarQuestion { request, entities, .. } = question;
        let request = request.as_ref().clone();
        let evaluator = Evaluator::new(request, entities.as_ref(), Extensions::all_available());
        Self { evaluator, no_slots: SlotEnv::new(), known: Vec::new() }
    }

    fn value_of(&mut self, Part { expr, number }: &Part) -> Result<bool, String> {
        if let Some(known) = number.and_then(|number| *self.known.get(number)?) {
            return Ok(known);
        }
        let value = self.evaluator.interpret(expr, &self.no_slots);
        let value = value.map_err(|error| one_line(&error.to_string()))?;
        let ValueKind::Lit(Literal::Bool(truth)) = value.value else {
            return Err(format!("type error: expected bool, got {}", value.type_of()));
        };
        if let Some(number) = *number {
            self.known.resize(self.known.len().max(number + 1), None);
            self.known.get_mut(number).into_iter().for_each(|known| *known = Some(truth));
        }
        Ok(truth)
    }
}

#[cfg(test)]
mod tests;
