//! The arguments of a call as policies see them: every value is exact, or listed as unseen. A declared
//! default that the tool uses is seen as if the call had given it.

use std::borrow::Cow;

use cedar_policy::RestrictedExpression;
use serde_json::{Map, Value};
use stepgate_core::result_pointer::pointer_to;

use crate::cause::Cause;
use crate::shape::{Attribute, Declared, Record, Shape, scalar};

pub(crate) struct View {
    pub(crate) args: RestrictedExpression,
    /// Arguments that the tool gets and policies do not see.
    pub(crate) unseen: Vec<Unseen>,
    /// The declared defaults that apply, by JSON Pointer, without those of redacted arguments.
    pub(crate) defaults: Map<String, Value>,
}

/// An argument that the tool gets and policies cannot see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unseen {
    /// Its path from the arguments down.
    pub(crate) path: Vec<String>,
    pub(crate) cause: Cause,
    /// Whether the cause is in one of its elements.
    pub(crate) in_element: bool,
    /// Whether the call omits it, and the tool uses its declared default.
    pub(crate) by_default: bool,
}

impl Unseen {
    /// `volume`, `options.level`.
    pub(crate) fn name(&self) -> String {
        self.path.join(".")
    }

    /// Why it cannot be seen, to follow its name.
    pub(crate) fn why(&self) -> String {
        let Self { cause, in_element, by_default, .. } = self;
        let subject = match (in_element, by_default) {
            (false, false) => "it is",
            (false, true) => "its default is",
            (true, false) => "an element of it is or has something",
            (true, true) => "an element of its default is or has something",
        };
        // The words of this cause name the default themselves.
        let subject = if *cause == Cause::UnclearDefault { "it is" } else { subject };
        format!("{subject} {}", cause.as_str())
    }
}

/// The arguments as policies see them; none where Cedar does not accept them. `hidden` are arguments of which the call has
/// only digests, also where the set in force does not hide them any more.
pub(crate) fn view<'a>(
    record: &'a Record,
    args: &'a Map<String, Value>,
    hidden: &'a [String],
) -> Option<View> {
    let mut viewer = Viewer { path: Vec::new(), unseen: Vec::new(), defaults: Map::new(), hidden };
    let args = viewer.record(record, args, false)?;
    let Viewer { unseen, defaults, .. } = viewer;
    Some(View { args, unseen, defaults })
}

struct Viewer<'a> {
    path: Vec<Cow<'a, str>>,
    unseen: Vec<Unseen>,
    defaults: Map<String, Value>,
    hidden: &'a [String],
}

impl<'a> Viewer<'a> {
    fn record(
        &mut self,
        record: &'a Record,
        members: &'a Map<String, Value>,
        by_default: bool,
    ) -> Option<RestrictedExpression> {
        let mut seen = Vec::with_capacity(members.len());
        for (name, value) in members {
            let attribute = record.attributes.get(name);
            self.path.push(Cow::Borrowed(name));
            let shown = self.member(attribute, value, by_default);
            self.path.pop();
            seen.extend(shown.map(|shown| (name.clone(), shown)));
        }
        for (name, attribute) in &record.attributes {
            let Some(default) = &attribute.default else { continue };
            if members.contains_key(name) {
                continue;
            }
            self.path.push(Cow::Borrowed(name));
            let shown = self.omitted(attribute, default);
            self.path.pop();
            seen.extend(shown.map(|shown| (name.clone(), shown)));
        }
        RestrictedExpression::new_record(seen).ok()
    }

    /// An omitted member: the tool uses its default.
    fn omitted(
        &mut self,
        attribute: &'a Attribute,
        default: &'a Declared,
    ) -> Option<RestrictedExpression> {
        match default {
            Declared::Value(Value::Null) => None,
            Declared::Value(value) => {
                if attribute.seen != Err(Cause::Redacted) {
                    self.defaults
                        .insert(pointer_to(self.path.iter().map(AsRef::as_ref)), value.clone());
                }
                self.member(Some(attribute), value, true)
            }
            Declared::Unclear => {
                self.hide(Cause::UnclearDefault.into(), true);
                None
            }
        }
    }

    fn member(
        &mut self,
        attribute: Option<&'a Attribute>,
        value: &'a Value,
        by_default: bool,
    ) -> Option<RestrictedExpression> {
        let is_hidden = match self.path.as_slice() {
            [name] => !by_default && self.hidden.iter().any(|hidden| hidden == name),
            [] | [_, _, ..] => false,
        };
        let shape = match attribute {
            _ if is_hidden => Err(Hidden::from(Cause::Redacted)),
            // This tool treats null like an omitted argument.
            Some(Attribute { default: Some(Declared::Value(Value::Null)), .. })
                if value.is_null() =>
            {
                return None;
            }
            Some(attribute) => attribute.seen.as_ref().map_err(|cause| Hidden::from(*cause)),
            None => Err(Hidden::from(Cause::NotInSchema)),
        };
        match shape.and_then(|shape| self.value(shape, value, by_default)) {
            Ok(shown) => Some(shown),
            Err(hidden) => {
                self.hide(hidden, by_default);
                None
            }
        }
    }

    fn value(
        &mut self,
        shape: &'a Shape,
        value: &'a Value,
        by_default: bool,
    ) -> Result<RestrictedExpression, Hidden> {
        match (shape, value) {
            (Shape::Record(record), Value::Object(members)) => {
                self.record(record, members, by_default).ok_or(Cause::OtherType.into())
            }
            (Shape::Set(element), Value::Array(values)) => {
                let unseen_before = self.unseen.len();
                let elements = values.iter().enumerate().map(|(index, value)| {
                    self.path.push(Cow::Owned(index.to_string()));
                    let shown = self.value(element, value, by_default);
                    self.path.pop();
                    // All elements or none: a set without one of its elements, or without a part of one,
                    // would answer `contains` wrongly.
                    match self.unseen.drain(unseen_before..).next() {
                        Some(inside) => Err(Hidden { cause: inside.cause, in_element: true }),
                        None => shown.map_err(|hidden| Hidden { in_element: true, ..hidden }),
                    }
                });
                elements.collect::<Result<Vec<_>, _>>().map(RestrictedExpression::new_set)
            }
            (shape, value) => Ok(scalar(shape, value)?),
        }
    }

    fn hide(&mut self, Hidden { cause, in_element }: Hidden, by_default: bool) {
        let path = self.path.iter().map(|name| name.to_string()).collect();
        self.unseen.push(Unseen { path, cause, in_element, by_default });
    }
}

/// Why a value cannot be seen, and whether the cause is in one of its elements.
struct Hidden {
    cause: Cause,
    in_element: bool,
}

impl From<Cause> for Hidden {
    fn from(cause: Cause) -> Self {
        Self { cause, in_element: false }
    }
}

#[cfg(test)]
mod tests;
