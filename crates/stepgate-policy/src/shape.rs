//! What policies see of a tool's arguments: the part of its JSON Schema that Cedar can type.
//!
//! A shape is made once, when a set is loaded, and used twice: for Cedar's schema, and to turn the
//! arguments of every call into values of exactly those types. So a request keeps the schema by
//! construction, and what does not fit is left out and named.

use std::collections::BTreeMap;

use cedar_policy::RestrictedExpression;
use serde_json::{Map, Value, json};
use stepgate_core::tool::{Mode, ToolName};

use crate::limits::{ARGS_DEPTH_MAX, ATTRIBUTES_MAX};

/// What policies must know of a tool.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolShape {
    /// Its name, which is the action's.
    pub name: ToolName,
    /// What the configuration says that it does; the action group.
    pub mode: Mode,
    /// The JSON Schema of its arguments.
    pub input_schema: Value,
    /// Arguments that policies do not see, because the gate shows them as digests.
    pub redacted: Vec<String>,
    /// Whether an operator has accepted this definition. Where not, no call comes as far as policies, and
    /// they are not held to a schema that nobody has agreed to.
    pub is_accepted: bool,
}

impl ToolShape {
    /// The schema of an argument, where the tool has such a one.
    pub(crate) fn argument(&self, name: &str) -> Option<&Value> {
        self.input_schema.get("properties")?.get(name)
    }

    /// What policies see of its arguments.
    pub(crate) fn args(&self) -> Shape {
        let mut args = of_args(&self.input_schema);
        if let Shape::Record(attributes) = &mut args {
            attributes.retain(|name, _| !self.is_redacted(name));
        }
        args
    }

    /// Whether policies do not see an argument.
    pub(crate) fn is_redacted(&self, name: &str) -> bool {
        self.redacted.iter().any(|redacted| redacted == name)
    }

    /// Whether an argument must be given.
    pub(crate) fn required(&self) -> impl Iterator<Item = &str> {
        names_in(self.input_schema.get("required"))
    }
}

/// A type that Cedar has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    String,
    Long,
    Bool,
    Set(Box<Shape>),
    Record(BTreeMap<String, Attribute>),
}

/// A member of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Attribute {
    pub(crate) shape: Shape,
    /// Whether policies may read it without `has`.
    pub(crate) required: bool,
}

/// What Cedar can type of the arguments of a tool.
pub(crate) fn of_args(input_schema: &Value) -> Shape {
    let mut reader = Reader { root: input_schema, attributes_left: ATTRIBUTES_MAX };
    Shape::Record(reader.record(input_schema, ARGS_DEPTH_MAX))
}

/// Reads a JSON Schema as far as Cedar goes.
struct Reader<'a> {
    root: &'a Value,
    attributes_left: usize,
}

/// A shape, and whether every value that keeps the schema has it.
struct Held {
    shape: Shape,
    always: bool,
}

impl<'a> Reader<'a> {
    fn record(&mut self, schema: &'a Value, depth_left: usize) -> BTreeMap<String, Attribute> {
        let mut attributes = BTreeMap::new();
        let properties = schema.get("properties").and_then(Value::as_object);
        for (name, property) in properties.into_iter().flatten() {
            if self.attributes_left == 0 {
                break;
            }
            self.attributes_left -= 1;
            if let Some(held) = self.held(property, depth_left.saturating_sub(1)) {
                let is_demanded = names_in(schema.get("required")).any(|demanded| demanded == name);
                let required = is_demanded && held.always;
                attributes.insert(name.clone(), Attribute { shape: held.shape, required });
            }
        }
        attributes
    }

    fn held(&mut self, schema: &'a Value, depth_left: usize) -> Option<Held> {
        if depth_left == 0 {
            return None;
        }
        if let Some(reference) = schema.get("$ref").and_then(Value::as_str) {
            // Only what the schema itself holds: nothing is ever fetched.
            let target = self.root.pointer(reference.strip_prefix('#')?)?;
            return self.held(target, depth_left - 1);
        }
        match schema.get("type") {
            Some(Value::String(kind)) => self.held_as(kind, schema, depth_left),
            Some(Value::Array(kinds)) => {
                let (kind, nullable) = the_one_beside_null(kinds, |kind| kind == "null")?;
                let held = self.held_as(kind.as_str()?, schema, depth_left)?;
                Some(Held { always: held.always && !nullable, ..held })
            }
            Some(_) => None,
            None => self.held_without_type(schema, depth_left),
        }
    }

    fn held_as(&mut self, kind: &str, schema: &'a Value, depth_left: usize) -> Option<Held> {
        let always = |shape| Some(Held { shape, always: true });
        match kind {
            "string" => always(Shape::String),
            "integer" => always(Shape::Long),
            "boolean" => always(Shape::Bool),
            // A fraction is left out.
            "number" => Some(Held { shape: Shape::Long, always: false }),
            "array" if schema.get("prefixItems").is_none() => {
                let element = self.held(schema.get("items")?, depth_left - 1)?;
                let always = element.always && !matches!(element.shape, Shape::Record(_));
                Some(Held { shape: Shape::Set(Box::new(element.shape)), always })
            }
            "object" if schema.get("properties").is_some() => {
                always(Shape::Record(self.record(schema, depth_left)))
            }
            _ => None,
        }
    }

    /// A choice of fixed values of one type, or one type that may be null instead.
    fn held_without_type(&mut self, schema: &'a Value, depth_left: usize) -> Option<Held> {
        if let Some(values) = schema.get("enum").and_then(Value::as_array) {
            return held_by_all(values);
        }
        if let Some(value) = schema.get("const") {
            return held_by_all(std::slice::from_ref(value));
        }
        let choices = schema.get("anyOf").or_else(|| schema.get("oneOf"))?.as_array()?;
        let is_null = |choice: &Value| choice.get("type").is_some_and(|kind| kind == "null");
        let (choice, nullable) = the_one_beside_null(choices, is_null)?;
        let held = self.held(choice, depth_left - 1)?;
        Some(Held { always: held.always && !nullable, ..held })
    }
}

/// The only choice that is not null, and whether null is another.
fn the_one_beside_null(
    choices: &[Value],
    is_null: impl Fn(&Value) -> bool,
) -> Option<(&Value, bool)> {
    let mut others = choices.iter().filter(|choice| !is_null(choice));
    match (others.next(), others.next()) {
        (Some(choice), None) => Some((choice, choices.iter().any(&is_null))),
        (None, _) | (Some(_), Some(_)) => None,
    }
}

fn held_by_all(values: &[Value]) -> Option<Held> {
    let shape = match values.first()? {
        Value::String(_) => Shape::String,
        Value::Bool(_) => Shape::Bool,
        Value::Number(_) => Shape::Long,
        Value::Null | Value::Array(_) | Value::Object(_) => return None,
    };
    let all = values.iter().all(|value| scalar(&shape, value).is_some());
    all.then_some(Held { shape, always: true })
}

fn names_in(list: Option<&Value>) -> impl Iterator<Item = &str> {
    list.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
}

impl Shape {
    /// The type in Cedar's schema.
    pub(crate) fn to_schema(&self) -> Value {
        match self {
            Self::String => json!({ "type": "String" }),
            Self::Long => json!({ "type": "Long" }),
            Self::Bool => json!({ "type": "Boolean" }),
            Self::Set(element) => json!({ "type": "Set", "element": element.to_schema() }),
            Self::Record(attributes) => {
                let members = attributes.iter().map(|(name, attribute)| {
                    let mut member = attribute.shape.to_schema();
                    if let Value::Object(member) = &mut member {
                        member.insert("required".into(), attribute.required.into());
                    }
                    (name.clone(), member)
                });
                let members: Map<String, Value> = members.collect();
                json!({ "type": "Record", "attributes": members })
            }
        }
    }

    /// Whether a cap could lower a value of this type.
    pub(crate) fn is_numeric(&self) -> bool {
        match self {
            Self::Long => true,
            Self::String | Self::Bool | Self::Set(_) | Self::Record(_) => false,
        }
    }
}

/// The arguments as policies see them, and the names of those that were given and are not seen:
/// `volume`, `options.level`.
pub(crate) fn value_of_args(
    attributes: &BTreeMap<String, Attribute>,
    args: &Map<String, Value>,
) -> Option<(RestrictedExpression, Vec<String>)> {
    let mut left_out = Vec::new();
    let value = record(attributes, args, "", &mut left_out)?;
    Some((value, left_out))
}

fn record(
    attributes: &BTreeMap<String, Attribute>,
    members: &Map<String, Value>,
    prefix: &str,
    left_out: &mut Vec<String>,
) -> Option<RestrictedExpression> {
    let mut seen = Vec::with_capacity(members.len());
    for (name, value) in members {
        let path = || format!("{prefix}{name}");
        let shown = match attributes.get(name).map(|attribute| &attribute.shape) {
            Some(Shape::Record(inner)) => match value {
                Value::Object(members) => {
                    record(inner, members, &format!("{prefix}{name}."), left_out)
                }
                Value::Null
                | Value::Bool(_)
                | Value::Number(_)
                | Value::String(_)
                | Value::Array(_) => None,
            },
            Some(Shape::Set(element)) => set(element, value),
            Some(shape @ (Shape::String | Shape::Long | Shape::Bool)) => scalar(shape, value),
            None => None,
        };
        match shown {
            Some(shown) => seen.push((name.clone(), shown)),
            None => left_out.push(path()),
        }
    }
    RestrictedExpression::new_record(seen).ok()
}

/// All elements or nothing: a set that lacks one would answer `contains` wrongly.
fn set(element: &Shape, value: &Value) -> Option<RestrictedExpression> {
    let elements = value.as_array()?.iter().map(|value| match element {
        Shape::Set(inner) => set(inner, value),
        Shape::Record(attributes) => {
            let mut left_out = Vec::new();
            let record = record(attributes, value.as_object()?, "", &mut left_out);
            record.filter(|_| left_out.is_empty())
        }
        Shape::String | Shape::Long | Shape::Bool => scalar(element, value),
    });
    Some(RestrictedExpression::new_set(elements.collect::<Option<Vec<_>>>()?))
}

fn scalar(shape: &Shape, value: &Value) -> Option<RestrictedExpression> {
    match (shape, value) {
        (Shape::String, Value::String(text)) => {
            Some(RestrictedExpression::new_string(text.clone()))
        }
        (Shape::Bool, Value::Bool(truth)) => Some(RestrictedExpression::new_bool(*truth)),
        (Shape::Long, Value::Number(number)) => long(number).map(RestrictedExpression::new_long),
        (Shape::String | Shape::Bool | Shape::Long | Shape::Set(_) | Shape::Record(_), _) => None,
    }
}

/// A whole number, also where it is spelled `20.0`, within what a double holds exactly.
fn long(number: &serde_json::Number) -> Option<i64> {
    const EXACT_MAX: f64 = 9_007_199_254_740_991.0;
    if let Some(number) = number.as_i64() {
        return Some(number);
    }
    let number = number.as_f64()?;
    let is_exact = number.fract() == 0.0 && number.abs() <= EXACT_MAX;
    #[expect(clippy::cast_possible_truncation, reason = "a whole number within the exact range")]
    is_exact.then_some(number as i64)
}

#[cfg(test)]
mod tests;
