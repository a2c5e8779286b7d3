//! The differences between two definitions of a tool, member by member.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::show;

/// A member that differs: the accepted and the present value.
struct Change<'a> {
    pointer: String,
    accepted: Option<&'a Value>,
    present: Option<&'a Value>,
}

/// The differences, as lines for people.
pub(super) fn lines(accepted: Option<&Value>, present: Option<&Value>) -> Vec<String> {
    let mut changes = Vec::new();
    compare(String::new(), accepted, present, &mut changes);
    changes.iter().flat_map(told).collect()
}

fn told(Change { pointer, accepted, present }: &Change<'_>) -> Vec<String> {
    let place = if pointer.is_empty() { "/" } else { pointer };
    let line = |sign, style, value: &Option<&Value>| {
        let value = (*value)?;
        let text = show::printable(&format!("{sign} {place}: {value}"));
        Some(format!("{style}{text}{style:#}"))
    };
    let lines = [line('-', show::ERROR, accepted), line('+', show::GOOD, present)];
    lines.into_iter().flatten().collect()
}

fn compare<'a>(
    pointer: String,
    accepted: Option<&'a Value>,
    present: Option<&'a Value>,
    changes: &mut Vec<Change<'a>>,
) {
    // A null member counts as missing.
    let there = |value: Option<&'a Value>| value.filter(|value| !value.is_null());
    match (there(accepted), there(present)) {
        (accepted, present) if accepted == present => {}
        (Some(Value::Object(before)), Some(Value::Object(now))) => {
            let names: BTreeSet<&String> = before.keys().chain(now.keys()).collect();
            for name in names {
                let member = |members: &'a Map<String, Value>| members.get(name);
                let escaped = name.replace('~', "~0").replace('/', "~1");
                compare(format!("{pointer}/{escaped}"), member(before), member(now), changes);
            }
        }
        (accepted, present) => changes.push(Change { pointer, accepted, present }),
    }
}

#[cfg(test)]
mod tests;
