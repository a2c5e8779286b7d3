//! `policy check`: reports everything that can be found in a directory, without putting it in force.

use std::path::Path;

use serde::Serialize;
use stepgate_core::digest::Digest;

use crate::compile::{Source, compile};
use crate::finding::{Finding, Severity};
use crate::shape::ToolShape;

/// The result of checking a directory of policies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Checked {
    /// Errors, warnings and notes, in the order of files and lines.
    pub findings: Vec<Finding>,
    /// How many policies there are, if the set could be loaded.
    pub policies: usize,
    /// How many cases were run; none where the policies themselves have errors.
    pub cases: usize,
    /// Digest of the set, if it could be loaded.
    pub policy_hash: Option<Digest>,
}

impl Checked {
    /// Whether the directory can be loaded.
    pub fn is_loadable(&self) -> bool {
        !self.findings.iter().any(|finding| finding.severity == Severity::Error)
    }
}

/// Checks a directory: syntax, annotations, schema, policies that can never apply, cases.
pub fn check(directory: &Path, tools: &[ToolShape]) -> Checked {
    let compiled = compile(Source::Directory(directory), tools);
    Checked {
        policies: compiled.set.as_ref().map_or(0, |set| set.policies().count()),
        policy_hash: compiled.set.as_ref().map(|set| set.digest()),
        findings: compiled.findings,
        cases: compiled.cases,
    }
}
