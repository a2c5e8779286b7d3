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
    let why = "its schema refers to itself for the same value, without end";
    assert_eq!(refused(&looped), SchemaError(why.to_owned()));
}

fn refused(schema: &Value) -> SchemaError {
    Input::compile(schema).unwrap_err()
}

/// Definitions `d0`, `d1` and so on; each is made from a reference to the next one.
fn chain(length: usize, link: impl Fn(&str) -> Value) -> Value {
    let link = |at: usize| link(&format!("#/$defs/d{}", at + 1));
    let mut defs: Map<String, Value> = (0..length).map(|at| (format!("d{at}"), link(at))).collect();
    defs.insert(format!("d{length}"), json!({ "properties": { "a": { "type": "string" } } }));
    json!({ "$ref": "#/$defs/d0", "$defs": defs })
}

#[test]
fn a_schema_that_doubles_with_every_reference_is_too_costly_and_known_at_once() {
    let keywords = ["allOf", "anyOf", "oneOf"];
    for keyword in keywords {
        let bomb = chain(30, |next| json!({ keyword: [{ "$ref": next }, { "$ref": next }] }));
        let costly = "its schema would judge one value more than 16384 times";
        assert_eq!(refused(&bomb), SchemaError(costly.to_owned()), "{keyword}");
        assert!(Output::compile(&bomb).is_err(), "{keyword}");
    }
    let again =
        chain(30, |next| json!({ "allOf": [{ "$ref": next }], "unevaluatedProperties": false }));
    assert_eq!(
        refused(&again),
        SchemaError("its schema would judge one value more than 16384 times".to_owned())
    );
    let inside =
        chain(30, |next| json!({ "properties": { "x": { "$ref": next }, "y": { "$ref": next } } }));
    check(inside, &[(json!({ "x": { "y": {} } }), "ok")]);
}

#[test]
fn a_schema_at_its_limits_is_used_and_beyond_them_is_too_costly() {
    let doubling =
        |length| chain(length, |next| json!({ "allOf": [{ "$ref": next }, { "$ref": next }] }));
    // 2^n leaves, two places for each link above them, and the root.
    check(
        doubling(11),
        &[(json!({ "a": "b" }), "ok"), (json!({ "b": "b" }), "args: unknown argument")],
    );
    assert!(refused(&doubling(13)).0.contains("more than 16384 times"));
    let long = |length| chain(length, |next| json!({ "$ref": next }));
    check(long(63), &[(json!({ "a": "b" }), "ok")]);
    assert!(refused(&long(64)).0.contains("refers on and on"));
    let wide = |count: usize| {
        let names = (0..count).map(|at| (format!("p{at}"), json!({})));
        json!({ "properties": names.collect::<Map<_, _>>() })
    };
    check(wide(outline::PLACES_MAX - 1), &[(json!({ "p7": 1 }), "ok")]);
    let why = "its schema has more than 4096 parts";
    assert_eq!(refused(&wide(outline::PLACES_MAX)), SchemaError(why.to_owned()));
}

/// A value of this many levels.
fn nested(levels: usize) -> Value {
    (0..levels).fold(json!({}), |inner, _| json!({ "n": inner }))
}

#[test]
fn a_value_that_doubles_the_work_with_every_level_is_refused_unjudged() {
    let twice = json!({ "properties": { "n": { "$ref": "#/$defs/node" } }, "$defs": { "node": { "allOf": [
        { "properties": { "n": { "$ref": "#/$defs/node" } } },
        { "properties": { "n": { "$ref": "#/$defs/node" } } },
    ] } } });
    let costly = "args: would cost too much to check against the tool's schema";
    check(twice.clone(), &[(nested(8), "ok"), (nested(60), costly)]);
    assert!(Output::compile(&twice).unwrap().check(&nested(60)).is_err());
}

#[test]
fn a_deep_value_and_a_long_schema_fit_the_stack() {
    let deep = json!({ "properties": { "n": { "$ref": "#/$defs/a" } }, "$defs": {
        "a": { "allOf": [{ "allOf": [{ "anyOf": [{ "$ref": "#/$defs/b" }] }] }] },
        "b": { "properties": { "n": { "$ref": "#/$defs/a" } } },
    } });
    check(deep, &[(nested(60), "ok")]);
}

#[test]
fn a_schema_that_names_its_properties_again_and_again_is_too_costly() {
    let named: Map<_, _> = (0..1200).map(|at| (format!("p{at}"), json!(true))).collect();
    let used: Map<_, _> =
        (0..2000).map(|at| (format!("u{at}"), json!({ "$ref": "#/$defs/wide" }))).collect();
    let schema = json!({ "properties": used, "$defs": { "wide": { "properties": named } } });
    assert!(refused(&schema).0.contains("more than 1000000 times over"));
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
        json!({ "type": "any" }),
        json!({ "properties": { "a": { "pattern": "(?=x" } } }),
        json!({ "$schema": "http://json-schema.org/draft-03/schema#" }),
    ];
    for schema in broken {
        assert!(Input::compile(&schema).is_err(), "{schema}");
        assert!(Output::compile(&schema).is_err(), "{schema}");
    }
}

/// Schemas, each with arguments that it must refuse although no single part of it refuses them.
fn slips() -> Vec<(Value, Value)> {
    let a = json!({ "properties": { "a": {} }, "additionalProperties": false });
    let b = json!({ "properties": { "b": {} } });
    let k = json!({ "$anchor": "opt", "properties": { "k": { "type": "string" } } });
    let node = json!({ "$dynamicAnchor": "node", "properties": { "k": { "type": "string" } } });
    let never = json!({ "properties": { "a": {} }, "additionalProperties": { "not": {} } });
    let swept = json!({ "properties": { "a": {} }, "unevaluatedProperties": false });
    let odd = json!({ "properties": { "p": { "properties": { "k": {} } } } });
    let draft_07 = "http://json-schema.org/draft-07/schema#";
    let evil = json!({ "k": "x", "evil": 1 });
    vec![
        (json!({ "anyOf": [a, b] }), json!({ "b": 1, "evil": 2 })),
        (json!({ "anyOf": [never, b] }), json!({ "b": 1, "evil": 2 })),
        (json!({ "anyOf": [swept, b] }), json!({ "b": 1, "evil": 2 })),
        (json!({ "$ref": "#opt", "$defs": { "o": k } }), evil.clone()),
        (json!({ "allOf": [{ "$ref": "#opt" }], "$defs": { "o": k } }), evil.clone()),
        (json!({ "$dynamicRef": "#node", "$defs": { "o": node } }), evil.clone()),
        (json!({ "$ref": "#/$defs/a%20b", "$defs": { "a b": k } }), evil.clone()),
        (
            json!({ "$id": "https://e.invalid/t", "$ref": "https://e.invalid/t#opt", "$defs": { "o": k } }),
            evil.clone(),
        ),
        (
            json!({ "$schema": draft_07, "$ref": "#/definitions/o", "definitions": { "o": {
                "type": "object", "properties": { "k": { "type": "string" } },
            } } }),
            evil.clone(),
        ),
        (
            json!({ "$schema": draft_07, "allOf": [{ "$ref": "#opt" }], "definitions": { "o": {
                "$id": "#opt", "properties": { "k": { "type": "string" } },
            } } }),
            evil,
        ),
        (
            json!({ "$ref": "#/components/o", "components": { "o": odd } }),
            json!({ "p": { "k": 1, "evil": 2 } }),
        ),
    ]
}

#[test]
fn what_no_part_of_a_composition_names_is_refused() {
    for (schema, args) in slips() {
        let verdict = judged(&schema, args.clone());
        assert!(verdict.ends_with("unknown argument"), "{schema}: {verdict}");
        let Value::Object(mut known) = args else { panic!("arguments are an object") };
        known.remove("evil");
        if let Some(Value::Object(inner)) = known.get_mut("p") {
            inner.remove("evil");
        }
        assert_eq!(judged(&schema, Value::Object(known)), "ok", "{schema}");
    }
}

#[test]
fn a_part_that_names_by_pattern_and_refuses_the_rest_names_by_pattern() {
    let x = json!({ "patternProperties": { "^x-": {} }, "additionalProperties": false });
    let schema = json!({ "anyOf": [x, { "properties": { "b": {} } }] });
    let rows = [
        (json!({ "x-1": 1 }), "ok"),
        (json!({ "b": 1 }), "ok"),
        (json!({ "b": 1, "y": 1 }), "args: unknown argument"),
    ];
    check(schema, &rows);
}

#[test]
fn a_reference_that_cannot_be_followed_within_the_schema_is_refused() {
    let inner = json!({ "$id": "https://e.invalid/inner", "properties": { "k": {} } });
    let rows = [
        json!({ "$ref": "#nobody" }),
        json!({ "$ref": "inner", "$defs": { "o": inner } }),
        json!({ "$ref": "#/$defs/o", "$defs": { "o": inner } }),
        json!({ "$ref": "https://json-schema.org/draft/2020-12/schema" }),
        json!({ "$ref": "#a", "$defs": { "o": { "$anchor": "a" }, "p": { "$anchor": "a" } } }),
        json!({ "properties": { "a": { "$schema": "http://json-schema.org/draft-07/schema#" } } }),
    ];
    for schema in rows {
        assert!(Input::compile(&schema).is_err(), "{schema}");
    }
}

#[test]
fn a_condition_is_not_made_stricter_than_it_is() {
    let ask = json!({ "properties": { "o": { "properties": { "k": { "const": 1 } } } } });
    let schema = json!({
        "properties": { "o": { "type": "object" }, "b": {} },
        "if": ask,
        "then": { "required": ["b"] },
    });
    let rows = [
        (json!({ "o": { "k": 1, "more": 2 } }), "args: \"b\" is a required property"),
        (json!({ "o": { "k": 2 } }), "ok"),
    ];
    check(schema, &rows);
}

#[test]
fn the_older_drafts_are_read_in_their_own_words() {
    let old = "http://json-schema.org/draft-04/schema#";
    let bounds = json!({ "type": "integer", "minimum": 0, "exclusiveMinimum": true, "maximum": 9 });
    let rows = [
        (json!({ "n": 1 }), "ok"),
        (json!({ "n": 9 }), "ok"),
        (json!({ "n": 0 }), "n: value is less than or equal to the minimum of 0"),
        (json!({ "n": 1, "evil": 1 }), "evil: unknown argument"),
    ];
    let drafts = [
        json!(old),
        json!("http://json-schema.org/draft-06/schema#"),
        json!("https://json-schema.org/draft/2019-09/schema"),
        json!("https://json-schema.org/draft/2020-12/schema"),
        Value::Null,
    ];
    for draft in drafts {
        let mut schema = json!({ "$schema": draft, "properties": { "n": bounds } });
        if draft.is_null() {
            schema.as_object_mut().unwrap().remove("$schema");
        }
        check(schema, &rows);
    }
    let lax = json!({ "properties": { "n": { "minimum": 3, "exclusiveMinimum": false } } });
    check(lax, &[(json!({ "n": 3 }), "ok")]);
    // A value that looks like a schema is not one.
    let value =
        json!({ "properties": { "n": { "const": { "minimum": 1, "exclusiveMinimum": true } } } });
    check(value, &[(json!({ "n": { "minimum": 1, "exclusiveMinimum": true } }), "ok")]);
}

#[test]
fn what_no_part_of_an_old_composition_names_is_refused() {
    let named = json!({ "id": "#opt", "properties": { "k": { "type": "string" } } });
    let old = json!({
        "$schema": "http://json-schema.org/draft-04/schema#",
        "allOf": [{ "$ref": "#opt" }],
        "definitions": { "o": named },
    });
    let node = json!({
        "$schema": "https://json-schema.org/draft/2019-09/schema",
        "$recursiveAnchor": true,
        "properties": { "k": { "type": "string" }, "next": { "$recursiveRef": "#" } },
    });
    for schema in [old, node.clone()] {
        check(
            schema,
            &[
                (json!({ "k": "x" }), "ok"),
                (json!({ "k": 1 }), "k: value is not of type \"string\""),
            ],
        );
    }
    assert!(
        judged(&node, json!({ "next": { "k": "x", "evil": 1 } })).ends_with("unknown argument")
    );
    assert_eq!(judged(&node, json!({ "next": { "k": "x" } })), "ok");
}

#[test]
fn a_pattern_that_looks_around_is_enforced() {
    let schema = json!({ "properties": {
        "name": { "type": "string", "pattern": "^(?!.*secret)[a-z]+$" },
        "not": { "not": { "pattern": "^(?=a).+$" } },
    } });
    check(
        schema,
        &[
            (json!({ "name": "plain" }), "ok"),
            (json!({ "name": "asecretb" }), "name: value does not match \"^(?!.*secret)[a-z]+$\""),
            (json!({ "not": "b" }), "ok"),
            (json!({ "not": "abc" }), "not: {\"pattern\":\"^(?=a).+$\"} is not allowed for value"),
        ],
    );
}

#[test]
fn a_hostile_pattern_cannot_be_made_to_run_for_long() {
    // Each `x` doubles the ways to match, and the look-ahead rules out the linear engine.
    let evil = "^(?=x)(x+x+)+(?!y)y$";
    let begun = std::time::Instant::now();
    for schema in [
        json!({ "properties": { "a": { "pattern": evil } } }),
        json!({ "properties": { "a": { "not": { "pattern": evil } } } }),
        json!({ "properties": { "a": { "items": { "pattern": evil } } } }),
        json!({ "properties": { "a": { "propertyNames": { "anyOf": [{ "pattern": evil }] } } } }),
        json!({ "properties": { "a": { "patternProperties": { evil: {} } } } }),
    ] {
        let text = "x".repeat(200);
        let many: Vec<String> = (0..5000).map(|at| format!("{text}{at}")).collect();
        let named: Map<String, Value> = many.iter().map(|it| (it.clone(), json!(1))).collect();
        let long = "x".repeat(1_000_000);
        let verdicts = [json!(many), Value::Object(named), json!(long)]
            .map(|value| judged(&schema, json!({ "a": value })));
        // A value that costs too much is refused without validation; any other validation ends at the limit.
        assert!(verdicts.iter().any(|verdict| verdict.contains("would cost too much")), "{schema}");
    }
    let short = json!({ "properties": { "a": { "pattern": evil } } });
    assert_ne!(judged(&short, json!({ "a": "x".repeat(200) })), "ok");
    let negated = json!({ "properties": { "a": { "not": { "pattern": evil } } } });
    assert_ne!(judged(&negated, json!({ "a": "x".repeat(200) })), "ok", "in doubt it is refused");
    assert!(begun.elapsed() < std::time::Duration::from_secs(20), "{:?}", begun.elapsed());
}
