use serde_json::json;

use super::*;

fn plain(accepted: Option<&Value>, present: Option<&Value>) -> Vec<String> {
    let lines = lines(accepted, present);
    lines.iter().map(|line| anstream::adapter::strip_str(line).to_string()).collect()
}

#[test]
fn each_member_that_differs_is_shown_as_it_was_and_as_it_is() {
    let accepted = json!({ "name": "a", "title": null, "inputSchema": { "properties": {
        "kept": { "type": "string" }, "gone/1": { "type": "string" },
        "kind": { "enum": ["a", "b"] },
    } } });
    let present = json!({ "name": "a", "description": "send\u{202e}it", "inputSchema": { "properties": {
        "kept": { "type": "string" }, "kind": { "enum": ["a"] },
    } } });
    assert_eq!(
        plain(Some(&accepted), Some(&present)),
        [
            "+ /description: \"send<U+202E>it\"",
            "- /inputSchema/properties/gone~11: {\"type\":\"string\"}",
            "- /inputSchema/properties/kind/enum: [\"a\",\"b\"]",
            "+ /inputSchema/properties/kind/enum: [\"a\"]",
        ]
    );
    assert_eq!(plain(None, Some(&json!(1))), ["+ /: 1"]);
    assert_eq!(plain(Some(&accepted), Some(&accepted)), [""; 0]);
}
