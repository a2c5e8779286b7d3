//! Which parts of a result the configuration names.

use std::fmt;
use std::str::FromStr;

use crate::json::Value;

/// A JSON Pointer (RFC 6901) in which `*` stands for every element of a list and every member of an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ResultPointer(Vec<Part>);

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Every,
    Named(String),
}

/// A text that is no pointer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a pointer into a result: write it like `/items/*/id`")]
pub struct InvalidPointer(String);

impl ResultPointer {
    /// The parts of a result that it names.
    pub(crate) fn parts_of<'a>(&self, result: &'a Value) -> Vec<&'a Value> {
        let mut found = vec![result];
        for part in &self.0 {
            found = found.into_iter().flat_map(|value| part.of(value)).collect();
        }
        found
    }
}

impl Part {
    fn of<'a>(&self, value: &'a Value) -> Vec<&'a Value> {
        match (self, value) {
            (Self::Every, Value::Array(items)) => items.iter().collect(),
            (Self::Every, Value::Object(members)) => members.values().collect(),
            (Self::Named(name), Value::Object(members)) => members.get(name).into_iter().collect(),
            (Self::Named(name), Value::Array(items)) => {
                name.parse().ok().and_then(|index: usize| items.get(index)).into_iter().collect()
            }
            (
                Self::Every | Self::Named(_),
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_),
            ) => Vec::new(),
        }
    }
}

/// The JSON Pointer to a place.
pub fn pointer_to<'a>(path: impl IntoIterator<Item = &'a str>) -> String {
    let escaped = path.into_iter().map(|name| name.replace('~', "~0").replace('/', "~1"));
    escaped.flat_map(|name| ["/".to_owned(), name]).collect()
}

/// The name in a part of a JSON Pointer.
pub(crate) fn unescaped(part: &str) -> String {
    part.replace("~1", "/").replace("~0", "~")
}

impl FromStr for ResultPointer {
    type Err = InvalidPointer;

    fn from_str(text: &str) -> Result<Self, InvalidPointer> {
        let Some(names) = text.strip_prefix('/') else {
            return match text {
                "" => Ok(Self(Vec::new())),
                _ => Err(InvalidPointer(text.to_owned())),
            };
        };
        let part = |name: &str| match name {
            "*" => Part::Every,
            _ => Part::Named(unescaped(name)),
        };
        Ok(Self(names.split('/').map(part).collect()))
    }
}

impl fmt::Display for ResultPointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|part| match part {
            Part::Every => f.write_str("/*"),
            Part::Named(name) => f.write_str(&pointer_to([name.as_str()])),
        })
    }
}

#[cfg(test)]
mod tests;
