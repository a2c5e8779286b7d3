//! What a data directory begins with.

use serde_json::{Value, json};
use stepgate_policy::Verdict::{self, Approval, Deny, Permit};
use stepgate_policy::{DEFAULTS, PolicySet, Severity, check, defaults_digest};

use crate::world::{brief, call, decide, directory, tools};

#[test]
fn the_defaults_load_with_and_without_tools() {
    let directory = directory(DEFAULTS);
    let checked = check(directory.path(), &[]);
    let worst = checked.findings.iter().map(|found| found.severity).min();
    assert_eq!((worst, checked.cases), (Some(Severity::Note), 4), "{:?}", checked.findings);
    let checked = check(directory.path(), &tools());
    assert_eq!((checked.findings, checked.policy_hash), (vec![], Some(defaults_digest())));
}

#[test]
fn the_defaults_allow_the_sandbox_and_a_tool_that_looks_ask_before_one_acts_and_deny_the_rest() {
    let set = PolicySet::load(directory(DEFAULTS).path(), &tools()).unwrap();
    let rows: [(&str, Value, Verdict, &[&str]); 6] = [
        ("THINK", json!({}), Permit, &["core/sandbox"]),
        ("FINISH", json!({ "response": "x" }), Permit, &["core/sandbox"]),
        ("DELETE_FILE", json!({ "path": "/sandbox/a.txt" }), Permit, &["core/sandbox"]),
        ("sonos.set_volume", json!({ "volume": 1 }), Approval, &["tools/ask-before-execute"]),
        ("calendar.get_agenda", json!({}), Permit, &["tools/read-only"]),
        ("mail.draft", json!({ "to": [] }), Deny, &[]),
    ];
    for (name, args, verdict, policies) in rows {
        assert_eq!(brief(&decide(&set, &call(name, args))), (verdict, policies.to_vec()), "{name}");
    }
}

#[test]
fn the_examples_in_the_defaults_work_when_the_slashes_are_removed() {
    let uncommented: Vec<(String, String)> =
        DEFAULTS.iter().map(|(name, text)| ((*name).to_owned(), without_slashes(text))).collect();
    let files: Vec<(&str, &str)> =
        uncommented.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    let set = PolicySet::load(directory(&files).path(), &tools()).unwrap();
    let delete = call("DELETE_FILE", json!({ "path": "/sandbox/a.txt" }));
    assert_eq!(brief(&decide(&set, &delete)).0, Approval);
    let write = json!({ "path": "/sandbox/archive/a.txt", "content": "x" });
    let write = call("WRITE_FILE", write);
    assert_eq!(brief(&decide(&set, &write)), (Deny, vec!["core/keep-archive"]));
    let draft = call("mail.draft", json!({ "to": [] }));
    assert_eq!(brief(&decide(&set, &draft)), (Permit, vec!["tools/draft-mail"]));
    let loud = call("sonos.set_volume", json!({ "volume": 90 }));
    assert_eq!(decide(&set, &loud).caps["volume"], 30);
}

/// The text with every commented-out policy in force: from an annotation to the semicolon.
fn without_slashes(text: &str) -> String {
    let mut in_policy = false;
    let lines = text.lines().map(|line| {
        let code = line.strip_prefix("// ").unwrap_or_default();
        in_policy |= code.starts_with('@');
        let shown = if in_policy && !code.is_empty() { code } else { line };
        in_policy &= !code.ends_with(");");
        shown
    });
    lines.collect::<Vec<_>>().join("\n")
}
