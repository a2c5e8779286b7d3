//! Values that a JSON Schema may accept, for arguments that no policy reads.

use serde_json::{Value, json};

use super::limits_of_schema::plain;

/// Values to try for an argument, the likeliest first.
pub(crate) fn values(root: &Value, schema: &Value) -> Vec<Value> {
    let listed = |name: &str| schema.get(name).and_then(Value::as_array).into_iter().flatten();
    let mut values: Vec<Value> = listed("examples").chain(listed("enum")).cloned().collect();
    values.extend(
        ["const", "default", "example"].iter().filter_map(|name| schema.get(*name).cloned()),
    );
    if let Some(plain) = plain(root, schema) {
        let bounds = ["minimum", "maximum"].iter().filter_map(|name| plain.get(*name).cloned());
        values.extend(bounds);
        let listed = plain.get("enum").and_then(Value::as_array).into_iter().flatten();
        values.extend(listed.cloned());
        values.extend(object(root, plain));
        values.extend(text(plain));
    }
    values.extend([json!(1), json!(0), json!(true), json!("x"), json!([]), json!({})]);
    values.extend([json!(["x"]), json!([1]), Value::Null]);
    values
}

/// An object with the members that its schema requires.
fn object(root: &Value, schema: &Value) -> Option<Value> {
    let properties = schema.get("properties")?;
    let required = schema.get("required").and_then(Value::as_array).into_iter().flatten();
    let member = |name: &Value| {
        let name = name.as_str()?;
        Some((name.to_owned(), values(root, properties.get(name)?).into_iter().next()?))
    };
    Some(Value::Object(required.filter_map(member).collect()))
}

/// Texts in the formats that schemas name, and one of the least length.
fn text(schema: &Value) -> Vec<Value> {
    const LENGTH_MAX: u64 = 256;
    let format = schema.get("format").and_then(Value::as_str);
    let formatted = match format {
        Some("date") => Some("2030-01-01"),
        Some("date-time") => Some("2030-01-01T00:00:00Z"),
        Some("time") => Some("00:00:00Z"),
        Some("email") => Some("a@example.com"),
        Some("uri" | "url" | "iri") => Some("https://example.com/"),
        Some("uuid") => Some("00000000-0000-4000-8000-000000000000"),
        Some(_) | None => None,
    };
    let length = schema.get("minLength").and_then(Value::as_u64).filter(|it| *it <= LENGTH_MAX);
    let long =
        length.and_then(|length| usize::try_from(length).ok()).map(|length| "x".repeat(length));
    formatted.map(str::to_owned).into_iter().chain(long).map(Value::String).collect()
}
