use serde_json::{Value, json};

use super::{Part, Problems, follows_from, is_lowered, is_summary, outcome_fits, part};
use crate::approval::{Approval, ApprovalContext, ApprovalStatus, Resolution, StoredContext};
use crate::approvers::Required;
use crate::digest::Digest;
use crate::event::EventType;
use crate::failure::Outcome;
use crate::ids::{ArtifactId, IdempotencyKey, PrincipalId, RunId, SessionId};
use crate::journal::artifact::{
    ActionRequest, CallMeta, DecisionMeta, Head, Invocation, RequestMeta, RiskLevel,
    SupervisorDecision, ToolCall, ToolClass, Verdict,
};
use crate::journal::{Artifact, Journal, Replayed, replay};
use crate::machine::State;
use crate::record::args_summary;
use crate::run::{Arrival, Payload, Run, Status};
use crate::time::Timestamp;

#[test]
fn a_cap_that_does_not_lower_what_was_asked_explains_no_call() {
    let asked = |args: Value| Invocation {
        args,
        tool_name: "set_volume".into(),
        tool_server: "sonos".into(),
    };
    let rows = [
        (json!({ "volume": 90 }), None, Some(json!({ "volume": 90 }))),
        (json!({ "volume": 90 }), Some(json!({ "volume": 30 })), Some(json!({ "volume": 30 }))),
        (json!({ "volume": 30.5 }), Some(json!({ "volume": 30 })), Some(json!({ "volume": 30 }))),
        (json!({ "volume": 30 }), Some(json!({ "volume": 30 })), None),
        (json!({ "volume": 20 }), Some(json!({ "volume": 30 })), None),
        (json!({ "volume": "90" }), Some(json!({ "volume": 30 })), None),
        (json!({ "volume": 90 }), Some(json!({ "volume": 30.5 })), None),
        (json!({}), Some(json!({ "volume": 30 })), None),
    ];
    for (args, cap, expected) in rows {
        for call in [json!({ "volume": 90 }), json!({ "volume": 30 }), args.clone()] {
            let follows = is_lowered(&asked(args.clone()), cap.as_ref(), &asked(call.clone()));
            assert_eq!(follows, expected.as_ref() == Some(&call), "{args} {cap:?} {call}");
        }
    }
}

fn id(number: u8) -> ArtifactId {
    format!("01893b6e-7a00-7000-8000-0000000000{number:02x}").parse().unwrap()
}

fn run_id() -> RunId {
    RunId::new(id(1).as_uuid())
}

fn session_id() -> SessionId {
    SessionId::new(id(2).as_uuid())
}

fn run() -> Run {
    let arrival = Arrival {
        run_id: run_id(),
        session_id: session_id(),
        principal_id: person("agent"),
        step_index: 1,
        received_at: Timestamp::from_millisecond(0),
        payload: Payload::whole(&b"{}"[..]),
    };
    Run { arrival, tool_name: None, input_json: None, status: Status::Started, ending: None }
}

/// A sound journal in which one volume was asked for, and another one was called under these caps.
fn called(asked: u8, cap: Option<Value>, called: u8) -> Replayed {
    let volume = |volume: u8| Invocation {
        args: json!({ "volume": volume }),
        tool_name: "set_volume".into(),
        tool_server: "sonos".into(),
    };
    let key = IdempotencyKey::from_stored("agent/1".into());
    let mut journal = Journal::empty(run_id(), session_id());
    let head = |number| Head {
        id: id(number),
        trace_id: run_id(),
        plan_id: session_id(),
        ts: Timestamp::from_millisecond(0),
    };
    let meta = RequestMeta { asked_digest: Digest::ZERO, principal_id: person("agent") };
    let (name, intent) = (person("agent"), "Set the volume".into());
    let (proposal, risk) = (volume(asked), RiskLevel::Write);
    let own = Some(key.clone());
    let request =
        ActionRequest::new(head(3), id(3), name, own, intent, meta, proposal, vec![], risk);
    let request = journal.advance(Artifact::ActionRequest(request), None).unwrap();
    let meta = DecisionMeta { cap, ..DecisionMeta::default() };
    let (digest, approve, why) = (request.digest, Verdict::Approve, "allowed".into());
    let decision =
        SupervisorDecision::new(head(4), digest, request.id, approve, meta, None, why, id(4));
    let decision = journal.advance(Artifact::SupervisorDecision(decision), None).unwrap();
    let (own, meta, class) = (key.clone(), CallMeta::default(), ToolClass::Write);
    let call = ToolCall::new(
        head(5),
        volume(called),
        own,
        meta,
        decision.digest,
        decision.id,
        id(5),
        class,
    );
    journal.advance(Artifact::ToolCall(call), Some(key)).unwrap();
    replay(&journal.take_pending()).unwrap()
}

#[test]
fn a_call_that_is_not_the_request_is_found_in_a_journal_whose_digests_hold() {
    let cap = || Some(json!({ "volume": 30 }));
    let rows = [
        (90, None, 90, true),
        (90, cap(), 30, true),
        (90, None, 30, false),
        (90, cap(), 90, false),
    ];
    for (asked, cap, volume, follows) in rows {
        let (run, replayed) = (run(), called(asked, cap, volume));
        let mut problems = Problems::about(&run);
        problems.call(&replayed);
        assert_eq!(problems.found.is_empty(), follows, "{asked} {volume}: {:?}", problems.found);
    }
}

#[test]
fn a_run_opens_with_six_types_of_events_and_closes_with_three_others() {
    let opening: Vec<_> =
        EventType::ALL.into_iter().filter(|it| part(*it) == Part::Opens).collect();
    let closing: Vec<_> =
        EventType::ALL.into_iter().filter(|it| part(*it) == Part::Closes).collect();
    let expected = [
        EventType::ToolCalled,
        EventType::ApprovalRequested,
        EventType::GrantUsed,
        EventType::BudgetReserved,
        EventType::ErasableStored,
        EventType::PolicyDiffers,
    ];
    assert_eq!(opening.len(), expected.len());
    assert!(expected.iter().all(|it| opening.contains(it)), "{opening:?}");
    let [done, failed, refused] =
        [EventType::ToolSucceeded, EventType::ToolFailed, EventType::PolicyViolation];
    assert_eq!(closing.len(), 3);
    assert!([done, failed, refused].iter().all(|it| closing.contains(it)), "{closing:?}");
}

#[test]
fn each_end_of_a_journal_has_its_outcomes() {
    let fitting = [
        (Some(State::Completed), Outcome::Success),
        (Some(State::Failed), Outcome::ExecutionError),
        (Some(State::Failed), Outcome::Denied),
        (Some(State::Denied), Outcome::Denied),
        (None, Outcome::ValidationError),
        (None, Outcome::Denied),
    ];
    for state in State::ALL.into_iter().map(Some).chain([None]) {
        for outcome in Outcome::ALL {
            let expected = fitting.contains(&(state, outcome));
            assert_eq!(outcome_fits(state, outcome), expected, "{state:?} {outcome:?}");
        }
    }
}

#[test]
fn a_summary_is_the_value_with_long_texts_as_length_and_digest() {
    let short = |text: &str| args_summary(&json!(text), 0);
    let rows = [
        (json!("text"), json!("text"), true),
        (json!("text"), short("text"), true),
        (json!("text"), json!("test"), false),
        (json!("text"), short("test"), false),
        (json!("text"), json!({ "bytes": 4 }), false),
        (json!(1), json!(1), true),
        (json!(1), json!(1.0), true),
        (json!(1), json!(2), false),
        (json!(1), json!("1"), false),
        (json!(null), json!(null), true),
        (json!(null), json!(false), false),
        (json!(["a", 1]), json!([short("a"), 1]), true),
        (json!(["a", 1]), json!(["a", 2]), false),
        (json!(["a", 1]), json!(["a"]), false),
        (json!(["a"]), json!(["a", 1]), false),
        (json!({ "a": "b", "c": 1 }), json!({ "a": short("b"), "c": 1 }), true),
        (json!({ "a": "b", "c": 1 }), json!({ "a": "b", "c": 2 }), false),
        (json!({ "a": "b", "c": 1 }), json!({ "a": "b", "d": 1 }), false),
        (json!({ "a": "b", "c": 1 }), json!({ "a": "b" }), false),
        (json!({ "a": "b" }), json!({ "a": "b", "c": 1 }), false),
        (json!({}), json!([]), false),
    ];
    for (value, summary, expected) in rows {
        assert_eq!(is_summary(&value, &summary), expected, "{value} {summary}");
    }
}

fn person(name: &str) -> PrincipalId {
    PrincipalId::parse(name).unwrap()
}

/// A question that needs so many people; none where any operator may decide.
fn question(quorums: &[u32]) -> ApprovalContext {
    let ts = Timestamp::from_millisecond(0);
    let head = Head { id: id(3), trace_id: run_id(), plan_id: session_id(), ts };
    let required = |quorum: &u32| Required { approvers: [].into(), quorum: *quorum };
    ApprovalContext {
        args: json!({}),
        call_digest: Digest::ZERO,
        executor_id: None,
        expires_at: head.ts,
        needs_approval: SupervisorDecision::new(
            head,
            Digest::ZERO,
            head.id,
            Verdict::NeedsApproval,
            DecisionMeta::default(),
            None,
            "asked".into(),
            head.id,
        ),
        needs_approval_digest: Digest::of_bytes(b"asked"),
        pre_state: None,
        principal_id: person("agent"),
        reason: "asked".into(),
        required: quorums.iter().map(required).collect(),
        tool_name: "READ_FILE".into(),
        tool_server: "core".into(),
    }
}

fn decided(status: ApprovalStatus, asked: &ApprovalContext) -> Approval {
    let (approver_id, note) = (Some(person("eve")), Some("fine".to_owned()));
    let ts = Timestamp::from_millisecond(0);
    Approval {
        context: StoredContext::of(asked),
        approval_id: "01893b6e-7a00-7000-8000-000000000004".parse().unwrap(),
        resolution: Some(Resolution { approver_id, note, ts_resolved: ts }),
        status,
        tool_run_id: run_id(),
        ts_requested: ts,
    }
}

/// The decision that follows from an approval by eve, with these people in all.
fn meta(asked: &ApprovalContext, people: &[&str]) -> DecisionMeta {
    DecisionMeta {
        approval_id: Some("01893b6e-7a00-7000-8000-000000000004".parse().unwrap()),
        approver_id: Some(person("eve")),
        approver_ids: people.iter().map(|name| person(name)).collect(),
        needs_approval_digest: Some(asked.needs_approval_digest),
        note_digest: Some(Digest::of_bytes(b"fine")),
        ..DecisionMeta::default()
    }
}

#[test]
fn a_decision_names_its_approval_its_question_its_approver_and_the_note() {
    let asked = question(&[]);
    let approval = decided(ApprovalStatus::Approved, &asked);
    let follows = |meta: &DecisionMeta| follows_from(meta, Some(&approval), Some(&asked));
    let sound = meta(&asked, &[]);
    assert!(follows(&sound));
    assert!(follows_from(&DecisionMeta::default(), None, None));
    let changes: [fn(&mut DecisionMeta); 9] = [
        |meta| meta.approval_id = None,
        |meta| meta.approval_id = Some("01893b6e-7a00-7000-8000-000000000009".parse().unwrap()),
        |meta| meta.approver_id = None,
        |meta| meta.approver_id = Some(person("mallory")),
        |meta| meta.needs_approval_digest = None,
        |meta| meta.needs_approval_digest = Some(Digest::ZERO),
        |meta| meta.note_digest = None,
        |meta| meta.note_digest = Some(Digest::ZERO),
        |meta| meta.approver_ids = [person("eve")].into(),
    ];
    for (number, change) in changes.into_iter().enumerate() {
        let mut forged = sound.clone();
        change(&mut forged);
        assert!(!follows(&forged), "change {number}");
        assert!(!follows_from(&forged, None, None), "change {number}");
    }
}

#[test]
fn an_approval_that_needs_certain_people_has_enough_of_them_and_the_last_is_one() {
    let rows: [(&[u32], ApprovalStatus, &[&str], bool); 9] = [
        (&[1], ApprovalStatus::Approved, &["eve"], true),
        (&[1], ApprovalStatus::Approved, &[], false),
        (&[1], ApprovalStatus::Approved, &["ada"], false),
        (&[2], ApprovalStatus::Approved, &["eve"], false),
        (&[2], ApprovalStatus::Approved, &["ada", "eve"], true),
        (&[2], ApprovalStatus::Approved, &["ada", "bob"], false),
        (&[1, 3], ApprovalStatus::Approved, &["ada", "eve"], false),
        (&[3, 1], ApprovalStatus::Approved, &["ada", "bob", "eve"], true),
        // One person is enough to deny.
        (&[3], ApprovalStatus::Denied, &[], true),
    ];
    for (quorums, status, people, expected) in rows {
        let asked = question(quorums);
        let approval = decided(status, &asked);
        let follows = follows_from(&meta(&asked, people), Some(&approval), Some(&asked));
        assert_eq!(follows, expected, "{quorums:?} {status:?} {people:?}");
    }
}
