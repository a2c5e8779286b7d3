//! The outline of a schema: its places, which place applies to which value, and the targets of references.
//!
//! A schema is like a program that the server writes: thirty small definitions that each refer twice to the
//! next cause a billion visits. So all analysis uses the outline, in which each place occurs once.
//! References that cannot be followed, and schemas that would cost too much, are refused here, before
//! anything is compiled.

use std::collections::{BTreeMap, HashMap};

use jsonschema::Draft;
use stepgate_core::json::{Map, Value};

use super::SchemaError;
use super::reference::{Anchors, escaped};

/// Most places of a schema.
pub(super) const PLACES_MAX: usize = 4096;
/// Limit of the visits to places that apply to the same value; a place counts each time it is reached.
pub(super) const SAME_VALUE_VISITS_MAX: usize = 16_384;
/// Longest chain of places that apply to the same value.
pub(super) const SAME_VALUE_DEPTH_MAX: usize = 64;

/// Keywords that evaluate the other places of a value again.
const LOOKS_AGAIN: [&str; 2] = ["unevaluatedProperties", "unevaluatedItems"];

/// The outline of a schema. The first place is the schema itself.
pub(super) struct Outline<'a> {
    pub(super) places: Vec<Subschema<'a>>,
    index: HashMap<String, usize>,
}

/// A place in a schema that is a schema.
pub(super) struct Subschema<'a> {
    pub(super) pointer: String,
    pub(super) schema: &'a Value,
    /// Whether it applies to a value of its own and is not part of a condition: inside `if` and `not`, a
    /// stricter schema would make the outer one laxer.
    pub(super) is_closed: bool,
    /// The places that apply to the same value.
    pub(super) same: Vec<usize>,
    /// Those of them that contribute names.
    pub(super) naming: Vec<usize>,
    /// The places of properties.
    pub(super) named: BTreeMap<&'a str, usize>,
    /// The places of all other inner values.
    pub(super) inner: Vec<usize>,
    /// The place that applies to the names of members.
    pub(super) name_rule: Option<usize>,
}

/// The relation of a place to the one that contains it.
#[derive(Clone, Copy)]
enum Role {
    /// It applies to the same value.
    Same,
    If,
    Not,
    /// It applies to the property of its name.
    Named,
    /// It applies to another inner value.
    Inner,
    NameRule,
    /// It only defines a schema for references.
    Kept,
}

/// How many schemas a keyword has.
#[derive(Clone, Copy)]
enum Form {
    One,
    List,
    Map,
}

/// A place that must be read, with its role.
struct Found<'a> {
    pointer: String,
    schema: &'a Value,
    role: Role,
    /// Its name, in a map of schemas.
    name: &'a str,
}

impl<'a> Outline<'a> {
    pub(super) fn of(root: &'a Value, draft: Draft) -> Result<Self, SchemaError> {
        let mut outline = Self { places: Vec::new(), index: HashMap::new() };
        outline.read(String::new(), root, true, false)?;
        let mut anchors = Anchors::of(root, draft);
        for place in &outline.places {
            anchors.read(&place.pointer, place.schema)?;
        }
        // A reference may point to a place where no schema is expected, and that place may refer further.
        let mut next = 0;
        while let Some(place) = outline.places.get(next) {
            for reference in anchors.references(place.schema) {
                let target = anchors.resolve(reference)?;
                let target = outline.target(root, reference, target)?;
                if let Some(place) = outline.places.get_mut(next) {
                    place.same.push(target);
                    place.naming.push(target);
                }
            }
            next += 1;
        }
        Visits::count(&outline)?;
        Ok(outline)
    }

    fn target(
        &mut self,
        root: &'a Value,
        reference: &str,
        pointer: String,
    ) -> Result<usize, SchemaError> {
        if let Some(known) = self.index.get(&pointer) {
            return Ok(*known);
        }
        let Some(schema) = root.pointer(&pointer) else {
            return Err(SchemaError(format!(
                "its schema refers to `{}`, which is not in it",
                short(reference)
            )));
        };
        self.read(pointer, schema, false, false)
    }

    fn read(
        &mut self,
        pointer: String,
        schema: &'a Value,
        stands: bool,
        asks: bool,
    ) -> Result<usize, SchemaError> {
        if let Some(known) = self.index.get(&pointer) {
            return Ok(*known);
        }
        if self.places.len() >= PLACES_MAX {
            return Err(SchemaError(format!("its schema has more than {PLACES_MAX} parts")));
        }
        let at = self.places.len();
        self.index.insert(pointer.clone(), at);
        let found = found_in(&pointer, schema);
        self.places.push(Subschema {
            pointer,
            schema,
            is_closed: stands && !asks,
            same: Vec::new(),
            naming: Vec::new(),
            named: BTreeMap::new(),
            inner: Vec::new(),
            name_rule: None,
        });
        for Found { pointer, schema, role, name } in found {
            let (stands, inner_asks) = match role {
                Role::Same | Role::Kept | Role::NameRule => (false, asks),
                Role::If | Role::Not => (false, true),
                Role::Named | Role::Inner => (true, asks),
            };
            let part = self.read(pointer, schema, stands, inner_asks)?;
            let Some(place) = self.places.get_mut(at) else { continue };
            match role {
                Role::Same | Role::If => {
                    place.same.push(part);
                    place.naming.push(part);
                }
                Role::Not => place.same.push(part),
                Role::Named => {
                    place.named.insert(name, part);
                }
                Role::Inner => place.inner.push(part),
                Role::NameRule => place.name_rule = Some(part),
                Role::Kept => {}
            }
        }
        Ok(at)
    }
}

impl Subschema<'_> {
    /// How many patterns the names of its members are matched against.
    pub(super) fn patterned_names(&self) -> usize {
        self.schema.get("patternProperties").and_then(Value::as_object).map_or(0, Map::len)
    }

    /// How many times the other places of its value are visited because of it.
    pub(super) fn looks(&self) -> usize {
        let again = LOOKS_AGAIN.iter().filter(|keyword| self.schema.get(*keyword).is_some());
        // Once to validate, and up to twice more to find the unevaluated members.
        1 + 2 * again.count()
    }
}

/// The schemas of a keyword; none for a keyword that has no schema.
fn schemas_of(keyword: &str, value: &Value) -> Option<(Form, Role)> {
    Some(match keyword {
        "if" => (Form::One, Role::If),
        "not" => (Form::One, Role::Not),
        "propertyNames" => (Form::One, Role::NameRule),
        "then" | "else" => (Form::One, Role::Same),
        "allOf" | "anyOf" | "oneOf" => (Form::List, Role::Same),
        "dependentSchemas" | "dependencies" => (Form::Map, Role::Same),
        "properties" => (Form::Map, Role::Named),
        "patternProperties" => (Form::Map, Role::Inner),
        "items" | "prefixItems" if value.is_array() => (Form::List, Role::Inner),
        "items"
        | "additionalProperties"
        | "additionalItems"
        | "contains"
        | "unevaluatedProperties"
        | "unevaluatedItems" => (Form::One, Role::Inner),
        "$defs" | "definitions" => (Form::Map, Role::Kept),
        _ => return None,
    })
}

/// The schemas directly in a schema.
fn found_in<'a>(pointer: &str, schema: &'a Value) -> Vec<Found<'a>> {
    let mut found = Vec::new();
    for (keyword, value) in schema.as_object().into_iter().flatten() {
        let Some((form, role)) = schemas_of(keyword, value) else { continue };
        let pointer = format!("{pointer}/{}", escaped(keyword));
        let mut add = |pointer: String, schema: &'a Value, name: &'a str| {
            // A list is no schema: a dependency may also be a list of names.
            if !schema.is_array() {
                found.push(Found { pointer, schema, role, name });
            }
        };
        match (form, value) {
            (Form::One, schema) => add(pointer, schema, ""),
            (Form::List, Value::Array(list)) => {
                for (index, schema) in list.iter().enumerate() {
                    add(format!("{pointer}/{index}"), schema, "");
                }
            }
            (Form::Map, Value::Object(map)) => {
                for (name, schema) in map {
                    add(format!("{pointer}/{}", escaped(name)), schema, name);
                }
            }
            (Form::List | Form::Map, _) => {}
        }
    }
    found
}

/// The same, for rewriting.
pub(super) fn parts_mut(members: &mut Map<String, Value>) -> Vec<&mut Value> {
    let mut parts = Vec::new();
    for (keyword, value) in members {
        let Some((form, _)) = schemas_of(keyword, value) else { continue };
        match (form, value) {
            (Form::One, schema) => parts.push(schema),
            (Form::List, Value::Array(list)) => parts.extend(list),
            (Form::Map, Value::Object(map)) => parts.extend(map.values_mut()),
            (Form::List | Form::Map, _) => {}
        }
    }
    parts
}

/// The number of visits that one value costs, at every place.
struct Visits<'a> {
    outline: &'a Outline<'a>,
    /// By place: not counted yet, being counted, or the number.
    counted: Vec<Option<Option<usize>>>,
}

impl<'a> Visits<'a> {
    fn count(outline: &'a Outline<'a>) -> Result<(), SchemaError> {
        let mut visits = Self { outline, counted: vec![None; outline.places.len()] };
        (0..outline.places.len()).try_for_each(|place| visits.of(place, 0).map(|_| ()))
    }

    fn of(&mut self, at: usize, depth: usize) -> Result<usize, SchemaError> {
        if depth > SAME_VALUE_DEPTH_MAX {
            return Err(SchemaError(format!(
                "its schema refers on and on: more than {SAME_VALUE_DEPTH_MAX} parts in a row judge \
                 the same value"
            )));
        }
        match self.counted.get(at) {
            Some(Some(Some(known))) => return Ok(*known),
            Some(Some(None)) => {
                let why = "its schema refers to itself for the same value, without end";
                return Err(SchemaError(why.to_owned()));
            }
            Some(None) | None => {}
        }
        let Some(place) = self.outline.places.get(at) else { return Ok(0) };
        self.note(at, None);
        let mut visits = 0_usize;
        for part in &place.same {
            visits = visits.saturating_add(self.of(*part, depth + 1)?);
        }
        let visits = visits.saturating_mul(place.looks()).saturating_add(1);
        if visits > SAME_VALUE_VISITS_MAX {
            return Err(SchemaError(format!(
                "its schema would judge one value more than {SAME_VALUE_VISITS_MAX} times"
            )));
        }
        self.note(at, Some(visits));
        Ok(visits)
    }

    fn note(&mut self, at: usize, visits: Option<usize>) {
        if let Some(counted) = self.counted.get_mut(at) {
            *counted = Some(visits);
        }
    }
}

/// A text of the schema, shortened for a message.
pub(super) fn short(text: &str) -> String {
    const CHARS_MAX: usize = 80;
    text.chars().take(CHARS_MAX).collect()
}
