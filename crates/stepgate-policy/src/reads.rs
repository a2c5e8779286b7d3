//! The arguments that a policy reads, found once in Cedar's JSON form of the policy.

use std::collections::BTreeSet;

use cedar_policy::Policy;
use serde_json::Value;

/// The arguments that a policy reads, as paths below `context.args`. The empty path means all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reads(BTreeSet<Vec<String>>);

impl Reads {
    /// The arguments that a policy reads. If they cannot be determined, all arguments count as read.
    pub(crate) fn of(policy: &Policy) -> Self {
        let Ok(json) = policy.to_json() else { return Self(BTreeSet::from([Vec::new()])) };
        let mut reads = Self::default();
        reads.walk(&json);
        reads
    }

    pub(crate) fn paths(&self) -> impl Iterator<Item = &[String]> {
        self.0.iter().map(Vec::as_slice)
    }

    /// Whether it reads this place, an enclosing place or an inner one.
    pub(crate) fn touches(&self, path: &[String]) -> bool {
        self.paths().any(|read| read.iter().zip(path).all(|(read, name)| read == name))
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
        match part {
            Value::Array(parts) => parts.iter().for_each(|part| self.walk(part)),
            Value::Object(members) => members.values().for_each(|part| self.walk(part)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
}

/// The attributes of `context.a.b` and of `context.a has b`; none for any other part.
fn context_path(part: &Value) -> Option<Vec<&str>> {
    let Value::Object(members) = part else { return None };
    let (operator, operand) = members.iter().next().filter(|_| members.len() == 1)?;
    match operator.as_str() {
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
