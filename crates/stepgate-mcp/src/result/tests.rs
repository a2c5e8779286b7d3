use super::*;

fn shown(result: &CallToolResult) -> Value {
    serde_json::to_value(result).unwrap()
}

#[test]
fn a_core_action_answers_with_what_it_gave_as_text_and_as_itself() {
    let text = |text: &str| json!([{ "type": "text", "text": text }]);
    let rows = [
        ("READ_FILE", json!({ "content": "hi" }), text("hi"), json!({ "content": "hi" })),
        (
            "FINISH",
            json!({ "final_response": "done" }),
            text("done"),
            json!({ "final_response": "done" }),
        ),
        ("LIST_FILES", json!({ "files": [] }), text("{\"files\":[]}"), json!({ "files": [] })),
        ("WRITE_FILE", Value::Null, text("SUCCESS"), Value::Null),
    ];
    for (action, given, content, structured) in rows {
        let result = shown(&succeeded(action, &given));
        assert_eq!(result["content"], content, "{action}");
        assert_eq!(result["structuredContent"], structured, "{action}");
    }
}

#[test]
fn a_tools_own_result_stays_as_it_is() {
    let given = json!({
        "content": [
            { "type": "text", "text": "a", "annotations": { "priority": 0.5 } },
            { "type": "image", "data": "AAAA", "mimeType": "image/png" },
            { "type": "resource_link", "uri": "file:///a", "name": "a" },
            { "type": "resource", "resource": { "uri": "test://a", "mimeType": "text/plain", "text": "a" } },
        ],
        "structuredContent": { "big": 9007199254740993u64, "small": 1e-7 },
    });
    let result = shown(&succeeded("fixture.act", &given));
    for member in ["content", "structuredContent"] {
        assert_eq!(result[member], given[member], "{member}");
    }
}
