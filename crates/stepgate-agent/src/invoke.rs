//! The result of a step of the pipeline: success, or all errors.

use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Success means no errors; warnings never fail.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct InvokeResult {
    /// The errors.
    pub errors: Vec<InvokeError>,
    /// Problems that do not fail the step.
    #[serde(default)]
    pub warnings: Vec<InvokeError>,
}

impl InvokeResult {
    /// Nothing is wrong.
    pub fn success() -> Self {
        Self::default()
    }

    /// Whether the pipeline may continue.
    pub fn is_success(&self) -> bool {
        self.errors.is_empty()
    }

    /// Adds the result of another check.
    pub fn include(&mut self, other: Self) {
        self.errors.extend(other.errors);
        self.warnings.extend(other.warnings);
    }
}

impl fmt::Display for InvokeResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let messages: Vec<&str> = self.errors.iter().map(|error| error.message.as_str()).collect();
        f.write_str(&messages.join("; "))
    }
}

impl From<InvokeError> for InvokeResult {
    fn from(error: InvokeError) -> Self {
        Self { errors: vec![error], warnings: Vec::new() }
    }
}

/// One error: a code for programs, a message for people, details for both.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct InvokeError {
    /// The rule's id, or the code of the error.
    pub code: String,
    /// What is wrong, in a sentence.
    pub message: String,
    /// The subject: the field, or the tool's id, name and reason.
    pub details: BTreeMap<String, String>,
}

impl InvokeError {
    /// An error without details.
    pub fn new(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self { code: code.into(), message: message.into(), details: BTreeMap::new() }
    }

    /// The same with one more detail.
    pub fn with(mut self, name: &str, value: impl ToString) -> Self {
        self.details.insert(name.to_owned(), value.to_string());
        self
    }
}
