//! The arguments that a policy reads, found once in Cedar's JSON form of the policy.

use std::collections::BTreeSet;

use cedar_policy::Policy;
use serde_json::Value;
use stepgate_core::facts::FactNeeds;

/// The arguments that a policy reads, as paths below `context.args`. The empty path means all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reads(BTreeSet<Vec<String>>);

impl Reads {
    /// The arguments that a policy reads. If they cannot be determined, all arguments count as read.
    pub(crate) fn of(policy: &Policy) -> Self {
        let Ok(json) = policy.to_json() else { return Self(BTreeSet::from([Vec::new()])) };
        Self::of_json(&json)
    }

    /// The arguments that a part of a policy reads, in Cedar's JSON form.
    pub(crate) fn of_json(part: &Value) -> Self {
        let mut reads = Self::default();
        reads.walk(part);
        reads
    }

    pub(crate) fn paths(&self) -> impl Iterator<Item = &[String]> {
        self.0.iter().map(Vec::as_slice)
    }

    /// Whether it reads this place, an enclosing place or an inner one.
    pub(crate) fn touches(&self, path: &[String]) -> bool {
        self.paths().any(|read| read.iter().zip(path).all(|(read, name)| read == name))
    }

    /// The facts that a policy reads.
    pub(crate) fn facts_of(policy: &Policy) -> FactNeeds {
        let all = FactNeeds { origins: true, opened: true, steps: true };
        policy.to_json().map_or(all, |json| facts_in(&json))
    }

    /// Whether a policy asks what the session has taken in.
    pub(crate) fn labels_of(policy: &Policy) -> bool {
        policy.to_json().map_or(true, |json| has_labels(&json))
    }

    fn walk(&mut self, part: &Value) {
        if let Some(names) = context_path(part) {
            let path = match names.as_slice() {
                ["args", path @ ..] => path,
                // The whole context has all arguments in it.
                [] => &[],
                [_, ..] => return,
            };
            self.0.insert(path.iter().map(|name| (*name).to_owned()).collect());
            return;
        }
        parts_of(part).into_iter().for_each(|part| self.walk(part));
    }
}

fn has_labels(part: &Value) -> bool {
    if let Some(path) = context_path(part) {
        return matches!(path.as_slice(), [] | ["session"] | ["session", "labels", ..]);
    }
    parts_of(part).into_iter().any(has_labels)
}

fn facts_in(part: &Value) -> FactNeeds {
    if let Some(path) = context_path(part) {
        let whole = path.is_empty() || path == ["session"];
        return FactNeeds {
            origins: path.is_empty() || matches!(path.first(), Some(&("targets" | "addresses"))),
            opened: whole || path.starts_with(&["session", "opened"]),
            steps: whole || path.starts_with(&["session", "steps"]),
        };
    }
    parts_of(part).into_iter().map(facts_in).fold(FactNeeds::default(), FactNeeds::or)
}

/// What stands directly in a part.
pub(crate) fn parts_of(part: &Value) -> Vec<&Value> {
    match part {
        Value::Array(parts) => parts.iter().collect(),
        Value::Object(members) => members.values().collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Vec::new(),
    }
}

/// The operator or function of a part, and what it is applied to.
pub(crate) fn application(part: &Value) -> Option<(&str, &Value)> {
    let members = part.as_object().filter(|members| members.len() == 1)?;
    members.iter().next().map(|(operator, operands)| (operator.as_str(), operands))
}

/// The attributes of `context.a.b` and of `context.a has b`; none for any other part.
pub(crate) fn context_path(part: &Value) -> Option<Vec<&str>> {
    let (operator, operand) = application(part)?;
    match operator {
        "Var" => (operand == "context").then(Vec::new),
        "." | "has" => {
            let mut path = context_path(operand.get("left")?)?;
            match operand.get("attr")? {
                Value::String(name) => path.push(name),
                // `has a.b`
                Value::Array(names) => {
                    path.extend(names.iter().map(Value::as_str).collect::<Option<Vec<_>>>()?);
                }
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => return None,
            }
            Some(path)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests;
