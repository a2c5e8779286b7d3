use serde_json::{Value, json};

use stepgate_core::time::Timestamp;

use crate::show::Times;

fn block(approval: &Value) -> Option<String> {
    let now: Timestamp = "2026-11-15T08:03:00.000Z".parse().unwrap();
    super::block(approval, Times::at(now, false))
}

fn approval(args: Value) -> Value {
    json!({
        "approval_id": "0198b2c4-7a51-7cc0-9f2e-2f6a4a6f8f10",
        "status": "pending",
        "ts_requested": "2026-11-15T08:00:00.000Z",
        "expires_at": "2026-11-15T09:00:00.000Z",
        "context": {
            "args": args,
            "principal_id": "agent",
            "reason": "it acts",
            "tool_name": "act",
            "tool_server": "fixture",
        },
    })
}

#[test]
fn a_padded_argument_hides_no_other_and_is_shown_whole() {
    let padding = "x".repeat(100_000);
    let text = block(&approval(json!({ "a": padding, "b": "danger", "z": 5 }))).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let expected = [
        "0198b2c4-7a51-7cc0-9f2e-2f6a4a6f8f10  pending  asked 3 min ago, expires in 57 min",
        "  who   agent",
        "  what  fixture.act",
        &format!("        a = \"{padding}\""),
        "        b = \"danger\"",
        "        z = 5",
        "  why   it acts",
    ];
    assert_eq!(lines, expected);
}

#[test]
fn what_cannot_be_seen_stands_there_by_its_number() {
    let text = block(&approval(json!({ "to\u{a0}": "a\u{fe0f}b" }))).unwrap();
    assert!(text.contains("to<U+00A0> = \"a<U+FE0F>b\""), "{text}");
}

#[test]
fn who_must_approve_is_shown_and_who_has() {
    let mut approval = approval(json!({}));
    approval["context"]["required"] =
        json!([{ "approvers": ["finance", "ann"], "quorum": 2 }, { "approvers": [], "quorum": 3 }]);
    approval["approved_by"] = json!(["ann\u{1b}"]);
    let text = block(&approval).unwrap();
    let end = "  why   it acts\n  needs 2 of finance, ann\n  needs 3 operators\n  approved so far by ann<U+001B>";
    assert!(text.ends_with(end), "{text}");
}

#[test]
fn an_approval_without_one_of_its_parts_has_no_block() {
    let whole = approval(json!({}));
    assert!(block(&whole).is_some());
    let pointers = ["/approval_id", "/status", "/ts_requested", "/expires_at", "/context"];
    let of_context = ["args", "principal_id", "reason", "tool_name", "tool_server"];
    let of_context = of_context.map(|name| format!("/context/{name}"));
    for pointer in pointers.into_iter().chain(of_context.iter().map(String::as_str)) {
        let mut part = whole.clone();
        *part.pointer_mut(pointer).unwrap() = Value::Null;
        assert_eq!(block(&part), None, "{pointer}");
    }
}
