//! Simplifies schemas to forms that generators of clients understand. The meaning stays the same.

use serde_json::{Map, Value, json};

/// Simplifies every schema of the document.
pub(super) fn simplify(value: &mut Value) {
    match value {
        Value::Object(members) => {
            merge_constants(members);
            empty_for_true(members);
            members.values_mut().for_each(simplify);
        }
        Value::Array(items) => items.iter_mut().for_each(simplify),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// `{"oneOf": [{"const": "a"}, {"const": "b"}]}` is `{"enum": ["a", "b"]}`. The constants have descriptions of their
/// own, which are lost.
fn merge_constants(schema: &mut Map<String, Value>) {
    let Some(Value::Array(choices)) = schema.get("oneOf") else { return };
    let constant = |choice: &Value| choice.get("const").filter(|it| it.is_string()).cloned();
    let Some(constants) = choices.iter().map(constant).collect::<Option<Vec<Value>>>() else {
        return;
    };
    schema.remove("oneOf");
    schema.insert("type".into(), json!("string"));
    schema.insert("enum".into(), constants.into());
}

/// The schema `true` is `{}`.
fn empty_for_true(schema: &mut Map<String, Value>) {
    if let Some(Value::Object(properties)) = schema.get_mut("properties") {
        for property in properties.values_mut().filter(|property| **property == json!(true)) {
            *property = json!({});
        }
    }
    if let Some(items) = schema.get_mut("items").filter(|items| **items == json!(true)) {
        *items = json!({});
    }
}

/// Removes null from the values of a schema.
pub(super) fn remove_null(schema: &mut Value) {
    let Value::Object(members) = schema else { return };
    if let Some(Value::Array(types)) = members.get_mut("type") {
        types.retain(|name| name != "null");
        if let [only] = types.as_slice() {
            let only = only.clone();
            members.insert("type".into(), only);
        }
    }
    if let Some(Value::Array(choices)) = members.get_mut("anyOf") {
        choices.retain(|choice| choice.get("type") != Some(&json!("null")));
        if let [only] = choices.as_slice() {
            *schema = only.clone();
        }
    }
}
