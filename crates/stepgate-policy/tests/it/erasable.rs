//! `@erasable`: what the heads of policies make erasable, and that no policy sees it.

use std::collections::BTreeSet;
use std::fs;
use std::sync::Arc;

use serde_json::{Value, json};
use stepgate_core::call::{Call, ServerCall};
use stepgate_core::digest::Digest;
use stepgate_core::facts::Facts;
use stepgate_core::ports::{Policy, PolicyErasable};
use stepgate_core::tool::{Mode, Tool};
use stepgate_policy::Verdict::{Deny, Permit};
use stepgate_policy::limits::ERASABLE_MAX;
use stepgate_policy::{LivePolicy, PolicySet, Severity, ToolShape, check};

use crate::world::{
    brief, decide, directory, errors, errors_in, load, principal, redacting_call, server_call, set,
    shape, tools,
};

/// What a set makes erasable of each tool of the tests.
fn erasable(set: &PolicySet) -> Vec<Vec<String>> {
    let names = |shape: &ToolShape| match set.erasable(&tool(shape)) {
        PolicyErasable::Named(names) => names.into_iter().collect(),
        PolicyErasable::Every => vec!["every".to_owned()],
    };
    tools().iter().map(names).collect()
}

fn tool(shape: &ToolShape) -> Tool {
    let Call::Server(ServerCall { tool, .. }) = server_call(shape, serde_json::Map::new()) else {
        panic!("not a tool");
    };
    Tool::clone(&tool)
}

#[test]
fn the_head_of_a_policy_says_for_which_tools() {
    let rows: [(&str, [&[&str]; 3]); 7] = [
        ("@erasable(\"room\") permit (principal, action == Action::\"sonos.set_volume\", resource);", [&["room"], &[], &[]]),
        // Neither effect nor conditions matter.
        (
            "@erasable(\"room\") forbid (principal, action == Action::\"sonos.set_volume\", resource)
             when { context.server == \"other\" };",
            [&["room"], &[], &[]],
        ),
        ("@erasable(\" to ,subject\") permit (principal, action in Action::\"draft\", resource);", [&[], &[], &["subject", "to"]]),
        (
            "@erasable(\"day\") permit (principal, action, resource in Server::\"calendar\");",
            [&[], &["day"], &[]],
        ),
        ("@erasable(\"to\") permit (principal, action, resource == Tool::\"mail.draft\");", [&[], &[], &["to"]]),
        // One of the tools has it.
        (
            "@erasable(\"room, day\") permit (principal, action in [Action::\"sonos.set_volume\", Action::\"read_only\"], resource);",
            [&["day", "room"], &["day", "room"], &[]],
        ),
        (
            "@erasable(\"to\") permit (principal, action == Action::\"mail.draft\", resource);
             @erasable(\"subject\") permit (principal, action in Action::\"draft\", resource);
             permit (principal, action, resource);",
            [&[], &[], &["subject", "to"]],
        ),
    ];
    for (policies, expected) in rows {
        let set = set(policies);
        assert_eq!(erasable(&set), expected, "{policies}");
        assert!(set.has_erasable());
        assert_eq!(set.warnings(), [], "{policies}");
    }
}

#[test]
fn an_annotation_that_hides_nothing_or_contradicts_itself_is_refused() {
    let long = format!("@erasable(\"{}\")", "x".repeat(129));
    let many: Vec<String> = (0..=ERASABLE_MAX).map(|number| format!("a{number}")).collect();
    let many = format!("@erasable(\"{}\")", many.join(", "));
    let on_music = "permit (principal, action == Action::\"sonos.set_volume\", resource)";
    let rows = [
        (format!("@erasable(\"\") {on_music};"), "needs 1 to 32 names of arguments"),
        (format!("@erasable {on_music};"), "needs 1 to 32 names of arguments"),
        (format!("@erasable(\"room,\") {on_music};"), "needs 1 to 32 names of arguments"),
        (format!("{long} {on_music};"), "needs 1 to 32 names of arguments"),
        (format!("{many} {on_music};"), "needs 1 to 32 names of arguments"),
        (
            format!("@erasable(\"rom\") {on_music};"),
            "DIR/p.cedar:1:1: `@erasable` names `rom`, and no such argument is in the schema of `sonos.set_volume`; correct it: \
             it is the name of an argument and not a path into one",
        ),
        (
            "@erasable(\"options.urgent\") permit (principal, action in Action::\"draft\", resource);".to_owned(),
            "names `options.urgent`",
        ),
        (
            format!("@id(\"x\") @erasable(\"room\") {on_music} when {{ context.args has room }};"),
            "DIR/p.cedar:1:1: `x` makes `room` erasable and reads it: policies do not see what is erasable, so every call with \
             it would be denied; take one of the two away",
        ),
        (
            format!("@erasable(\"room\") @cap(\"room <= 3\") {on_music};"),
            "`@cap` names `room`, which is redacted or erasable",
        ),
        ("@erasable(\"room\") permit (principal, action, resource);".to_owned(), "core actions have no erasable arguments"),
        (
            "@erasable(\"content\") permit (principal, action == Action::\"WRITE_FILE\", resource);".to_owned(),
            "core actions have no erasable arguments",
        ),
        (
            "@erasable(\"path\") permit (principal, action, resource in Path::\"/sandbox\");".to_owned(),
            "core actions have no erasable arguments",
        ),
        (
            "@erasable(\"response\") permit (principal, action, resource in Server::\"core\");".to_owned(),
            "core actions have no erasable arguments",
        ),
        ("@erasable(\"room\") permit (principal, action, resource is Tool);".to_owned(), "core actions have no erasable arguments"),
    ];
    for (policies, expected) in rows {
        let errors = errors(&policies);
        assert!(errors.iter().any(|error| error.contains(expected)), "{policies}\n{errors:?}");
    }
}

/// A server that is down must not keep the policies from being loaded.
#[test]
fn an_argument_of_a_tool_that_is_off_cannot_be_told_from_a_misspelled_one() {
    let mut tools = tools();
    tools[2].is_accepted = false;
    let policy = "@erasable(\"nothing\") permit (principal, action in [Action::\"draft\", Action::\"read_only\"], resource);";
    let directory = directory(&[("p.cedar", policy)]);
    assert!(check(directory.path(), &tools).is_loadable());
    tools[2].is_accepted = true;
    assert_eq!(errors_in(directory.path(), &tools).len(), 1);
}

#[test]
fn a_head_that_names_principals_is_noted_and_makes_it_erasable_for_everyone() {
    let policy = "@erasable(\"room\") permit (principal == Principal::\"ann\", action == Action::\"sonos.set_volume\", resource);";
    let directory = directory(&[("p.cedar", policy)]);
    let findings = check(directory.path(), &tools()).findings;
    assert!(
        matches!(findings.as_slice(), [note] if note.severity == Severity::Note),
        "{findings:?}"
    );
    let set = set(policy);
    assert_eq!(erasable(&set)[0], ["room"]);
}

/// Other policies that read it are warned of, and deny.
#[test]
fn no_policy_sees_what_another_one_makes_erasable() {
    let set = set("@id(\"forget\") @erasable(\"room\")
         permit (principal, action == Action::\"sonos.set_volume\", resource);
         @id(\"bath\") forbid (principal, action == Action::\"sonos.set_volume\", resource)
         when { context.args has room };");
    let warnings: Vec<&str> = set.warnings().iter().map(|it| it.message.as_str()).collect();
    let is_told = |text: &&str| text.contains("`bath` reads `room`");
    assert!(warnings.iter().any(is_told), "{warnings:?}");
    let decided = |args: Value| {
        let Value::Object(args) = args else { panic!("not an object") };
        let call = redacting_call(&tools()[0], args, &["room"]);
        let explanation = set.explain(&principal("agent"), &call, &Facts::default());
        let decision = decide(&set, &call.written());
        assert_eq!(explanation.verdict, brief(&decision).0);
        (brief(&decision).0, explanation.unseen)
    };
    let (verdict, unseen) = decided(json!({ "volume": 1, "room": "kitchen" }));
    assert_eq!((verdict, unseen[0].argument.as_str()), (Deny, "room"));
    assert_eq!(unseen[0].why, "it is redacted or erasable");
    assert_eq!(decided(json!({ "volume": 1 })), (Permit, vec![]));
}

/// The set in force now does not hide it, and what it sees is a digest: it must not be taken for the value.
#[test]
fn an_argument_that_was_erasable_when_its_call_came_stays_unseen() {
    let schema = json!({ "type": "object", "properties": {
        "options": { "type": "object", "properties": {
            "level": { "type": "integer", "default": 1 },
            "sha256": { "type": "string" },
        } },
    } });
    let tool = shape("mail.send", Mode::Draft, schema);
    let policy = "@id(\"low\") permit (principal, action == Action::\"mail.send\", resource)
         when { context.args has options && context.args.options has level && context.args.options.level < 5 };";
    let directory = directory(&[("p.cedar", policy)]);
    let set = PolicySet::load(directory.path(), std::slice::from_ref(&tool)).unwrap();
    let args = json!({ "options": { "level": 3 } });
    let open = redacting_call(&tool, args.as_object().unwrap().clone(), &[]);
    assert_eq!(brief(&decide(&set, &open)).0, Permit);
    let hidden = redacting_call(&tool, args.as_object().unwrap().clone(), &["options"]);
    assert_eq!(brief(&decide(&set, &hidden.written())), (Deny, vec!["low"]));
}

#[test]
fn a_set_that_does_not_know_the_tool_as_it_is_keeps_all_of_a_call_apart() {
    let set = set("@erasable(\"to\") permit (principal, action in Action::\"draft\", resource);");
    let known = tool(&tools()[2]);
    assert_eq!(set.erasable(&known), PolicyErasable::Named(BTreeSet::from(["to".to_owned()])));
    let other = [
        Tool { mode: Mode::ReadOnly, ..known.clone() },
        Tool { definition_digest: Digest::of("another one"), ..known.clone() },
        tool(&shape("mail.send", Mode::Draft, json!({}))),
    ];
    for tool in other {
        assert_eq!(set.erasable(&tool), PolicyErasable::Every, "{tool:?}");
        let args = json!({ "to": ["ann"] }).as_object().unwrap().clone();
        let call = Call::Server(ServerCall { tool: Arc::new(tool), args });
        let decision = decide(&set, &call);
        assert_eq!((brief(&decision).0, decision.erasable), (Deny, PolicyErasable::Every));
    }
    let without = load("permit (principal, action in Action::\"draft\", resource);").unwrap();
    let unknown = tool(&shape("mail.send", Mode::Draft, json!({})));
    assert_eq!(without.erasable(&unknown), PolicyErasable::default());
}

#[test]
fn a_process_without_a_key_takes_no_set_that_makes_arguments_erasable() {
    const OPEN: &str = "permit (principal, action, resource);";
    const ERASING: &str = "@id(\"forget\") @erasable(\"room\") permit (principal, action in Action::\"execute_gated\", resource);";
    let directory = directory(&[("p.cedar", OPEN)]);
    let load = || PolicySet::load(directory.path(), &tools()).unwrap();
    let live = LivePolicy::new(load(), false).unwrap();
    fs::write(directory.path().join("p.cedar"), ERASING).unwrap();
    let refused = live.reload(directory.path(), &tools(), || true).unwrap_err().to_string();
    assert!(refused.contains("p.cedar:1:1: `forget` makes arguments erasable"), "{refused}");
    assert!(refused.contains("`payload.key`"), "{refused}");
    assert!(!live.current().has_erasable());
    assert!(LivePolicy::new(load(), false).is_err());
    let live = LivePolicy::new(load(), true).unwrap();
    assert!(
        live.current().has_erasable() && live.reload(directory.path(), &tools(), || true).is_ok()
    );
}

#[test]
fn a_case_is_tried_with_what_policies_see() {
    let case = "[[case]]\nname = \"x\"\nprincipal = \"a\"\naction = \"sonos.set_volume\"\n\
                args = { volume = 1, room = \"kitchen\" }\nexpect = \"deny\"\n";
    let policies =
        "@erasable(\"room\") permit (principal, action == Action::\"sonos.set_volume\", resource);
         forbid (principal, action == Action::\"sonos.set_volume\", resource)
         when { context.args has room && context.args.room == \"bath\" };";
    let directory = directory(&[("p.cedar", policies), ("p.cases.toml", case)]);
    let checked = check(directory.path(), &tools());
    assert!(checked.is_loadable() && checked.cases == 1, "{:?}", checked.findings);
}
