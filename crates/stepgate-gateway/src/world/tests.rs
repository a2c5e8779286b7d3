use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::uuid_at;

#[test]
fn ids_are_fresh_and_in_order_also_when_the_clock_was_never_set() {
    let before_1970 = UNIX_EPOCH - Duration::from_secs(86_400);
    for time in [before_1970, SystemTime::now()] {
        let ids: Vec<_> = (0..1000).map(|_| uuid_at(time)).collect();
        assert!(ids.iter().all(|id| id.get_version_num() == 7));
        assert!(ids.is_sorted_by(|one, next| one < next));
    }
}
