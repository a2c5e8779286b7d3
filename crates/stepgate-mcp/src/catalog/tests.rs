use serde_json::json;

use super::*;

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
