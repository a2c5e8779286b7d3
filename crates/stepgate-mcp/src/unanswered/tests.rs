use serde_json::json;

use super::*;

fn sameness(name: &str, volume: u64) -> CallFingerprint {
    let args = json!({ "volume": volume });
    let args = args.as_object().unwrap();
    CallFingerprint::of(&PrincipalId::parse(name).unwrap(), "sonos.set_volume", args)
}

fn id() -> ProposalId {
    ProposalId::parse(&fresh_id().to_string()).unwrap()
}

#[test]
fn a_call_is_taken_once_by_the_same_call_of_the_same_principal() {
    let unanswered = Unanswered::new(Duration::from_secs(1));
    let first = id();
    unanswered.add(sameness("agent", 20), first.clone(), None);
    unanswered.add(sameness("agent", 20), first.clone(), None);
    assert_eq!(unanswered.take(sameness("agent", 21)), None);
    assert_eq!(unanswered.take(sameness("other", 20)), None);
    assert_eq!(unanswered.take(sameness("agent", 20)), Some(first));
    assert_eq!(unanswered.take(sameness("agent", 20)), None);
}

#[test]
fn of_several_the_oldest_is_taken_first() {
    let unanswered = Unanswered::new(Duration::from_secs(1));
    let (first, second) = (id(), id());
    unanswered.add(sameness("agent", 20), first.clone(), None);
    unanswered.add(sameness("agent", 20), second.clone(), None);
    assert_eq!(unanswered.take(sameness("agent", 20)), Some(first));
    assert_eq!(unanswered.take(sameness("agent", 20)), Some(second));
}

fn stream(session: &str, number: u64) -> Stream {
    Stream { session: session.to_owned(), number }
}

#[test]
fn whoever_takes_a_stream_up_gets_the_answer_of_its_call_and_of_no_other() {
    let unanswered = Unanswered::new(Duration::from_secs(1));
    let (first, second, third) = (id(), id(), id());
    let same = sameness("agent", 20);
    unanswered.add(same, first.clone(), Some(stream("one", 0)));
    unanswered.add(same, second.clone(), Some(stream("one", 1)));
    unanswered.add(same, third.clone(), Some(stream("other", 0)));
    assert_eq!(unanswered.resumed(&stream("one", 0)), Some((same, first)));
    assert_eq!(unanswered.resumed(&stream("one", 0)), None);
    assert_eq!(unanswered.take(same), Some(second));
    assert_eq!(unanswered.take(same), Some(third));
    assert_eq!(unanswered.take(same), None);
}

#[test]
fn what_no_stream_gives_any_more_is_not_forgotten_with_one() {
    let unanswered = Unanswered::new(Duration::from_secs(1));
    let (noticed, of_ended) = (id(), id());
    let same = sameness("agent", 20);
    // A notice was sent on the stream, or lost with it: the outcome is still to come.
    unanswered.add(same, noticed.clone(), Some(stream("one", 0)));
    unanswered.add(same, noticed.clone(), None);
    unanswered.add(same, noticed.clone(), Some(stream("one", 0)));
    assert_eq!(unanswered.resumed(&stream("one", 0)), None);
    unanswered.add(same, of_ended.clone(), Some(stream("one", 1)));
    unanswered.ended("one");
    assert_eq!(unanswered.resumed(&stream("one", 1)), None);
    assert_eq!(unanswered.take(same), Some(noticed));
    assert_eq!(unanswered.take(same), Some(of_ended));
}

#[test]
fn beyond_the_limit_the_oldest_is_forgotten() {
    let unanswered = Unanswered::new(Duration::from_secs(1));
    for volume in 0..=CALLS_MAX {
        unanswered.add(sameness("agent", volume as u64), id(), None);
    }
    assert_eq!(unanswered.take(sameness("agent", 0)), None);
    assert!(unanswered.take(sameness("agent", 1)).is_some());
    assert_eq!(locked(&unanswered.calls).len(), CALLS_MAX - 1);
}

#[test]
fn the_ids_of_calls_without_a_key_are_known_again() {
    assert!(is_unkeyed(&fresh_id().to_string()));
    assert_ne!(fresh_id(), fresh_id());
    for id in ["6d637063-616c-4000-8000-000000000000", &Uuid::new_v4().to_string(), "mcpcal"] {
        assert!(!is_unkeyed(id), "{id}");
    }
}

#[test]
fn a_call_can_be_joined_until_some_time_after_its_end() {
    let unanswered = Unanswered::new(Duration::from_secs(1));
    let ended = Timestamp::from_millisecond(10_000);
    for (now, expected) in [(10_000, true), (11_000, true), (11_001, false)] {
        assert_eq!(unanswered.is_young(ended, Timestamp::from_millisecond(now)), expected, "{now}");
    }
}
