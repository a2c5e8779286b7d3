//! Random logs against a model that knows the specification's rules and none of the code.

use stepgate_core::digest::Digest;
use stepgate_core::ids::{IdempotencyKey, RunId};
use stepgate_core::journal::{Entry, Kind, StateCode, Tail};
use stepgate_core::machine::State;
use stepgate_core::time::Timestamp;

/// Bytes of one attempted append.
const STEP_BYTES: usize = 4;
/// Longest log that is tried; a journal that keeps the rules has at most four entries.
const STEPS_MAX: usize = 64;

/// Every attempted append is accepted or refused as the model says, with the model's code, and what
/// was accepted is a dense, linked chain of legal transitions.
pub fn machine(bytes: &[u8]) {
    let mut tail = Tail::EMPTY;
    let mut accepted: Vec<Entry> = Vec::new();
    for step in bytes.chunks_exact(STEP_BYTES).take(STEPS_MAX) {
        let &[what, place, states, flaws] = step else { continue };
        let Some(entry) = attempt(&tail, &accepted, what, place, states, flaws) else { continue };
        let expected = judge(&accepted, &entry);
        let found = tail.accept(&entry);
        assert_eq!(found.as_ref().err().map(|error| error.code), expected, "{entry:?}");
        if let Ok(after) = found {
            tail = after;
            accepted.push(entry);
        }
    }
    check_chain(&tail, &accepted);
}

/// An entry that is right except where the bytes say otherwise.
fn attempt(
    tail: &Tail,
    accepted: &[Entry],
    what: u8,
    place: u8,
    states: u8,
    flaws: u8,
) -> Option<Entry> {
    let id = "01893b6e-7a00-7000-8000-000000000001";
    let trace_id: RunId = id.parse().ok()?;
    let choice = |index: u8| State::ALL.get(usize::from(index) % State::ALL.len()).copied();
    let current = tail.state.unwrap_or(State::Pending);
    let digest = accepted.get(usize::from(place >> 4)).map(|entry| entry.entry_digest);
    let has = |flaw: u8| flaws & (1 << flaw) != 0;
    let mut entry = Entry {
        artifact_digest: Digest::of_bytes(&[what]),
        artifact_id: id.parse().ok()?,
        artifact_type: *Kind::ALL.get(usize::from(what) % Kind::ALL.len())?,
        entry_digest: Digest::ZERO,
        from_state: if has(0) { choice(states >> 4)? } else { current },
        idempotency_key: (!has(1)).then(|| IdempotencyKey::from_stored("agent/key".into())),
        prev_entry_digest: if has(2) { digest.unwrap_or(Digest::ZERO) } else { tail.entry_digest },
        schema_id: Entry::SCHEMA_ID.into(),
        schema_version: Entry::SCHEMA_VERSION.into(),
        sequence_number: if has(3) { u64::from(place & 15) } else { tail.sequence_number + 1 },
        to_state: choice(states & 15)?,
        tool_call_id: if has(4) { None } else { Some(id.parse().ok()?) },
        trace_id,
        ts: Timestamp::from_millisecond(i64::from(what)),
    };
    entry.entry_digest = entry.recomputed_digest();
    if has(5) {
        entry.entry_digest = Digest::of_bytes(b"another");
    }
    if has(6) {
        entry.ts = entry.ts.plus_ms(1);
    }
    Some(entry)
}

/// The rules as the specification lists them, in its order of checks.
fn judge(accepted: &[Entry], entry: &Entry) -> Option<StateCode> {
    let last = accepted.last();
    let sequence = last.map_or(1, |last| last.sequence_number + 1);
    let prev = last.map_or(Digest::ZERO, |last| last.entry_digest);
    if entry.sequence_number != sequence {
        return Some(StateCode::SequenceGap);
    }
    if entry.prev_entry_digest != prev {
        return Some(StateCode::ChecksumMismatch);
    }
    if !is_legal(last, entry) {
        return Some(StateCode::InvalidTransition);
    }
    (entry.entry_digest != entry.recomputed_digest()).then_some(StateCode::ChecksumMismatch)
}

fn is_legal(last: Option<&Entry>, entry: &Entry) -> bool {
    let row = (entry.artifact_type.as_str(), entry.from_state.as_str(), entry.to_state.as_str());
    let names_its_call = entry.tool_call_id.is_some() && entry.idempotency_key.is_some();
    match last {
        None => row == ("action_request", "PENDING", "PENDING"),
        Some(last) => {
            let rows = [
                ("supervisor_decision", "PENDING", "AUTHORIZED", true),
                ("supervisor_decision", "PENDING", "DENIED", true),
                ("tool_call", "AUTHORIZED", "EXECUTING", names_its_call),
                ("tool_effect", "EXECUTING", "COMPLETED", names_its_call),
                ("tool_effect", "EXECUTING", "FAILED", names_its_call),
            ];
            last.to_state == entry.from_state
                && rows
                    .into_iter()
                    .any(|(kind, from, to, complete)| (kind, from, to) == row && complete)
        }
    }
}

fn check_chain(tail: &Tail, accepted: &[Entry]) {
    assert!(accepted.len() <= 4, "the machine has no path of more than four entries");
    for ((number, entry), next) in (1..).zip(accepted).zip(accepted.iter().skip(1)) {
        assert_eq!(entry.sequence_number, number);
        assert_eq!(next.prev_entry_digest, entry.entry_digest);
        assert_eq!(next.from_state, entry.to_state);
        assert!(!entry.to_state.is_terminal(), "nothing follows a terminal state");
    }
    assert_eq!(tail.state, accepted.last().map(|entry| entry.to_state));
}
