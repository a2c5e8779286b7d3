//! The cost of validating a value, computed before the validation.
//!
//! If a schema refers to itself twice for an inner value, its work doubles with every level of the value,
//! and the value comes from outside. So the visits are counted first, up to a limit; a value beyond the
//! limit is refused without validation.

use std::collections::BTreeMap;

use stepgate_core::json::Value;

use super::Engine;
use super::outline::Outline;

/// Limit of the visits, each of one part of the schema to one part of the value.
pub(super) const VISITS_MAX: usize = 1_000_000;
/// Depth limit of nested visits.
pub(super) const DEPTH_MAX: usize = 400;

/// The cost of matching a pattern with look-around against up to `BACKTRACKING_BYTES` bytes of text. The
/// engine can backtrack at every byte, and read all of them each time.
pub(super) const BACKTRACKING_VISITS: usize = 20_000;
pub(super) const BACKTRACKING_BYTES: usize = 256;

/// The parts of a schema's outline that determine the cost.
pub(super) struct Effort(Vec<Step>);

struct Step {
    same: Vec<usize>,
    named: BTreeMap<String, usize>,
    inner: Vec<usize>,
    name_rule: Option<usize>,
    looks: usize,
    /// Patterns with backtracking for texts, and for the names of members.
    text_patterns: usize,
    name_patterns: usize,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooMuch;

impl Effort {
    pub(super) fn of(outline: &Outline<'_>, engine: Engine) -> Self {
        let costly = |count: usize| match engine {
            Engine::Linear => 0,
            Engine::Backtracking => count,
        };
        let steps = outline.places.iter().map(|place| Step {
            same: place.same.clone(),
            named: place.named.iter().map(|(name, at)| ((*name).to_owned(), *at)).collect(),
            inner: place.inner.clone(),
            name_rule: place.name_rule,
            looks: place.looks(),
            text_patterns: costly(usize::from(place.schema.get("pattern").is_some())),
            // Each pattern occurs a second time in the rule that closes the schema.
            name_patterns: costly(2 * place.patterned_names()),
        });
        Self(steps.collect())
    }

    /// Whether a value can be validated within the limit.
    pub(super) fn check(&self, value: &Value) -> Result<(), TooMuch> {
        let mut visits_left = VISITS_MAX;
        self.visit(0, value, 0, &mut visits_left)
    }

    fn visit(
        &self,
        at: usize,
        value: &Value,
        depth: usize,
        visits_left: &mut usize,
    ) -> Result<(), TooMuch> {
        if depth > DEPTH_MAX {
            return Err(TooMuch);
        }
        *visits_left = visits_left.checked_sub(1).ok_or(TooMuch)?;
        let Some(step) = self.0.get(at) else { return Ok(()) };
        match value {
            Value::String(text) => try_patterns(step.text_patterns, text, visits_left)?,
            Value::Object(members) => {
                for name in members.keys() {
                    try_patterns(step.name_patterns, name, visits_left)?;
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => {}
        }
        for _ in 0..step.looks {
            for part in &step.same {
                self.visit(*part, value, depth + 1, visits_left)?;
            }
            match value {
                Value::Array(items) => {
                    for item in items {
                        self.visit_inner(step, None, item, depth, visits_left)?;
                    }
                }
                Value::Object(members) => {
                    for (name, member) in members {
                        self.visit_inner(step, Some(name), member, depth, visits_left)?;
                    }
                }
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
            }
        }
        Ok(())
    }

    fn visit_inner(
        &self,
        step: &Step,
        name: Option<&String>,
        value: &Value,
        depth: usize,
        visits_left: &mut usize,
    ) -> Result<(), TooMuch> {
        let named = name.and_then(|name| step.named.get(name));
        for part in named.into_iter().chain(&step.inner) {
            self.visit(*part, value, depth + 1, visits_left)?;
        }
        match (name, step.name_rule) {
            (Some(name), Some(rule)) => {
                self.visit(rule, &Value::String(name.clone()), depth + 1, visits_left)
            }
            (Some(_), None) | (None, _) => Ok(()),
        }
    }
}

/// Charges for matching a text with backtracking patterns.
fn try_patterns(patterns: usize, text: &str, visits_left: &mut usize) -> Result<(), TooMuch> {
    let pieces = text.len() / BACKTRACKING_BYTES + 1;
    let cost = patterns.saturating_mul(pieces).saturating_mul(BACKTRACKING_VISITS);
    *visits_left = visits_left.checked_sub(cost).ok_or(TooMuch)?;
    Ok(())
}
