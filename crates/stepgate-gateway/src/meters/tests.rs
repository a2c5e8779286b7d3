use std::time::Duration;

use super::*;

#[test]
fn a_value_is_counted_under_the_first_bound_that_it_does_not_exceed() {
    let meter = Histogram::of_counts();
    for value in [0, 1, 2, 3, 2048, 2049] {
        meter.observe(value);
    }
    let Snapshot { sum, buckets } = meter.snapshot();
    let filled: Vec<(f64, u64)> = buckets.into_iter().filter(|(_, count)| *count > 0).collect();
    assert_eq!(filled, [(1.0, 2), (2.0, 1), (4.0, 1), (2048.0, 1), (f64::INFINITY, 1)]);
    assert!((sum - 4103.0).abs() < f64::EPSILON);
}

#[test]
fn times_are_shown_in_seconds() {
    let meter = Histogram::of_seconds();
    meter.observe_time(Duration::from_millis(1500));
    let snapshot = meter.snapshot();
    assert!((snapshot.sum - 1.5).abs() < f64::EPSILON);
    assert!(snapshot.buckets.contains(&(10.0, 1)));
}

#[test]
fn labels_have_a_limit_and_what_is_beyond_it_is_added_up() {
    let tools = Labelled::new(|| AtomicU64::new(0));
    for number in 0..LABELS_MAX + 3 {
        tools.of(&format!("server.tool{number:03}")).fetch_add(1, Ordering::Relaxed);
    }
    // One that is known keeps its own.
    tools.of("server.tool000").fetch_add(1, Ordering::Relaxed);
    let all = tools.all(|count| count.load(Ordering::Relaxed));
    assert_eq!(all.len(), LABELS_MAX + 1);
    assert_eq!(all[0], ("server.tool000".to_owned(), 2));
    assert_eq!(all[LABELS_MAX], (OTHER.to_owned(), 3));
}

#[test]
fn labels_below_the_limit_have_no_overflow() {
    let tools = Labelled::new(|| AtomicU64::new(0));
    tools.of("one");
    assert_eq!(tools.all(|_| ()), [("one".to_owned(), ())]);
}

#[test]
fn an_action_has_the_labels_of_its_server_and_tool() {
    let of = |action, server: &str, tool: &str| {
        let expected = ActionLabel {
            action: String::from(action),
            server: server.to_owned(),
            tool: tool.to_owned(),
        };
        assert_eq!(ActionLabel::of(action), expected);
    };
    of("WRITE_FILE", "core", "WRITE_FILE");
    of("bank.send_money", "bank", "send_money");
    of("unknown", "unknown", "unknown");
    of("other", "other", "other");
}
