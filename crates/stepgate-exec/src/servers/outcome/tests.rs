use serde_json::json;

use super::*;

const BYTES_MAX: usize = 200;

fn judged(result: Value, schema: Option<Value>) -> Effect {
    let Value::Object(result) = result else { panic!("a result is an object") };
    let output = schema.map(|schema| Output::compile(&schema).unwrap());
    of(ServerAnswer::Result(result), output.as_ref(), BYTES_MAX).effect
}

fn invalid(text: &str, detail: &str) -> Effect {
    Effect::Failed(Failed {
        failure: ExecutionFailure::OutputInvalid,
        detail: Some(detail.to_owned()),
        said: Said::Unusable(Digest::of_bytes(text.as_bytes())),
        in_doubt: true,
    })
}

#[test]
fn a_result_keeps_its_content_and_its_integers() {
    let result = json!({
        "_meta": { "seen": 1 },
        "content": [],
        "isError": false,
        "structuredContent": { "id": 9_223_372_036_854_775_807_i64, "max": u64::MAX, "pi": 3.25 },
    });
    let text = r#"{"content":[],"structuredContent":{"id":9223372036854775807,"max":18446744073709551615,"pi":3.25}}"#;
    assert_eq!(judged(result, None), Effect::Done(Some(text.to_owned())));
}

#[test]
fn a_tool_that_says_it_failed_has_failed_and_leaves_no_doubt() {
    let said = json!({ "content": [{ "type": "text", "text": "no such room" }], "isError": true });
    let kept = r#"{"content":[{"type":"text","text":"no such room"}]}"#;
    assert_eq!(judged(said, None), refused(Some("no such room"), Said::Error(kept.to_owned())));
}

#[test]
fn what_a_failed_tool_says_is_kept_whole_and_held_to_no_schema() {
    let schema = json!({ "type": "object", "required": ["volume"] });
    let said = json!({
        "_meta": { "seen": 1 },
        "content": [{ "type": "text", "text": "busy" }, { "type": "text", "text": "until noon" }],
        "isError": true,
        "structuredContent": { "retry_after": u64::MAX },
    });
    let kept = r#"{"content":[{"type":"text","text":"busy"},{"type":"text","text":"until noon"}],"structuredContent":{"retry_after":18446744073709551615}}"#;
    let expected = refused(Some("busy"), Said::Error(kept.to_owned()));
    assert_eq!(judged(said, Some(schema)), expected);
}

#[test]
fn what_a_failed_tool_says_is_kept_up_to_the_limit_and_only_where_it_is_a_result() {
    let of_length = |bytes: usize| {
        let rest = r#"{"content":[{"type":"text","text":""}]}"#.len();
        let text = "a".repeat(bytes - rest);
        let content = json!([{ "type": "text", "text": text.clone() }]);
        (text, json!({ "content": content, "isError": true }), json!({ "content": content }))
    };
    let (text, said, kept) = of_length(BYTES_MAX);
    assert_eq!(judged(said, None), refused(Some(&text), Said::Error(kept.to_string())));
    let (text, said, _) = of_length(BYTES_MAX + 1);
    assert_eq!(judged(said, None), refused(Some(&text), Said::Nothing));
    for said in [json!({ "isError": true }), json!({ "content": [{}], "isError": true })] {
        assert_eq!(judged(said, None), refused(None, Said::Nothing));
    }
}

fn refused(detail: Option<&str>, said: Said) -> Effect {
    Effect::Failed(Failed {
        failure: ExecutionFailure::ToolFailed,
        detail: detail.map(str::to_owned),
        said,
        in_doubt: false,
    })
}

#[test]
fn what_a_failed_tool_says_is_repeated_up_to_the_limit() {
    let long = "ä".repeat(DETAIL_BYTES_MAX);
    let said = json!({ "content": [{ "type": "text", "text": long }], "isError": true });
    let Effect::Failed(Failed { detail, .. }) = judged(said, None) else { panic!("it failed") };
    assert_eq!(detail.unwrap().len(), DETAIL_BYTES_MAX);
}

#[test]
fn a_result_may_be_as_long_as_the_limit_and_not_longer() {
    let of_length = |bytes: usize| {
        let rest = r#"{"content":[{"text":"","type":"text"}]}"#.len();
        json!({ "content": [{ "text": "a".repeat(bytes - rest), "type": "text" }] })
    };
    assert!(matches!(judged(of_length(BYTES_MAX), None), Effect::Done(_)));
    let beyond = of_length(BYTES_MAX + 1);
    let why = "the result is longer than 200 bytes (output_bytes_max)";
    assert_eq!(judged(beyond.clone(), None), invalid(&beyond.to_string(), why));
}

#[test]
fn a_result_that_is_none_is_invalid() {
    let rows = [
        (json!({}), "the result has no list of content"),
        (json!({ "content": "text" }), "the result has no list of content"),
        (json!({ "content": [{ "text": "x" }] }), "the result has no list of content"),
    ];
    for (result, why) in rows {
        assert_eq!(judged(result.clone(), None), invalid(&result.to_string(), why));
    }
    let odd = judged(json!({ "content": [], "isError": "no" }), None);
    assert_eq!(odd, invalid(r#"{"content":[]}"#, "isError is neither true nor false"));
}

#[test]
fn a_promised_structure_must_be_there_and_be_kept() {
    let schema = json!({ "type": "object", "properties": { "volume": { "type": "integer" } } });
    let check = |result: Value| judged(result, Some(schema.clone()));
    let good = json!({ "content": [], "structuredContent": { "volume": 20 } });
    assert_eq!(check(good.clone()), Effect::Done(Some(good.to_string())));
    let missing = json!({ "content": [] });
    let why = "the result has no structuredContent, which its schema asks for";
    assert_eq!(check(missing.clone()), invalid(&missing.to_string(), why));
    let broken = json!({ "content": [], "structuredContent": { "volume": "loud" } });
    let why = "the structuredContent breaks its schema: volume: value is not of type \"integer\"";
    assert_eq!(check(broken.clone()), invalid(&broken.to_string(), why));
}

#[test]
fn an_error_of_the_protocol_keeps_the_servers_words_printable_and_within_bounds() {
    let long = format!("no\u{1b}[2J room {}", "x".repeat(5000));
    let answer = ServerAnswer::Error(long, Digest::of_bytes(b""));
    let Effect::Failed(failed) = of(answer, None, 10_000).effect else { panic!("it failed") };
    let Said::Error(kept) = failed.said else { panic!("nothing was kept") };
    let kept: Value = serde_json::from_str(&kept).unwrap();
    let text = kept["content"][0]["text"].as_str().unwrap();
    assert!(text.starts_with("The tool server answered with an error: no [2J room xxx"), "{text}");
    assert!(text.len() < DETAIL_BYTES_MAX + 64 && !text.contains('\u{1b}'), "{}", text.len());
    assert!(!failed.in_doubt);
    // A text over the limit of a result is not kept.
    let answer = ServerAnswer::Error("x".repeat(5000), Digest::of_bytes(b""));
    let Effect::Failed(failed) = of(answer, None, BYTES_MAX).effect else { panic!("it failed") };
    assert_eq!(failed.said, Said::Nothing);
}
