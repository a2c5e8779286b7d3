//! SHA-256 over bytes, or over the RFC 8785 form of a value.

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer, ser};
use sha2::{Digest as _, Sha256};

use crate::ids::{InvalidId, text_in_json};
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
        Self::of_bytes(&canonical::bytes_of(value))
    }

    /// The bytes themselves, for code that derives an id from them or stores them.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The digest with these bytes, which were stored.
    pub fn from_stored(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    fn hex(&self) -> [u8; 64] {
        let mut out = [0; 64];
        for (pair, byte) in out.as_chunks_mut::<2>().0.iter_mut().zip(self.0) {
            *pair = [digit(byte >> 4), digit(byte & 15)];
        }
        out
    }
}

/// The lower-case hex digit of a number below 16. Without a branch or a table, so that the compiler can make
/// many digits at a time.
fn digit(nibble: u8) -> u8 {
    nibble + b'0' + u8::from(nibble > 9) * (b'a' - b'0' - 10)
}

/// The number of a lower-case hex digit; for any other byte, one above 15.
fn nibble(digit: u8) -> u8 {
    let number = digit.wrapping_sub(b'0');
    let letter = digit.wrapping_sub(b'a');
    let is_number = u8::from(number < 10);
    let is_letter = u8::from(letter < 6);
    is_number * number + is_letter * ((letter & 15) + 10) + (1 - is_number - is_letter) * 16
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
        let mut bytes = [0; 32];
        if text.len() != 64 {
            return Err(invalid());
        }
        let mut above = 0;
        for (byte, [high, low]) in bytes.iter_mut().zip(text.as_bytes().as_chunks::<2>().0) {
            let (high, low) = (nibble(*high), nibble(*low));
            above |= high | low;
            *byte = high << 4 | low & 15;
        }
        if above > 15 {
            return Err(invalid());
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

text_in_json!(Digest, { "type": "string", "pattern": "^[0-9a-f]{64}$" });

#[cfg(test)]
mod tests;
