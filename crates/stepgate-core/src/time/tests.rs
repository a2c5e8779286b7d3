use super::Timestamp;

#[test]
fn instants_read_back_from_their_one_spelling() {
    for (text, millisecond) in [
        ("1970-01-01T00:00:00.000Z", 0),
        ("1970-01-01T00:00:00.001Z", 1),
        ("1969-12-31T23:59:59.999Z", -1),
        ("2026-01-31T12:00:00.000Z", 1_769_860_800_000),
        ("2024-02-29T23:59:59.999Z", 1_709_251_199_999),
        ("0001-01-01T00:00:00.000Z", -62_135_596_800_000),
        ("0000-01-01T00:00:00.000Z", Timestamp::MILLISECOND_MIN),
    ] {
        let instant = Timestamp::from_millisecond(millisecond);
        assert_eq!(instant.to_string(), text);
        assert_eq!(text.parse(), Ok(instant));
        let json = format!("\"{text}\"");
        assert_eq!(serde_json::to_string(&instant).unwrap(), json);
        assert_eq!(serde_json::from_str::<Timestamp>(&json).unwrap(), instant);
        assert_eq!(instant.as_millisecond(), millisecond);
    }
}

#[test]
fn any_other_spelling_is_refused() {
    for text in [
        "",
        "2026-01-31",
        "2026-01-31T12:00:00Z",
        "2026-01-31T12:00:00.0Z",
        "2026-01-31T12:00:00.00Z",
        "2026-01-31T12:00:00.0000Z",
        "2026-01-31T12:00:00.000",
        "2026-01-31T12:00:00.000z",
        "2026-01-31t12:00:00.000Z",
        "2026-01-31 12:00:00.000Z",
        "2026-01-31T12:00:00,000Z",
        "2026-01-31T12:00:00.000+00:00",
        "2026-01-31T13:00:00.000+01:00",
        "2026-01-31T12:00:00.000Z ",
        " 2026-01-31T12:00:00.000Z",
        "2026-01-31T12:00:00.000Z[UTC]",
        "2026-02-29T12:00:00.000Z",
        "2026-13-01T12:00:00.000Z",
        "2026-01-32T12:00:00.000Z",
        "2026-01-31T24:00:00.000Z",
        "2026-12-31T23:59:60.000Z",
        "+002026-01-31T12:00:00.000Z",
        "-000001-01-31T12:00:00.000Z",
        "-000000-01-31T12:00:00.000Z",
        "20260131T120000.000Z",
        "now",
    ] {
        assert!(text.parse::<Timestamp>().is_err(), "{text}");
    }
    assert!(serde_json::from_str::<Timestamp>("0").is_err());
}

#[test]
fn instants_beyond_the_years_of_the_text_are_held_at_its_ends() {
    for (millisecond, held) in [
        (i64::MIN, Timestamp::MILLISECOND_MIN),
        (Timestamp::MILLISECOND_MIN - 1, Timestamp::MILLISECOND_MIN),
        (Timestamp::MILLISECOND_MIN, Timestamp::MILLISECOND_MIN),
        (Timestamp::MILLISECOND_MAX, Timestamp::MILLISECOND_MAX),
        (Timestamp::MILLISECOND_MAX + 1, Timestamp::MILLISECOND_MAX),
        (i64::MAX, Timestamp::MILLISECOND_MAX),
    ] {
        let instant = Timestamp::from_millisecond(millisecond);
        assert_eq!(instant.as_millisecond(), held);
        let text = instant.to_string();
        assert_eq!(text.len(), 24, "{text}");
        assert_eq!(text.parse(), Ok(instant));
    }
}

#[test]
fn differences_never_go_below_zero_and_sums_never_beyond_the_end() {
    let at = Timestamp::from_millisecond;
    assert_eq!(at(1500).since_ms(at(1000)), 500);
    assert_eq!(at(1000).since_ms(at(1000)), 0);
    assert_eq!(at(1000).since_ms(at(1500)), 0);
    assert_eq!(at(1000).plus_ms(500), at(1500));
    assert_eq!(at(-1).plus_ms(1), at(0));
    assert_eq!(at(0).plus_ms(u64::MAX), at(i64::MAX));
    assert_eq!(at(i64::MAX).plus_ms(1), at(i64::MAX));
    let whole = at(i64::MAX).since_ms(at(i64::MIN));
    assert_eq!(at(i64::MIN).plus_ms(whole), at(i64::MAX));
}

#[test]
fn the_order_of_instants_is_the_order_of_their_texts() {
    let mut instants: Vec<_> = [5, -5, 0, 1_709_251_199_999, i64::MIN, i64::MAX, 999, 1000]
        .map(Timestamp::from_millisecond)
        .into();
    instants.sort_unstable();
    let mut texts: Vec<_> = instants.iter().map(Timestamp::to_string).collect();
    texts.sort_unstable();
    let sorted: Vec<_> = instants.iter().map(Timestamp::to_string).collect();
    assert_eq!(texts, sorted);
}

#[test]
fn of_an_instant_a_person_may_leave_out_the_end() {
    let whole: Timestamp = "2026-01-31T12:34:00.000Z".parse().unwrap();
    for text in
        ["2026-01-31T12:34", "2026-01-31T12:34Z", "2026-01-31T12:34:00", "2026-01-31T12:34:00Z"]
    {
        assert_eq!(Timestamp::parse_short(text), Ok(whole), "{text}");
    }
    assert_eq!(Timestamp::parse_short("2026-01-31T12:34:00.000Z"), Ok(whole));
    let midnight = "2026-01-31T00:00:00.000Z".parse();
    assert_eq!(Timestamp::parse_short("2026-01-31"), midnight);
    for text in
        ["", "2026", "2026-01", "2026-02-30", "2026-01-31T25", "2026-01-31 12:34", "yesterday", "ä"]
    {
        assert!(Timestamp::parse_short(text).is_err(), "{text}");
    }
}
