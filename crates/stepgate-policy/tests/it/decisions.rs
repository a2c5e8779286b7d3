//! What is permitted, what needs a person, what is denied.

use std::collections::BTreeMap;

use serde_json::json;
use stepgate_core::facts::Facts;
use stepgate_core::ports::PolicyVerdict;
use stepgate_core::tool::Mode;
use stepgate_policy::Verdict::{Approval, Deny, Permit};

use crate::world::{brief, call, check, decide, decide_for, server_call, set, shape};

#[test]
fn policies_decide_by_principal_action_resource_and_context() {
    check(
        r#"
        @id("read") permit (principal, action == Action::"READ_FILE", resource);
        @id("list") permit (principal == Principal::"lister", action == Action::"LIST_FILES", resource);
        @id("think") permit (principal, action == Action::"THINK", resource == Tool::"THINK");
        @id("finish") permit (principal, action, resource in Server::"core")
            when { context has args && action == Action::"FINISH" };
        @id("look") permit (principal, action in Action::"read_only", resource in Server::"calendar");
        @id("loud") permit (principal, action == Action::"sonos.set_volume", resource)
            when { context.args.volume < 50 && context.mode == "execute_gated" && context.server == "sonos" };
        "#,
        &[
            ("agent", "READ_FILE", json!({ "path": "/sandbox/a.txt" }), Permit, &["read"]),
            ("agent", "LIST_FILES", json!({ "path": "/sandbox/" }), Deny, &[]),
            ("lister", "LIST_FILES", json!({ "path": "/sandbox/" }), Permit, &["list"]),
            ("agent", "THINK", json!({}), Permit, &["think"]),
            ("agent", "FINISH", json!({ "response": "done" }), Permit, &["finish"]),
            ("agent", "DELETE_FILE", json!({ "path": "/sandbox/a.txt" }), Deny, &[]),
            ("agent", "calendar.get_agenda", json!({ "day": "today" }), Permit, &["look"]),
            ("agent", "mail.draft", json!({ "to": [] }), Deny, &[]),
            ("agent", "sonos.set_volume", json!({ "volume": 49 }), Permit, &["loud"]),
            ("agent", "sonos.set_volume", json!({ "volume": 50 }), Deny, &[]),
        ],
    );
}

#[test]
fn no_policy_means_no() {
    check(
        "// nothing\n",
        &[
            ("agent", "THINK", json!({}), Deny, &[]),
            ("agent", "sonos.set_volume", json!({ "volume": 1 }), Deny, &[]),
        ],
    );
}

#[test]
fn an_approval_wins_over_a_plain_permit_and_a_forbid_over_both() {
    let policies = r#"
        @id("plain") permit (principal, action in Action::"core", resource);
        @id("ask") @approval("a file goes") permit (principal, action == Action::"DELETE_FILE", resource);
        @id("ask-again") @approval("an old file goes") permit (principal, action == Action::"DELETE_FILE",
            resource in Path::"/sandbox/old");
        @id("never") forbid (principal, action == Action::"DELETE_FILE", resource == Path::"/sandbox/keep.txt");
    "#;
    check(
        policies,
        &[
            ("agent", "READ_FILE", json!({ "path": "/sandbox/a.txt" }), Permit, &["plain"]),
            (
                "agent",
                "DELETE_FILE",
                json!({ "path": "/sandbox/a.txt" }),
                Approval,
                &["ask", "plain"],
            ),
            ("agent", "DELETE_FILE", json!({ "path": "/sandbox/keep.txt" }), Deny, &["never"]),
        ],
    );
    let decision =
        decide(&set(policies), &call("DELETE_FILE", json!({ "path": "/sandbox/old/a.txt" })));
    let reason = "a file goes; an old file goes".into();
    assert_eq!(decision.verdict, PolicyVerdict::RequireApproval(reason));
}

#[test]
fn a_policy_that_errors_denies_whatever_it_is() {
    let overflow = "when { context.args.volume + 9223372036854775807 < 0 }";
    let forbid = format!(
        r#"@id("plain") permit (principal, action in Action::"execute_gated", resource);
           @id("broken") forbid (principal, action == Action::"sonos.set_volume", resource) {overflow};"#
    );
    check(
        &forbid,
        &[
            ("agent", "sonos.set_volume", json!({ "volume": 1 }), Deny, &["broken"]),
            // Without the error the forbid would not match, and the permit counts.
            ("agent", "sonos.set_volume", json!({ "volume": -1 }), Permit, &["plain"]),
        ],
    );
    let permit = format!(
        r#"@id("plain") permit (principal, action in Action::"execute_gated", resource);
           @id("broken") permit (principal, action == Action::"sonos.set_volume", resource) {overflow};"#
    );
    check(&permit, &[("agent", "sonos.set_volume", json!({ "volume": 1 }), Deny, &["broken"])]);
    let both = format!(
        r#"@id("never") forbid (principal, action, resource);
           @id("broken") permit (principal, action == Action::"sonos.set_volume", resource) {overflow};"#
    );
    check(
        &both,
        &[("agent", "sonos.set_volume", json!({ "volume": 1 }), Deny, &["broken", "never"])],
    );
}

#[test]
fn a_directory_holds_everything_beneath_it_and_nothing_beside_it() {
    let delete = |path: &str| json!({ "path": path });
    check(
        r#"@id("reports") permit (principal, action == Action::"DELETE_FILE", resource in Path::"/sandbox/reports");
           @id("root") permit (principal, action == Action::"LIST_FILES", resource == Path::"/sandbox");
           @id("all") permit (principal, action == Action::"READ_FILE", resource in Path::"/sandbox");"#,
        &[
            ("agent", "DELETE_FILE", delete("/sandbox/reports/a.txt"), Permit, &["reports"]),
            (
                "agent",
                "DELETE_FILE",
                delete("/sandbox/reports/2026/q1/a.txt"),
                Permit,
                &["reports"],
            ),
            ("agent", "DELETE_FILE", delete("/sandbox/reports"), Permit, &["reports"]),
            ("agent", "DELETE_FILE", delete("/sandbox/reports2/a.txt"), Deny, &[]),
            ("agent", "DELETE_FILE", delete("/sandbox/old/reports/a.txt"), Deny, &[]),
            ("agent", "LIST_FILES", delete("/sandbox/"), Permit, &["root"]),
            ("agent", "LIST_FILES", delete("/sandbox/reports/"), Deny, &[]),
            ("agent", "READ_FILE", delete("/sandbox/a/b/c/d/e.txt"), Permit, &["all"]),
        ],
    );
}

#[test]
fn a_rename_must_be_permitted_at_both_ends_and_the_stricter_answer_wins() {
    let rename = |source: &str, destination: &str| {
        json!({ "source": format!("/sandbox/{source}/x.txt"),
                "destination": format!("/sandbox/{destination}/x.txt") })
    };
    check(
        r#"@id("free") permit (principal, action == Action::"RENAME_FILE", resource in Path::"/sandbox/free");
           @id("asked") @approval("look") permit (principal, action == Action::"RENAME_FILE",
               resource in Path::"/sandbox/asked");
           @id("kept") forbid (principal, action == Action::"RENAME_FILE", resource in Path::"/sandbox/kept");"#,
        &[
            ("agent", "RENAME_FILE", rename("free", "free"), Permit, &["free"]),
            ("agent", "RENAME_FILE", rename("free", "asked"), Approval, &["asked", "free"]),
            ("agent", "RENAME_FILE", rename("asked", "free"), Approval, &["asked", "free"]),
            ("agent", "RENAME_FILE", rename("free", "kept"), Deny, &["kept"]),
            ("agent", "RENAME_FILE", rename("kept", "free"), Deny, &["kept"]),
            ("agent", "RENAME_FILE", rename("asked", "kept"), Deny, &["kept"]),
            ("agent", "RENAME_FILE", rename("kept", "asked"), Deny, &["kept"]),
            ("agent", "RENAME_FILE", rename("free", "other"), Deny, &[]),
            ("agent", "RENAME_FILE", rename("other", "free"), Deny, &[]),
            ("agent", "RENAME_FILE", rename("kept", "other"), Deny, &["kept"]),
        ],
    );
}

#[test]
fn caps_of_all_permits_that_match_are_united_and_the_smallest_wins() {
    let set = set(r#"
        @cap("volume <= 30; balance <= 2") permit (principal, action in Action::"execute_gated", resource);
        @cap("volume <= 20") permit (principal, action == Action::"sonos.set_volume", resource);
        @cap("volume <= 5") permit (principal == Principal::"child", action == Action::"sonos.set_volume", resource);
        forbid (principal == Principal::"thief", action, resource);
    "#);
    let loud = call("sonos.set_volume", json!({ "volume": 90 }));
    let caps = |pairs: &[(&str, i64)]| -> BTreeMap<String, i64> {
        pairs.iter().map(|(name, max)| ((*name).to_owned(), *max)).collect()
    };
    assert_eq!(decide(&set, &loud).caps, caps(&[("balance", 2), ("volume", 20)]));
    assert_eq!(decide_for(&set, "child", &loud).caps, caps(&[("balance", 2), ("volume", 5)]));
    let denied = decide_for(&set, "thief", &loud);
    assert_eq!((denied.verdict, denied.caps), (PolicyVerdict::Deny, caps(&[])));
}

#[test]
fn a_tool_that_was_not_known_or_had_another_mode_is_denied() {
    let set = set("permit (principal, action, resource);");
    let schema = json!({ "type": "object" });
    let unknown = shape("radio.play", Mode::ReadOnly, schema.clone());
    let other_mode = shape("sonos.set_volume", Mode::ReadOnly, schema);
    for tool in [unknown, other_mode] {
        let decision = decide(&set, &server_call(&tool, serde_json::Map::new()));
        assert_eq!(brief(&decision), (Deny, vec![]), "{}", tool.name);
    }
}

#[test]
fn no_spelling_breaks_out_of_an_id() {
    let policies = r#"@id("victim") permit (principal, action == Action::"READ_FILE", resource in Path::"/sandbox/open");
                      @id("quoted") permit (principal, action == Action::"READ_FILE", resource == Path::"/sandbox/a\"b.txt");"#;
    let read = |path: &str| json!({ "path": path });
    check(
        policies,
        &[
            ("agent", "READ_FILE", read("/sandbox/x\" in Path::\"/sandbox/open.txt"), Deny, &[]),
            ("agent", "READ_FILE", read("/sandbox/open\\/x.txt"), Deny, &[]),
            ("agent", "READ_FILE", read("/sandbox/ope\u{6e}\u{301}/x.txt"), Deny, &[]),
            (
                "agent",
                "READ_FILE",
                read("/sandbox/open/\u{202e}\"; permit.txt"),
                Permit,
                &["victim"],
            ),
            ("agent", "READ_FILE", read("/sandbox/a\"b.txt"), Permit, &["quoted"]),
            ("a.b-c_d", "READ_FILE", read("/sandbox/a.txt"), Deny, &[]),
        ],
    );
}

#[test]
fn the_digest_follows_names_and_texts_and_not_the_tools() {
    use crate::world::{directory, tools};
    use stepgate_policy::PolicySet;
    let digest = |files: &[(&str, &str)], tools: &[_]| {
        PolicySet::load(directory(files).path(), tools).unwrap().digest()
    };
    let policy = "permit (principal, action, resource);";
    let base = digest(&[("a.cedar", policy)], &[]);
    assert_eq!(base, digest(&[("a.cedar", policy)], &tools()));
    let others = [
        digest(&[("a.cedar", "permit (principal, action,  resource);")], &[]),
        digest(&[("b.cedar", policy)], &[]),
        digest(&[("a.cedar", policy), ("b.cedar", "")], &[]),
        digest(&[("a.cedar", policy), ("a.cases.toml", "")], &[]),
    ];
    assert!(others.iter().all(|other| *other != base));
}

#[test]
fn what_is_answered_without_asking_cedar_is_what_cedar_would_say() {
    let sets = [
        "",
        r#"@id("all") permit (principal, action, resource);"#,
        r#"@id("core") permit (principal, action in Action::"core", resource);"#,
        r#"@id("core") permit (principal, action in Action::"core", resource);
           @id("ask") @approval("a file goes") permit (principal, action == Action::"DELETE_FILE", resource);
           @id("ask-too") @approval("and again") permit (principal, action == Action::"DELETE_FILE", resource);"#,
        r#"@id("core") permit (principal, action in Action::"core", resource);
           @id("never") forbid (principal, action in [Action::"DELETE_FILE", Action::"RENAME_FILE"], resource);
           @id("nor") forbid (principal, action == Action::"DELETE_FILE", resource);"#,
        r#"@id("core") permit (principal, action in Action::"core", resource);
           @id("one") forbid (principal == Principal::"agent", action, resource == Path::"/sandbox/a.txt");"#,
        r#"@id("core") permit (principal, action in Action::"core", resource) when { true };
           @id("in") forbid (principal, action, resource in Path::"/sandbox/b") unless { false };"#,
    ];
    let path = json!({ "path": "/sandbox/a.txt" });
    let calls = [
        ("THINK", json!({})),
        ("READ_FILE", path.clone()),
        ("DELETE_FILE", path),
        ("DELETE_FILE", json!({ "path": "/sandbox/b/c.txt" })),
        ("RENAME_FILE", json!({ "source": "/sandbox/a.txt", "destination": "/sandbox/b/c.txt" })),
    ];
    for policies in sets {
        let set = set(policies);
        for (name, args) in &calls {
            for principal in ["agent", "other"] {
                let decision = decide_for(&set, principal, &call(name, args.clone()));
                let principal = stepgate_core::ids::PrincipalId::parse(principal).unwrap();
                let cedar = set.explain(&principal, &call(name, args.clone()), &Facts::default());
                let place = format!("{name} {args} by {principal}: {policies}");
                assert_eq!(stepgate_policy::Verdict::of(&decision), cedar.verdict, "{place}");
                assert_eq!(decision.policies, cedar.policies, "{place}");
                assert_eq!(decision.caps, cedar.caps, "{place}");
                let reason = match decision.verdict {
                    PolicyVerdict::RequireApproval(need) => Some(need.reason),
                    PolicyVerdict::Permit | PolicyVerdict::Deny => None,
                };
                assert_eq!(reason, cedar.reason, "{place}");
            }
        }
    }
}

#[test]
fn a_condition_a_principal_or_a_resource_alone_is_asked_about_for_every_call() {
    let read = |path: &str| json!({ "path": path });
    let rows = [
        r#"@id("some") permit (principal, action == Action::"READ_FILE", resource)
            when { context.args.path == "/sandbox/a.txt" };"#,
        r#"@id("some") permit (principal, action == Action::"READ_FILE",
            resource == Path::"/sandbox/a.txt");"#,
    ];
    for policies in rows {
        check(
            policies,
            &[
                ("agent", "READ_FILE", read("/sandbox/a.txt"), Permit, &["some"]),
                ("agent", "READ_FILE", read("/sandbox/b.txt"), Deny, &[]),
            ],
        );
    }
    check(
        r#"@id("some") permit (principal == Principal::"reader", action == Action::"READ_FILE", resource);"#,
        &[
            ("reader", "READ_FILE", read("/sandbox/a.txt"), Permit, &["some"]),
            ("agent", "READ_FILE", read("/sandbox/a.txt"), Deny, &[]),
        ],
    );
}
