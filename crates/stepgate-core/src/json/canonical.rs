//! RFC 8785: one spelling for every value, so that a digest means the value.
//!
//! It has its own serializer, so that a value can be hashed without building a tree first. Members are
//! written in the order in which they come and sorted only if they came out of order, so a struct whose
//! fields are declared in order costs nothing extra.

use std::cmp::Ordering;
use std::fmt::Display;
use std::ops::Range;

use serde::Serialize;
use serde::ser::{self, Impossible, Serializer};

/// The RFC 8785 form of a value.
///
/// Infallible for everything that Stepgate hashes: JSON values have no NaN, and our own types are
/// structs, strings, integers and lists of these.
pub fn text_of<T: Serialize + ?Sized>(value: &T) -> String {
    or_panic(to_text(value))
}

/// The bytes of [`text_of`].
pub fn bytes_of<T: Serialize + ?Sized>(value: &T) -> Vec<u8> {
    or_panic(to_bytes(value))
}

/// The RFC 8785 form of a value, or why it has none.
pub fn to_text<T: Serialize + ?Sized>(value: &T) -> Result<String, NotJson> {
    String::from_utf8(to_bytes(value)?).map_err(ser::Error::custom)
}

fn to_bytes<T: Serialize + ?Sized>(value: &T) -> Result<Vec<u8>, NotJson> {
    let mut writer = Writer { out: Vec::with_capacity(1024), members: Vec::with_capacity(32) };
    value.serialize(&mut writer)?;
    Ok(writer.out)
}

#[expect(clippy::panic, reason = "a type of ours that is not JSON is a defect found by any test")]
fn or_panic<T>(written: Result<T, NotJson>) -> T {
    match written {
        Ok(written) => written,
        Err(error) => panic!("not JSON: {error}"),
    }
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

struct Writer {
    out: Vec<u8>,
    /// The members so far of all objects that are being written, the innermost object's last.
    members: Vec<Member>,
}

/// Where a member stands in the output: its name with the quotes, and the end of its value.
struct Member {
    name: Range<usize>,
    end: usize,
}

impl Writer {
    fn string(&mut self, text: &str) -> Result<(), NotJson> {
        // Nearly all strings need no escape. The loop has no early exit, so that the compiler can check many
        // bytes at a time.
        if text.bytes().fold(false, |found, byte| found | needs_escape(byte)) {
            // Its escapes are those of RFC 8785.
            return serde_json::to_writer(&mut self.out, text).map_err(ser::Error::custom);
        }
        self.out.push(b'"');
        self.out.extend_from_slice(text.as_bytes());
        self.out.push(b'"');
        Ok(())
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
        self.string(value.encode_utf8(&mut [0; 4]))
    }

    fn serialize_str(self, value: &str) -> Result<(), NotJson> {
        self.string(value)
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

    fn serialize_map(self, _: Option<usize>) -> Result<Object<'a>, NotJson> {
        self.out.push(b'{');
        let (start, first) = (self.out.len(), self.members.len());
        Ok(Object { writer: self, start, first, last_field: "", in_order: true })
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
    /// Where its first member begins in the output.
    start: usize,
    /// The index of its first member.
    first: usize,
    /// The field before, where it is a struct.
    last_field: &'static str,
    in_order: bool,
}

impl Object<'_> {
    fn members(&self) -> &[Member] {
        self.writer.members.get(self.first..).unwrap_or_default()
    }

    /// Goes on with a member whose name was written from `start` on.
    fn named(&mut self, start: usize, follows: impl FnOnce(&[u8], &Member, &Member) -> bool) {
        let member = Member { name: start..self.writer.out.len(), end: 0 };
        if self.in_order
            && let Some(last) = self.members().last()
        {
            self.in_order = follows(&self.writer.out, last, &member);
        }
        self.writer.out.push(b':');
        self.writer.members.push(member);
    }

    fn value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), NotJson> {
        value.serialize(&mut *self.writer)?;
        self.writer.out.push(b',');
        let end = self.writer.out.len();
        // The members of objects in the value were taken off when those were closed.
        if let Some(member) = self.writer.members.last_mut() {
            member.end = end;
        }
        Ok(())
    }

    fn close(mut self) {
        if !self.in_order {
            self.put_in_order();
        }
        if self.members().is_empty() {
            self.writer.out.push(b'}');
        } else if let Some(comma) = self.writer.out.last_mut() {
            *comma = b'}';
        }
        self.writer.members.truncate(self.first);
    }

    fn put_in_order(&mut self) {
        let out = self.writer.out.as_slice();
        let mut members: Vec<&Member> = self.members().iter().collect();
        members.sort_by(|a, b| order(part(out, &a.name), part(out, &b.name)));
        let mut sorted = Vec::with_capacity(out.len() - self.start);
        for member in members {
            sorted.extend_from_slice(part(out, &(member.name.start..member.end)));
        }
        self.writer.out.truncate(self.start);
        self.writer.out.extend_from_slice(&sorted);
    }
}

fn part<'a>(out: &'a [u8], range: &Range<usize>) -> &'a [u8] {
    out.get(range.clone()).unwrap_or_default()
}

/// RFC 8785 orders names by UTF-16 code units, which differs from code points beyond the BMP.
fn utf16_order(a: &str, b: &str) -> Ordering {
    if a.is_ascii() && b.is_ascii() { a.cmp(b) } else { a.encode_utf16().cmp(b.encode_utf16()) }
}

/// The order of two names as they were written, in quotes. Nearly all of them have no escape and are ASCII:
/// then it is the order of the bytes.
fn order(a: &[u8], b: &[u8]) -> Ordering {
    match (plain(a), plain(b)) {
        (Some(a), Some(b)) => a.cmp(b),
        (None, _) | (_, None) => {
            let name = |quoted| serde_json::from_slice::<String>(quoted).unwrap_or_default();
            utf16_order(&name(a), &name(b))
        }
    }
}

/// A name without its quotes, where its bytes are its characters.
fn plain(quoted: &[u8]) -> Option<&[u8]> {
    let name = quoted.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
    (name.is_ascii() && !name.contains(&b'\\')).then_some(name)
}

impl ser::SerializeMap for Object<'_> {
    type Ok = ();
    type Error = NotJson;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), NotJson> {
        let start = self.writer.out.len();
        key.serialize(&mut *self.writer)?;
        if self.writer.out.get(start) != Some(&b'"') {
            return unsupported("a name that is not a string");
        }
        self.named(start, |out, last, next| {
            order(part(out, &last.name), part(out, &next.name)) == Ordering::Less
        });
        Ok(())
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
        let start = self.writer.out.len();
        self.writer.string(name)?;
        let last = std::mem::replace(&mut self.last_field, name);
        self.named(start, |_, _, _| utf16_order(last, name) == Ordering::Less);
        self.value(value)
    }

    fn end(self) -> Result<(), NotJson> {
        self.close();
        Ok(())
    }
}

#[cfg(test)]
mod tests;
