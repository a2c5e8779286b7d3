//! The strict parser against the lenient one beneath it.

use serde_json::Value;
use stepgate_core::json::canonical;
use stepgate_core::json::strict::{self, Integers, Refusal};
use stepgate_core::limits::Limits;

/// Whatever is accepted means the same to a lenient parser, and whatever is refused has a reason that
/// a lenient parser either shares or does not know.
pub fn parser(bytes: &[u8]) {
    let depth_max = Limits::default().json_depth_max;
    let exact = strict::parse(bytes, depth_max, Integers::Exact);
    let any = strict::parse(bytes, depth_max, Integers::Any);
    let lenient = serde_json::from_slice::<Value>(bytes);
    // The lenient parser gives two private names a meaning of its own.
    let has_private_name = bytes.windows(5).any(|window| window == b"serde");

    match (&exact, &any) {
        (Ok(exact), Ok(any)) => assert_eq!(exact, any, "the limit changes nothing that it allows"),
        (Err(Refusal::NumberRange), Ok(_)) => {}
        (exact, any) => assert_eq!(exact, any, "only numbers are judged otherwise"),
    }
    match (&any, &lenient) {
        (Ok(any), Ok(lenient)) => assert!(has_private_name || any == lenient, "another value"),
        (Ok(_), Err(error)) => assert!(has_private_name, "accepted what is not JSON: {error}"),
        (Err(Refusal::DuplicateKey | Refusal::TooDeep), _) | (Err(_), Err(_)) => {}
        (Err(refusal), Ok(_)) => assert!(has_private_name, "JSON refused as {refusal}"),
    }
    if let Ok(value) = any {
        assert!(depth(&value) <= depth_max, "deeper than the limit");
        let text = canonical::text_of(&value);
        let again = strict::parse(text.as_bytes(), depth_max, Integers::Any);
        assert_eq!(again.map(|value| canonical::text_of(&value)), Ok(text), "no fixpoint");
    }
}

fn depth(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Object(members) => 1 + members.values().map(depth).max().unwrap_or(0),
    }
}
