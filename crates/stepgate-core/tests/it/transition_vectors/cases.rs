//! What may follow a log, what may not, and what recovery does with what a crash left.

use serde_json::json;
use stepgate_core::approval::ApprovalStatus;
use stepgate_core::digest::Digest;
use stepgate_core::ids::IdempotencyKey;
use stepgate_core::journal::{Checkpoint, Entry, Kind};
use stepgate_core::machine::State;

use super::model::{Append, CheckpointCase, Judge, Prefix, Recovery, Row, Trace};
use super::traces;

const OK: &str = "OK";
const GAP: &str = "STATE_SEQUENCE_GAP";
const CHECKSUM: &str = "STATE_CHECKSUM_MISMATCH";
const TRANSITION: &str = "STATE_INVALID_TRANSITION";
const RECOVERY: &str = "STATE_RECOVERY_FAILED";

fn prefix(trace: &Trace, entries: usize) -> Prefix {
    Prefix { trace: trace.name.clone(), entries }
}

fn redigested(mut entry: Entry) -> Entry {
    entry.entry_digest = entry.recomputed_digest();
    entry
}

fn named<'a>(traces: &'a [Trace], name: &str) -> &'a Trace {
    traces.iter().find(|trace| trace.name == name).unwrap()
}

pub(crate) fn appends(traces: &[Trace]) -> Vec<Append> {
    let completed = named(traces, "read_completed");
    let mut cases = valid(traces);
    cases.extend(illegal_pairs(traces));
    cases.extend(wrong_genesis(completed));
    cases.extend(wrong_places(completed));
    cases.extend(wrong_digests(completed, named(traces, "read_failed")));
    cases.extend(calls_without_id(completed));
    cases.extend(order_of_checks(completed));
    cases.extend(wrong_artifacts(completed, named(traces, "read_failed")));
    cases
}

/// Every entry of every trace, after those before it.
fn valid(traces: &[Trace]) -> Vec<Append> {
    let cases = traces.iter().flat_map(|trace| {
        trace.log.iter().enumerate().map(|(at, row)| Append {
            name: format!("{} entry {}", trace.name, at + 1),
            to: prefix(trace, at),
            row: row.clone(),
            judged_by: Judge::Entry,
            expected: OK.into(),
        })
    });
    cases.collect()
}

/// Each of the 31 pairs that are neither one of the five nor genesis, in its own state, with right
/// sequence, link and digest, and the kind of artifact that leads into such a state.
fn illegal_pairs(traces: &[Trace]) -> Vec<Append> {
    let legal = [
        (State::Pending, State::Authorized),
        (State::Pending, State::Denied),
        (State::Authorized, State::Executing),
        (State::Executing, State::Completed),
        (State::Executing, State::Failed),
    ];
    let pairs = State::ALL.into_iter().flat_map(|from| State::ALL.map(|to| (from, to)));
    let cases = pairs.filter(|pair| !legal.contains(pair)).map(|(from, to)| {
        let (trace, entries) = match from {
            State::Pending => ("read_completed", 1),
            State::Authorized => ("read_completed", 2),
            State::Executing => ("read_completed", 3),
            State::Completed => ("read_completed", 4),
            State::Failed => ("read_failed", 4),
            State::Denied => ("read_denied", 2),
        };
        // The row of a whole trace that really led into such a state gives the artifact.
        let (source, at) = match to {
            State::Pending => ("read_completed", 0),
            State::Authorized => ("read_completed", 1),
            State::Executing => ("read_completed", 2),
            State::Completed => ("read_completed", 3),
            State::Failed => ("read_failed", 3),
            State::Denied => ("read_denied", 1),
        };
        let to_log = prefix(named(traces, trace), entries);
        let Row { entry, artifact } = named(traces, source).log[at].clone();
        let last = &named(traces, trace).log[entries - 1].entry;
        let entry = redigested(Entry {
            sequence_number: last.sequence_number + 1,
            prev_entry_digest: last.entry_digest,
            from_state: from,
            ..entry
        });
        Append {
            name: format!("illegal {from} to {to}"),
            to: to_log,
            row: Row { entry, artifact },
            judged_by: Judge::Entry,
            expected: TRANSITION.into(),
        }
    });
    cases.collect()
}

fn changed(
    name: &str,
    trace: &Trace,
    at: usize,
    expected: &str,
    change: impl Fn(&mut Entry),
) -> Append {
    let mut row = trace.log[at].clone();
    change(&mut row.entry);
    Append {
        name: name.into(),
        to: prefix(trace, at),
        row,
        judged_by: Judge::Entry,
        expected: expected.into(),
    }
}

fn changed_and_redigested(
    name: &str,
    trace: &Trace,
    at: usize,
    expected: &str,
    change: impl Fn(&mut Entry),
) -> Append {
    let mut case = changed(name, trace, at, expected, change);
    case.row.entry = redigested(case.row.entry);
    case
}

fn wrong_genesis(trace: &Trace) -> Vec<Append> {
    let check = |name, expected, change: fn(&mut Entry)| {
        changed_and_redigested(name, trace, 0, expected, change)
    };
    let mut decision_first =
        Append { to: prefix(trace, 0), ..valid(std::slice::from_ref(trace)).remove(1) };
    decision_first.name = "genesis with a decision".into();
    decision_first.expected = TRANSITION.into();
    decision_first.row.entry = redigested(Entry {
        sequence_number: 1,
        prev_entry_digest: Digest::ZERO,
        ..decision_first.row.entry
    });
    vec![
        check("genesis with sequence number 0", GAP, |entry| entry.sequence_number = 0),
        check("genesis with sequence number 2", GAP, |entry| entry.sequence_number = 2),
        check("genesis with a predecessor", CHECKSUM, |entry| {
            entry.prev_entry_digest = entry.artifact_digest;
        }),
        check("genesis into AUTHORIZED", TRANSITION, |entry| entry.to_state = State::Authorized),
        check("genesis from EXECUTING", TRANSITION, |entry| entry.from_state = State::Executing),
        decision_first,
    ]
}

/// Gaps, duplicates, and a `from_state` that is not the current one.
fn wrong_places(trace: &Trace) -> Vec<Append> {
    let place = |name: &str, entries, at: usize, expected: &str| Append {
        name: name.into(),
        to: prefix(trace, entries),
        row: trace.log[at].clone(),
        judged_by: Judge::Entry,
        expected: expected.into(),
    };
    let relabelled = |name, at, number| {
        changed_and_redigested(name, trace, at, GAP, move |entry| entry.sequence_number = number)
    };
    vec![
        place("gap after genesis", 1, 2, GAP),
        place("gap at the start", 0, 1, GAP),
        place("gap of two", 1, 3, GAP),
        place("duplicate of genesis", 1, 0, GAP),
        place("duplicate of the last entry", 3, 2, GAP),
        place("duplicate of an older entry", 4, 1, GAP),
        relabelled("the right entry under the number after its own", 2, 4),
        relabelled("the right entry under the number before its own", 2, 2),
        relabelled("the right entry under the greatest number", 2, 9_007_199_254_740_991),
        changed_and_redigested(
            "from_state is not the current state",
            trace,
            2,
            TRANSITION,
            |entry| {
                entry.from_state = State::Pending;
            },
        ),
    ]
}

fn wrong_digests(trace: &Trace, other: &Trace) -> Vec<Append> {
    let foreign = other.log[1].entry.entry_digest;
    vec![
        changed_and_redigested("previous digest of zeros", trace, 2, CHECKSUM, |entry| {
            entry.prev_entry_digest = Digest::ZERO;
        }),
        changed_and_redigested("previous digest of another trace", trace, 2, CHECKSUM, |entry| {
            entry.prev_entry_digest = foreign;
        }),
        changed_and_redigested("previous digest is the artifact's", trace, 2, CHECKSUM, |entry| {
            entry.prev_entry_digest = entry.artifact_digest;
        }),
        changed("entry digest of zeros", trace, 2, CHECKSUM, |entry| {
            entry.entry_digest = Digest::ZERO;
        }),
        changed("a later instant under the same digest", trace, 2, CHECKSUM, |entry| {
            entry.ts = entry.ts.plus_ms(1);
        }),
        changed("another key under the same digest", trace, 2, CHECKSUM, |entry| {
            let key = "agent/550e8400-e29b-41d4-a716-446655440000";
            entry.idempotency_key = Some(IdempotencyKey::from_stored(key.into()));
        }),
        changed("another artifact under the same digest", trace, 2, CHECKSUM, |entry| {
            entry.artifact_digest = Digest::ZERO;
        }),
    ]
}

fn calls_without_id(trace: &Trace) -> Vec<Append> {
    let check = |name, at, change: fn(&mut Entry)| {
        changed_and_redigested(name, trace, at, TRANSITION, change)
    };
    vec![
        check("tool_call without tool_call_id", 2, |entry| entry.tool_call_id = None),
        check("tool_call without idempotency_key", 2, |entry| entry.idempotency_key = None),
        check("tool_effect without tool_call_id", 3, |entry| entry.tool_call_id = None),
        check("tool_effect without idempotency_key", 3, |entry| entry.idempotency_key = None),
    ]
}

/// Two things wrong at once: sequence, previous digest, transition, digest, in this order.
fn order_of_checks(trace: &Trace) -> Vec<Append> {
    vec![
        changed_and_redigested("gap before previous digest", trace, 2, GAP, |entry| {
            entry.sequence_number = 9;
            entry.prev_entry_digest = Digest::ZERO;
        }),
        changed_and_redigested("previous digest before transition", trace, 2, CHECKSUM, |entry| {
            entry.prev_entry_digest = Digest::ZERO;
            entry.to_state = State::Completed;
        }),
        changed("transition before digest", trace, 2, TRANSITION, |entry| {
            entry.to_state = State::Completed;
        }),
        changed("gap before everything", trace, 2, GAP, |entry| {
            entry.sequence_number = 9;
            entry.prev_entry_digest = Digest::ZERO;
            entry.to_state = State::Completed;
        }),
    ]
}

/// Entries that are sound in themselves, over artifacts that are not what they say.
fn wrong_artifacts(trace: &Trace, other: &Trace) -> Vec<Append> {
    let judged = |judged_by, case: Append| Append { judged_by, ..case };
    let case = |name: &str, at, change: &dyn Fn(&mut Row)| {
        let mut case = changed(name, trace, at, CHECKSUM, |_| ());
        change(&mut case.row);
        case.row.entry = redigested(case.row.entry);
        case
    };
    let by_artifact =
        |name, at, change: &dyn Fn(&mut Row)| judged(Judge::Artifact, case(name, at, change));
    vec![
        by_artifact("arguments changed in the call", 2, &|row| {
            row.artifact["call"]["args"]["path"] = json!("/sandbox/other.txt");
        }),
        by_artifact("digest changed in the call", 2, &|row| {
            row.artifact["_digest"] = json!(Digest::ZERO);
        }),
        by_artifact("a key too many in the call", 2, &|row| row.artifact["extra"] = json!(1)),
        by_artifact("entry names another artifact", 2, &|row| {
            row.entry.artifact_id = traces::id_text(0, 99).parse().unwrap();
        }),
        by_artifact("entry has another instant than its artifact", 2, &|row| {
            row.entry.ts = row.entry.ts.plus_ms(1);
        }),
        by_artifact("entry says FAILED of a success", 3, &|row| row.entry.to_state = State::Failed),
        by_artifact("entry says COMPLETED of a failure", 3, &|row| {
            row.artifact = other.log[3].artifact.clone();
            row.entry.artifact_digest = other.log[3].entry.artifact_digest;
            row.entry.artifact_id = other.log[3].entry.artifact_id;
        }),
        by_artifact("entry says DENIED of an approval", 1, &|row| {
            row.entry.to_state = State::Denied;
        }),
        judged(
            Judge::Reference,
            case("effect names another call", 3, &|row| {
                row.artifact["tool_call_digest"] = json!(Digest::ZERO);
                row.artifact.as_object_mut().unwrap().remove("_digest");
                let digest = Digest::of(&row.artifact);
                row.artifact["_digest"] = json!(digest);
                row.entry.artifact_digest = digest;
            }),
        ),
    ]
}

pub(crate) fn checkpoints(traces: &[Trace]) -> Vec<CheckpointCase> {
    let completed = named(traces, "read_completed");
    let whole = || prefix(completed, completed.log.len());
    let case = |name: &str, log, checkpoint: &Checkpoint, expected: &str| CheckpointCase {
        name: name.into(),
        log,
        checkpoint: checkpoint.clone(),
        expected: expected.into(),
    };
    let sound = |trace: &Trace| {
        case(
            &format!("{} at its end", trace.name),
            prefix(trace, trace.log.len()),
            &trace.checkpoint,
            OK,
        )
    };
    let changed = |name, change: fn(&mut Checkpoint)| {
        let mut checkpoint = completed.checkpoint.clone();
        change(&mut checkpoint);
        case(name, whole(), &checkpoint, CHECKSUM)
    };
    let mut cases: Vec<_> = traces.iter().map(sound).collect();
    cases.extend([
        changed("digest of zeros", |checkpoint| checkpoint.checkpoint_digest = Digest::ZERO),
        changed("another state under the same digest", |checkpoint| {
            checkpoint.checkpoint_state.current_state = State::Failed;
        }),
        changed("another state with its digest", |checkpoint| {
            checkpoint.checkpoint_state.current_state = State::Failed;
            checkpoint.checkpoint_digest = Digest::of(&checkpoint.checkpoint_state);
        }),
        changed("another entry digest with its digest", |checkpoint| {
            checkpoint.checkpoint_state.last_entry_digest = Digest::ZERO;
            checkpoint.checkpoint_digest = Digest::of(&checkpoint.checkpoint_state);
        }),
        changed("another instant than its entry", |checkpoint| {
            checkpoint.ts = checkpoint.ts.plus_ms(1);
        }),
        changed("two numbers", |checkpoint| checkpoint.checkpoint_sequence_number = 3),
        case("of another trace", whole(), &named(traces, "read_failed").checkpoint, CHECKSUM),
        case("beyond the end of the log", prefix(completed, 3), &completed.checkpoint, GAP),
    ]);
    cases
}

/// Every length of every trace: what a crash after that entry needs.
pub(crate) fn recoveries(traces: &[Trace]) -> Vec<Recovery> {
    let mut cases = Vec::new();
    for trace in traces {
        for entries in 0..=trace.log.len() {
            let last = entries.checked_sub(1).map(|at| &trace.log[at].entry);
            let expected = match last.map(|entry| entry.artifact_type) {
                None => RECOVERY,
                Some(Kind::ActionRequest) => "decide",
                Some(Kind::SupervisorDecision) if trace.name == "read_denied" => "read",
                Some(Kind::SupervisorDecision) => "dispatch",
                Some(Kind::ToolCall) => "redispatch",
                Some(Kind::ToolEffect) => "read",
            };
            let again = last.filter(|_| expected == "redispatch");
            cases.push(Recovery {
                name: format!("{} after {entries}", trace.name),
                log: prefix(trace, entries),
                approval: None,
                expected: expected.into(),
                tool_call_id: again.and_then(|entry| entry.tool_call_id),
                idempotency_key: again.and_then(|entry| entry.idempotency_key.clone()),
            });
        }
    }
    cases.push(Recovery {
        name: "a person is asked".into(),
        log: prefix(named(traces, "write_completed_after_approval"), 1),
        approval: Some(ApprovalStatus::Pending),
        expected: "wait".into(),
        tool_call_id: None,
        idempotency_key: None,
    });
    cases
}
