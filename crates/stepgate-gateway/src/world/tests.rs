use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::{refuse_unset_clock, uuid_at};

#[test]
fn ids_are_fresh_and_in_order_also_when_the_clock_was_never_set() {
    let before_1970 = UNIX_EPOCH - Duration::from_secs(86_400);
    for time in [before_1970, SystemTime::now()] {
        let ids: Vec<_> = (0..1000).map(|_| uuid_at(time)).collect();
        assert!(ids.iter().all(|id| id.get_version_num() == 7));
        assert!(ids.is_sorted_by(|one, next| one < next));
    }
}

#[test]
fn a_clock_that_says_before_1970_is_refused_and_no_other() {
    let second = Duration::from_secs(1);
    let refused = refuse_unset_clock(UNIX_EPOCH - second).unwrap_err().to_string();
    assert!(refused.contains("before 1970"), "{refused}");
    for time in [UNIX_EPOCH, UNIX_EPOCH + second, SystemTime::now()] {
        refuse_unset_clock(time).unwrap();
    }
}
