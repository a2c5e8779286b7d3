//! What a set decides on the calls of one action, as expressions: Cedar's answer and what `answer.rs` and
//! `set.rs` make of it.

use std::collections::BTreeSet;

use stepgate_core::approvers::Required;

use super::budgets::{self, KnownBudget};
use super::expr::Expr;
use super::hidden::Hidden;
use super::rules::{Mentioned, condition, principals};
use super::world::{Known, World};
use crate::rule::{Effect, Rule};
use crate::set::{Entry, PolicySet};
use crate::shape::{Record, Shape};
use crate::subject::Reach;

/// What a set decides on the calls of one action. The expressions are true of a call as the tool gets it: one whose
/// arguments the caps of this set would lower is in none of them, because the tool never gets it.
#[derive(Clone, Debug)]
pub struct Meaning {
    /// It is done, and no person is asked.
    pub done: Expr,
    /// It is done if a person approves.
    pub asked: Expr,
    /// What people are required, and for which calls.
    pub required: Vec<(Required, Expr)>,
    /// Each policy and when it matches.
    pub(crate) rules: Vec<RuleMeaning>,
}

/// One policy.
#[derive(Clone, Debug)]
pub(crate) struct RuleMeaning {
    pub(crate) name: String,
    pub(crate) matches: Expr,
    /// Whether it calculates: this alone can fail, and then the call is denied.
    pub(crate) can_fail: bool,
}

impl Meaning {
    /// It is done, perhaps with a person.
    pub fn reached(&self) -> Expr {
        Expr::any([self.done.clone(), self.asked.clone()])
    }

    /// The policies that calculate, with what they evaluate.
    pub fn can_fail(&self) -> impl Iterator<Item = (&str, &Expr)> {
        let failing = self.rules.iter().filter(|rule| rule.can_fail);
        failing.map(|rule| (rule.name.as_str(), &rule.matches))
    }

    /// When a policy matches; none where its scope does not allow the action.
    pub fn rule(&self, name: &str) -> Option<&Expr> {
        self.rules.iter().find(|rule| rule.name == name).map(|rule| &rule.matches)
    }
}

/// The answer to the question about one resource.
struct OneAnswer {
    plain: Expr,
    approval: Expr,
    denied: Expr,
}

/// The meaning of a set for an action. A policy is left out where `without` names it.
pub(crate) fn meaning(
    world: &World<'_>,
    set: &PolicySet,
    entry: &Entry,
    known: Known<'_, '_>,
    hidden: &Hidden,
    without: Option<&str>,
) -> Result<Meaning, String> {
    let kept: Vec<&Rule> =
        set.rules_of(entry).filter(|rule| Some(rule.name.as_str()) != without).collect();
    let mut conditions = kept.iter().map(|rule| condition(rule)).collect::<Result<Vec<_>, _>>()?;
    let names = budgets::renamed(&world.budgets, set);
    conditions.iter_mut().for_each(|Expr(condition)| budgets::rename(condition, &names));
    let (mut rules, mut answers, mut failing) = (Vec::new(), Vec::new(), Vec::new());
    let blind = blind(&kept, entry, hidden)?;
    let lowered = match known {
        Known::Tool(tool) => lowered(&kept, &conditions, &tool.args),
        Known::Core(_) => Expr::truth(false),
    };
    let resources = known.resources();
    for (resource, _) in &resources {
        let about = conditions.iter().map(|condition| condition.clone().about(resource));
        let about: Vec<Expr> = about.collect();
        answers.push(one_answer(&kept, &about));
        failing.extend(about.into_iter().filter(|condition| Mentioned::of([condition]).arithmetic));
    }
    for (rule, condition) in kept.iter().zip(&conditions) {
        let can_fail = Mentioned::of([condition]).arithmetic;
        let about = resources.iter().map(|(resource, _)| condition.clone().about(resource));
        rules.push(RuleMeaning { name: rule.name.clone(), matches: Expr::any(about), can_fail });
    }
    let safe = evaluates(failing);
    let paid = within_budgets(world, set, known);
    let whole = |parts: Vec<Expr>| {
        let blind = blind.clone().negated();
        let guard = [safe.clone(), blind, lowered.clone().negated(), paid.clone()];
        Expr::all(guard.into_iter().chain(parts))
    };
    let reached = Expr::all(answers.iter().map(|answer| {
        let matched = Expr::any([answer.plain.clone(), answer.approval.clone()]);
        Expr::all([answer.denied.clone().negated(), matched])
    }));
    let asks = Expr::any(answers.iter().map(|answer| answer.approval.clone()));
    let asked = whole(vec![reached.clone(), asks.clone()]);
    let done = whole(vec![reached, asks.negated()]);
    let required = required(&kept, &rules, &asked);
    Ok(Meaning { done, asked, required, rules })
}

/// That no policy fails: each is evaluated, and true whatever comes out. An error in it makes the whole expression
/// fail, and so not match: the call is denied.
fn evaluates(conditions: Vec<Expr>) -> Expr {
    let evaluated = |condition| Expr::any([condition, Expr::truth(true)]);
    Expr::all(conditions.into_iter().map(evaluated))
}

/// That no budget of the set denies the call.
fn within_budgets(world: &World<'_>, set: &PolicySet, known: Known<'_, '_>) -> Expr {
    let Known::Tool(tool) = known else { return Expr::truth(true) };
    let budgets = world.budgets_about(tool).filter(|it| set.budgets.contains(&it.budget));
    Expr::all(budgets.map(KnownBudget::allows))
}

fn one_answer(rules: &[&Rule], conditions: &[Expr]) -> OneAnswer {
    let any_of = |is_it: &dyn Fn(&Rule) -> bool| {
        let those = rules.iter().zip(conditions).filter(|(rule, _)| is_it(rule));
        Expr::any(those.map(|(_, condition)| condition.clone()))
    };
    OneAnswer {
        plain: any_of(&|rule| rule.effect == Effect::Permit && rule.approval.is_none()),
        approval: any_of(&|rule| rule.effect == Effect::Permit && rule.approval.is_some()),
        denied: any_of(&|rule| rule.effect == Effect::Forbid),
    }
}

/// That a policy whose scope allows the call reads an argument that it cannot see.
fn blind(rules: &[&Rule], entry: &Entry, hidden: &Hidden) -> Result<Expr, String> {
    let mut parts = Vec::new();
    for rule in rules {
        let resources = entry.subject.reach(&rule.policy.resource_constraint());
        let unseen = hidden.read_by(&rule.reads);
        if resources == Reach::None || unseen.is_empty() {
            continue;
        }
        parts.push(Expr::all([principals(rule)?, Expr::any(unseen)]));
    }
    Ok(Expr::any(parts))
}

/// That a cap of a policy that matches would change the call, or refuse it.
fn lowered(rules: &[&Rule], conditions: &[Expr], args: &Record) -> Expr {
    let mut parts = Vec::new();
    for (rule, condition) in rules.iter().zip(conditions) {
        for (argument, max) in &rule.caps {
            let above = above(args, argument, *max);
            parts.extend(above.map(|above| Expr::all([condition.clone(), above])));
        }
    }
    Expr::any(parts)
}

/// That an argument is above its cap; none where policies do not see it. Whatever its value then is, there is one
/// within the cap about which they decide the same.
fn above(args: &Record, argument: &str, max: i64) -> Option<Expr> {
    let attribute = args.attributes.get(argument)?;
    let at = || Expr::context("args").attribute(argument);
    let is_above = match attribute.seen.as_ref().ok()? {
        Shape::Long => Expr::long(max).less(at()),
        Shape::Decimal => match stepgate_core::decimal::Decimal::parse(&max.to_string()) {
            Ok(max) => Expr::decimal(max).decimal_method("lessThan", at()),
            // The cap is beyond every decimal.
            Err(_) => Expr::truth(max < 0),
        },
        // Something else than a number cannot be lowered: the call is refused.
        Shape::String | Shape::Bool | Shape::Set(_) | Shape::Record(_) => Expr::truth(true),
    };
    Some(match attribute.required {
        true => is_above,
        false => Expr::all([Expr::context("args").has(argument), is_above]),
    })
}

/// What people are required for a call that is asked about.
fn required(rules: &[&Rule], meanings: &[RuleMeaning], asked: &Expr) -> Vec<(Required, Expr)> {
    let all: BTreeSet<&Required> = rules.iter().filter_map(|rule| rule.required.as_ref()).collect();
    let of = |required: &Required| {
        let those = rules.iter().zip(meanings);
        let those = those.filter(|(rule, _)| rule.required.as_ref() == Some(required));
        let matches = Expr::any(those.map(|(_, meaning)| meaning.matches.clone()));
        (required.clone(), Expr::all([asked.clone(), matches]))
    };
    all.into_iter().map(of).collect()
}
