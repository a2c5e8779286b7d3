//! Events against the official schema: an excerpt of OCSF 1.5.0 with our classes and the objects in them.

use std::net::IpAddr;

use super::*;

const SCHEMA: &str = include_str!("ocsf_1.5.0.json");

fn schema() -> Value {
    serde_json::from_str(SCHEMA).unwrap()
}

fn names(list: &Value) -> Vec<&str> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

/// What is wrong with an object, by its definition in the schema.
fn wrong_with(place: &str, object: &Value, definition: &Value, schema: &Value) -> Vec<String> {
    let mut wrong = Vec::new();
    for name in names(&definition["required"]) {
        if object.get(name).is_none_or(Value::is_null) {
            wrong.push(format!("{place} has no {name}"));
        }
    }
    let one_of = names(&definition["at_least_one"]);
    if !one_of.is_empty() && !one_of.iter().any(|name| object.get(name).is_some()) {
        wrong.push(format!("{place} has none of {one_of:?}"));
    }
    for (name, value) in object.as_object().unwrap() {
        let place = format!("{place}.{name}");
        let Some(of_type) = definition["attributes"][name].as_str() else {
            wrong.push(format!("{place} is no attribute"));
            continue;
        };
        let is_fine = match of_type {
            "string_t" | "username_t" => value.is_string(),
            "integer_t" | "long_t" | "timestamp_t" => value.is_i64(),
            "ip_t" => value.as_str().is_some_and(|text| text.parse::<IpAddr>().is_ok()),
            // An object without attributes: whatever the source has.
            "object" => value.is_object(),
            other => {
                let definition = &schema["objects"][other];
                assert!(definition.is_object(), "{place}: the excerpt has no {other}");
                if value.is_object() {
                    wrong.extend(wrong_with(&place, value, definition, schema));
                }
                value.is_object()
            }
        };
        if !is_fine {
            wrong.push(format!("{place} is no {of_type}: {value}"));
        }
        let numbers = definition["enums"][name].as_array();
        if numbers.is_some_and(|numbers| !numbers.contains(value)) {
            wrong.push(format!("{place} is none of its numbers: {value}"));
        }
    }
    wrong
}

fn wrong(event: &Value) -> Vec<String> {
    let schema = schema();
    let class = &schema["classes"][event["class_uid"].to_string()];
    assert!(class.is_object(), "the excerpt has no class {}", event["class_uid"]);
    wrong_with("", event, class, &schema)
}

/// Every event, with a request and without, and with what its payload can say about its source.
#[test]
fn every_event_is_valid_in_its_class_of_ocsf() {
    let payload = json!({
        "approver_id": "ann", "error_code": "DENIED", "tool": "mail.send", "token_id": "t", "count": 7,
    });
    for event_type in EventType::ALL {
        for payload in [
            json!({}),
            value_from(payload.clone(), request()),
            json!({ "address": "198.51.100.7", "count": 1 }),
            json!({ "address": "2001:db8::/64", "count": 1 }),
        ] {
            let event = written(Format::Ocsf, &placed(event_type, payload.clone()));
            assert_eq!(wrong(&event), [""; 0], "{event_type:?} {payload}");
            let number = |name: &str| event[name].as_u64().unwrap();
            assert_eq!(number("category_uid"), number("class_uid") / 1000);
            assert_eq!(number("type_uid"), number("class_uid") * 100 + number("activity_id"));
            assert_eq!(event["unmapped"]["event_type"], event_type.as_str());
            assert_eq!(event["metadata"]["sequence"], 42);
            assert_eq!(event["time"], 1_700_000_000_123_u64);
        }
    }
}

#[test]
fn what_the_schema_does_not_allow_is_found() {
    let event = written(Format::Ocsf, &placed(EventType::LoginRefused, json!({})));
    let changed = |pointer: &str, value: Value| {
        let mut event = event.clone();
        let (place, name) = pointer.rsplit_once('/').unwrap();
        event.pointer_mut(place).unwrap().as_object_mut().unwrap().insert(name.into(), value);
        wrong(&event)
    };
    for (pointer, value, expected) in [
        ("/time", Value::Null, ".time is no timestamp_t: null"),
        ("/activity_id", json!(17), ".activity_id is none of its numbers: 17"),
        ("/src_endpoint/ip", json!("2001:db8::/64"), ".src_endpoint.ip is no ip_t"),
        ("/service", json!({}), ".service has none of [\"name\", \"uid\"]"),
        ("/metadata/product", Value::Null, ".metadata has no product"),
        ("/colour", json!("red"), ".colour is no attribute"),
    ] {
        let found = changed(pointer, value);
        assert!(found.iter().any(|it| it.starts_with(expected)), "{pointer}: {found:?}");
    }
}
