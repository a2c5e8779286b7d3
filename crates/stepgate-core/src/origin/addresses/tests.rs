use std::collections::BTreeSet;

use super::addresses_in;
use crate::json::strict;
use crate::origin::Spelled;

/// The table of the measurements with AgentDojo: texts, and the addresses in them.
#[test]
fn addresses_are_found_as_the_vectors_say() {
    let vectors = strict::stored(include_str!("../vectors.json")).unwrap();
    for (text, expected) in vectors["addresses"].as_object().unwrap() {
        let expected =
            expected.as_array().unwrap().iter().map(|it| Spelled::of(it.as_str().unwrap()));
        let expected: BTreeSet<Spelled> = expected.collect();
        let found: BTreeSet<Spelled> =
            addresses_in(text).iter().map(|it| Spelled::of(it)).collect();
        assert_eq!(found, expected, "{text:?}");
    }
}

#[test]
fn other_forms_of_the_same_letters_are_addresses_too() {
    let rows = [
        ("see ⓔⓥⓘⓛ.ⓒⓞⓜ", "evil.com"),
        ("see ｅｖｉｌ．ｃｏｍ", "evil.com"),
        ("mail mallory＠evil.example", "mallory@evil.example"),
        ("see e\u{200b}v\u{ad}il.com", "evil.com"),
        ("see https://evil.com/Path", "https://evil.com/Path"),
    ];
    for (text, expected) in rows {
        assert_eq!(addresses_in(text), BTreeSet::from([expected.to_owned()]), "{text}");
    }
}
