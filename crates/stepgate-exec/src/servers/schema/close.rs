//! Closes a schema: what it does not name is refused, unless it says that more is welcome.
//!
//! Tools of the ecosystem name their arguments and leave the rest open, because JSON Schema is open by
//! default; the gate is not. A schema is closed where a value stands (the arguments, a property, an
//! item), never inside a composition (`allOf`, `$ref` and the like): two halves of one object, each
//! closed on its own, would refuse each other's properties.

use std::collections::BTreeSet;

use serde_json::json;
use stepgate_core::json::{Map, Value};

/// Keywords whose schemas judge the same value.
const SAME_VALUE_LISTS: [&str; 3] = ["allOf", "anyOf", "oneOf"];
const SAME_VALUE: [&str; 3] = ["if", "then", "else"];
const SAME_VALUE_MAPS: [&str; 1] = ["dependentSchemas"];
/// Keywords whose schemas judge a value inside.
const INNER: [&str; 4] = ["items", "additionalProperties", "additionalItems", "contains"];
const INNER_LISTS: [&str; 2] = ["items", "prefixItems"];
const INNER_MAPS: [&str; 2] = ["properties", "patternProperties"];
/// Keywords that only keep schemas for others to refer to.
const KEPT: [&str; 2] = ["$defs", "definitions"];
/// Longest chain of references that is followed.
const REFERENCES_MAX: usize = 32;

/// The schema, closed.
pub(super) fn closed(schema: &Value) -> Value {
    let mut closed = schema.clone();
    close_inside(&mut closed, schema);
    if let Value::Object(members) = &mut closed {
        match names_of(schema, schema) {
            Names::Open => {}
            // A tool that names no argument takes none.
            Names::Silent => add_rule(members, &BTreeSet::new()),
            Names::Only(names) => add_rule(members, &names),
        }
    }
    closed
}

/// Which properties a schema lets an object have.
enum Names {
    /// It does not speak of properties.
    Silent,
    /// It names these.
    Only(BTreeSet<String>),
    /// It says that there may be others.
    Open,
}

impl Names {
    fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Open, _) | (_, Self::Open) => Self::Open,
            (Self::Silent, names) | (names, Self::Silent) => names,
            (Self::Only(mut names), Self::Only(more)) => {
                names.extend(more);
                Self::Only(names)
            }
        }
    }
}

fn names_of(schema: &Value, root: &Value) -> Names {
    names_within(schema, root, REFERENCES_MAX)
}

fn names_within(schema: &Value, root: &Value, references_left: usize) -> Names {
    let Value::Object(members) = schema else {
        return Names::Silent;
    };
    let says_how_many = ["additionalProperties", "unevaluatedProperties", "patternProperties"];
    if says_how_many.iter().any(|keyword| members.contains_key(*keyword)) {
        // It has spoken itself: what it refuses, it refuses without our help.
        return Names::Open;
    }
    let mut names = match members.get("properties") {
        Some(Value::Object(properties)) => Names::Only(properties.keys().cloned().collect()),
        Some(_) | None => Names::Silent,
    };
    for part in same_value_parts(members) {
        names = names.and(names_within(part, root, references_left));
    }
    if let Some(reference) = members.get("$ref").and_then(Value::as_str) {
        let target = reference.strip_prefix('#').and_then(|pointer| root.pointer(pointer));
        names = names.and(match (target, references_left.checked_sub(1)) {
            (Some(target), Some(left)) => names_within(target, root, left),
            (Some(_), None) | (None, _) => Names::Open,
        });
    }
    names
}

fn same_value_parts(members: &Map<String, Value>) -> Vec<&Value> {
    let lists = SAME_VALUE_LISTS.iter().filter_map(|keyword| members.get(*keyword)?.as_array());
    let maps = SAME_VALUE_MAPS.iter().filter_map(|keyword| members.get(*keyword)?.as_object());
    let single = SAME_VALUE.iter().filter_map(|keyword| members.get(*keyword));
    lists.flatten().chain(maps.flat_map(Map::values)).chain(single).collect()
}

/// Closes what stands inside, and leaves the schema itself as it is.
fn close_inside(schema: &mut Value, root: &Value) {
    let Value::Object(members) = schema else {
        return;
    };
    for (keyword, value) in members.iter_mut() {
        let keyword = keyword.as_str();
        if SAME_VALUE.contains(&keyword) {
            close_inside(value, root);
        } else if SAME_VALUE_LISTS.contains(&keyword) {
            each_item(value, |part| close_inside(part, root));
        } else if SAME_VALUE_MAPS.contains(&keyword) || KEPT.contains(&keyword) {
            each_member(value, |part| close_inside(part, root));
        } else if INNER_MAPS.contains(&keyword) {
            each_member(value, |part| close_value(part, root));
        } else if INNER_LISTS.contains(&keyword) && value.is_array() {
            each_item(value, |part| close_value(part, root));
        } else if INNER.contains(&keyword) {
            close_value(value, root);
        }
    }
}

/// Closes a schema that judges a value of its own, where it names properties.
fn close_value(schema: &mut Value, root: &Value) {
    let names = names_of(schema, root);
    close_inside(schema, root);
    let (Names::Only(names), Value::Object(members)) = (names, &mut *schema) else {
        return;
    };
    if members.contains_key("$ref") {
        // Draft 07 ignores whatever stands beside a reference.
        *schema = json!({ "allOf": [schema.take()] });
    }
    if let Value::Object(members) = schema {
        add_rule(members, &names);
    }
}

/// Adds the rule that no property has another name.
fn add_rule(members: &mut Map<String, Value>, names: &BTreeSet<String>) {
    let is_plain = same_value_parts(members).is_empty() && !members.contains_key("$ref");
    if is_plain {
        members.insert("additionalProperties".to_owned(), Value::Bool(false));
        return;
    }
    let rule = match names.is_empty() {
        true => json!({ "propertyNames": false }),
        false => json!({ "propertyNames": { "enum": names } }),
    };
    match members.get_mut("allOf") {
        Some(Value::Array(parts)) => parts.push(rule),
        Some(_) | None => {
            members.insert("allOf".to_owned(), json!([rule]));
        }
    }
}

fn each_item(value: &mut Value, close: impl Fn(&mut Value)) {
    if let Value::Array(items) = value {
        items.iter_mut().for_each(close);
    }
}

fn each_member(value: &mut Value, close: impl Fn(&mut Value)) {
    if let Value::Object(members) = value {
        members.values_mut().for_each(close);
    }
}
