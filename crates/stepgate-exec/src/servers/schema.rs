//! JSON Schemas of tools: closed unless they allow more, and never fetched from anywhere.

mod close;
mod dialect;
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

/// Size limit of a compiled pattern. A class such as `\w` is large, and a repetition multiplies it.
const PATTERN_BYTES_MAX: usize = 10 * 1024 * 1024;
/// Backtracking limit of a pattern with look-around, per text. A text that exceeds it does not match.
const BACKTRACKS_MAX: usize = 10_000;

/// The contract of a tool's arguments: its input schema, closed.
#[derive(Debug)]
pub(crate) struct Input {
    judge: Judge,
    pub(crate) arguments: Arguments,
}

/// The contract of a tool's structured result: its output schema, unchanged.
#[derive(Debug)]
pub(crate) struct Output(Judge);

/// A compiled schema, with the cost of a validation.
struct Judge {
    validator: Validator,
    effort: Effort,
}

/// Why a schema cannot be used: it is not a schema, cannot be enforced, or costs too much.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct SchemaError(pub(crate) String);

impl Input {
    pub(crate) fn compile(schema: &Value) -> Result<Self, SchemaError> {
        let (schema, draft) = dialect::read(schema)?;
        let outline = Outline::of(&schema, draft)?;
        // The original schema must be valid too: the added rules could hide an error.
        validator(&schema, draft)?;
        let closed = close::closed(&schema, &outline, draft)?;
        let judge = Judge::new(&closed, draft, &outline)?;
        Ok(Self { judge, arguments: Arguments::of(&outline)? })
    }
}

impl Output {
    pub(crate) fn compile(schema: &Value) -> Result<Self, SchemaError> {
        let (schema, draft) = dialect::read(schema)?;
        let outline = Outline::of(&schema, draft)?;
        Ok(Self(Judge::new(&schema, draft, &outline)?))
    }

    /// Succeeds, or says where the value breaks the schema.
    pub(crate) fn check(&self, structured: &Value) -> Result<(), String> {
        self.0.judge(structured).map_err(|broken| broken.to_string())
    }
}

impl Contract for Input {
    fn check(&self, args: &Map<String, Value>) -> Result<(), InvalidArgs> {
        // The validator needs a `Value`; arguments are small, so they are cloned.
        self.judge.judge(&Value::Object(args.clone()))
    }
}

impl Judge {
    fn new(schema: &Value, draft: Draft, outline: &Outline<'_>) -> Result<Self, SchemaError> {
        let (validator, engine) = validator(schema, draft)?;
        Ok(Self { validator, effort: Effort::of(outline, engine) })
    }

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
    // The rules that closing adds to a schema that names nothing, or is composed of others.
    if let ValidationErrorKind::FalseSchema | ValidationErrorKind::PropertyNames { .. } = kind {
        return InvalidArgs::new(place, "unknown argument");
    }
    let rule: String = error.masked().to_string().chars().take(RULE_CHARS_MAX).collect();
    InvalidArgs::new(place, rule)
}

/// The engine that matches the patterns of a schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Engine {
    /// Linear in the length of the text.
    Linear,
    /// By backtracking, for patterns with look-around: its time must be limited.
    Backtracking,
}

fn validator(schema: &Value, draft: Draft) -> Result<(Validator, Engine), SchemaError> {
    // Fetching is off, so a reference to another document is an error here.
    let options =
        || jsonschema::options().with_draft(draft).should_validate_formats(true).offline();
    let linear = PatternOptions::regex().size_limit(PATTERN_BYTES_MAX);
    if let Ok(validator) = options().with_pattern_options(linear).build(schema) {
        return Ok((validator, Engine::Linear));
    }
    let backtracking =
        PatternOptions::fancy_regex().size_limit(PATTERN_BYTES_MAX).backtrack_limit(BACKTRACKS_MAX);
    match options().with_pattern_options(backtracking).build(schema) {
        Ok(validator) => Ok((validator, Engine::Backtracking)),
        Err(error) => Err(SchemaError(refusal(&error))),
    }
}

/// Where and how a schema is invalid. It is the server's own text, so it contains no secret.
fn refusal(error: &ValidationError<'_>) -> String {
    const WORDS_CHARS_MAX: usize = 300;
    let place = match error.instance_path().to_string() {
        path if path.is_empty() => String::new(),
        path => format!(" at `{}`", outline::short(&path)),
    };
    let words: String = error.to_string().chars().take(WORDS_CHARS_MAX).collect();
    format!("its schema is not valid{place}: {words}")
}

#[cfg(test)]
mod tests;
