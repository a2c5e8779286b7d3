//! Policies are held against the schema before they are in force.

use serde_json::json;
use stepgate_core::facts::FactNames;
use stepgate_core::label::Label;
use stepgate_core::tool::Mode;
use stepgate_policy::limits::{NESTING_MAX, OPERATORS_MAX, POLICY_BYTES_MAX};
use stepgate_policy::{Nameable, PolicySet, Severity, Verdict, check};

use crate::world::{brief, call, decide, directory, errors, errors_in, set, shape, tools};

#[test]
fn what_does_not_exist_cannot_be_named() {
    let permit = |scope: &str| format!("\n\npermit ({scope});");
    let rows = [
        (permit("principal, action == Action::\"READ_FILES\", resource"), "correct the name"),
        (
            permit("principal, action == Action::\"sonos.play\", resource"),
            "configure the tool first",
        ),
        (permit("principal is User, action, resource"), "the types are `Principal`"),
        (
            permit("principal, action, resource == Tool::\"sonos.play\""),
            "there is no tool `sonos.play`; configure its server first",
        ),
        (
            permit("principal, action, resource in Server::\"radio\""),
            "there is no server `radio` with a tool; configure it first, or correct the name (known: \
             `calendar`, `mail`, `sonos`)",
        ),
        (
            permit("principal, action, resource in Path::\"/sandbox/reports/\""),
            "write `Path::\"/sandbox/reports\"`",
        ),
        (permit("principal, action, resource in Path::\"/tmp\""), "must start with /sandbox/"),
        (permit("principal, action, resource in Path::\"/sandbox/../etc\""), "would match nothing"),
        (permit("principal == Principal::\"a b\", action, resource"), "is not a principal"),
        (permit("principal == ?principal, action, resource"), "is never used"),
        ("permit (principal, action, resource)".to_owned(), "not a Cedar policy"),
    ];
    for (policies, expected) in rows {
        let errors = errors(&policies);
        assert!(!errors.is_empty());
        for error in &errors {
            assert!(error.contains(expected), "{policies}: {error}");
            let line = if policies.starts_with('\n') { 3 } else { 1 };
            assert!(error.starts_with(&format!("DIR/p.cedar:{line}:")), "{error}");
        }
    }
}

#[test]
fn every_error_is_told_in_the_order_of_files_and_lines() {
    let directory = directory(&[
        (
            "b.cedar",
            "@x permit (principal, action, resource);\n@y permit (principal, action, resource);",
        ),
        ("a.cedar", "permit (principal, action, resource"),
        ("z.cases.toml", "[[cases]]\n"),
    ]);
    let errors = errors_in(directory.path(), &[]);
    let places: Vec<&str> = errors.iter().filter_map(|error| error.split(": ").next()).collect();
    assert_eq!(
        places,
        ["DIR/a.cedar:1:36", "DIR/b.cedar:1:1", "DIR/b.cedar:2:1", "DIR/z.cases.toml:1:3"]
    );
}

#[test]
fn tools_that_are_not_declared_are_named_where_a_policy_asks_for_labels() {
    const ASKS: &str = r#"@id("flow") permit (principal, action, resource)
        when { !context.session.labels.contains(Label::"untrusted") };"#;
    const ASKS_NOT: &str = "permit (principal, action, resource);";
    let warned = |policies: &str, undeclared: usize, is_accepted: bool| {
        let mut tools = Vec::new();
        for number in 0..10 {
            let mut tool = shape(&format!("web.t{number}"), Mode::ReadOnly, json!({}));
            tool.flow.is_undeclared = number < undeclared;
            tool.is_accepted = is_accepted;
            tools.push(tool);
        }
        let names = FactNames {
            labels: [Label::parse("untrusted").unwrap()].into(),
            ..FactNames::default()
        };
        let directory = directory(&[("p.cedar", policies)]);
        let nameable = Nameable { tools: &tools, facts: &names };
        let set = PolicySet::load(directory.path(), nameable).unwrap();
        let told = set.warnings().iter().filter(|it| it.message.contains("are not declared"));
        told.map(|it| (it.severity, it.message.clone())).collect::<Vec<_>>()
    };
    let [(Severity::Warning, told)] = &warned(ASKS, 2, true)[..] else { panic!("no warning") };
    assert!(told.contains("`flow` asks") && told.contains(": `web.t0`, `web.t1`;"), "{told}");
    assert!(warned(ASKS, 10, true)[0].1.contains("`web.t7`, …;"));
    for (policies, undeclared, is_accepted) in
        [(ASKS, 0, true), (ASKS_NOT, 2, true), (ASKS, 2, false)]
    {
        assert_eq!(warned(policies, undeclared, is_accepted), vec![], "{policies}");
    }
}

#[test]
fn a_policy_that_can_never_apply_is_a_warning() {
    let policies = "@id(\"never\") permit (principal, action == Action::\"READ_FILE\", resource)\n\
                    when { context.args.path == \"/sandbox/a\" && false };\n\
                    @id(\"nowhere\") permit (principal, action == Action::\"READ_FILE\", resource is Tool);\n\
                    @id(\"group\") permit (principal, action == Action::\"core\", resource);";
    let warnings: Vec<(Severity, Option<usize>, bool)> = set(policies)
        .warnings()
        .iter()
        .map(|found| (found.severity, found.line, found.message.contains("can never apply")))
        .collect();
    let warning = |line| (Severity::Warning, Some(line), true);
    assert_eq!(warnings, [warning(1), warning(3), warning(4)]);
}

#[test]
fn a_policy_about_an_empty_group_waits_for_a_tool() {
    let policies = "@id(\"ask\") @approval(\"ask\") @cap(\"volume <= 3\") \
                    permit (principal, action in [Action::\"draft\", Action::\"execute_gated\"], resource);";
    let directory = directory(&[("p.cedar", policies)]);
    let checked = check(directory.path(), &[]);
    let found: Vec<(Severity, &str)> =
        checked.findings.iter().map(|found| (found.severity, found.message.as_str())).collect();
    assert_eq!(found, [(Severity::Note, "no configured tool is `draft`, so `ask` waits for one")]);
    assert!(checked.is_loadable());
    assert_eq!(check(directory.path(), &tools()).findings, []);
}

#[test]
fn check_finds_everything_and_puts_nothing_in_force() {
    let good = directory(&[
        ("p.cedar", "permit (principal, action, resource);"),
        (
            "p.cases.toml",
            "[[case]]\nname = \"x\"\nprincipal = \"a\"\naction = \"THINK\"\nexpect = \"permit\"\n",
        ),
    ]);
    let checked = check(good.path(), &tools());
    assert_eq!((checked.findings.as_slice(), checked.policies, checked.cases), (&[][..], 1, 1));
    assert!(checked.policy_hash.is_some());
    let bad = directory(&[("p.cedar", "permit")]);
    let checked = check(bad.path(), &tools());
    assert!(!checked.is_loadable());
    assert_eq!((checked.policies, checked.cases, checked.policy_hash), (0, 0, None));
}

#[test]
fn a_policy_nested_without_end_is_refused_and_not_fatal() {
    let chains =
        [("(", ")"), ("!(", ")"), ("[", "]"), ("{a:", "}"), ("if true then ", " else true")];
    for (open, close) in chains {
        let body = format!("{}true{}", open.repeat(5_000), close.repeat(5_000));
        let errors = errors(&format!("permit (principal, action, resource) when {{ {body} }};"));
        assert_eq!(errors.len(), 1);
        assert!(errors[0].contains("nested deeper than"), "{errors:?}");
    }
    for chain in ["+1", ".a", "*1", "[\"a\"]", " && true", " || 1 == 1"] {
        let body = format!("1{}", chain.repeat(5_000));
        let errors = errors(&format!("permit (principal, action, resource) when {{ {body} }};"));
        assert_eq!(errors.len(), 1);
        let expected = if chain.starts_with(' ') { "operators" } else { "nested deeper than" };
        assert!(errors[0].contains(expected), "{errors:?}");
    }
}

#[test]
fn the_deepest_policy_is_checked_to_the_end() {
    let policy = |body: &str| format!("permit (principal, action, resource) when {{ {body} }};");
    let depth = NESTING_MAX - 1;
    let chain = |link: &str| link.repeat(depth);
    let conditions = " && true".repeat(OPERATORS_MAX - 2);
    let wrong = [
        policy(&format!("context{} == 1", chain(".a"))),
        policy(&format!("context.args.no{} == 1", "+1".repeat(depth - 2))),
        policy(&format!("context.args.no{conditions}")),
        policy(&format!("{}context.args.no{}", "(".repeat(depth - 2), ")".repeat(depth - 2))),
        policy(&format!("{}context.args.no", "if 1 == 2 then true else ".repeat(depth - 2))),
    ];
    for policy in wrong {
        let errors = errors(&policy);
        assert!(errors[0].contains("policies see `context.args`"), "{policy}: {errors:?}");
    }
    let right = [
        policy(&format!("1{} == {}", chain("+1"), depth + 1)),
        policy(&format!("true{conditions}")),
        policy(&format!("{}true{}", "(".repeat(depth), ")".repeat(depth))),
        policy(&format!("{}true", "if false then false else ".repeat(depth))),
        policy(&format!("{}true{}", "if true then ".repeat(depth), " else false".repeat(depth))),
    ];
    for policy in right {
        let decision = decide(&set(&policy), &call("THINK", serde_json::json!({})));
        assert_eq!(brief(&decision), (Verdict::Permit, vec!["p.cedar#1"]), "{policy}");
    }
}

#[test]
fn a_semicolon_in_brackets_ends_no_policy() {
    let half = "(".repeat(NESTING_MAX / 2 + 1);
    let errors = errors(&format!("permit (principal, action, resource) when {{ {half};{half}"));
    assert!(errors[0].contains("nested deeper than"), "{errors:?}");
}

#[test]
fn a_policy_has_a_longest_length() {
    // The length up to its last token but one: the semicolon is not judged.
    let policy = |bytes: usize| {
        let (start, end) = ("permit (principal, action, resource) when { \"", "\" == \"\" ");
        format!("{start}{}{end}}};", "x".repeat(bytes - start.len() - end.len()))
    };
    set(&policy(POLICY_BYTES_MAX));
    let errors = errors(&policy(POLICY_BYTES_MAX + 1));
    assert!(errors[0].contains(&format!("more than {POLICY_BYTES_MAX} bytes")), "{errors:?}");
}

#[test]
fn a_policy_about_groups_waits_only_where_it_reaches_nothing_else() {
    let told = |scope: &str| {
        let policy = format!(
            "@id(\"p\") permit (principal, action in {scope}, resource) when {{ resource is Path }};"
        );
        let directory = directory(&[("p.cedar", &policy)]);
        let mut findings = check(directory.path(), &tools()[..1]).findings;
        findings.pop().map(|found| (found.severity, found.message))
    };
    let waits = told("[Action::\"draft\"]").unwrap();
    assert_eq!(waits.0, Severity::Note, "{waits:?}");
    // There is a tool in one of the groups, and the condition can never hold for it.
    let never = told("[Action::\"draft\", Action::\"execute_gated\"]").unwrap();
    assert!(never.1.contains("can never apply"), "{never:?}");
    assert_eq!(told("[Action::\"draft\", Action::\"core\"]"), None);
}

#[test]
fn a_tool_that_is_not_accepted_is_not_checked_and_only_where_the_policy_is_about_it() {
    let mut tools = tools();
    tools[0].is_accepted = false;
    let told = |action: &str| {
        let policy = format!(
            "@id(\"p\") permit (principal, action == Action::\"{action}\", resource)\
             when {{ context.args has no_such && context.args.no_such > 3 }};"
        );
        let directory = directory(&[("p.cedar", &policy)]);
        let findings = check(directory.path(), &tools).findings;
        findings.into_iter().map(|found| found.message).collect::<Vec<_>>()
    };
    let unchecked = told("sonos.set_volume");
    assert!(unchecked.iter().any(|message| message.contains("is not checked")), "{unchecked:?}");
    let other = told("mail.draft");
    assert!(!other.iter().any(|message| message.contains("is not checked")), "{other:?}");
}

#[test]
fn a_message_names_at_most_twelve() {
    let known = |count: usize| {
        let tools: Vec<_> = (0..count)
            .map(|index| shape(&format!("s{index:02}.t"), Mode::Draft, json!({})))
            .collect();
        let policy = "permit (principal, action, resource in Server::\"radio\");";
        errors_in(directory(&[("p.cedar", policy)]).path(), &tools).remove(0)
    };
    assert!(known(12).contains("`s11`") && !known(12).contains('…'), "{}", known(12));
    assert!(!known(13).contains("`s12`") && known(13).contains('…'), "{}", known(13));
}
