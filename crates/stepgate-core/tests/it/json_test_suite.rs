//! JSONTestSuite: what is JSON (`y_`), what is not (`n_`), and what parsers disagree on (`i_`).

use std::collections::BTreeMap;

use stepgate_core::json::strict::{self, Integers, Refusal};

const DEPTH_MAX: usize = 64;

/// The JSON texts that Stepgate refuses all the same, each by a rule of its own.
const REFUSED_BY_DESIGN: [(&str, Refusal); 2] = [
    // Parsers differ in which of two equal names wins, so neither may.
    ("y_object_duplicated_key", Refusal::DuplicateKey),
    ("y_object_duplicated_key_and_value", Refusal::DuplicateKey),
];

/// What Stepgate does where the suite leaves the choice: nothing that loses or guesses.
const LEFT_OPEN: [(&str, Result<(), Refusal>); 35] = [
    ("i_number_double_huge_neg_exp", Ok(())),
    ("i_number_huge_exp", Err(Refusal::NumberRange)),
    ("i_number_neg_int_huge_exp", Err(Refusal::NumberRange)),
    ("i_number_pos_double_huge_exp", Err(Refusal::NumberRange)),
    ("i_number_real_neg_overflow", Err(Refusal::NumberRange)),
    ("i_number_real_pos_overflow", Err(Refusal::NumberRange)),
    ("i_number_real_underflow", Ok(())),
    ("i_number_too_big_neg_int", Err(Refusal::NumberRange)),
    ("i_number_too_big_pos_int", Err(Refusal::NumberRange)),
    ("i_number_very_big_negative_int", Err(Refusal::NumberRange)),
    ("i_object_key_lone_2nd_surrogate", Err(Refusal::Syntax)),
    ("i_string_1st_surrogate_but_2nd_missing", Err(Refusal::Syntax)),
    ("i_string_1st_valid_surrogate_2nd_invalid", Err(Refusal::Syntax)),
    ("i_string_UTF-16LE_with_BOM", Err(Refusal::InvalidUtf8)),
    ("i_string_UTF-8_invalid_sequence", Err(Refusal::InvalidUtf8)),
    ("i_string_UTF8_surrogate_U+D800", Err(Refusal::InvalidUtf8)),
    ("i_string_incomplete_surrogate_and_escape_valid", Err(Refusal::Syntax)),
    ("i_string_incomplete_surrogate_pair", Err(Refusal::Syntax)),
    ("i_string_incomplete_surrogates_escape_valid", Err(Refusal::Syntax)),
    ("i_string_invalid_lonely_surrogate", Err(Refusal::Syntax)),
    ("i_string_invalid_surrogate", Err(Refusal::Syntax)),
    ("i_string_invalid_utf-8", Err(Refusal::InvalidUtf8)),
    ("i_string_inverted_surrogates_U+1D11E", Err(Refusal::Syntax)),
    ("i_string_iso_latin_1", Err(Refusal::InvalidUtf8)),
    ("i_string_lone_second_surrogate", Err(Refusal::Syntax)),
    ("i_string_lone_utf8_continuation_byte", Err(Refusal::InvalidUtf8)),
    ("i_string_not_in_unicode_range", Err(Refusal::InvalidUtf8)),
    ("i_string_overlong_sequence_2_bytes", Err(Refusal::InvalidUtf8)),
    ("i_string_overlong_sequence_6_bytes", Err(Refusal::InvalidUtf8)),
    ("i_string_overlong_sequence_6_bytes_null", Err(Refusal::InvalidUtf8)),
    ("i_string_truncated-utf-8", Err(Refusal::InvalidUtf8)),
    ("i_string_utf16BE_no_BOM", Err(Refusal::InvalidUtf8)),
    ("i_string_utf16LE_no_BOM", Err(Refusal::InvalidUtf8)),
    ("i_structure_500_nested_arrays", Err(Refusal::TooDeep)),
    ("i_structure_UTF-8_BOM_empty_object", Err(Refusal::Syntax)),
];

/// The suite's files by name; the large ones are made here.
fn suite() -> BTreeMap<String, Vec<u8>> {
    let packed = include_str!("../vectors/json_test_suite/vectors.json");
    let hex: BTreeMap<String, String> = serde_json::from_str(packed).unwrap();
    let mut files: BTreeMap<_, _> =
        hex.into_iter().map(|(name, hex)| (name, bytes_of(&hex))).collect();
    let large = [
        ("n_structure_100000_opening_arrays", "[".repeat(100_000)),
        ("n_structure_open_array_object", format!("{}\n", "[{\"\":".repeat(50_000))),
        ("i_structure_500_nested_arrays", format!("{}{}", "[".repeat(500), "]".repeat(500))),
    ];
    for (name, text) in large {
        assert!(files.insert(name.into(), text.into_bytes()).is_none());
    }
    files
}

fn bytes_of(hex: &str) -> Vec<u8> {
    let pairs = hex.as_bytes().chunks(2);
    pairs.map(|pair| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

/// Judges every file whose name begins like this and returns how many there were.
fn check(prefix: &str, expected: impl Fn(&str, &Result<(), Refusal>) -> bool) -> usize {
    let files: Vec<_> = suite().into_iter().filter(|(name, _)| name.starts_with(prefix)).collect();
    for (name, bytes) in &files {
        let judged = strict::parse(bytes, DEPTH_MAX, Integers::Exact).map(drop);
        assert!(expected(name, &judged), "{name}: {judged:?}");
    }
    files.len()
}

#[test]
fn everything_that_is_not_json_is_refused() {
    assert_eq!(check("n_", |_, judged| judged.is_err()), 188);
}

#[test]
fn everything_that_is_json_is_accepted_but_for_the_rules_of_our_own() {
    let by_design = BTreeMap::from(REFUSED_BY_DESIGN);
    let count =
        check("y_", |name, judged| *judged == by_design.get(name).map_or(Ok(()), |r| Err(*r)));
    assert_eq!(count, 95);
}

#[test]
fn what_the_suite_leaves_open_is_decided_and_listed() {
    let listed = BTreeMap::from(LEFT_OPEN);
    assert_eq!(check("i_", |name, judged| listed.get(name) == Some(judged)), listed.len());
}

#[test]
fn without_the_exact_limit_only_integers_are_judged_otherwise() {
    let differ: Vec<_> = suite()
        .into_iter()
        .filter(|(_, bytes)| {
            let judged = |integers| strict::parse(bytes, DEPTH_MAX, integers).map(drop);
            judged(Integers::Exact) != judged(Integers::Any)
        })
        .map(|(name, _)| name)
        .collect();
    assert_eq!(
        differ,
        ["i_number_too_big_neg_int", "i_number_too_big_pos_int", "i_number_very_big_negative_int"]
    );
}
