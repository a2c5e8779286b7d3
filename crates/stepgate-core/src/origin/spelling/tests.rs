use serde_json::{Value, json};

use super::{RequestText, Spelled, number_text};
use crate::json::strict;

fn has(request: &str, value: &Value) -> bool {
    let spelled = Spelled::of_leaf(value);
    spelled.is_some_and(|spelled| RequestText::of(request).has(value, &spelled))
}

/// The table of the measurements with AgentDojo: request, values, and whether they stand in it.
#[test]
fn values_stand_in_a_request_as_the_vectors_say() {
    let vectors = strict::stored(include_str!("../vectors.json")).unwrap();
    let request = vectors["request"].as_str().unwrap();
    for (value, stands) in vectors["user"].as_object().unwrap() {
        assert_eq!(has(request, &json!(value)), stands.as_bool().unwrap(), "{value:?}");
    }
}

#[test]
fn a_value_stands_in_a_text_as_a_whole() {
    let rows = [
        ("Mail ann@x.com.", "ann@x.com", true),
        ("Mail ann@x.com, then bob", "ann@x.com", true),
        ("Mail <ann@x.com>", "ann@x.com", true),
        ("Mail ANN@X.com", "ann@x.com", true),
        ("Mail joann@x.com", "ann@x.com", false),
        ("Mail ann@x.com.evil.example", "ann@x.com", false),
        ("Mail ann@x.community", "ann@x.com", false),
        ("Mail ann@x.com/evil", "ann@x.com", false),
        ("Mail evil+ann@x.com", "ann@x.com", false),
        ("see https://x.com/Path", "x.com/Path", true),
        ("see https://x.com/Path", "http://X.com/Path", true),
        // Servers tell letters apart in a path.
        ("see https://x.com/Path", "x.com/path", false),
        ("see https://x.com/Path", "x.com", false),
        ("the Big   Report", "big report", true),
        ("the Big Report", "bigreport", false),
        ("caf\u{e9}", "cafe\u{301}", true),
        ("pay 463820 now", "463820", true),
        ("pay 1463820 now", "463820", false),
        ("file 13, June 13", "13", false),
        ("ab cd", "ab", false),
        // Another letter that looks the same.
        ("\u{430}lice", "alice", false),
        ("ali\u{200d}ce", "alice", false),
        ("alice\u{301}", "alice", false),
        ("a-alice", "alice", false),
        ("x: alice", "alice", true),
        ("x:alice", "alice", false),
    ];
    for (request, value, stands) in rows {
        assert_eq!(has(request, &json!(value)), stands, "`{value}` in `{request}`");
    }
}

#[test]
fn a_number_is_compared_by_its_value() {
    let rows = [
        ("pay 1100 to ann", json!(1100), true),
        ("pay 1,100.00 to ann", json!(1100), true),
        ("pay $1,100.50", json!(1100.5), true),
        ("pay 98.70.", json!(98.7), true),
        ("pay 100, please", json!(100), true),
        ("pay 1100", json!(110), false),
        ("pay 11,00", json!(1100), false),
        ("pay 1234,567", json!(1_234_567), false),
        ("order A1100", json!(1100), false),
        ("order 1100-7", json!(1100), false),
        ("7-1100", json!(1100), false),
        ("10:30", json!(10.5), false),
        ("version 1.100.2", json!(1.1), false),
        ("pay -500", json!(500), false),
        // Too short to say anything.
        ("pay 12", json!(12), false),
        ("it is true", json!(true), false),
    ];
    for (request, value, stands) in rows {
        assert_eq!(has(request, &value), stands, "{value} in `{request}`");
    }
}

#[test]
fn a_value_that_is_too_long_or_hidden_in_a_long_repetition_is_not_known() {
    let long = "ab ".repeat(2000);
    assert!(!has(&long, &json!(long.trim())));
    let short = "ab ".repeat(1000);
    assert!(has(&short, &json!(short.trim())));
    // Found after a thousand places at which it does not stand alone: not looked for any more.
    let request = format!("{} abc", "xabc ".repeat(1000));
    assert!(!has(&request, &json!("abc")));
    let request = format!("{} abc", "xabc ".repeat(900));
    assert!(has(&request, &json!("abc")));
}

#[test]
fn an_integer_is_exact() {
    let number = |text: &str| number_text(strict::stored(text).unwrap().as_number().unwrap());
    assert_eq!(number("9223372036854775807"), "9223372036854775807");
    assert_eq!(number("18446744073709551615"), "18446744073709551615");
    assert_eq!(
        (number("1100.0"), number("1e3"), number("-0.5")),
        ("1100".into(), "1000".into(), "-0.5".into())
    );
}
