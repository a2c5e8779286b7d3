use serde_json::json;

use super::*;

#[test]
fn a_name_is_made_of_what_the_model_apis_take() {
    let long = "a".repeat(60);
    let rows = [
        ("sonos__set_volume".to_owned(), "sonos__set_volume".to_owned()),
        ("files__read/all.txt".to_owned(), "files__read_all_txt".to_owned()),
        (format!("s__{long}b"), format!("s__{long}b")),
    ];
    for (name, expected) in rows {
        assert_eq!(fitted(&name), expected);
    }
}

#[test]
fn a_name_that_is_too_long_ends_with_a_digest_of_all_of_it() {
    let long = "a".repeat(70);
    let (one, other) = (fitted(&format!("s__{long}b")), fitted(&format!("s__{long}c")));
    assert_eq!(one.len(), NAME_BYTES_MAX);
    assert_eq!(other.len(), NAME_BYTES_MAX);
    assert_ne!(one, other);
    assert!(one.starts_with("s__aaaa"), "{one}");
}

#[test]
fn meta_is_passed_on_up_to_its_length_and_without_the_keys_of_the_gate() {
    let of_length = |bytes: usize| {
        let around = json!({ "k": "" }).to_string().len();
        json!({ "k": "x".repeat(bytes - around) })
    };
    let rows = [
        (json!({ "a": 1, "stepgate/verdict": 2, "Stepgate/run-id": 3 }), Some(json!({ "a": 1 }))),
        (json!({ "stepgate/verdict": 2 }), None),
        (json!({}), None),
        (json!("text"), None),
        (of_length(META_BYTES_MAX), Some(of_length(META_BYTES_MAX))),
        (of_length(META_BYTES_MAX + 1), None),
    ];
    for (meta, expected) in rows {
        let passed_on = passed_on(&meta).map(|passed_on| Value::Object(passed_on.0));
        assert_eq!(passed_on, expected);
    }
}
