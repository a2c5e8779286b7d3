//! JSON Schemas of tools: closed where they are silent, and never fetched from anywhere.

mod close;
mod effort;
mod outline;
mod reference;

use jsonschema::error::ValidationErrorKind;
use jsonschema::{Draft, PatternOptions, ValidationError, Validator};
use stepgate_core::action::InvalidArgs;
use stepgate_core::json::{Map, Value};
use stepgate_core::tool::Contract;

pub(crate) use close::Arguments;
use effort::{Effort, TooMuch};
use outline::Outline;

/// Largest pattern of a schema, compiled. A class such as `\w` is large, and repeated it is that much larger.
const PATTERN_BYTES_MAX: usize = 10 * 1024 * 1024;

/// What a tool asks of its arguments: its input schema, closed.
#[derive(Debug)]
pub(crate) struct Input {
    judge: Judge,
    arguments: Arguments,
}

/// What a tool promises of its structured result: its output schema, as it is.
#[derive(Debug)]
pub(crate) struct Output(Judge);

/// A schema that is compiled, and what it costs to ask it.
struct Judge {
    validator: Validator,
    effort: Effort,
}

/// Why a schema cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SchemaError {
    /// It is none, or says what cannot be held to.
    #[error("{0}")]
    Unusable(String),
    /// It may be one, at a price that nobody pays.
    #[error("{0}")]
    TooCostly(String),
}

impl Input {
    pub(crate) fn compile(schema: &Value) -> Result<Self, SchemaError> {
        let draft = draft_of(schema)?;
        let outline = Outline::of(schema, draft)?;
        // The schema itself must be one, too: what is added could hide what is wrong.
        validator(schema, draft)?;
        let closed = close::closed(schema, &outline, draft)?;
        let validator = validator(&closed, draft)?;
        let judge = Judge { validator, effort: Effort::of(&outline) };
        Ok(Self { judge, arguments: Arguments::of(&outline)? })
    }

    /// The names of the arguments.
    pub(crate) fn arguments(&self) -> &Arguments {
        &self.arguments
    }
}

impl Output {
    pub(crate) fn compile(schema: &Value) -> Result<Self, SchemaError> {
        let draft = draft_of(schema)?;
        let outline = Outline::of(schema, draft)?;
        let validator = validator(schema, draft)?;
        Ok(Self(Judge { validator, effort: Effort::of(&outline) }))
    }

    /// Holds, or where it does not.
    pub(crate) fn check(&self, structured: &Value) -> Result<(), String> {
        self.0.judge(structured).map_err(|broken| broken.to_string())
    }
}

impl Contract for Input {
    fn check(&self, args: &Map<String, Value>) -> Result<(), InvalidArgs> {
        // The validator wants a value; arguments are small.
        self.judge.judge(&Value::Object(args.clone()))
    }
}

impl Judge {
    fn judge(&self, value: &Value) -> Result<(), InvalidArgs> {
        self.effort.check(value).map_err(|TooMuch| {
            InvalidArgs::new("args", "would cost too much to check against the tool's schema")
        })?;
        self.validator.validate(value).map_err(|error| broken(&error))
    }
}

impl std::fmt::Debug for Judge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Judge").finish_non_exhaustive()
    }
}

/// A tool whose schema cannot be used, and why: nothing keeps its contract.
pub(crate) struct Unreadable(pub(crate) SchemaError);

impl Contract for Unreadable {
    fn check(&self, _: &Map<String, Value>) -> Result<(), InvalidArgs> {
        Err(InvalidArgs::new("args", format!("the tool cannot be used: {}", self.0)))
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

fn validator(schema: &Value, draft: Draft) -> Result<Validator, SchemaError> {
    // Features that fetch are off, so a reference to anywhere else is an error here.
    jsonschema::options()
        .with_draft(draft)
        .with_pattern_options(PatternOptions::regex().size_limit(PATTERN_BYTES_MAX))
        .should_validate_formats(true)
        .build(schema)
        .map_err(|error| {
            SchemaError::Unusable(format!("its schema is not valid: {}", error.masked()))
        })
}

/// The draft that a schema names; the newest where it names none, as MCP says.
fn draft_of(schema: &Value) -> Result<Draft, SchemaError> {
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
            let named = outline::short(address);
            Err(SchemaError::Unusable(format!(
                "its schema is of `{named}`, and only drafts 2020-12 and 07 are known"
            )))
        }
    }
}

#[cfg(test)]
mod tests;
