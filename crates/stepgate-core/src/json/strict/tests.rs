use serde::Deserialize;
use serde_json::json;

use super::{DEPTH_MAX, Integers, Refusal, parse};
use crate::json::canonical;

const DEPTH: usize = 8;

/// Compares the refusal, or the canonical form of what was read.
fn check(text: impl AsRef<[u8]>, expected: Result<&str, Refusal>) {
    check_with(Integers::Exact, text, expected);
}

fn check_with(integers: Integers, text: impl AsRef<[u8]>, expected: Result<&str, Refusal>) {
    let text = text.as_ref();
    let found = parse(text, DEPTH, integers).map(|value| canonical::text_of(&value));
    assert_eq!(
        found.as_deref().map_err(|refusal| *refusal),
        expected,
        "{}",
        String::from_utf8_lossy(text)
    );
}

fn nested(open: &str, close: &str, levels: usize) -> String {
    format!("{}1{}", open.repeat(levels), close.repeat(levels))
}

#[test]
fn what_the_grammar_allows_is_read() {
    check("null", Ok("null"));
    check(" \t\r\n[true , false]\n", Ok("[true,false]"));
    check(r#"{"b":1,"a":[]}"#, Ok(r#"{"a":[],"b":1}"#));
    check(r#""\u0061\n\ud83d\ude00""#, Ok("\"a\\n\u{1f600}\""));
    check("\"\u{1f600}\u{7f}\"", Ok("\"\u{1f600}\u{7f}\""));
    check("[1.5,-2E3,0.1e-1]", Ok("[1.5,-2000,0.01]"));
    check("{}", Ok("{}"));
}

#[test]
fn duplicate_names_are_refused_at_any_depth_however_they_are_spelled() {
    let refused = Err(Refusal::DuplicateKey);
    check(r#"{"a":1,"a":1}"#, refused);
    check(r#"{"a":1,"b":2,"a":3}"#, refused);
    check(r#"{"a":1,"\u0061":1}"#, refused);
    check(r#"{"\u0061":1,"a":1}"#, refused);
    check(r#"{"\u0061":1,"\u0061":1}"#, refused);
    check(r#"{"/":1,"\/":1}"#, refused);
    check(r#"{"":1,"":1}"#, refused);
    check(r#"{"\ud83d\ude00":1,"😀":1}"#, refused);
    check(r#"[[{"x":{"a":1,"a":1}}]]"#, refused);
    check(r#"{"x":[1,{"y":{"k":{},"\u006b":[]}}]}"#, refused);
}

#[test]
fn names_that_only_look_alike_are_no_duplicates() {
    check(r#"{"a":1,"A":2}"#, Ok(r#"{"A":2,"a":1}"#));
    check(r#"{"a":{"a":{"a":1}}}"#, Ok(r#"{"a":{"a":{"a":1}}}"#));
    check(r#"[{"a":1},{"a":1}]"#, Ok(r#"[{"a":1},{"a":1}]"#));
    check(r#"{"a":1,"\\u0061":2}"#, Ok(r#"{"\\u0061":2,"a":1}"#));
    // Composed and decomposed spellings are different names: nothing is normalised.
    check("{\"\u{e5}\":1,\"a\u{30a}\":2}", Ok("{\"a\u{30a}\":2,\"\u{e5}\":1}"));
}

#[test]
fn what_the_grammar_does_not_allow_is_a_syntax_error() {
    for text in [
        "",
        " ",
        "{",
        "[",
        "\"",
        "]",
        "}",
        "[1,]",
        "[,1]",
        "[1 2]",
        "[1}",
        "{\"a\":1,}",
        "{\"a\"}",
        "{a:1}",
        "{'a':1}",
        "{1:2}",
        "{null:1}",
        "{\"a\":}",
        "nul",
        "True",
        "tru",
        "undefined",
        "'a'",
        "\"\t\"",
        "\"\n\"",
        "\"\u{0}\"",
        "\"\u{1f}\"",
        r#""\a""#,
        r#""\x41""#,
        r#""\u12""#,
        r#""\u00zz""#,
        "// c\n1",
        "/* c */1",
        "# c\n1",
        "\u{a0}1",
        "\u{2028}1",
        "\u{c}1",
        "{\"a\":1 \"b\":2}",
        "{ invalid json }",
    ] {
        check(text, Err(Refusal::Syntax));
    }
}

#[test]
fn data_after_the_text_is_refused() {
    for text in [
        "1 2",
        "{}{}",
        "{} {}",
        "[] null",
        "{}x",
        "{},",
        "1]",
        "\"a\"\"b\"",
        "{}\0",
        "{}\u{feff}",
        "null\n\n0",
        "{} // c",
    ] {
        check(text, Err(Refusal::Syntax));
    }
}

#[test]
fn a_byte_order_mark_is_refused() {
    check("\u{feff}{}", Err(Refusal::Syntax));
    check("\u{feff}", Err(Refusal::Syntax));
    check(b"\xff\xfe{\0}\0", Err(Refusal::InvalidUtf8));
    check(b"\xfe\xff\0{\0}", Err(Refusal::InvalidUtf8));
}

#[test]
fn bytes_that_are_not_utf_8_are_refused_wherever_they_stand() {
    for bytes in [
        &b"\xff"[..],
        b"\"\xff\"",
        b"\"\x80\"",
        b"\"\xc3\"",
        b"\"\xc0\x80\"",
        b"\"\xe0\x80\x80\"",
        b"\"\xed\xa0\x80\"",
        b"\"\xf4\x90\x80\x80\"",
        b"{\"\xff\":1}",
        b"{}\xff",
    ] {
        check(bytes, Err(Refusal::InvalidUtf8));
    }
}

#[test]
fn lone_surrogates_are_refused_in_values_and_names() {
    for escape in [
        r"\ud800",
        r"\udbff",
        r"\udc00",
        r"\udfff",
        r"\uD800",
        r"\ud800\ud800",
        r"\udc00\ud800",
        r"\ud800x",
        r"\ud800\n",
        r"\ud800\u0041",
        r"\ud83d\\ude00",
    ] {
        check(format!("\"{escape}\""), Err(Refusal::Syntax));
        check(format!("{{\"{escape}\":1}}"), Err(Refusal::Syntax));
    }
}

#[test]
fn what_is_no_json_number_is_refused() {
    for text in [
        "NaN",
        "-NaN",
        "nan",
        "Infinity",
        "-Infinity",
        "inf",
        "+1",
        "01",
        "-01",
        "00",
        "1.",
        ".5",
        "-",
        "-.5",
        "1e",
        "1e+",
        "1.e1",
        "0x10",
        "1_000",
        "1,5",
        "--1",
        "1e1.5",
        "0b1",
        "１",
        "[NaN]",
        "{\"a\":Infinity}",
    ] {
        check(text, Err(Refusal::Syntax));
    }
}

#[test]
fn numbers_that_overflow_are_refused_whichever_integers_are_allowed() {
    let long = "9".repeat(400);
    for text in [
        "1e400",
        "-1e400",
        "[1e309]",
        "{\"a\":1.8e308}",
        "1e99999999999999999999",
        "123456e789",
        long.as_str(),
    ] {
        check_with(Integers::Exact, text, Err(Refusal::NumberRange));
        check_with(Integers::Any, text, Err(Refusal::NumberRange));
    }
    check("1.7976931348623157e308", Ok("1.7976931348623157e+308"));
    check("1e308", Ok("1e+308"));
}

#[test]
fn numbers_that_underflow_are_zero() {
    check("1e-400", Ok("0"));
    check("-1e-400", Ok("0"));
    check("0e99999999999999999999", Ok("0"));
    check("5e-324", Ok("5e-324"));
}

#[test]
fn minus_zero_is_zero() {
    check("-0", Ok("0"));
    check("-0.0", Ok("0"));
    check("[-0e5]", Ok("[0]"));
}

#[test]
fn integers_are_refused_beyond_what_a_double_holds_exactly() {
    let refused = Err(Refusal::NumberRange);
    check("9007199254740990", Ok("9007199254740990"));
    check("9007199254740991", Ok("9007199254740991"));
    check("9007199254740992", refused);
    check("9007199254740993", refused);
    check("-9007199254740990", Ok("-9007199254740990"));
    check("-9007199254740991", Ok("-9007199254740991"));
    check("-9007199254740992", refused);
    check("9223372036854775807", refused);
    check("-9223372036854775808", refused);
    check("18446744073709551615", refused);
    check("18446744073709551616", refused);
    check("-18446744073709551616", refused);
    check("100000000000000000000000000000", refused);
    check("[0,[9007199254740992]]", refused);
    check(r#"{"a":{"b":-9007199254740992}}"#, refused);
    check(r#"["\"",9007199254740992]"#, refused);
    check(r#"["\\",9007199254740992]"#, refused);
    check(r#"{"\\\"":9007199254740992}"#, refused);
}

#[test]
fn only_integer_tokens_have_the_exact_limit() {
    check("9007199254740992.0", Ok("9007199254740992"));
    check("9007199254740993.0", Ok("9007199254740992"));
    check("9.007199254740993e15", Ok("9007199254740992"));
    check("9007199254740992e0", Ok("9007199254740992"));
    check("-9007199254740992E+0", Ok("-9007199254740992"));
    check("1e16", Ok("10000000000000000"));
    check("1e300", Ok("1e+300"));
}

#[test]
fn numbers_inside_strings_and_names_do_not_count() {
    check(r#""9007199254740992""#, Ok(r#""9007199254740992""#));
    check(r#"{"9007199254740992":1}"#, Ok(r#"{"9007199254740992":1}"#));
    check(r#"["\"9007199254740992"]"#, Ok(r#"["\"9007199254740992"]"#));
    check(r#"["a\\","1e400"]"#, Ok(r#"["a\\","1e400"]"#));
    // A syntax error beside such a string is still a syntax error.
    check(r#"{"1e400":}"#, Err(Refusal::Syntax));
    check(r#"["1e400" 1]"#, Err(Refusal::Syntax));
}

#[test]
fn any_integer_is_the_nearest_double_where_all_are_allowed() {
    let any = Integers::Any;
    check_with(any, "9007199254740992", Ok("9007199254740992"));
    check_with(any, "9007199254740993", Ok("9007199254740992"));
    check_with(any, "9223372036854775807", Ok("9223372036854776000"));
    check_with(any, "-9223372036854775808", Ok("-9223372036854776000"));
    check_with(any, "18446744073709551615", Ok("18446744073709552000"));
    check_with(any, "18446744073709551616", Ok("18446744073709552000"));
    check_with(any, "1000000000000000000000", Ok("1e+21"));
}

#[test]
fn nesting_is_refused_above_the_limit_and_accepted_at_and_below_it() {
    for (open, close) in [("[", "]"), ("{\"a\":", "}"), ("[{\"a\":", "}]")] {
        let levels_each = open.matches(['[', '{']).count();
        for levels in [DEPTH - levels_each, DEPTH] {
            let text = nested(open, close, levels / levels_each);
            check(&text, Ok(text.as_str()));
        }
        let text = nested(open, close, DEPTH / levels_each + 1);
        check(&text, Err(Refusal::TooDeep));
    }
    check("[[[[[[[[]]]]]]]]", Ok("[[[[[[[[]]]]]]]]"));
    check("[[[[[[[[[]]]]]]]]]", Err(Refusal::TooDeep));
    check("[[[[[[[[{}]]]]]]]]", Err(Refusal::TooDeep));
    // Many siblings are not deep, and brackets inside strings open nothing.
    let siblings = format!("[{}[]]", "[],".repeat(1000));
    check(&siblings, Ok(siblings.as_str()));
    let brackets = format!("\"{}\"", "[{".repeat(1000));
    check(&brackets, Ok(brackets.as_str()));
}

#[test]
fn no_limit_goes_beyond_the_ceiling_and_none_allows_only_scalars() {
    let read = |levels, limit| parse(nested("[", "]", levels).as_bytes(), limit, Integers::Any);
    assert!(read(DEPTH_MAX, usize::MAX).is_ok());
    assert_eq!(
        read(DEPTH_MAX + 1, usize::MAX),
        Err(Refusal::TooDeep),
        "our own limit answers, not the library's"
    );
    assert!(read(0, 0).is_ok());
    assert_eq!(read(1, 0), Err(Refusal::TooDeep));
}

#[test]
fn a_million_levels_do_not_overflow_the_stack() {
    const LEVELS: usize = 1_000_000;
    for text in [
        "[".repeat(LEVELS),
        nested("[", "]", LEVELS),
        "{\"a\":".repeat(LEVELS),
        nested("{\"a\":", "}", LEVELS),
        nested("[{\"a\":", "}]", LEVELS),
    ] {
        for depth_max in [DEPTH, DEPTH_MAX, usize::MAX] {
            let found = parse(text.as_bytes(), depth_max, Integers::Exact);
            assert_eq!(found, Err(Refusal::TooDeep));
        }
    }
    assert_eq!(parse("]".repeat(LEVELS).as_bytes(), DEPTH, Integers::Exact), Err(Refusal::Syntax));
}

#[test]
fn a_refusal_is_recorded_by_its_name() {
    let names = [
        (Refusal::DuplicateKey, "DUPLICATE_KEY"),
        (Refusal::TooDeep, "TOO_DEEP"),
        (Refusal::NumberRange, "NUMBER_RANGE"),
        (Refusal::InvalidUtf8, "INVALID_UTF8"),
        (Refusal::Syntax, "SYNTAX"),
    ];
    for (refusal, name) in names {
        assert_eq!(refusal.to_string(), name);
    }
}

#[test]
fn names_that_the_library_keeps_for_itself_are_ordinary_names() {
    for name in ["$serde_json::private::RawValue", "$serde_json::private::Number"] {
        let text = format!("{{\"{name}\":\"[1]\"}}");
        check(&text, Ok(text.as_str()));
    }
}

#[test]
fn a_value_inside_a_struct_is_what_its_text_says() {
    #[derive(Debug, PartialEq, Deserialize)]
    struct Holder {
        #[serde(deserialize_with = "super::value")]
        any: serde_json::Value,
        #[serde(default, deserialize_with = "super::some_value")]
        maybe: Option<serde_json::Value>,
    }
    let value = json!({"x": [{"$serde_json::private::RawValue": "{\"a\":1,\"a\":2}"}, 1, -1, 0.5]});
    let holder = Holder { any: value.clone(), maybe: Some(value.clone()) };
    let whole = json!({"any": value, "maybe": value});
    assert_eq!(serde_json::from_str::<Holder>(&whole.to_string()).unwrap(), holder);
    assert_eq!(serde_json::from_value::<Holder>(whole).unwrap(), holder);
    let alone = Holder { any: json!(null), maybe: None };
    assert_eq!(serde_json::from_str::<Holder>("{\"any\":null}").unwrap(), alone);
    assert!(serde_json::from_str::<Holder>(r#"{"any":{"a":1,"\u0061":2}}"#).is_err());
}
