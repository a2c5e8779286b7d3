//! Artifacts, checkpoints and states: what their digests cover, and which changes are detected.

use serde_json::{Map, Value, json};

use super::{
    effect, entries_to, id, journal, journal_at, key, read, redigested, run_id, session_id,
    text_id, ts, way_to,
};
use crate::digest::Digest;
use crate::ids::IdempotencyKey;
use crate::journal::artifact::{EffectStatus, Invocation};
use crate::journal::{Checkpoint, Entry, ExecutionState, Kind, Sealed, StateCode, Tail, replay};
use crate::json::canonical;
use crate::machine::State;

#[test]
fn an_entry_proves_its_artifact() {
    for state in State::ALL {
        for (appended, (artifact, _)) in entries_to(state).iter().zip(way_to(state)) {
            assert_eq!(appended.prove(), Ok(artifact));
        }
    }
}

/// The artifact is valid in itself, but its entry does not describe it.
#[test]
fn an_entry_that_does_not_describe_its_artifact_is_a_checksum_mismatch() {
    let appended = entries_to(State::Completed).remove(3);
    let changes: [fn(&mut Entry); 6] = [
        |entry| entry.artifact_digest = Digest::ZERO,
        |entry| entry.artifact_id = id(99),
        |entry| entry.ts = ts(99),
        |entry| entry.to_state = State::Failed,
        |entry| entry.artifact_type = Kind::ToolCall,
        |entry| entry.trace_id = text_id(98).parse().unwrap(),
    ];
    for (at, change) in changes.into_iter().enumerate() {
        let mut changed = appended.clone();
        change(&mut changed.entry);
        changed.entry = redigested(changed.entry);
        let error = changed.prove().unwrap_err();
        assert_eq!(error.code, StateCode::ChecksumMismatch, "change {at}");
    }
}

#[test]
fn a_failed_effect_under_an_entry_that_says_completed_is_found() {
    let mut appended = entries_to(State::Completed).remove(3);
    appended.artifact = effect(EffectStatus::Failure).seal();
    appended.entry.artifact_digest = appended.artifact.digest;
    appended.entry = redigested(appended.entry);
    let error = appended.prove().unwrap_err();
    assert_eq!(error.code, StateCode::ChecksumMismatch);
}

#[test]
fn a_sealed_text_is_canonical_and_names_its_digest() {
    for (artifact, _) in way_to(State::Completed) {
        let sealed = artifact.seal();
        let mut value: Value = serde_json::from_str(&sealed.text).unwrap();
        assert_eq!(canonical::text_of(&value), sealed.text);
        let named = value.as_object_mut().unwrap().remove("_digest");
        assert_eq!(named, Some(json!(sealed.digest)));
        assert_eq!(Digest::of(&value), sealed.digest);
        let (opened, same) = Sealed::open(sealed.kind, &sealed.text).unwrap();
        assert_eq!((opened, same), (sealed, artifact));
    }
}

fn resealed(kind: Kind, change: impl Fn(&mut Map<String, Value>)) -> String {
    let at = Kind::ALL.iter().position(|other| *other == kind).unwrap();
    let text = way_to(State::Completed).remove(at).0.seal().text;
    let Value::Object(mut members) = serde_json::from_str(&text).unwrap() else { unreachable!() };
    members.remove("_digest");
    change(&mut members);
    let digest = Digest::of(&members);
    members.insert("_digest".into(), json!(digest));
    canonical::text_of(&members)
}

#[test]
fn a_text_that_was_touched_does_not_open() {
    let kind = Kind::ToolEffect;
    let text = effect(EffectStatus::Success).seal().text;
    assert_eq!(resealed(kind, |_| ()), text, "untouched, it is the same text");
    for broken in [
        text.replace("SUCCESS", "FAILURE"),
        text.replace("\"_digest\":\"", "\"_digest\":\"0"),
        text.replace(',', ", "),
        format!("{text} "),
        format!(" {text}"),
        text.replacen('{', "{\"_digest\":\"x\",", 1),
        text.replacen("{\"_digest\"", "{\"_dig\\u0065st\"", 1),
        text[..text.len() - 1].to_owned(),
        "null".to_owned(),
        "{}".to_owned(),
        String::new(),
    ] {
        let error = Sealed::open(kind, &broken).unwrap_err();
        assert_eq!(error.code, StateCode::ChecksumMismatch, "{broken}");
    }
    for other in [Kind::ActionRequest, Kind::SupervisorDecision, Kind::ToolCall] {
        assert!(Sealed::open(other, &text).is_err());
    }
}

#[test]
fn an_artifact_with_a_good_digest_and_a_wrong_shape_does_not_open() {
    for kind in Kind::ALL {
        let opens = |text: String| Sealed::open(kind, &text).map_err(|error| error.code);
        assert!(opens(resealed(kind, |_| ())).is_ok());
        let changes: [fn(&mut Map<String, Value>); 7] = [
            |members| drop(members.insert("extra".into(), json!(1))),
            |members| drop(members.remove("trace_id")),
            |members| drop(members.insert("schema_id".into(), json!("talos.tga.other"))),
            |members| drop(members.insert("schema_version".into(), json!("tga.v2"))),
            |members| drop(members.insert("_digest_alg".into(), json!("sha1"))),
            |members| drop(members.insert("ts".into(), json!("2023-11-14T22:13:20Z"))),
            |members| drop(members["meta"].as_object_mut().unwrap().insert("x".into(), json!(1))),
        ];
        for (at, change) in changes.into_iter().enumerate() {
            let judged = opens(resealed(kind, change));
            assert_eq!(judged, Err(StateCode::ChecksumMismatch), "{kind:?} change {at}");
        }
    }
}

#[test]
fn a_checkpoint_s_digest_covers_its_state_alone() {
    for state in State::ALL {
        let tail = *journal_at(state).tail();
        let checkpoint = Checkpoint::of(run_id(), session_id(), &tail, ts(9)).unwrap();
        assert_eq!(checkpoint.checkpoint_digest, Digest::of(&checkpoint.checkpoint_state));
        assert_eq!(checkpoint.checkpoint_state.current_state, state);
        assert!(checkpoint.is_sound());
        assert!(checkpoint.fixes(&tail));
        for other in State::ALL.into_iter().filter(|other| *other != state) {
            assert!(!checkpoint.fixes(journal_at(other).tail()), "{state} {other}");
        }
        assert!(!checkpoint.fixes(&Tail::EMPTY));
    }
    assert_eq!(Checkpoint::of(run_id(), session_id(), &Tail::EMPTY, ts(9)), None);
}

#[test]
fn a_checkpoint_that_was_touched_is_not_sound() {
    let tail = *journal_at(State::Executing).tail();
    let sound = Checkpoint::of(run_id(), session_id(), &tail, ts(9)).unwrap();
    let changes: [fn(&mut Checkpoint); 8] = [
        |checkpoint| checkpoint.checkpoint_digest = Digest::ZERO,
        |checkpoint| checkpoint.checkpoint_sequence_number += 1,
        |checkpoint| checkpoint.trace_id = text_id(98).parse().unwrap(),
        |checkpoint| checkpoint.checkpoint_state.current_state = State::Pending,
        |checkpoint| checkpoint.checkpoint_state.last_entry_digest = Digest::ZERO,
        |checkpoint| checkpoint.checkpoint_state.last_sequence_number += 1,
        |checkpoint| checkpoint.checkpoint_state.plan_id = text_id(98).parse().unwrap(),
        |checkpoint| checkpoint.checkpoint_state.trace_id = text_id(98).parse().unwrap(),
    ];
    for (at, change) in changes.into_iter().enumerate() {
        let mut checkpoint = sound.clone();
        change(&mut checkpoint);
        assert!(!checkpoint.is_sound(), "change {at}");
    }
}

#[test]
fn a_state_s_digest_covers_every_other_field() {
    for state in State::ALL {
        let found = ExecutionState::of(run_id(), session_id(), journal_at(state).tail()).unwrap();
        let mut value = serde_json::to_value(&found).unwrap();
        let named = value.as_object_mut().unwrap().remove("state_digest").unwrap();
        assert_eq!(named, json!(Digest::of(&value)));
        assert_eq!(found.current_state, state);
    }
    assert_eq!(ExecutionState::of(run_id(), session_id(), &Tail::EMPTY), None);
}

#[test]
fn arguments_with_a_private_name_of_the_library_open_as_they_were_sealed() {
    let text = resealed(Kind::ToolCall, |members| {
        let inner = json!({"$serde_json::private::RawValue": "{\"path\":\"/sandbox/b\"}"});
        members["call"]["args"] = json!({ "x": inner });
        members["meta"]["pre_state"] = json!({ "x": inner });
    });
    let (_, artifact) = Sealed::open(Kind::ToolCall, &text).unwrap();
    assert_eq!(artifact.seal().text, text);
}

#[test]
fn an_entry_under_another_call_or_key_than_its_artifact_proves_nothing() {
    let entries = entries_to(State::Completed);
    let other = IdempotencyKey::from_stored("agent/other".into());
    for (at, entry) in entries.iter().enumerate() {
        let is_about_a_call = at >= 2;
        let mut changes = vec![(Some(id(77)), entry.entry.idempotency_key.clone())];
        if at == 2 {
            changes.push((entry.entry.tool_call_id, Some(other.clone())));
        }
        changes.push((entry.entry.tool_call_id, if is_about_a_call { None } else { Some(key()) }));
        for (tool_call_id, idempotency_key) in changes {
            let mut changed = entry.clone();
            changed.entry.tool_call_id = tool_call_id;
            changed.entry.idempotency_key = idempotency_key;
            let refused = changed.prove().unwrap_err();
            assert_eq!(refused.code, StateCode::ChecksumMismatch, "{at}");
        }
        entry.prove().unwrap();
    }
}

#[test]
fn a_journal_s_own_checkpoint_fixes_it_and_an_empty_one_has_none() {
    assert_eq!(journal().checkpoint(), None);
    for state in State::ALL {
        let checkpoint = journal_at(state).checkpoint().unwrap();
        let entries = entries_to(state);
        assert_eq!(checkpoint.checkpoint_sequence_number, entries.len() as u64);
        assert_eq!(checkpoint.ts, entries.last().unwrap().entry.ts);
        replay(&entries).unwrap().check(&checkpoint).unwrap();
    }
}

#[test]
fn kinds_are_read_back_as_they_are_spelled() {
    let kinds = [Kind::ActionRequest, Kind::SupervisorDecision, Kind::ToolCall, Kind::ToolEffect];
    for kind in kinds {
        assert_eq!(Kind::parse(kind.as_str()), Some(kind));
    }
    assert_eq!(Kind::parse("action"), None);
}

#[test]
fn an_invocation_names_a_core_action_bare_and_a_tool_with_its_server() {
    assert_eq!(read().action(), "READ_FILE");
    let tool = Invocation { tool_name: "set_volume".into(), tool_server: "sonos".into(), ..read() };
    assert_eq!(tool.action(), "sonos.set_volume");
}

#[test]
fn only_a_gap_and_another_digest_tell_that_a_journal_ends_elsewhere() {
    let about_the_tail: Vec<_> =
        StateCode::ALL.into_iter().filter(|code| code.is_about_the_tail()).collect();
    assert_eq!(about_the_tail, [StateCode::SequenceGap, StateCode::ChecksumMismatch]);
}
