//! JSON Schemas of tools: closed where they are silent, and never fetched from anywhere.

mod close;

use jsonschema::error::ValidationErrorKind;
use jsonschema::{Draft, PatternOptions, ValidationError, Validator};
use stepgate_core::action::InvalidArgs;
use stepgate_core::json::{Map, Value};
use stepgate_core::tool::Contract;

/// What a tool asks of its arguments: its input schema, closed.
pub(crate) struct Input(Validator);

/// What a tool promises of its structured result: its output schema, as it is.
pub(crate) struct Output(Validator);

impl Input {
    pub(crate) fn compile(schema: &Value) -> Result<Self, String> {
        // The schema itself must be one, too: what is added could hide what is wrong.
        validator(schema)?;
        validator(&close::closed(schema)).map(Self)
    }
}

impl Output {
    pub(crate) fn compile(schema: &Value) -> Result<Self, String> {
        validator(schema).map(Self)
    }

    /// Holds, or where it does not.
    pub(crate) fn check(&self, structured: &Value) -> Result<(), String> {
        self.0.validate(structured).map_err(|error| broken(&error).to_string())
    }
}

impl Contract for Input {
    fn check(&self, args: &Map<String, Value>) -> Result<(), InvalidArgs> {
        // The validator wants a value; arguments are small.
        let args = Value::Object(args.clone());
        self.0.validate(&args).map_err(|error| broken(&error))
    }
}

/// A tool whose schema cannot be read: nothing keeps its contract.
pub(crate) struct Unreadable;

impl Contract for Unreadable {
    fn check(&self, _: &Map<String, Value>) -> Result<(), InvalidArgs> {
        Err(InvalidArgs::new("args", "the tool's schema cannot be read"))
    }
}

/// The place and the rule, without the values that broke it.
fn broken(error: &ValidationError<'_>) -> InvalidArgs {
    const RULE_CHARS_MAX: usize = 200;
    let path = error.instance_path().to_string();
    let place = path.trim_start_matches('/').replace('/', ".");
    let within =
        |name: &str| if place.is_empty() { name.to_owned() } else { format!("{place}.{name}") };
    let place = if place.is_empty() { "args" } else { &place };
    let kind = error.kind();
    if let ValidationErrorKind::AdditionalProperties { unexpected } = kind {
        let name = unexpected.first().map_or("", String::as_str);
        return InvalidArgs::new(&within(name), "unknown argument");
    }
    // What closing a schema adds where it names nothing, or is put together from others.
    if let ValidationErrorKind::FalseSchema | ValidationErrorKind::PropertyNames { .. } = kind {
        return InvalidArgs::new(place, "unknown argument");
    }
    let rule: String = error.masked().to_string().chars().take(RULE_CHARS_MAX).collect();
    InvalidArgs::new(place, rule)
}

fn validator(schema: &Value) -> Result<Validator, String> {
    // Features that fetch are off, so a reference to anywhere else is an error here.
    jsonschema::options()
        .with_draft(draft_of(schema)?)
        .with_pattern_options(PatternOptions::regex())
        .should_validate_formats(true)
        .build(schema)
        .map_err(|error| format!("its schema is not valid: {}", error.masked()))
}

/// The draft that a schema names; the newest where it names none, as MCP says.
fn draft_of(schema: &Value) -> Result<Draft, String> {
    let Some(named) = schema.get("$schema") else {
        return Ok(Draft::Draft202012);
    };
    let address = named.as_str().unwrap_or_default();
    match address.trim_end_matches('#') {
        "https://json-schema.org/draft/2020-12/schema" => Ok(Draft::Draft202012),
        "http://json-schema.org/draft-07/schema" | "https://json-schema.org/draft-07/schema" => {
            Ok(Draft::Draft7)
        }
        _ => {
            let named: String = address.chars().take(80).collect();
            Err(format!("its schema is of `{named}`, and only drafts 2020-12 and 07 are known"))
        }
    }
}

#[cfg(test)]
mod tests;
