//! What to write where a policy mixes whole numbers and numbers with decimals: Cedar compares the first by
//! operators and the second by methods.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use cedar_policy::{Context, Policy, RestrictedExpression};
use serde_json::Value;
use stepgate_core::decimal::Decimal;

use crate::reads::{application, context_path, parts_of};
use crate::shape::{Record, Shape};

/// The operator and the method of each order.
const ORDERS: [(&str, &str); 4] = [
    ("<", "lessThan"),
    ("<=", "lessThanOrEqual"),
    (">", "greaterThan"),
    (">=", "greaterThanOrEqual"),
];

/// The arguments of a tool, with its name.
pub(crate) type Arguments<'a> = (&'a str, &'a Record);

/// What to write instead of the part of a policy that Cedar's validator refuses, for the tools that the policy
/// is about. `place` is where the part is in the policy's source.
pub(crate) fn for_types(
    policy: &Policy,
    source: &str,
    place: Range<usize>,
    tools: &[Arguments<'_>],
) -> Option<String> {
    let (before, after) = (source.get(..place.start)?, source.get(place.end..)?);
    let refused = expression(source.get(place)?)?;
    let policy = policy.to_json().ok()?;
    let (mut here, mut elsewhere) = (BTreeSet::new(), BTreeSet::new());
    walk(&policy, &mut |part| {
        if *part == refused || operands(part).contains(&&refused) {
            let advice = literal_advice(part).or_else(|| comparison_advice(part, tools));
            let is_here = *part == refused || is_around(part, before, after);
            if is_here { here.extend(advice) } else { elsewhere.extend(advice) }
        }
    });
    let advice = if here.is_empty() { elsewhere } else { here };
    (!advice.is_empty()).then(|| advice.into_iter().collect::<Vec<_>>().join("; "))
}

/// Whether the text before or after an operand continues like this part: by its operator, and by its number if
/// the other operand is one. JSON has no places, so that equal operands can be told apart only so.
fn is_around(part: &Value, before: &str, after: &str) -> bool {
    const LOOKED_AT_MAX: usize = 64;
    let is_told = |c: &char| !c.is_whitespace() && !"().".contains(*c);
    let after: String = after.chars().filter(is_told).take(LOOKED_AT_MAX).collect();
    let before: Vec<char> = before.chars().rev().filter(is_told).take(LOOKED_AT_MAX).collect();
    let before: String = before.into_iter().rev().collect();
    let Some(Comparison { operator, operands: [left, right] }) = Comparison::of(part) else {
        return false;
    };
    let number = |operand: &Value| {
        let number = operand.get("Value").filter(|value| value.is_number());
        number.map(Value::to_string).unwrap_or_default()
    };
    after.starts_with(&format!("{operator}{}", number(right)))
        || before.ends_with(&format!("{}{operator}", number(left)))
}

/// What to write instead of `99.50`, where Cedar's parser stops after the point.
pub(crate) fn for_syntax(text: &str, offset: usize) -> Option<String> {
    let (before, after) = text.split_at_checked(offset)?;
    let is_part = |c: char| c.is_ascii_digit() || c == '.' || c == '-';
    let before_it = before.trim_end_matches(is_part);
    let is_member = before_it.ends_with(|c: char| c.is_alphanumeric() || "_])".contains(c));
    let length =
        before.len() - before_it.len() + after.len() - after.trim_start_matches(is_part).len();
    let number = text.get(before_it.len()..)?.get(..length)?;
    if is_member || !number.contains('.') {
        return None;
    }
    let number = Decimal::parse(number).ok()?;
    Some(format!(
        "a number with decimals is written `decimal(\"{number}\")` and compared by a method, as in \
         `context.args.amount.lessThanOrEqual(decimal(\"{number}\"))`"
    ))
}

/// A condition in Cedar's JSON form.
fn expression(text: &str) -> Option<Value> {
    let policy = format!("permit (principal, action, resource) when {{ {text}\n }};");
    let mut policy = Policy::from_str(&policy).ok()?.to_json().ok()?;
    policy.pointer_mut("/conditions/0/body").map(Value::take)
}

fn walk(part: &Value, look: &mut impl FnMut(&Value)) {
    look(part);
    parts_of(part).into_iter().for_each(|part| walk(part, look));
}

fn operands(part: &Value) -> Vec<&Value> {
    match application(part) {
        Some((_, Value::Array(operands))) => operands.iter().collect(),
        Some((_, Value::Object(operands))) => {
            ["left", "right"].into_iter().filter_map(|side| operands.get(side)).collect()
        }
        _ => Vec::new(),
    }
}

/// For `decimal("100")` and `decimal(100)`, which Cedar does not read.
fn literal_advice(part: &Value) -> Option<String> {
    let text = part.pointer("/decimal/0/Value").and_then(Value::as_str).unwrap_or_default();
    let literal = RestrictedExpression::new_decimal(text);
    if Context::from_pairs([(String::new(), literal)]).is_ok() {
        return None;
    }
    let number = part.get("decimal").and_then(|_| number_of(part))?;
    Some(format!("write `decimal(\"{number}\")`"))
}

fn comparison_advice(part: &Value, tools: &[Arguments<'_>]) -> Option<String> {
    let comparison = Comparison::of(part)?;
    let (path, kind, args) = tools.iter().find_map(|(_, args)| {
        let (path, kind) = comparison.argument(args)?;
        (!comparison.fits(kind, args)).then_some((path, kind, args))
    })?;
    let way_out = match comparison.rewritten(kind, args) {
        Some(text) => format!("write `{text}`"),
        None => kind.way_out().to_owned(),
    };
    let is_other = |(name, args): &Arguments<'_>| {
        let other = kind_at(args, &path).filter(|other| *other != kind)?;
        Some(format!("; it is {other} for `{name}`, which needs a policy of its own"))
    };
    let other = tools.iter().find_map(is_other).unwrap_or_default();
    Some(format!("`{}` is {kind}: {way_out}{other}", path.join(".")))
}

/// The type of a number, or of the numbers in a list.
#[derive(Clone, Copy, PartialEq)]
struct Kind {
    is_decimal: bool,
    is_list: bool,
}

impl Kind {
    fn way_out(self) -> &'static str {
        match self.is_decimal {
            true => {
                "it is compared with another one, as in `decimal(\"99.5\")`, by `==`, `!=`, `lessThan`, \
                 `lessThanOrEqual`, `greaterThan` or `greaterThanOrEqual`, and nothing is calculated with it"
            }
            false => "it is compared with another one by `==`, `!=`, `<`, `<=`, `>` or `>=`",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match (self.is_decimal, self.is_list) {
            (true, false) => "a number with decimals",
            (true, true) => "a list of numbers with decimals",
            (false, false) => "a whole number",
            (false, true) => "a list of whole numbers",
        })
    }
}

/// A part with two operands.
struct Comparison<'a> {
    operator: &'a str,
    operands: [&'a Value; 2],
}

impl<'a> Comparison<'a> {
    fn of(part: &'a Value) -> Option<Self> {
        let (operator, _) = application(part)?;
        let operands = operands(part).try_into().ok()?;
        Some(Self { operator, operands })
    }

    /// The first argument of the tool in it that is a number, or a list of numbers.
    fn argument(&self, args: &Record) -> Option<(Vec<&'a str>, Kind)> {
        self.operands.into_iter().find_map(|operand| {
            let path = argument_path(operand)?;
            let kind = kind_at(args, &path)?;
            Some((path, kind))
        })
    }

    /// Whether Cedar accepts it for an argument of this kind.
    fn fits(&self, kind: Kind, args: &Record) -> bool {
        let is_method = ORDERS.iter().any(|(_, method)| *method == self.operator);
        let is_operator = ORDERS.iter().any(|(operator, _)| *operator == self.operator);
        let is_calculation = ["+", "-", "*"].contains(&self.operator);
        let has_operator = match kind.is_decimal {
            true => !is_operator && !is_calculation,
            false => !is_method,
        };
        has_operator
            && self.operands.into_iter().all(|operand| match kind_of(operand, args) {
                Some(other) => other.is_decimal == kind.is_decimal,
                None => operand.get("Value").is_none(),
            })
    }

    /// The same comparison, as Cedar writes it for an argument of this kind.
    fn rewritten(&self, kind: Kind, args: &Record) -> Option<String> {
        let [left, right] = self.operands.map(|operand| written(operand, kind.is_decimal, args));
        let (left, right) = left.zip(right)?;
        let operator = self.operator;
        let order = ORDERS.iter().find(|(symbol, method)| [*symbol, *method].contains(&operator));
        let are_lists =
            self.operands.map(|operand| kind_of(operand, args).is_some_and(|kind| kind.is_list));
        match (operator, order, are_lists) {
            (_, Some((_, method)), [false, false]) if kind.is_decimal => {
                Some(format!("{left}.{method}({right})"))
            }
            (_, Some((symbol, _)), [false, false]) => Some(format!("{left} {symbol} {right}")),
            ("==" | "!=", _, [false, false] | [true, true]) => {
                Some(format!("{left} {operator} {right}"))
            }
            ("contains", _, [true, false]) | ("containsAll" | "containsAny", _, [true, true]) => {
                Some(format!("{left}.{operator}({right})"))
            }
            _ => None,
        }
    }
}

/// The path of `context.args.a.b` below the arguments.
fn argument_path(part: &Value) -> Option<Vec<&str>> {
    let path = context_path(part).filter(|_| part.get("has").is_none())?;
    path.strip_prefix(&["args"]).map(<[&str]>::to_vec)
}

fn kind_at(args: &Record, path: &[&str]) -> Option<Kind> {
    let (name, rest) = path.split_first()?;
    let shape = args.attributes.get(*name)?.seen.as_ref().ok()?;
    let kind = |shape: &Shape, is_list| match shape {
        Shape::Long => Some(Kind { is_decimal: false, is_list }),
        Shape::Decimal => Some(Kind { is_decimal: true, is_list }),
        Shape::String | Shape::Bool | Shape::Set(_) | Shape::Record(_) => None,
    };
    match shape {
        Shape::Record(inner) => kind_at(inner, rest),
        Shape::Set(element) => kind(element, true),
        Shape::String | Shape::Long | Shape::Decimal | Shape::Bool => kind(shape, false),
    }
}

fn kind_of(operand: &Value, args: &Record) -> Option<Kind> {
    if let Some(path) = argument_path(operand) {
        return kind_at(args, &path);
    }
    let number = |is_decimal| Some(Kind { is_decimal, is_list: false });
    match application(operand)? {
        ("Value", Value::Number(_)) | ("+" | "-" | "*" | "neg", _) => number(false),
        ("decimal", _) => number(true),
        ("Set", elements) => {
            kind_of(elements.get(0)?, args).map(|kind| Kind { is_list: true, ..kind })
        }
        _ => None,
    }
}

/// An operand as Cedar writes it among numbers of one kind.
fn written(operand: &Value, is_decimal: bool, args: &Record) -> Option<String> {
    if let Some(path) = argument_path(operand) {
        let members = path.iter().map(|name| match is_identifier(name) {
            true => format!(".{name}"),
            false => format!("[{name:?}]"),
        });
        let text = members.fold("context.args".to_owned(), |text, member| text + &member);
        return kind_at(args, &path).filter(|kind| kind.is_decimal == is_decimal).map(|_| text);
    }
    if let Some(("Set", Value::Array(elements))) = application(operand) {
        let elements = elements.iter().map(|element| written(element, is_decimal, args));
        return Some(format!("[{}]", elements.collect::<Option<Vec<_>>>()?.join(", ")));
    }
    let number = number_of(operand)?;
    match is_decimal {
        true => Some(format!("decimal(\"{number}\")")),
        false => number.whole().map(|number| number.to_string()),
    }
}

/// The number that a literal is meant to be: `100`, `"100"`, `decimal("100")`.
fn number_of(literal: &Value) -> Option<Decimal> {
    let value = match application(literal)? {
        ("decimal", operands) => operands.get(0)?.get("Value")?,
        ("Value", value) => value,
        _ => return None,
    };
    let number = match value {
        Value::String(text) => Decimal::parse(text),
        Value::Number(number) => Decimal::of(number),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => return None,
    };
    number.ok()
}

fn is_identifier(name: &str) -> bool {
    let mut rest = name.chars().skip_while(|c| c.is_ascii_alphanumeric() || *c == '_');
    rest.next().is_none() && name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
}
