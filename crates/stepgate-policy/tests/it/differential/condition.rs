//! Random conditions: written in Cedar, and judged over exact values.

#![allow(
    clippy::wildcard_enum_match_arm,
    reason = "a kind that is not named here is any other one"
)]

use std::cmp::Ordering;

use super::chance::Chance;
use super::tool::{Kind, Members, NAMES, RandomTool};
use super::value::{Decimal, Exact, draw_text};

pub(super) enum Condition {
    Has(Vec<&'static str>),
    /// An argument with a test, behind `has` unless it must be there.
    Argument {
        path: Vec<&'static str>,
        is_guarded: bool,
        test: Test,
    },
    Not(Box<Condition>),
    And(Box<Condition>, Box<Condition>),
    Or(Box<Condition>, Box<Condition>),
    If(Box<Condition>, Box<Condition>, Box<Condition>),
}

pub(super) enum Test {
    Compare(Order, Literal),
    IsNumber(Literal),
    IsText(String),
    /// `*` before and after, where true.
    Like(bool, String, bool),
    ContainsText(String),
    ContainsNumber(Literal),
    IsTrue,
}

/// An operator, the method that is the same for decimals, and what it means.
type Order = (&'static str, &'static str, fn(Ordering) -> bool);

const ORDERS: [Order; 4] = [
    ("<", "lessThan", Ordering::is_lt),
    ("<=", "lessThanOrEqual", Ordering::is_le),
    (">", "greaterThan", Ordering::is_gt),
    (">=", "greaterThanOrEqual", Ordering::is_ge),
];

/// A number in a condition, written as a `Long` or as a `decimal`.
pub(super) struct Literal {
    value: Decimal,
    is_decimal: bool,
}

impl Literal {
    fn draw(chance: &mut Chance, is_decimal: bool) -> Self {
        let whole = Decimal::whole(*chance.one_of(&[0, 5, 100, -1]));
        let (digits, exponent) =
            *chance.one_of(&[(995, -1), (1, -1), (-5, -1), (1_000_001, -4), (-9_999, -4)]);
        let is_fraction = is_decimal && chance.percent(40);
        let value = if is_fraction { Decimal { digits, exponent } } else { whole };
        Self { value, is_decimal }
    }

    fn to_cedar(&self) -> String {
        let text = self.value.to_plain();
        if self.is_decimal { format!("decimal(\"{text}\")") } else { text.replace(".0", "") }
    }
}

/// A value of another type than the condition needs.
pub(super) struct TypeError;

impl Condition {
    pub(super) fn draw(chance: &mut Chance, tool: &RandomTool, depth: usize) -> Self {
        let mut inner = || Box::new(Self::draw(chance, tool, depth - 1));
        if depth == 0 {
            return Self::draw_leaf(chance, tool);
        }
        let drawn = inner();
        match chance.below(6) {
            0 => Self::Not(drawn),
            1 => Self::And(drawn, Box::new(Self::draw(chance, tool, depth - 1))),
            2 => Self::Or(drawn, Box::new(Self::draw(chance, tool, depth - 1))),
            3 => {
                let then = Box::new(Self::draw(chance, tool, depth - 1));
                Self::If(drawn, then, Box::new(Self::draw(chance, tool, depth - 1)))
            }
            _ => *drawn,
        }
    }

    fn draw_leaf(chance: &mut Chance, tool: &RandomTool) -> Self {
        let mut path = Vec::new();
        let mut members: &Members = &tool.members;
        let (kind, is_required) = loop {
            let named: Vec<_> = members.named.iter().collect();
            if named.is_empty() || chance.percent(5) {
                path.push(*chance.one_of(&NAMES));
                break (&Kind::Anything, false);
            }
            let (name, member) = *chance.one_of(&named);
            path.push(*name);
            match bare(&member.kind) {
                Kind::Object(inner) if chance.percent(80) => members = inner,
                kind => break (kind, member.is_required && path.len() == 1),
            }
        };
        if chance.percent(15) {
            return Self::Has(path);
        }
        let is_decimal = match kind {
            Kind::List(inner) => matches!(bare(inner), Kind::Number),
            Kind::Number => true,
            Kind::Integer { .. } => false,
            // What Cedar cannot type is read by policies that are also about another tool.
            _ => chance.percent(50),
        };
        let number = Literal::draw(chance, is_decimal);
        let order = *chance.one_of(&ORDERS);
        let test = match kind {
            Kind::Integer { .. } | Kind::Number if chance.percent(25) => Test::IsNumber(number),
            Kind::Integer { .. } | Kind::Number => Test::Compare(order, number),
            Kind::Bool => Test::IsTrue,
            Kind::Text | Kind::Choice if chance.percent(50) => Test::IsText(draw_text(chance)),
            Kind::Text | Kind::Choice => {
                Test::Like(chance.percent(50), "e".to_owned(), chance.percent(50))
            }
            Kind::List(inner) => match bare(inner) {
                Kind::Integer { .. } | Kind::Number => Test::ContainsNumber(number),
                _ => Test::ContainsText(draw_text(chance)),
            },
            _ if chance.percent(50) => Test::Compare(order, number),
            _ => Test::IsText(draw_text(chance)),
        };
        Self::Argument { path, is_guarded: !is_required || chance.percent(50), test }
    }

    pub(super) fn to_cedar(&self) -> String {
        match self {
            Self::Has(path) => format!("(context.args has {})", path.join(".")),
            Self::Argument { path, is_guarded, test } => {
                let path = path.join(".");
                let guard = match is_guarded {
                    true => format!("context.args has {path} && "),
                    false => String::new(),
                };
                format!("({guard}{})", test.to_cedar(&format!("context.args.{path}")))
            }
            Self::Not(inner) => format!("!({})", inner.to_cedar()),
            Self::And(left, right) => format!("({} && {})", left.to_cedar(), right.to_cedar()),
            Self::Or(left, right) => format!("({} || {})", left.to_cedar(), right.to_cedar()),
            Self::If(test, then, other) => format!(
                "(if {} then {} else {})",
                test.to_cedar(),
                then.to_cedar(),
                other.to_cedar()
            ),
        }
    }

    pub(super) fn holds(&self, args: &Exact) -> Result<bool, TypeError> {
        match self {
            Self::Has(path) => found(args, path).map(|found| found.is_some()),
            Self::Argument { path, is_guarded, test } => match found(args, path)? {
                Some(value) => test.holds(value),
                None if *is_guarded => Ok(false),
                None => Err(TypeError),
            },
            Self::Not(inner) => inner.holds(args).map(|holds| !holds),
            Self::And(left, right) => Ok(left.holds(args)? && right.holds(args)?),
            Self::Or(left, right) => Ok(left.holds(args)? || right.holds(args)?),
            Self::If(test, then, other) => {
                if test.holds(args)? {
                    then.holds(args)
                } else {
                    other.holds(args)
                }
            }
        }
    }
}

/// The kind behind references and null.
fn bare(kind: &Kind) -> &Kind {
    match kind {
        Kind::Aside(inner, _) | Kind::Nullable(inner) => bare(inner),
        kind => kind,
    }
}

fn found<'a>(value: &'a Exact, path: &[&str]) -> Result<Option<&'a Exact>, TypeError> {
    let Some((name, rest)) = path.split_first() else { return Ok(Some(value)) };
    let Exact::Object(members) = value else { return Err(TypeError) };
    members.get(*name).map_or(Ok(None), |value| found(value, rest))
}

impl Test {
    fn to_cedar(&self, place: &str) -> String {
        let quoted = |text: &str| format!("\"{}\"", text.escape_default()).replace("\\'", "'");
        match self {
            Self::Compare((operator, method, _), number) => match number.is_decimal {
                true => format!("{place}.{method}({})", number.to_cedar()),
                false => format!("{place} {operator} {}", number.to_cedar()),
            },
            Self::IsNumber(number) => format!("{place} == {}", number.to_cedar()),
            Self::IsText(text) => format!("{place} == {}", quoted(text)),
            Self::Like(before, text, after) => {
                let star = |is_there: bool| if is_there { "*" } else { "" };
                format!("{place} like \"{}{text}{}\"", star(*before), star(*after))
            }
            Self::ContainsText(text) => format!("{place}.contains({})", quoted(text)),
            Self::ContainsNumber(number) => format!("{place}.contains({})", number.to_cedar()),
            Self::IsTrue => place.to_owned(),
        }
    }

    fn holds(&self, value: &Exact) -> Result<bool, TypeError> {
        match (self, value) {
            (Self::Compare((_, _, holds), number), Exact::Number(value)) => {
                Ok(holds(value.compare(number.value)))
            }
            (Self::IsNumber(number), value) => Ok(*value == Exact::Number(number.value)),
            (Self::IsText(text), value) => Ok(*value == Exact::Text(text.clone())),
            (Self::Like(before, text, after), Exact::Text(value)) => Ok(match (before, after) {
                (false, false) => value == text,
                (true, false) => value.ends_with(text),
                (false, true) => value.starts_with(text),
                (true, true) => value.contains(text),
            }),
            (Self::ContainsText(text), Exact::List(items)) => {
                Ok(items.contains(&Exact::Text(text.clone())))
            }
            (Self::ContainsNumber(number), Exact::List(items)) => {
                Ok(items.contains(&Exact::Number(number.value)))
            }
            (Self::IsTrue, Exact::Bool(truth)) => Ok(*truth),
            _ => Err(TypeError),
        }
    }
}
