use super::*;

#[test]
fn a_time_is_told_in_its_largest_unit_or_in_utc() {
    let now = Timestamp::from_millisecond(1_700_000_000_000);
    let times = Times::at(now, false);
    let ago = |ms: i64| times.past(Timestamp::from_millisecond(1_700_000_000_000 - ms));
    let told = [0, 59_999, 60_000, 3_599_999, 7_200_000, 200_000_000].map(ago);
    assert_eq!(told, ["0 s ago", "59 s ago", "1 min ago", "59 min ago", "2 h ago", "2 d ago"]);
    // The clock of another node may be ahead.
    assert_eq!(ago(-5000), "0 s ago");
    let to_come = [0, 90_000].map(|ms| times.to_come(now.plus_ms(ms)));
    assert_eq!(to_come, ["0 s ago", "in 1 min"]);
    let utc = Times::at(now, true);
    assert_eq!([utc.past(now), utc.to_come(now)], ["2023-11-14T22:13:20.000Z"; 2]);
}
