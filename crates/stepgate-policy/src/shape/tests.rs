use super::*;

fn attributes(input_schema: &Value) -> Value {
    of_args(input_schema).to_schema()["attributes"].clone()
}

/// The type of one required argument, or null where policies do not see it.
fn seen(schema: Value) -> Value {
    let input_schema = json!({
        "type": "object",
        "properties": { "x": schema },
        "required": ["x"],
        "$defs": { "room": { "type": "string" }, "loop": { "$ref": "#/$defs/loop" } },
    });
    attributes(&input_schema)["x"].clone()
}

#[test]
fn cedar_sees_what_it_can_type() {
    let string = json!({ "type": "String", "required": true });
    let long = json!({ "type": "Long", "required": true });
    let decimal =
        |required: bool| json!({ "type": "Extension", "name": "decimal", "required": required });
    let maybe = |kind: &str| json!({ "type": kind, "required": false });
    let rows = [
        (json!({ "type": "string" }), string.clone()),
        (json!({ "type": "string", "anyOf": [{ "minLength": 1 }] }), string.clone()),
        (json!({ "type": "integer" }), long.clone()),
        (json!({ "type": "boolean" }), json!({ "type": "Boolean", "required": true })),
        (json!({ "type": "number" }), decimal(true)),
        (json!({ "type": ["number", "null"] }), decimal(false)),
        (json!({ "type": "number", "enum": [1, 2] }), decimal(true)),
        (json!({ "type": ["string"] }), string.clone()),
        (json!({ "type": ["string", "null"] }), maybe("String")),
        (json!({ "anyOf": [{ "type": "integer" }, { "type": "null" }] }), maybe("Long")),
        (json!({ "oneOf": [{ "type": "integer" }] }), long.clone()),
        (json!({ "enum": ["a", "b"] }), string.clone()),
        (json!({ "const": 3 }), long.clone()),
        (json!({ "enum": [1, 2.0, 3e1] }), long),
        (json!({ "enum": [1, 2.5] }), decimal(true)),
        (json!({ "const": 0.0001 }), decimal(true)),
        (json!({ "$ref": "#/$defs/room" }), string),
        (
            json!({ "type": "array", "items": { "type": "string" } }),
            json!({ "type": "Set", "element": { "type": "String" }, "required": true }),
        ),
        (
            json!({ "type": "array", "items": { "type": "number" } }),
            json!({ "type": "Set", "element": { "type": "Extension", "name": "decimal" }, "required": true }),
        ),
        // Values that Cedar cannot hold, or whose type the schema does not give.
        (json!({}), Value::Null),
        (json!(true), Value::Null),
        (json!({ "type": "null" }), Value::Null),
        (json!({ "type": ["string", "integer"] }), Value::Null),
        (json!({ "anyOf": [{ "type": "string" }, { "type": "integer" }] }), Value::Null),
        (json!({ "enum": ["a", 1] }), Value::Null),
        (json!({ "enum": [1.5, 0.00001] }), Value::Null),
        (json!({ "const": 1e300 }), Value::Null),
        (json!({ "enum": [] }), Value::Null),
        (json!({ "type": "array" }), Value::Null),
        (json!({ "type": "array", "items": {} }), Value::Null),
        (json!({ "type": "array", "prefixItems": [], "items": { "type": "string" } }), Value::Null),
        (json!({ "type": "object" }), Value::Null),
        (json!({ "$ref": "#/$defs/none" }), Value::Null),
        (json!({ "$ref": "#/$defs/loop" }), Value::Null),
        (json!({ "$ref": "https://example.org/room.json" }), Value::Null),
    ];
    for (schema, expected) in rows {
        assert_eq!(seen(schema.clone()), expected, "{schema}");
    }
}

#[test]
fn nested_objects_are_records_to_a_depth() {
    let nested = json!({
        "type": "object",
        "properties": { "urgent": { "type": "boolean" }, "other": {} },
        "required": ["urgent", "other"],
    });
    let expected = json!({
        "type": "Record",
        "attributes": { "urgent": { "type": "Boolean", "required": true } },
        "required": true,
    });
    assert_eq!(seen(nested), expected);

    let deep = |depth: usize| {
        let leaf = json!({ "type": "string" });
        (1..depth).fold(leaf, |inner, _| json!({ "type": "object", "properties": { "x": inner } }))
    };
    let levels = |schema: &Value| schema.to_string().matches("String").count();
    assert_eq!(levels(&seen(deep(ARGS_DEPTH_MAX - 1))), 1);
    assert_eq!(levels(&seen(deep(ARGS_DEPTH_MAX))), 0);
}

#[test]
fn a_tool_shows_at_most_so_many_arguments() {
    let properties = |count: usize| {
        let property = |index| (format!("a{index}"), json!({ "type": "string" }));
        let properties: Map<String, Value> = (0..count).map(property).collect();
        let shown = attributes(&json!({ "type": "object", "properties": properties }));
        shown.as_object().unwrap().len()
    };
    assert_eq!(properties(ATTRIBUTES_MAX), ATTRIBUTES_MAX);
    assert_eq!(properties(ATTRIBUTES_MAX + 1), ATTRIBUTES_MAX);
}

#[test]
fn the_default_of_an_argument_is_found_wherever_the_schema_declares_it() {
    let default = |property: Value| {
        let input_schema = json!({
            "type": "object",
            "properties": { "x": property },
            "$defs": { "five": { "type": "integer", "default": 5 }, "loop": { "$ref": "#/$defs/loop" } },
        });
        of_args(&input_schema).attributes["x"].default.clone()
    };
    let value = |value: Value| Some(Declared::Value(value));
    let rows = [
        (json!({ "type": "integer" }), None),
        (json!({ "type": "integer", "default": 1 }), value(json!(1))),
        (json!({ "type": ["integer", "null"], "default": null }), value(Value::Null)),
        (json!({ "$ref": "#/$defs/five" }), value(json!(5))),
        // The nearest default wins.
        (json!({ "$ref": "#/$defs/five", "default": 6 }), value(json!(6))),
        (json!({ "allOf": [{ "$ref": "#/$defs/five" }] }), value(json!(5))),
        (json!({ "anyOf": [{ "type": "null" }, { "default": 7 }] }), value(json!(7))),
        (json!({ "if": {}, "then": { "default": 1 }, "else": { "default": 1 } }), value(json!(1))),
        (
            json!({ "if": {}, "then": { "default": 1 }, "else": { "default": 2 } }),
            Some(Declared::Unclear),
        ),
        (json!({ "$ref": "#anchor" }), Some(Declared::Unclear)),
        (json!({ "$dynamicRef": "#anchor" }), Some(Declared::Unclear)),
        (json!({ "$ref": "#/$defs/loop" }), None),
    ];
    for (property, expected) in rows {
        assert_eq!(default(property.clone()), expected, "{property}");
    }
}

#[test]
fn a_default_that_only_a_part_of_the_schema_names_is_not_lost() {
    let input_schema = json!({
        "type": "object",
        "properties": { "own": { "type": "integer", "default": 1 }, "bare": { "type": "integer" } },
        "allOf": [
            { "properties": { "own": { "default": 2 }, "bare": { "default": 3 } } },
            { "if": {}, "then": { "properties": { "hidden": { "default": 4 } } } },
            { "properties": { "silent": {} } },
        ],
    });
    let Record { attributes, .. } = of_args(&input_schema);
    let declared = |name: &str| attributes.get(name).and_then(|found| found.default.clone());
    assert_eq!(declared("own"), Some(Declared::Value(json!(1))));
    assert_eq!(declared("bare"), Some(Declared::Value(json!(3))));
    assert_eq!(declared("hidden"), Some(Declared::Value(json!(4))));
    assert_eq!(attributes["hidden"].seen, Err(Cause::Untyped));
    assert_eq!(attributes.len(), 3);
}

#[test]
fn a_recursive_schema_makes_no_more_attributes_than_the_limit_and_one_object() {
    let member = json!({ "$ref": "#", "default": null });
    let properties: Map<String, Value> =
        (0..20).map(|index| (format!("a{index}"), member.clone())).collect();
    let args = of_args(&json!({ "type": "object", "properties": properties }));
    fn count(record: &Record) -> usize {
        let inner = record.attributes.values().map(|attribute| match &attribute.seen {
            Ok(Shape::Record(inner)) => count(inner),
            _ => 0,
        });
        record.attributes.len() + inner.sum::<usize>()
    }
    let count = count(&args);
    assert!((ATTRIBUTES_MAX..=ATTRIBUTES_MAX + 20 * ARGS_DEPTH_MAX).contains(&count), "{count}");
}

#[test]
fn lists_and_choices_are_counted_as_depth() {
    let nested = |levels: usize, wrap: fn(Value) -> Value| {
        (0..levels).fold(json!({ "type": "string" }), |inner, _| wrap(inner))
    };
    let list: fn(Value) -> Value = |inner| json!({ "type": "array", "items": inner });
    let choice: fn(Value) -> Value = |inner| json!({ "anyOf": [inner] });
    for wrap in [list, choice] {
        assert_ne!(seen(nested(ARGS_DEPTH_MAX - 2, wrap)), Value::Null);
        assert_eq!(seen(nested(ARGS_DEPTH_MAX - 1, wrap)), Value::Null);
    }
}
