use super::*;

fn caps(pairs: &[(&str, i64)]) -> BTreeMap<String, i64> {
    pairs.iter().map(|(name, limit)| ((*name).to_owned(), *limit)).collect()
}

#[test]
fn a_list_of_caps_is_read_whole_or_refused() {
    let malformed = |text: &str| Err(CapError::Malformed(text.to_owned()));
    let not_an_integer = |text: &str| Err(CapError::NotAnInteger(text.to_owned()));
    let fraction = |limit: &str, floor| {
        let (argument, limit) = ("volume".to_owned(), Decimal::parse(limit).unwrap());
        Err(CapError::Fraction { argument, limit, floor })
    };
    let rows = [
        ("volume <= 30", Ok(caps(&[("volume", 30)]))),
        ("volume<=30;bass <= -5", Ok(caps(&[("bass", -5), ("volume", 30)]))),
        ("a <= 9007199254740991", Ok(caps(&[("a", 9_007_199_254_740_991)]))),
        ("a <= 9007199254740992", not_an_integer("9007199254740992")),
        ("a <= -9223372036854775808", not_an_integer("-9223372036854775808")),
        ("", malformed("")),
        ("volume", malformed("volume")),
        ("volume < 30", malformed("volume < 30")),
        ("volume >= 30", malformed("volume >= 30")),
        ("volume <= 30;", malformed("")),
        ("<= 30", malformed("<= 30")),
        ("the volume <= 30", malformed("the volume <= 30")),
        ("volume <= 30 <= 40", not_an_integer("30 <= 40")),
        ("volume <= 3.5", fraction("3.5", 3)),
        ("volume <= -0.01", fraction("-0.01", -1)),
        ("volume <= 995e-1", fraction("99.5", 99)),
        ("volume <= 3.00001", not_an_integer("3.00001")),
        ("volume <= 3.0", not_an_integer("3.0")),
        ("volume <= ٣", not_an_integer("٣")),
        ("volume <= ", not_an_integer("")),
        ("a <= 1; a <= 2", Err(CapError::Twice("a".to_owned()))),
    ];
    for (text, expected) in rows {
        assert_eq!(parse(text), expected, "{text}");
    }
}

#[test]
fn a_cap_with_a_fraction_says_what_to_write() {
    assert_eq!(
        parse("amount <= 99.50").unwrap_err().to_string(),
        "a cap is a whole number: write `amount <= 99`, or refuse what is above 99.5 by a condition of the policy: \
         `when { context.args.amount.lessThanOrEqual(decimal(\"99.5\")) }`"
    );
}

#[test]
fn a_policy_has_at_most_so_many_caps() {
    let text = |count: usize| {
        (0..count).map(|index| format!("a{index} <= 1")).collect::<Vec<_>>().join(";")
    };
    assert_eq!(parse(&text(CAPS_MAX)).map(|caps| caps.len()), Ok(CAPS_MAX));
    assert_eq!(parse(&text(CAPS_MAX + 1)), Err(CapError::TooMany));
}

#[test]
fn the_smaller_cap_wins() {
    let mut united = caps(&[("volume", 30), ("bass", 2)]);
    unite(&mut united, &caps(&[("volume", 20), ("bass", 5), ("treble", 1)]));
    assert_eq!(united, caps(&[("volume", 20), ("bass", 2), ("treble", 1)]));
}
