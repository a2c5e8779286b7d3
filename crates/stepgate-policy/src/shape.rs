//! The part of a tool's arguments that policies see: the part of its JSON Schema that Cedar can type.
//!
//! A shape is made once, when a set is loaded, and used twice: for Cedar's schema, and to convert the
//! arguments of every call into values of exactly those types (`view.rs`). So a request conforms to the
//! schema by construction, and a value that does not fit is unseen and reported.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use cedar_policy::RestrictedExpression;
use serde_json::{Map, Number, Value, json};
use stepgate_core::decimal::Decimal;
use stepgate_core::digest::Digest;
use stepgate_core::label::Flow;
use stepgate_core::tool::{Contract, Delivery, Mode, Standing, Tool, ToolName};

use crate::cause::{Cause, DECIMAL_MAX, EXACT_MAX};
use crate::limits::{ARGS_DEPTH_MAX, ATTRIBUTES_MAX};
use crate::vocabulary::decimal;

/// What policies need to know about a tool.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolShape {
    /// Its name, which is also the action's.
    pub name: ToolName,
    /// What it does, from the configuration; also the action group.
    pub mode: Mode,
    /// The JSON Schema of its arguments.
    pub input_schema: Value,
    /// Arguments that policies do not see, because the gate passes them as digests.
    pub redacted: Vec<String>,
    /// What its calls bring in and carry out, from the configuration.
    pub flow: Flow,
    /// The digest that decisions on the tool are bound to: a call with another definition is denied.
    pub definition_digest: Digest,
    /// Whether an operator has accepted this definition. If not, no call of the tool reaches policies, and
    /// they are not checked against its schema.
    pub is_accepted: bool,
}

impl ToolShape {
    /// The schema of an argument, if the tool has it.
    pub(crate) fn argument(&self, name: &str) -> Option<&Value> {
        self.input_schema.get("properties")?.get(name)
    }

    /// The part of its arguments that policies see.
    pub(crate) fn args(&self) -> Record {
        let mut args = of_args(&self.input_schema);
        for name in &self.redacted {
            let attribute = args.attributes.entry(name.clone()).or_insert_with(Attribute::untyped);
            attribute.seen = Err(Cause::Redacted);
        }
        args
    }

    pub(crate) fn is_redacted(&self, name: &str) -> bool {
        self.redacted.iter().any(|redacted| redacted == name)
    }

    pub(crate) fn required(&self) -> impl Iterator<Item = &str> {
        names_in(self.input_schema.get("required"))
    }

    /// The tool, for calls that are only decided on.
    pub(crate) fn tool(&self, standing: Standing, contract: Arc<dyn Contract>) -> Tool {
        Tool {
            name: self.name.clone(),
            mode: self.mode,
            delivery: Delivery::Ask,
            definition_digest: self.definition_digest,
            standing,
            redacted: self.redacted.clone(),
            erasable: Vec::new(),
            flow: self.flow.clone(),
            contract,
        }
    }
}

/// A Cedar type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    String,
    /// A whole number.
    Long,
    /// A number with up to four decimal places.
    Decimal,
    Bool,
    Set(Box<Shape>),
    Record(Record),
}

/// An object with named members.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) attributes: BTreeMap<String, Attribute>,
    /// Whether it may have members beyond the attributes.
    pub(crate) is_open: bool,
}

/// A member of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Attribute {
    /// Its type, or why policies never see it.
    pub(crate) seen: Result<Shape, Cause>,
    /// Whether policies may read it without `has`.
    pub(crate) required: bool,
    /// Kinds of values that policies do not see, although the attribute has a type.
    pub(crate) blind: BTreeSet<Cause>,
    /// The value that the tool uses if a call omits it.
    pub(crate) default: Option<Declared>,
}

impl Attribute {
    pub(crate) fn untyped() -> Self {
        Self { seen: Err(Cause::Untyped), required: false, blind: BTreeSet::new(), default: None }
    }
}

/// The value that a tool uses, by its schema, if a call omits an argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Declared {
    /// This value. If it is null, the tool treats null and an omitted argument alike.
    Value(Value),
    /// Several values, or one in a part of the schema that cannot be resolved.
    Unclear,
}

/// The part of a tool's arguments that Cedar can type.
pub(crate) fn of_args(input_schema: &Value) -> Record {
    let mut reader = Reader { root: input_schema, attributes_left: ATTRIBUTES_MAX };
    reader.record(input_schema, ARGS_DEPTH_MAX)
}

/// Reads a JSON Schema as far as Cedar's types go.
struct Reader<'a> {
    root: &'a Value,
    attributes_left: usize,
}

/// A shape, and which of the schema's values have it.
struct Held {
    shape: Shape,
    /// Whether all of them have this type.
    always: bool,
    /// Kinds of values that policies do not see.
    blind: BTreeSet<Cause>,
}

impl Held {
    fn always(shape: Shape) -> Self {
        Self { shape, always: true, blind: BTreeSet::new() }
    }

    fn number(shape: Shape, schema: &Value) -> Self {
        Self { blind: blind_numbers(&shape, schema), ..Self::always(shape) }
    }

    fn or_null(mut self, nullable: bool) -> Self {
        if nullable {
            self.always = false;
            self.blind.insert(Cause::Null);
        }
        self
    }
}

impl<'a> Reader<'a> {
    fn record(&mut self, schema: &'a Value, depth_left: usize) -> Record {
        let mut record = Record { is_open: is_open(schema), ..Record::default() };
        for (name, property) in properties(schema) {
            let mut attribute = self.attribute(property, depth_left);
            attribute.required &= names_in(schema.get("required")).any(|demanded| demanded == name);
            record.attributes.insert(name.clone(), attribute);
        }
        // Other parts of the schema that apply to the same object. Policies see nothing that only these
        // parts name, but the tool may still use a default from them.
        for part in parts_beside(self.root, schema).0 {
            for (name, property) in properties(part) {
                let Some(default) = default_of(self.root, property) else { continue };
                self.attributes_left = self.attributes_left.saturating_sub(1);
                let attribute =
                    record.attributes.entry(name.clone()).or_insert_with(Attribute::untyped);
                attribute.default.get_or_insert(default);
            }
        }
        record
    }

    fn attribute(&mut self, property: &'a Value, depth_left: usize) -> Attribute {
        let default = default_of(self.root, property);
        let held = match self.attributes_left.checked_sub(1) {
            None => Err(Cause::TooMany),
            Some(left) => {
                self.attributes_left = left;
                self.held(property, depth_left.saturating_sub(1))
            }
        };
        let Held { shape, always: required, mut blind } = match held {
            Ok(held) => held,
            Err(cause) => return Attribute { seen: Err(cause), default, ..Attribute::untyped() },
        };
        if default == Some(Declared::Value(Value::Null)) {
            blind.remove(&Cause::Null);
        }
        Attribute { seen: Ok(shape), required, blind, default }
    }

    fn held(&mut self, schema: &'a Value, depth_left: usize) -> Result<Held, Cause> {
        if depth_left == 0 {
            return Err(Cause::TooDeep);
        }
        if let Some(reference) = schema.get("$ref") {
            let target = referred(self.root, reference).ok_or(Cause::Untyped)?;
            return self.held(target, depth_left - 1);
        }
        match schema.get("type") {
            Some(Value::String(kind)) => self.held_as(kind, schema, depth_left),
            Some(Value::Array(kinds)) => {
                let (kind, nullable) =
                    the_one_beside_null(kinds, |kind| kind == "null").ok_or(Cause::Untyped)?;
                let kind = kind.as_str().ok_or(Cause::Untyped)?;
                Ok(self.held_as(kind, schema, depth_left)?.or_null(nullable))
            }
            Some(_) => Err(Cause::Untyped),
            None => self.held_without_type(schema, depth_left),
        }
    }

    fn held_as(&mut self, kind: &str, schema: &'a Value, depth_left: usize) -> Result<Held, Cause> {
        match kind {
            "string" => Ok(Held::always(Shape::String)),
            "boolean" => Ok(Held::always(Shape::Bool)),
            "integer" => Ok(Held::number(Shape::Long, schema)),
            "number" => Ok(Held::number(Shape::Decimal, schema)),
            "array" if schema.get("prefixItems").is_none() => {
                let items = schema.get("items").ok_or(Cause::Untyped)?;
                let Held { shape, always, mut blind } = self.held(items, depth_left - 1)?;
                let always = always && !matches!(shape, Shape::Record(_));
                if let Shape::Record(record) = &shape {
                    record.blind(&mut blind);
                }
                Ok(Held { shape: Shape::Set(Box::new(shape)), always, blind })
            }
            "object" if schema.get("properties").is_some() => {
                // Either all members of a nested object are read or none. So a recursive schema makes at
                // most the limit of attributes plus one object.
                if self.attributes_left == 0 {
                    return Err(Cause::TooMany);
                }
                Ok(Held::always(Shape::Record(self.record(schema, depth_left))))
            }
            _ => Err(Cause::Untyped),
        }
    }

    /// A choice of fixed values of one type, or one type or null.
    fn held_without_type(&mut self, schema: &'a Value, depth_left: usize) -> Result<Held, Cause> {
        if let Some(values) = fixed_values(schema) {
            return held_by_all(values);
        }
        let choices = schema.get("anyOf").or_else(|| schema.get("oneOf"));
        let choices = choices.and_then(Value::as_array).ok_or(Cause::Untyped)?;
        let is_null = |choice: &Value| choice.get("type").is_some_and(|kind| kind == "null");
        let (choice, nullable) = the_one_beside_null(choices, is_null).ok_or(Cause::Untyped)?;
        Ok(self.held(choice, depth_left - 1)?.or_null(nullable))
    }
}

impl Record {
    /// Why an object of this kind can have values that policies do not see.
    fn blind(&self, causes: &mut BTreeSet<Cause>) {
        if self.is_open {
            causes.insert(Cause::NotInSchema);
        }
        for attribute in self.attributes.values() {
            causes.extend(&attribute.blind);
            match &attribute.seen {
                Ok(Shape::Record(inner)) => inner.blind(causes),
                Ok(Shape::String | Shape::Long | Shape::Decimal | Shape::Bool | Shape::Set(_)) => {}
                Err(cause) => {
                    causes.insert(*cause);
                }
            }
        }
    }

    /// The type in Cedar's schema.
    pub(crate) fn to_schema(&self) -> Value {
        let seen = |(name, attribute): (&String, &Attribute)| {
            let mut member = attribute.seen.as_ref().ok()?.to_schema();
            if let Value::Object(member) = &mut member {
                member.insert("required".into(), attribute.required.into());
            }
            Some((name.clone(), member))
        };
        let members: Map<String, Value> = self.attributes.iter().filter_map(seen).collect();
        json!({ "type": "Record", "attributes": members })
    }
}

/// The other parts of a schema that apply to the same value, each once; and whether one of them cannot be resolved here.
fn parts_beside<'a>(root: &'a Value, schema: &'a Value) -> (Vec<&'a Value>, bool) {
    let (mut parts, mut is_lacking) = (Vec::new(), false);
    let (mut seen, mut next) = (HashSet::new(), vec![schema]);
    while let Some(part) = next.pop() {
        if !seen.insert(std::ptr::from_ref(part)) {
            continue;
        }
        parts.push(part);
        let lists = ["allOf", "anyOf", "oneOf"].into_iter().filter_map(|name| part.get(name));
        let maps = ["dependentSchemas", "dependencies"].into_iter();
        let maps = maps.filter_map(|name| part.get(name)).filter_map(Value::as_object);
        let single = ["if", "then", "else"].into_iter().filter_map(|name| part.get(name));
        next.extend(lists.filter_map(Value::as_array).flatten());
        next.extend(maps.flat_map(Map::values));
        next.extend(single);
        if let Some(reference) = part.get("$ref").or_else(|| part.get("$dynamicRef")) {
            match referred(root, reference) {
                Some(target) => next.push(target),
                None => is_lacking = true,
            }
        }
    }
    // The first is the schema itself.
    (parts.split_off(1), is_lacking)
}

/// The default value of a schema: its own first, then that of the parts that apply to the same value, if
/// they agree.
fn default_of(root: &Value, schema: &Value) -> Option<Declared> {
    if let Some(own) = schema.get("default") {
        return Some(Declared::Value(own.clone()));
    }
    let (parts, is_lacking) = parts_beside(root, schema);
    let mut defaults = parts.into_iter().filter_map(|part| part.get("default"));
    let found = defaults.next();
    match found {
        _ if is_lacking || defaults.any(|other| Some(other) != found) => Some(Declared::Unclear),
        found => found.map(|default| Declared::Value(default.clone())),
    }
}

/// The target of a reference, within the schema itself: nothing is ever fetched.
fn referred<'a>(root: &'a Value, reference: &Value) -> Option<&'a Value> {
    root.pointer(reference.as_str()?.strip_prefix('#')?)
}

fn properties(schema: &Value) -> impl Iterator<Item = (&String, &Value)> {
    schema.get("properties").and_then(Value::as_object).into_iter().flatten()
}

/// Whether an object may have members that its schema does not name.
fn is_open(schema: &Value) -> bool {
    let others = ["additionalProperties", "unevaluatedProperties", "patternProperties"];
    let mut others = others.into_iter().filter_map(|name| schema.get(name));
    others.any(|others| *others != Value::Bool(false))
}

/// The values that a schema allows, if it lists them.
fn fixed_values(schema: &Value) -> Option<&[Value]> {
    let listed = schema.get("enum").and_then(Value::as_array).map(Vec::as_slice);
    listed.or_else(|| schema.get("const").map(std::slice::from_ref))
}

/// Kinds of a schema's numbers that a shape does not hold.
fn blind_numbers(shape: &Shape, schema: &Value) -> BTreeSet<Cause> {
    if let Some(values) = fixed_values(schema) {
        let numbers = values.iter().filter(|value| value.is_number());
        return numbers.filter_map(|number| scalar(shape, number).err()).collect();
    }
    let is_decimal = *shape == Shape::Decimal;
    let (max, beyond) = match is_decimal {
        true => (DECIMAL_MAX, Cause::BeyondDecimal),
        false => (EXACT_MAX, Cause::TooLarge),
    };
    let bound = |names: [&str; 2]| {
        let mut bounds = names.into_iter().filter_map(|name| schema.get(name)?.as_f64());
        bounds.any(|bound| bound.abs() <= max)
    };
    let is_bounded =
        bound(["minimum", "exclusiveMinimum"]) && bound(["maximum", "exclusiveMaximum"]);
    let is_coarse = schema.get("multipleOf").is_some_and(|step| scalar(shape, step).is_ok());
    let too_fine = (is_decimal && !is_coarse).then_some(Cause::TooFine);
    too_fine.into_iter().chain((!is_bounded).then_some(beyond)).collect()
}

/// The only choice that is not null, and whether null is allowed as well.
fn the_one_beside_null(
    choices: &[Value],
    is_null: impl Fn(&Value) -> bool,
) -> Option<(&Value, bool)> {
    let mut others = choices.iter().filter(|choice| !is_null(choice));
    match (others.next(), others.next()) {
        (Some(choice), None) => Some((choice, choices.iter().any(&is_null))),
        (None, _) | (Some(_), Some(_)) => None,
    }
}

fn held_by_all(values: &[Value]) -> Result<Held, Cause> {
    let mut shapes = [Shape::String, Shape::Bool, Shape::Long, Shape::Decimal].into_iter();
    let holds_all = |shape: &Shape| values.iter().all(|value| scalar(shape, value).is_ok());
    let shape = shapes.find(holds_all).filter(|_| !values.is_empty());
    shape.map(Held::always).ok_or(Cause::Untyped)
}

/// The value, if it has this type and can be held exactly; otherwise the cause.
pub(crate) fn scalar(shape: &Shape, value: &Value) -> Result<RestrictedExpression, Cause> {
    match (shape, value) {
        (Shape::String, Value::String(text)) => Ok(RestrictedExpression::new_string(text.clone())),
        (Shape::Bool, Value::Bool(truth)) => Ok(RestrictedExpression::new_bool(*truth)),
        (Shape::Long, Value::Number(number)) => long(number).map(RestrictedExpression::new_long),
        (Shape::Decimal, Value::Number(number)) => Ok(decimal(Decimal::of(number)?)),
        (_, Value::Null) => Err(Cause::Null),
        (
            Shape::String
            | Shape::Bool
            | Shape::Long
            | Shape::Decimal
            | Shape::Set(_)
            | Shape::Record(_),
            _,
        ) => Err(Cause::OtherType),
    }
}

/// A whole number in any spelling (`20`, `20.0`, `2e1`) that a double holds exactly: a journal cannot
/// distinguish other numbers.
pub(crate) fn long(number: &Number) -> Result<i64, Cause> {
    let value = number.as_f64().ok_or(Cause::TooLarge)?;
    if value.fract() != 0.0 {
        return Err(Cause::Fraction);
    }
    if value.abs() > EXACT_MAX {
        return Err(Cause::TooLarge);
    }
    #[expect(clippy::cast_possible_truncation, reason = "a whole number within the exact range")]
    Ok(number.as_i64().unwrap_or(value as i64))
}

fn names_in(list: Option<&Value>) -> impl Iterator<Item = &str> {
    list.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
}

impl Shape {
    /// The type in Cedar's schema.
    pub(crate) fn to_schema(&self) -> Value {
        match self {
            Self::String => json!({ "type": "String" }),
            Self::Long => json!({ "type": "Long" }),
            Self::Decimal => json!({ "type": "Extension", "name": "decimal" }),
            Self::Bool => json!({ "type": "Boolean" }),
            Self::Set(element) => json!({ "type": "Set", "element": element.to_schema() }),
            Self::Record(record) => record.to_schema(),
        }
    }
}

#[cfg(test)]
mod tests;
