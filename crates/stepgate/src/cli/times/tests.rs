use super::*;

#[test]
fn a_time_ago_may_be_longer_than_the_life_of_a_token() {
    let now = Timestamp::from_millisecond(1_700_000_000_000);
    let ago = |text: &str| text.parse::<When>().unwrap().instant(now);
    assert_eq!(ago("20y").plus_ms(20 * 365 * 24 * 3_600_000), now);
    assert_eq!(ago("2023-11-14T22:13:20Z"), now);
    assert!("soon".parse::<When>().is_err());
    assert_eq!(Span::token_life("10y").unwrap(), Span(LIFE_S_MAX));
    for refused in ["20y", "0s", "h", ""] {
        assert!(Span::token_life(refused).is_err(), "{refused}");
    }
}
