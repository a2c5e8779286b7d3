//! The policies of a set as expressions.

use std::collections::BTreeSet;

use serde_json::Value;
use stepgate_core::decimal::Decimal;

use super::expr::Expr;
use crate::reads::{context_path, parts_of};
use crate::rule::Rule;

/// When a policy matches a request for an action that its scope allows, or why that cannot be said.
pub(crate) fn condition(rule: &Rule) -> Result<Expr, String> {
    let json = rule.policy.to_json().map_err(|error| error.to_string())?;
    let mut parts = vec![principals_of(&json), scope(json.get("resource"), Expr::resource())];
    let conditions = json.get("conditions").and_then(Value::as_array).into_iter().flatten();
    for condition in conditions {
        let body = Expr(condition.get("body").cloned().unwrap_or_default());
        parts.push(match condition.get("kind").and_then(Value::as_str) {
            Some("unless") => body.negated(),
            Some(_) | None => body,
        });
    }
    Ok(Expr::all(parts))
}

/// Which principals the scope of a policy allows.
pub(crate) fn principals(rule: &Rule) -> Result<Expr, String> {
    let json = rule.policy.to_json().map_err(|error| error.to_string())?;
    Ok(principals_of(&json))
}

fn principals_of(policy: &Value) -> Expr {
    scope(policy.get("principal"), Expr::principal())
}

/// The part of a scope that is about one variable.
fn scope(constraint: Option<&Value>, variable: Expr) -> Expr {
    let Some(constraint) = constraint else { return Expr::truth(true) };
    let entity = |holder: &Value| {
        let text = |name: &str| holder.get("entity")?.get(name)?.as_str();
        Some(Expr::entity(text("type")?, text("id")?))
    };
    let operator = constraint.get("op").and_then(Value::as_str);
    match (operator, entity(constraint)) {
        (Some("All"), _) => Expr::truth(true),
        (Some("=="), Some(entity)) => variable.equals(entity),
        (Some("in"), Some(entity)) => variable.member_of(entity),
        (Some("is"), _) => {
            let kind = constraint.get("entity_type").and_then(Value::as_str).unwrap_or_default();
            let is = variable.clone().is(kind);
            match constraint.get("in").and_then(entity) {
                Some(entity) => Expr::all([is, variable.member_of(entity)]),
                None => is,
            }
        }
        (_, _) => Expr::truth(false),
    }
}

/// The operators and functions that can overflow.
const CALCULATIONS: [&str; 6] = ["+", "-", "*", "neg", "offset", "durationSince"];

/// What expressions name, and what they ask for.
#[derive(Debug, Default)]
pub(crate) struct Mentioned {
    /// Entities, by type and id.
    pub(crate) entities: BTreeSet<(String, String)>,
    /// Whether `context.unseen` is read.
    pub(crate) unseen: bool,
    /// What is read that proofs are not about.
    pub(crate) beyond: Option<&'static str>,
    /// What is read of budgets: the attribute, and the name in it.
    pub(crate) used: BTreeSet<(String, String)>,
    /// The whole numbers that are written out.
    pub(crate) numbers: BTreeSet<i64>,
    /// The decimals that are.
    decimals: BTreeSet<Decimal>,
    /// Whether something is calculated: this is the only thing that can fail where policies are validated.
    pub(crate) arithmetic: bool,
}

impl Mentioned {
    pub(crate) fn of<'a>(parts: impl IntoIterator<Item = &'a Expr>) -> Self {
        let mut mentioned = Self::default();
        for Expr(part) in parts {
            mentioned.walk(part);
        }
        mentioned
    }

    /// The ids of the entities of a type.
    pub(crate) fn ids(&self, kind: &str) -> impl Iterator<Item = &str> {
        let of_kind = self.entities.iter().filter(move |(other, _)| other == kind);
        of_kind.map(|(_, id)| id.as_str())
    }

    /// The decimals that are written out.
    pub(crate) fn decimals(&self) -> impl Iterator<Item = Decimal> {
        self.decimals.iter().copied()
    }

    fn walk(&mut self, part: &Value) {
        if let Some(path) = context_path(part) {
            self.unseen |= matches!(path.as_slice(), [] | ["unseen", ..]);
            if let ["used", budget, name, ..] = path.as_slice() {
                self.used.insert(((*budget).to_owned(), (*name).to_owned()));
            }
            self.beyond = self.beyond.or(match path.as_slice() {
                [] => Some("the whole `context`"),
                ["used"] => Some("all of `context.used`"),
                ["session"] => Some("all of `context.session`"),
                [_, ..] => None,
            });
            return;
        }
        if let Some(entity) = part.get("__entity") {
            let text = |name| entity.get(name).and_then(Value::as_str).map(str::to_owned);
            self.entities.extend(text("type").zip(text("id")));
        }
        self.numbers.extend(part.get("Value").and_then(Value::as_i64));
        let decimal = part.pointer("/decimal/0/Value").and_then(Value::as_str);
        self.decimals.extend(decimal.and_then(|text| Decimal::parse(text).ok()));
        self.arithmetic |= CALCULATIONS.iter().any(|name| part.get(*name).is_some());
        parts_of(part).into_iter().for_each(|part| self.walk(part));
    }
}
