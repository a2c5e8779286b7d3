use super::*;

const PAUSE: Duration = Duration::from_secs(10);

fn opened(now: Instant) -> Breaker {
    let mut breaker = Breaker::new(2, PAUSE);
    breaker.failed(now);
    breaker.failed(now);
    breaker
}

#[test]
fn it_opens_at_the_limit_and_not_below() {
    let now = Instant::now();
    let mut breaker = Breaker::new(2, PAUSE);
    breaker.failed(now);
    assert_eq!(breaker.admit(now), Admission::Pass);
    breaker.failed(now);
    assert_eq!(breaker.admit(now), Admission::Refused);
}

#[test]
fn an_answer_between_two_failures_counts_from_the_start() {
    let now = Instant::now();
    let mut breaker = Breaker::new(2, PAUSE);
    breaker.failed(now);
    breaker.answered();
    breaker.failed(now);
    assert_eq!(breaker.admit(now), Admission::Pass);
}

#[test]
fn after_the_pause_one_call_tries_and_decides() {
    let now = Instant::now();
    let later = now + PAUSE;
    let mut breaker = opened(now);
    assert_eq!(breaker.admit(later - Duration::from_millis(1)), Admission::Refused);
    assert_eq!(breaker.admit(later), Admission::Trial);
    assert_eq!(breaker.admit(later), Admission::Refused);
    breaker.failed(later);
    assert_eq!(breaker.admit(later), Admission::Refused);
    assert_eq!(breaker.admit(later + PAUSE), Admission::Trial);
    breaker.answered();
    assert_eq!(breaker.admit(later + PAUSE), Admission::Pass);
}

#[test]
fn a_trial_that_was_never_sent_leaves_the_place_to_another() {
    let now = Instant::now();
    let mut breaker = opened(now);
    assert_eq!(breaker.admit(now + PAUSE), Admission::Trial);
    breaker.trial_is_over();
    assert_eq!(breaker.admit(now + PAUSE), Admission::Trial);
}
