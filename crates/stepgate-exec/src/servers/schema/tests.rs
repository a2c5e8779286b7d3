use serde_json::json;

use super::*;

/// The rule that arguments break, or `ok`.
fn judged(schema: &Value, args: Value) -> String {
    let Value::Object(args) = args else { panic!("arguments are an object") };
    match Input::compile(schema).unwrap().check(&args) {
        Ok(()) => "ok".to_owned(),
        Err(broken) => broken.to_string(),
    }
}

fn check(schema: Value, rows: &[(Value, &str)]) {
    for (args, verdict) in rows {
        assert_eq!(judged(&schema, args.clone()), *verdict, "{args}");
    }
}

#[test]
fn an_argument_that_a_schema_does_not_name_is_refused() {
    let volume = json!({
        "type": "object",
        "properties": { "volume": { "type": "integer", "minimum": 0, "maximum": 100 } },
        "required": ["volume"],
    });
    let unknown = "loud: unknown argument";
    check(
        volume,
        &[
            (json!({ "volume": 20 }), "ok"),
            (json!({ "volume": 100 }), "ok"),
            (json!({ "volume": 101 }), "volume: value is greater than the maximum of 100"),
            (json!({ "volume": "x" }), "volume: value is not of type \"integer\""),
            (json!({}), "args: \"volume\" is a required property"),
            (json!({ "volume": 20, "loud": true }), unknown),
        ],
    );
}

#[test]
fn a_schema_that_names_nothing_takes_nothing() {
    let refused = "args: unknown argument";
    check(json!({ "type": "object" }), &[(json!({}), "ok"), (json!({ "x": 1 }), refused)]);
    check(json!({}), &[(json!({}), "ok"), (json!({ "x": 1 }), refused)]);
}

#[test]
fn a_schema_that_welcomes_more_is_left_as_it_is() {
    let properties = json!({ "a": { "type": "string" } });
    let open = [
        json!({ "properties": properties, "additionalProperties": true }),
        json!({ "properties": properties, "additionalProperties": { "type": "integer" } }),
        json!({ "properties": properties, "patternProperties": { "^x$": { "type": "integer" } } }),
    ];
    for schema in open {
        check(schema, &[(json!({ "a": "b", "x": 1 }), "ok")]);
    }
    check(
        json!({ "additionalProperties": { "type": "integer" } }),
        &[(json!({ "x": "y" }), "x: value is not of type \"integer\"")],
    );
}

#[test]
fn an_object_inside_is_closed_where_it_names_properties() {
    let refused = "at.z: unknown argument";
    let point = json!({ "type": "object", "properties": { "x": { "type": "number" } } });
    check(
        json!({ "properties": { "at": point, "tags": { "type": "object" } } }),
        &[
            (json!({ "at": { "x": 1 }, "tags": { "any": "thing" } }), "ok"),
            (json!({ "at": { "x": 1, "z": 2 } }), refused),
        ],
    );
    let refused = "way.1.z: unknown argument";
    check(
        json!({ "properties": { "way": { "type": "array", "items": point } } }),
        &[(json!({ "way": [{ "x": 1 }, { "z": 2 }] }), refused)],
    );
}

#[test]
fn a_composition_is_closed_as_a_whole() {
    for draft in
        ["https://json-schema.org/draft/2020-12/schema", "http://json-schema.org/draft-07/schema#"]
    {
        let schema = json!({
            "$schema": draft,
            "type": "object",
            "allOf": [{ "$ref": "#/definitions/named" }],
            "properties": { "age": { "type": "integer" }, "home": { "$ref": "#/definitions/named" } },
            "definitions": { "named": { "properties": { "name": { "type": "string" } } } },
        });
        let judge = |args| judged(&schema, args);
        assert_eq!(
            judge(json!({ "age": 1, "name": "a", "home": { "name": "b" } })),
            "ok",
            "{draft}"
        );
        assert_ne!(judge(json!({ "age": 1, "other": 2 })), "ok", "{draft}");
        assert_ne!(judge(json!({ "home": { "other": 2 } })), "ok", "{draft}");
        assert_ne!(judge(json!({ "name": 7 })), "ok", "{draft}");
    }
}

#[test]
fn a_schema_that_refers_to_itself_is_closed_and_ends() {
    let tree = json!({
        "properties": { "root": { "$ref": "#/$defs/node" } },
        "$defs": { "node": { "type": "object", "properties": {
            "value": { "type": "integer" },
            "left": { "$ref": "#/$defs/node" },
        } } },
    });
    check(tree, &[(json!({ "root": { "value": 1, "left": { "value": 2 } } }), "ok")]);
    let looped = json!({ "$ref": "#/$defs/a", "$defs": { "a": { "$ref": "#/$defs/a" } } });
    let _ = close::closed(&looped);
}

#[test]
fn a_format_and_a_pattern_are_enforced() {
    check(
        json!({ "properties": {
            "day": { "type": "string", "format": "date" },
            "room": { "type": "string", "pattern": "^[a-z]+$" },
        } }),
        &[
            (json!({ "day": "2026-11-15", "room": "kitchen" }), "ok"),
            (json!({ "day": "2026-11-32" }), "day: value is not a \"date\""),
            (json!({ "room": "K" }), "room: value does not match \"^[a-z]+$\""),
        ],
    );
}

#[test]
fn a_rule_does_not_repeat_what_broke_it() {
    let schema = json!({ "properties": { "secret": { "enum": ["a", "b"] } } });
    let said = judged(&schema, json!({ "secret": "hunter2" }));
    assert!(said.starts_with("secret: ") && !said.contains("hunter2"), "{said}");
}

#[test]
fn a_schema_that_refers_elsewhere_or_is_none_is_refused() {
    let broken = [
        json!({ "$ref": "https://example.invalid/schema.json" }),
        json!({ "$ref": "file:///etc/passwd" }),
        json!({ "$ref": "#/$defs/missing" }),
        json!({ "type": "objekt" }),
        json!({ "properties": { "a": { "pattern": "(?=x)" } } }),
        json!({ "$schema": "http://json-schema.org/draft-04/schema#" }),
    ];
    for schema in broken {
        assert!(Input::compile(&schema).is_err(), "{schema}");
        assert!(Output::compile(&schema).is_err(), "{schema}");
    }
}
