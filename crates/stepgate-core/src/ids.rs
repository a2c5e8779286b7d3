//! Names as types: an id never crosses a module as a bare `Uuid` or `String`.

use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use uuid::Uuid;

use crate::digest::Digest;

/// A text that is not the identifier it should be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not {expected}")]
pub struct InvalidId {
    text: String,
    expected: &'static str,
}

impl InvalidId {
    pub(crate) fn new(text: &str, expected: &'static str) -> Self {
        Self { text: text.chars().take(64).collect(), expected }
    }
}

/// Reads a string and parses it, without a copy of it.
pub(crate) fn parsed<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr<Err = InvalidId>,
{
    deserializer.deserialize_str(Parsing(PhantomData))
}

struct Parsing<T>(PhantomData<T>);

impl<T: FromStr<Err = InvalidId>> Visitor<'_> for Parsing<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(E::custom)
    }
}

/// A type that JSON holds as text: its schema, and how it is read with `FromStr`.
macro_rules! text_in_json {
    ($name:ident, $schema:tt) => {
        impl ::schemars::JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> ::std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut ::schemars::SchemaGenerator) -> ::schemars::Schema {
                ::schemars::json_schema!($schema)
            }
        }

        impl<'de> ::serde::Deserialize<'de> for $name {
            fn deserialize<D: ::serde::Deserializer<'de>>(text: D) -> Result<Self, D::Error> {
                $crate::ids::parsed(text)
            }
        }
    };
}

pub(crate) use text_in_json;

/// A type that is a text: how the text is shown.
macro_rules! shown_text {
    ($name:ident, $text:tt) => {
        impl $name {
            /// The text itself.
            pub fn as_str(&self) -> &str {
                &self.$text
            }
        }

        impl ::std::fmt::Display for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.write_str(&self.$text)
            }
        }
    };
}

pub(crate) use shown_text;

/// The same for a text that its `parse` has accepted, with how it is read, and how JSON holds it.
macro_rules! checked_text {
    ($name:ident, $text:tt) => {
        $crate::ids::shown_text!($name, $text);

        impl ::std::str::FromStr for $name {
            type Err = $crate::ids::InvalidId;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                Self::parse(text)
            }
        }

        impl ::serde::Serialize for $name {
            fn serialize<S: ::serde::Serializer>(&self, text: S) -> Result<S::Ok, S::Error> {
                text.serialize_str(&self.$text)
            }
        }

        impl<'de> ::serde::Deserialize<'de> for $name {
            fn deserialize<D: ::serde::Deserializer<'de>>(text: D) -> Result<Self, D::Error> {
                $crate::ids::parsed(text)
            }
        }
    };
}

pub(crate) use checked_text;

/// Reads the one spelling of a UUIDv7 that Stepgate writes: hyphenated, lower case.
fn lower_case_uuid_v7(text: &str) -> Result<Uuid, InvalidId> {
    let invalid = || InvalidId::new(text, "a UUIDv7 in lower case with hyphens");
    let id = Uuid::try_parse(text).map_err(|_| invalid())?;
    let mut spelling = Uuid::encode_buffer();
    let is_ours = id.hyphenated().encode_lower(&mut spelling) == text
        && id.get_version_num() == 7
        && id.get_variant() == uuid::Variant::RFC4122;
    if is_ours { Ok(id) } else { Err(invalid()) }
}

macro_rules! uuid_ids {
    ($($(#[$doc:meta])* $name:ident,)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(Uuid);

        impl $name {
            /// Wraps a UUID that the `World` port generated.
            pub fn new(id: Uuid) -> Self {
                Self(id)
            }

            /// The UUID itself, for code that derives another id from it.
            pub fn as_uuid(&self) -> Uuid {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.hyphenated().fmt(f)
            }
        }

        impl FromStr for $name {
            type Err = InvalidId;

            fn from_str(text: &str) -> Result<Self, InvalidId> {
                lower_case_uuid_v7(text).map(Self)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let mut spelling = Uuid::encode_buffer();
                serializer.serialize_str(self.0.hyphenated().encode_lower(&mut spelling))
            }
        }

        text_in_json!($name, { "type": "string", "format": "uuid" });
    )*};
}

uuid_ids! {
    /// One UUIDv7 for a step's run and its trace: `tool_run_id` and `trace_id` are this.
    RunId,
    /// One agent's conversation: spec 003's session, spec 004's `plan_id`.
    SessionId,
    /// A question to a person.
    ApprovalId,
    /// Any of the four artifacts of a trace.
    ArtifactId,
}

impl ArtifactId {
    /// An id in the form of every other one: a time, then bits that follow from a digest.
    pub(crate) fn derived(time: [u8; 6], from: &Digest) -> Self {
        let mut bytes = [0; 16];
        for (byte, bits) in bytes.iter_mut().zip(time.iter().chain(from.as_bytes())) {
            *byte = *bits;
        }
        let mut builder = uuid::Builder::from_bytes(bytes);
        builder.set_version(uuid::Version::SortRand).set_variant(uuid::Variant::RFC4122);
        Self(builder.into_uuid())
    }
}

/// The beginning of an id, as a person types it.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema)]
#[schemars(inline)]
pub struct IdPrefix(String);

checked_text!(IdPrefix, 0);

impl IdPrefix {
    /// Shortest beginning. A UUIDv7 begins with its time, so a shorter one would fit every id of an hour.
    pub const CHARS_MIN: usize = 8;

    /// Takes hexadecimal digits and hyphens, in any case.
    pub fn parse(text: &str) -> Result<Self, InvalidId> {
        let is_of_id = |c: char| c.is_ascii_hexdigit() || c == '-';
        match text.len() >= Self::CHARS_MIN && text.chars().all(is_of_id) {
            true => Ok(Self(text.to_ascii_lowercase())),
            false => Err(InvalidId::new(text, "the beginning of an id, from 8 characters on")),
        }
    }

    /// Whether an id begins with it.
    pub fn fits(&self, id: &impl ToString) -> bool {
        id.to_string().starts_with(&self.0)
    }
}

/// The proposal's own id. Answers repeat it as the agent spelled it; comparisons use the number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProposalId {
    spelling: String,
    id: Uuid,
}

impl ProposalId {
    /// Accepts the hyphenated form in either case; the shorter and the decorated forms are refused.
    pub fn parse(text: &str) -> Result<Self, InvalidId> {
        match Uuid::try_parse(text) {
            Ok(id) if text.len() == 36 => Ok(Self { spelling: text.to_owned(), id }),
            Ok(_) | Err(_) => Err(InvalidId::new(text, "a UUID with hyphens")),
        }
    }

    /// The id as the agent spelled it.
    pub fn as_str(&self) -> &str {
        &self.spelling
    }
}

impl From<Uuid> for ProposalId {
    fn from(id: Uuid) -> Self {
        Self { spelling: id.to_string(), id }
    }
}

/// Who acts: an agent or an operator, as authenticated.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, JsonSchema)]
#[schemars(inline)]
pub struct PrincipalId(String);

checked_text!(PrincipalId, 0);

impl PrincipalId {
    /// Longest name of a principal.
    pub const BYTES_MAX: usize = 64;

    /// The principal of the system session. No token can have this name.
    pub const SYSTEM: &str = "system";

    /// The principal of the system session.
    pub(crate) fn system() -> Self {
        Self(Self::SYSTEM.to_owned())
    }

    /// Letters, digits, `.`, `_` and `-`: nothing that could be confused with the `/` of a key.
    pub fn parse(text: &str) -> Result<Self, InvalidId> {
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        if text.is_empty() || text.len() > Self::BYTES_MAX || !text.chars().all(allowed) {
            return Err(InvalidId::new(
                text,
                "a principal: 1 to 64 letters, digits, `.`, `_` or `-`",
            ));
        }
        Ok(Self(text.to_owned()))
    }
}

/// `PRINCIPAL_ID/PROPOSAL_ID` (decision 7). Another principal's equal id is another key.
#[derive(
    Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(transparent)]
#[schemars(inline)]
pub struct IdempotencyKey(String);

shown_text!(IdempotencyKey, 0);

impl IdempotencyKey {
    /// The key under which this principal's proposal acts at most once.
    pub fn of(principal: &PrincipalId, proposal: &ProposalId) -> Self {
        Self(format!("{principal}/{}", proposal.id.hyphenated()))
    }

    /// A key that a store or a bundle holds.
    pub fn from_stored(text: String) -> Self {
        Self(text)
    }
}

#[cfg(test)]
mod tests;
