//! RFC 8785: one spelling for every value, so that a digest means the value.
//!
//! It has its own serializer, so that a value can be hashed without building a tree first. Members are
//! written in the order in which they come and sorted only if they came out of order, so a struct whose
//! fields are declared in order costs nothing extra.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt::Display;

use serde::Serialize;
use serde::ser::{self, Impossible, Serializer};

/// The RFC 8785 form of a value.
///
/// Infallible for everything that Stepgate hashes: JSON values have no NaN, and our own types are
/// structs, strings, integers and lists of these.
#[expect(clippy::panic, reason = "a type of ours that is not JSON is a defect found by any test")]
pub fn text_of<T: Serialize + ?Sized>(value: &T) -> String {
    match to_text(value) {
        Ok(text) => text,
        Err(error) => panic!("not JSON: {error}"),
    }
}

/// The RFC 8785 form of a value, or why it has none.
pub fn to_text<T: Serialize + ?Sized>(value: &T) -> Result<String, NotJson> {
    let mut writer = Writer { out: Vec::with_capacity(512) };
    value.serialize(&mut writer)?;
    String::from_utf8(writer.out).map_err(ser::Error::custom)
}

/// A value that JSON cannot represent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NotJson(String);

impl ser::Error for NotJson {
    fn custom<T: Display>(message: T) -> Self {
        Self(message.to_string())
    }
}

/// Limit of the capacity that is reserved in advance for the members of an object, whatever length it
/// announces.
const MEMBERS_EXPECTED_MAX: usize = 64;

struct Writer {
    out: Vec<u8>,
}

impl Writer {
    fn string(&mut self, text: &str) {
        self.out.push(b'"');
        // Nearly all strings need no escape. The loop has no early exit, so that the compiler can check many
        // bytes at a time.
        if text.bytes().fold(false, |found, byte| found | needs_escape(byte)) {
            self.escaped(text.as_bytes());
        } else {
            self.out.extend_from_slice(text.as_bytes());
        }
        self.out.push(b'"');
    }

    fn escaped(&mut self, text: &[u8]) {
        let mut plain_from = 0;
        for (at, byte) in text.iter().enumerate().filter(|(_, byte)| needs_escape(**byte)) {
            self.out.extend_from_slice(text.get(plain_from..at).unwrap_or_default());
            self.escape(*byte);
            plain_from = at + 1;
        }
        self.out.extend_from_slice(text.get(plain_from..).unwrap_or_default());
    }

    fn escape(&mut self, byte: u8) {
        let short = match byte {
            b'"' => b'"',
            b'\\' => b'\\',
            0x08 => b'b',
            0x09 => b't',
            0x0a => b'n',
            0x0c => b'f',
            0x0d => b'r',
            _ => {
                return self.out.extend_from_slice(format!("\\u{byte:04x}").as_bytes());
            }
        };
        self.out.extend_from_slice(&[b'\\', short]);
    }

    /// An integer beyond 2^53 is the double nearest to it, as RFC 8785 defines numbers.
    fn integer(&mut self, value: i128) -> Result<(), NotJson> {
        const EXACT_MAX: u128 = 1 << 53;
        if value.unsigned_abs() <= EXACT_MAX {
            self.out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
            return Ok(());
        }
        #[expect(clippy::cast_precision_loss, reason = "rounding to a double is the rule")]
        self.double(value as f64)
    }

    fn double(&mut self, value: f64) -> Result<(), NotJson> {
        if !value.is_finite() {
            return Err(ser::Error::custom("a number that is not finite"));
        }
        self.out.extend_from_slice(ryu_js::Buffer::new().format_finite(value).as_bytes());
        Ok(())
    }
}

/// Whether a byte of a string must be escaped.
fn needs_escape(byte: u8) -> bool {
    (byte < 0x20) | (byte == b'"') | (byte == b'\\')
}

fn unsupported<T>(what: &str) -> Result<T, NotJson> {
    Err(ser::Error::custom(format!("{what} has no canonical form")))
}

macro_rules! integers {
    ($($method:ident: $type:ty),* $(,)?) => {
        $(fn $method(self, value: $type) -> Result<(), NotJson> {
            self.integer(i128::from(value))
        })*
    };
}

impl<'a> Serializer for &'a mut Writer {
    type Ok = ();
    type Error = NotJson;
    type SerializeSeq = Array<'a>;
    type SerializeTuple = Array<'a>;
    type SerializeTupleStruct = Impossible<(), NotJson>;
    type SerializeTupleVariant = Impossible<(), NotJson>;
    type SerializeMap = Object<'a>;
    type SerializeStruct = Object<'a>;
    type SerializeStructVariant = Impossible<(), NotJson>;

    integers! {
        serialize_i8: i8, serialize_i16: i16, serialize_i32: i32, serialize_i64: i64,
        serialize_u8: u8, serialize_u16: u16, serialize_u32: u32, serialize_u64: u64,
    }

    fn serialize_bool(self, value: bool) -> Result<(), NotJson> {
        self.out.extend_from_slice(if value { b"true" } else { b"false" });
        Ok(())
    }

    fn serialize_f32(self, value: f32) -> Result<(), NotJson> {
        self.double(f64::from(value))
    }

    fn serialize_f64(self, value: f64) -> Result<(), NotJson> {
        self.double(value)
    }

    fn serialize_char(self, value: char) -> Result<(), NotJson> {
        self.string(value.encode_utf8(&mut [0; 4]));
        Ok(())
    }

    fn serialize_str(self, value: &str) -> Result<(), NotJson> {
        self.string(value);
        Ok(())
    }

    fn serialize_bytes(self, _: &[u8]) -> Result<(), NotJson> {
        unsupported("a byte string")
    }

    fn serialize_none(self) -> Result<(), NotJson> {
        self.serialize_unit()
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), NotJson> {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result<(), NotJson> {
        self.out.extend_from_slice(b"null");
        Ok(())
    }

    fn serialize_unit_struct(self, _: &'static str) -> Result<(), NotJson> {
        self.serialize_unit()
    }

    fn serialize_unit_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
    ) -> Result<(), NotJson> {
        self.serialize_str(variant)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Result<(), NotJson> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: &T,
    ) -> Result<(), NotJson> {
        unsupported("an enum with data")
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Array<'a>, NotJson> {
        self.out.push(b'[');
        Ok(Array { writer: self, is_empty: true })
    }

    fn serialize_tuple(self, length: usize) -> Result<Array<'a>, NotJson> {
        self.serialize_seq(Some(length))
    }

    fn serialize_tuple_struct(
        self,
        _: &'static str,
        _: usize,
    ) -> Result<Self::SerializeTupleStruct, NotJson> {
        unsupported("a tuple struct")
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self::SerializeTupleVariant, NotJson> {
        unsupported("an enum with data")
    }

    fn serialize_map(self, length: Option<usize>) -> Result<Object<'a>, NotJson> {
        self.out.push(b'{');
        let members = Vec::with_capacity(length.unwrap_or_default().min(MEMBERS_EXPECTED_MAX));
        Ok(Object { start: self.out.len(), writer: self, members, in_order: true })
    }

    fn serialize_struct(self, _: &'static str, length: usize) -> Result<Object<'a>, NotJson> {
        self.serialize_map(Some(length))
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self::SerializeStructVariant, NotJson> {
        unsupported("an enum with data")
    }
}

struct Array<'a> {
    writer: &'a mut Writer,
    is_empty: bool,
}

impl ser::SerializeSeq for Array<'_> {
    type Ok = ();
    type Error = NotJson;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), NotJson> {
        if !std::mem::replace(&mut self.is_empty, false) {
            self.writer.out.push(b',');
        }
        value.serialize(&mut *self.writer)
    }

    fn end(self) -> Result<(), NotJson> {
        self.writer.out.push(b']');
        Ok(())
    }
}

impl ser::SerializeTuple for Array<'_> {
    type Ok = ();
    type Error = NotJson;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), NotJson> {
        ser::SerializeSeq::serialize_element(self, value)
    }

    fn end(self) -> Result<(), NotJson> {
        ser::SerializeSeq::end(self)
    }
}

/// An object that is being written: each member's bytes end with a comma until the object is closed.
struct Object<'a> {
    writer: &'a mut Writer,
    start: usize,
    members: Vec<Member>,
    in_order: bool,
}

struct Member {
    name: Cow<'static, str>,
    end: usize,
}

impl Object<'_> {
    /// Goes on with a member whose name has been written.
    fn named(&mut self, name: Cow<'static, str>) {
        if let Some(last) = self.members.last() {
            self.in_order &= utf16_order(&last.name, &name) == Ordering::Less;
        }
        self.writer.out.push(b':');
        self.members.push(Member { name, end: 0 });
    }

    fn value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), NotJson> {
        value.serialize(&mut *self.writer)?;
        self.writer.out.push(b',');
        let end = self.writer.out.len();
        if let Some(member) = self.members.last_mut() {
            member.end = end;
        }
        Ok(())
    }

    fn close(mut self) {
        if !self.in_order {
            self.put_in_order();
        }
        if self.members.is_empty() {
            self.writer.out.push(b'}');
        } else if let Some(comma) = self.writer.out.last_mut() {
            *comma = b'}';
        }
    }

    fn put_in_order(&mut self) {
        let mut from = self.start;
        let mut spans: Vec<_> = self
            .members
            .iter()
            .map(|member| (&member.name, std::mem::replace(&mut from, member.end)..member.end))
            .collect();
        spans.sort_by(|(a, _), (b, _)| utf16_order(a, b));
        let written = self.writer.out.split_off(self.start);
        for (_, span) in spans {
            let member = written.get(span.start - self.start..span.end - self.start);
            self.writer.out.extend_from_slice(member.unwrap_or_default());
        }
    }
}

/// RFC 8785 orders names by UTF-16 code units, which differs from code points beyond the BMP.
fn utf16_order(a: &str, b: &str) -> Ordering {
    if a.is_ascii() && b.is_ascii() { a.cmp(b) } else { a.encode_utf16().cmp(b.encode_utf16()) }
}

impl ser::SerializeMap for Object<'_> {
    type Ok = ();
    type Error = NotJson;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), NotJson> {
        let start = self.writer.out.len();
        key.serialize(&mut *self.writer)?;
        let written = self.writer.out.get(start..).unwrap_or_default();
        // Nearly all names have no escape: then the name is the text between the quotes.
        let plain = written.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\""));
        let name = match plain {
            Some(plain) if !plain.contains(&b'\\') => String::from_utf8(plain.to_vec()).ok(),
            Some(_) => serde_json::from_slice(written).ok(),
            None => None,
        };
        match name {
            Some(name) => {
                self.named(Cow::Owned(name));
                Ok(())
            }
            None => unsupported("a name that is not a string"),
        }
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), NotJson> {
        self.value(value)
    }

    fn end(self) -> Result<(), NotJson> {
        self.close();
        Ok(())
    }
}

impl ser::SerializeStruct for Object<'_> {
    type Ok = ();
    type Error = NotJson;

    fn serialize_field<T: Serialize + ?Sized>(
        &mut self,
        name: &'static str,
        value: &T,
    ) -> Result<(), NotJson> {
        self.writer.string(name);
        self.named(Cow::Borrowed(name));
        self.value(value)
    }

    fn end(self) -> Result<(), NotJson> {
        self.close();
        Ok(())
    }
}

#[cfg(test)]
mod tests;
