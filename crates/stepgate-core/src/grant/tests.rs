use serde_json::json;

use super::*;

fn grant(args: Value) -> Grant {
    let id = "0198b2c4-7a51-7cc0-9f2e-2f6a4a6f8f10";
    serde_json::from_value(json!({
        "approval_id": id,
        "args": args,
        "expires_at": "2026-01-01T00:00:00.000Z",
        "granted_by": "ann",
        "principal_id": "agent",
        "tool_definition_digest": Digest::ZERO,
        "tool_name": "pay",
        "tool_server": "bank",
        "uses_max": 3,
    }))
    .unwrap()
}

fn covers(args: Value, call: Value) -> bool {
    let principal_id = PrincipalId::parse("agent").unwrap();
    grant(args).covers(BoundCall {
        args: &call,
        executor_id: None,
        principal_id: &principal_id,
        tool_definition_digest: Some(Digest::ZERO),
        tool_name: "pay",
        tool_server: "bank",
    })
}

#[test]
fn a_grant_covers_no_other_caller_tool_or_definition() {
    let (agent, other) = (PrincipalId::parse("agent").unwrap(), PrincipalId::parse("ann").unwrap());
    let args = json!({});
    let same = BoundCall {
        args: &args,
        executor_id: None,
        principal_id: &agent,
        tool_definition_digest: Some(Digest::ZERO),
        tool_name: "pay",
        tool_server: "bank",
    };
    let grant = grant(json!({}));
    assert!(grant.covers(same));
    assert!(!grant.covers(BoundCall { principal_id: &other, ..same }));
    assert!(!grant.covers(BoundCall { tool_name: "lend", ..same }));
    assert!(!grant.covers(BoundCall { tool_server: "core", ..same }));
    assert!(!grant.covers(BoundCall { tool_definition_digest: None, ..same }));
    let digest = Some(Digest::of("another definition"));
    assert!(!grant.covers(BoundCall { tool_definition_digest: digest, ..same }));
    assert!(!grant.covers(BoundCall { args: &json!([]), ..same }));
    assert!(!grant.covers(BoundCall { executor_id: Some("sandbox@second"), ..same }));
}

#[test]
fn a_grant_covers_exactly_its_arguments() {
    let exact = json!({ "to": { "equals": "bob" }, "opts": { "equals": { "a": [1, null] } } });
    let rows = [
        (json!({ "to": "bob", "opts": { "a": [1, null] } }), true),
        (json!({ "to": "bob", "opts": { "a": [1.0, null] } }), true),
        (json!({ "to": "Bob", "opts": { "a": [1, null] } }), false),
        (json!({ "to": "bob ", "opts": { "a": [1, null] } }), false),
        (json!({ "to": "bob", "opts": { "a": [1] } }), false),
        (json!({ "to": "bob", "opts": { "a": [1, null], "b": 1 } }), false),
        (json!({ "to": "bob", "opts": { "a": ["1", null] } }), false),
        (json!({ "to": ["bob"], "opts": { "a": [1, null] } }), false),
        // Another argument, or one that is missing.
        (json!({ "to": "bob" }), false),
        (json!({ "to": "bob", "opts": { "a": [1, null] }, "cc": "eve" }), false),
        (json!({ "to": "bob", "opts": { "a": [1, null] }, "cc": null }), false),
        (json!({ "to": "bob", "Opts": { "a": [1, null] } }), false),
    ];
    for (call, expected) in rows {
        assert_eq!(covers(exact.clone(), call.clone()), expected, "{call}");
    }
}

#[test]
fn a_range_covers_numbers_between_its_ends_in_any_spelling() {
    let range = json!({ "amount": { "between": [-5, 100] } });
    for text in ["-5", "0", "-0.0", "100", "100.0", "1e2", "99.999"] {
        let call: Value = serde_json::from_str(&format!("{{\"amount\":{text}}}")).unwrap();
        assert!(covers(range.clone(), call), "{text}");
    }
    for text in [
        "-6",
        "-5.0001",
        "101",
        "100.00001",
        "1e3",
        "1e300",
        "-1e300",
        "9007199254740993",
        "18446744073709551615",
        "-9223372036854775808",
        "\"50\"",
        "[50]",
        "null",
        "true",
    ] {
        let call: Value = serde_json::from_str(&format!("{{\"amount\":{text}}}")).unwrap();
        assert!(!covers(range.clone(), call), "{text}");
    }
}

#[test]
fn a_beginning_covers_only_a_plain_rest() {
    let beginning = json!({ "path": { "starts_with": "/reports/" } });
    for text in ["/reports/", "/reports/a.txt", "/reports/2026/a b.txt", "/reports/größe"] {
        assert!(covers(beginning.clone(), json!({ "path": text })), "{text}");
    }
    for text in [
        "/reports",
        "/Reports/a",
        " /reports/a",
        "/reports/../secret",
        "/reports/a/../../secret",
        "/reports//etc/passwd",
        "/reports/%2e%2e/secret",
        "/reports/a\\..\\b",
        "/reports/a\u{202e}b",
        "/reports/a\nb",
        "/reports/a\0b",
        "/reports/a@b",
        "/reports/a;rm",
        "/reports/$(x)",
    ] {
        assert!(!covers(beginning.clone(), json!({ "path": text })), "{text:?}");
    }
    // The pair that leads out of the directory stands across the end of the beginning.
    let dot = json!({ "path": { "starts_with": "/reports/." } });
    assert!(!covers(dot, json!({ "path": "/reports/../secret" })));
    assert!(!covers(beginning, json!({ "path": ["/reports/a"] })));
}

#[test]
fn a_grant_is_made_only_of_conditions_that_cover_the_approved_call() {
    let url = "https://a.example/pay";
    let approved = json!({ "amount": 50, "to": "bob", "key": { "sha256": "00" }, "url": url });
    let approved = approved.as_object().unwrap();
    let chosen = |name: &str, condition: Condition| BTreeMap::from([(name.to_owned(), condition)]);
    let exact = conditions(approved, BTreeMap::new()).unwrap();
    assert_eq!(exact.len(), 4);
    assert_eq!(exact["to"], Condition::Equals(json!("bob")));
    let ranged = conditions(approved, chosen("amount", Condition::Between(1, 50))).unwrap();
    assert_eq!(ranged["amount"], Condition::Between(1, 50));
    assert_eq!(ranged["to"], Condition::Equals(json!("bob")));
    for (name, condition, why) in [
        ("cc", Condition::Equals(json!("eve")), "no argument `cc`"),
        ("amount", Condition::Between(60, 90), "would not be covered"),
        ("amount", Condition::Between(90, 10), "above the largest"),
        ("to", Condition::StartsWith(String::new()), "is empty"),
        ("to", Condition::StartsWith("eve".into()), "would not be covered"),
        ("url", Condition::StartsWith("https://a.example".into()), "a `/` after the host"),
        ("to", Condition::Equals(json!("eve")), "would not be covered"),
        // A redacted argument is its digest.
        ("key", Condition::StartsWith("s".into()), "would not be covered"),
    ] {
        let refused = conditions(approved, chosen(name, condition)).unwrap_err();
        assert!(refused.contains(why), "{refused}");
    }
}

#[test]
fn each_use_has_an_id_of_its_own_in_the_form_of_every_other_id() {
    let grants = ["0198b2c4-7a51-7cc0-9f2e-2f6a4a6f8f10", "0198b2c4-7a51-7cc0-9f2e-2f6a4a6f8f11"];
    let mut seen = std::collections::BTreeSet::new();
    for grant_id in grants {
        let grant_id: ArtifactId = grant_id.parse().unwrap();
        for number in 1..=100 {
            let id = use_event_id(grant_id, number);
            assert_eq!(id, use_event_id(grant_id, number));
            assert_eq!(id.to_string().parse::<ArtifactId>(), Ok(id));
            assert!(seen.insert(id));
        }
    }
}
