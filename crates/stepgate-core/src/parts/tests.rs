use super::{
    Finding, Known, RATE_WINDOW_MS, REASON_CHARS_MAX, RECOVERED_AFTER_MS, SUBJECT_CHARS_MAX,
    TOLD_MAX, Told,
};
use crate::attention::Kind;
use crate::time::Timestamp;

fn at(ms: u64) -> Timestamp {
    Timestamp::from_millisecond(1_700_000_000_000).plus_ms(ms)
}

fn finding(kind: Kind, reason: &str) -> Finding {
    Finding::new(kind, "x", reason, None)
}

/// What is told of these findings at this time. It counts as told from then on.
fn told(known: &mut Known, found: &[Finding], now: Timestamp) -> usize {
    let fresh = known.fresh(found, now);
    for finding in &fresh {
        known.told.insert(finding.key(), Told { since: now, gone: None });
    }
    fresh.len()
}

#[test]
fn a_finding_is_told_once_and_again_when_the_part_was_well_in_between() {
    let mut known = Known::default();
    let off = [finding(Kind::ServerOff, "refused")];
    let other_reason = [finding(Kind::ServerOff, "timeout")];
    assert_eq!(told(&mut known, &off, at(0)), 1);
    assert_eq!(told(&mut known, &off, at(RECOVERED_AFTER_MS * 9)), 0);
    assert_eq!(told(&mut known, &other_reason, at(RECOVERED_AFTER_MS * 9 + 1)), 0);
    // It is up for a moment, and for long.
    let up = RECOVERED_AFTER_MS * 10;
    assert_eq!(told(&mut known, &[], at(up)), 0);
    assert_eq!(told(&mut known, &off, at(up + RECOVERED_AFTER_MS - 1)), 0);
    assert_eq!(told(&mut known, &[], at(up * 2)), 0);
    assert_eq!(told(&mut known, &off, at(up * 2 + RECOVERED_AFTER_MS)), 1);
}

#[test]
fn another_definition_of_a_changed_tool_is_told_and_not_more_than_once_a_minute() {
    let mut known = Known::default();
    assert_eq!(told(&mut known, &[finding(Kind::ToolChanged, "a")], at(0)), 1);
    assert_eq!(told(&mut known, &[finding(Kind::ToolChanged, "b")], at(RATE_WINDOW_MS - 1)), 0);
    assert_eq!(told(&mut known, &[finding(Kind::ToolChanged, "b")], at(RATE_WINDOW_MS)), 1);
    assert_eq!(told(&mut known, &[finding(Kind::ToolChanged, "b")], at(RATE_WINDOW_MS * 2)), 0);
}

#[test]
fn nodes_that_find_different_definitions_tell_each_once() {
    let mut known = Known::default();
    let (one, other) = ([finding(Kind::ToolChanged, "a")], [finding(Kind::ToolChanged, "b")]);
    assert_eq!(told(&mut known, &one, at(0)), 1);
    assert_eq!(told(&mut known, &other, at(RATE_WINDOW_MS)), 1);
    assert_eq!(told(&mut known, &one, at(RATE_WINDOW_MS * 2)), 0);
    assert_eq!(told(&mut known, &other, at(RATE_WINDOW_MS * 3)), 0);
}

#[test]
fn an_executor_is_told_again_when_later_calls_wait_for_it() {
    let mut known = Known::default();
    let waiting = |ms| Finding::new(Kind::ExecutorUnreached, "x", "why", Some(at(ms)));
    assert_eq!(told(&mut known, &[waiting(0)], at(1)), 1);
    assert_eq!(told(&mut known, &[waiting(0)], at(RATE_WINDOW_MS * 2)), 0);
    assert_eq!(told(&mut known, &[waiting(RATE_WINDOW_MS)], at(RATE_WINDOW_MS * 2)), 1);
}

#[test]
fn many_findings_at_once_are_told_little_by_little() {
    let mut known = Known::default();
    let many: Vec<Finding> = (0..=TOLD_MAX)
        .map(|number| Finding::new(Kind::ToolNew, &number.to_string(), "why", None))
        .collect();
    assert_eq!(told(&mut known, &many, at(0)), TOLD_MAX);
    assert_eq!(told(&mut known, &many, at(1)), 0);
    assert_eq!(told(&mut known, &many, at(RATE_WINDOW_MS)), 1);
}

#[test]
fn a_long_reason_and_a_long_subject_are_cut() {
    let name = "x".repeat(SUBJECT_CHARS_MAX);
    let cut = Finding::new(Kind::ToolUnusable, &format!("{name}y"), "", None).subject;
    assert_eq!(cut, format!("{name}…"));
    let long = "ä".repeat(REASON_CHARS_MAX);
    assert_eq!(finding(Kind::ServerOff, &long).reason, long);
    assert_eq!(finding(Kind::ServerOff, &format!("{long}ä")).reason, format!("{long}…"));
}
