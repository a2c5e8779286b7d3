//! Detectors: patterns over what a tool returned. One that finds something adds its label to the session, and none takes a
//! label away.

mod checksums;
mod patterns;

use std::collections::{BTreeMap, BTreeSet};

use regex::{RegexSet, RegexSetBuilder};

use crate::json::{Value, strict};
use crate::label::Label;
use crate::tool::ToolName;

use patterns::Pattern;

/// Longest text of one result that is searched, in bytes. A longer one counts as found: its rest is not searched.
const TEXT_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Largest compiled pattern of an operator, in bytes.
const PATTERN_SIZE_MAX: usize = 1024 * 1024;
/// Deepest text in a text that is read as JSON.
const NESTED_MAX: usize = 2;

/// The detectors, by name.
#[derive(Clone, Debug, Default)]
pub struct Detectors(BTreeMap<String, Detector>);

/// One detector.
#[derive(Clone, Debug)]
pub struct Detector {
    /// Everything that it looks for, found in one pass.
    first: RegexSet,
    /// For each pattern of that, what a match must be besides; nothing for an operator's own.
    then: Vec<Option<&'static Pattern>>,
    /// The label that it adds.
    adds: Label,
    scope: Scope,
}

/// Whose results a detector looks at. Everyone's where both are empty; `core` is the sandbox.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scope {
    /// Servers.
    pub servers: BTreeSet<String>,
    /// Tools.
    pub tools: BTreeSet<ToolName>,
}

/// Why there is no such detector.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidDetector {
    /// There is no built-in pattern of this name.
    #[error("there is no kind `{0}`; the kinds are {kinds}", kinds = kinds().collect::<Vec<_>>().join(", "))]
    Kind(String),
    /// The pattern is no regular expression, or too large.
    #[error("the pattern cannot be used: {0}")]
    Pattern(String),
}

/// The names of the built-in patterns, and of their groups.
pub fn kinds() -> impl Iterator<Item = &'static str> {
    let groups = [patterns::SECRETS, patterns::PERSONAL];
    groups.into_iter().chain(patterns::ALL.iter().map(|pattern| pattern.name))
}

impl Detector {
    /// One that looks for built-in patterns: those of a group, or one of them.
    pub fn built_in(kind: &str, adds: Label, scope: Scope) -> Result<Self, InvalidDetector> {
        let is_meant = |pattern: &&Pattern| pattern.name == kind || pattern.group == kind;
        let then: Vec<&'static Pattern> = patterns::ALL.iter().filter(is_meant).collect();
        let first = RegexSet::new(then.iter().map(|pattern| pattern.ascii()));
        let first = first.map_err(|error| InvalidDetector::Pattern(error.to_string()))?;
        match then.is_empty() {
            true => Err(InvalidDetector::Kind(kind.to_owned())),
            false => Ok(Self { first, then: then.into_iter().map(Some).collect(), adds, scope }),
        }
    }

    /// One that looks for a pattern of the operator's own.
    pub fn own(pattern: &str, adds: Label, scope: Scope) -> Result<Self, InvalidDetector> {
        let compiled = RegexSetBuilder::new([pattern]).size_limit(PATTERN_SIZE_MAX).build();
        let first = compiled.map_err(|error| InvalidDetector::Pattern(error.to_string()))?;
        Ok(Self { first, then: vec![None], adds, scope })
    }

    /// The label that it adds.
    pub fn adds(&self) -> &Label {
        &self.adds
    }

    fn finds(&self, text: &str) -> bool {
        let found = self.first.matches(text).into_iter();
        let mut found = found.filter_map(|place| self.then.get(place));
        found.any(|pattern| pattern.is_none_or(|pattern| pattern.finds(text)))
    }
}

impl Scope {
    fn covers(&self, server: &str, action: &str) -> bool {
        (self.servers.is_empty() && self.tools.is_empty())
            || self.servers.contains(server)
            || self.tools.iter().any(|tool| tool.as_str() == action)
    }
}

impl Detectors {
    /// These detectors.
    pub fn new(detectors: BTreeMap<String, Detector>) -> Self {
        Self(detectors)
    }

    /// The labels that they add.
    pub fn labels(&self) -> impl Iterator<Item = &Label> {
        self.0.values().map(|detector| &detector.adds)
    }

    /// Whether any looks at the results of this action.
    pub(crate) fn look_at(&self, server: &str, action: &str) -> bool {
        self.0.values().any(|detector| detector.scope.covers(server, action))
    }

    /// The labels that a result of this action brings in, each with the detector that found something. What it found is
    /// kept nowhere.
    pub(crate) fn find(&self, server: &str, action: &str, result: &str) -> BTreeMap<Label, String> {
        let texts = texts_of(result);
        let mut found = BTreeMap::new();
        for (name, detector) in &self.0 {
            let finds = |texts: &Vec<String>| texts.iter().any(|text| detector.finds(text));
            if detector.scope.covers(server, action) && texts.as_ref().is_none_or(finds) {
                found.entry(detector.adds.clone()).or_insert_with(|| name.clone());
            }
        }
        found
    }
}

/// Every text and number in a result, as a person reads it: escapes are undone, also in a text that is JSON itself. None
/// where there is too much to be searched.
fn texts_of(result: &str) -> Option<Vec<String>> {
    if result.len() > TEXT_BYTES_MAX {
        return None;
    }
    let mut texts = Vec::new();
    match strict::stored(result) {
        Ok(value) => add_texts(&value, NESTED_MAX, &mut texts),
        Err(_) => texts.push(result.to_owned()),
    }
    let bytes: usize = texts.iter().map(String::len).sum();
    (bytes <= TEXT_BYTES_MAX).then_some(texts)
}

fn add_texts(value: &Value, nested: usize, texts: &mut Vec<String>) {
    match value {
        Value::Null | Value::Bool(_) => {}
        Value::Number(number) => texts.push(number.to_string()),
        Value::String(text) => {
            let inside = Some(text).filter(|text| nested > 0 && text.starts_with(['{', '[', '"']));
            if let Some(inside) = inside.and_then(|text| strict::stored(text).ok()) {
                add_texts(&inside, nested - 1, texts);
            }
            texts.push(text.clone());
        }
        Value::Array(items) => items.iter().for_each(|item| add_texts(item, nested, texts)),
        Value::Object(members) => members.iter().for_each(|(name, item)| {
            texts.push(name.clone());
            add_texts(item, nested, texts);
        }),
    }
}

#[cfg(test)]
mod tests;
