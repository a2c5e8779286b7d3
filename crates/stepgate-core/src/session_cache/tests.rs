use uuid::Uuid;

use super::*;

fn session(number: u128) -> SessionId {
    SessionId::new(Uuid::from_u128(number))
}

#[test]
fn the_sessions_that_were_not_used_for_longest_are_forgotten() {
    let cache = SessionCache::default();
    let use_it = |number| {
        let given = cache.given(session(number));
        let (read, before) = given.values().begin();
        cache.take_in(session(number), &given, (read, &before), News::default()).unwrap();
    };
    for number in 0..SESSIONS_MAX as u128 {
        use_it(number);
    }
    use_it(0);
    use_it(5000);
    let kept = locked(&cache.0);
    assert_eq!(kept.sessions.len(), SESSIONS_MAX);
    let is_kept = |number| kept.sessions.contains_key(&session(number));
    assert!(is_kept(0) && !is_kept(1) && is_kept(2) && is_kept(5000));
}

#[test]
fn sessions_with_many_values_push_others_out() {
    let cache = SessionCache::default();
    for number in 0..3 {
        cache.given(session(number));
        cache.keep_within_limits(session(number), VALUES_MAX / 2);
    }
    let kept = locked(&cache.0);
    assert_eq!(kept.sessions.len(), 2);
    assert!(!kept.sessions.contains_key(&session(0)));
}

#[test]
fn what_another_call_has_read_meanwhile_is_not_taken_in_twice() {
    let cache = SessionCache::default();
    let given = cache.given(session(1));
    let news = || News::of_requests(vec!["write to ann@example.com".to_owned()]);
    let take_in = |(number, before): &(u64, ReadUpTo)| {
        cache.take_in(session(1), &given, (*number, before), news())
    };
    let begin = || given.values().begin();
    let (one, two) = (begin(), begin());
    assert_eq!(take_in(&two), Ok(()));
    assert_eq!(take_in(&one), Err(2), "the second began after the first: it has seen as much");
    assert_eq!(given.values().read_up_to().requests, 1);
    let (three, four) = (begin(), begin());
    assert_eq!(take_in(&three), Ok(()));
    assert_eq!(take_in(&four), Err(3), "the third may have seen less");
}
