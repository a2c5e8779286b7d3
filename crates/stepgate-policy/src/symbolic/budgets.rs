//! Budgets in proofs: what is used of one is open, and what is used with a call follows from it as far as
//! expressions can say that. They compare decimals and do not add them, so the sum is told for the numbers that
//! policies name: a gap costs examples that the engine refuses, and never a wrong proof.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use stepgate_core::decimal::Decimal;

use super::expr::Expr;
use super::limits_of_schema::{literal, plain};
use super::rules::Mentioned;
use super::world::{KnownTool, in_group, principal_is};
use crate::budget::Budget;
use crate::reads::context_path;
use crate::set::PolicySet;
use crate::shape::Shape;

/// Most numbers of a question for which sums are told.
const NUMBERS_MAX: usize = 8;
/// The largest whole number that is a decimal.
const WHOLE_MAX: i64 = i64::MAX / 10_000;

/// A budget of a set, and the attribute of `context.used` that stands for it.
pub(crate) struct KnownBudget {
    pub(crate) attribute: String,
    pub(crate) budget: Budget,
}

/// The budgets of these sets. One that another set has with other terms gets an attribute of its own.
pub(crate) fn of_sets(sets: &[&PolicySet]) -> Vec<KnownBudget> {
    let mut known: Vec<KnownBudget> = Vec::new();
    for budget in sets.iter().flat_map(|set| &set.budgets) {
        if known.iter().any(|it| it.budget == *budget) {
            continue;
        }
        let name = &budget.terms.name;
        let namesakes = known.iter().filter(|it| it.budget.terms.name == *name).count();
        let attribute = match namesakes {
            0 => name.to_string(),
            others => format!("{name} ({})", others + 1),
        };
        known.push(KnownBudget { attribute, budget: budget.clone() });
    }
    known
}

/// The attributes of the budgets of a set that are not called like the budget.
pub(crate) fn renamed(known: &[KnownBudget], set: &PolicySet) -> BTreeMap<String, String> {
    let of_set = known.iter().filter(|it| set.budgets.contains(&it.budget));
    let names = of_set.map(|it| (it.budget.terms.name.to_string(), it.attribute.clone()));
    names.filter(|(name, attribute)| name != attribute).collect()
}

/// The expression with other names for budgets.
pub(crate) fn rename(part: &mut Value, names: &BTreeMap<String, String>) {
    if let Some(name) = budget_in(part)
        && let Some(other) = name.as_str().and_then(|name| names.get(name))
    {
        *name = Value::from(other.as_str());
    }
    match part {
        Value::Array(parts) => parts.iter_mut().for_each(|part| rename(part, names)),
        Value::Object(members) => members.values_mut().for_each(|part| rename(part, names)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The name in `context.used.NAME`, in `context.used has NAME` and in `context has used.NAME`.
fn budget_in(part: &mut Value) -> Option<&mut Value> {
    context_path(part).filter(|path| path.first() == Some(&"used"))?;
    let operand = part.as_object_mut()?.values_mut().next()?;
    let before = context_path(operand.get("left")?)?.len();
    let name = operand.get_mut("attr")?;
    match name.is_array() {
        true => name.get_mut(1_usize.checked_sub(before)?),
        false => (before == 1).then_some(name),
    }
}

impl KnownBudget {
    fn has(&self) -> Expr {
        Expr::context("used").has(&self.attribute)
    }

    fn at(&self, name: &str) -> Expr {
        Expr::context("used").attribute(&self.attribute).attribute(name)
    }

    /// That it covers the principal.
    fn is_for(&self) -> Expr {
        let Budget { principals, groups, .. } = &self.budget;
        match principals.is_empty() && groups.is_empty() {
            true => Expr::truth(true),
            false => {
                let named = principals.iter().map(principal_is);
                Expr::any(named.chain(groups.iter().map(|group| in_group(group))))
            }
        }
    }

    /// That it does not deny the call.
    pub(crate) fn allows(&self) -> Expr {
        let limit = Expr::decimal(self.budget.terms.limit);
        let is_within = at_most(self.at("after"), limit);
        self.is_for().implies(Expr::all([self.has(), is_within]))
    }

    /// What is true of it in every call of a tool.
    pub(crate) fn every_call(
        &self,
        tool: &KnownTool<'_>,
        mentioned: &Mentioned,
        sees_unseen: bool,
    ) -> Vec<Expr> {
        let amount = Amount::of(&self.budget, tool);
        let covers = match (&amount, sees_unseen) {
            (None, _) => self.has().negated(),
            // An amount that policies cannot see is none.
            (Some(_), true) => self.has().implies(self.is_for()),
            (Some(amount), false) => {
                self.has().equals(Expr::all([self.is_for(), amount.exists.clone()]))
            }
        };
        let Some(amount) = amount else { return vec![covers] };
        let limit = self.budget.terms.limit;
        let mut inner = vec![
            self.at("limit").equals(Expr::decimal(limit)),
            at_most(Expr::decimal(Decimal::ZERO), self.at("before")),
            at_most(self.at("before"), self.at("after")),
            Expr::long(0).at_most(self.at("percent")),
        ];
        // What no policy reads is not told: it would only cost the solver time.
        let is_read = |name: &str| mentioned.used.contains(&(self.attribute.clone(), name.into()));
        let numbers = mentioned.numbers.iter().take(NUMBERS_MAX).filter(|_| is_read("percent"));
        inner.extend(numbers.flat_map(|number| {
            let above = [*number, number.saturating_add(1)];
            above.map(|percent| self.percent_is(percent, limit))
        }));
        inner.extend(self.sums(&amount, mentioned, is_read("before")));
        vec![covers, self.has().implies(Expr::all(inner))]
    }

    /// From which sum on it is so many percent.
    fn percent_is(&self, percent: i64, limit: Decimal) -> Expr {
        let is_reached = Expr::long(percent).at_most(self.at("percent"));
        let below = i128::from(limit.units()) * (i128::from(percent) - 1);
        match i64::try_from(below.div_euclid(100)) {
            Ok(below) => {
                let sum = Expr::decimal(Decimal::from_units(below));
                is_reached.equals(less(sum, self.at("after")))
            }
            Err(_) => is_reached.equals(Expr::truth(below < 0)),
        }
    }

    /// What is used with the call, for the numbers that are mentioned; and what is used before it, where that is read.
    fn sums(&self, amount: &Amount, mentioned: &Mentioned, with_before: bool) -> Vec<Expr> {
        let (before, after) = (|| self.at("before"), || self.at("after"));
        let is_from = |least: Decimal, value: Expr| at_most(Expr::decimal(least), value);
        let numbers: Vec<Decimal> = mentioned.decimals().take(NUMBERS_MAX).collect();
        let unit = Decimal::from_units(1);
        let thresholds: BTreeSet<Decimal> = numbers
            .iter()
            .filter(|_| with_before)
            .flat_map(|it| [Some(*it), it.plus(unit)])
            .flatten()
            .collect();
        let mut sums = Vec::new();
        match &amount.value {
            None => {
                sums.push(less(before(), after()));
                sums.push(is_from(Decimal::ONE, after()));
                for least in &thresholds {
                    sums.extend(
                        least
                            .plus(Decimal::ONE)
                            .map(|sum| is_from(*least, before()).equals(is_from(sum, after()))),
                    );
                    sums.extend(
                        least
                            .minus(Decimal::ONE)
                            .map(|rest| is_from(*least, after()).equals(is_from(rest, before()))),
                    );
                }
            }
            Some((Shape::Decimal, value)) => {
                let value = || value.clone();
                let mut inner = vec![at_most(value(), after())];
                let nothing = || Expr::decimal(Decimal::ZERO);
                inner.push(value().equals(nothing()).equals(before().equals(after())));
                let amounts = numbers.iter().chain(&amount.listed);
                for least in amounts.collect::<BTreeSet<_>>() {
                    inner.extend(thresholds.iter().filter_map(|used| {
                        let both = [is_from(*used, before()), is_from(*least, value())];
                        Some(Expr::all(both).implies(is_from(used.plus(*least)?, after())))
                    }));
                }
                sums.push(amount.exists.clone().implies(Expr::all(inner)));
            }
            Some((_, value)) => {
                let numbers = mentioned.numbers.iter().filter(|it| (0..=WHOLE_MAX).contains(*it));
                let inner = numbers.take(NUMBERS_MAX).map(|least| {
                    let sum = Decimal::from_units(least.saturating_mul(10_000));
                    Expr::long(*least).at_most(value.clone()).implies(is_from(sum, after()))
                });
                sums.push(amount.exists.clone().implies(Expr::all(inner)));
            }
        }
        sums
    }
}

/// The amount that a call takes.
struct Amount {
    /// That the call has one.
    exists: Expr,
    /// The argument and its type; none where calls are counted.
    value: Option<(Shape, Expr)>,
    /// Numbers that the schema names for the argument.
    listed: Vec<Decimal>,
}

impl Amount {
    /// None where no call of the tool has one.
    fn of(budget: &Budget, tool: &KnownTool<'_>) -> Option<Self> {
        let Some(name) = &budget.terms.argument else {
            return Some(Self { exists: Expr::truth(true), value: None, listed: Vec::new() });
        };
        let attribute = tool.args.attributes.get(name)?;
        let shape = attribute.seen.as_ref().ok()?;
        let value = Expr::context("args").attribute(name);
        let is_positive = match shape {
            Shape::Decimal => at_most(Expr::decimal(Decimal::ZERO), value.clone()),
            Shape::Long => Expr::all([
                Expr::long(0).at_most(value.clone()),
                value.clone().at_most(Expr::long(WHOLE_MAX)),
            ]),
            Shape::String | Shape::Bool | Shape::Set(_) | Shape::Record(_) => return None,
        };
        let exists = match attribute.required {
            true => is_positive,
            false => Expr::all([Expr::context("args").has(name), is_positive]),
        };
        let schema = tool.shape.argument(name);
        let schema = schema.and_then(|schema| plain(&tool.shape.input_schema, schema));
        let listed = schema.map(numbers_of).unwrap_or_default();
        Some(Self { exists, value: Some((shape.clone(), value)), listed })
    }
}

/// The numbers that the schema of an argument lists, and its least one.
fn numbers_of(schema: &Value) -> Vec<Decimal> {
    let listed = schema.get("enum").and_then(Value::as_array).into_iter().flatten();
    let numbers = listed.chain(schema.get("const")).chain(schema.get("minimum"));
    let numbers = numbers.filter(|number| literal(&Shape::Decimal, number).is_some());
    let numbers = numbers.filter_map(|number| Decimal::of(number.as_number()?).ok());
    numbers.take(NUMBERS_MAX).collect()
}

/// That budgets of one name, which sets have with different terms, are used alike, and with the call, too, where both add
/// up the same argument.
pub(crate) fn namesakes_are_used_alike(known: &[&KnownBudget]) -> Vec<Expr> {
    let mut parts = Vec::new();
    for (index, one) in known.iter().enumerate() {
        let others = known.iter().skip(index + 1);
        for other in others.filter(|it| it.budget.terms.name == one.budget.terms.name) {
            let both = Expr::all([one.has(), other.has()]);
            let is_same = one.budget.terms.argument == other.budget.terms.argument;
            let names = ["before", "after"].into_iter().take(if is_same { 2 } else { 1 });
            let alike = names.map(|name| one.at(name).equals(other.at(name)));
            parts.push(both.implies(Expr::all(alike)));
        }
    }
    parts
}

fn at_most(left: Expr, right: Expr) -> Expr {
    left.decimal_method("lessThanOrEqual", right)
}

fn less(left: Expr, right: Expr) -> Expr {
    left.decimal_method("lessThan", right)
}
