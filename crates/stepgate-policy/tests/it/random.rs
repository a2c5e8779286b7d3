//! No input makes a decision panic, and every request keeps the schema.

use proptest::prelude::*;
use serde_json::{Map, Value, json};
use stepgate_core::action::Action;
use stepgate_core::call::Call;
use stepgate_core::facts::Facts;
use stepgate_core::tool::Mode;
use stepgate_policy::{PolicySet, Verdict, check};

use crate::world::{decide, directory, principal, server_call, shape, tools};

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,12}".prop_map(Value::from),
    ];
    let name = prop_oneof![
        Just("volume".to_owned()),
        Just("to".to_owned()),
        Just("options".to_owned()),
        Just("urgent".to_owned()),
        Just("__entity".to_owned()),
        ".{0,6}",
    ];
    leaf.prop_recursive(4, 24, 4, move |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::vec((name.clone(), inner), 0..4)
                .prop_map(|pairs| Value::Object(pairs.into_iter().collect())),
        ]
    })
}

/// Things that look like JSON Schemas, and some that only nearly do.
fn any_schema() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(json!({ "type": "string" })),
        Just(json!({ "type": "integer" })),
        Just(json!({ "type": "number" })),
        Just(json!({ "type": ["boolean", "null"] })),
        Just(json!({ "enum": ["a", "b"] })),
        Just(json!({ "const": 3 })),
        Just(json!({ "$ref": "#" })),
        Just(json!({ "$ref": "#/properties/a" })),
        Just(json!({ "$ref": "https://example.org/schema" })),
        Just(json!({ "type": 3, "required": "x" })),
        Just(json!(true)),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            inner.clone().prop_map(|items| json!({ "type": "array", "items": items })),
            inner.clone().prop_map(|one| json!({ "anyOf": [one, { "type": "null" }] })),
            proptest::collection::vec(("[a-c\"]|.{0,4}", inner), 0..4).prop_map(|pairs| {
                let required: Vec<String> = pairs.iter().map(|(name, _)| name.clone()).collect();
                let properties: Map<String, Value> = pairs.into_iter().collect();
                json!({ "type": "object", "properties": properties, "required": required })
            }),
        ]
    })
}

fn open_set() -> PolicySet {
    crate::world::set(
        r#"@id("open") permit (principal, action, resource);
           @id("never") forbid (principal, action == Action::"sonos.set_volume", resource)
               when { context.args has room && context.args.room like "*\"*" };"#,
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn no_arguments_of_a_tool_make_a_decision_panic(args in any_json(), index in 0_usize..3) {
        thread_local!(static SET: PolicySet = open_set());
        let args = args.as_object().cloned().unwrap_or_default();
        let call = server_call(&tools()[index], args);
        SET.with(|set| {
            let verdict = Verdict::of(&decide(set, &call));
            assert_eq!(set.explain(&principal("agent"), &call, &Facts::default()).verdict, verdict);
        });
    }

    #[test]
    fn no_path_makes_a_decision_panic(beneath in "[^/]{0,9}(/[^/]{1,9}){0,9}", index in 0_usize..8) {
        thread_local!(static SET: PolicySet = open_set());
        let path = format!("/sandbox/{beneath}");
        let args = json!({ "path": path, "content": "x" });
        let mut args = args.as_object().cloned().unwrap_or_default();
        if Action::ALL[index] != Action::WriteFile {
            args.remove("content");
        }
        if let Ok(call) = Action::ALL[index].call(&args) {
            SET.with(|set| {
                assert_eq!(Verdict::of(&decide(set, &Call::Core(call))), Verdict::Permit);
            });
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn no_schema_of_a_tool_keeps_the_policies_from_loading(schema in any_schema(), args in any_json()) {
        let tool = shape("any.tool", Mode::Draft, schema);
        let directory = directory(&[("p.cedar", "permit (principal, action, resource);")]);
        let set = PolicySet::load(directory.path(), std::slice::from_ref(&tool));
        let set = set.map_err(|error| TestCaseError::fail(error.to_string()))?;
        let args = args.as_object().cloned().unwrap_or_default();
        let decision = decide(&set, &server_call(&tool, args));
        prop_assert_eq!(Verdict::of(&decision), Verdict::Permit);
    }

    #[test]
    fn no_text_makes_loading_panic(text in ".{0,200}", cases in ".{0,200}") {
        let directory = directory(&[("p.cedar", &text), ("p.cases.toml", &cases)]);
        check(directory.path(), &tools());
    }
}
