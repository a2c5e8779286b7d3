//! `test_vectors/tga/state_transition_vectors.json`: made here, kept equal here, and judged here by
//! the same functions that store, recovery and `verify` use.

mod cases;
mod model;
mod traces;

use std::collections::BTreeSet;
use std::path::PathBuf;

use stepgate_core::digest::Digest;
use stepgate_core::journal::{Appended, Replayed, StateError, Tail, replay};
use stepgate_core::machine::State;
use stepgate_core::recover::{Remedy, remedy};

pub(crate) use model::{Judge, Row, Trace, Vectors};

fn file() -> PathBuf {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.join("test_vectors/tga/state_transition_vectors.json")
}

/// The vectors as they are published.
pub(crate) fn published() -> Vectors {
    serde_json::from_str(&std::fs::read_to_string(file()).unwrap()).unwrap()
}

fn generated() -> Vectors {
    let traces = traces::all();
    let about = [
        "Journals of spec 004 with real digests: SHA-256 over the RFC 8785 form of an object \
         without its own digest field.",
        "traces: whole journals, valid at every length.",
        "appends: a row that is appended to the first entries of a trace, with OK or the code of \
         its refusal; judged_by says how much must be looked at to see it.",
        "checkpoints: a checkpoint that is read with a log, with OK or the code of its refusal.",
        "recoveries: a log that a crash left, with what recovery does: decide, wait, dispatch, \
         redispatch with the same tool_call_id and idempotency_key, or read.",
    ];
    Vectors {
        about: about.map(str::to_owned).into(),
        appends: cases::appends(&traces),
        checkpoints: cases::checkpoints(&traces),
        recoveries: cases::recoveries(&traces),
        traces,
    }
}

fn code<T>(judged: Result<T, StateError>) -> &'static str {
    match judged {
        Ok(_) => "OK",
        Err(error) => error.code.as_str(),
    }
}

fn tail_of(log: &[Appended]) -> Tail {
    log.iter().fold(Tail::EMPTY, |tail, appended| tail.accept(&appended.entry).unwrap())
}

#[test]
fn the_published_vectors_are_the_generated_ones() {
    let text = serde_json::to_string_pretty(&generated()).unwrap() + "\n";
    if std::env::var_os("STEPGATE_BLESS").is_some() {
        std::fs::write(file(), &text).unwrap();
    }
    let published = std::fs::read_to_string(file()).unwrap();
    assert!(text == published, "run the test with STEPGATE_BLESS=1 and look at the difference");
}

#[test]
fn every_trace_replays_to_its_state_and_checkpoint() {
    let vectors = published();
    for trace in &vectors.traces {
        let log: Vec<_> = trace.log.iter().map(Row::appended).collect();
        let replayed = replay(&log).unwrap();
        assert_eq!(replayed.references.len(), log.len());
        let state = &trace.state;
        assert_eq!(replayed.tail.state, Some(state.current_state), "{}", trace.name);
        assert_eq!(replayed.tail.entry_digest, state.last_entry_digest, "{}", trace.name);
        assert_eq!(replayed.tail.sequence_number, state.last_sequence_number, "{}", trace.name);
        let mut covered = serde_json::to_value(state).unwrap();
        covered.as_object_mut().unwrap().remove("state_digest");
        assert_eq!(state.state_digest, Digest::of(&covered), "{}", trace.name);
        assert_eq!(replayed.check(&trace.checkpoint), Ok(()), "{}", trace.name);
    }
    let ends: BTreeSet<_> =
        vectors.traces.iter().map(|trace| trace.state.current_state.as_str()).collect();
    assert_eq!(ends, BTreeSet::from(["COMPLETED", "DENIED", "FAILED"]));
}

#[test]
fn every_append_is_judged_as_published() {
    let vectors = published();
    for case in &vectors.appends {
        let mut log = vectors.log(&case.to);
        let tail = tail_of(&log);
        let appended = case.row.appended();
        let by_entry = code(tail.accept(&appended.entry));
        let by_artifact = code(appended.prove());
        log.push(appended);
        assert_eq!(code(replay(&log)), case.expected, "{}", case.name);
        match case.judged_by {
            Judge::Entry => assert_eq!(by_entry, case.expected, "{}", case.name),
            Judge::Artifact => {
                assert_eq!(
                    (by_entry, by_artifact),
                    ("OK", case.expected.as_str()),
                    "{}",
                    case.name
                );
            }
            Judge::Reference => assert_eq!((by_entry, by_artifact), ("OK", "OK"), "{}", case.name),
        }
    }
}

#[test]
fn the_vectors_hold_every_illegal_pair_and_every_code_of_an_append() {
    let vectors = published();
    let illegal: BTreeSet<_> = vectors
        .appends
        .iter()
        .filter(|case| case.name.starts_with("illegal "))
        .map(|case| {
            assert_eq!(case.expected, "STATE_INVALID_TRANSITION");
            (case.row.entry.from_state.as_str(), case.row.entry.to_state.as_str())
        })
        .collect();
    assert_eq!(illegal.len(), State::ALL.len() * State::ALL.len() - 5);
    let codes: BTreeSet<_> = vectors.appends.iter().map(|case| case.expected.as_str()).collect();
    let all = ["OK", "STATE_CHECKSUM_MISMATCH", "STATE_INVALID_TRANSITION", "STATE_SEQUENCE_GAP"];
    assert_eq!(codes, BTreeSet::from(all));
    let names: BTreeSet<_> = vectors.appends.iter().map(|case| &case.name).collect();
    assert_eq!(names.len(), vectors.appends.len(), "every name is used once");
}

#[test]
fn every_checkpoint_is_judged_as_published() {
    let vectors = published();
    for case in &vectors.checkpoints {
        let replayed = replay(&vectors.log(&case.log)).unwrap();
        assert_eq!(code(replayed.check(&case.checkpoint)), case.expected, "{}", case.name);
    }
}

#[test]
fn every_recovery_does_what_is_published() {
    let vectors = published();
    for case in &vectors.recoveries {
        let log = vectors.log(&case.log);
        let Replayed { tail, .. } = replay(&log).unwrap();
        let found = match tail.state.map(|state| remedy(state, case.approval)) {
            None => "STATE_RECOVERY_FAILED",
            Some(Remedy::Decide) => "decide",
            Some(Remedy::Wait) => "wait",
            Some(Remedy::Dispatch) => "dispatch",
            Some(Remedy::Redispatch) => "redispatch",
            Some(Remedy::Read) => "read",
            Some(Remedy::Quarantine) => "quarantine",
        };
        assert_eq!(found, case.expected, "{}", case.name);
        let last = log.last().map(|appended| appended.entry.clone());
        let again = last.filter(|_| found == "redispatch");
        let call = again.as_ref().and_then(|entry| entry.tool_call_id);
        assert_eq!(call, case.tool_call_id, "{}", case.name);
        let key = again.and_then(|entry| entry.idempotency_key);
        assert_eq!(key, case.idempotency_key, "{}", case.name);
    }
}
