use serde_json::Number;

use crate::call::exceeds;

#[test]
fn a_number_of_any_kind_exceeds_a_cap_that_is_smaller() {
    let fraction = |number| Number::from_f64(number).unwrap();
    let rows = [
        (Number::from(30), 30, false),
        (Number::from(31), 30, true),
        (Number::from(-6), -5, false),
        (Number::from(u64::MAX), i64::MAX, true),
        (Number::from(i64::MAX), i64::MAX, false),
        (fraction(30.0), 30, false),
        (fraction(30.000_001), 30, true),
        (fraction(1e300), i64::MAX, true),
        (fraction(-1e300), i64::MIN, false),
    ];
    for (number, max, expected) in rows {
        assert_eq!(exceeds(&number, max), expected, "{number} {max}");
    }
}
