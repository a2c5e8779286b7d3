use stepgate_core::schedule::Schedule;
use stepgate_core::time::Timestamp;

use super::*;

fn window(text: &str) -> anyhow::Result<Window> {
    toml::from_str::<WindowConfig>(text).unwrap().window()
}

fn is_open(text: &str, instant: &str) -> bool {
    let window = window(text).unwrap();
    let schedule = Schedule::new([("w".to_owned(), window)].into());
    !schedule.open_at(instant.parse::<Timestamp>().unwrap()).is_empty()
}

#[test]
fn the_clock_of_the_zone_counts_also_when_it_changes() {
    let office = "zone = 'Europe/Berlin'\ndays = ['mon-fri']\nhours = ['08:00-18:00']";
    // Friday in summer, two hours ahead of UTC; Monday in winter, one hour ahead.
    let rows = [
        ("2026-07-17T05:59:59.999Z", false),
        ("2026-07-17T06:00:00.000Z", true),
        ("2026-07-18T06:00:00.000Z", false),
        ("2026-11-16T06:30:00.000Z", false),
        ("2026-11-16T07:00:00.000Z", true),
        ("2026-11-16T17:00:00.000Z", false),
    ];
    for (instant, expected) in rows {
        assert_eq!(is_open(office, instant), expected, "{instant}");
    }
}

#[test]
fn days_and_hours_that_are_left_out_are_all_of_them() {
    assert!(is_open("zone = 'UTC'", "2026-11-15T00:00:00.000Z"));
    assert!(is_open("zone = 'UTC'", "2026-11-15T23:59:59.999Z"));
    let weekend = "zone = 'UTC'\ndays = ['sat-sun']";
    assert!(is_open(weekend, "2026-11-15T12:00:00.000Z"));
    assert!(!is_open(weekend, "2026-11-16T12:00:00.000Z"));
    let over_sunday = "zone = 'UTC'\ndays = ['sun-mon']";
    assert!(is_open(over_sunday, "2026-11-16T12:00:00.000Z"));
    assert!(!is_open(over_sunday, "2026-11-17T12:00:00.000Z"));
}

#[test]
fn what_is_no_window_is_told() {
    let rows = [
        ("zone = 'Berlin'", "`Berlin` is not a time zone"),
        ("zone = 'UTC'\ndays = ['monday']", "`monday` is not a day"),
        ("zone = 'UTC'\nhours = ['8-18']", "`8` is not a time of day"),
        ("zone = 'UTC'\nhours = ['08:00']", "`08:00` is not a range of hours"),
        ("zone = 'UTC'\nhours = ['22:00-06:00']", "hours over midnight are two ranges"),
        ("zone = 'UTC'\nhours = ['08:00-08:00']", "ends before it begins"),
        ("zone = 'UTC'\nhours = ['08:00-25:00']", "`25:00` is not a time of day"),
    ];
    for (text, expected) in rows {
        let error = format!("{:#}", window(text).unwrap_err());
        assert!(error.contains(expected), "{text}: {error}");
    }
}
