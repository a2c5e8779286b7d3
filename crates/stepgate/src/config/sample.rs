//! A sample configuration: every key, commented out, with its meaning, its range and its default. It is made from the
//! published schema, so it knows every key that there is.

use std::fmt::Write;

use anyhow::Context;
use serde_json::{Map, Value};

use super::Config;
use super::ranges::Schemas;

const HEAD: &str = "\
# Stepgate's configuration: every key with its default. A `#` before a key or a [section] takes it out; remove
# the `#` to set a key. The environment variable STEPGATE_SECTION_KEY, such as STEPGATE_SERVE_BIND, is laid over
# the key of a [section] with a fixed name, and a flag over both. Unknown keys are errors.
# This file is what `stepgate config sample` prints.
";

/// What stands for a name that the operator chooses.
const NAME: &str = "NAME";

pub(crate) fn sample() -> anyhow::Result<String> {
    let schema = serde_json::to_value(schemars::schema_for!(Config))?;
    let (schemas, mut text) = (Schemas { root: &schema }, HEAD.to_owned());
    for (name, section) in properties(&schema)? {
        let mark = match schemas.kind(section) {
            // An empty section changes nothing, and a key can be set without a look for its head.
            Kind::Value | Kind::Table => "",
            Kind::Named | Kind::List => "#",
        };
        schemas.section(&mut text, name, section, mark)?;
    }
    Ok(text)
}

/// How a key is written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// `key = value`.
    Value,
    /// `[key]`.
    Table,
    /// `[key.NAME]`: tables under names that the operator chooses.
    Named,
    /// `[[key]]`.
    List,
}

impl Schemas<'_> {
    fn kind(&self, schema: &Value) -> Kind {
        let has_keys =
            |schema: &Value| self.resolved(schema).get("properties").is_some_and(Value::is_object);
        let of = |name: &str| schema.get(name).is_some_and(has_keys);
        match () {
            () if has_keys(self.meant(schema)) => Kind::Table,
            () if of("additionalProperties") => Kind::Named,
            () if of("items") => Kind::List,
            () => Kind::Value,
        }
    }

    /// The schema of a value that is there: of `anyOf: [X, null]` it is X.
    fn meant<'b>(&'b self, schema: &'b Value) -> &'b Value {
        let alternatives = schema.get("anyOf").and_then(Value::as_array);
        let first = alternatives.and_then(|all| all.first());
        self.resolved(first.unwrap_or(schema))
    }

    /// A section with its keys, and the sections in it after them. `mark` is what stands before its head.
    fn section(
        &self,
        text: &mut String,
        path: &str,
        schema: &Value,
        mark: &str,
    ) -> anyhow::Result<()> {
        describe(text, schema);
        let kind = self.kind(schema);
        let (head, path) = match kind {
            Kind::Table => (format!("[{path}]"), path.to_owned()),
            Kind::Named => (format!("[{path}.{NAME}]"), format!("{path}.{NAME}")),
            Kind::List => (format!("[[{path}]]"), path.to_owned()),
            // A table whose every key the operator chooses.
            Kind::Value => (format!("[{path}]"), path.to_owned()),
        };
        writeln!(text, "{mark}{head}")?;
        let of_keys = match kind {
            Kind::Value => return Ok(()),
            Kind::Table => schema,
            Kind::Named => schema.get("additionalProperties").unwrap_or(schema),
            Kind::List => schema.get("items").unwrap_or(schema),
        };
        let (keys, sections): (Vec<_>, Vec<_>) = properties(self.meant(of_keys))?
            .iter()
            .partition(|(_, schema)| self.kind(schema) == Kind::Value);
        keys.into_iter().try_for_each(|(key, schema)| self.key(text, key, schema))?;
        sections
            .into_iter()
            .try_for_each(|(key, schema)| self.section(text, &format!("{path}.{key}"), schema, "#"))
    }

    fn key(&self, text: &mut String, key: &str, schema: &Value) -> anyhow::Result<()> {
        describe(text, schema);
        let limit = |name: &str| schema.get(name).and_then(Value::as_u64);
        if let (Some(least), Some(most)) = (limit("minimum"), limit("maximum")) {
            writeln!(text, "# From {least} to {most}.")?;
        }
        for choice in choices(self.meant(schema)) {
            let meaning = choice.get("description").and_then(Value::as_str).unwrap_or_default();
            let value = choice.get("const").unwrap_or(&Value::Null);
            writeln!(text, "#   {value}: {}", meaning.replace('\n', " "))?;
        }
        let value = match schema.get("default") {
            Some(Value::Null) => {
                writeln!(text, "# Not set by default; the value here only shows its type.")?;
                self.placeholder(schema)
            }
            Some(default) => default.clone(),
            None => {
                writeln!(text, "# Required.")?;
                self.placeholder(schema)
            }
        };
        writeln!(text, "#{key} = {}", toml::Value::try_from(value)?)?;
        Ok(())
    }

    /// A value of the right type, where there is no default.
    fn placeholder(&self, schema: &Value) -> Value {
        let meant = self.meant(schema);
        if let Some(first) = choices(meant).first().and_then(|choice| choice.get("const")) {
            return first.clone();
        }
        let types = meant.get("type").cloned().unwrap_or_default();
        let name = types.get(0).unwrap_or(&types).as_str().unwrap_or_default();
        match name {
            "array" => Value::Array(Vec::new()),
            "boolean" => Value::Bool(false),
            "integer" => meant.get("minimum").cloned().unwrap_or_else(|| 0.into()),
            "object" => Value::Object(Map::new()),
            _ => Value::String(String::new()),
        }
    }
}

fn describe(text: &mut String, schema: &Value) {
    text.push('\n');
    let description = schema.get("description").and_then(Value::as_str).unwrap_or_default();
    for line in description.lines() {
        text.push_str(format!("# {line}").trim_end());
        text.push('\n');
    }
}

/// The values that a key can have, where they are listed.
fn choices(schema: &Value) -> &[Value] {
    schema.get("oneOf").and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn properties(schema: &Value) -> anyhow::Result<&Map<String, Value>> {
    schema.get("properties").and_then(Value::as_object).context("a section without keys")
}
