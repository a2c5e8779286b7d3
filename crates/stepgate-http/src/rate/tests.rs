use super::*;

#[test]
fn a_bucket_gives_its_burst_and_then_says_when_to_come_again() {
    let buckets: Buckets<&str> = Buckets::new(0.5, 3.0);
    for _ in 0..3 {
        assert_eq!(buckets.take(&"a", 1.0), Ok(()));
    }
    assert_eq!(buckets.take(&"a", 1.0), Err(2));
    assert_eq!(buckets.take(&"b", 1.0), Ok(()));
}

#[test]
fn a_long_body_is_paid_for_by_the_requests_after_it() {
    let buckets: Buckets<&str> = Buckets::new(0.001, 10.0);
    buckets.charge(&"a", 1_000_000.0);
    assert_eq!(buckets.take(&"a", 1.0), Err(3600));
}

#[test]
fn the_number_of_buckets_is_bounded() {
    let buckets: Buckets<usize> = Buckets::new(1.0, 2.0);
    for key in 0..=BUCKETS_MAX {
        assert_eq!(buckets.take(&key, 1.0), Ok(()));
    }
    assert!(buckets.levels.lock().unwrap().len() <= BUCKETS_MAX);
}

#[test]
fn an_agent_may_send_until_it_has_sent_more_than_an_hours_bytes() {
    let limits = ServeConfig { agent_bytes_per_hour_max: 3_600_000, ..ServeConfig::default() };
    let rates = Rates::new(&limits);
    let agent = PrincipalId::parse("a").unwrap();
    for (sent, expected) in [(0, Ok(())), (3_500_000, Ok(())), (109_000, Err(9))] {
        rates.sent(&agent, sent);
        let answer = rates.may_send(&agent);
        // A second earlier where the test was slow: a thousand bytes come back each second.
        let is_expected = answer == expected || expected.is_err() && answer == Err(8);
        assert!(is_expected, "{sent}: {answer:?}");
    }
    assert_eq!(rates.may_send(&PrincipalId::parse("b").unwrap()), Ok(()));
}
