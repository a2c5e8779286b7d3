//! Cases hold, or the set is not loaded.

use stepgate_policy::{PolicySet, check};

use crate::world::{directory, errors_in, tools};

const POLICIES: &str = r#"
    @id("plain") permit (principal, action in Action::"core", resource);
    @id("music") @approval("loud") @cap("volume <= 30")
        permit (principal, action == Action::"sonos.set_volume", resource);
"#;

fn case(fields: &str) -> String {
    format!("# a comment\n[[case]]\nname = \"it\"\nprincipal = \"agent\"\n{fields}\n")
}

#[test]
fn a_case_that_holds_is_counted() {
    let rows = [
        "action = \"THINK\"\nexpect = \"permit\"",
        "action = \"READ_FILE\"\nargs = { path = \"/sandbox/a.txt\" }\nexpect = \"permit\"",
        "action = \"sonos.set_volume\"\nargs = { volume = 90 }\nexpect = \"approval\"",
        "action = \"sonos.set_volume\"\nargs.volume = 90\nexpect = \"approval\"\ncaps.volume = 30",
        "action = \"mail.draft\"\nargs = { to = [\"a\"], options = { urgent = true, priority = 0.5 } }\n\
         expect = \"deny\"\ncaps = {}",
    ];
    for row in rows {
        let directory = directory(&[("p.cedar", POLICIES), ("p.cases.toml", &case(row))]);
        assert_eq!(PolicySet::load(directory.path(), &tools()).unwrap().cases(), 1, "{row}");
    }
}

#[test]
fn a_case_that_does_not_hold_refuses_the_set() {
    let rows = [
        (
            "action = \"THINK\"\nexpect = \"deny\"",
            "3:8: the case `it`: expected deny, got permit (by plain); correct the policy or the case",
        ),
        (
            "action = \"calendar.get_agenda\"\nexpect = \"permit\"",
            "3:8: the case `it`: expected permit, got deny (by no policy); correct the policy or the \
             case",
        ),
        (
            "action = \"sonos.set_volume\"\nargs = { volume = 1 }\nexpect = \"approval\"\ncaps.volume = 20",
            "3:8: the case `it`: expected caps `volume <= 20`, got caps `volume <= 30` (by music); \
             correct the policy or the case",
        ),
        (
            "action = \"sonos.play\"\nexpect = \"deny\"",
            "3:8: the case `it`: there is no action or tool `sonos.play`; configure the tool first, or \
             correct the name",
        ),
        (
            "action = \"sonos.set_volume\"\nargs = { volum = 1 }\nexpect = \"deny\"",
            "3:8: the case `it`: `sonos.set_volume` has no argument `volum`; correct `args`",
        ),
        (
            "action = \"sonos.set_volume\"\nexpect = \"deny\"",
            "3:8: the case `it`: `sonos.set_volume` needs the argument `volume`; add it to `args`",
        ),
        (
            "action = \"READ_FILE\"\nargs = { path = \"/etc/passwd\" }\nexpect = \"deny\"",
            "3:8: the case `it`: no call of READ_FILE has these args: path: must start with \
             /sandbox/; correct them",
        ),
        (
            "action = \"THINK\"\nargs = { at = 2026-01-01 }\nexpect = \"deny\"",
            "3:8: the case `it`: `args` holds a date or a number that JSON cannot say; write a string",
        ),
    ];
    for (row, expected) in rows {
        let directory = directory(&[("p.cedar", POLICIES), ("p.cases.toml", &case(row))]);
        let expected = format!("DIR/p.cases.toml:{expected}");
        assert_eq!(errors_in(directory.path(), &tools()), [expected], "{row}");
    }
}

#[test]
fn a_file_of_cases_that_cannot_be_understood_is_refused() {
    let twice = case("action = \"THINK\"\nexpect = \"permit\"").repeat(2);
    let rows = [
        (case("action = \"THINK\"\nexpect = \"allow\""), "6:10"),
        (case("action = \"THINK\""), "2:1"),
        (case("action = \"THINK\"\nexpect = \"permit\"\nresult = 1"), "7:1"),
        ("[[case]\n".to_owned(), "1:"),
        ("[[cases]]\n".to_owned(), "1:3"),
        (case("action = \"THINK\"\nexpect = \"permit\"").replace("agent", "a b"), "3:8"),
        (twice, "9:8"),
    ];
    for (text, place) in rows {
        let directory = directory(&[("p.cedar", POLICIES), ("p.cases.toml", &text)]);
        let errors = errors_in(directory.path(), &tools());
        assert_eq!(errors.len(), 1, "{errors:?}");
        assert!(errors[0].starts_with(&format!("DIR/p.cases.toml:{place}")), "{text}\n{errors:?}");
    }
}

#[test]
fn cases_are_not_tried_on_policies_with_errors() {
    let text = case("action = \"THINK\"\nexpect = \"deny\"");
    let directory = directory(&[("p.cedar", "permit"), ("p.cases.toml", &text)]);
    let checked = check(directory.path(), &[]);
    assert_eq!((checked.cases, checked.findings.len()), (0, 1));
}
