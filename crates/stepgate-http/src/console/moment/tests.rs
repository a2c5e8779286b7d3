use super::*;

#[test]
fn a_duration_is_told_in_its_two_largest_units() {
    let told = [0, 999, 59_999, 60_000, 3_600_000, 93_784_000].map(duration);
    assert_eq!(told, ["under 1 ms", "999 ms", "59 s", "1 min", "1 h 0 min", "1 d 2 h"]);
}

#[test]
fn the_time_that_is_left_ends_with_over() {
    let now = Timestamp::from_millisecond(1_700_000_000_000);
    let told = [0, 1, 59_999].map(|ms| left(now.plus_ms(ms), now));
    let soon = "less than a minute left";
    assert_eq!(told, ["over", soon, soon]);
    assert_eq!(left(now.plus_ms(60_000), now), "1 min left");
    assert_eq!(left(now, now.plus_ms(1)), "over");
    assert_eq!([ago(now, now), ago(now, now.plus_ms(90_000))], ["just now", "1 min ago"]);
}
