use serde_json::json;

use super::*;

fn definition(description: &str, order: [&str; 2]) -> Definition {
    let input = json!({ "properties": { "kind": { "enum": order } } });
    let entry = json!({ "name": "set", "description": description, "inputSchema": input });
    Definition::read(&entry).unwrap()
}

fn check(pin: Pin, present: &Definition, pinning: Pinning, expected: (Standing, Digest)) {
    let name = ToolName::parse("lamp.set").unwrap();
    let pins = Pins::new(BTreeMap::from([(name.clone(), pin)]));
    assert_eq!(pins.standing(&name, present, pinning), expected);
}

#[test]
fn a_definition_that_means_the_same_keeps_its_pin_and_what_was_decided_for_it() {
    let (accepted, present) = (definition("d", ["a", "b"]), definition("d", ["b", "a"]));
    assert_ne!(accepted.digest, present.digest);
    let kept = (Standing::Accepted, accepted.digest);
    check(Pin::of(&accepted, None), &present, Pinning::Definition, kept);
    check(Pin::of(&accepted, None), &present, Pinning::NamesAndTypes, kept);
    // Without the stored definition, meanings cannot be compared.
    let bare = Pin::new(accepted.digest, None, Beside::default());
    check(bare.clone(), &present, Pinning::Definition, (Standing::Changed, present.digest));
    check(bare, &accepted, Pinning::Definition, kept);
}

#[test]
fn with_names_and_types_a_description_may_change_and_an_approval_does_not_pass_on() {
    let (accepted, present) = (definition("d", ["a", "b"]), definition("other", ["c", "d"]));
    let pin = Pin::of(&accepted, None);
    check(pin.clone(), &present, Pinning::Definition, (Standing::Changed, present.digest));
    check(pin, &present, Pinning::NamesAndTypes, (Standing::Accepted, present.digest));
}

#[test]
fn a_definition_that_is_not_the_pinned_one_is_not_believed() {
    let (accepted, other) = (definition("d", ["a", "b"]), definition("other", ["a", "b"]));
    let forged = Pin::new(accepted.digest, Some(other.pinned.clone()), Beside::default());
    assert_eq!(forged.definition(), None);
    check(forged, &other, Pinning::Definition, (Standing::Changed, other.digest));
}

#[test]
fn a_definition_that_is_too_long_is_pinned_without_being_kept() {
    let kept = |length| {
        let words = "x".repeat(length);
        Pin::of(&definition(&words, ["a", "b"]), None).definition().is_some()
    };
    let around = definition("", ["a", "b"]).pinned.to_string().len();
    assert!(kept(DEFINITION_BYTES_MAX - around));
    assert!(!kept(DEFINITION_BYTES_MAX - around + 1));
}
