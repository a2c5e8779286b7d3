//! Tools whose arguments are hidden, or whose definition nobody has accepted.

use serde_json::json;
use stepgate_core::tool::Mode;
use stepgate_policy::{PolicySet, ToolShape};

use crate::world::{directory, errors_in, shape, tools};

/// A door that opens with a password, which no policy sees.
fn door() -> ToolShape {
    let schema = json!({
        "type": "object",
        "properties": { "password": { "type": "string" }, "pin": { "type": "integer" } },
        "required": ["password"],
    });
    let redacted = vec!["password".to_owned(), "pin".to_owned()];
    ToolShape { redacted, ..shape("door.open", Mode::ExecuteGated, schema) }
}

#[test]
fn a_policy_cannot_read_or_cap_a_redacted_argument() {
    let rows = [
        ("", "when { context.args.password == \"x\" }", "attribute `args.password`"),
        ("@cap(\"pin <= 5\")", "", "`@cap` names `pin`, which is redacted for `door.open`"),
    ];
    for (annotation, condition, expected) in rows {
        let scope = "permit (principal, action == Action::\"door.open\", resource)";
        let directory = directory(&[("p.cedar", &format!("{annotation} {scope} {condition};"))]);
        let errors = errors_in(directory.path(), &[door()]);
        assert!(errors.iter().any(|error| error.contains(expected)), "{errors:?}");
    }
}

#[test]
fn a_case_is_decided_as_the_gate_decides() {
    let policy = "permit (principal, action == Action::\"door.open\", resource)
        when { context.unseen.contains(\"password\") };";
    let case = "[[case]]\nname = \"hidden\"\nprincipal = \"agent\"\naction = \"door.open\"\n\
                args = { password = \"x\" }\nexpect = \"permit\"\n";
    let directory = directory(&[("p.cedar", policy), ("p.cases.toml", case)]);
    assert_eq!(PolicySet::load(directory.path(), &[door()]).unwrap().cases(), 1);
}

/// The usual tools, of which one has another argument than its policy knows.
fn renamed(is_accepted: bool) -> Vec<ToolShape> {
    let mut tools = tools();
    let schema = json!({ "type": "object", "properties": { "loudness": { "type": "integer" } } });
    tools[0] = ToolShape { is_accepted, ..shape("sonos.set_volume", Mode::ExecuteGated, schema) };
    tools
}

const QUIET: &str = r#"
    @id("quiet") @cap("volume <= 30") permit (principal, action == Action::"sonos.set_volume", resource)
        when { context.args.volume < 50 };
    @id("private") forbid (principal, action == Action::"calendar.get_agenda", resource);
"#;
const QUIET_CASE: &str = "[[case]]\nname = \"loud\"\nprincipal = \"agent\"\n\
                          action = \"sonos.set_volume\"\nargs = { volume = 60 }\nexpect = \"deny\"\n";

#[test]
fn a_definition_that_nobody_has_accepted_does_not_keep_policies_from_being_loaded() {
    let directory = directory(&[("p.cedar", QUIET), ("p.cases.toml", QUIET_CASE)]);
    let set = PolicySet::load(directory.path(), &renamed(false)).unwrap();
    assert_eq!(set.policies().collect::<Vec<_>>(), ["quiet", "private"]);
    assert_eq!(set.cases(), 0);
    let warnings: Vec<&str> =
        set.warnings().iter().map(|finding| finding.message.as_str()).collect();
    let expected = [
        "the case `loud` is not tried: `sonos.set_volume` is off, or its definition is not accepted",
        "`quiet` is not checked: `sonos.set_volume` is off, or its definition is not accepted, and every \
         call of it is denied; see `stepgate tools`, and correct the policy for it first",
    ];
    assert_eq!(warnings, expected);
}

#[test]
fn policies_are_held_to_a_definition_that_is_accepted_and_to_all_others() {
    let directory = directory(&[("p.cedar", QUIET), ("p.cases.toml", QUIET_CASE)]);
    let errors = errors_in(directory.path(), &renamed(true));
    assert!(errors.iter().any(|error| error.contains("attribute `args.volume`")), "{errors:?}");
    let everywhere = "permit (principal, action, resource) when { context.args.day == \"x\" };";
    let directory = crate::world::directory(&[("p.cedar", everywhere)]);
    assert!(!errors_in(directory.path(), &renamed(false)).is_empty());
}
