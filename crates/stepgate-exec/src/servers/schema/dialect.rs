//! The drafts of JSON Schema that servers use. Older drafts are converted to draft 07, which expresses the
//! same rules with other keywords.

use std::borrow::Cow;

use jsonschema::Draft;
use stepgate_core::json::{Map, Value};

use super::SchemaError;
use super::outline::{parts_mut, short};

/// Depth limit for the conversion. A schema from a server is never deeper.
const DEPTH_MAX: usize = 128;

/// A schema in a supported draft, and that draft: the one that it names, or the newest where it names none,
/// as MCP says.
pub(super) fn read(schema: &Value) -> Result<(Cow<'_, Value>, Draft), SchemaError> {
    let named = named(schema)?;
    let mut modern = schema.clone();
    let mut is_changed = matches!(named, Draft::Draft4 | Draft::Draft6);
    if is_changed && let Value::Object(members) = &mut modern {
        members.shift_remove("$schema");
    }
    modernise(&mut modern, named == Draft::Draft4, 0, &mut is_changed);
    let schema = if is_changed { Cow::Owned(modern) } else { Cow::Borrowed(schema) };
    Ok((schema, converted(named)))
}

/// The draft that a part of a schema names, after the conversion.
pub(super) fn draft_of(schema: &Value) -> Result<Draft, SchemaError> {
    named(schema).map(converted)
}

fn converted(named: Draft) -> Draft {
    if matches!(named, Draft::Draft4 | Draft::Draft6) { Draft::Draft7 } else { named }
}

fn named(schema: &Value) -> Result<Draft, SchemaError> {
    let Some(named) = schema.get("$schema") else {
        return Ok(Draft::Draft202012);
    };
    let address = named.as_str().unwrap_or_default();
    let plain = address.trim_end_matches('#');
    let path = plain.strip_prefix("https://").or_else(|| plain.strip_prefix("http://"));
    match path.unwrap_or_default() {
        "json-schema.org/draft/2020-12/schema" => Ok(Draft::Draft202012),
        "json-schema.org/draft/2019-09/schema" => Ok(Draft::Draft201909),
        "json-schema.org/draft-07/schema" => Ok(Draft::Draft7),
        "json-schema.org/draft-06/schema" => Ok(Draft::Draft6),
        "json-schema.org/draft-04/schema" => Ok(Draft::Draft4),
        _ => Err(SchemaError(format!(
            "its schema is of `{}`, and only drafts 2020-12, 2019-09, 07, 06 and 04 are known",
            short(address)
        ))),
    }
}

/// Converts keywords of draft 04: exclusive bounds, and the id of a schema. A boolean `exclusiveMinimum` is
/// always draft 04's, whatever draft is named.
fn modernise(schema: &mut Value, is_draft_4: bool, depth: usize, is_changed: &mut bool) {
    let Value::Object(members) = schema else { return };
    for (exclusive, bound) in [("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")] {
        if let Some(Value::Bool(is_exclusive)) = members.get(exclusive) {
            *is_changed = true;
            let limit = members.get(bound).cloned().filter(|_| *is_exclusive);
            members.shift_remove(exclusive);
            if let Some(limit) = limit {
                members.shift_remove(bound);
                members.insert(exclusive.to_owned(), limit);
            }
        }
    }
    if is_draft_4 {
        rename(members, "id", "$id");
    }
    if depth < DEPTH_MAX {
        for part in parts_mut(members) {
            modernise(part, is_draft_4, depth + 1, is_changed);
        }
    }
}

fn rename(members: &mut Map<String, Value>, from: &str, to: &str) {
    if let Some(value) = members.get(from).filter(|value| value.is_string()).cloned() {
        members.shift_remove(from);
        members.insert(to.to_owned(), value);
    }
}
