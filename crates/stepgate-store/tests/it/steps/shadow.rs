//! Shadow policies: where they would decide otherwise an event says so, and nothing else changes.

use std::sync::atomic::AtomicU64;

use stepgate_core::assumed::Assumed;
use stepgate_core::consent::{self, NewGrant};
use stepgate_core::event::{Event, EventType};
use stepgate_core::failure::ExecutionFailure;
use stepgate_core::ports::Dossier;
use stepgate_core::record::RecordBody;

use super::*;

/// A clock that stands still, and ids that count: two equal steps are equal to the byte.
#[derive(Default)]
struct Numbers(AtomicU64);

#[async_trait]
impl World for Numbers {
    fn now(&self) -> Timestamp {
        at(0)
    }

    fn fresh_uuid(&self) -> Uuid {
        let number = self.0.fetch_add(1, Ordering::SeqCst);
        uuid::Builder::from_unix_timestamp_millis(number, &[7; 10]).into_uuid()
    }

    async fn pause(&self, _: Duration) {}
}

/// The rule of a stage, with another one beside it.
struct Beside {
    rule: Arc<Rule>,
    shadow: Option<PolicyVerdict>,
    world: Arc<Numbers>,
    asked: AtomicUsize,
}

impl Policy for Beside {
    fn decide(&self, request: PolicyRequest<'_>) -> PolicyDecision {
        self.rule.decide(request)
    }

    fn shadow(&self, _: PolicyRequest<'_>, in_force: &PolicyDecision) -> Option<PolicyDecision> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let Some(verdict) = self.shadow.clone() else {
            // The id that an event would have taken, so that all later ids are the same.
            self.world.fresh_uuid();
            return None;
        };
        let (policies, policy_hash) = (vec!["candidate".into()], Digest::of("candidate"));
        Some(PolicyDecision { verdict, policies, policy_hash, ..in_force.clone() })
    }
}

/// A stage whose shadow has this answer, or none that differs.
fn stage(verdict: &PolicyVerdict, shadow: Option<&PolicyVerdict>) -> (Stage, Arc<Beside>) {
    let mut stage = Stage::new(StopAt::Never);
    // The kitchen's first call would end in doubt.
    stage.kitchen.sent.store(1, Ordering::SeqCst);
    stage.rule.0.lock().unwrap().verdict = verdict.clone();
    let world = Arc::new(Numbers::default());
    let beside = Arc::new(Beside {
        rule: stage.rule.clone(),
        shadow: shadow.cloned(),
        world: Arc::clone(&world),
        asked: AtomicUsize::default(),
    });
    stage.gate.policy = beside.clone();
    stage.gate.world = world;
    (stage, beside)
}

async fn dossier(stage: &Stage, run_id: RunId) -> Dossier {
    stage.gate.store.dossier(run_id).await.unwrap().unwrap()
}

fn differences(dossier: &Dossier) -> Vec<&Event> {
    let events = dossier.events.iter().map(|linked| &linked.event);
    events.filter(|event| event.event_type == EventType::PolicyDiffers).collect()
}

/// Everything of a run but the positions, the links and the digest of its events: all of them depend on the event.
fn without_difference(dossier: &Dossier) -> (Dossier, Option<RecordBody>) {
    let mut rest = dossier.clone();
    rest.open_link = None;
    let record = rest.record.take().map(|(record, _)| record.body().unwrap());
    rest.events.retain(|linked| linked.event.event_type != EventType::PolicyDiffers);
    for linked in &mut rest.events {
        (linked.position, linked.link) = (0, None);
    }
    (rest, record.map(|body| RecordBody { events_digest: Digest::ZERO, ..body }))
}

#[tokio::test]
async fn an_event_is_all_that_a_difference_adds_to_a_permit_a_question_and_a_denial() {
    let ask = PolicyVerdict::RequireApproval("ask".into());
    let path = json!({ "path": "/sandbox/a.txt" });
    let rows = [
        (PolicyVerdict::Permit, PolicyVerdict::Deny, "READ_FILE", path.clone()),
        (PolicyVerdict::Permit, PolicyVerdict::Deny, "THINK", json!({})),
        (PolicyVerdict::Permit, ask.clone(), COOK, json!({})),
        (ask, PolicyVerdict::Deny, "DELETE_FILE", path.clone()),
        (PolicyVerdict::Deny, PolicyVerdict::Permit, "READ_FILE", path),
    ];
    for (verdict, shadow, action, args) in rows {
        let (differing, beside) = stage(&verdict, Some(&shadow));
        let (same, _) = stage(&verdict, None);
        let one = differing.propose(1, action, args.clone()).await.unwrap();
        let other = same.propose(1, action, args).await.unwrap();
        assert_eq!(one.body(), other.body());
        assert_eq!(differing.faults.writes(), same.faults.writes(), "{action}: no further commit");
        assert_eq!(differing.files.sent(), same.files.sent());
        assert_eq!(beside.asked.load(Ordering::SeqCst), 1);

        let (one, other) =
            (dossier(&differing, one.run_id).await, dossier(&same, other.run_id).await);
        assert_eq!(without_difference(&one), without_difference(&other), "{action}");
        assert_eq!(differences(&other), Vec::<&Event>::new());
        let [event] = differences(&one)[..] else { panic!("{:?}", one.events) };
        assert_eq!(event.payload["tool"], action);
        assert_eq!(event.payload["principal_id"], agent().as_str());
        assert_eq!(event.payload["in_force"]["policies"], json!(["rule"]));
        let hash = json!(Digest::of("candidate"));
        assert_eq!(event.payload["shadow"]["policies"], json!(["candidate"]));
        assert_eq!(event.payload["shadow"]["policy_hash"], hash);
        differing.verifies().await;
    }
}

#[tokio::test]
async fn a_person_and_a_new_look_at_an_open_decision_do_not_ask_the_shadow() {
    let ask = PolicyVerdict::RequireApproval("ask".into());
    let (stage, beside) = stage(&ask, Some(&PolicyVerdict::Deny));
    let asked = stage.delete(1).await.unwrap();
    assert!(is_success(stage.grant(&asked).await.map_err(|_| unreachable!())));
    let proposal = json!({
        "schema_version": "1.0.0", "id": "550e8400-e29b-41d4-a716-446655440009", "reasoning": "because",
        "action": "THINK", "args": {},
    });
    let session = stage.gate.default_session(&agent()).await.unwrap();
    let payload = Payload::whole(proposal.to_string().into_bytes());
    let (session_id, principal_id) = (session.session_id, agent());
    let submission = Submission { session_id, principal_id, payload };
    step::weigh(&stage.gate, &submission, &Assumed::default()).unwrap();
    assert_eq!(beside.asked.load(Ordering::SeqCst), 1);
    assert_eq!(differences(&dossier(&stage, asked.run_id).await).len(), 1);
    stage.verifies().await;
}

#[tokio::test]
async fn a_call_under_a_grant_notes_its_difference_with_the_use() {
    let ask = PolicyVerdict::RequireApproval("ask".into());
    let (stage, _) = stage(&ask, Some(&PolicyVerdict::Deny));
    let asked = stage.delete(1).await.unwrap();
    stage.grant(&asked).await.unwrap();
    let new = NewGrant {
        approval_id: asked.approval_id().unwrap(),
        args: Default::default(),
        uses_max: 1,
        life_ms: 1000,
        note: None,
    };
    consent::create_grant(&stage.gate, &operator(), new).await.unwrap();
    let answer = stage.delete(2).await.unwrap();
    let used = dossier(&stage, answer.run_id).await;
    let types: Vec<_> = used.events.iter().map(|linked| linked.event.event_type).collect();
    let expected = [
        EventType::PolicyDiffers,
        EventType::GrantUsed,
        EventType::ToolCalled,
        EventType::ToolSucceeded,
    ];
    assert_eq!(types, expected);
    stage.verifies().await;
}

/// A kitchen that has no place for the call, after the call has waited for one.
struct Full(Arc<Kitchen>);

#[async_trait]
impl ToolServers for Full {
    fn tool(&self, name: &ToolName) -> Option<Arc<Tool>> {
        self.0.tool(name)
    }

    fn tools(&self) -> Vec<Arc<Tool>> {
        self.0.tools()
    }

    async fn prepare(&self, call: &ServerCall) -> Result<Hold, Failed> {
        tokio::task::yield_now().await;
        drop(self.0.prepare(call).await?);
        Err(ExecutionFailure::ToolFailed.into())
    }

    async fn dispatch(&self, call: &ServerCall, sending: &Sending) -> Effect {
        self.0.dispatch(call, sending).await
    }
}

#[tokio::test]
async fn a_call_that_waits_for_a_place_notes_its_difference_before_it_waits() {
    let (mut stage, _) = stage(&PolicyVerdict::Permit, Some(&PolicyVerdict::Deny));
    stage.gate.tools = Arc::new(Full(stage.kitchen.clone()));
    let answer = stage.propose(1, COOK, json!({})).await.unwrap();
    assert_eq!(answer.word(), Word::Outcome(Outcome::ExecutionError));
    let failed = dossier(&stage, answer.run_id).await;
    let types: Vec<_> = failed.events.iter().map(|linked| linked.event.event_type).collect();
    assert_eq!(types, [EventType::PolicyDiffers, EventType::ToolFailed]);
    assert!(failed.open_link.is_some(), "the request was durable before it waited");
    stage.verifies().await;
}

#[tokio::test]
async fn recovery_notes_a_difference_where_it_decides_and_none_where_it_was_decided() {
    for is_decided in [false, true] {
        let (stage, beside) = stage(&PolicyVerdict::Permit, Some(&PolicyVerdict::Deny));
        *stage.kitchen.busy.lock().unwrap() = Some(Arc::new(Notify::new()));
        // The step is dropped while it waits for a place.
        tokio::select! {
            biased;
            answer = stage.propose(1, COOK, json!({})) => panic!("{answer:?}"),
            () = tokio::task::yield_now() => {}
        }
        let gate = Gate { store: Arc::new(stage.memory.reopened()), ..stage.gate.clone() };
        let run_id = gate.store.unfinished().await.unwrap()[0].run_id;
        if is_decided {
            authorize(&gate, run_id).await;
        } else {
            // Denied now: what was noted before the crash opens the run, and what is noted now closes it.
            stage.rule.0.lock().unwrap().verdict = PolicyVerdict::Deny;
        }
        let report = recover(&gate, Scope::Servers).await.unwrap();
        assert_eq!(report.finished, [run_id], "{report:?}");
        assert_eq!(beside.asked.load(Ordering::SeqCst), if is_decided { 1 } else { 2 });
        let report = verify(&*gate.store, &[], |_| {}).await.unwrap();
        assert_eq!(report.problems, []);
    }
}
