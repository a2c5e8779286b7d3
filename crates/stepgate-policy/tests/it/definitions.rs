//! Tools whose arguments are hidden, or whose definition nobody has accepted.

use serde_json::json;
use stepgate_core::tool::Mode;
use stepgate_policy::{PolicySet, ToolShape, Verdict};

use crate::world::{brief, decide, directory, errors_in, server_call, shape, tools};

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
        (
            "@cap(\"pin <= 5\")",
            "",
            "`@cap` names `pin`, which is redacted or erasable for `door.open`",
        ),
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

/// A purse whose default amount is this.
fn purse(default: u64) -> ToolShape {
    let amount = json!({ "type": "integer", "default": default });
    shape(
        "purse.pay",
        Mode::ExecuteGated,
        json!({ "type": "object", "properties": { "amount": amount } }),
    )
}

#[test]
fn a_set_that_was_loaded_for_another_definition_of_a_tool_denies_it_and_says_so() {
    let policy = r#"@id("small") permit (principal, action == Action::"purse.pay", resource)
        when { context.args has amount && context.args.amount < 100 };"#;
    let directory = directory(&[("p.cedar", policy)]);
    let (cheap, dear) = (purse(1), purse(1_000_000));
    let pay = |tool: &ToolShape| server_call(tool, serde_json::Map::new());
    let set = PolicySet::load(directory.path(), std::slice::from_ref(&cheap)).unwrap();
    assert_eq!(brief(&decide(&set, &pay(&cheap))), (Verdict::Permit, vec!["small"]));
    // With the default that the set knows this would be permitted, and the tool would pay a million.
    let unaccepted = ToolShape { is_accepted: false, ..dear.clone() };
    let loose = PolicySet::load(directory.path(), &[unaccepted]).unwrap();
    for set in [set, loose] {
        let decision = decide(&set, &pay(&dear));
        assert_eq!(brief(&decision), (Verdict::Deny, vec![]));
        let detail = decision.detail.unwrap();
        assert!(
            detail.contains("not the one that the policies in force were loaded for"),
            "{detail}"
        );
    }
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
