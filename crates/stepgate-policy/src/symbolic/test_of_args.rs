//! `amount > 100`: a condition on one argument, as people write it.

use std::fmt;
use std::str::FromStr;

use serde_json::{Number, Value};
use stepgate_core::decimal::Decimal;
use stepgate_core::spelled;

use super::Scene;
use super::expr::Expr;
use super::limits_of_schema::literal;
use super::world::Known;
use crate::shape::{Record, Shape, long};

/// A condition on one argument. It does not hold where the argument is absent.
#[derive(Clone, Debug, PartialEq)]
pub struct ArgTest {
    path: Vec<String>,
    operator: Operator,
    value: String,
}

spelled! {
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Operator {
        Contains = " contains ",
        AtMost = "<=",
        AtLeast = ">=",
        NotEqual = "!=",
        Equal = "==",
        Less = "<",
        More = ">",
    }
}

impl FromStr for ArgTest {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let spelled = Operator::ALL.into_iter().map(|operator| (operator.as_str(), operator));
        let spelled = spelled.chain([("=", Operator::Equal)]);
        let found = spelled.filter_map(|(spelling, operator)| {
            let at = text.find(spelling)?;
            Some((at, std::cmp::Reverse(spelling.len()), spelling, operator))
        });
        let found = found.min_by_key(|(at, length, _, _)| (*at, *length));
        let wrong = || {
            format!(
                "`{text}` is not a condition on an argument; write `amount > 100`, `to = ann`, \
                 `options.urgent = true` or `to contains ann`"
            )
        };
        let (at, _, spelling, operator) = found.ok_or_else(wrong)?;
        let (name, rest) = text.split_at(at);
        let value = rest.strip_prefix(spelling).unwrap_or_default().trim();
        let path: Vec<String> = name.trim().split('.').map(str::to_owned).collect();
        if path.iter().any(String::is_empty) {
            return Err(wrong());
        }
        Ok(Self { path, operator, value: value.to_owned() })
    }
}

impl fmt::Display for ArgTest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, operator, value } = self;
        write!(f, "{} {} {value}", path.join("."), operator.as_str().trim())
    }
}

impl Scene<'_, '_> {
    /// The test as an expression; none where the action has no such argument.
    pub fn arg_test(&self, test: &ArgTest) -> Result<Option<Expr>, String> {
        let mut found = Found { at: Expr::context("args"), guards: Vec::new() };
        let shape = match (self.known, test.path.as_slice()) {
            (Known::Tool(tool), path) => found.walk(&tool.args, path, self.action)?,
            (Known::Core(action), [name]) if action.arguments().contains(&name.as_str()) => {
                found.at = found.at.attribute(name);
                Some(&Shape::String)
            }
            (Known::Core(_), _) => None,
        };
        let Some(shape) = shape else { return Ok(None) };
        let Found { at, mut guards } = found;
        guards.push(test.compared(at, shape, self.action)?);
        Ok(Some(Expr::all(guards)))
    }
}

/// A place in the arguments, and what must be there for it to exist.
struct Found {
    at: Expr,
    guards: Vec<Expr>,
}

impl Found {
    /// Goes down to an argument; none where the tool does not have it.
    fn walk<'r>(
        &mut self,
        record: &'r Record,
        path: &[String],
        tool: &str,
    ) -> Result<Option<&'r Shape>, String> {
        let Some((name, rest)) = path.split_first() else { return Ok(None) };
        let Some(attribute) = record.attributes.get(name) else { return Ok(None) };
        let shape = attribute.seen.as_ref().map_err(|cause| {
            format!(
                "policies cannot see `{name}` of `{tool}`, because it is {}; so nothing about it can be proven",
                cause.as_str()
            )
        })?;
        if !attribute.required {
            self.guards.push(self.at.clone().has(name));
        }
        self.at = self.at.clone().attribute(name);
        match (rest, shape) {
            ([], shape) => Ok(Some(shape)),
            (rest, Shape::Record(inner)) => self.walk(inner, rest, tool),
            (_, Shape::String | Shape::Long | Shape::Decimal | Shape::Bool | Shape::Set(_)) => {
                Ok(None)
            }
        }
    }
}

impl ArgTest {
    fn compared(&self, at: Expr, shape: &Shape, tool: &str) -> Result<Expr, String> {
        let name = self.path.join(".");
        let wrong = |kind: &str| {
            format!("`{name}` of `{tool}` is {kind}: `{}` cannot be compared with it", self.value)
        };
        let value = |shape: &Shape| {
            let value = match shape {
                Shape::String => Value::String(unquoted(&self.value)),
                Shape::Long | Shape::Decimal | Shape::Bool | Shape::Set(_) | Shape::Record(_) => {
                    serde_json::from_str(&self.value).map_err(|_| wrong(kind_of(shape)))?
                }
            };
            literal(shape, &value).ok_or_else(|| wrong(kind_of(shape)))
        };
        let equal = |at: Expr| value(shape).map(|value| at.equals(value));
        match (shape, self.operator) {
            (Shape::Set(element), Operator::Contains) => Ok(at.contains(value(element)?)),
            (Shape::Set(_) | Shape::Record(_), _) => Err(wrong(kind_of(shape))),
            (_, Operator::Equal) => equal(at),
            (_, Operator::NotEqual) => equal(at).map(Expr::negated),
            (Shape::Long, operator) => {
                let bound = self.rounded(operator).map(Expr::long);
                let bound = bound.ok_or_else(|| wrong("a whole number"))?;
                Ok(match matches!(operator, Operator::AtMost | Operator::Less) {
                    true => at.at_most(bound),
                    false => bound.at_most(at),
                })
            }
            (Shape::Decimal, Operator::Less) => Ok(at.decimal_method("lessThan", value(shape)?)),
            (Shape::Decimal, Operator::AtMost) => {
                Ok(at.decimal_method("lessThanOrEqual", value(shape)?))
            }
            (Shape::Decimal, Operator::More) => Ok(value(shape)?.decimal_method("lessThan", at)),
            (Shape::Decimal, Operator::AtLeast) => {
                Ok(value(shape)?.decimal_method("lessThanOrEqual", at))
            }
            (Shape::String | Shape::Bool | Shape::Decimal, _) => Err(wrong(kind_of(shape))),
        }
    }

    /// The whole number at which the values begin or end, both included: `> 99.5` begins at 100.
    fn rounded(&self, operator: Operator) -> Option<i64> {
        let number: Number = serde_json::from_str(&self.value).ok()?;
        let (floor, is_whole) = match long(&number) {
            Ok(whole) => (whole, true),
            Err(_) => (Decimal::of(&number).ok()?.floor(), false),
        };
        match operator {
            Operator::AtMost => Some(floor),
            Operator::Less if is_whole => floor.checked_sub(1),
            Operator::Less => Some(floor),
            Operator::AtLeast if is_whole => Some(floor),
            Operator::AtLeast | Operator::More => floor.checked_add(1),
            Operator::Equal | Operator::NotEqual | Operator::Contains => None,
        }
    }
}

fn kind_of(shape: &Shape) -> &'static str {
    match shape {
        Shape::String => "a text",
        Shape::Long => "a whole number",
        Shape::Decimal => "a number",
        Shape::Bool => "true or false",
        Shape::Set(_) => "a list; write `contains`",
        Shape::Record(_) => "an object; name one of its members",
    }
}

/// A text without the quotes around it.
fn unquoted(text: &str) -> String {
    serde_json::from_str(text).unwrap_or_else(|_| text.to_owned())
}

#[cfg(test)]
mod tests;
