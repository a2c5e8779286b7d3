//! RFC 8785 on its published vectors.

use std::collections::BTreeMap;

use serde::Deserialize;
use stepgate_core::digest::Digest;
use stepgate_core::json::canonical;
use stepgate_core::json::strict::{self, DEPTH_MAX, Integers};

#[derive(Deserialize)]
struct Vector {
    input: String,
    output: String,
}

fn vectors() -> BTreeMap<String, Vector> {
    serde_json::from_str(include_str!("../vectors/rfc8785/vectors.json")).unwrap()
}

fn canonical_form(text: &str) -> String {
    canonical::text_of(&strict::parse(text.as_bytes(), DEPTH_MAX, Integers::Any).unwrap())
}

#[test]
fn the_published_inputs_have_the_published_forms() {
    assert_eq!(vectors().len(), 6);
    for (name, Vector { input, output }) in vectors() {
        assert_eq!(canonical_form(&input), output, "{name}");
    }
}

#[test]
fn a_published_form_is_its_own_form_and_digest() {
    for (name, Vector { input, output }) in vectors() {
        assert_eq!(canonical_form(&output), output, "{name}");
        let value = strict::parse(input.as_bytes(), DEPTH_MAX, Integers::Any).unwrap();
        assert_eq!(Digest::of(&value), Digest::of_bytes(output.as_bytes()), "{name}");
    }
}
