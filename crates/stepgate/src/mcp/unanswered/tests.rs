use serde_json::json;

use super::*;

fn sameness(name: &str, volume: u64) -> Sameness {
    let args = json!({ "volume": volume });
    let args = args.as_object().unwrap();
    Sameness::of(&PrincipalId::parse(name).unwrap(), "sonos.set_volume", args)
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

#[test]
fn a_session_that_takes_its_streams_up_gets_the_answers_itself() {
    let unanswered = Unanswered::new(Duration::from_secs(1));
    unanswered.add(sameness("agent", 20), id(), Some("one".to_owned()));
    let kept = id();
    unanswered.add(sameness("agent", 20), kept.clone(), Some("other".to_owned()));
    unanswered.resumed("one");
    assert_eq!(unanswered.take(sameness("agent", 20)), Some(kept));
    assert_eq!(unanswered.take(sameness("agent", 20)), None);
}

#[test]
fn beyond_the_limit_the_oldest_is_forgotten() {
    let unanswered = Unanswered::new(Duration::from_secs(1));
    for volume in 0..=CALLS_MAX {
        unanswered.add(sameness("agent", volume as u64), id(), None);
    }
    assert_eq!(unanswered.take(sameness("agent", 0)), None);
    assert!(unanswered.take(sameness("agent", 1)).is_some());
    assert_eq!(unanswered.calls().order.len(), CALLS_MAX - 1);
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
