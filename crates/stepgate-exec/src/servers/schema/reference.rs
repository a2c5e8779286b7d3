//! References within a schema: by pointer, by anchor, or by its own address. No other reference can be
//! followed, and a schema with one is refused: the names in its target would be unknown.

use std::collections::HashMap;

use jsonschema::Draft;
use stepgate_core::json::Value;

use super::SchemaError;
use super::dialect::draft_of;
use super::outline::short;

pub(super) struct Anchors {
    draft: Draft,
    /// The schema's own address (`$id`).
    address: Option<String>,
    pointers: HashMap<String, String>,
    /// The address of a part that has its own `$id`: references inside it would resolve against that
    /// address.
    moved: Option<String>,
}

impl Anchors {
    pub(super) fn of(root: &Value, draft: Draft) -> Self {
        let address = root.get("$id").and_then(Value::as_str);
        let address = address.map(|address| address.trim_end_matches('#').to_owned());
        Self { draft, address, pointers: HashMap::new(), moved: None }
    }

    pub(super) fn read(&mut self, pointer: &str, schema: &Value) -> Result<(), SchemaError> {
        if schema.get("$schema").is_some() && draft_of(schema)? != self.draft {
            let why = "a part of its schema is of another draft than the whole";
            return Err(SchemaError(why.to_owned()));
        }
        let text = |keyword: &str| schema.get(keyword).and_then(Value::as_str);
        let id = text("$id").filter(|_| !pointer.is_empty());
        let mut names = Vec::new();
        if self.draft == Draft::Draft7 {
            match id.map(|id| (id, id.strip_prefix('#'))) {
                Some((_, Some(name))) => names.push(name),
                Some((id, None)) => self.moved = Some(id.to_owned()),
                None => {}
            }
        } else {
            self.moved = id.map(str::to_owned).or(self.moved.take());
            names.extend(text("$anchor"));
            names.extend(text("$dynamicAnchor").filter(|name| Some(*name) != text("$anchor")));
        }
        for name in names {
            if self.pointers.insert(name.to_owned(), pointer.to_owned()).is_some() {
                let name = short(name);
                let why = format!("two parts of its schema have the anchor `{name}`");
                return Err(SchemaError(why));
            }
        }
        Ok(())
    }

    pub(super) fn references<'a>(&self, schema: &'a Value) -> impl Iterator<Item = &'a str> {
        let keywords: &[&str] = if self.draft == Draft::Draft202012 {
            &["$ref", "$dynamicRef"]
        } else if self.draft == Draft::Draft201909 {
            &["$ref", "$recursiveRef"]
        } else {
            &["$ref"]
        };
        keywords.iter().filter_map(|keyword| schema.get(*keyword)?.as_str())
    }

    pub(super) fn resolve(&self, reference: &str) -> Result<String, SchemaError> {
        let refused = |why: &str| {
            let reference = short(reference);
            SchemaError(format!("its schema refers to `{reference}`, {why}"))
        };
        if self.moved.is_some() {
            return Err(refused("and a part of it has an address (`$id`) of its own"));
        }
        let (address, fragment) = reference.split_once('#').unwrap_or((reference, ""));
        if !address.is_empty() && self.address.as_deref() != Some(address) {
            return Err(refused("which is not in it"));
        }
        let Some(fragment) = decoded(fragment) else {
            return Err(refused("which is no reference"));
        };
        if fragment.is_empty() || fragment.starts_with('/') {
            return Ok(fragment);
        }
        self.pointers.get(&fragment).cloned().ok_or_else(|| refused("which is not in it"))
    }
}

pub(super) fn escaped(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

fn decoded(fragment: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(fragment.len());
    let mut rest = fragment.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
            let (high, low) = (digit(rest.next())?, digit(rest.next())?);
            bytes.push(u8::try_from(high * 16 + low).ok()?);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}
