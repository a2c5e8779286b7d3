use super::*;

#[test]
fn a_limit_is_told_of_once_and_again_after_it_was_quiet() {
    let (refusals, start) = (Refusals::default(), Instant::now());
    let rows = [
        (Limit::Connections, 0, true),
        (Limit::Connections, 1, false),
        (Limit::BodyMemory, 1, true),
        (Limit::Connections, 60, false),
        (Limit::Connections, 119, false),
        (Limit::Connections, 179, true),
    ];
    for (limit, second, expected) in rows {
        let now = start + Duration::from_secs(second);
        assert_eq!(refusals.is_first(limit, now), expected, "{limit:?} {second}");
    }
}
