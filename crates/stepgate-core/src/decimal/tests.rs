use proptest::prelude::*;

use super::*;
use crate::json::canonical;

fn of_json(text: &str) -> Result<String, NotDecimal> {
    Decimal::of(&serde_json::from_str(text).unwrap()).map(|number| number.to_string())
}

#[test]
fn a_number_is_exact_in_every_spelling_or_refused_with_the_cause() {
    let rows = [
        ("100", Ok("100.0")),
        ("100.00", Ok("100.0")),
        ("1e2", Ok("100.0")),
        ("1E+2", Ok("100.0")),
        ("10000e-2", Ok("100.0")),
        ("0", Ok("0.0")),
        ("-0.0", Ok("0.0")),
        ("0e300", Ok("0.0")),
        ("99.5", Ok("99.5")),
        ("-0.0001", Ok("-0.0001")),
        ("1e-4", Ok("0.0001")),
        ("0.10000", Ok("0.1")),
        // The nearest double is what is recorded and sent.
        ("0.1000000000000000000001", Ok("0.1")),
        ("100.00000000000000001", Ok("100.0")),
        ("922337203685477", Ok("922337203685477.0")),
        ("-922337203685477.5", Ok("-922337203685477.5")),
        ("922337203685477.58", Err(NotDecimal::OutOfRange)),
        ("922337203685478", Err(NotDecimal::OutOfRange)),
        ("9007199254740993", Err(NotDecimal::OutOfRange)),
        ("18446744073709551615", Err(NotDecimal::OutOfRange)),
        ("-1e300", Err(NotDecimal::OutOfRange)),
        ("0.00001", Err(NotDecimal::TooFine)),
        ("1e-5", Err(NotDecimal::TooFine)),
        ("5e-324", Err(NotDecimal::TooFine)),
        ("0.30000000000000004", Err(NotDecimal::TooFine)),
        ("-99.12345", Err(NotDecimal::TooFine)),
    ];
    for (text, expected) in rows {
        assert_eq!(of_json(text), expected.map(str::to_owned), "{text}");
    }
}

#[test]
fn what_is_no_number_is_none() {
    for text in
        ["", ".", "-", "e5", "1e", "1,5", "0x10", "１.０", "1.-5", "--1", "1e99999999999", "inf"]
    {
        assert_eq!(Decimal::parse(text), Err(NotDecimal::NotANumber), "{text}");
    }
}

#[test]
fn only_a_number_without_a_fraction_is_whole() {
    let whole = |text: &str| Decimal::parse(text).unwrap().whole();
    assert_eq!([whole("100"), whole("-3.0"), whole("0.0001")], [Some(100), Some(-3), None]);
}

#[test]
fn sums_stay_in_range_and_amounts_do_not_become_negative() {
    let number = |text: &str| Decimal::parse(text).unwrap();
    assert_eq!(number("99.99").plus(number("0.01")), Some(number("100")));
    assert_eq!(Decimal::MAX.plus(Decimal::from_units(1)), None);
    assert_eq!(number("0.3").minus(number("0.1")), Some(number("0.2")));
    assert_eq!(number("0.1").minus(number("0.3")), None);
}

#[test]
fn percent_are_rounded_up() {
    let percent = |part: &str, whole: &str| {
        Decimal::parse(part).unwrap().percent_of(Decimal::parse(whole).unwrap())
    };
    let rows = [
        ("0", "100", Some(0)),
        ("79", "100", Some(79)),
        ("79.0001", "100", Some(80)),
        ("100", "100", Some(100)),
        ("250", "100", Some(250)),
        ("1", "0", None),
        ("-1", "100", None),
        ("922337203685477", "0.0001", None),
    ];
    for (part, whole, expected) in rows {
        assert_eq!(percent(part, whole), expected, "{part} of {whole}");
    }
}

#[test]
fn a_decimal_reads_back_from_json() {
    let number = Decimal::parse("99.50").unwrap();
    assert_eq!(serde_json::to_string(&number).unwrap(), "\"99.5\"");
    assert_eq!(serde_json::from_str::<Decimal>("\"99.5\"").unwrap(), number);
    assert!(serde_json::from_str::<Decimal>("99.5").is_err());
}

/// Doubles of all sizes, and those that people write.
fn any_double() -> impl Strategy<Value = f64> {
    prop_oneof![
        any::<f64>().prop_filter("a number", |double| double.is_finite()),
        (any::<i64>(), 0..8_i32)
            .prop_map(|(digits, places)| format!("{digits}e-{places}").parse().unwrap()),
        (-1_000_000..1_000_000_i64, 0..7_i32).prop_map(|(digits, places)| format!(
            "{digits}e-{places}"
        )
        .parse()
        .unwrap()),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(5_000))]

    #[test]
    fn a_decimal_has_the_digits_of_the_recorded_text(double in any_double()) {
        let text = canonical::text_of(&double);
        let (whole, places) = text.split_once('.').unwrap_or((&text, ""));
        let expected = match text.split_once('e') {
            Some((_, exponent)) if exponent.starts_with('-') => Err(NotDecimal::TooFine),
            Some(_) => Err(NotDecimal::OutOfRange),
            None if places.len() > 4 => Err(NotDecimal::TooFine),
            None => {
                let units = format!("{whole}{places:0<4}").parse();
                units.map(Decimal).map_err(|_| NotDecimal::OutOfRange)
            }
        };
        let number = Number::from_f64(double).unwrap();
        prop_assert_eq!(Decimal::of(&number), expected);
        if let Ok(decimal) = expected {
            prop_assert_eq!(Decimal::parse(&decimal.to_string()), Ok(decimal));
        }
    }
}
