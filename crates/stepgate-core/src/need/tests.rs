use uuid::Uuid;

use super::Reading;
use crate::ids::RunId;

#[test]
fn a_run_is_reported_by_one_caller_at_a_time() {
    let reading = Reading::default();
    let [one, other] = [1, 2].map(|number| RunId::new(Uuid::from_u128(number)));
    let first = reading.telling([one].into_iter());
    let second = reading.clone().telling([one, other].into_iter());
    assert!(first.contains(one));
    assert!(!second.contains(one) && second.contains(other));
    // What the second did not take, it does not release.
    drop(second);
    assert!(!reading.telling([one].into_iter()).contains(one));
    drop(first);
    assert!(reading.telling([one, other].into_iter()).contains(one));
}
