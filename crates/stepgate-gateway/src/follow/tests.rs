use super::*;

#[test]
fn pauses_grow_to_a_limit_and_a_receiver_may_ask_for_more() {
    for (tries, most) in [(0, 1), (1, 2), (5, 32), (9, 300), (u32::MAX, 300)] {
        let pause = pause_after(tries, None);
        let most = Duration::from_secs(most);
        assert!(most / 2 <= pause && pause <= most, "{tries}: {pause:?}");
    }
    assert_eq!(pause_after(0, Some(Duration::from_secs(60))), Duration::from_secs(60));
    assert_eq!(pause_after(0, Some(Duration::from_secs(86_400))), PAUSE_MAX);
}

/// Otherwise a receiver of few events would keep the runs of many in the store.
#[test]
fn a_cursor_passes_events_by_after_a_while() {
    assert!(!is_worth_moving(0, Duration::from_secs(86_400)), "nothing to pass by");
    assert!(!is_worth_moving(1, Duration::from_secs(1)), "not for each event");
    assert!(is_worth_moving(1, PASS_BY_AFTER));
    assert!(is_worth_moving(PASS_BY, Duration::ZERO));
}
