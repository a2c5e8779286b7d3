//! What a step of the pipeline answers: success, or everything that is wrong.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Success means no errors; warnings never fail.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InvokeResult {
    /// What is wrong.
    pub errors: Vec<InvokeError>,
    /// What somebody should look at.
    #[serde(default)]
    pub warnings: Vec<InvokeError>,
}

impl InvokeResult {
    /// Nothing is wrong.
    pub fn success() -> Self {
        Self::default()
    }

    /// Whether the pipeline may go on.
    pub fn is_success(&self) -> bool {
        self.errors.is_empty()
    }

    /// This result, with what another one found.
    pub fn and(mut self, other: Self) -> Self {
        self.errors.extend(other.errors);
        self.warnings.extend(other.warnings);
        self
    }
}

impl From<InvokeError> for InvokeResult {
    fn from(error: InvokeError) -> Self {
        Self { errors: vec![error], warnings: Vec::new() }
    }
}

/// One thing that is wrong: a code to branch on, a message for people, details for both.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InvokeError {
    /// The rule's id, or the code of what went wrong.
    pub code: String,
    /// What is wrong, in a sentence.
    pub message: String,
    /// What it is about: the field, or the tool's id, name and reason.
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

    /// A detail.
    pub fn detail(&self, name: &str) -> Option<&str> {
        self.details.get(name).map(String::as_str)
    }
}
