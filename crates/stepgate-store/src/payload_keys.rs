//! Original payloads whose rows have redacted arguments are encrypted before they reach a file or a database.
//!
//! A stored payload is [`VERSION`], the id of the key, the nonce, and what AES-256-GCM makes of the payload. The run's id is
//! authenticated with it, so the payload of another run does not open.

use std::fmt;
use std::sync::Arc;

use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use stepgate_core::digest::Digest;
use stepgate_core::ids::RunId;
use stepgate_core::journal::StateError;
use stepgate_core::ports::{ErasableArgs, OriginalPayload, StepCommit, StoreError};

use crate::Result;
use crate::select::StoredErasable;

/// The first byte. Earlier versions stored payloads as they came: JSON, which never begins like this.
const VERSION: u8 = 1;
/// Bytes of a key.
const KEY_BYTES: usize = 32;
/// Bytes of a key's id: they tell keys apart, and say nothing about them.
const ID_BYTES: usize = 8;

/// The keys of original payloads. The first one encrypts, and each of them decrypts.
///
/// Without any, payloads are stored as they came.
#[derive(Clone, Debug, Default)]
pub struct PayloadKeys(Arc<[PayloadKey]>);

struct PayloadKey {
    id: [u8; ID_BYTES],
    cipher: RandomizedNonceKey,
}

impl fmt::Debug for PayloadKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PayloadKey({})", hex(&self.id))
    }
}

impl PayloadKeys {
    /// Reads the text of a key file: one key a line, 64 hexadecimal digits each. Empty lines and lines that begin with `#`
    /// are skipped.
    pub fn parse(text: &str) -> std::result::Result<Self, String> {
        let lines = text.lines().map(str::trim).zip(1..);
        let lines = lines.filter(|(line, _)| !line.is_empty() && !line.starts_with('#'));
        let keys = lines.map(|(line, number)| {
            let key = bytes_of(line).and_then(|bytes| PayloadKey::of(&bytes));
            key.ok_or_else(|| format!("line {number} is not {} hexadecimal digits", 2 * KEY_BYTES))
        });
        let keys: Arc<[PayloadKey]> = keys.collect::<std::result::Result<_, _>>()?;
        if keys.is_empty() {
            return Err("it has no key".into());
        }
        Ok(Self(keys))
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The line of a key file with a new random key; none where the system gives no random numbers.
    pub fn fresh_line() -> Option<String> {
        let mut key = [0; KEY_BYTES];
        aws_lc_rs::rand::fill(&mut key).ok()?;
        Some(hex(&key))
    }

    /// The commit with its original payload and its erasable arguments encrypted.
    pub(crate) fn seal(&self, commit: StepCommit) -> Result<StepCommit> {
        let run_id = commit.place.run_id;
        let encrypted = |bytes: Option<Arc<[u8]>>| -> Result<Option<Arc<[u8]>>> {
            bytes.map(|bytes| self.encrypted(run_id, bytes)).transpose()
        };
        let (sealed, erasable) = (encrypted(commit.sealed)?, encrypted(commit.erasable)?);
        Ok(StepCommit { sealed, erasable, ..commit })
    }

    fn encrypted(&self, run_id: RunId, payload: Arc<[u8]>) -> Result<Arc<[u8]>> {
        let Some(key) = self.0.first() else { return Ok(payload) };
        let mut content = payload.to_vec();
        let aad = Aad::from(run_id.to_string());
        let nonce = key.cipher.seal_in_place_append_tag(aad, &mut content);
        let nonce = nonce
            .map_err(|_| StoreError::Unavailable("a payload could not be encrypted".into()))?;
        Ok([&[VERSION][..], &key.id, nonce.as_ref(), &content].concat().into())
    }

    /// The erasable arguments of a row.
    pub(crate) fn erasable(&self, (run_id, session_id, stored): StoredErasable) -> ErasableArgs {
        let args = self.open(run_id, stored);
        ErasableArgs { run_id, session_id, args }
    }

    /// An original payload as it came, from its stored form.
    pub(crate) fn open(
        &self,
        run_id: RunId,
        stored: Vec<u8>,
    ) -> Result<OriginalPayload, StateError> {
        let changed = || {
            StateError::checksum("what is kept apart does not open with its key: it was changed")
        };
        let Some(rest) = stored.strip_prefix(&[VERSION]) else {
            return Ok(OriginalPayload::Known(stored.into()));
        };
        let (id, rest) = rest.split_at_checked(ID_BYTES).ok_or_else(changed)?;
        let (nonce, content) = rest.split_at_checked(NONCE_LEN).ok_or_else(changed)?;
        let Some(key) = self.0.iter().find(|key| key.id == id) else {
            return Ok(OriginalPayload::Locked { key: hex(id) });
        };
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| changed())?;
        let (aad, mut content) = (Aad::from(run_id.to_string()), content.to_vec());
        let payload = key.cipher.open_in_place(nonce, aad, &mut content).map_err(|_| changed())?;
        Ok(OriginalPayload::Known(Arc::from(&*payload)))
    }
}

impl PayloadKey {
    fn of(bytes: &[u8; KEY_BYTES]) -> Option<Self> {
        let cipher = RandomizedNonceKey::new(&AES_256_GCM, bytes).ok()?;
        let named = Digest::of_bytes(&[b"stepgate payload key ", &bytes[..]].concat());
        let id = *named.as_bytes().first_chunk()?;
        Some(Self { id, cipher })
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The bytes of a key from its hexadecimal digits.
fn bytes_of(line: &str) -> Option<[u8; KEY_BYTES]> {
    let is_hex = line.len() == 2 * KEY_BYTES && line.bytes().all(|byte| byte.is_ascii_hexdigit());
    let digits = is_hex.then_some(line)?;
    let mut bytes = [0; KEY_BYTES];
    for (byte, pair) in bytes.iter_mut().zip(digits.as_bytes().chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests;
