//! Whether every number is within its range. A range is declared once, at its field: from it come the published
//! schema, this check and the message.

use anyhow::ensure;
use serde_json::Value;

use super::Config;

/// Refuses a number outside of the range that its field declares.
pub(super) fn check(config: &Config) -> anyhow::Result<()> {
    let schema = serde_json::to_value(schemars::schema_for!(Config))?;
    Schemas { root: &schema }.check("", &serde_json::to_value(config)?, &schema)
}

/// A schema with what it refers to.
pub(super) struct Schemas<'a> {
    pub(super) root: &'a Value,
}

impl Schemas<'_> {
    fn check(&self, key: &str, value: &Value, schema: &Value) -> anyhow::Result<()> {
        let schema = self.resolved(schema);
        match value {
            Value::Object(members) => members.iter().try_for_each(|(name, value)| {
                let of_name = schema.get("properties").and_then(|all| all.get(name));
                let of_any = schema.get("additionalProperties");
                let key = if key.is_empty() { name.clone() } else { format!("{key}.{name}") };
                self.check(&key, value, of_name.or(of_any).unwrap_or(&Value::Null))
            }),
            Value::Number(number) => {
                let limit = |name: &str| schema.get(name).and_then(Value::as_u64);
                let (least, most) = (limit("minimum"), limit("maximum"));
                let (least, most) = (least.unwrap_or(0), most.unwrap_or(u64::MAX));
                let is_within =
                    number.as_u64().is_none_or(|number| (least..=most).contains(&number));
                ensure!(is_within, "{key} is {number} and must be from {least} to {most}");
                Ok(())
            }
            Value::Array(items) => {
                let of_items = schema.get("items").unwrap_or(&Value::Null);
                items.iter().try_for_each(|item| self.check(key, item, of_items))
            }
            Value::Null | Value::Bool(_) | Value::String(_) => Ok(()),
        }
    }

    /// The schema that a reference names, or the schema itself.
    pub(super) fn resolved<'b>(&'b self, schema: &'b Value) -> &'b Value {
        let named = schema.get("$ref").and_then(Value::as_str);
        let named = named.and_then(|name| self.root.pointer(name.trim_start_matches('#')));
        named.unwrap_or(schema)
    }
}
