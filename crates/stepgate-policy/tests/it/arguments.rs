//! What policies see of a tool's arguments, and what they do not.

use serde_json::{Value, json};
use stepgate_core::call::Call;
use stepgate_core::facts::Facts;
use stepgate_core::tool::Mode;
use stepgate_policy::Verdict::{self, Approval, Deny, Permit};
use stepgate_policy::{Finding, PolicySet, Severity, ToolShape};

use crate::world::{
    brief, call, check, decide, directory, errors, principal, redacting_call, server_call, set,
    shape, tools,
};

const VOLUME: &str = "sonos.set_volume";

#[test]
fn nested_arguments_and_lists_are_seen() {
    let draft = |args: Value| args;
    check(
        r#"@id("team") permit (principal, action == Action::"mail.draft", resource)
               when { context.args.to.contains("team@example.org") &&
                      context.args has options && !context.args.options.urgent };"#,
        &[
            (
                "agent",
                "mail.draft",
                draft(json!({ "to": ["a@b", "team@example.org"], "options": { "urgent": false } })),
                Permit,
                &["team"],
            ),
            (
                "agent",
                "mail.draft",
                draft(json!({ "to": ["team@example.org"], "options": { "urgent": true } })),
                Deny,
                &[],
            ),
            ("agent", "mail.draft", draft(json!({ "to": ["team@example.org"] })), Deny, &[]),
        ],
    );
}

#[test]
fn a_value_that_cedar_cannot_hold_is_unseen_and_named() {
    let policies = r#"
        @id("volume") permit (principal, action == Action::"sonos.set_volume", resource)
            when { context.unseen.contains("balance") && context.args.volume == 1 };
        @id("nested") permit (principal, action == Action::"mail.draft", resource)
            when { context.unseen.containsAll(["subject", "options.priority", "anything"]) };
        @id("list") permit (principal, action == Action::"mail.draft", resource)
            when { context.unseen == ["to"] };
    "#;
    let set_volume = |balance: Value| json!({ "volume": 1, "balance": balance });
    let rows: Vec<(&str, Value, Verdict, Vec<&str>)> = vec![
        (VOLUME, set_volume(json!(3)), Deny, vec![]),
        (VOLUME, set_volume(json!(3.0)), Deny, vec![]),
        (VOLUME, set_volume(json!(-0.0)), Deny, vec![]),
        (VOLUME, set_volume(json!(2.5)), Deny, vec![]),
        (VOLUME, set_volume(json!(0.00001)), Permit, vec!["volume"]),
        (VOLUME, set_volume(json!(1e300)), Permit, vec!["volume"]),
        (VOLUME, set_volume(json!(u64::MAX)), Permit, vec!["volume"]),
        (VOLUME, json!({ "volume": 1 }), Deny, vec![]),
        (
            "mail.draft",
            json!({ "to": [], "subject": null, "anything": 1,
                    "options": { "urgent": true, "priority": 1e-5 } }),
            Permit,
            vec!["nested"],
        ),
        (
            "mail.draft",
            json!({ "to": [], "subject": "x", "options": { "urgent": true, "priority": 1.5 } }),
            Deny,
            vec![],
        ),
        ("mail.draft", json!({ "to": ["a", 1] }), Permit, vec!["list"]),
    ];
    let set = set(policies);
    for (name, args, verdict, policies) in rows {
        let decision = decide(&set, &call(name, args.clone()));
        assert_eq!(brief(&decision), (verdict, policies), "{name} {args}");
    }
}

/// A bank whose policies ask about large amounts and refuse bad tags, behind `has`.
fn bank() -> ToolShape {
    shape(
        "bank.pay",
        Mode::ExecuteGated,
        json!({
            "type": "object",
            "properties": {
                "amount": { "type": "number" },
                "count": { "type": "integer" },
                "tags": { "type": "array", "items": { "type": ["string", "null"] } },
                "fee": { "type": "integer", "default": 500 },
                "note": { "type": ["string", "null"], "default": null },
                "options": {
                    "type": "object",
                    "properties": { "limit": { "type": "integer", "default": 500 } },
                },
            },
            "additionalProperties": true,
        }),
    )
}

fn bank_set(policies: &str) -> PolicySet {
    let directory = directory(&[("p.cedar", policies)]);
    PolicySet::load(directory.path(), &[bank()]).unwrap()
}

fn pay(args: Value) -> Call {
    server_call(&bank(), args.as_object().unwrap().clone())
}

const PAY: &str = r#"
    @id("pay") permit (principal, action in Action::"execute_gated", resource);
"#;

#[test]
fn no_spelling_of_a_value_steps_around_an_approval_or_a_forbid() {
    let rows: Vec<(&str, Vec<(Value, Verdict)>)> = vec![
        (
            r#"@id("x") @approval("much") permit (principal, action, resource)
                when { context.args has amount && context.args.amount.greaterThan(decimal("100.0")) };"#,
            vec![
                (json!({ "amount": 100 }), Permit),
                (json!({ "amount": 100.0 }), Permit),
                (json!({ "amount": 1e2 }), Permit),
                (json!({}), Permit),
                (json!({ "amount": 101 }), Approval),
                (json!({ "amount": 1e3 }), Approval),
                (json!({ "amount": 100.01 }), Approval),
                (json!({ "amount": 1_000_000.5 }), Approval),
                (json!({ "amount": 100.00001 }), Deny),
                (json!({ "amount": 1e19 }), Deny),
                (json!({ "amount": 1e300 }), Deny),
                // Nothing reads it.
                (json!({ "amount": 1, "count": 1e16 }), Permit),
            ],
        ),
        (
            r#"@id("x") forbid (principal, action, resource)
                when { context.args has count && context.args.count > 100 };"#,
            vec![(json!({ "count": 100 }), Permit), (json!({ "count": 1e16 }), Deny)],
        ),
        (
            r#"@id("x") forbid (principal, action, resource)
                when { context.args has tags && context.args.tags.contains("evil") };"#,
            vec![
                (json!({ "tags": ["good"] }), Permit),
                (json!({ "tags": ["evil"] }), Deny),
                (json!({ "tags": ["evil", null] }), Deny),
                (json!({ "tags": ["good", null] }), Deny),
            ],
        ),
        // A member that only `additionalProperties` allows.
        (
            r#"@id("x") forbid (principal, action, resource)
                when { context.args has secret };"#,
            vec![(json!({ "other": 1 }), Permit), (json!({ "secret": 1 }), Deny)],
        ),
        // A part of what a policy compares as a whole.
        (
            r#"@id("x") forbid (principal, action == Action::"bank.pay", resource)
                when { context.args has options && context.args.options != context.args.options };"#,
            vec![
                (json!({}), Permit),
                (json!({ "options": { "limit": 1 } }), Permit),
                (json!({ "options": { "limit": 1, "more": 1 } }), Deny),
            ],
        ),
        // A policy about another principal is no candidate.
        (
            r#"@id("x") forbid (principal == Principal::"other", action, resource)
                when { context.args has amount && context.args.amount.greaterThan(decimal("100.0")) };"#,
            vec![(json!({ "amount": 0.00001 }), Permit)],
        ),
    ];
    for (policy, calls) in rows {
        let set = bank_set(&format!("{PAY}{policy}"));
        for (args, expected) in calls {
            let decision = decide(&set, &pay(args.clone()));
            assert_eq!(Verdict::of(&decision), expected, "{policy} {args}");
            assert_eq!(
                set.explain(&principal("agent"), &pay(args), &Facts::default()).verdict,
                expected
            );
        }
    }
}

#[test]
fn a_refusal_names_the_argument_the_cause_and_the_policy() {
    let set = bank_set(&format!(
        r#"{PAY} @id("much") forbid (principal, action, resource)
            when {{ context.args has amount && context.args.amount.greaterThan(decimal("100.0")) }};"#
    ));
    let decision = decide(&set, &pay(json!({ "amount": 0.00001 })));
    let detail = "policies cannot see `amount`, because it is more precise than four decimal places, and \
                  `much` reads it";
    assert_eq!(decision.detail.as_deref(), Some(detail));
    assert_eq!(brief(&decision), (Deny, vec!["much"]));
    let explained = set.explain(
        &principal("agent"),
        &pay(json!({ "amount": 0.00001, "count": 1e16 })),
        &Facts::default(),
    );
    assert_eq!(explained.detail.as_deref(), Some(detail));
    let unseen: Vec<(&str, usize)> =
        explained.unseen.iter().map(|one| (one.argument.as_str(), one.read_by.len())).collect();
    assert_eq!(unseen, [("amount", 1), ("count", 0)]);
    let note = "`much` reads `amount`, and cannot see it where it is more precise than four decimal \
                places or beyond ±922337203685477.5807";
    assert_eq!(explained.notes, [note]);
}

#[test]
fn what_a_tool_acts_on_by_default_is_decided_on_as_if_it_had_been_given() {
    let set = bank_set(&format!(
        r#"{PAY}
        @id("fee") forbid (principal, action, resource)
            when {{ context.args has fee && context.args.fee > 100 }};
        @id("limit") @approval("much") permit (principal, action, resource)
            when {{ context.args has options.limit && context.args.options.limit > 100 }};
        @id("note") forbid (principal, action, resource) when {{ context.args has note }};"#
    ));
    let rows = [
        (json!({}), Deny, json!({ "/fee": 500 })),
        (json!({ "fee": 1 }), Permit, json!({})),
        (json!({ "fee": 1, "options": { "limit": 1 } }), Permit, json!({})),
        (json!({ "fee": 1, "options": {} }), Approval, json!({ "/options/limit": 500 })),
        // Null is this tool's word for nothing.
        (json!({ "fee": 1, "note": null }), Permit, json!({})),
        (json!({ "fee": 1, "note": "" }), Deny, json!({})),
    ];
    for (args, verdict, defaults) in rows {
        let decision = decide(&set, &pay(args.clone()));
        assert_eq!(Verdict::of(&decision), verdict, "{args}");
        assert_eq!(Value::Object(decision.defaults), defaults, "{args}");
    }
}

#[test]
fn what_is_sent_after_a_cap_is_decided_on_too() {
    let set = bank_set(
        r#"@id("capped") @cap("count <= 30") permit (principal, action == Action::"bank.pay", resource);
           @id("lower") @cap("count <= 20") permit (principal, action == Action::"bank.pay", resource)
               when { context.args has count && context.args.count == 30 };
           @id("never") forbid (principal, action == Action::"bank.pay", resource)
               when { context.args has amount && context.args.amount == decimal("7.0") &&
                      context.args has count && context.args.count == 20 };
           @id("ask") @approval("twenty") permit (principal, action == Action::"bank.pay", resource)
               when { context.args has count && context.args.count == 20 };"#,
    );
    let rows = [
        (json!({ "count": 10 }), Permit, 30),
        (json!({ "count": 20 }), Approval, 30),
        // Lowered to 30, and then to 20, which needs a person.
        (json!({ "count": 50 }), Approval, 20),
        (json!({ "count": 50, "amount": 7 }), Deny, 0),
    ];
    for (args, verdict, cap) in rows {
        let decision = decide(&set, &pay(args.clone()));
        assert_eq!(Verdict::of(&decision), verdict, "{args}");
        assert_eq!(decision.caps.get("count").copied().unwrap_or_default(), cap, "{args}");
        let explained = set.explain(&principal("agent"), &pay(args), &Facts::default());
        assert_eq!((explained.verdict, explained.caps), (verdict, decision.caps));
    }
}

#[test]
fn a_default_above_a_cap_is_refused_because_it_cannot_be_lowered() {
    let set = bank_set(
        r#"@id("capped") @cap("fee <= 30") permit (principal, action == Action::"bank.pay", resource);"#,
    );
    assert_eq!(brief(&decide(&set, &pay(json!({ "fee": 900 })))), (Permit, vec!["capped"]));
    let decision = decide(&set, &pay(json!({})));
    assert_eq!(brief(&decision), (Deny, vec!["capped"]));
    assert!(decision.detail.unwrap().contains("default for it is not within the cap of 30"));
}

#[test]
fn a_fraction_and_a_large_number_keep_their_cap() {
    let policy = r#"@id("capped") @cap("amount <= 30") permit
        (principal, action == Action::"bank.pay", resource);"#;
    for amount in [0.5, 30.5, 1e300] {
        let decision = decide(&bank_set(policy), &pay(json!({ "amount": amount })));
        assert_eq!(brief(&decision), (Permit, vec!["capped"]));
        assert_eq!(decision.caps["amount"], 30);
    }
}

#[test]
fn check_says_which_arguments_a_policy_cannot_always_see() {
    let policies = format!(
        r#"{PAY} @id("much") forbid (principal, action, resource)
            when {{ context.args has amount && context.args.amount.greaterThan(decimal("100.0")) ||
                    context.args has count && context.args.count > 100 ||
                    context.args has tags && context.args.tags.contains("evil") ||
                    context.args has note }};"#
    );
    let directory = directory(&[("p.cedar", &policies)]);
    let checked = stepgate_policy::check(directory.path(), &[bank()]);
    let told: Vec<(Severity, &str)> = checked
        .findings
        .iter()
        .map(|found| (found.severity, found.message.split(": ").next().unwrap()))
        .collect();
    let expected = [
        (
            Severity::Note,
            "`much` reads `amount`, and cannot see it where it is more precise than four decimal places \
             or beyond ±922337203685477.5807",
        ),
        (
            Severity::Note,
            "`much` reads `count`, and cannot see it where it is beyond ±9007199254740991",
        ),
        (
            Severity::Warning,
            "`much` reads `tags`, and cannot see it where an element of it is or has something null",
        ),
    ];
    assert_eq!(told, expected);
    assert!(checked.is_loadable());
}

#[test]
fn a_policy_that_reads_what_is_unseen_denies_also_without_has() {
    let policies = r#"
        @id("plain") permit (principal, action in Action::"execute_gated", resource);
        @id("quiet") forbid (principal, action == Action::"sonos.set_volume", resource)
            when { context.args.volume > 50 };
    "#;
    check(
        policies,
        &[
            ("agent", VOLUME, json!({ "volume": 50 }), Permit, &["plain"]),
            ("agent", VOLUME, json!({ "volume": 51 }), Deny, &["quiet"]),
            ("agent", VOLUME, json!({ "volume": 1e300 }), Deny, &["quiet"]),
            ("agent", VOLUME, json!({ "volume": 50.5 }), Deny, &["quiet"]),
            ("agent", VOLUME, json!({}), Deny, &["quiet"]),
        ],
    );
    // A redacted argument is a digest, not the number that the schema promises.
    let args = json!({ "volume": 1 }).as_object().unwrap().clone();
    let redacted = redacting_call(&tools()[0], args, &["volume"]);
    let set = set(policies);
    assert_eq!(brief(&decide(&set, &redacted.written())), (Deny, vec!["quiet"]));
    assert_eq!(set.explain(&principal("agent"), &redacted, &Facts::default()).verdict, Deny);
}

#[test]
fn what_may_be_absent_cannot_be_read_without_asking() {
    let reading = |action: &str, condition: &str| {
        format!(
            "permit (principal, action == Action::\"{action}\", resource) when {{ {condition} }};"
        )
    };
    let rows = [
        (VOLUME, "context.args.balance == decimal(\"3.0\")", "ask `has` first"),
        (VOLUME, "context.args.room == \"bath\"", "ask `has` first"),
        ("mail.draft", "context.args.subject == \"x\"", "ask `has` first"),
        ("mail.draft", "context.args.anything == 1", "those that the tool's schema types"),
        ("mail.draft", "context.args.reasoning == \"x\"", "those that the tool's schema types"),
        (VOLUME, "context.now == 1", "policies see `context.args`"),
        (VOLUME, "context.args.volume == \"loud\"", "`volume` is a whole number"),
        (VOLUME, "context.args.volume like \"loud\"", "see docs/policy.md"),
        ("READ_FILE", "context.args.content == \"x\"", "policies see `context.args`"),
    ];
    for (action, condition, expected) in rows {
        let errors = errors(&reading(action, condition));
        assert_eq!(errors.len(), 1, "{condition}: {errors:?}");
        assert!(errors[0].starts_with("DIR/p.cedar:1:"), "{errors:?}");
        assert!(errors[0].contains(expected), "{condition}: {errors:?}");
    }
}

#[test]
fn paths_in_arguments_are_spelled_like_the_resource() {
    check(
        r#"@id("root") permit (principal, action == Action::"LIST_FILES", resource)
               when { context.args.path == "/sandbox" };
           @id("into") permit (principal, action == Action::"RENAME_FILE", resource)
               when { context.args.destination like "/sandbox/out/*" };
           @id("short") permit (principal, action == Action::"WRITE_FILE", resource)
               when { context.args.content == "hello" };"#,
        &[
            ("agent", "LIST_FILES", json!({ "path": "/sandbox/" }), Permit, &["root"]),
            (
                "agent",
                "RENAME_FILE",
                json!({ "source": "/sandbox/a.txt", "destination": "/sandbox/out/a.txt" }),
                Permit,
                &["into"],
            ),
            (
                "agent",
                "WRITE_FILE",
                json!({ "path": "/sandbox/a.txt", "content": "hello" }),
                Permit,
                &["short"],
            ),
        ],
    );
}

#[test]
fn an_unclear_default_is_refused_under_a_cap_on_it_and_under_no_other() {
    let unclear = shape(
        "bank.pay",
        Mode::ExecuteGated,
        json!({
            "type": "object",
            "properties": {
                "fee": { "type": "integer", "anyOf": [{ "default": 1 }, { "default": 2 }] },
                "amount": { "type": "integer" },
            },
        }),
    );
    for (argument, verdict) in [("fee", Deny), ("amount", Permit)] {
        let policy = format!(
            r#"@cap("{argument} <= 30") permit (principal, action == Action::"bank.pay", resource);"#
        );
        let directory = directory(&[("p.cedar", &policy)]);
        let set = PolicySet::load(directory.path(), std::slice::from_ref(&unclear)).unwrap();
        let decision = decide(&set, &server_call(&unclear, serde_json::Map::new()));
        assert_eq!(brief(&decision).0, verdict, "{argument}");
    }
}

/// What `check` says of a policy that reads `context.args.x`, for a schema of `x`.
fn blind_to(schema: &Value, read: &str) -> Vec<String> {
    let tool = shape(
        "some.tool",
        Mode::Draft,
        json!({ "type": "object", "properties": { "x": schema }, "required": ["x"] }),
    );
    let policy = format!(
        r#"@id("p") forbid (principal, action == Action::"some.tool", resource) when {{ {read} }};"#
    );
    let directory = directory(&[("p.cedar", &policy)]);
    let found = stepgate_policy::check(directory.path(), &[tool]).findings;
    let when = |message: &str| {
        let (_, rest) = message.split_once("cannot see it ").unwrap_or(("", message));
        rest.split(": ").next().unwrap_or_default().to_owned()
    };
    let is_blind = |found: &&Finding| found.message.contains("cannot see it ");
    found.iter().filter(is_blind).map(|found| when(&found.message)).collect()
}

#[test]
fn check_knows_which_integers_are_always_seen() {
    let most: i64 = 9_007_199_254_740_991;
    let beyond = ["where it is beyond ±9007199254740991"];
    let rows = [
        (json!({ "type": "integer", "minimum": 0, "maximum": most }), &[][..]),
        (json!({ "type": "integer", "exclusiveMinimum": 0, "exclusiveMaximum": 9 }), &[]),
        (json!({ "type": "integer", "enum": [1, 2] }), &[]),
        (json!({ "type": "integer", "minimum": 0 }), &beyond),
        (json!({ "type": "integer", "maximum": 9 }), &beyond),
        (json!({ "type": "integer", "minimum": 0, "maximum": most + 1 }), &beyond),
        (json!({ "type": "integer" }), &beyond),
    ];
    for (schema, expected) in rows {
        assert_eq!(blind_to(&schema, "context.args.x > 3"), expected, "{schema}");
    }
}

#[test]
fn check_knows_which_numbers_are_always_seen() {
    let max = 922_337_203_685_477_i64;
    let fine = "where it is more precise than four decimal places";
    let large = "where it is beyond ±922337203685477.5807";
    let both = "where it is more precise than four decimal places or beyond ±922337203685477.5807";
    let rows = [
        (json!({ "type": "number" }), Some(both)),
        (json!({ "type": "number", "minimum": 0, "maximum": max }), Some(fine)),
        (json!({ "type": "number", "multipleOf": 0.01, "minimum": 0, "maximum": max }), None),
        (json!({ "type": "number", "multipleOf": 0.01, "minimum": 0 }), Some(large)),
        (
            json!({ "type": "number", "multipleOf": 0.01, "minimum": 0, "maximum": max + 1 }),
            Some(large),
        ),
        (
            json!({ "type": "number", "multipleOf": 0.00001, "minimum": 0, "maximum": 9 }),
            Some(fine),
        ),
        (json!({ "type": "number", "enum": [0.5, 1] }), None),
        (json!({ "type": "number", "enum": [0.5, 0.00001] }), Some(fine)),
        (json!({ "type": "number", "const": 1e300 }), Some(large)),
        (json!({ "enum": [0.5, 1] }), None),
    ];
    for (schema, expected) in rows {
        let found = blind_to(&schema, "context.args.x.greaterThan(decimal(\"3.0\"))");
        let expected: Vec<&str> = expected.into_iter().collect();
        assert_eq!(found, expected, "{schema}");
    }
    // The contract keeps what `multipleOf` says to the digit.
    let cents = json!({ "type": "object", "properties": { "x": { "multipleOf": 0.01 } } });
    let contract = stepgate_exec::servers::contract(&cents).unwrap();
    let is_valid = |x: f64| contract.check(json!({ "x": x }).as_object().unwrap()).is_ok();
    assert_eq!([0.07, 1.1, 0.30000000000000004, 0.001].map(is_valid), [true, true, false, false]);
}

#[test]
fn check_knows_which_objects_can_have_more_than_their_schema_names() {
    let open = |more: Value| {
        let mut schema = json!({ "type": "object", "properties": { "a": { "type": "string" } } });
        schema.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        schema
    };
    let more = ["where it is not named in the tool's schema"];
    let rows = [
        (json!({}), &[][..]),
        (json!({ "additionalProperties": false }), &[]),
        (json!({ "additionalProperties": true }), &more),
        (json!({ "unevaluatedProperties": { "type": "string" } }), &more),
        (json!({ "patternProperties": { "^x": {} } }), &more),
    ];
    for (schema, expected) in rows {
        for read in ["context.args.x == context.args.x", "context.args.x has no_such"] {
            let found = blind_to(&open(schema.clone()), read);
            assert_eq!(found, expected, "{schema} {read}");
        }
        let list = json!({ "type": "array", "items": open(schema.clone()) });
        let found = blind_to(&list, "context.args has x && context.args.x.isEmpty()");
        let expected: Vec<String> = expected
            .iter()
            .map(|text| text.replace("it is", "an element of it is or has something"))
            .collect();
        assert_eq!(found, expected, "a list of {schema}");
    }
}

#[test]
fn check_looks_only_at_accepted_tools_that_a_policy_is_about() {
    let schema = json!({ "type": "object", "properties": { "x": { "type": "number" } } });
    let one = shape("some.tool", Mode::Draft, schema.clone());
    let other = shape("other.tool", Mode::Draft, schema.clone());
    let off = ToolShape { is_accepted: false, ..shape("off.tool", Mode::Draft, schema) };
    let policy = r#"@id("p") forbid (principal, action in [Action::"some.tool", Action::"off.tool"], resource)
        when { context.args has x && context.args.x == decimal("3.0") };"#;
    let directory = directory(&[("p.cedar", policy)]);
    let found = stepgate_policy::check(directory.path(), &[one, other, off]).findings;
    let [found] = &*found else { panic!("{found:?}") };
    assert!(found.message.contains("a call of `some.tool` with such a value"), "{found:?}");
}
