use uuid::Uuid;

use super::*;

fn limits() -> ServeConfig {
    ServeConfig {
        login_idle_max: Duration::from_secs(10),
        login_life_max: Duration::from_secs(25),
        ..ServeConfig::default()
    }
}

fn token() -> ArtifactId {
    ArtifactId::new(Uuid::now_v7())
}

fn begin(logins: &Logins, token_id: ArtifactId, now: Instant) -> String {
    let who = (token_id, PrincipalId::parse("olga").unwrap(), VisitorRole::Operator);
    logins.begin(who, now, |_| true).unwrap()
}

fn is_in(logins: &Logins, cookie: &str, now: Instant) -> bool {
    logins.visitor(cookie, now, VisitBy::Person, |_| true).is_some()
}

#[test]
fn a_login_that_is_not_used_ends_and_one_that_is_used_ends_later() {
    let logins = Logins::new(&limits());
    let start = Instant::now();
    let at = |ms| start + Duration::from_millis(ms);
    let idle = begin(&logins, token(), start);
    let used = begin(&logins, token(), start);
    assert!(is_in(&logins, &used, at(9_999)));
    assert!(!is_in(&logins, &idle, at(10_000)));
    // It stays ended, whatever the clock says.
    assert!(!is_in(&logins, &idle, at(0)));
    assert!(is_in(&logins, &used, at(19_998)));
    assert!(is_in(&logins, &used, at(24_999)));
    assert!(!is_in(&logins, &used, at(25_000)));
}

#[test]
fn a_page_that_refreshes_itself_does_not_keep_its_login_open() {
    let logins = Logins::new(&limits());
    let start = Instant::now();
    let cookie = begin(&logins, token(), start);
    let refresh = |seconds| {
        let now = start + Duration::from_secs(seconds);
        logins.visitor(&cookie, now, VisitBy::Script, |_| true)
    };
    assert!(refresh(9).is_some());
    assert!(refresh(10).is_none());
}

#[test]
fn a_login_ends_with_its_token() {
    let logins = Logins::new(&limits());
    let (now, good, revoked) = (Instant::now(), token(), token());
    let (first, second) = (begin(&logins, good, now), begin(&logins, revoked, now));
    assert!(logins.visitor(&first, now, VisitBy::Person, |it| it == good).is_some());
    assert!(logins.visitor(&second, now, VisitBy::Person, |it| it == good).is_none());
    assert!(!is_in(&logins, &second, now));
}

#[test]
fn a_login_is_found_by_its_cookie_alone_and_every_login_has_its_own_secrets() {
    let logins = Logins::new(&limits());
    let (now, token_id) = (Instant::now(), token());
    let cookies = [begin(&logins, token_id, now), begin(&logins, token_id, now)];
    let visitors = cookies
        .each_ref()
        .map(|cookie| logins.visitor(cookie, now, VisitBy::Person, |_| true).unwrap());
    let [first, second] = visitors;
    assert!(first.csrf != second.csrf && first.login != second.login && cookies[0] != cookies[1]);
    assert!(first.sent(&first.csrf).is_ok());
    assert!(first.sent(&second.csrf).is_err() && first.sent("").is_err());
    for wrong in ["", "x", &cookies[0][1..], &cookies[0].to_uppercase(), &first.login.to_string()] {
        assert!(!is_in(&logins, wrong, now), "{wrong}");
    }
    logins.end(&first);
    assert!(!is_in(&logins, &cookies[0], now) && is_in(&logins, &cookies[1], now));
}

#[test]
fn one_login_too_many_of_a_token_ends_the_one_that_was_unused_for_longest() {
    let logins = Logins::new(&limits());
    let start = Instant::now();
    let (mine, token_id) = (begin(&logins, token(), start), token());
    let at = |ms: usize| start + Duration::from_millis(u64::try_from(ms).unwrap());
    let cookies: Vec<_> =
        (0..LOGINS_PER_TOKEN_MAX).map(|ms| begin(&logins, token_id, at(ms))).collect();
    assert!(is_in(&logins, &cookies[0], at(100)));
    let last = begin(&logins, token_id, at(101));
    let are_in: Vec<_> = cookies.iter().map(|cookie| is_in(&logins, cookie, at(102))).collect();
    let mut expected = vec![true; LOGINS_PER_TOKEN_MAX];
    expected[1] = false;
    assert_eq!(are_in, expected);
    assert!(is_in(&logins, &last, at(102)) && is_in(&logins, &mine, at(102)));
}

#[test]
fn there_are_never_more_logins_than_the_limit_and_those_that_are_over_make_room_first() {
    let logins = Logins::new(&limits());
    let start = Instant::now();
    let cookies: Vec<_> = (0..LOGINS_MAX).map(|_| begin(&logins, token(), start)).collect();
    let soon = start + Duration::from_secs(1);
    for cookie in &cookies[1..] {
        assert!(is_in(&logins, cookie, soon));
    }
    begin(&logins, token(), soon);
    assert_eq!(logins.open().len(), LOGINS_MAX);
    assert!(!is_in(&logins, &cookies[0], soon) && is_in(&logins, &cookies[1], soon));
    begin(&logins, token(), soon + Duration::from_secs(20));
    assert_eq!(logins.open().len(), 1);
}
