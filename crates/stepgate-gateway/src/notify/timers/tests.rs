use serde_json::json;
use stepgate_core::approval::StoredContext;
use stepgate_core::ids::RunId;
use stepgate_store::MemoryStore;

use super::super::settings::{ChannelSettings, Escalation};
use super::*;

/// 2026-01-01.
const ASKED: i64 = 1_767_225_600_000;
const TTL_MS: u64 = 100_000;

fn asked_at() -> Timestamp {
    Timestamp::from_millisecond(ASKED)
}

fn approval() -> Approval {
    let id = || uuid::Uuid::now_v7().to_string();
    let digest = "0".repeat(64);
    let context = json!({
        "args": { "content": "sk-secret" },
        "call_digest": digest,
        "expires_at": asked_at().plus_ms(TTL_MS),
        "needs_approval": {
            "_digest_alg": "sha256",
            "action_request_digest": digest,
            "action_request_id": id(),
            "decision": "NEEDS_APPROVAL",
            "meta": { "policies": ["ask"] },
            "plan_id": id(),
            "policy_hash": digest,
            "rationale": "it pays",
            "schema_id": "talos.tga.supervisor_decision",
            "schema_version": "tga.v1",
            "supervisor_decision_id": id(),
            "trace_id": id(),
            "ts": asked_at(),
        },
        "needs_approval_digest": digest,
        "principal_id": "agent",
        "reason": "it pays",
        "tool_name": "pay\u{202e}",
        "tool_server": "bank",
    });
    let approval = Approval {
        context: StoredContext::stored(context.to_string()),
        approval_id: ApprovalId::new(uuid::Uuid::now_v7()),
        resolution: None,
        status: ApprovalStatus::Pending,
        tool_run_id: RunId::new(uuid::Uuid::now_v7()),
        ts_requested: asked_at(),
    };
    assert!(approval.expires_at().is_some(), "{:?}", approval.context.read());
    approval
}

fn receiver(remind_before_s: u64, escalate_after_s: u64) -> ReceiverSettings {
    ReceiverSettings {
        name: "on-call".into(),
        channel: ChannelSettings::Slack { url: stepgate_exec::servers::Secret::new("http://x") },
        events: Vec::new(),
        remind_before: Some(Duration::from_secs(remind_before_s)),
        escalations: vec![Escalation {
            from: "first".into(),
            after: Duration::from_secs(escalate_after_s),
        }],
        timeout: Duration::from_secs(1),
    }
}

async fn timers(receiver: &ReceiverSettings, reached: u64) -> Timers {
    let taken = Timers::of(receiver).into_iter().map(|timer| (timer, reached)).collect();
    Timers::start(taken, &MemoryStore::new()).await.unwrap()
}

#[tokio::test]
async fn an_approval_is_due_before_its_expiry_and_after_its_question() {
    let mut timers = timers(&receiver(20, 30), 0).await;
    let approval = approval();
    timers.add(&approval, true);
    let at = |seconds: u64| asked_at().plus_ms(seconds * 1000);
    assert!(timers.next(at(29)).is_none());
    let (escalation, id) = timers.next(at(30)).unwrap();
    assert_eq!(id, approval.approval_id);
    assert_eq!(escalation.cursor, "notify/on-call/escalations/first");
    let message = escalation.message(&approval, at(30), Some("https://gate.example")).unwrap();
    let told = serde_json::to_value(&message).unwrap();
    assert_eq!(told["type"], "approval_escalated");
    let title = "Approval not decided since first was told: bank.pay<U+202E>";
    assert_eq!(told["data"]["title"], title);
    assert!(!told.to_string().contains("sk-secret"), "{told}");
    timers.done();
    assert!(timers.next(at(79)).is_none());
    let (reminder, _) = timers.next(at(80)).unwrap();
    assert_eq!(reminder.cursor, "notify/on-call/reminders");
    // Decided or expired meanwhile: there is nothing to say.
    let decided = Approval { status: ApprovalStatus::Approved, ..approval.clone() };
    assert!(reminder.message(&decided, at(80), None).is_none());
    assert!(reminder.message(&approval, at(100), None).is_none());
    assert!(reminder.message(&approval, at(80), None).is_some());
}

#[tokio::test]
async fn nothing_is_due_with_the_question_after_the_expiry_or_after_a_decision() {
    for (before, after) in [(100, 100), (200, 200)] {
        let mut timers = timers(&receiver(before, after), 0).await;
        timers.add(&approval(), true);
        assert_eq!(timers.next_at(), None, "{before} {after}");
    }
    let mut timers = timers(&receiver(20, 30), 0).await;
    timers.add(&Approval { status: ApprovalStatus::Denied, ..approval() }, true);
    assert_eq!(timers.next_at(), None);
}

#[tokio::test]
async fn what_was_told_before_a_restart_is_not_told_again_and_nothing_of_the_same_time_is_lost() {
    let reached = u64::try_from(ASKED).unwrap() + 30_000;
    let mut restarted = timers(&receiver(20, 30), reached).await;
    restarted.add(&approval(), false);
    // The reminder alone is left.
    assert_eq!(restarted.next_at(), Some(reached + 50_000));
    let mut both = timers(&receiver(200, 30), 0).await;
    both.add(&approval(), true);
    both.add(&approval(), true);
    // The first of two that are due at one time leaves the cursor before that time.
    assert_eq!(both.done(), reached - 1);
    assert_eq!(both.done(), reached);
    assert_eq!(both.next_at(), None);
}
