//! Annotations change what a policy means, so none is ignored.

use stepgate_core::approvers::Required;
use stepgate_core::ports::{ApprovalNeed, PolicyVerdict};
use stepgate_policy::check;
use stepgate_policy::limits::{NAME_BYTES_MAX, REASON_BYTES_MAX};

use crate::world::{call, decide, directory, errors, errors_in, set, tools};

#[test]
fn a_policy_is_named_by_its_id_or_by_its_file_and_number() {
    let set = set("permit (principal, action, resource);\n\
         @id(\"mine\") permit (principal, action, resource);\n\
         forbid (principal, action, resource);");
    let names: Vec<&str> = set.policies().collect();
    assert_eq!(names, ["p.cedar#1", "mine", "p.cedar#3"]);
}

#[test]
fn what_an_annotation_says_is_understood_or_refused() {
    let tail = "(principal, action == Action::\"sonos.set_volume\", resource);";
    let rows = [
        (
            format!("@aproval(\"ask\") permit {tail}"),
            "DIR/p.cedar:1:1: unknown annotation `@aproval`; the annotations are `@id`, `@approval`, \
             `@approvers`, `@quorum`, `@cap` and `@erasable`, anything else belongs into a comment",
        ),
        (
            format!("\n  @approval permit {tail}"),
            "DIR/p.cedar:2:3: `@approval` needs a reason for the person who decides, of one line \
             and at most 512 bytes: `@approval(\"this changes the world\")`",
        ),
        (
            format!("@approval(\"no\") forbid {tail}"),
            "DIR/p.cedar:1:1: `@approval` and `@cap` belong to a `permit`: a `forbid` refuses \
             without conditions; remove the annotation, or write a `permit`",
        ),
        (
            format!("@quorum(\"2\") permit {tail}"),
            "DIR/p.cedar:1:1: `@approvers` and `@quorum` say who decides: add `@approval(\"why a \
             person must decide\")`, or remove them",
        ),
        (
            format!("@approval(\"ask\") @quorum(\"0\") permit {tail}"),
            "DIR/p.cedar:1:1: `@quorum(\"0\")` needs a number of people from 1 to 10",
        ),
        (
            format!("@approval(\"ask\") @quorum(\"eleven\") permit {tail}"),
            "DIR/p.cedar:1:1: `@quorum(\"eleven\")` needs a number of people from 1 to 10",
        ),
        (
            format!("@approval(\"ask\") @approvers(\"ann,, bob\") permit {tail}"),
            "DIR/p.cedar:1:1: `@approvers(\"ann,, bob\")` needs 1 to 32 names of groups or people, \
             separated by commas: `@approvers(\"finance, ann\")`",
        ),
        (
            format!("@id(\"a b\") permit {tail}"),
            "DIR/p.cedar:1:1: `@id(\"a b\")` is not a name; use 1 to 128 letters, digits, `.`, `_`, \
             `-` or `/`",
        ),
        (
            format!("@cap(\"volume < 30\") permit {tail}"),
            "DIR/p.cedar:1:1: `volume < 30` is not a cap; write `ARGUMENT <= INTEGER`, several \
             separated by `;`",
        ),
        (
            format!("@cap(\"volum <= 30\") permit {tail}"),
            "DIR/p.cedar:1:1: `@cap` names `volum`, and no such argument is in the schema of \
             `sonos.set_volume`; correct the name",
        ),
        (
            format!("@cap(\"room <= 30\") permit {tail}"),
            "DIR/p.cedar:1:1: `@cap` names `room`, which is not a number for `sonos.set_volume`: \
             every call of it would be refused; cap a number",
        ),
        (
            "@cap(\"path <= 30\") permit (principal, action, resource);".to_owned(),
            "DIR/p.cedar:1:1: core actions cannot be capped, and this policy is about them too; \
             name the tools, or a group of tools: `action == Action::\"SERVER.TOOL\"`",
        ),
        (
            format!("@id(\"x\") permit {tail}\n@id(\"x\") forbid {tail}"),
            "DIR/p.cedar:2:1: `@id(\"x\")` is taken by DIR/p.cedar:1; choose another name",
        ),
    ];
    for (policies, expected) in rows {
        assert_eq!(errors(&policies), [expected], "{policies}");
    }
}

#[test]
fn a_decision_has_what_every_matching_policy_requires_of_people() {
    let set = set(r#"@approval("money") @approvers("finance, ann") @quorum("2")
        permit (principal, action == Action::"sonos.set_volume", resource);
        @approval("noise") permit (principal, action == Action::"sonos.set_volume", resource);
        @approval("late") @quorum("3")
        permit (principal, action == Action::"sonos.set_volume", resource)
        when { context.args.volume > 50 };"#);
    let required = |names: &[&str], quorum| Required {
        approvers: names.iter().map(|name| (*name).to_owned()).collect(),
        quorum,
    };
    let two = required(&["ann", "finance"], 2);
    for (volume, reason, expected) in [
        (10, "money; noise", vec![two.clone()]),
        (60, "late; money; noise", vec![required(&[], 3), two]),
    ] {
        let call = call("sonos.set_volume", serde_json::json!({ "volume": volume }));
        let need = ApprovalNeed { reason: reason.to_owned(), required: expected };
        assert_eq!(decide(&set, &call).verdict, PolicyVerdict::RequireApproval(need));
    }
}

#[test]
fn a_cap_on_a_group_may_name_what_only_some_of_its_tools_have() {
    let with = |cap: &str| {
        format!(
            "@cap(\"{cap}\") permit (principal, action in Action::\"execute_gated\", resource);"
        )
    };
    assert_eq!(set(&with("volume <= 3")).warnings(), []);
    let set = set(&with("speed <= 3"));
    let messages: Vec<&str> =
        set.warnings().iter().map(|finding| finding.message.as_str()).collect();
    assert_eq!(
        messages,
        ["`@cap` names `speed`, and no such argument is in the schema of `sonos.set_volume`; \
          correct the name"]
    );
}

#[test]
fn names_and_reasons_have_a_longest_length() {
    let with = |annotation: &str, bytes: usize| {
        let text = "x".repeat(bytes);
        format!("@{annotation}(\"{text}\") permit (principal, action, resource);")
    };
    for (annotation, most) in [("id", NAME_BYTES_MAX), ("approval", REASON_BYTES_MAX)] {
        set(&with(annotation, most));
        assert_eq!(errors(&with(annotation, most + 1)).len(), 1, "{annotation}");
        assert_eq!(errors(&with(annotation, 0)).len(), 1, "{annotation}");
    }
}

#[test]
fn a_cap_is_an_error_for_tools_that_are_named_and_a_warning_for_groups() {
    let with = |scope: &str| {
        format!("@cap(\"speed <= 3\") permit (principal, action in {scope}, resource);")
    };
    assert_eq!(errors(&with("[Action::\"sonos.set_volume\"]")).len(), 1);
    let grouped = with("[Action::\"sonos.set_volume\", Action::\"execute_gated\"]");
    assert_eq!(set(&grouped).warnings().len(), 1);
}

#[test]
fn a_redacted_argument_cannot_be_capped_and_others_can() {
    let mut tools = tools();
    tools[0].redacted = vec!["balance".to_owned()];
    let with = |argument: &str| {
        let policy = format!(
            "@cap(\"{argument} <= 3\") permit (principal, action == Action::\"sonos.set_volume\", resource);"
        );
        directory(&[("p.cedar", &policy)])
    };
    let errors = errors_in(with("balance").path(), &tools);
    assert!(
        errors[0].contains("which is redacted or erasable for `sonos.set_volume`"),
        "{errors:?}"
    );
    assert_eq!(check(with("volume").path(), &tools).findings, []);
}
