//! What a tool's JSON Schema says about its arguments, as far as expressions can say it.

use serde_json::Value;
use stepgate_core::decimal::Decimal;

use super::expr::Expr;
use crate::cause::EXACT_MAX;
use crate::shape::{Attribute, Declared, Record, Shape, long};

/// The largest whole number that policies see.
#[expect(clippy::cast_possible_truncation, reason = "a whole number within the range")]
const LONG_MAX: i64 = EXACT_MAX as i64;

/// What holds for the arguments of every call of a tool. `all_seen` says that policies see every argument.
pub(crate) fn rules_of(input_schema: &Value, args: &Record, all_seen: bool) -> Vec<Expr> {
    let mut rules = Vec::new();
    let reader = Reader { root: input_schema, all_seen };
    reader.record(input_schema, args, &Expr::context("args"), &mut rules);
    rules
}

/// Reads what a JSON Schema says beside the types.
struct Reader<'a> {
    root: &'a Value,
    all_seen: bool,
}

impl Reader<'_> {
    fn record(&self, schema: &Value, record: &Record, at: &Expr, rules: &mut Vec<Expr>) {
        for (name, attribute) in &record.attributes {
            let Ok(shape) = &attribute.seen else { continue };
            let property = schema.get("properties").and_then(|all| all.get(name));
            let property = property.and_then(|property| plain(self.root, property));
            let mut inner = Vec::new();
            self.value(property, shape, &at.clone().attribute(name), &mut inner);
            let has = at.clone().has(name);
            match attribute.required {
                true => rules.extend(inner),
                false if inner.is_empty() => {}
                false => rules.push(has.clone().implies(Expr::all(inner))),
            }
            if self.all_seen && is_always_there(attribute) {
                rules.push(has);
            }
        }
    }

    fn value(&self, schema: Option<&Value>, shape: &Shape, at: &Expr, rules: &mut Vec<Expr>) {
        if *shape == Shape::Long {
            rules.push(Expr::long(-LONG_MAX).at_most(at.clone()));
            rules.push(at.clone().at_most(Expr::long(LONG_MAX)));
        }
        let Some(schema) = schema else { return };
        match shape {
            Shape::Record(record) => self.record(schema, record, at, rules),
            Shape::Set(element) => {
                if schema.get("minItems").and_then(Value::as_u64) > Some(0) {
                    rules.push(at.clone().empty().negated());
                }
                let items = schema.get("items").and_then(|items| plain(self.root, items));
                let listed = items.and_then(|items| listed(items, element));
                rules.extend(listed.map(|elements| Expr::set(elements).contains_all(at.clone())));
            }
            Shape::String | Shape::Bool | Shape::Long | Shape::Decimal => {
                rules.extend(one_of(schema, shape, at));
                rules.extend(bounds(schema, shape, at));
                let is_nonempty = schema.get("minLength").and_then(Value::as_u64) > Some(0);
                if *shape == Shape::String && is_nonempty {
                    rules.push(at.clone().equals(Expr::string("")).negated());
                }
            }
        }
    }
}

/// Whether policies see a value of it also where the call omits it. Where they cannot see the default, the call
/// is denied if a policy reads it, and decided as with any other value if none does.
fn is_always_there(attribute: &Attribute) -> bool {
    match &attribute.default {
        Some(Declared::Value(Value::Null)) | None => false,
        Some(Declared::Value(_) | Declared::Unclear) => !attribute.required,
    }
}

/// The schema of a value that is not null; none where it is too involved to say.
pub(crate) fn plain<'a>(root: &'a Value, schema: &'a Value) -> Option<&'a Value> {
    const STEPS_MAX: usize = 8;
    let mut schema = schema;
    for _ in 0..STEPS_MAX {
        if let Some(reference) = schema.get("$ref") {
            schema = root.pointer(reference.as_str()?.strip_prefix('#')?)?;
            continue;
        }
        let choices = schema.get("anyOf").or_else(|| schema.get("oneOf"));
        let Some(choices) = choices.filter(|_| schema.get("type").is_none()) else {
            return Some(schema);
        };
        let is_null = |choice: &&Value| choice.get("type").is_some_and(|kind| kind == "null");
        schema = choices.as_array()?.iter().find(|choice| !is_null(choice))?;
    }
    None
}

/// That a value is one of those that its schema lists.
fn one_of(schema: &Value, shape: &Shape, at: &Expr) -> Option<Expr> {
    let values = listed(schema, shape)?;
    Some(Expr::any(values.into_iter().map(|value| at.clone().equals(value))))
}

/// The values that a schema lists, without those that policies cannot see; none where it lists none of these.
fn listed(schema: &Value, shape: &Shape) -> Option<Vec<Expr>> {
    let listed = schema.get("enum").and_then(Value::as_array).map(Vec::as_slice);
    let listed = listed.or_else(|| schema.get("const").map(std::slice::from_ref))?;
    let seen: Vec<Expr> = listed.iter().filter_map(|value| literal(shape, value)).collect();
    (!seen.is_empty()).then_some(seen)
}

/// A value of a type, if an expression can have it.
pub(crate) fn literal(shape: &Shape, value: &Value) -> Option<Expr> {
    crate::shape::scalar(shape, value).ok()?;
    match shape {
        Shape::String => value.as_str().map(Expr::string),
        Shape::Bool => value.as_bool().map(Expr::truth),
        Shape::Long => long(value.as_number()?).ok().map(Expr::long),
        Shape::Decimal => Decimal::of(value.as_number()?).ok().map(Expr::decimal),
        Shape::Set(_) | Shape::Record(_) => None,
    }
}

fn bounds(schema: &Value, shape: &Shape, at: &Expr) -> Vec<Expr> {
    let bound = |name: &str| schema.get(name).and_then(|bound| literal(shape, bound));
    let order = |left: Expr, right: Expr, is_strict: bool| match (shape, is_strict) {
        (Shape::Decimal, true) => left.decimal_method("lessThan", right),
        (Shape::Decimal, false) => left.decimal_method("lessThanOrEqual", right),
        (_, true) => left.less(right),
        (_, false) => left.at_most(right),
    };
    match shape {
        Shape::Long | Shape::Decimal => {}
        Shape::String | Shape::Bool | Shape::Set(_) | Shape::Record(_) => return Vec::new(),
    }
    let at = || at.clone();
    let rules = [
        bound("minimum").map(|bound| order(bound, at(), false)),
        bound("exclusiveMinimum").map(|bound| order(bound, at(), true)),
        bound("maximum").map(|bound| order(at(), bound, false)),
        bound("exclusiveMaximum").map(|bound| order(at(), bound, true)),
    ];
    rules.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests;
