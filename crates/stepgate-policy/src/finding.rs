//! Problems in a directory of policies, with the file, the line and the remedy.

use std::fmt;

use miette::Diagnostic;
use serde::Serialize;
use stepgate_core::spelled;

spelled! {
    /// The severity of a finding.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
    #[serde(rename_all = "snake_case")]
    pub enum Severity {
        /// The set cannot be loaded.
        Error = "error",
        /// It can be loaded, but probably does not do what was meant.
        Warning = "warning",
        /// For information.
        Note = "note",
    }
}

/// One problem in a directory of policies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Its severity.
    pub severity: Severity,
    /// The path of the file or directory, for the operator.
    pub file: String,
    /// The line, from 1, if it is about a line.
    pub line: Option<usize>,
    /// The column in characters, from 1, if it is about a place in a line.
    pub column: Option<usize>,
    /// What is wrong, and the remedy.
    pub message: String,
}

impl Finding {
    pub(crate) fn of_file(severity: Severity, file: &str, message: impl Into<String>) -> Self {
        Self { severity, file: file.to_owned(), line: None, column: None, message: message.into() }
    }

    pub(crate) fn at(
        severity: Severity,
        file: &str,
        place: Option<FilePosition>,
        message: impl Into<String>,
    ) -> Self {
        Self {
            line: place.map(|place| place.line),
            column: place.map(|place| place.column),
            ..Self::of_file(severity, file, message)
        }
    }

    pub(crate) fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }
}

impl fmt::Display for Finding {
    /// `policies/10-core.cedar:12:5: unknown annotation …`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        if let Some(column) = self.column {
            write!(f, ":{column}")?;
        }
        write!(f, ": {}", self.message)
    }
}

/// Why a directory of policies was not loaded: every error in it, in the order of files and lines.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", lines(.findings))]
pub struct LoadError {
    /// The errors, at least one.
    pub findings: Vec<Finding>,
}

fn lines(findings: &[Finding]) -> String {
    findings.iter().map(Finding::to_string).collect::<Vec<_>>().join("\n")
}

/// A place in a file, counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FilePosition {
    pub(crate) line: usize,
    pub(crate) column: usize,
}

impl FilePosition {
    /// The place of a byte in a text; for an offset beyond the end, the end of the text.
    pub(crate) fn of_offset(text: &str, offset: usize) -> Self {
        let before = text.get(..text.floor_char_boundary(offset)).unwrap_or_default();
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        Self {
            line: before.matches('\n').count() + 1,
            column: before.get(line_start..).unwrap_or_default().chars().count() + 1,
        }
    }
}

/// The offset of a problem that Cedar reports.
pub(crate) fn offset_of(diagnostic: &dyn Diagnostic) -> Option<usize> {
    diagnostic.labels()?.map(|label| label.offset()).next()
}

/// Cedar's message, in one line.
pub(crate) fn message_of(diagnostic: &dyn Diagnostic) -> String {
    let mut message = diagnostic.to_string();
    let labels = diagnostic.labels().into_iter().flatten();
    for text in labels.filter_map(|label| label.label().map(str::to_owned)) {
        message.push_str(": ");
        message.push_str(&text);
    }
    if let Some(help) = diagnostic.help() {
        message.push_str("; ");
        message.push_str(&help.to_string());
    }
    one_line(&message)
}

/// A text of several lines as one line.
pub(crate) fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests;
