use super::Trail;
use crate::digest::Digest;
use crate::event::{Event, EventType};
use crate::gate::Fault;
use crate::idempotency::Binding;
use crate::ids::{ArtifactId, IdempotencyKey, PrincipalId};
use crate::journal::{StateCode, StateError};
use crate::json::Value;
use crate::ports::StoreError;
use crate::run::{Arrival, Payload};
use crate::step::Stop;
use crate::time::Timestamp;

const RUN: &str = "018bcfe5-6800-7000-8000-000000000001";

fn trail(is_open: bool) -> Trail {
    let arrival = Arrival {
        run_id: RUN.parse().unwrap(),
        session_id: RUN.parse().unwrap(),
        principal_id: PrincipalId::parse("agent").unwrap(),
        step_index: 1,
        received_at: Timestamp::from_millisecond(0),
        payload: Payload::whole(*b"{}"),
    };
    let binding = Binding {
        idempotency_key: IdempotencyKey::from_stored("agent/1".into()),
        tool_server: "core".into(),
        tool_name: "READ_FILE".into(),
        asked_digest: Digest::ZERO,
        trace_id: RUN.parse().unwrap(),
        settled: false,
    };
    Trail { is_open, binding: Some(binding), ..Trail::begin(arrival, None) }
}

#[test]
fn an_entry_that_no_longer_fits_an_open_run_means_that_another_executor_took_it_over() {
    for (is_open, code, is_taken_over) in [
        (true, StateCode::SequenceGap, true),
        (true, StateCode::ChecksumMismatch, true),
        (true, StateCode::InvalidTransition, false),
        (false, StateCode::SequenceGap, false),
    ] {
        let error = StoreError::State(StateError::new(code, "no"));
        let Stop::Fault(Fault::Store(StoreError::State(found))) = trail(is_open).stopped_by(error)
        else {
            panic!("{code:?} is no fault");
        };
        let expected = if is_taken_over { StateCode::ConcurrentExecution } else { code };
        assert_eq!((found.code, found.detail.as_str()), (expected, "no"), "{is_open}");
    }
}

#[test]
fn a_key_that_another_step_has_bound_is_no_fault() {
    let stop = trail(false).stopped_by(StoreError::KeyTaken);
    let is_ours = |key: &IdempotencyKey| key.as_str() == "agent/1";
    assert!(
        matches!(&stop, Stop::KeyTaken { key, asked: Digest::ZERO } if is_ours(key)),
        "{stop:?}"
    );
}

/// It may still end with a record of its own: a refusal, because the other step is about another proposal.
#[test]
fn a_step_whose_key_is_taken_still_says_what_is_kept_apart() {
    let mut trail = trail(false);
    let event = |event_type| Event {
        event_id: ArtifactId::new(uuid::Uuid::nil()),
        event_type,
        payload: Value::Null,
        run_id: None,
        sequence_number: 0,
        session_id: trail.arrival.session_id,
        ts: trail.arrival.received_at,
    };
    let stored = event(EventType::ErasableStored);
    trail.events = vec![stored.clone(), event(EventType::ToolCalled)];
    trail.forget_journal();
    assert_eq!(trail.events, [stored]);
}
