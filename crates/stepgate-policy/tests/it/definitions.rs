//! Tools whose arguments are hidden.

use serde_json::json;
use stepgate_core::tool::Mode;
use stepgate_policy::{PolicySet, ToolShape};

use crate::world::{directory, errors_in, shape};

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
        when { context.left_out.contains(\"password\") };";
    let case = "[[case]]\nname = \"hidden\"\nprincipal = \"agent\"\naction = \"door.open\"\n\
                args = { password = \"x\" }\nexpect = \"permit\"\n";
    let directory = directory(&[("p.cedar", policy), ("p.cases.toml", case)]);
    assert_eq!(PolicySet::load(directory.path(), &[door()]).unwrap().cases(), 1);
}
