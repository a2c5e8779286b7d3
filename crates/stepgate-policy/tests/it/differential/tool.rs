//! Random tools: a schema, and calls that mostly keep it.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::chance::Chance;
use super::value::{Exact, draw_number, draw_scalar, draw_text};

pub(super) const NAMES: [&str; 6] = ["amount", "tags", "room", "opts", "flag", "extra"];
const INNER_NAMES: [&str; 3] = ["a", "b", "c"];

/// What an argument is.
#[derive(Clone, Debug)]
pub(super) enum Kind {
    Text,
    Integer {
        is_bounded: bool,
    },
    Number,
    Bool,
    Choice,
    Mixed,
    Anything,
    Nullable(Box<Kind>),
    List(Box<Kind>),
    Object(Members),
    /// Behind a `$ref`, or in an `allOf`.
    Aside(Box<Kind>, bool),
}

/// The members of an object.
#[derive(Clone, Debug)]
pub(super) struct Members {
    pub(super) named: BTreeMap<&'static str, Member>,
    is_open: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Member {
    pub(super) kind: Kind,
    pub(super) is_required: bool,
    pub(super) default: Option<Exact>,
}

pub(super) struct RandomTool {
    pub(super) name: &'static str,
    pub(super) members: Members,
    pub(super) redacted: Vec<String>,
}

impl RandomTool {
    pub(super) fn draw(chance: &mut Chance, name: &'static str) -> Self {
        let members = draw_members(chance, &NAMES, 2);
        let redacted = match chance.percent(8) {
            true => vec![(*chance.one_of(&NAMES)).to_owned()],
            false => vec![],
        };
        Self { name, members, redacted }
    }

    pub(super) fn schema(&self) -> Value {
        let mut definitions = Map::new();
        let mut schema = members_schema(&self.members, &mut definitions);
        schema["$defs"] = Value::Object(definitions);
        schema
    }

    pub(super) fn draw_args(&self, chance: &mut Chance) -> Exact {
        draw_object(chance, &self.members)
    }
}

fn draw_members(chance: &mut Chance, names: &[&'static str], depth: usize) -> Members {
    let mut named = BTreeMap::new();
    for name in names.iter().filter(|_| chance.percent(75)).copied().collect::<Vec<_>>() {
        let kind = draw_kind(chance, depth);
        let default = chance.percent(25).then(|| match chance.percent(25) {
            true => draw_scalar(chance),
            false => draw_value(chance, &kind),
        });
        named.insert(name, Member { kind, is_required: chance.percent(30), default });
    }
    Members { named, is_open: chance.percent(20) }
}

fn draw_kind(chance: &mut Chance, depth: usize) -> Kind {
    match chance.below(if depth == 0 { 11 } else { 15 }) {
        0 => Kind::Text,
        1 | 2 => Kind::Integer { is_bounded: chance.percent(30) },
        3 | 4 => Kind::Number,
        5 => Kind::Bool,
        6 => Kind::Choice,
        7 => Kind::Mixed,
        8 => Kind::Anything,
        9 | 10 if depth == 0 => Kind::Integer { is_bounded: false },
        9 => Kind::Nullable(Box::new(draw_kind(chance, depth - 1))),
        // Texts that may be null: one null hides a whole list from policies.
        10 | 11 if chance.percent(50) => Kind::List(Box::new(Kind::Nullable(Box::new(Kind::Text)))),
        10 | 11 => Kind::List(Box::new(draw_kind(chance, depth - 1))),
        12 | 13 => Kind::Object(draw_members(chance, &INNER_NAMES, depth - 1)),
        _ => Kind::Aside(Box::new(draw_kind(chance, depth - 1)), chance.percent(70)),
    }
}

fn members_schema(members: &Members, definitions: &mut Map<String, Value>) -> Value {
    let mut properties = Map::new();
    let mut required = Vec::new();
    for (name, member) in &members.named {
        let mut schema = kind_schema(&member.kind, definitions);
        if let Some(default) = &member.default {
            schema["default"] =
                serde_json::from_str(&default.spelled(&mut Chance::new(0))).unwrap();
        }
        properties.insert((*name).to_owned(), schema);
        if member.is_required {
            required.push(*name);
        }
    }
    let mut schema = json!({ "type": "object", "properties": properties, "required": required });
    if members.is_open {
        schema["additionalProperties"] = Value::Bool(true);
    }
    schema
}

fn kind_schema(kind: &Kind, definitions: &mut Map<String, Value>) -> Value {
    match kind {
        Kind::Text => json!({ "type": "string" }),
        Kind::Integer { is_bounded: false } => json!({ "type": "integer" }),
        Kind::Integer { is_bounded: true } => {
            json!({ "type": "integer", "minimum": -9, "maximum": 500 })
        }
        Kind::Number => json!({ "type": "number" }),
        Kind::Bool => json!({ "type": "boolean" }),
        Kind::Choice => json!({ "enum": ["good", "evil", "EVIL"] }),
        Kind::Mixed => json!({ "type": ["string", "integer"] }),
        Kind::Anything => json!({}),
        Kind::Nullable(inner) => {
            json!({ "anyOf": [kind_schema(inner, definitions), { "type": "null" }] })
        }
        Kind::List(inner) => json!({ "type": "array", "items": kind_schema(inner, definitions) }),
        Kind::Object(members) => members_schema(members, definitions),
        Kind::Aside(inner, true) => {
            let schema = kind_schema(inner, definitions);
            let name = format!("d{}", definitions.len());
            definitions.insert(name.clone(), schema);
            json!({ "$ref": format!("#/$defs/{name}") })
        }
        Kind::Aside(inner, false) => json!({ "allOf": [kind_schema(inner, definitions)] }),
    }
}

fn draw_object(chance: &mut Chance, members: &Members) -> Exact {
    let mut object = BTreeMap::new();
    for (name, member) in &members.named {
        if !member.is_required && chance.percent(35) {
            continue;
        }
        let value = match chance.percent(4) {
            true => draw_scalar(chance),
            false => draw_value(chance, &member.kind),
        };
        object.insert((*name).to_owned(), value);
    }
    if members.is_open && chance.percent(30) {
        let name = *chance.one_of(&["extra", "Amount", "amount", "a", "tags"]);
        let value = draw_scalar(chance);
        object.entry(name.to_owned()).or_insert(value);
    }
    Exact::Object(object)
}

fn draw_value(chance: &mut Chance, kind: &Kind) -> Exact {
    match kind {
        Kind::Text => Exact::Text(draw_text(chance)),
        Kind::Integer { .. } | Kind::Number => Exact::Number(draw_number(chance)),
        Kind::Bool => Exact::Bool(chance.percent(50)),
        Kind::Choice => Exact::Text((*chance.one_of(&["good", "evil", "EVIL"])).to_owned()),
        Kind::Mixed if chance.percent(50) => Exact::Text(draw_text(chance)),
        Kind::Mixed => Exact::Number(draw_number(chance)),
        Kind::Anything => draw_scalar(chance),
        Kind::Nullable(_) if chance.percent(30) => Exact::Null,
        Kind::List(inner) => {
            Exact::List((0..chance.below(4)).map(|_| draw_value(chance, inner)).collect())
        }
        Kind::Object(members) => draw_object(chance, members),
        Kind::Nullable(inner) | Kind::Aside(inner, _) => draw_value(chance, inner),
    }
}
