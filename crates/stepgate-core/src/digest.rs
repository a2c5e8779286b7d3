//! SHA-256 over bytes, or over the RFC 8785 form of a value.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, ser};
use sha2::{Digest as _, Sha256};

use crate::ids::{self, InvalidId};
use crate::json::canonical;

/// A SHA-256 digest, written as 64 lower-case hex digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest([u8; 32]);

impl Digest {
    /// Stands in place of the predecessor's digest where there is no predecessor.
    pub const ZERO: Self = Self([0; 32]);

    /// The digest of bytes as they are.
    pub fn of_bytes(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// The digest of a value's RFC 8785 form.
    pub fn of<T: Serialize + ?Sized>(value: &T) -> Self {
        Self::of_bytes(canonical::text_of(value).as_bytes())
    }

    fn hex(&self) -> [u8; 64] {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut out = [0; 64];
        for (pair, byte) in out.chunks_exact_mut(2).zip(self.0) {
            if let [high, low] = pair {
                *high = digit(DIGITS, byte >> 4);
                *low = digit(DIGITS, byte & 15);
            }
        }
        out
    }
}

/// An incremental digest of bytes that arrive in parts.
#[derive(Clone, Debug, Default)]
pub struct Digesting(Sha256);

impl Digesting {
    /// Takes more bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The digest of all of them.
    pub fn finish(self) -> Digest {
        Digest(self.0.finalize().into())
    }
}

fn digit(digits: &[u8; 16], nibble: u8) -> u8 {
    digits.get(usize::from(nibble)).copied().unwrap_or(b'0')
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hex = self.hex();
        f.write_str(std::str::from_utf8(&hex).map_err(|_| fmt::Error)?)
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Digest {
    type Err = InvalidId;

    fn from_str(text: &str) -> Result<Self, InvalidId> {
        let invalid = || InvalidId::new(text, "a digest of 64 lower-case hex digits");
        let value = |c: u8| match c {
            b'0'..=b'9' => Ok(c - b'0'),
            b'a'..=b'f' => Ok(c - b'a' + 10),
            _ => Err(invalid()),
        };
        let mut bytes = [0; 32];
        if text.len() != 64 {
            return Err(invalid());
        }
        for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
            if let [high, low] = pair {
                *byte = value(*high)? << 4 | value(*low)?;
            }
        }
        Ok(Self(bytes))
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let hex = self.hex();
        serializer.serialize_str(std::str::from_utf8(&hex).map_err(ser::Error::custom)?)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        ids::parsed(deserializer)
    }
}

#[cfg(test)]
mod tests;
