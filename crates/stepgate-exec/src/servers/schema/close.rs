//! Closes a schema: properties that it does not name are refused, unless it allows more.
//!
//! Most published tools name their arguments and leave the rest open, because JSON Schema is open by
//! default; the gate is closed by default. A schema is closed at each place that holds a value (the
//! arguments, a property, an item), never inside a composition (`allOf`, `$ref` and the like): two halves of
//! one object, each closed on its own, would refuse each other's properties.

use std::collections::{BTreeSet, HashSet};

use jsonschema::Draft;
use serde_json::json;
use stepgate_core::json::{Map, Value};

use super::SchemaError;
use super::outline::Outline;

/// Limit of the names and parts that are visited to close a schema.
const WORK_MAX: usize = 1_000_000;

pub(super) fn closed(
    schema: &Value,
    outline: &Outline<'_>,
    draft: Draft,
) -> Result<Value, SchemaError> {
    let mut closed = schema.clone();
    let mut work_left = WORK_MAX;
    let mut places: Vec<usize> = (0..outline.places.len()).collect();
    // The deepest first: a place that is moved into another one takes its inner places with it.
    places.sort_by_key(|at| {
        let pointer = outline.places.get(*at).map_or("", |place| &place.pointer);
        std::cmp::Reverse(pointer.matches('/').count())
    });
    for at in places {
        let Some(place) = outline.places.get(at).filter(|place| place.is_closed) else { continue };
        let names = match names_of(outline, at, &mut work_left)? {
            Names::Open => continue,
            // A tool that names no argument takes none; an inner object may be anything.
            Names::Silent if place.pointer.is_empty() => Named::default(),
            Names::Silent => continue,
            Names::Only(names) => names,
        };
        if let Some(part) = closed.pointer_mut(&place.pointer) {
            close(part, &names, place.pointer.is_empty(), draft);
        }
    }
    Ok(closed)
}

/// The names of a tool's arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Arguments {
    /// The names in its schema.
    pub(crate) named: BTreeSet<String>,
    /// Whether other names are allowed.
    pub(crate) is_open: bool,
}

impl Arguments {
    /// The arguments of the whole schema.
    pub(super) fn of(outline: &Outline<'_>) -> Result<Self, SchemaError> {
        let mut work_left = WORK_MAX;
        let names = names_of(outline, 0, &mut work_left)?;
        let mut named = BTreeSet::new();
        let mut seen = HashSet::from([0]);
        let mut next = vec![0];
        while let Some(place) = next.pop().and_then(|at| outline.places.get(at)) {
            named.extend(place.named.keys().map(|name| (*name).to_owned()));
            next.extend(place.naming.iter().filter(|part| seen.insert(**part)));
        }
        let is_open = match names {
            Names::Open => true,
            Names::Silent => false,
            Names::Only(Named { patterns, .. }) => !patterns.is_empty(),
        };
        Ok(Self { named, is_open })
    }

    /// Whether a call can have an argument of this name. An open schema allows any name, but a name that
    /// looks like a path is a mistake.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.named.contains(name) || (self.is_open && !name.contains(['.', '/']))
    }
}

/// Which properties a schema lets an object have.
enum Names {
    /// It says nothing about properties.
    Silent,
    /// It names these.
    Only(Named),
    /// It allows other names.
    Open,
}

/// Properties by name, and by pattern.
#[derive(Default)]
struct Named {
    names: BTreeSet<String>,
    patterns: BTreeSet<String>,
}

/// The names from a place and from every other place that applies to the same value, each visited once.
fn names_of(outline: &Outline<'_>, at: usize, work_left: &mut usize) -> Result<Names, SchemaError> {
    let mut named: Option<Named> = None;
    let mut seen = HashSet::from([at]);
    let mut next = vec![at];
    while let Some(at) = next.pop() {
        let Some(place) = outline.places.get(at) else { continue };
        let mut cost = 1;
        match names_in(place.schema) {
            Names::Open => return Ok(Names::Open),
            Names::Silent => {}
            Names::Only(more) => {
                cost += more.names.len() + more.patterns.len();
                let named = named.get_or_insert_default();
                named.names.extend(more.names);
                named.patterns.extend(more.patterns);
            }
        }
        *work_left = work_left.checked_sub(cost).ok_or_else(|| {
            SchemaError(format!("its schema names its properties more than {WORK_MAX} times over"))
        })?;
        next.extend(place.naming.iter().filter(|part| seen.insert(**part)));
    }
    Ok(named.map_or(Names::Silent, Names::Only))
}

/// The names in a schema itself, without its parts.
fn names_in(schema: &Value) -> Names {
    let Value::Object(members) = schema else { return Names::Silent };
    let others: Vec<&Value> = ["additionalProperties", "unevaluatedProperties"]
        .iter()
        .filter_map(|keyword| members.get(*keyword))
        .collect();
    if others.iter().any(|others| !is_never(others)) {
        return Names::Open;
    }
    let keys = |keyword: &str| members.get(keyword).and_then(Value::as_object).map(Map::keys);
    let patterns: BTreeSet<String> =
        keys("patternProperties").into_iter().flatten().cloned().collect();
    match (keys("properties"), others.is_empty(), patterns.is_empty()) {
        (_, true, false) => Names::Open,
        (None, true, true) => Names::Silent,
        (names, _, _) => {
            Names::Only(Named { names: names.into_iter().flatten().cloned().collect(), patterns })
        }
    }
}

/// Whether a schema accepts no value.
fn is_never(schema: &Value) -> bool {
    match schema {
        Value::Bool(welcome) => !welcome,
        Value::Object(members) => match members.get("not") {
            Some(Value::Bool(all)) => *all,
            Some(Value::Object(rules)) => rules.is_empty(),
            Some(_) | None => false,
        },
        Value::Null | Value::Number(_) | Value::String(_) | Value::Array(_) => false,
    }
}

/// Adds the rule that no property has another name.
fn close(part: &mut Value, names: &Named, is_whole: bool, draft: Draft) {
    let Value::Object(members) = &mut *part else { return };
    let composes = ["allOf", "anyOf", "oneOf", "if", "dependentSchemas", "dependencies"];
    let refers = ["$ref", "$dynamicRef", "$recursiveRef"];
    if !composes.iter().chain(&refers).any(|keyword| members.contains_key(*keyword)) {
        members.insert("additionalProperties".to_owned(), Value::Bool(false));
        return;
    }
    // Draft 07 ignores every keyword beside a reference, so the reference is moved into a part of its own.
    // The root must stay where it is, because references point to its definitions.
    if draft == Draft::Draft7 && members.contains_key("$ref") {
        if is_whole {
            let reference = members.remove("$ref");
            add_part(members, json!({ "$ref": reference }));
        } else {
            *part = json!({ "allOf": [part.take()] });
        }
    }
    if let Value::Object(members) = part {
        add_part(members, rule_of(names));
    }
}

fn rule_of(Named { names, patterns }: &Named) -> Value {
    match (names.is_empty(), patterns.is_empty()) {
        (true, true) => json!({ "propertyNames": false }),
        (false, true) => json!({ "propertyNames": { "enum": names } }),
        (_, false) => {
            let patterns = patterns.iter().map(|pattern| json!({ "pattern": pattern }));
            let named = (!names.is_empty()).then(|| json!({ "enum": names }));
            let choices: Vec<Value> = named.into_iter().chain(patterns).collect();
            json!({ "propertyNames": { "anyOf": choices } })
        }
    }
}

fn add_part(members: &mut Map<String, Value>, part: Value) {
    match members.get_mut("allOf") {
        Some(Value::Array(parts)) => parts.push(part),
        Some(_) | None => {
            members.insert("allOf".to_owned(), json!([part]));
        }
    }
}
