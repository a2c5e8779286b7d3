//! `schemas/tga/v1/`: everything that the core makes is valid, and everything near it is not.

use std::path::PathBuf;

use jsonschema::{PatternOptions, Validator};
use serde_json::{Value, json};

use crate::transition_vectors::{self, Row};

const NAMES: [&str; 7] = [
    "execution_state",
    "execution_log_entry",
    "execution_checkpoint",
    "action_request",
    "supervisor_decision",
    "tool_call",
    "tool_effect",
];

fn schema(name: &str) -> Value {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    let file = root.join(format!("schemas/tga/v1/{name}.schema.json"));
    serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap()
}

fn validator(name: &str) -> Validator {
    jsonschema::options()
        .with_pattern_options(PatternOptions::regex())
        .should_validate_formats(true)
        .build(&schema(name))
        .unwrap()
}

fn check(validator: &Validator, value: &Value, expected: bool, what: &str) {
    let problems: Vec<_> = validator.iter_errors(value).map(|error| error.to_string()).collect();
    assert_eq!(problems.is_empty(), expected, "{what}: {problems:?}\n{value:#}");
}

/// Every value of the published traces that has this schema.
fn samples(name: &str) -> Vec<Value> {
    let vectors = transition_vectors::published();
    let of_trace = |trace: &transition_vectors::Trace| match name {
        "execution_state" => vec![json!(trace.state)],
        "execution_checkpoint" => vec![json!(trace.checkpoint)],
        "execution_log_entry" => trace.log.iter().map(|row| json!(row.entry)).collect(),
        artifact => {
            let rows = trace.log.iter().filter(|row| row.entry.artifact_type.as_str() == artifact);
            rows.map(|row| row.artifact.clone()).collect()
        }
    };
    vectors.traces.iter().flat_map(of_trace).collect()
}

#[test]
fn the_schemas_are_schemas_of_2020_12_and_name_themselves() {
    for name in NAMES {
        let schema = schema(name);
        jsonschema::meta::validate(&schema).unwrap();
        assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
        assert_eq!(schema["$id"], format!("urn:stepgate:schema:tga:v1:{name}"));
        assert_eq!(schema["properties"]["schema_id"]["const"], format!("talos.tga.{name}"));
    }
}

/// Only what another contract judges may hold any key.
#[test]
fn no_object_has_room_for_extra_keys() {
    fn walk(schema: &Value, at: &str, open: &mut Vec<String>) {
        if schema["type"] == "object" && schema["additionalProperties"] != false {
            open.push(at.to_owned());
        }
        let members = schema.as_object().into_iter().flatten();
        let items = schema.as_array().into_iter().flatten();
        for (name, part) in members {
            walk(part, &format!("{at}/{name}"), open);
        }
        for part in items {
            walk(part, at, open);
        }
    }
    let mut open = Vec::new();
    for name in NAMES {
        walk(&schema(name), name, &mut open);
    }
    assert_eq!(
        open,
        [
            "action_request/$defs/invocation/properties/args",
            "supervisor_decision/properties/minted_capability",
            "tool_call/$defs/invocation/properties/args",
        ]
    );
}

#[test]
fn everything_that_the_core_makes_is_valid() {
    for name in NAMES {
        let samples = samples(name);
        assert!(samples.len() >= 5, "{name}: {}", samples.len());
        for sample in samples {
            check(&validator(name), &sample, true, name);
        }
    }
}

/// A refused append is a well-formed entry in the wrong place; the few that are not are named.
#[test]
fn every_vector_is_valid_but_for_those_whose_shape_is_the_fault() {
    let vectors = transition_vectors::published();
    let entries = validator("execution_log_entry");
    let shapeless = [
        "tool_call without tool_call_id",
        "tool_call without idempotency_key",
        "tool_effect without tool_call_id",
        "tool_effect without idempotency_key",
        "genesis with sequence number 0",
    ];
    for case in &vectors.appends {
        let name = case.name.as_str();
        let Row { entry, artifact } = &case.row;
        check(&entries, &json!(entry), !shapeless.contains(&name), name);
        let well_formed = name != "a key too many in the call";
        check(&validator(entry.artifact_type.as_str()), artifact, well_formed, name);
    }
    for case in &vectors.checkpoints {
        let checkpoint = json!(case.checkpoint);
        check(&validator("execution_checkpoint"), &checkpoint, true, &case.name);
    }
}

/// The places of every object inside a value that the schema closes, as JSON pointers.
fn closed_objects(value: &Value, at: &str, found: &mut Vec<String>) {
    let is_open = ["/args", "/pre_state", "/cap"].iter().any(|open| at.ends_with(open));
    if is_open {
        return;
    }
    if let Value::Object(members) = value {
        found.push(at.to_owned());
        for (name, member) in members {
            closed_objects(member, &format!("{at}/{name}"), found);
        }
    }
    for (index, item) in value.as_array().into_iter().flatten().enumerate() {
        closed_objects(item, &format!("{at}/{index}"), found);
    }
}

#[test]
fn an_extra_key_anywhere_is_refused() {
    for name in NAMES {
        let validator = validator(name);
        for sample in samples(name) {
            let mut places = Vec::new();
            closed_objects(&sample, "", &mut places);
            for place in places {
                let mut more = sample.clone();
                more.pointer_mut(&place).unwrap()["extra"] = Value::Null;
                check(&validator, &more, false, &format!("{name} with {place}/extra"));
            }
        }
    }
}

/// What may be left out, beside what the other traces leave out.
const OPTIONAL: [&str; 14] = [
    "/idempotency_key",
    "/policy_hash",
    "/meta/approval_id",
    "/meta/approver_id",
    "/meta/cap",
    "/meta/needs_approval_digest",
    "/meta/note_digest",
    "/meta/executor_id",
    "/meta/pre_state",
    "/meta/tool_definition_digest",
    "/meta/guarantee",
    "/meta/resolved_by",
    "/meta/result_digest",
    "/outcome/error",
];

#[test]
fn a_missing_key_is_refused_unless_it_is_optional() {
    for name in NAMES {
        let validator = validator(name);
        for sample in samples(name) {
            let mut places = Vec::new();
            closed_objects(&sample, "", &mut places);
            for place in places {
                let members = sample.pointer(&place).unwrap().as_object().unwrap();
                for key in members.keys() {
                    let mut fewer = sample.clone();
                    let object = fewer.pointer_mut(&place).unwrap().as_object_mut().unwrap();
                    object.remove(key);
                    let key = format!("{place}/{key}");
                    // A call and an entry always have their key; a request may come without.
                    let is_optional = OPTIONAL.contains(&key.as_str())
                        && (key != "/idempotency_key" || name == "action_request");
                    check(&validator, &fewer, is_optional, &format!("{name} without {key}"));
                }
            }
        }
    }
}

/// Wrong values for a field, by what the right one looks like.
fn near_misses(key: &str, right: &Value) -> Vec<Value> {
    let text = right.as_str().unwrap_or_default();
    let mut wrong = vec![json!(1.5), json!(true), json!([]), json!("")];
    let spelled = |texts: &[String]| texts.iter().map(|text| json!(text)).collect::<Vec<_>>();
    if key.ends_with("digest") || key == "policy_hash" {
        let (upper, short, long) = (text.to_uppercase(), &text[1..], format!("{text}0"));
        let mut texts = vec![short.to_owned(), long, format!("{text}\n"), format!("g{short}")];
        if upper != text {
            texts.push(upper);
        }
        wrong.extend(spelled(&texts));
    } else if key == "ts" {
        let no_fraction = text.replace(".000Z", "Z").replace(".001Z", "Z");
        let no_fraction = no_fraction.replace(".002Z", "Z").replace(".003Z", "Z");
        wrong.extend(spelled(&[
            no_fraction,
            text.replace('Z', "+00:00"),
            text.replace('T', " "),
            text.replace("-11-", "-13-"),
            format!("{text}\n"),
            text.to_lowercase(),
        ]));
    } else if matches!(key, "agent_id" | "principal_id" | "approver_id" | "resolved_by") {
        wrong.extend(spelled(&["a/b".into(), "a b".into(), "p".repeat(65)]));
    } else if key == "idempotency_key" {
        let bare = text.replace("agent/", "");
        wrong.extend(spelled(&[bare, text.to_uppercase(), format!("{text}/x"), "agent/".into()]));
    } else if key.ends_with("_id") && text.len() == 36 {
        let version_4 = format!("{}4{}", &text[..14], &text[15..]);
        let wrong_variant = format!("{}c{}", &text[..19], &text[20..]);
        wrong.extend(spelled(&[
            version_4,
            wrong_variant,
            text.to_uppercase(),
            text.replace('-', ""),
            format!("{{{text}}}"),
            format!("{text}\n"),
        ]));
    } else if key.ends_with("sequence_number") {
        wrong.extend([json!(-1), json!("1"), json!(9_007_199_254_740_992_u64), Value::Null]);
    } else if key.ends_with("state") || matches!(key, "risk_level" | "decision" | "status") {
        wrong.extend(spelled(&[text.to_lowercase(), format!("{text} "), "UNKNOWN".into()]));
    } else if matches!(key, "schema_id" | "schema_version" | "_digest_alg" | "tool_class") {
        wrong.extend(spelled(&[format!("{text}x"), text.to_uppercase()]));
    } else if !matches!(key, "artifact_type" | "guarantee") {
        // Free text, lists and objects: only their type can be wrong.
        wrong = vec![json!(1.5), json!(true)];
    }
    wrong
}

#[test]
fn a_value_that_is_only_nearly_right_is_refused() {
    let mut tried = 0;
    for name in NAMES {
        let validator = validator(name);
        for sample in samples(name) {
            let mut places = Vec::new();
            closed_objects(&sample, "", &mut places);
            for place in places {
                let members = sample.pointer(&place).unwrap().as_object().unwrap().clone();
                for (key, right) in members {
                    if matches!(key.as_str(), "cap" | "pre_state") || right.is_null() {
                        continue;
                    }
                    for wrong in near_misses(&key, &right) {
                        let mut other = sample.clone();
                        other.pointer_mut(&place).unwrap()[&key] = wrong;
                        check(
                            &validator,
                            &other,
                            false,
                            &format!("{name} with another {place}/{key}"),
                        );
                        tried += 1;
                    }
                }
            }
        }
    }
    assert!(tried > 1000, "{tried}");
}

#[test]
fn the_optional_fields_of_the_format_that_the_core_never_writes_are_valid() {
    for (name, place, value) in [
        ("supervisor_decision", "/minted_capability", json!({"any": 1})),
        ("tool_call", "/capability_digest", json!("0".repeat(64))),
        ("tool_effect", "/outcome/summary", json!("done")),
        ("tool_effect", "/outcome/error", json!({"code": "X", "message": "m", "retryable": true})),
    ] {
        let (parent, key) = place.rsplit_once('/').unwrap();
        for mut sample in samples(name) {
            sample.pointer_mut(parent).unwrap()[key] = value.clone();
            check(&validator(name), &sample, true, &format!("{name} with {place}"));
        }
    }
}
