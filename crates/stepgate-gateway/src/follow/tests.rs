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
