//! Compares definitions by meaning: differences that change nothing for a model, a person or the validation
//! of arguments are ignored.

use stepgate_core::digest::Digest;
use stepgate_core::json::Value;

/// Keywords whose value is a set: the order has no meaning.
const SETS: [&str; 6] = ["enum", "required", "type", "anyOf", "oneOf", "allOf"];
/// Keywords whose members are named schemas.
const NAMED: [&str; 5] =
    ["properties", "patternProperties", "$defs", "definitions", "dependentSchemas"];
/// Keywords whose value is a schema, or a list of them.
const INNER: [&str; 15] = [
    "items",
    "prefixItems",
    "additionalProperties",
    "additionalItems",
    "contains",
    "propertyNames",
    "unevaluatedProperties",
    "unevaluatedItems",
    "not",
    "if",
    "then",
    "else",
    "anyOf",
    "oneOf",
    "allOf",
];
/// Further keywords that define the names and types of arguments.
const SHAPE: [&str; 5] = ["type", "required", "$ref", "$anchor", "$id"];

/// How much of a definition is compared.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Depth {
    /// Everything that has a meaning.
    Meaning,
    /// The names and types of arguments and results.
    Shape,
}

pub(crate) fn same_meaning(one: &Value, other: &Value) -> bool {
    Digest::of(&reduced(one, Depth::Meaning)) == Digest::of(&reduced(other, Depth::Meaning))
}

pub(crate) fn same_shape(one: &Value, other: &Value) -> bool {
    Digest::of(&reduced(one, Depth::Shape)) == Digest::of(&reduced(other, Depth::Shape))
}

/// The normal form of a definition: equal for all definitions with the same meaning.
fn reduced(definition: &Value, depth: Depth) -> Value {
    let Value::Object(members) = definition else { return definition.clone() };
    let reduced = members.iter().filter_map(|(name, value)| match name.as_str() {
        "inputSchema" | "outputSchema" => Some((name.clone(), schema(value, depth))),
        "name" => Some((name.clone(), value.clone())),
        _ => (depth == Depth::Meaning && !value.is_null()).then(|| (name.clone(), value.clone())),
    });
    Value::Object(reduced.collect())
}

fn schema(value: &Value, depth: Depth) -> Value {
    let Value::Object(members) = value else { return value.clone() };
    let kept = members.iter().filter(|(keyword, value)| match depth {
        Depth::Meaning => !changes_nothing(keyword, value),
        Depth::Shape => tells_shape(keyword) && !changes_nothing(keyword, value),
    });
    kept.map(|(keyword, value)| (keyword.clone(), part(keyword, value, depth))).collect()
}

fn part(keyword: &str, value: &Value, depth: Depth) -> Value {
    if let (true, Value::Object(members)) = (NAMED.contains(&keyword), value) {
        return members.iter().map(|(name, part)| (name.clone(), schema(part, depth))).collect();
    }
    let reduce = |value: &Value| match INNER.contains(&keyword) {
        true => schema(value, depth),
        false => value.clone(),
    };
    let Value::Array(members) = value else { return reduce(value) };
    let members: Vec<Value> = members.iter().map(reduce).collect();
    if SETS.contains(&keyword) { set(members, keyword) } else { Value::Array(members) }
}

/// Sorts a set; a single type stands without its list.
fn set(mut members: Vec<Value>, keyword: &str) -> Value {
    members.sort_by_cached_key(Digest::of);
    match (keyword, members.as_slice()) {
        ("type", [only]) => only.clone(),
        (_, _) => Value::Array(members),
    }
}

/// Whether a keyword with this value has the same meaning as its absence.
fn changes_nothing(keyword: &str, value: &Value) -> bool {
    match keyword {
        "$comment" => true,
        "required" => value.as_array().is_some_and(Vec::is_empty),
        "uniqueItems" | "deprecated" | "readOnly" | "writeOnly" | "nullable" => {
            *value == Value::Bool(false)
        }
        "minLength" | "minItems" | "minProperties" => value.as_u64() == Some(0),
        _ => false,
    }
}

fn tells_shape(keyword: &str) -> bool {
    SHAPE.contains(&keyword) || NAMED.contains(&keyword) || INNER.contains(&keyword)
}

#[cfg(test)]
mod tests;
