//! What can be offered: whatever could be permitted, and nothing that never is.

use std::collections::BTreeSet;
use stepgate_core::ports::Policy;

use crate::world::{principal, set};

fn check(policies: &str, rows: &[(&str, &str, bool)]) {
    let set = set(policies);
    for (name, action, expected) in rows {
        let could = set.prospect(&principal(name), &BTreeSet::new(), action).could_permit;
        assert_eq!(could, *expected, "{action} for {name} under {policies}");
    }
}

#[test]
fn what_no_permit_can_reach_is_never_permitted() {
    check(
        r#"
        permit (principal, action == Action::"READ_FILE", resource in Path::"/sandbox/public");
        permit (principal == Principal::"lister", action == Action::"LIST_FILES", resource);
        permit (principal is Principal, action == Action::"THINK", resource is Tool);
        permit (principal in Principal::"lister", action, resource in Server::"calendar");
        permit (principal is Principal in Principal::"lister", action, resource == Tool::"mail.draft");
        @approval("it is loud")
        permit (principal, action in Action::"execute_gated", resource is Tool in Server::"sonos")
            when { context.args.volume < 50 };
        "#,
        &[
            ("agent", "READ_FILE", true),
            ("agent", "WRITE_FILE", false),
            ("agent", "LIST_FILES", false),
            ("lister", "LIST_FILES", true),
            ("agent", "THINK", true),
            ("agent", "calendar.get_agenda", false),
            ("lister", "calendar.get_agenda", true),
            ("agent", "mail.draft", false),
            ("lister", "mail.draft", true),
            ("agent", "sonos.set_volume", true),
            ("agent", "no.such_tool", false),
            ("agent", "NO_SUCH_ACTION", false),
        ],
    );
}

#[test]
fn what_a_forbid_always_reaches_is_never_permitted() {
    check(
        r#"
        permit (principal, action, resource);
        forbid (principal, action == Action::"DELETE_FILE", resource);
        forbid (principal == Principal::"guest", action, resource);
        forbid (principal, action == Action::"WRITE_FILE", resource in Path::"/sandbox/keep");
        forbid (principal, action, resource in Server::"sonos");
        forbid (principal, action == Action::"mail.draft", resource) when { context.mode == "draft" };
        "#,
        &[
            ("agent", "DELETE_FILE", false),
            ("guest", "READ_FILE", false),
            ("agent", "READ_FILE", true),
            ("agent", "WRITE_FILE", true),
            ("agent", "sonos.set_volume", false),
            ("agent", "mail.draft", true),
            ("agent", "calendar.get_agenda", true),
        ],
    );
}

#[test]
fn a_person_can_be_asked_only_where_a_policy_with_an_approval_reaches() {
    let set = set(r#"
        permit (principal, action, resource);
        @approval("it is loud")
        permit (principal == Principal::"guest", action in Action::"execute_gated", resource in Server::"sonos")
            when { context.args.volume > 50 };
        "#);
    let could = |name, action| set.prospect(&principal(name), &BTreeSet::new(), action).could_ask;
    assert!(could("guest", "sonos.set_volume"));
    assert!(!could("agent", "sonos.set_volume"), "another principal");
    assert!(!could("guest", "calendar.get_agenda"), "another server");
    assert!(!could("guest", "no.such_tool"));
}

#[test]
fn the_resource_of_a_scope_is_its_type_and_what_it_is_in() {
    check(
        r#"
        permit (principal, action in Action::"draft", resource is Tool);
        permit (principal, action in Action::"execute_gated", resource is Path);
        permit (principal, action in Action::"read_only", resource is Tool in Server::"sonos");
        "#,
        &[
            ("agent", "mail.draft", true),
            ("agent", "sonos.set_volume", false),
            ("agent", "calendar.get_agenda", false),
        ],
    );
}
