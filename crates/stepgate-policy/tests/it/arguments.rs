//! What policies see of a tool's arguments, and what they do not.

use serde_json::{Value, json};
use stepgate_policy::Verdict::{self, Deny, Permit};

use crate::world::{brief, call, check, decide, errors, redacting_call, set, tools};

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
fn a_value_that_cedar_cannot_hold_is_left_out_and_named() {
    let policies = r#"
        @id("whole") permit (principal, action == Action::"sonos.set_volume", resource)
            when { context.args has balance && context.args.balance <= 3 };
        @id("other") permit (principal, action == Action::"sonos.set_volume", resource)
            when { context.left_out.contains("balance") && context.args.volume == 1 };
        @id("nested") permit (principal, action == Action::"mail.draft", resource)
            when { context.left_out.containsAll(["subject", "options.priority", "anything"]) };
        @id("list") permit (principal, action == Action::"mail.draft", resource)
            when { context.left_out == ["to"] };
    "#;
    let set_volume = |balance: Value| json!({ "volume": 1, "balance": balance });
    let rows: Vec<(&str, Value, Verdict, Vec<&str>)> = vec![
        (VOLUME, set_volume(json!(3)), Permit, vec!["whole"]),
        (VOLUME, set_volume(json!(3.0)), Permit, vec!["whole"]),
        (VOLUME, set_volume(json!(-0.0)), Permit, vec!["whole"]),
        (VOLUME, set_volume(json!(4)), Deny, vec![]),
        (VOLUME, set_volume(json!(2.5)), Permit, vec!["other"]),
        (VOLUME, set_volume(json!(1e300)), Permit, vec!["other"]),
        (VOLUME, set_volume(json!(u64::MAX)), Permit, vec!["other"]),
        (VOLUME, json!({ "volume": 1 }), Deny, vec![]),
        (
            "mail.draft",
            json!({ "to": [], "subject": null, "anything": 1,
                    "options": { "urgent": true, "priority": 0.5 } }),
            Permit,
            vec!["nested"],
        ),
        (
            "mail.draft",
            json!({ "to": [], "subject": "x", "options": { "urgent": true, "priority": 1 } }),
            Deny,
            vec![],
        ),
        // All of a list or nothing: one element less would answer `contains` wrongly.
        ("mail.draft", json!({ "to": ["a", 1] }), Permit, vec!["list"]),
    ];
    let set = set(policies);
    for (name, args, verdict, policies) in rows {
        let decision = decide(&set, &call(name, args.clone()));
        assert_eq!(brief(&decision), (verdict, policies), "{name} {args}");
    }
}

#[test]
fn a_policy_that_reads_what_was_left_out_errors_and_denies() {
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
    assert_eq!(set.explain(&crate::world::principal("agent"), &redacted).verdict, Deny);
}

#[test]
fn what_may_be_absent_cannot_be_read_without_asking() {
    let reading = |action: &str, condition: &str| {
        format!(
            "permit (principal, action == Action::\"{action}\", resource) when {{ {condition} }};"
        )
    };
    let rows = [
        (VOLUME, "context.args.balance <= 3", "ask `has` first"),
        (VOLUME, "context.args.room == \"bath\"", "ask `has` first"),
        ("mail.draft", "context.args.subject == \"x\"", "ask `has` first"),
        ("mail.draft", "context.args.anything == 1", "those that the tool's schema types"),
        ("mail.draft", "context.args.reasoning == \"x\"", "those that the tool's schema types"),
        (VOLUME, "context.now == 1", "policies see `context.args`"),
        (VOLUME, "context.args.volume == \"loud\"", "see docs/policy.md"),
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
