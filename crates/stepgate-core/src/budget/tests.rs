use super::*;

fn decimal(text: &str) -> Decimal {
    Decimal::parse(text).unwrap()
}

/// The rules of these zones, as POSIX writes them.
const BERLIN: &str = "CET-1CEST,M3.5.0,M10.5.0/3";
const SANTIAGO: &str = "<-04>4<-03>,M9.1.6/24,M4.1.6/24";

fn terms(window: WindowLength, zone: &str) -> Terms {
    Terms {
        name: BudgetName::parse("payments").unwrap(),
        argument: None,
        limit: Decimal::ONE,
        per: Per::All,
        window,
        zone: TimeZone::posix(zone).unwrap(),
    }
}

#[test]
fn windows_follow_the_calendar_of_their_zone() {
    let rows = [
        (
            WindowLength::Minute,
            "UTC0",
            "2026-03-04T10:20:59.999Z",
            "2026-03-04T10:20:00.000Z/2026-03-04T10:21:00.000Z",
        ),
        (
            WindowLength::Hour,
            "UTC0",
            "2026-03-04T10:00:00.000Z",
            "2026-03-04T10:00:00.000Z/2026-03-04T11:00:00.000Z",
        ),
        (
            WindowLength::Day,
            "UTC0",
            "2026-03-04T23:59:59.999Z",
            "2026-03-04T00:00:00.000Z/2026-03-05T00:00:00.000Z",
        ),
        // Winter time: UTC+1. At 23:30 UTC it is the next day in Berlin.
        (
            WindowLength::Day,
            BERLIN,
            "2026-03-04T23:30:00.000Z",
            "2026-03-04T23:00:00.000Z/2026-03-05T23:00:00.000Z",
        ),
        // The day on which the clock is put forward has 23 hours.
        (
            WindowLength::Day,
            BERLIN,
            "2026-03-29T12:00:00.000Z",
            "2026-03-28T23:00:00.000Z/2026-03-29T22:00:00.000Z",
        ),
        // In Santiago it is put forward at midnight: the day begins at one.
        (
            WindowLength::Day,
            SANTIAGO,
            "2026-09-06T12:00:00.000Z",
            "2026-09-06T04:00:00.000Z/2026-09-07T03:00:00.000Z",
        ),
        // A Wednesday, and a Monday at its first moment.
        (
            WindowLength::Week,
            "UTC0",
            "2026-03-04T10:00:00.000Z",
            "2026-03-02T00:00:00.000Z/2026-03-09T00:00:00.000Z",
        ),
        (
            WindowLength::Week,
            "UTC0",
            "2026-03-09T00:00:00.000Z",
            "2026-03-09T00:00:00.000Z/2026-03-16T00:00:00.000Z",
        ),
        (
            WindowLength::Month,
            "UTC0",
            "2028-02-29T10:00:00.000Z",
            "2028-02-01T00:00:00.000Z/2028-03-01T00:00:00.000Z",
        ),
        (
            WindowLength::Month,
            "UTC0",
            "2026-12-31T23:59:59.999Z",
            "2026-12-01T00:00:00.000Z/2027-01-01T00:00:00.000Z",
        ),
        (WindowLength::Ever, "UTC0", "2026-12-31T23:59:59.999Z", "ever"),
    ];
    for (window, zone, now, expected) in rows {
        let found = terms(window, zone).window_at(now.parse().unwrap());
        assert_eq!(found.to_string(), expected, "{window:?} {zone} {now}");
        assert_eq!(expected.parse(), Ok(found));
    }
}

#[test]
fn the_end_of_a_window_is_the_beginning_of_the_next() {
    for window in WindowLength::ALL {
        let terms = terms(window, "EST5EDT,M3.2.0,M11.1.0");
        let mut now: Timestamp = "2026-01-31T12:34:56.789Z".parse().unwrap();
        for _ in 0..50 {
            let Window::Between { start, end } = terms.window_at(now) else {
                assert_eq!(window, WindowLength::Ever);
                break;
            };
            assert!(start <= now && now < end, "{window:?}");
            let next = terms.window_at(end);
            assert!(matches!(next, Window::Between { start, .. } if start == end), "{window:?}");
            now = end;
        }
    }
}

#[test]
fn a_charge_reaches_the_limit_and_does_not_exceed_it() {
    let charge = |amount: &str| Charge {
        amount: decimal(amount),
        argument: Some("amount".into()),
        budget: BudgetName::parse("payments").unwrap(),
        key: AccountKey::all(),
        limit: decimal("100"),
        window: Window::Ever,
    };
    assert_eq!(charge("25").onto(decimal("74.9999")), Ok(decimal("99.9999")));
    assert_eq!(charge("25").onto(decimal("75")), Ok(decimal("100")));
    let over = charge("25.0001").onto(decimal("75")).unwrap_err();
    assert_eq!(
        over.to_string(),
        "BUDGET: `payments`: 75.0 of 100.0 is used, and the call needs 25.0001"
    );
    assert!(charge("922337203685477").onto(Decimal::MAX).is_err());
}

#[test]
fn a_budgets_name_is_one_that_policies_can_read() {
    let long = "a".repeat(BudgetName::BYTES_MAX);
    for name in ["payments", "a_2", long.as_str()] {
        assert_eq!(BudgetName::parse(name).unwrap().as_str(), name);
    }
    for name in ["", "Payments", "2a", "a-b", "a.b", "_a", "ä", &format!("{long}a")] {
        assert!(BudgetName::parse(name).is_err(), "{name}");
    }
}

#[test]
fn keys_of_different_kinds_are_different() {
    let ann = PrincipalId::parse("ann").unwrap();
    assert_eq!(AccountKey::principal(&ann).as_str(), "principal:ann");
    assert_ne!(AccountKey::principal(&ann), AccountKey::group("ann"));
    assert_eq!(AccountKey::tool("bank.send").as_str(), "tool:bank.send");
    assert_eq!(AccountKey::all().as_str(), "all");
}
