//! The specification's rules for the log, on journals that `Journal` itself made.

mod proofs;

use serde_json::json;

use super::artifact::{
    ActionRequest, CallMeta, DecisionMeta, EffectMeta, EffectOutcome, EffectStatus, Invocation,
    RequestMeta, RiskLevel, SupervisorDecision, ToolCall, ToolClass, ToolEffect, Verdict,
};
use super::replay::Replayed;
use super::{Appended, Artifact, Entry, Journal, Kind, StateCode, Tail, replay};
use crate::digest::Digest;
use crate::ids::{ArtifactId, IdempotencyKey, PrincipalId, RunId, SessionId};
use crate::machine::State;
use crate::time::Timestamp;

fn id(number: u8) -> ArtifactId {
    text_id(number).parse().unwrap()
}

fn text_id(number: u8) -> String {
    format!("01893b6e-7a00-7000-8000-0000000000{number:02x}")
}

fn run_id() -> RunId {
    text_id(1).parse().unwrap()
}

fn session_id() -> SessionId {
    text_id(2).parse().unwrap()
}

fn ts(millisecond: i64) -> Timestamp {
    Timestamp::from_millisecond(1_700_000_000_000 + millisecond)
}

fn key() -> IdempotencyKey {
    IdempotencyKey::from_stored("agent/550e8400-e29b-41d4-a716-446655440000".into())
}

fn agent() -> PrincipalId {
    PrincipalId::parse("agent").unwrap()
}

fn read() -> Invocation {
    Invocation {
        args: json!({"path": "/sandbox/a.txt"}),
        tool_name: "READ_FILE".into(),
        tool_server: "core".into(),
    }
}

fn journal() -> Journal {
    Journal::empty(run_id(), session_id())
}

fn request() -> Artifact {
    Artifact::ActionRequest(ActionRequest::new(
        journal().head(id(10), ts(0)),
        id(10),
        agent(),
        Some(key()),
        "Read a file".into(),
        RequestMeta { asked_digest: Digest::ZERO, principal_id: agent() },
        read(),
        vec![],
        RiskLevel::Read,
    ))
}

fn decision(verdict: Verdict) -> Artifact {
    Artifact::SupervisorDecision(SupervisorDecision::new(
        journal().head(id(11), ts(1)),
        request().seal().digest,
        id(10),
        verdict,
        DecisionMeta::default(),
        Some(Digest::ZERO),
        "core-actions".into(),
        id(11),
    ))
}

fn call() -> Artifact {
    Artifact::ToolCall(ToolCall::new(
        journal().head(id(12), ts(2)),
        read(),
        key(),
        CallMeta::default(),
        decision(Verdict::Approve).seal().digest,
        id(11),
        id(12),
        ToolClass::Read,
    ))
}

fn effect(status: EffectStatus) -> Artifact {
    Artifact::ToolEffect(ToolEffect::new(
        journal().head(id(13), ts(3)),
        EffectMeta::default(),
        EffectOutcome { error: None, status },
        call().seal().digest,
        id(12),
        id(13),
    ))
}

/// The artifacts that lead to a state, with their keys.
fn way_to(state: State) -> Vec<(Artifact, Option<IdempotencyKey>)> {
    let opened = || vec![(request(), None)];
    let authorized = || [opened(), vec![(decision(Verdict::Approve), None)]].concat();
    let executing = || [authorized(), vec![(call(), Some(key()))]].concat();
    let ended = |status| [executing(), vec![(effect(status), Some(key()))]].concat();
    match state {
        State::Pending => opened(),
        State::Authorized => authorized(),
        State::Executing => executing(),
        State::Completed => ended(EffectStatus::Success),
        State::Failed => ended(EffectStatus::Failure),
        State::Denied => [opened(), vec![(decision(Verdict::Deny), None)]].concat(),
    }
}

fn journal_at(state: State) -> Journal {
    let mut journal = journal();
    for (artifact, key) in way_to(state) {
        journal.advance(artifact, key).unwrap();
    }
    assert_eq!(journal.tail().state, Some(state));
    journal
}

fn entries_to(state: State) -> Vec<Appended> {
    journal_at(state).take_pending()
}

fn tail_of(entries: &[Appended]) -> Tail {
    let accept = |tail: Tail, appended: &Appended| tail.accept(&appended.entry).unwrap();
    entries.iter().fold(Tail::EMPTY, accept)
}

fn redigested(mut entry: Entry) -> Entry {
    entry.entry_digest = entry.recomputed_digest();
    entry
}

#[test]
fn a_journal_starts_with_sequence_1_and_zeros_and_links_every_entry() {
    for state in State::ALL {
        let entries = entries_to(state);
        let mut prev = Digest::ZERO;
        let mut from = State::Pending;
        for (number, Appended { entry, artifact }) in (1..).zip(&entries) {
            assert_eq!(entry.sequence_number, number);
            assert_eq!(entry.prev_entry_digest, prev);
            assert_eq!(entry.from_state, from);
            assert_eq!(entry.entry_digest, entry.recomputed_digest());
            assert_eq!(entry.ts, artifact.ts);
            assert_eq!(entry.artifact_id, artifact.id);
            assert_eq!(entry.artifact_digest, artifact.digest);
            assert_eq!(entry.trace_id, run_id());
            (prev, from) = (entry.entry_digest, entry.to_state);
        }
        let tail = tail_of(&entries);
        assert_eq!(&tail, journal_at(state).tail());
        assert_eq!(tail.state, Some(state));
    }
}

#[test]
fn an_entry_s_digest_covers_every_field_but_itself_with_nulls() {
    for appended in entries_to(State::Completed) {
        let mut value = serde_json::to_value(&appended.entry).unwrap();
        let named = value.as_object_mut().unwrap().remove("entry_digest").unwrap();
        assert!(value.get("tool_call_id").is_some(), "null or not, it stays in");
        assert_eq!(named, json!(Digest::of(&value)));
    }
}

#[test]
fn calls_and_effects_name_the_call_and_its_key_and_the_others_none() {
    for Appended { entry, .. } in entries_to(State::Completed) {
        let about_a_call = matches!(entry.artifact_type, Kind::ToolCall | Kind::ToolEffect);
        assert_eq!(entry.tool_call_id, about_a_call.then(|| id(12)));
        assert_eq!(entry.idempotency_key, about_a_call.then(key));
    }
}

/// Every artifact on every state: only the machine's five moves and the one genesis are accepted.
#[test]
fn advance_refuses_what_the_machine_refuses_and_changes_nothing() {
    let verdicts = [Verdict::Approve, Verdict::Deny, Verdict::NeedsApproval];
    let statuses =
        [EffectStatus::Success, EffectStatus::Failure, EffectStatus::Denied, EffectStatus::Error];
    let artifacts: Vec<_> = [request(), call()]
        .into_iter()
        .chain(verdicts.map(decision))
        .chain(statuses.map(effect))
        .collect();
    let starts = State::ALL.map(Some).into_iter().chain([None]);
    for start in starts {
        for artifact in &artifacts {
            let mut journal = start.map_or_else(journal, journal_at);
            let before = *journal.tail();
            let pending = journal.take_pending().len();
            let legal = match (start, artifact.as_move()) {
                (None, None) => matches!(artifact, Artifact::ActionRequest(_)),
                (Some(from), Some(by)) => crate::machine::next(from, by).is_ok(),
                (None, Some(_)) | (Some(_), None) => false,
            };
            let outcome = journal.advance(artifact.clone(), Some(key()));
            assert_eq!(outcome.is_ok(), legal, "{start:?} {artifact:?}");
            let appended = journal.take_pending().len();
            if let Err(error) = outcome {
                assert_eq!(error.code, StateCode::InvalidTransition);
                assert_eq!((journal.tail(), appended), (&before, 0));
            } else {
                assert_eq!(appended, 1, "after {pending}");
                assert_eq!(journal.tail().sequence_number, before.sequence_number + 1);
            }
        }
    }
}

#[test]
fn advance_refuses_a_call_or_an_effect_without_its_key() {
    for (state, artifact) in
        [(State::Authorized, call()), (State::Executing, effect(EffectStatus::Success))]
    {
        let mut journal = journal_at(state);
        let before = *journal.tail();
        let error = journal.advance(artifact, None).unwrap_err();
        assert_eq!(error.code, StateCode::InvalidTransition);
        assert_eq!(journal.tail(), &before);
    }
}

#[test]
fn a_continued_journal_goes_on_where_the_replayed_one_ended() {
    let whole = entries_to(State::Completed);
    for kept in 0..=whole.len() {
        let Replayed { tail, references, .. } = replay(&whole[..kept]).unwrap();
        let mut journal = Journal::continued(run_id(), session_id(), tail, references);
        for (artifact, key) in way_to(State::Completed).into_iter().skip(kept) {
            journal.advance(artifact, key).unwrap();
        }
        assert_eq!(journal.take_pending(), whole[kept..]);
        assert_eq!(journal.take_pending(), []);
    }
}

#[test]
fn completed_if_and_only_if_the_effect_is_a_success() {
    for status in
        [EffectStatus::Success, EffectStatus::Failure, EffectStatus::Denied, EffectStatus::Error]
    {
        let mut journal = journal_at(State::Executing);
        journal.advance(effect(status), Some(key())).unwrap();
        let expected = match status {
            EffectStatus::Success => State::Completed,
            EffectStatus::Failure | EffectStatus::Denied | EffectStatus::Error => State::Failed,
        };
        assert_eq!(journal.tail().state, Some(expected));
    }
}

/// Breaks the entry in every combination of the four ways; the first check in the fixed order
/// answers, whatever else is broken.
#[test]
fn an_append_is_checked_in_the_order_sequence_previous_digest_transition_digest() {
    let entries = entries_to(State::Completed);
    let tail = tail_of(&entries[..2]);
    let good = &entries[2].entry;
    assert!(tail.accept(good).is_ok());
    for broken in 1..16_u8 {
        let breaks = |bit: u8| broken & (1 << bit) != 0;
        let mut entry = good.clone();
        if breaks(0) {
            entry.sequence_number += 1;
        }
        if breaks(1) {
            entry.prev_entry_digest = Digest::ZERO;
        }
        if breaks(2) {
            entry.to_state = State::Completed;
        }
        entry = redigested(entry);
        if breaks(3) {
            entry.entry_digest = Digest::ZERO;
        }
        let (code, part) = match broken.trailing_zeros() {
            0 => (StateCode::SequenceGap, "cannot follow"),
            1 => (StateCode::ChecksumMismatch, "predecessor"),
            2 => (StateCode::InvalidTransition, "not a transition of the machine"),
            _ => (StateCode::ChecksumMismatch, "the digest of its fields"),
        };
        let error = tail.accept(&entry).unwrap_err();
        assert_eq!(error.code, code, "{broken:04b}");
        assert!(error.detail.contains(part), "{broken:04b}: {error}");
    }
}

#[test]
fn gaps_and_duplicates_are_refused_at_every_place() {
    let entries = entries_to(State::Completed);
    for at in 0..entries.len() {
        let tail = tail_of(&entries[..at]);
        for (other, appended) in entries.iter().enumerate() {
            let judged = tail.accept(&appended.entry).map_err(|error| error.code);
            if other == at {
                assert!(judged.is_ok());
            } else {
                assert_eq!(judged, Err(StateCode::SequenceGap), "{other} at {at}");
            }
        }
    }
}

/// The move is legal and leads to the right state; only the state that it claims to leave is wrong.
#[test]
fn a_from_state_that_is_not_the_current_one_is_refused() {
    for state in State::ALL.into_iter().filter(|state| *state != State::Pending) {
        let entries = entries_to(state);
        let (last, before) = entries.split_last().unwrap();
        let tail = tail_of(before);
        let current = last.entry.from_state;
        for claimed in State::ALL {
            let entry = redigested(Entry { from_state: claimed, ..last.entry.clone() });
            let judged = tail.accept(&entry).map_err(|error| error.code);
            if claimed == current {
                assert!(judged.is_ok());
            } else {
                assert_eq!(judged, Err(StateCode::InvalidTransition), "{state} from {claimed}");
            }
        }
    }
}

#[test]
fn an_entry_whose_artifact_is_of_another_kind_than_its_transition_is_refused() {
    for state in [State::Authorized, State::Executing, State::Completed, State::Denied] {
        let entries = entries_to(state);
        let (last, before) = entries.split_last().unwrap();
        let tail = tail_of(before);
        for kind in Kind::ALL {
            let entry = redigested(Entry {
                artifact_type: kind,
                tool_call_id: Some(id(12)),
                idempotency_key: Some(key()),
                ..last.entry.clone()
            });
            let right = kind == last.entry.artifact_type;
            assert_eq!(tail.accept(&entry).is_ok(), right, "{state} {kind:?}");
        }
    }
}

#[test]
fn every_changed_field_of_an_entry_shows() {
    let entries = entries_to(State::Executing);
    let (last, before) = entries.split_last().unwrap();
    let tail = tail_of(before);
    let changes: [fn(&mut Entry); 14] = [
        |entry| entry.artifact_digest = Digest::ZERO,
        |entry| entry.artifact_id = id(99),
        |entry| entry.artifact_type = Kind::ToolEffect,
        |entry| entry.entry_digest = Digest::ZERO,
        |entry| entry.from_state = State::Pending,
        |entry| entry.idempotency_key = Some(IdempotencyKey::from_stored("agent/x".into())),
        |entry| entry.prev_entry_digest = Digest::ZERO,
        |entry| entry.schema_id.to_mut().push('x'),
        |entry| entry.schema_version = "v2".into(),
        |entry| entry.sequence_number = 4,
        |entry| entry.to_state = State::Failed,
        |entry| entry.tool_call_id = Some(id(99)),
        |entry| entry.trace_id = text_id(98).parse().unwrap(),
        |entry| entry.ts = ts(99),
    ];
    for (at, change) in changes.into_iter().enumerate() {
        let mut entry = last.entry.clone();
        change(&mut entry);
        assert!(tail.accept(&entry).is_err(), "change {at}");
    }
}

#[test]
fn the_six_codes_are_spelled_as_the_specification_spells_them() {
    for (code, text) in [
        (StateCode::InvalidTransition, "STATE_INVALID_TRANSITION"),
        (StateCode::SequenceGap, "STATE_SEQUENCE_GAP"),
        (StateCode::ChecksumMismatch, "STATE_CHECKSUM_MISMATCH"),
        (StateCode::RecoveryFailed, "STATE_RECOVERY_FAILED"),
        (StateCode::LockAcquireFailed, "STATE_LOCK_ACQUIRE_FAILED"),
        (StateCode::ConcurrentExecution, "STATE_CONCURRENT_EXECUTION"),
    ] {
        assert_eq!(code.as_str(), text);
    }
}

#[test]
fn an_artifact_of_another_session_in_a_journal_is_found() {
    let elsewhere = Journal::empty(run_id(), text_id(99).parse().unwrap());
    let foreign = Artifact::SupervisorDecision(SupervisorDecision::new(
        elsewhere.head(id(11), ts(1)),
        request().seal().digest,
        id(10),
        Verdict::Approve,
        DecisionMeta::default(),
        Some(Digest::ZERO),
        "core-actions".into(),
        id(11),
    ));
    for (artifact, is_ours) in [(decision(Verdict::Approve), true), (foreign, false)] {
        let mut journal = journal();
        journal.advance(request(), None).unwrap();
        journal.advance(artifact, None).unwrap();
        let replayed = replay(&journal.take_pending());
        let code = replayed.err().map(|error| error.code);
        assert_eq!(code, (!is_ours).then_some(StateCode::ChecksumMismatch));
    }
}
