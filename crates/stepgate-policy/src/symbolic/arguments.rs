//! The arguments of an example: what the solver chose, and values for what it left open.

use serde_json::{Map, Number, Value};
use stepgate_core::decimal::Decimal;

use super::sample;
use super::world::KnownTool;
use crate::shape::Shape;
use crate::view::view;

/// A value as an agent would write it.
pub(crate) fn json(shape: &Shape, value: &Value) -> Result<Value, String> {
    let wrong = || format!("the solver gave `{value}` for another type");
    match (shape, value) {
        (Shape::Decimal, value) => {
            let text = value.pointer("/__extn/arg").and_then(Value::as_str).ok_or_else(wrong)?;
            let whole = Decimal::parse(text).ok().and_then(Decimal::whole).map(Number::from);
            let fraction = || Number::from_f64(text.parse().ok()?);
            whole.or_else(fraction).map(Value::Number).ok_or_else(wrong)
        }
        (Shape::Set(element), Value::Array(values)) => {
            values.iter().map(|value| json(element, value)).collect()
        }
        (Shape::Record(record), Value::Object(members)) => {
            let member = |(name, value): (&String, &Value)| {
                let attribute = record.attributes.get(name).ok_or_else(wrong)?;
                let shape = attribute.seen.as_ref().map_err(|_| wrong())?;
                Ok((name.clone(), json(shape, value)?))
            };
            let members: Result<Map<String, Value>, String> = members.iter().map(member).collect();
            Ok(Value::Object(members?))
        }
        (Shape::String | Shape::Long | Shape::Bool, value) => Ok(value.clone()),
        (Shape::Set(_) | Shape::Record(_), _) => Err(wrong()),
    }
}

/// Values for the arguments that the solver wants unseen.
pub(crate) fn fill_unseen(
    tool: &KnownTool<'_>,
    args: &mut Map<String, Value>,
    names: &[&str],
) -> Result<(), String> {
    for name in names {
        let beyond = [Value::Null, 1e17.into(), (-1e17).into(), 0.000_01.into()];
        let mut tried = beyond.into_iter().chain(values_of(tool, name));
        let found = tried.find(|value| tool.accepts(name, value) && is_unseen(tool, name, value));
        let none = || format!("no value of `{name}` was found that policies cannot see");
        args.insert((*name).to_owned(), found.ok_or_else(none)?);
    }
    Ok(())
}

fn is_unseen(tool: &KnownTool<'_>, name: &str, value: &Value) -> bool {
    let alone = Map::from_iter([(name.to_owned(), value.clone())]);
    let view = view(&tool.args, &alone, &[]);
    view.is_some_and(|view| view.unseen.iter().any(|unseen| unseen.name() == name))
}

/// Values for the arguments that the tool needs and no policy reads.
pub(crate) fn fill_unread(tool: &KnownTool<'_>, args: &mut Map<String, Value>) {
    for name in tool.shape.required() {
        if !args.contains_key(name) {
            let accepted = values_of(tool, name).find(|value| tool.accepts(name, value));
            args.extend(accepted.map(|value| (name.to_owned(), value)));
        }
    }
}

fn values_of(tool: &KnownTool<'_>, name: &str) -> impl Iterator<Item = Value> {
    let anything = Value::Bool(true);
    let schema = tool.shape.argument(name).unwrap_or(&anything);
    sample::values(&tool.shape.input_schema, schema).into_iter()
}
