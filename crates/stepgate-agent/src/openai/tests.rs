//! Answers of endpoints, as a whole and as streams, and what is refused.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

use super::answer::read;
use super::stream::Pieces;
use super::{Endpoint, ModelKey, OpenAi, Trouble, question};
use crate::envelope::{ClipBoardImage, ToolCall};
use crate::model::{Completion, Message, ModelError, Offer, Prompt};
use crate::response::Usage;

fn whole(message: Value, finish_reason: &str) -> Value {
    json!({
        "id": "x", "object": "chat.completion", "created": 1, "model": "m-1",
        "choices": [{ "index": 0, "message": message, "finish_reason": finish_reason }],
        "usage": { "prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7 },
    })
}

fn call(id: &str, name: &str, arguments: &str) -> ToolCall {
    ToolCall { tool_call_id: id.into(), name: name.into(), arguments_json: arguments.into() }
}

fn completion() -> Completion {
    let usage = Some(Usage { prompt_tokens: 3, completion_tokens: 4 });
    Completion { model: "m-1".into(), usage, ..Completion::default() }
}

#[test]
fn a_whole_answer_is_read() {
    let calls = json!([
        { "id": "a", "type": "function", "function": { "name": "f", "arguments": "{\"x\":1}" } },
        { "id": "b", "type": "function", "function": { "name": "g", "arguments": "" } },
    ]);
    let rows = [
        (
            whole(json!({ "role": "assistant", "content": "hi" }), "stop"),
            Completion { text: Some("hi".into()), ..completion() },
        ),
        (
            whole(json!({ "content": null, "tool_calls": calls }), "tool_calls"),
            Completion {
                calls: vec![call("a", "f", "{\"x\":1}"), call("b", "g", "")],
                ..completion()
            },
        ),
        (
            whole(json!({ "content": null, "refusal": "no" }), "stop"),
            Completion { text: Some("no".into()), ..completion() },
        ),
        (
            whole(json!({ "content": "to be" }), "length"),
            Completion {
                text: Some("to be".into()),
                cut_off: Some("the answer was cut off at the model's limit".into()),
                ..completion()
            },
        ),
    ];
    for (body, expected) in rows {
        assert_eq!(read(body.to_string().as_bytes()), Ok(expected), "{body}");
    }
}

#[test]
fn what_is_no_answer_is_refused() {
    let cut = json!([{ "id": "a", "function": { "name": "f", "arguments": "{}" } }]);
    let rows: [(String, &str); 13] = [
        ("".into(), "SYNTAX"),
        ("[]".into(), "not a JSON object"),
        (r#"{"choices":[],"choices":[]}"#.into(), "DUPLICATE_KEY"),
        ("{}".into(), "exactly one choice"),
        (json!({ "choices": [{}, {}] }).to_string(), "exactly one choice"),
        (json!({ "choices": [{}] }).to_string(), "no message"),
        (whole(json!({ "content": 7 }), "stop").to_string(), "`content` is not a text"),
        (whole(json!({ "content": [{ "text": "x" }] }), "stop").to_string(), "not a text"),
        (whole(json!({ "tool_calls": {} }), "stop").to_string(), "not a list"),
        (whole(json!({ "tool_calls": [{ "id": "a" }] }), "stop").to_string(), "of no function"),
        (
            whole(json!({ "tool_calls": [{ "id": 7, "function": { "name": "f", "arguments": "" } }] }), "stop").to_string(),
            "`id` is not a text",
        ),
        (
            whole(json!({ "tool_calls": [{ "id": "a", "function": { "name": "f", "arguments": {} } }] }), "stop").to_string(),
            "`arguments` is not a text",
        ),
        (whole(json!({ "tool_calls": cut }), "length").to_string(), "in the middle of its calls"),
    ];
    for (body, expected) in rows {
        let Err(ModelError::Invalid(why)) = read(body.as_bytes()) else { panic!("{body}") };
        assert!(why.contains(expected), "{why}");
    }
}

#[test]
fn no_bytes_make_it_panic() {
    let calls = json!([{ "id": "a", "function": { "name": "f", "arguments": "{\"x\":1}" } }]);
    let body = whole(json!({ "content": "hé", "tool_calls": calls }), "stop").to_string();
    let delta =
        piece(json!({ "content": "hé", "tool_calls": [{ "index": 0, "id": "a" }] }), json!("stop"));
    for text in [body, delta] {
        for place in 0..text.len() {
            let bytes = text.as_bytes();
            let cut = bytes[..place].to_vec();
            let mut changed = bytes.to_vec();
            for byte in [0, b'"', b'{', b'9', 0xff] {
                changed[place] = byte;
                let _ = read(&changed);
                let _ = Pieces::of(&no_key()).add(&changed).map(drop);
            }
            let _ = read(&cut);
            let _ = Pieces::of(&no_key()).add(&cut).map(drop);
        }
    }
}

fn piece(delta: Value, finish_reason: Value) -> String {
    json!({
        "id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m-1",
        "choices": [{ "index": 0, "delta": delta, "finish_reason": finish_reason }],
    })
    .to_string()
}

fn joined(pieces: &[String]) -> (Vec<String>, Result<Completion, ModelError>) {
    joined_with(&no_key(), pieces)
}

fn no_key() -> ModelKey {
    ModelKey::new("")
}

fn joined_with(key: &ModelKey, pieces: &[String]) -> (Vec<String>, Result<Completion, ModelError>) {
    let (mut all, mut told) = (Pieces::of(key), Vec::new());
    for piece in pieces {
        match all.add(piece.as_bytes()) {
            Ok(text) => told.extend(text),
            Err(Trouble::Final { error, .. }) => return (told, Err(error)),
            Err(Trouble::Again(why, _)) => return (told, Err(ModelError::Unavailable(why))),
        }
    }
    let last = Mutex::new(None);
    let end = all.end(&|text: &str| *last.lock().unwrap() = Some(text.to_owned()));
    told.extend(last.into_inner().unwrap());
    (told, end)
}

const KEY: &str = "sk-0123456789/abcdef";

#[test]
fn text_that_may_be_the_beginning_of_the_key_is_told_when_it_is_not() {
    let key = ModelKey::new(KEY);
    let said = |parts: &[&str]| {
        let pieces: Vec<String> =
            parts.iter().map(|part| piece(json!({ "content": part }), Value::Null)).collect();
        let (told, end) = joined_with(&key, &pieces);
        (told, end.unwrap().text.unwrap())
    };
    let rows: [(&[&str], &[&str]); 5] = [
        (&["ask ", "sk-", "y"], &["ask ", "sk-y"]),
        (&["a sk-0123456789/abcde"], &["a ", "sk-0123456789/abcde"]),
        (&["a s", "sk-0123456789/", "abcdef b"], &["a ", "s"]),
        (&["s", "k", "-0123456789/abcdef"], &[]),
        (&["so ", KEY, " it", " is"], &["so "]),
    ];
    for (parts, expected) in rows {
        assert_eq!(
            said(parts),
            (expected.iter().map(|it| (*it).to_owned()).collect(), parts.concat())
        );
    }
}

#[test]
fn an_answer_that_repeats_the_key_is_known_wherever_it_does() {
    let key = ModelKey::new(KEY);
    let said = format!("it is {KEY}");
    let rows = [
        (completion(), false),
        (Completion { text: Some(said.clone()), ..completion() }, true),
        (Completion { model: said.clone(), ..completion() }, true),
        (Completion { calls: vec![call(&said, "f", "{}")], ..completion() }, true),
        (Completion { calls: vec![call("a", &said, "{}")], ..completion() }, true),
        (Completion { calls: vec![call("a", "f", &said)], ..completion() }, true),
    ];
    for (answer, is_there) in rows {
        assert_eq!(key.is_in(&answer), is_there, "{answer:?}");
    }
    let at_least = |bytes: usize| {
        let key = "k".repeat(bytes);
        ModelKey::new(&key).is_in(&Completion { text: Some(key), ..completion() })
    };
    assert_eq!([15, 16, 17].map(at_least), [false, true, true], "a word is no secret");
}

#[test]
fn what_the_operator_is_told_has_no_key() {
    let rows = [
        (KEY, format!("Bearer {KEY}: {KEY} is wrong"), "Bearer ***: *** is wrong"),
        (KEY, "no sk-0123456789\\/abcdef here".into(), "no *** here"),
        ("k", "a key".into(), "a ***ey"),
        ("", "nothing".into(), "nothing"),
    ];
    for (key, text, expected) in rows {
        assert_eq!(ModelKey::new(key).masked(&text), expected);
    }
}

#[test]
fn pieces_become_the_whole() {
    let null = Value::Null;
    let tool = |index: u64, members: Value| {
        let mut piece = json!({ "index": index });
        piece.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        json!({ "tool_calls": [piece] })
    };
    let pieces = [
        piece(json!({ "role": "assistant", "content": "" }), null.clone()),
        piece(json!({ "content": "let me " }), null.clone()),
        piece(json!({ "content": "look" }), null.clone()),
        piece(
            tool(
                0,
                json!({ "id": "a", "type": "function", "function": { "name": "f", "arguments": "" } }),
            ),
            null.clone(),
        ),
        piece(tool(0, json!({ "function": { "arguments": "{\"x\"" } })), null.clone()),
        piece(
            tool(0, json!({ "id": "a", "function": { "name": "f", "arguments": ":1}" } })),
            null.clone(),
        ),
        piece(tool(1, json!({ "id": "b", "function": { "name": "g", "arguments": "{}" } })), null),
        piece(json!({}), json!("tool_calls")),
        json!({ "choices": [], "usage": { "prompt_tokens": 3, "completion_tokens": 4 } })
            .to_string(),
    ];
    let expected = Completion {
        text: Some("let me look".into()),
        calls: vec![call("a", "f", "{\"x\":1}"), call("b", "g", "{}")],
        ..completion()
    };
    let told = ["let me ", "look"].map(str::to_owned).to_vec();
    assert_eq!(joined(&pieces), (told, Ok(expected)));
}

#[test]
fn pieces_that_do_not_fit_are_refused() {
    let of = |call: Value| piece(json!({ "tool_calls": [call] }), Value::Null);
    let first = || of(json!({ "index": 0, "id": "a", "function": { "name": "f" } }));
    let rows: [(Vec<String>, &str); 8] = [
        (vec!["{".into()], "SYNTAX"),
        (vec![of(json!({ "id": "a" }))], "no `index`"),
        (vec![of(json!({ "index": 1, "id": "a" }))], "in their order"),
        (vec![first(), of(json!({ "index": 0, "id": "b" }))], "changes its id"),
        (vec![first(), of(json!({ "index": 0, "function": { "name": "g" } }))], "changes its id"),
        (vec![of(json!(7))], "no object"),
        (vec![json!({ "choices": [{}, {}] }).to_string()], "more than one choice"),
        (vec![json!({ "error": { "message": "overloaded" } }).to_string()], "overloaded"),
    ];
    for (pieces, expected) in rows {
        let (_, Err(error)) = joined(&pieces) else { panic!("{pieces:?}") };
        assert!(error.to_string().contains(expected), "{error}");
    }
}

#[test]
fn once_text_was_told_a_stream_that_breaks_is_not_tried_again() {
    let key = no_key();
    let mut pieces = Pieces::of(&key);
    let why = || "gone".to_owned();
    assert!(matches!(pieces.broken(why()), Trouble::Again(..)));
    let told = pieces.add(piece(json!({ "content": "a" }), Value::Null).as_bytes());
    assert!(told.is_ok());
    let Trouble::Final { complaint, error } = pieces.broken(why()) else { panic!("tried again") };
    assert_eq!(complaint, "the model's answer broke off: gone");
    assert_eq!(error, ModelError::Unavailable("its answer broke off".into()));
}

#[test]
fn a_question_has_the_conversation_and_the_tools() {
    let messages = vec![
        Message::System("s".into()),
        Message::User { text: "u".into(), images: Vec::new() },
        Message::Assistant { text: None, calls: vec![call("a", "f", "{}")] },
        Message::Tool { tool_call_id: "a".into(), content: "1".into() },
        Message::Assistant { text: Some("t".into()), calls: Vec::new() },
        Message::User {
            text: "see".into(),
            images: vec![ClipBoardImage { mime_type: "image/png".into(), data: "AA==".into() }],
        },
    ];
    let offers = vec![Offer {
        name: "f".into(),
        description: Some("d".into()),
        parameters: json!({ "type": "object" }),
        action: Some("F".into()),
    }];
    let body: Value =
        serde_json::from_slice(&question::body("m", &Prompt { messages, offers })).unwrap();
    let expected = json!({
        "model": "m",
        "messages": [
            { "role": "system", "content": "s" },
            { "role": "user", "content": "u" },
            { "role": "assistant", "content": null, "tool_calls": [
                { "id": "a", "type": "function", "function": { "name": "f", "arguments": "{}" } },
            ] },
            { "role": "tool", "tool_call_id": "a", "content": "1" },
            { "role": "assistant", "content": "t" },
            { "role": "user", "content": [
                { "type": "text", "text": "see" },
                { "type": "image_url", "image_url": { "url": "data:image/png;base64,AA==" } },
            ] },
        ],
        "stream": true,
        "stream_options": { "include_usage": true },
        "tools": [
            { "type": "function",
              "function": { "name": "f", "parameters": { "type": "object" }, "description": "d" } },
        ],
    });
    assert_eq!(body, expected);
    let bare: Value = serde_json::from_slice(&question::body("m", &Prompt::default())).unwrap();
    assert_eq!(bare.get("tools"), None);
}

fn endpoint(base_url: &str, key: Option<&str>) -> Endpoint {
    Endpoint {
        base_url: base_url.into(),
        model: "m".into(),
        key: key.map(ModelKey::new),
        timeout: Duration::from_secs(1),
        attempts_max: 1,
    }
}

#[test]
fn a_key_is_never_sent_in_the_clear_to_another_machine_and_never_shown() {
    let complaints = Arc::new(Mutex::new(Vec::<String>::new()));
    let new = |url: &str, key| {
        let heard = Arc::clone(&complaints);
        let hear = Arc::new(move |text: &str| heard.lock().unwrap().push(text.to_owned()));
        OpenAi::new(endpoint(url, key), hear).map(drop)
    };
    let rows = [
        ("https://models.example/v1", Some("k"), true),
        ("http://models.example/v1", Some("k"), false),
        ("http://models.example/v1", None, true),
        ("http://127.0.0.1:8000/v1", Some("k"), true),
        ("http://[::1]:8000", Some("k"), true),
        ("http://localhost:11434/v1/", Some("k"), true),
        ("http://127.0.0.1.example/", Some("k"), false),
        ("ftp://models.example", None, false),
        ("nothing", None, false),
        ("https://models.example", Some("a\nb"), false),
    ];
    for (url, key, is_taken) in rows {
        assert_eq!(new(url, key).is_ok(), is_taken, "{url} {key:?}");
    }
    assert_eq!(format!("{:?}", ModelKey::new("secret")), "ModelKey(…)");
}
