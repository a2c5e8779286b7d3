use serde_json::{Value, json};
use stepgate_core::digest::Digest;
use stepgate_core::tool::ToolName;

use super::*;

fn tool(name: &str, arguments: &[&str], annotations: Value) -> FoundTool {
    let properties: serde_json::Map<String, Value> =
        arguments.iter().map(|name| ((*name).to_owned(), json!({ "type": "string" }))).collect();
    FoundTool {
        name: ToolName::of("s", name).unwrap(),
        description: None,
        input_schema: json!({ "type": "object", "properties": properties }),
        hints: Hints::of(&annotations),
        definition_digest: Digest::ZERO,
        trouble: None,
    }
}

/// `looks` or `changes`, then the labels in, the labels out, and the targets.
fn guessed(name: &str, arguments: &[&str], annotations: Value) -> String {
    let guess = guess(&tool(name, arguments, annotations), &ToolSpec::default());
    let list =
        |labels: &BTreeSet<&'static str>| labels.iter().copied().collect::<Vec<_>>().join(",");
    let targets = guess.targets.map_or("?".to_owned(), |names| names.join(","));
    let does = format!("{:?}", guess.does).to_lowercase();
    format!("{does} < {} > {} @ {targets}", list(&guess.reads), list(&guess.sends))
}

#[test]
fn names_and_hints_make_a_guess_that_asks_more_in_doubt() {
    let none = json!({});
    let rows = [
        ("get_agenda", &[][..], none.clone(), "looks < untrusted >  @ ?"),
        ("git_status", &["repo_path"], none.clone(), "looks < untrusted >  @ ?"),
        ("fetch", &["url", "max_length"], none.clone(), "looks < untrusted > egress @ url"),
        ("getSecret", &["name"], none.clone(), "looks < secret,untrusted >  @ ?"),
        ("search", &["query"], json!({ "openWorldHint": true }), "looks < untrusted > egress @ ?"),
        ("send_email", &["to", "cc", "body"], none.clone(), "changes < untrusted > egress @ to,cc"),
        ("notify_all", &["text"], none.clone(), "changes < untrusted > egress @ ?"),
        (
            "transfer",
            &["iban", "amount"],
            none.clone(),
            "changes < untrusted > egress,money @ iban",
        ),
        ("update_password", &["password"], none.clone(), "changes < untrusted > account @ ?"),
        ("deleteFile", &["path"], none.clone(), "changes < untrusted > delete @ path"),
        ("frobnicate", &["x"], none.clone(), "changes < untrusted > change @ ?"),
        // The server's words: believed where they make it stricter, or where the name agrees.
        ("frobnicate", &["x"], json!({ "readOnlyHint": true }), "looks < untrusted >  @ ?"),
        ("get_x", &[], json!({ "readOnlyHint": false }), "changes < untrusted > change @ ?"),
        ("send", &["to"], json!({ "readOnlyHint": true }), "changes < untrusted > egress @ to"),
        (
            "write_file",
            &["path", "content"],
            json!({ "destructiveHint": true, "openWorldHint": false }),
            "changes <  > delete @ path",
        ),
        ("get_x", &[], json!({ "openWorldHint": false }), "looks < untrusted >  @ ?"),
        ("get_x", &[], json!({ "readOnlyHint": "yes" }), "looks < untrusted >  @ ?"),
    ];
    for (name, arguments, annotations, expected) in rows {
        assert_eq!(guessed(name, arguments, annotations.clone()), expected, "{name} {annotations}");
    }
}

#[test]
fn the_mode_that_the_configuration_has_is_not_guessed() {
    let said = |mode| ToolSpec { mode: Some(mode), ..ToolSpec::default() };
    let send = tool("send", &["to"], json!({}));
    assert_eq!(guess(&send, &said(Mode::ReadOnly)).does, Does::Looks);
    assert_eq!(guess(&send, &said(Mode::Draft)).does, Does::Changes);
    assert_eq!(guess(&tool("get", &[], json!({})), &said(Mode::ExecuteGated)).does, Does::Changes);
}

#[test]
fn a_name_is_split_into_words() {
    let rows = [
        ("sendEmail", "send email"),
        ("send_email", "send email"),
        ("send-Email.v2", "send email v2"),
        ("HTTPGet", "httpget"),
        ("a1B", "a1 b"),
        ("__", ""),
    ];
    for (name, expected) in rows {
        assert_eq!(words(name).join(" "), expected, "{name}");
    }
}
