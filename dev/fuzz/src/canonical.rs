//! The canonical form against a second implementation of RFC 8785.

use stepgate_core::digest::Digest;
use stepgate_core::json::canonical as core;
use stepgate_core::json::strict::{self, DEPTH_MAX, Integers};

/// Both implementations write the same text for every value, and the text is its own form.
pub fn canonical(bytes: &[u8]) {
    let Ok(value) = strict::parse(bytes, DEPTH_MAX, Integers::Any) else { return };
    let ours = core::text_of(&value);
    let theirs = serde_json_canonicalizer::to_string(&value);
    assert_eq!(theirs.ok().as_deref(), Some(ours.as_str()), "two canonical forms");
    let again = strict::parse(ours.as_bytes(), DEPTH_MAX, Integers::Any);
    let again = again.map(|value| core::text_of(&value));
    assert_eq!(again.as_deref(), Ok(ours.as_str()), "no fixpoint");
    assert_eq!(Digest::of(&value), Digest::of_bytes(ours.as_bytes()), "another digest");
}
