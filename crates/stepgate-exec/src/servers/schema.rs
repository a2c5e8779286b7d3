//! JSON Schemas of tools: closed where they are silent, and never fetched from anywhere.

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

/// Largest pattern of a schema, compiled. A class such as `\w` is large, and repeated it is that much larger.
const PATTERN_BYTES_MAX: usize = 10 * 1024 * 1024;
/// How often a pattern that looks around may go back on one text. The text breaks it where that is not enough.
const BACKTRACKS_MAX: usize = 10_000;

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

/// Why a schema cannot be used: it is none, says what cannot be held to, or costs more than is fair.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct SchemaError(pub(crate) String);

impl Input {
    pub(crate) fn compile(schema: &Value) -> Result<Self, SchemaError> {
        let (schema, draft) = dialect::read(schema)?;
        let outline = Outline::of(&schema, draft)?;
        // The schema itself must be one, too: what is added could hide what is wrong.
        validator(&schema, draft)?;
        let closed = close::closed(&schema, &outline, draft)?;
        let judge = Judge::new(&closed, draft, &outline)?;
        Ok(Self { judge, arguments: Arguments::of(&outline)? })
    }

    /// The names of the arguments.
    pub(crate) fn arguments(&self) -> &Arguments {
        &self.arguments
    }
}

impl Output {
    pub(crate) fn compile(schema: &Value) -> Result<Self, SchemaError> {
        let (schema, draft) = dialect::read(schema)?;
        let outline = Outline::of(&schema, draft)?;
        Ok(Self(Judge::new(&schema, draft, &outline)?))
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
    // What closing a schema adds where it names nothing, or is put together from others.
    if let ValidationErrorKind::FalseSchema | ValidationErrorKind::PropertyNames { .. } = kind {
        return InvalidArgs::new(place, "unknown argument");
    }
    let rule: String = error.masked().to_string().chars().take(RULE_CHARS_MAX).collect();
    InvalidArgs::new(place, rule)
}

/// What matches the patterns of a schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Engine {
    /// In time that grows with the text and no faster.
    Linear,
    /// By trying, for patterns that look around: in time that must be limited.
    Backtracking,
}

fn validator(schema: &Value, draft: Draft) -> Result<(Validator, Engine), SchemaError> {
    // Features that fetch are off, so a reference to anywhere else is an error here.
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

/// Where a schema is wrong, and how. It is the server's own text, so no secret.
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
