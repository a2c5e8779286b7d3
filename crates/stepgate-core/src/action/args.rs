//! Reading an action's arguments: every field named, every type exact, nothing left over.

use crate::json::{Map, Value};
use crate::path::{InvalidPath, SandboxPath};

/// Which argument breaks which rule; it goes into the record.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {rule}")]
pub struct InvalidArgs {
    field: String,
    rule: String,
}

impl InvalidArgs {
    /// Longest name of a field that the record repeats.
    const FIELD_BYTES_MAX: usize = 64;

    /// This argument breaks this rule.
    pub fn new(field: &str, rule: impl ToString) -> Self {
        let field = field.chars().take(Self::FIELD_BYTES_MAX).collect();
        Self { field, rule: rule.to_string() }
    }
}

/// Refuses any argument that the contract does not name.
pub(super) fn only(args: &Map<String, Value>, names: &[&str]) -> Result<(), InvalidArgs> {
    match args.keys().find(|name| !names.contains(&name.as_str())) {
        Some(unknown) => Err(InvalidArgs::new(unknown, "unknown argument")),
        None => Ok(()),
    }
}

/// A required string.
pub(super) fn string<'a>(
    args: &'a Map<String, Value>,
    name: &'static str,
) -> Result<&'a str, InvalidArgs> {
    match args.get(name) {
        Some(Value::String(text)) => Ok(text),
        Some(_) => Err(InvalidArgs::new(name, "not a string")),
        None => Err(InvalidArgs::new(name, "missing")),
    }
}

/// A required string that has at least one character.
pub(super) fn content(
    args: &Map<String, Value>,
    name: &'static str,
) -> Result<String, InvalidArgs> {
    match string(args, name)? {
        "" => Err(InvalidArgs::new(name, "empty")),
        content => Ok(content.to_owned()),
    }
}

/// A required path.
pub(super) fn path(
    args: &Map<String, Value>,
    name: &'static str,
    parse: fn(&str) -> Result<SandboxPath, InvalidPath>,
) -> Result<SandboxPath, InvalidArgs> {
    parse(string(args, name)?).map_err(|invalid| InvalidArgs::new(name, invalid))
}
