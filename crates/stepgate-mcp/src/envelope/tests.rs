use serde_json::json;

use super::*;

#[test]
fn what_is_no_message_is_refused_in_the_protocols_words() {
    let rows = [
        (json!({}), INVALID_REQUEST),
        (json!([]), INVALID_REQUEST),
        (json!({ "jsonrpc": "1.0", "id": 1, "method": "ping" }), INVALID_REQUEST),
        (json!({ "jsonrpc": "2.0", "id": 1.5, "method": "ping" }), INVALID_REQUEST),
        (json!({ "jsonrpc": "2.0", "id": null, "method": "ping" }), INVALID_REQUEST),
        (json!({ "jsonrpc": "2.0", "id": u64::MAX, "method": "ping" }), INVALID_REQUEST),
        (json!({ "jsonrpc": "2.0", "id": 1 }), INVALID_REQUEST),
        (json!({ "jsonrpc": "2.0", "id": 1, "result": {}, "error": {} }), INVALID_REQUEST),
        (json!({ "jsonrpc": "2.0", "result": {} }), INVALID_REQUEST),
        (json!({ "jsonrpc": "2.0", "id": 1, "method": 5 }), INVALID_REQUEST),
        (json!({ "jsonrpc": "2.0", "id": 1, "method": "x".repeat(129) }), INVALID_REQUEST),
        (json!({ "jsonrpc": "2.0", "id": 1, "method": "ping", "params": [1] }), INVALID_PARAMS),
        (json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call" }), INVALID_PARAMS),
        (call(json!({ "name": 5 })), INVALID_PARAMS),
        (call(json!({ "name": "a", "arguments": [1] })), INVALID_PARAMS),
        (call(json!({ "name": "a", "_meta": 1 })), INVALID_PARAMS),
        (call(json!({ "name": "a", "requestState": 1 })), INVALID_PARAMS),
    ];
    for (message, code) in rows {
        let malformed = read(message.to_string().as_bytes()).unwrap_err();
        let id = message.get("id").filter(|id| **id == json!(1)).cloned().unwrap_or_default();
        assert_eq!((malformed.code, malformed.id), (code, id), "{message}");
    }
}

fn call(params: Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params })
}

#[test]
fn what_is_a_message_is_left_as_it_is() {
    let rows = [
        json!({ "jsonrpc": "2.0", "id": "a", "method": "x".repeat(128) }),
        json!({ "jsonrpc": "2.0", "method": "notifications/initialized", "params": {} }),
        json!({ "jsonrpc": "2.0", "id": 1, "result": { "action": "accept" } }),
        json!({ "jsonrpc": "2.0", "id": i64::MIN, "error": { "code": 1, "message": "" } }),
        call(json!({ "name": "a" })),
        call(json!({ "name": "a", "arguments": null, "_meta": { "progressToken": 1.5 } })),
    ];
    for value in rows {
        let message = read(value.to_string().as_bytes());
        assert_eq!(message, Ok(Message { value: value.clone(), spelled: None }), "{value}");
    }
}

#[test]
fn arguments_that_reading_changes_are_kept_as_they_are_spelled() {
    let text = |params: &str| {
        format!(r#" {{ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params" : {params} }} "#)
    };
    let rows = [
        (r#"{ "name": "}a", "arguments" : { "n": 12345678901234567890123 } }"#, true),
        (r#"{"n\u0061me":"a","\u0061rguments":{ "n": 12345678901234567890123 }}"#, true),
        // Outside the arguments, and within a double's range, any number is accepted.
        (r#"{"name":"a","_meta":{"m":12345678901234567890123},"arguments":{"n":1e30}}"#, false),
        (r#"{"name":"a","_meta":{"arguments":{"n":12345678901234567890123}}}"#, false),
    ];
    for (params, is_spelled) in rows {
        let spelled =
            is_spelled.then(|| RawArguments(r#"{ "n": 12345678901234567890123 }"#.to_owned()));
        assert_eq!(read(text(params).as_bytes()).unwrap().spelled, spelled, "{params}");
    }
    // The largest integer that a double represents exactly is accepted.
    let exact = call(json!({ "name": "a", "arguments": { "n": 9_007_199_254_740_991_u64 } }));
    assert_eq!(read(exact.to_string().as_bytes()).unwrap().spelled, None);
}
