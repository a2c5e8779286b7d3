use serde_json::json;
use stepgate_core::label::Flow;

use super::*;
use crate::shape::{ToolShape, of_args};

/// The unseen arguments with their causes, and the defaults, of a call with these arguments.
fn unseen(input_schema: &Value, args: Value) -> (Vec<String>, Value) {
    let record = of_args(input_schema);
    let View { unseen, defaults, .. } = view(&record, args.as_object().unwrap(), &[]).unwrap();
    let told = unseen.iter().map(|unseen| format!("{}: {}", unseen.name(), unseen.why()));
    (told.collect(), Value::Object(defaults))
}

fn schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "count": { "type": "integer" },
            "level": { "type": "number" },
            "levels": { "type": "array", "items": { "type": "number" } },
            "word": { "type": ["string", "null"] },
            "maybe": { "type": ["string", "null"], "default": null },
            "tags": { "type": "array", "items": { "type": "string" } },
            "mixed": { "type": ["string", "integer"] },
            "options": { "type": "object", "properties": {
                "level": { "type": "number" },
                "mode": { "type": "string", "default": "fast" },
            } },
            "rooms": { "type": "array", "items": {
                "type": "object",
                "properties": { "name": { "type": "string" }, "size": { "type": "integer", "default": 9 } },
            } },
        },
    })
}

#[test]
fn every_value_is_seen_exactly_or_named_with_the_reason() {
    let rows = [
        (
            json!({ "count": 1, "level": 2, "word": "a", "tags": [], "options": { "mode": "" } }),
            vec![],
        ),
        (json!({ "level": 100.0 }), vec![]),
        (json!({ "level": 1e2 }), vec![]),
        (json!({ "level": -0.0 }), vec![]),
        (json!({ "count": 9_007_199_254_740_991_i64 }), vec![]),
        (json!({ "count": -9_007_199_254_740_991_i64 }), vec![]),
        (
            json!({ "count": 9_007_199_254_740_992_i64 }),
            vec!["count: it is beyond ±9007199254740991"],
        ),
        (json!({ "count": 1e16 }), vec!["count: it is beyond ±9007199254740991"]),
        (json!({ "count": u64::MAX }), vec!["count: it is beyond ±9007199254740991"]),
        (json!({ "count": 0.5 }), vec!["count: it is a fraction"]),
        (json!({ "level": 0.5 }), vec![]),
        (json!({ "level": 922_337_203_685_477.5 }), vec![]),
        (
            json!({ "level": 922_337_203_685_478_i64 }),
            vec!["level: it is beyond ±922337203685477.5807"],
        ),
        (json!({ "level": -1e300 }), vec!["level: it is beyond ±922337203685477.5807"]),
        (json!({ "level": 0.00001 }), vec!["level: it is more precise than four decimal places"]),
        (json!({ "word": null }), vec!["word: it is null"]),
        // The schema declares that the tool treats null like an omitted argument.
        (json!({ "maybe": null }), vec![]),
        (json!({ "count": null }), vec!["count: it is null"]),
        (json!({ "count": "1" }), vec!["count: it is not of the type in the tool's schema"]),
        (
            json!({ "mixed": 1 }),
            vec!["mixed: it is of several types, or of none, in the tool's schema"],
        ),
        (json!({ "more": 1 }), vec!["more: it is not named in the tool's schema"]),
        (
            json!({ "options": { "level": 1.00005, "more": 1 } }),
            vec![
                "options.level: it is more precise than four decimal places",
                "options.more: it is not named in the tool's schema",
            ],
        ),
        (json!({ "levels": [0.5, 1, 2.25] }), vec![]),
        (
            json!({ "levels": [0.5, 1e-5] }),
            vec![
                "levels: an element of it is or has something more precise than four decimal places",
            ],
        ),
        // All of a list or none: without one element, `contains` would be answered wrongly.
        (
            json!({ "tags": ["evil", null] }),
            vec!["tags: an element of it is or has something null"],
        ),
        (json!({ "rooms": [{ "name": "a" }, {}] }), vec![]),
        (
            json!({ "rooms": [{ "name": "a" }, { "secret": 1 }] }),
            vec!["rooms: an element of it is or has something not named in the tool's schema"],
        ),
    ];
    for (args, expected) in rows {
        assert_eq!(unseen(&schema(), args.clone()).0, expected, "{args}");
    }
}

#[test]
fn a_declared_default_is_seen_as_if_it_had_been_given() {
    let rows = [
        (json!({}), json!({})),
        (json!({ "options": {} }), json!({ "/options/mode": "fast" })),
        (json!({ "options": { "mode": "slow" } }), json!({})),
        (json!({ "rooms": [{ "size": 1 }, {}] }), json!({ "/rooms/1/size": 9 })),
    ];
    for (args, expected) in rows {
        assert_eq!(unseen(&schema(), args.clone()), (vec![], expected), "{args}");
    }
    let input_schema = |default: Value| json!({ "type": "object", "properties": { "a/b": { "type": "number", "default": default } } });
    assert_eq!(unseen(&input_schema(json!(3)), json!({})), (vec![], json!({ "/a~1b": 3 })));
    assert_eq!(unseen(&input_schema(json!(0.5)), json!({})), (vec![], json!({ "/a~1b": 0.5 })));
    let told = vec!["a/b: its default is more precise than four decimal places".to_owned()];
    assert_eq!(unseen(&input_schema(json!(1e-5)), json!({})), (told, json!({ "/a~1b": 1e-5 })));
}

#[test]
fn a_redacted_argument_is_unseen_whether_it_is_given_or_defaulted() {
    let tool = ToolShape {
        name: stepgate_core::tool::ToolName::parse("s.t").unwrap(),
        mode: stepgate_core::tool::Mode::Draft,
        input_schema: json!({ "type": "object", "properties": {
            "pin": { "type": "string", "default": "0000" },
        } }),
        redacted: vec!["pin".to_owned(), "other".to_owned()],
        flow: Flow::default(),
        definition_digest: stepgate_core::digest::Digest::ZERO,
        is_accepted: true,
    };
    let record = tool.args();
    for args in [json!({}), json!({ "pin": "1" })] {
        let View { unseen, defaults, .. } = view(&record, args.as_object().unwrap(), &[]).unwrap();
        assert_eq!(unseen.iter().map(|unseen| unseen.cause).collect::<Vec<_>>(), [Cause::Redacted]);
        assert!(defaults.is_empty());
    }
}
