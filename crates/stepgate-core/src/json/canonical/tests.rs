use std::collections::BTreeMap;

use proptest::prelude::*;
use serde::Serialize;
use serde_json::{Value, json};

use super::{text_of, to_text};
use crate::json::strict::{self, Integers};

fn check(value: impl Serialize, expected: &str) {
    assert_eq!(text_of(&value), expected);
}

/// The number table of RFC 8785, appendix B: the bits of a double and its text.
#[test]
fn doubles_are_written_as_the_rfc_s_table_says() {
    let rows: [(u64, &str); 24] = [
        (0x0000_0000_0000_0000, "0"),
        (0x8000_0000_0000_0000, "0"),
        (0x0000_0000_0000_0001, "5e-324"),
        (0x8000_0000_0000_0001, "-5e-324"),
        (0x7fef_ffff_ffff_ffff, "1.7976931348623157e+308"),
        (0xffef_ffff_ffff_ffff, "-1.7976931348623157e+308"),
        (0x4340_0000_0000_0000, "9007199254740992"),
        (0xc340_0000_0000_0000, "-9007199254740992"),
        (0x4430_0000_0000_0000, "295147905179352830000"),
        (0x44b5_2d02_c7e1_4af5, "9.999999999999997e+22"),
        (0x44b5_2d02_c7e1_4af6, "1e+23"),
        (0x44b5_2d02_c7e1_4af7, "1.0000000000000001e+23"),
        (0x444b_1ae4_d6e2_ef4e, "999999999999999700000"),
        (0x444b_1ae4_d6e2_ef4f, "999999999999999900000"),
        (0x444b_1ae4_d6e2_ef50, "1e+21"),
        (0x3eb0_c6f7_a0b5_ed8c, "9.999999999999997e-7"),
        (0x3eb0_c6f7_a0b5_ed8d, "0.000001"),
        (0x41b3_de43_5555_5553, "333333333.3333332"),
        (0x41b3_de43_5555_5554, "333333333.33333325"),
        (0x41b3_de43_5555_5555, "333333333.3333333"),
        (0x41b3_de43_5555_5556, "333333333.3333334"),
        (0x41b3_de43_5555_5557, "333333333.33333343"),
        (0xbecb_f647_612f_3696, "-0.0000033333333333333333"),
        (0x4314_3ff3_c1cb_0959, "1424953923781206.2"),
    ];
    for (bits, expected) in rows {
        check(f64::from_bits(bits), expected);
    }
}

#[test]
fn numbers_that_are_not_finite_have_no_form() {
    for bits in [0x7fff_ffff_ffff_ffff_u64, 0x7ff0_0000_0000_0000, 0xfff0_0000_0000_0000] {
        assert!(to_text(&f64::from_bits(bits)).is_err());
        assert!(to_text(&[Some(f64::from_bits(bits))]).is_err());
    }
}

#[test]
fn integers_beyond_two_to_the_53_are_the_nearest_double() {
    check(9_007_199_254_740_991_u64, "9007199254740991");
    check(9_007_199_254_740_992_u64, "9007199254740992");
    check(9_007_199_254_740_993_u64, "9007199254740992");
    check(9_007_199_254_740_994_u64, "9007199254740994");
    check(-9_007_199_254_740_993_i64, "-9007199254740992");
    check(u64::MAX, "18446744073709552000");
    check(i64::MAX, "9223372036854776000");
    check(i64::MIN, "-9223372036854776000");
    check(0_u8, "0");
    check(-128_i8, "-128");
}

#[test]
fn names_are_ordered_by_utf_16_code_units() {
    // U+1F600 begins with the unit D83D, which is less than FB33; as code points it is greater.
    check(json!({"\u{fb33}": 1, "\u{1f600}": 2}), "{\"\u{1f600}\":2,\"\u{fb33}\":1}");
    check(
        json!({"\u{ffff}": 1, "\u{10000}": 2, "\u{d7ff}": 3, "\u{e000}": 4, "z": 5, "": 6}),
        "{\"\":6,\"z\":5,\"\u{d7ff}\":3,\"\u{10000}\":2,\"\u{e000}\":4,\"\u{ffff}\":1}",
    );
    check(
        json!({"a\u{fb33}": 1, "a": 2, "a\u{1f600}": 3, "ab": 4}),
        "{\"a\":2,\"ab\":4,\"a\u{1f600}\":3,\"a\u{fb33}\":1}",
    );
    check(
        json!({"\u{1f600}a": 1, "\u{1f600}": 2, "\u{1f601}": 3}),
        "{\"\u{1f600}\":2,\"\u{1f600}a\":1,\"\u{1f601}\":3}",
    );
}

#[test]
fn names_are_ordered_as_they_are_and_not_as_they_are_escaped() {
    // Escaped, the newline would begin with a backslash and come after the capital letter.
    check(json!({"A": 1, "\n": 2, "\"": 3}), r#"{"\n":2,"\"":3,"A":1}"#);
    check(json!({"\\": 1, "]": 2, "[": 3}), r#"{"[":3,"\\":1,"]":2}"#);
    check(json!({"\u{1}": 1, "\u{0}": 2}), r#"{"\u0000":2,"\u0001":1}"#);
}

#[test]
fn only_what_must_be_escaped_is_escaped_in_the_short_form() {
    check("\"\\/", r#""\"\\/""#);
    check("\u{8}\u{9}\u{a}\u{c}\u{d}", r#""\b\t\n\f\r""#);
    check("\u{0}\u{1}\u{b}\u{e}\u{1f}", r#""\u0000\u0001\u000b\u000e\u001f""#);
    check(" \u{7f}\u{80}\u{2028}\u{feff}😀é", "\" \u{7f}\u{80}\u{2028}\u{feff}😀é\"");
    check("a\nb\nc", r#""a\nb\nc""#);
    check("", "\"\"");
    check('"', r#""\"""#);
}

#[test]
fn fields_out_of_order_are_put_in_order_at_every_depth() {
    #[derive(Serialize)]
    struct Inner {
        z: u8,
        #[serde(skip_serializing_if = "Option::is_none")]
        y: Option<u8>,
        a: &'static str,
    }
    #[derive(Serialize)]
    struct Outer {
        second: Inner,
        third: Vec<Inner>,
        first: (),
        #[serde(rename = "_zeroth")]
        zeroth: Option<bool>,
    }
    let inner = |y| Inner { z: 1, y, a: "x,\"}" };
    check(
        Outer {
            second: inner(None),
            third: vec![inner(Some(2)), inner(None)],
            first: (),
            zeroth: None,
        },
        concat!(
            r#"{"_zeroth":null,"first":null,"second":{"a":"x,\"}","z":1},"#,
            r#""third":[{"a":"x,\"}","y":2,"z":1},{"a":"x,\"}","z":1}]}"#
        ),
    );
}

#[test]
fn empty_and_single_things_have_no_stray_commas() {
    check(json!({}), "{}");
    check(json!([]), "[]");
    check(json!([[], {}, [{}], {"a": {}}]), r#"[[],{},[{}],{"a":{}}]"#);
    check(json!({"b": {}, "a": []}), r#"{"a":[],"b":{}}"#);
    check((1, "a", true), r#"[1,"a",true]"#);
}

#[test]
fn what_is_not_json_is_an_error_and_never_a_guess() {
    #[derive(Serialize)]
    enum Shape {
        Newtype(u8),
        Tuple(u8, u8),
        Struct { side: u8 },
    }
    #[derive(Serialize)]
    struct Pair(u8, u8);
    assert!(to_text(&Shape::Newtype(1)).is_err());
    assert!(to_text(&Shape::Tuple(1, 2)).is_err());
    assert!(to_text(&Shape::Struct { side: 1 }).is_err());
    assert!(to_text(&Pair(1, 2)).is_err());
    assert!(to_text(&BTreeMap::from([(1, 2)])).is_err());
    assert!(to_text(&BTreeMap::from([(true, 2)])).is_err());
    assert!(to_text(&BTreeMap::from([(None::<&str>, 2)])).is_err());
}

/// Any value; names lean towards those that escape or sort unlike their bytes.
fn any_value() -> impl Strategy<Value = Value> {
    let text = || {
        prop_oneof![
            any::<String>(),
            "[\u{0}-\u{22}\\\\/A\u{7f}\u{d7ff}\u{e000}\u{fb33}\u{ffff}\u{10000}\u{1f600}]{0,4}",
        ]
    };
    let number = prop_oneof![
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        (-20_i64..20).prop_map(|near| Value::from(9_007_199_254_740_992 + near)),
        any::<u64>().prop_map(|bits| Value::from(f64::from_bits(bits))),
        (any::<i32>(), -330..310)
            .prop_map(|(digits, scale)| format!("{digits}e{scale}").parse().unwrap_or(0.0))
            .prop_map(|double: f64| Value::from(double)),
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        number,
        text().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 48, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::vec((text(), inner), 0..6)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_second_implementation_agrees(value in any_value()) {
        let other = serde_json_canonicalizer::to_string(&value).unwrap();
        prop_assert_eq!(text_of(&value), other);
    }

    #[test]
    fn the_canonical_form_is_a_fixpoint(value in any_value()) {
        let once = text_of(&value);
        let parsed = strict::parse(once.as_bytes(), strict::DEPTH_MAX, Integers::Any).unwrap();
        prop_assert_eq!(text_of(&parsed), once);
    }

    #[test]
    fn every_double_reads_back_as_itself(bits in any::<u64>()) {
        let double = f64::from_bits(bits);
        prop_assume!(double.is_finite());
        let text = text_of(&double);
        prop_assert_eq!(text.parse::<f64>().unwrap(), double);
    }
}
