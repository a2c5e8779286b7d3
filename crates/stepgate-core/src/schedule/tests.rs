use std::collections::BTreeMap;

use jiff::civil::{Weekday, time};
use jiff::tz::{Offset, TimeZone};

use super::*;

fn open_at(instant: &str) -> Vec<String> {
    let hours = |from, until| Hours { from, until };
    let office = Window {
        zone: TimeZone::fixed(Offset::constant(2)),
        days: vec![Weekday::Monday, Weekday::Friday],
        hours: vec![
            hours(time(8, 0, 0, 0), Some(time(12, 0, 0, 0))),
            hours(time(13, 0, 0, 0), Some(time(18, 0, 0, 0))),
        ],
    };
    let late = Window {
        zone: TimeZone::UTC,
        days: vec![Weekday::Friday],
        hours: vec![hours(time(22, 0, 0, 0), None)],
    };
    let windows = BTreeMap::from([("office".to_owned(), office), ("late".to_owned(), late)]);
    Schedule::new(windows).open_at(instant.parse().unwrap()).into_iter().collect()
}

#[test]
fn a_window_is_open_in_its_hours_of_its_days_by_the_clock_of_its_zone() {
    // 2026-11-16 is a Monday.
    let rows: &[(&str, &[&str])] = &[
        ("2026-11-16T05:59:59.999Z", &[]),
        ("2026-11-16T06:00:00.000Z", &["office"]),
        ("2026-11-16T09:59:59.999Z", &["office"]),
        ("2026-11-16T10:00:00.000Z", &[]),
        ("2026-11-16T11:00:00.000Z", &["office"]),
        ("2026-11-17T07:00:00.000Z", &[]),
        ("2026-11-20T15:59:59.999Z", &["office"]),
        ("2026-11-20T22:00:00.000Z", &["late"]),
        ("2026-11-20T23:59:59.999Z", &["late"]),
        // Saturday in UTC.
        ("2026-11-21T00:00:00.000Z", &[]),
    ];
    for (instant, expected) in rows {
        assert_eq!(open_at(instant), *expected, "{instant}");
    }
}
