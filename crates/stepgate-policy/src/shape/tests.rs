use super::*;

fn attributes(input_schema: &Value) -> Value {
    of_args(input_schema).to_schema()["attributes"].clone()
}

/// The type of one argument that is demanded, or nothing where policies do not see it.
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
    let maybe = |kind: &str| json!({ "type": kind, "required": false });
    let set_of = |kind: &str, required: bool| json!({ "type": "Set", "element": { "type": kind }, "required": required });
    let rows = [
        (json!({ "type": "string" }), string.clone()),
        (json!({ "type": "string", "anyOf": [{ "minLength": 1 }] }), string.clone()),
        (json!({ "type": "integer" }), long.clone()),
        (json!({ "type": "boolean" }), json!({ "type": "Boolean", "required": true })),
        (json!({ "type": "number" }), maybe("Long")),
        (json!({ "type": ["string"] }), string.clone()),
        (json!({ "type": ["string", "null"] }), maybe("String")),
        (json!({ "anyOf": [{ "type": "integer" }, { "type": "null" }] }), maybe("Long")),
        (json!({ "oneOf": [{ "type": "integer" }] }), long.clone()),
        (json!({ "enum": ["a", "b"] }), string.clone()),
        (json!({ "const": 3 }), long),
        (json!({ "$ref": "#/$defs/room" }), string),
        (json!({ "type": "array", "items": { "type": "string" } }), set_of("String", true)),
        (json!({ "type": "array", "items": { "type": "number" } }), set_of("Long", false)),
        // What Cedar cannot hold, or nobody has said.
        (json!({}), Value::Null),
        (json!(true), Value::Null),
        (json!({ "type": "null" }), Value::Null),
        (json!({ "type": ["string", "integer"] }), Value::Null),
        (json!({ "anyOf": [{ "type": "string" }, { "type": "integer" }] }), Value::Null),
        (json!({ "enum": ["a", 1] }), Value::Null),
        (json!({ "enum": [1.5] }), Value::Null),
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
fn a_set_shows_all_of_its_records_or_none() {
    let input_schema = json!({ "type": "object", "properties": {
        "rooms": { "type": "array", "items": {
            "type": "object", "properties": { "name": { "type": "string" } },
        } },
    } });
    let Shape::Record(attributes) = of_args(&input_schema) else { panic!("not a record") };
    let left_out = |rooms: Value| {
        let args = json!({ "rooms": rooms });
        value_of_args(&attributes, args.as_object().unwrap()).unwrap().1
    };
    assert_eq!(left_out(json!([{ "name": "a" }, {}])), Vec::<String>::new());
    // Shown as `{}` it would be equal to a record that it is not.
    assert_eq!(left_out(json!([{ "name": "a" }, { "secret": 1 }])), ["rooms"]);
    assert_eq!(left_out(json!([{ "name": 1 }])), ["rooms"]);
}
