//! What every engine refuses, with its code, and that nothing is written then.

use stepgate_core::approval::{Approval, ApprovalStatus, StoredContext};
use stepgate_core::digest::Digest;
use stepgate_core::event::EventType;
use stepgate_core::ids::{RunId, SessionId};
use stepgate_core::journal::StateCode;
use stepgate_core::journal::artifact::Verdict;
use stepgate_core::machine::State;
use stepgate_core::ports::{ApprovalChange, KeyChange, Place, StepCommit, StoreError};
use stepgate_core::run::Status;
use uuid::Uuid;

use crate::conformance::over_every_engine;
use crate::desk::{Desk, Step};

over_every_engine! {
    an_illegal_append_is_refused_with_its_code,
    an_entry_that_does_not_describe_its_artifact_is_refused,
    a_key_that_is_bound_is_refused_to_others,
    a_key_is_settled_once_by_its_own_trace,
    an_approval_is_decided_once,
    only_one_of_many_decisions_wins,
    an_approval_is_decided_as_it_was_asked,
    a_run_asks_once,
    a_finalized_run_refuses_every_change,
    a_run_is_opened_once,
    a_run_that_does_not_exist_is_not_continued,
    a_run_ends_with_its_record_alone,
    a_record_needs_a_trace_that_has_ended,
    a_part_of_another_run_is_refused,
    a_session_that_does_not_exist_is_refused,
    a_checkpoint_that_does_not_fix_the_journal_is_refused,
}

/// Asserts that a commit is refused with a code and leaves everything as it was.
async fn refused(desk: &Desk, what: &str, commit: StepCommit, code: StateCode) {
    let run_id = commit.place.run_id;
    let before = standing(desk, run_id).await;
    match desk.store.commit(commit).await {
        Err(StoreError::State(error)) => assert_eq!(error.code, code, "{what}: {error}"),
        Err(other) => panic!("{what}: {other}"),
        Ok(()) => panic!("{what} was accepted"),
    }
    assert_eq!(standing(desk, run_id).await, before, "{what}");
}

async fn standing(desk: &Desk, run_id: RunId) -> impl PartialEq + std::fmt::Debug + use<> {
    let dossier = desk.store.dossier(run_id).await.unwrap();
    (dossier, desk.store.counts().await.unwrap(), desk.head().await)
}

/// A trace that stands at PENDING, and the entries that would lead it to EXECUTING.
async fn pending(desk: &Desk) -> (Step, StepCommit) {
    let mut step = desk.step();
    step.request();
    let opening = StepCommit {
        open: Some(step.run.clone()),
        entries: step.journal.take_pending(),
        ..StepCommit::at(step.place())
    };
    desk.store.commit(opening).await.unwrap();
    step.decide(Verdict::Approve);
    step.call();
    let next = StepCommit { entries: step.journal.take_pending(), ..StepCommit::at(step.place()) };
    (step, next)
}

async fn an_illegal_append_is_refused_with_its_code(desk: Desk) {
    type Spoil = fn(&mut StepCommit);
    let rows: [(&str, Spoil, StateCode); 9] = [
        ("a gap", |c| drop(c.entries.remove(0)), StateCode::SequenceGap),
        ("a duplicate", |c| c.entries[0].entry.sequence_number = 1, StateCode::SequenceGap),
        ("a zero", |c| c.entries[0].entry.sequence_number = 0, StateCode::SequenceGap),
        (
            "a wrong previous digest",
            |c| c.entries[0].entry.prev_entry_digest = Digest::ZERO,
            StateCode::ChecksumMismatch,
        ),
        (
            "a wrong from_state",
            |c| c.entries[0].entry.from_state = State::Executing,
            StateCode::InvalidTransition,
        ),
        (
            "a skip",
            |c| c.entries[0].entry.to_state = State::Completed,
            StateCode::InvalidTransition,
        ),
        (
            "a wrong entry digest",
            |c| c.entries[0].entry.entry_digest = Digest::ZERO,
            StateCode::ChecksumMismatch,
        ),
        (
            "a call without its id",
            |c| c.entries[1].entry.tool_call_id = None,
            StateCode::InvalidTransition,
        ),
        (
            "a call without its key",
            |c| c.entries[1].entry.idempotency_key = None,
            StateCode::InvalidTransition,
        ),
    ];
    for (what, spoil, code) in rows {
        let (_, next) = pending(&desk).await;
        let mut spoilt = next.clone();
        spoil(&mut spoilt);
        refused(&desk, what, spoilt, code).await;
        // The refusal has left nothing in the way of the true continuation.
        desk.store.commit(next).await.unwrap();
    }
}

async fn an_entry_that_does_not_describe_its_artifact_is_refused(desk: Desk) {
    let (step, next) = pending(&desk).await;
    let mut swapped = next.clone();
    swapped.entries[0].artifact = next.entries[1].artifact.clone();
    refused(&desk, "another artifact", swapped.clone(), StateCode::ChecksumMismatch).await;
    let one = swapped.entries.remove(0);
    let answer = desk.store.append_log_entry(step.place(), one).await;
    assert!(
        matches!(answer, Err(StoreError::State(error)) if error.code == StateCode::ChecksumMismatch)
    );
}

async fn a_key_that_is_bound_is_refused_to_others(desk: Desk) {
    let first = desk.finished().await;
    let mut second = desk.step();
    second.key = first.key.clone();
    let opening = second.opening();
    let before = standing(&desk, second.id()).await;
    assert_eq!(desk.store.commit(opening).await, Err(StoreError::KeyTaken));
    assert_eq!(standing(&desk, second.id()).await, before);

    let (third, mut next) = pending(&desk).await;
    next.key = Some(KeyChange::Bind(third.binding(false)));
    desk.store.commit(next).await.unwrap();
    let mut other = third.binding(false);
    other.idempotency_key = desk.step().key;
    let another = StepCommit { key: Some(KeyChange::Bind(other)), ..StepCommit::at(third.place()) };
    refused(&desk, "a second key", another, StateCode::InvalidTransition).await;
}

async fn a_key_is_settled_once_by_its_own_trace(desk: Desk) {
    let mut first = desk.step();
    desk.store.commit(first.opening()).await.unwrap();
    let mut second = desk.step();
    desk.store.commit(second.opening()).await.unwrap();
    let settle = |step: &Step, key| StepCommit {
        key: Some(KeyChange::Settle(key)),
        ..StepCommit::at(step.place())
    };
    let code = StateCode::InvalidTransition;
    refused(&desk, "another's key", settle(&first, second.key.clone()), code).await;
    refused(&desk, "an unbound key", settle(&first, desk.step().key), code).await;
    let once = settle(&first, first.key.clone());
    desk.store.commit(once.clone()).await.unwrap();
    refused(&desk, "a settled key", once, code).await;
}

async fn an_approval_is_decided_once(desk: Desk) {
    let mut step = desk.step();
    let (pausing, asked) = step.pausing();
    desk.store.commit(pausing).await.unwrap();
    let (granting, decided) = step.granting(&asked);
    desk.store.commit(granting).await.unwrap();
    let before = standing(&desk, step.id()).await;
    let again = StepCommit {
        approval: Some(ApprovalChange::Decide(Approval {
            status: ApprovalStatus::Denied,
            ..decided
        })),
        ..StepCommit::at(step.place())
    };
    assert_eq!(desk.store.commit(again).await, Err(StoreError::AlreadyDecided));
    assert_eq!(standing(&desk, step.id()).await, before);
}

async fn only_one_of_many_decisions_wins(desk: Desk) {
    let mut step = desk.step();
    let (pausing, asked) = step.pausing();
    desk.store.commit(pausing).await.unwrap();
    let (granting, decided) = step.granting(&asked);
    let decision = StepCommit { approval: granting.approval, ..StepCommit::at(step.place()) };
    let mut tasks = Vec::new();
    for _ in 0..16 {
        let (desk, decision) = (desk.clone(), decision.clone());
        tasks.push(tokio::spawn(async move { desk.store.commit(decision).await }));
    }
    let mut won = 0;
    for task in tasks {
        match task.await.unwrap() {
            Ok(()) => won += 1,
            Err(error) => assert_eq!(error, StoreError::AlreadyDecided),
        }
    }
    assert_eq!(won, 1);
    let approval = desk.store.approval(asked.approval_id).await;
    assert_eq!(approval, Ok(Some(decided)));
}

async fn an_approval_is_decided_as_it_was_asked(desk: Desk) {
    let mut step = desk.step();
    let (pausing, asked) = step.pausing();
    desk.store.commit(pausing).await.unwrap();
    let (_, decided) = step.granting(&asked);
    let decide = |approval| StepCommit {
        approval: Some(ApprovalChange::Decide(approval)),
        ..StepCommit::at(step.place())
    };
    let other_context = Approval { context: StoredContext::stored("{}".into()), ..decided.clone() };
    let no_answer = Approval { resolution: None, ..decided.clone() };
    let unknown = Approval { approval_id: step.approval().approval_id, ..decided };
    let mismatch = StateCode::ChecksumMismatch;
    refused(&desk, "another context", decide(other_context), mismatch).await;
    refused(&desk, "no answer", decide(no_answer), mismatch).await;
    refused(&desk, "no question", decide(unknown), StateCode::RecoveryFailed).await;
}

async fn a_run_asks_once(desk: Desk) {
    let mut step = desk.step();
    desk.store.commit(step.pausing().0).await.unwrap();
    let again = StepCommit {
        approval: Some(ApprovalChange::Ask(step.approval())),
        ..StepCommit::at(step.place())
    };
    refused(&desk, "a second question", again, StateCode::InvalidTransition).await;
}

async fn a_finalized_run_refuses_every_change(desk: Desk) {
    let mut step = desk.finished().await;
    let at = StepCommit::at(step.place());
    let changes = [
        ("nothing", at.clone()),
        ("a status", StepCommit { status: Some(Status::Approved), ..at.clone() }),
        (
            "an event",
            StepCommit { events: vec![step.event(EventType::ToolReplayed)], ..at.clone() },
        ),
        ("a record", StepCommit { record: Some(step.record(Status::Error)), ..at.clone() }),
        ("a checkpoint", StepCommit { checkpoint: Some(step.checkpoint()), ..at.clone() }),
        ("a question", StepCommit { approval: Some(ApprovalChange::Ask(step.approval())), ..at }),
    ];
    for (what, change) in changes {
        refused(&desk, what, change, StateCode::InvalidTransition).await;
    }
}

async fn a_run_is_opened_once(desk: Desk) {
    let mut step = desk.step();
    let opening = step.opening();
    desk.store.commit(opening.clone()).await.unwrap();
    refused(&desk, "the same again", opening.clone(), StateCode::SequenceGap).await;
    let row = StepCommit { entries: Vec::new(), ..opening };
    refused(&desk, "the row again", row, StateCode::InvalidTransition).await;
}

async fn a_run_that_does_not_exist_is_not_continued(desk: Desk) {
    let mut step = desk.step();
    let event = step.event(EventType::ToolReplayed);
    let commit = StepCommit { events: vec![event.clone()], ..StepCommit::at(step.place()) };
    refused(&desk, "no run", commit, StateCode::RecoveryFailed).await;
    let answer = desk.store.append_event(event).await;
    assert!(
        matches!(answer, Err(StoreError::State(error)) if error.code == StateCode::RecoveryFailed)
    );
}

async fn a_run_ends_with_its_record_alone(desk: Desk) {
    let (step, next) = pending(&desk).await;
    let invalid = StateCode::InvalidTransition;
    for status in Status::ALL.into_iter().filter(|status| status.is_final()) {
        let change = StepCommit { status: Some(status), ..next.clone() };
        refused(&desk, "a final status without a record", change, invalid).await;
    }
    let mut other = desk.step();
    let unfinished_record =
        StepCommit { record: Some(other.record(Status::Approved)), ..other.refused_at_once() };
    refused(&desk, "a record that does not end", unfinished_record, invalid).await;
    drop(step);
}

async fn a_record_needs_a_trace_that_has_ended(desk: Desk) {
    let (step, next) = pending(&desk).await;
    let early = StepCommit { record: Some(step.record(Status::Ok)), ..next };
    refused(&desk, "a record at EXECUTING", early, StateCode::InvalidTransition).await;
}

async fn a_part_of_another_run_is_refused(desk: Desk) {
    let (mut step, next) = pending(&desk).await;
    let mut other = desk.step();
    let foreign = other.opening();
    other.effect();
    let parts = [
        ("a run", StepCommit { open: foreign.open.clone(), ..next.clone() }),
        ("entries", StepCommit { entries: foreign.entries.clone(), ..next.clone() }),
        ("events", StepCommit { events: foreign.events.clone(), ..next.clone() }),
        ("a key", StepCommit { key: foreign.key.clone(), ..next.clone() }),
        ("a checkpoint", StepCommit { checkpoint: Some(other.checkpoint()), ..next.clone() }),
        ("a record", StepCommit { record: Some(other.record(Status::Ok)), ..next.clone() }),
        (
            "an approval",
            StepCommit { approval: Some(ApprovalChange::Ask(other.approval())), ..next.clone() },
        ),
        (
            "another session's place",
            StepCommit { place: Place { session_id: desk.system, ..next.place }, ..next.clone() },
        ),
    ];
    for (what, commit) in parts {
        refused(&desk, what, commit, StateCode::InvalidTransition).await;
    }
    let mut event = step.event(EventType::ToolReplayed);
    event.session_id = desk.system;
    let commit = StepCommit { events: vec![event], ..next };
    refused(&desk, "another session's event", commit, StateCode::InvalidTransition).await;
}

async fn a_session_that_does_not_exist_is_refused(desk: Desk) {
    let nowhere = SessionId::new(Uuid::nil());
    let before = desk.store.counts().await.unwrap();
    let commit = Step::new(nowhere, 1).opening();
    let unknown = StoreError::UnknownSession(nowhere);
    assert_eq!(desk.store.commit(commit).await, Err(unknown.clone()));
    let mut event = desk.loose_event();
    event.session_id = nowhere;
    assert_eq!(desk.store.append_event(event).await, Err(unknown));
    assert_eq!(desk.store.counts().await.unwrap(), before);
}

async fn a_checkpoint_that_does_not_fix_the_journal_is_refused(desk: Desk) {
    let (step, next) = pending(&desk).await;
    let checkpoint = step.checkpoint();
    let mut unsound = checkpoint.clone();
    unsound.checkpoint_digest = Digest::ZERO;
    let mut elsewhere = checkpoint.clone();
    elsewhere.checkpoint_state.current_state = State::Completed;
    elsewhere.checkpoint_digest = Digest::of(&elsewhere.checkpoint_state);
    let mismatch = StateCode::ChecksumMismatch;
    for (what, spoilt) in [("unsound", unsound), ("another state", elsewhere)] {
        let commit = StepCommit { checkpoint: Some(spoilt), ..next.clone() };
        refused(&desk, what, commit, mismatch).await;
    }
    // Before the entries that it fixes are there.
    let early = StepCommit { checkpoint: Some(checkpoint.clone()), ..StepCommit::at(step.place()) };
    refused(&desk, "early", early, mismatch).await;
    let fitting = StepCommit { checkpoint: Some(checkpoint.clone()), ..next };
    desk.store.commit(fitting).await.unwrap();
    let again = StepCommit { checkpoint: Some(checkpoint), ..StepCommit::at(step.place()) };
    refused(&desk, "twice", again, StateCode::SequenceGap).await;
}
