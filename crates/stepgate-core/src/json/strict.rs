//! A parser that rejects what other parsers repair.
//!
//! `serde_json` reads the tokens; the visitor adds what it lacks: duplicate keys are refused at any
//! depth, and nesting has our limit. Integers that RFC 8785 could not tell apart are refused by a
//! scan of the number tokens, because a parsed `f64` no longer knows how it was spelled.

use std::cell::Cell;
use std::fmt;

use serde::de::{self, DeserializeSeed, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use crate::spelled::spelled;

/// The deepest nesting that any limit may allow: below the parser's own guard of 128.
pub const DEPTH_MAX: usize = 120;

/// Which integers a text may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Integers {
    /// Only those that a double holds exactly, ±(2^53 − 1): what a proposal may say.
    Exact,
    /// Any finite number, rounded as RFC 8785 rounds it: what `canon` and `digest` take.
    Any,
}

spelled! {
    /// Why a text is not strict JSON; the name goes into the record.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
    #[error("{}", self.as_str())]
    pub enum Refusal {
        /// Two members of one object have the same name.
        DuplicateKey = "DUPLICATE_KEY",
        /// Nested deeper than the limit.
        TooDeep = "TOO_DEEP",
        /// A number that cannot be held, or an integer that cannot be held exactly.
        NumberRange = "NUMBER_RANGE",
        /// The bytes are not UTF-8.
        InvalidUtf8 = "INVALID_UTF8",
        /// Anything else that the grammar does not allow.
        Syntax = "SYNTAX",
    }
    /// The name in the record.
    fn as_str
}

/// Reads one JSON text, all of it and nothing after it.
pub fn parse(bytes: &[u8], depth_max: usize, integers: Integers) -> Result<Value, Refusal> {
    let text = std::str::from_utf8(bytes).map_err(|_| Refusal::InvalidUtf8)?;
    let refusal = Cell::new(None);
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let seed = Strict { levels_left: depth_max.min(DEPTH_MAX), refusal: &refusal };
    let value = seed
        .deserialize(&mut deserializer)
        .and_then(|value| deserializer.end().map(|()| value))
        .map_err(|_| refusal.get().unwrap_or_else(|| name_of_syntax_error(text)))?;
    match integers {
        Integers::Exact if has_number(text, is_inexact_integer) => Err(Refusal::NumberRange),
        Integers::Exact | Integers::Any => Ok(value),
    }
}

/// Reads a text that Stepgate has stored: up to the greatest depth, with any finite number.
pub fn stored(text: &str) -> Result<Value, Refusal> {
    parse(text.as_bytes(), DEPTH_MAX, Integers::Any)
}

/// Reads any value inside a larger one, for `deserialize_with`.
///
/// `serde_json` gives two private names a meaning when it reads a `Value`: a string under one of them
/// is parsed in turn, and the value that comes out is not the one that was hashed. Here they are
/// names like any other.
pub fn value<'de, D: de::Deserializer<'de>>(deserializer: D) -> Result<Value, D::Error> {
    let refusal = Cell::new(None);
    Strict { levels_left: DEPTH_MAX, refusal: &refusal }.deserialize(deserializer)
}

/// [`value`] for a field that may be left out.
pub fn some_value<'de, D: de::Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Value>, D::Error> {
    value(deserializer).map(Some)
}

/// [`value`] for a field that is null where it has no value.
pub fn nullable_value<'de, D: de::Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Value>, D::Error> {
    value(deserializer).map(|value| (!value.is_null()).then_some(value))
}

/// [`value`] for a list.
pub fn values<'de, D: de::Deserializer<'de>>(deserializer: D) -> Result<Vec<Value>, D::Error> {
    let Value::Array(items) = value(deserializer)? else {
        return Err(de::Error::custom("not a list"));
    };
    Ok(items)
}

/// `serde_json` reports a number that overflows as a syntax error; the record distinguishes the two.
fn name_of_syntax_error(text: &str) -> Refusal {
    let overflows = |token: &str| token.parse().is_ok_and(f64::is_infinite);
    if has_number(text, overflows) { Refusal::NumberRange } else { Refusal::Syntax }
}

fn is_inexact_integer(token: &str) -> bool {
    const EXACT_MAX: u64 = (1 << 53) - 1;
    let magnitude = token.strip_prefix('-').unwrap_or(token);
    magnitude.bytes().all(|b| b.is_ascii_digit())
        && magnitude.parse::<u64>().map_or(true, |value| value > EXACT_MAX)
}

/// Whether any number token of the text, outside strings, has the property.
fn has_number(text: &str, property: impl Fn(&str) -> bool) -> bool {
    let is_number = |b: u8| b.is_ascii_digit() || matches!(b, b'-' | b'+' | b'.' | b'e' | b'E');
    let mut bytes = text.bytes().enumerate().peekable();
    while let Some((start, byte)) = bytes.next() {
        if byte == b'"' {
            while let Some((_, inside)) = bytes.next() {
                match inside {
                    b'"' => break,
                    b'\\' => drop(bytes.next()),
                    _ => {}
                }
            }
        } else if byte == b'-' || byte.is_ascii_digit() {
            let mut end = start + 1;
            while bytes.next_if(|(_, b)| is_number(*b)).is_some() {
                end += 1;
            }
            if text.get(start..end).is_some_and(&property) {
                return true;
            }
        }
    }
    false
}

/// Builds a `Value`, counting levels down and noting why it stopped.
#[derive(Clone, Copy)]
struct Strict<'a> {
    levels_left: usize,
    refusal: &'a Cell<Option<Refusal>>,
}

impl Strict<'_> {
    fn refuse<E: de::Error>(&self, refusal: Refusal) -> E {
        self.refusal.set(Some(refusal));
        E::custom(refusal)
    }

    fn inside<E: de::Error>(self) -> Result<Self, E> {
        match self.levels_left.checked_sub(1) {
            Some(levels_left) => Ok(Self { levels_left, ..self }),
            None => Err(self.refuse(Refusal::TooDeep)),
        }
    }
}

impl<'de> DeserializeSeed<'de> for Strict<'_> {
    type Value = Value;

    fn deserialize<D: de::Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("strict JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Value, E> {
        let number = Number::from_f64(value).ok_or_else(|| self.refuse(Refusal::NumberRange))?;
        Ok(Value::Number(number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let inside = self.inside()?;
        let mut array = Vec::new();
        while let Some(item) = items.next_element_seed(inside)? {
            array.push(item);
        }
        Ok(Value::Array(array))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let inside = self.inside()?;
        let mut object = Map::new();
        while let Some(name) = members.next_key::<String>()? {
            if object.contains_key(&name) {
                return Err(self.refuse(Refusal::DuplicateKey));
            }
            object.insert(name, members.next_value_seed(inside)?);
        }
        Ok(Value::Object(object))
    }
}

#[cfg(test)]
mod tests;
