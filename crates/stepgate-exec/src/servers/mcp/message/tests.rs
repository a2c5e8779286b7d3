use serde_json::json;

use super::*;

#[test]
fn the_id_of_a_message_is_found_at_either_end() {
    let seven = Some(RequestId::Number(7));
    let rows: [(&[u8], Option<RequestId>, Option<RequestId>); 6] = [
        (br#"{"jsonrpc":"2.0","id":7,"result":{"content":[{"te"#, seven.clone(), None),
        (br#"{"result":{"a":"b"},"jsonrpc":"2.0","id":7}"#, seven.clone(), seven.clone()),
        (br#"t":"zzzz"}]},"jsonrpc":"2.0","id":7}"#, None, seven.clone()),
        (br#"{"a":1,"id":"7","a":2}"#, seven.clone(), None),
        (br#"{"result":{"id":9},"result":1}"#, None, None),
        (b"garbage", None, None),
    ];
    for (bytes, beginning, end) in rows {
        let text = String::from_utf8_lossy(bytes);
        assert_eq!(id_in_beginning(bytes), beginning, "{text}");
        assert_eq!(id_in_end(bytes), end, "{text}");
    }
}

#[test]
fn a_message_is_what_its_members_say() {
    let kind = |message: Value| match kind_of(message.as_object().unwrap()) {
        Kind::Response(id) => format!("response {id}"),
        Kind::Request => "request".to_owned(),
        Kind::Notification(method) => format!("notification {method}"),
        Kind::Other => "other".to_owned(),
    };
    assert_eq!(kind(json!({ "id": 1, "result": {} })), "response 1");
    assert_eq!(kind(json!({ "id": "1", "error": {} })), "response 1");
    assert_eq!(kind(json!({ "id": 1, "method": "ping" })), "request");
    assert_eq!(kind(json!({ "method": "notifications/x" })), "notification notifications/x");
    assert_eq!(kind(json!({ "id": 1 })), "other");
    assert_eq!(kind(json!({ "id": null, "error": {} })), "other");
    assert_eq!(kind(json!({ "id": 1.5, "result": {} })), "other");
}
