//! What policies can say about groups, labels and windows of time.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::json;
use stepgate_core::call::Call;
use stepgate_core::facts::{FactNames, FactNeeds, Facts};
use stepgate_core::label::Label;
use stepgate_core::origin::Origin;
use stepgate_core::ports::{Policy, PolicyRequest};
use stepgate_policy::{Nameable, PolicySet, Verdict};

use crate::world::{call, directory, principal, tools};

const POLICIES: &str = r#"
@id("everything")
permit (principal, action, resource);

@id("flow")
@approval("it sends out after something untrusted was read")
permit (principal, action, resource)
when { context.sends.contains(Label::"egress") && context.session.labels.contains(Label::"untrusted") };

@id("secrets-stay")
forbid (principal, action, resource)
when { context.reads.contains(Label::"secret") && !(principal in Group::"finance") };

@id("at-night")
forbid (principal in Group::"interns", action in Action::"execute_gated", resource)
unless { context.schedule.contains(Window::"office") };
"#;

fn names() -> FactNames {
    let texts = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    FactNames {
        groups: texts(&["finance", "interns"]),
        labels: labels(&["untrusted", "secret", "egress"]),
        windows: texts(&["office"]),
        directories: texts(&["contacts"]),
    }
}

fn labels(names: &[&str]) -> BTreeSet<Label> {
    names.iter().map(|name| Label::parse(name).unwrap()).collect()
}

fn load(text: &str, cases: &str) -> Result<PolicySet, String> {
    let directory = directory(&[("p.cedar", text), ("p.cases.toml", cases)]);
    let (tools, facts) = (tools(), names());
    let set = PolicySet::load(directory.path(), Nameable { tools: &tools, facts: &facts });
    set.map_err(|error| error.to_string())
}

fn facts(groups: &[&str], session: &[&str], reads: &[&str], sends: &[&str], open: bool) -> Facts {
    Facts {
        groups: groups.iter().map(|name| (*name).to_owned()).collect(),
        labels: labels(session),
        reads: labels(reads),
        schedule: open.then(|| "office".to_owned()).into_iter().collect(),
        sends: labels(sends),
        ..Facts::default()
    }
}

#[test]
fn policies_decide_by_labels_groups_and_windows() {
    let set = load(POLICIES, "").unwrap();
    let volume = call("sonos.set_volume", json!({ "volume": 2 }));
    let rows = [
        (facts(&[], &[], &[], &[], false), Verdict::Permit),
        (facts(&[], &["untrusted"], &[], &[], false), Verdict::Permit),
        (facts(&[], &[], &[], &["egress"], false), Verdict::Permit),
        (facts(&[], &["untrusted"], &[], &["egress"], false), Verdict::Approval),
        (facts(&[], &["secret"], &[], &["egress"], false), Verdict::Permit),
        (facts(&[], &[], &["secret"], &[], false), Verdict::Deny),
        (facts(&["finance"], &[], &["secret"], &[], false), Verdict::Permit),
        (facts(&["interns"], &[], &[], &[], true), Verdict::Permit),
        (facts(&["interns"], &[], &[], &[], false), Verdict::Deny),
    ];
    for (facts, expected) in rows {
        let principal_id = &principal("agent");
        let request = PolicyRequest { principal_id, call: &volume, facts: &facts };
        assert_eq!(Verdict::of(&set.decide(request)), expected, "{facts:?}");
        assert_eq!(set.explain(principal_id, &volume, &facts).verdict, expected, "{facts:?}");
    }
}

#[test]
fn core_actions_know_the_same_facts() {
    let set = load(POLICIES, "").unwrap();
    let write = call("WRITE_FILE", json!({ "path": "/sandbox/a.txt", "content": "x" }));
    let facts = facts(&[], &["untrusted"], &[], &["egress"], false);
    let request = PolicyRequest { principal_id: &principal("agent"), call: &write, facts: &facts };
    assert_eq!(Verdict::of(&set.decide(request)), Verdict::Approval);
}

#[test]
fn what_is_offered_follows_the_groups() {
    let text = r#"permit (principal in Group::"finance", action, resource);"#;
    let set = load(text, "").unwrap();
    let could = |groups: &[&str]| {
        let groups = groups.iter().map(|name| (*name).to_owned()).collect();
        set.prospect(&principal("agent"), &groups, "sonos.set_volume").could_permit
    };
    assert!(could(&["finance"]));
    assert!(!could(&["interns"]));
    assert!(!could(&[]));
}

#[test]
fn a_name_that_nothing_has_is_refused() {
    let rule =
        |condition: &str| format!("permit (principal, action, resource) when {{ {condition} }};");
    let rows = [
        (r#"context.session.labels.contains(Label::"untrustd")"#, "there is no label `untrustd`"),
        (r#"context.schedule.contains(Window::"ofice")"#, "there is no window `ofice`"),
        (r#"principal in Group::"finanze""#, "there is no group `finanze`"),
        (r#"context.targets.contains(Origin::"users")"#, "there is no origin `users`"),
        (r#"context.targets.contains(Origin::"directory/staff")"#, "there is no directory `staff`"),
        (r#"context.targets.contains(Origin::"mail.search")"#, "there is no tool `mail.search`"),
        (r#"context.targets.contains(Origin::"sonos.set_volume")"#, "nothing in the results of"),
        // A text is no label: the comparison would never be true.
        (r#"context.session.labels.contains("untrusted")"#, "p.cedar:1:"),
        (r#"context.session.label.contains(Label::"untrusted")"#, "`context.session.labels`"),
    ];
    for (condition, expected) in rows {
        let error = load(&rule(condition), "").unwrap_err();
        assert!(error.contains(expected), "{condition}: {error}");
    }
}

#[test]
fn a_case_can_say_what_is_known_beside_the_call() {
    let case = |beside: &str, expect: &str| {
        format!(
            "[[case]]\nname = \"one\"\nprincipal = \"agent\"\naction = \"sonos.set_volume\"\n\
             args = {{ volume = 2 }}\n{beside}\nexpect = \"{expect}\"\n"
        )
    };
    load(POLICIES, &case("groups = [\"interns\"]", "deny")).unwrap();
    load(POLICIES, &case("groups = [\"interns\"]\nschedule = [\"office\"]", "permit")).unwrap();
    load(POLICIES, &case("labels = [\"untrusted\"]", "permit")).unwrap();
    let rows = [
        ("labels = [\"untrustd\"]", "there is no label `untrustd`"),
        ("schedule = [\"ofice\"]", "there is no window `ofice`"),
        ("groups = [\"finanze\"]", "there is no group `finanze`"),
        ("opened = [\"ofice\"]", "there is no window `ofice`"),
        ("targets = [\"users\"]", "there is no origin `users`"),
        ("addresses = [\"directory/staff\"]", "there is no directory `staff`"),
    ];
    for (beside, expected) in rows {
        let error = load(POLICIES, &case(beside, "permit")).unwrap_err();
        assert!(error.contains(expected), "{beside}: {error}");
    }
}

fn origins(names: &[&str]) -> BTreeSet<Origin> {
    names.iter().map(|name| Origin::parse(name).unwrap()).collect()
}

const ORIGINS: &str = r#"
@id("known") permit (principal, action, resource) when { context.targets.contains(Origin::"known") };
@id("clean") forbid (principal, action, resource)
unless { context.addresses.containsAny([Origin::"user", Origin::"directory/contacts"]) };
"#;

#[test]
fn policies_decide_by_where_values_come_from() {
    let set = load(ORIGINS, "").unwrap();
    let volume = call("sonos.set_volume", json!({ "volume": 2 }));
    let known = ["known", "record", "link"];
    let rows = [
        // Nothing is known: as in a decision that was recorded before there were origins.
        ((&[][..], &[][..]), Verdict::Deny),
        ((&["agent"], &["none"]), Verdict::Deny),
        ((&known, &["none"]), Verdict::Permit),
        ((&known, &["agent"]), Verdict::Deny),
        ((&known, &["user", "known"]), Verdict::Permit),
        // No one recipient of all addresses: the policy names neither.
        ((&known, &["known"]), Verdict::Deny),
        // The tool has no target: nothing to come from elsewhere.
        ((&["none"], &["none"]), Verdict::Permit),
        ((&["record"], &["none"]), Verdict::Deny),
    ];
    for ((targets, addresses), expected) in rows {
        let (targets, addresses) = (origins(targets), origins(addresses));
        let facts = Facts { targets, addresses, ..Facts::default() };
        let principal_id = &principal("agent");
        let request = PolicyRequest { principal_id, call: &volume, facts: &facts };
        assert_eq!(Verdict::of(&set.decide(request)), expected, "{facts:?}");
    }
}

#[test]
fn a_default_in_the_place_of_a_target_is_not_known() {
    let mut tools = tools();
    let tool = tools.iter_mut().find(|tool| tool.name.as_str() == "sonos.set_volume").unwrap();
    tool.input_schema["properties"]["room"] = json!({ "type": "string", "default": "hall" });
    tool.flow.targets = Some(vec!["volume".to_owned(), "room".to_owned()]);
    let (facts, flow) = (names(), tool.flow.clone());
    let set = PolicySet::load(
        directory(&[("p.cedar", ORIGINS)]).path(),
        Nameable { tools: &tools, facts: &facts },
    )
    .unwrap();
    let decide = |args| {
        let mut call = call("sonos.set_volume", args);
        let Call::Server(server) = &mut call else { panic!("a tool") };
        Arc::get_mut(&mut server.tool).unwrap().flow = flow.clone();
        let facts = Facts {
            targets: origins(&["known"]),
            addresses: origins(&["none"]),
            ..Facts::default()
        };
        let principal_id = &principal("agent");
        Verdict::of(&set.decide(PolicyRequest { principal_id, call: &call, facts: &facts }))
    };
    assert_eq!(decide(json!({ "volume": 2, "room": "hall" })), Verdict::Permit);
    assert_eq!(decide(json!({ "volume": 2 })), Verdict::Deny);
}

#[test]
fn a_case_can_say_where_values_come_from() {
    let case = |beside: &str, expect: &str| {
        format!(
            "[[case]]\nname = \"one\"\nprincipal = \"agent\"\naction = \"sonos.set_volume\"\n\
             args = {{ volume = 2 }}\n{beside}\nexpect = \"{expect}\"\n"
        )
    };
    let rows = [
        ("", "deny"),
        ("targets = [\"user\"]", "permit"),
        ("targets = [\"directory/contacts\"]", "permit"),
        ("targets = [\"record\"]", "deny"),
        ("targets = [\"user\"]\naddresses = [\"agent\"]", "deny"),
        ("targets = [\"user\"]\naddresses = [\"directory/contacts\"]", "permit"),
    ];
    for (beside, expect) in rows {
        load(ORIGINS, &case(beside, expect)).unwrap();
    }
}

#[test]
fn policies_can_ask_for_steps_and_for_when_a_session_was_opened() {
    let text = r#"
        permit (principal, action, resource)
        when { context.session.steps < 10 && context.session.opened.contains(Window::"office") };
    "#;
    let set = load(text, "").unwrap();
    let volume = call("sonos.set_volume", json!({ "volume": 2 }));
    let office = BTreeSet::from(["office".to_owned()]);
    let rows = [
        (Some(9), Some(office.clone()), Verdict::Permit),
        (Some(10), Some(office), Verdict::Deny),
        (Some(9), Some(BTreeSet::new()), Verdict::Deny),
        (Some(9), None, Verdict::Deny),
    ];
    for (steps, opened, expected) in rows {
        let facts = Facts { steps, opened, ..Facts::default() };
        let request =
            PolicyRequest { principal_id: &principal("agent"), call: &volume, facts: &facts };
        assert_eq!(Verdict::of(&set.decide(request)), expected, "{facts:?}");
    }
}

#[test]
fn a_set_says_which_facts_its_policies_read() {
    let needs = |condition: &str| {
        let text = format!(
            "permit (principal, action == Action::\"sonos.set_volume\", resource) \
             when {{ {condition} }};"
        );
        let set = load(&text, "").unwrap();
        let FactNeeds { origins, opened, steps } = set.needs("sonos.set_volume");
        assert_eq!(set.needs("WRITE_FILE"), FactNeeds::default());
        (origins, opened, steps)
    };
    assert_eq!(needs("context.args.volume < 3"), (false, false, false));
    assert_eq!(needs(r#"context.session.labels.contains(Label::"secret")"#), (false, false, false));
    assert_eq!(needs(r#"context.targets.contains(Origin::"user")"#), (true, false, false));
    assert_eq!(needs(r#"context.addresses.contains(Origin::"user")"#), (true, false, false));
    assert_eq!(needs("context.session.steps < 3"), (false, false, true));
    assert_eq!(needs("context.session.opened.isEmpty()"), (false, true, false));
    assert_eq!(needs("context.session == context.session"), (false, true, true));
    assert_eq!(needs("context == context"), (true, true, true));
}
