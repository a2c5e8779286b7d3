//! Spec 002: the lifecycle of a tool run, from the request to the record, and what people do to it.

mod adversity;
pub(crate) mod bench;
mod erasable;
mod own_error;

use std::sync::Arc;

use serde_json::{Value, json};
use stepgate_core::approval::ApprovalStatus;
use stepgate_core::digest::Digest;
use stepgate_core::event::EventType;
use stepgate_core::failure::{ExecutionFailure, Outcome};
use stepgate_core::ids::{ApprovalId, PrincipalId};
use stepgate_core::journal::Artifact;
use stepgate_core::journal::artifact::{EffectStatus, Guarantee};
use stepgate_core::json::canonical;
use stepgate_core::late::{self, LateResult};
use stepgate_core::ports::{Dispatch, Dossier, Failed, Policy, PolicyRequest, ToolServers};
use stepgate_core::recover::{self, Report, Scope};
use stepgate_core::run::{Notice, Status, Word};
use stepgate_core::step::{self, Answer, Person, Refused, Settlement};
use stepgate_core::tool::{Delivery, Mode, Standing, ToolName};

use crate::gate::{DenyAll, Fixture, agent, proposal};
use crate::spec_004::assert_verified;

use bench::{Behaviour, Bench, HomeRules};

const AGENDA: &str = "calendar.google.get_agenda";
const VOLUME: &str = "sonos.set_volume";

/// A house with a calendar that looks and a loudspeaker that acts.
struct House {
    fixture: Fixture,
    bench: Arc<Bench>,
}

impl House {
    fn new() -> Self {
        Self::with(Delivery::HonoursKey, Behaviour::Acts)
    }

    /// A house whose loudspeaker is like this.
    fn with(delivery: Delivery, behaviour: Behaviour) -> Self {
        let bench = Arc::new(Bench::default());
        bench.offer(AGENDA, Mode::ReadOnly, Delivery::Redispatch, Behaviour::Acts);
        bench.offer(VOLUME, Mode::ExecuteGated, delivery, behaviour);
        let mut fixture = Fixture::new().with_policy(HomeRules { volume_max: Some(30) });
        fixture.gate.tools = Arc::clone(&bench) as _;
        Self { fixture, bench }
    }

    async fn set_volume(&self, number: u32, args: Value) -> Answer {
        self.fixture.submit(proposal(number, VOLUME, args)).await
    }

    /// The step up to the question, and the approval that it waits for.
    async fn ask(&self, number: u32, args: Value) -> (Answer, ApprovalId) {
        let answer = self.set_volume(number, args).await;
        assert_eq!(answer.word(), Word::Notice(Notice::ApprovalRequired), "{}", answer.body());
        let approval = self.fixture.dossier(&answer).await.approval.unwrap();
        (answer, approval.approval_id)
    }

    async fn approve(&self, approval_id: ApprovalId) -> Result<Answer, Refused> {
        let person = Person::Approves { approver_id: operator(), note: None };
        step::resume(&self.fixture.gate, approval_id, person).await
    }

    /// A gated call up to the moment at which the gateway stops.
    async fn stop_while_calling(&self) -> Answer {
        let (answer, approval_id) = self.ask(1, json!({ "volume": 20 })).await;
        let stopped = self.approve(approval_id).await;
        assert!(matches!(stopped, Err(Refused::Fault(_))), "{stopped:?}");
        answer
    }

    async fn recover(&self) -> Report {
        recover::recover(&self.fixture.gate, Scope::Servers).await.unwrap()
    }

    async fn dossier(&self, answer: &Answer) -> Dossier {
        self.fixture.dossier(answer).await
    }

    async fn status(&self, answer: &Answer) -> Status {
        self.dossier(answer).await.run.status
    }

    async fn verified(self) {
        assert_verified(&*self.fixture.gate.store).await;
    }
}

fn operator() -> PrincipalId {
    PrincipalId::parse("operator").unwrap()
}

fn artifacts(dossier: &Dossier) -> Vec<Artifact> {
    dossier.entries.iter().map(|appended| appended.prove().unwrap()).collect()
}

fn events(dossier: &Dossier) -> Vec<EventType> {
    dossier.events.iter().map(|linked| linked.event.event_type).collect()
}

fn guarantee(dossier: &Dossier) -> Option<Guarantee> {
    dossier.record.as_ref().unwrap().0.body().unwrap().guarantee
}

fn effect_status(dossier: &Dossier) -> EffectStatus {
    match artifacts(dossier).pop() {
        Some(Artifact::ToolEffect(effect)) => effect.outcome.status,
        other => panic!("{other:?} is no effect"),
    }
}

#[tokio::test]
async fn a_read_only_tool_goes_from_started_to_ok() {
    let house = House::new();
    let answer = house.fixture.submit(proposal(1, AGENDA, json!({}))).await;
    assert_eq!(answer.word(), Word::Outcome(Outcome::Success));
    let dossier = house.dossier(&answer).await;
    assert_eq!(dossier.run.status, Status::Ok);
    assert_eq!(dossier.run.tool_name.as_deref(), Some(AGENDA));
    assert_eq!(events(&dossier), [EventType::ToolCalled, EventType::ToolSucceeded]);
    house.verified().await;
}

#[tokio::test]
async fn a_gated_tool_goes_over_approval_required_and_approved_to_ok() {
    let house = House::new();
    let (answer, approval_id) = house.ask(1, json!({ "volume": 20 })).await;
    assert_eq!(house.status(&answer).await, Status::ApprovalRequired);
    assert_eq!(house.bench.sent(), []);
    let done = house.approve(approval_id).await.unwrap();
    assert_eq!(done.word(), Word::Outcome(Outcome::Success));
    let dossier = house.dossier(&answer).await;
    assert_eq!(dossier.run.status, Status::Ok);
    assert_eq!(dossier.approval.as_ref().unwrap().status, ApprovalStatus::Approved);
    let expected = [
        EventType::ApprovalRequested,
        EventType::ApprovalGranted,
        EventType::ToolCalled,
        EventType::ToolSucceeded,
    ];
    assert_eq!(events(&dossier), expected);
    assert_eq!(house.bench.effects().len(), 1);
    house.verified().await;
}

#[tokio::test]
async fn a_run_is_approved_from_the_grant_until_it_ends() {
    let house = House::with(Delivery::HonoursKey, Behaviour::StopsBefore);
    let answer = house.stop_while_calling().await;
    assert_eq!(house.status(&answer).await, Status::Approved);
    house.verified().await;
}

#[tokio::test]
async fn a_failed_execution_goes_from_started_to_error() {
    let house = House::new();
    let failed =
        Failed { detail: Some("no such room".into()), ..ExecutionFailure::ToolFailed.into() };
    house.bench.behave(AGENDA, Behaviour::Fails(failed));
    let answer = house.fixture.submit(proposal(1, AGENDA, json!({}))).await;
    let response: Value = serde_json::from_str(&answer.body()).unwrap();
    assert_eq!(
        response["error"],
        json!({ "error_code": "EXECUTION_ERROR", "message": "Tool failed" })
    );
    let dossier = house.dossier(&answer).await;
    assert_eq!(dossier.run.status, Status::Error);
    assert_eq!(effect_status(&dossier), EffectStatus::Failure);
    let record = dossier.record.unwrap().0.body().unwrap();
    assert_eq!(record.detail.as_deref(), Some("UPSTREAM_ERROR: no such room"));
    house.verified().await;
}

#[tokio::test]
async fn a_timeout_finalizes_the_run_and_a_late_result_becomes_an_event() {
    let house = House::new();
    house.bench.behave(AGENDA, Behaviour::Fails(ExecutionFailure::Timeout.into()));
    let answer = house.fixture.submit(proposal(1, AGENDA, json!({}))).await;
    let before = house.dossier(&answer).await;
    assert_eq!(before.run.status, Status::Timeout);
    assert_eq!(effect_status(&before), EffectStatus::Error);
    let result_digest = Digest::of_bytes(b"late");
    let late = LateResult { run_id: answer.run_id, succeeded: true, result_digest };
    late::note(&house.fixture.gate, late).await.unwrap();
    let after = house.dossier(&answer).await;
    assert_eq!(events(&after).pop(), Some(EventType::LateResult));
    assert_eq!((&after.run, &after.record), (&before.run, &before.record));
    house.verified().await;
}

#[tokio::test]
async fn a_denied_run_is_never_executed_and_says_by_whom_and_why() {
    let house = House::new();
    let (answer, approval_id) = house.ask(1, json!({ "volume": 20 })).await;
    let note = Some("the baby sleeps".to_owned());
    let person = Person::Denies { approver_id: operator(), note };
    let denied = step::resume(&house.fixture.gate, approval_id, person).await.unwrap();
    assert_eq!(denied.word(), Word::Outcome(Outcome::Denied));
    assert_eq!(house.bench.sent(), []);
    let dossier = house.dossier(&answer).await;
    assert_eq!(dossier.run.status, Status::Denied);
    let record = dossier.record.as_ref().unwrap().0.body().unwrap();
    assert_eq!(
        record.detail.as_deref(),
        Some("DENIED_BY_OPERATOR: by operator, who noted: the baby sleeps")
    );
    assert_eq!(house.approve(approval_id).await, Err(Refused::AlreadyDecided));
    house.verified().await;
}

#[tokio::test]
async fn an_approval_does_not_bypass_policy() {
    let mut house = House::new();
    let (answer, approval_id) = house.ask(1, json!({ "volume": 20 })).await;
    house.fixture.gate.policy = Arc::new(DenyAll);
    let refused = house.approve(approval_id).await.unwrap();
    assert_eq!(refused.word(), Word::Outcome(Outcome::Denied));
    let dossier = house.dossier(&answer).await;
    assert_eq!(dossier.run.status, Status::Error);
    assert_eq!(dossier.approval.as_ref().unwrap().status, ApprovalStatus::Approved);
    assert_eq!(house.bench.sent(), []);
    house.verified().await;
}

#[tokio::test]
async fn the_principal_that_asked_cannot_approve() {
    let house = House::new();
    let (_, approval_id) = house.ask(1, json!({ "volume": 20 })).await;
    let person = Person::Approves { approver_id: agent(), note: None };
    let refused = step::resume(&house.fixture.gate, approval_id, person).await;
    assert_eq!(refused, Err(Refused::OwnRequest));
    assert_eq!(house.bench.sent(), []);
    house.verified().await;
}

#[tokio::test]
async fn a_cap_lowers_what_is_approved_and_executed_and_keeps_what_was_asked() {
    let house = House::new();
    let (answer, approval_id) = house.ask(1, json!({ "volume": 90 })).await;
    let context = house.dossier(&answer).await.approval.unwrap().context;
    assert_eq!(context.read().unwrap().args, json!({ "volume": 30 }));
    assert_eq!(canonical::text_of(context.read().unwrap()), context.text(), "nothing is lost");
    house.approve(approval_id).await.unwrap();
    let dossier = house.dossier(&answer).await;
    let [
        Artifact::ActionRequest(request),
        Artifact::SupervisorDecision(decision),
        Artifact::ToolCall(call),
        Artifact::ToolEffect(_),
    ] = &*artifacts(&dossier)
    else {
        panic!("not the four artifacts");
    };
    assert_eq!(request.proposal.args, json!({ "volume": 90 }));
    assert_eq!(decision.meta.cap, Some(json!({ "volume": 30 })));
    assert_eq!(call.call.args, json!({ "volume": 30 }));
    assert_eq!(house.bench.sent()[0].args, json!({ "volume": 30 }));
    house.verified().await;
}

#[tokio::test]
async fn an_approval_is_good_for_the_call_that_was_shown_and_no_other() {
    for change in ["cap", "definition", "gone"] {
        let mut house = House::new();
        let (answer, approval_id) = house.ask(1, json!({ "volume": 90 })).await;
        match change {
            "cap" => house.fixture.gate.policy = Arc::new(HomeRules { volume_max: Some(10) }),
            "definition" => house.bench.change(VOLUME, |tool| {
                tool.definition_digest = Digest::of("another");
            }),
            _ => house.bench.withdraw(VOLUME),
        }
        let refused = house.approve(approval_id).await.unwrap();
        assert_eq!(refused.word(), Word::Outcome(Outcome::Denied), "{change}");
        assert_eq!(house.status(&answer).await, Status::Error, "{change}");
        assert_eq!(house.bench.sent(), [], "{change}");
        house.verified().await;
    }
}

#[tokio::test]
async fn a_fraction_is_lowered_too_and_what_is_below_the_cap_stays() {
    let mut house = House::new();
    house.bench.change(VOLUME, |tool| tool.mode = Mode::Draft);
    for (number, max, volume, sent) in [
        (1, 30, json!(30), json!(30)),
        (2, 30, json!(30.5), json!(30)),
        (3, -5, json!(0), json!(-5)),
    ] {
        house.fixture.gate.policy = Arc::new(HomeRules { volume_max: Some(max) });
        let answer = house.set_volume(number, json!({ "volume": volume })).await;
        assert_eq!(answer.word(), Word::Outcome(Outcome::Success), "{volume}");
        assert_eq!(house.bench.sent().pop().unwrap().args["volume"], sent);
    }
    house.verified().await;
}

#[tokio::test]
async fn a_tool_that_has_changed_since_it_was_accepted_is_denied() {
    let house = House::new();
    house.bench.change(VOLUME, |tool| tool.standing = Standing::Changed);
    let answer = house.set_volume(1, json!({ "volume": 20 })).await;
    let record = house.dossier(&answer).await.record.unwrap().0.body().unwrap();
    assert_eq!(record.error_code.as_deref(), Some("POLICY_VIOLATION"));
    assert_eq!(
        record.detail.as_deref(),
        Some("pin: the definition has changed since it was accepted")
    );
    house.verified().await;
}

#[tokio::test]
async fn a_tool_that_is_not_listed_is_denied_and_unclassified() {
    let house = House::new();
    for (number, name) in [(1, "sonos.explode"), (2, "SONOS.set_volume"), (3, "sonos.set_volume ")]
    {
        let answer = house.fixture.submit(proposal(number, name, json!({}))).await;
        let record = house.dossier(&answer).await.record.unwrap().0.body().unwrap();
        assert_eq!(record.error_code.as_deref(), Some("ACTION_NOT_ALLOWED"), "{name}");
        assert_eq!(record.detail.as_deref(), Some("TOOL_UNCLASSIFIED_DENIED"), "{name}");
    }
    house.verified().await;
}

#[tokio::test]
async fn arguments_that_break_the_tools_contract_are_a_validation_error() {
    let house = House::new();
    let answer = house.set_volume(1, json!({ "volume": "loud" })).await;
    assert_eq!(answer.word(), Word::Outcome(Outcome::ValidationError));
    assert_eq!(house.dossier(&answer).await.entries.len(), 0);
    house.verified().await;
}

#[tokio::test]
async fn a_server_that_is_away_is_an_execution_error_and_nothing_is_sent() {
    let house = House::new();
    house.bench.behave(AGENDA, Behaviour::IsAway);
    let answer = house.fixture.submit(proposal(1, AGENDA, json!({}))).await;
    assert_eq!(answer.word(), Word::Outcome(Outcome::ExecutionError));
    let dossier = house.dossier(&answer).await;
    assert_eq!(effect_status(&dossier), EffectStatus::Failure);
    assert_eq!(guarantee(&dossier), None);
    assert_eq!(events(&dossier), [EventType::ToolFailed]);
    assert_eq!(house.bench.sent(), []);
    house.verified().await;
}

#[tokio::test]
async fn a_redacted_argument_reaches_the_tool_and_nothing_else() {
    const SECRET: &str = "correct horse";
    let house = House::new();
    let (answer, approval_id) = house.ask(1, json!({ "volume": 20, "pin": SECRET })).await;
    let waiting = house.dossier(&answer).await;
    assert!(waiting.sealed.is_some());
    house.approve(approval_id).await.unwrap();
    assert_eq!(house.bench.sent()[0].args, json!({ "volume": 20, "pin": SECRET }));
    let over = house.dossier(&answer).await;
    assert_eq!(over.sealed, None);
    for dossier in [Dossier { sealed: None, ..waiting }, over] {
        let payload = String::from_utf8(dossier.run.arrival.payload.bytes.to_vec()).unwrap();
        let output = dossier.run.ending.clone().and_then(|ending| ending.output_json);
        // The tool's own answer repeats it here; what a tool says is its own affair.
        assert!(output.is_none_or(|output| output.contains(SECRET)));
        let rest = Dossier {
            run: stepgate_core::run::Run { ending: None, ..dossier.run },
            record: dossier.record.map(|(record, link)| {
                let ending = stepgate_core::run::Ending {
                    output_json: None,
                    error_json: None,
                    latency_ms: 0,
                };
                (stepgate_core::record::Record { ending, ..record }, link)
            }),
            ..dossier
        };
        assert!(!format!("{rest:?}{payload}").contains(SECRET));
    }
    // The same proposal is the same; one with another secret is not.
    let again = house.set_volume(1, json!({ "volume": 20, "pin": SECRET })).await;
    assert!(again.replayed);
    let other = house.set_volume(1, json!({ "volume": 20, "pin": "another" })).await;
    assert!(other.body().contains("IDEMPOTENCY_CONFLICT"), "{}", other.body());
    house.verified().await;
}

#[tokio::test]
async fn the_same_proposal_again_gets_the_recorded_response() {
    let house = House::new();
    let (first, approval_id) = house.ask(1, json!({ "volume": 20 })).await;
    assert_eq!(house.set_volume(1, json!({ "volume": 20 })).await.body(), first.body());
    let done = house.approve(approval_id).await.unwrap();
    let again = house.set_volume(1, json!({ "volume": 20 })).await;
    assert_eq!((again.body(), again.replayed), (done.body(), true));
    assert_eq!(house.bench.effects().len(), 1);
    house.verified().await;
}

#[tokio::test]
async fn a_tool_that_honours_the_key_acts_exactly_once_across_a_stop() {
    for behaviour in [Behaviour::ActsAndStops, Behaviour::StopsBefore] {
        let house = House::with(Delivery::HonoursKey, behaviour.clone());
        let answer = house.stop_while_calling().await;
        house.bench.behave(VOLUME, Behaviour::Acts);
        assert_eq!(house.recover().await.finished, [answer.run_id]);
        assert_eq!(house.bench.effects().len(), 1, "{behaviour:?}");
        let [first, second] = &*house.bench.sent() else { panic!("not sent twice") };
        assert_eq!(first.sending.tool_call_id, second.sending.tool_call_id);
        assert_eq!(first.sending.key, second.sending.key);
        assert_eq!(second.sending.dispatch, Dispatch::Again);
        let dossier = house.dossier(&answer).await;
        assert_eq!(guarantee(&dossier), Some(Guarantee::ExactlyOnce));
        assert_eq!(dossier.run.status, Status::Ok);
        house.verified().await;
    }
}

#[tokio::test]
async fn a_bare_redispatch_says_at_least_once_and_is() {
    let house = House::with(Delivery::Redispatch, Behaviour::ActsAndStops);
    let answer = house.stop_while_calling().await;
    assert_eq!(house.recover().await.finished, [answer.run_id]);
    assert_eq!(house.bench.effects().len(), 2);
    assert_eq!(guarantee(&house.dossier(&answer).await), Some(Guarantee::AtLeastOnce));
    house.verified().await;
}

#[tokio::test]
async fn a_call_in_doubt_that_asks_waits_for_a_person_and_acts_at_most_once() {
    let rows = [
        (Settlement::Succeeded(None), Status::Ok, Guarantee::AtMostOnce, 1),
        (Settlement::Failed, Status::Error, Guarantee::AtMostOnce, 1),
        (Settlement::Redispatch, Status::Ok, Guarantee::AtLeastOnce, 2),
    ];
    for (settlement, status, guaranteed, effects) in rows {
        let house = House::with(Delivery::Ask, Behaviour::ActsAndStops);
        let answer = house.stop_while_calling().await;
        for _ in 0..2 {
            assert_eq!(house.recover().await.in_doubt, [answer.run_id]);
        }
        assert_eq!(house.bench.effects().len(), 1);
        let notice = house.set_volume(1, json!({ "volume": 20 })).await;
        assert_eq!(notice.word(), Word::Notice(Notice::InProgress));
        let gate = &house.fixture.gate;
        step::resolve(gate, answer.run_id, settlement.clone(), operator(), None).await.unwrap();
        let dossier = house.dossier(&answer).await;
        assert_eq!(dossier.run.status, status, "{settlement:?}");
        assert_eq!(guarantee(&dossier), Some(guaranteed), "{settlement:?}");
        assert_eq!(house.bench.effects().len(), effects, "{settlement:?}");
        let Some(Artifact::ToolEffect(effect)) = artifacts(&dossier).pop() else { panic!() };
        assert_eq!(effect.meta.resolved_by, Some(operator()));
        let again = step::resolve(gate, answer.run_id, Settlement::Failed, operator(), None).await;
        assert_eq!(again, Err(Refused::NotInDoubt));
        house.verified().await;
    }
}

#[tokio::test]
async fn a_call_in_doubt_can_be_settled_by_a_tool_that_looks() {
    let status = ToolName::parse("sonos.was_it_done").unwrap();
    let rows = [
        (json!({ "status": "done", "result": { "volume": 20 } }), true, 1),
        (json!({ "status": "not_done" }), true, 2),
        (json!({ "status": "unknown" }), false, 1),
        (json!({}), false, 1),
    ];
    for (said, is_settled, sent) in rows {
        let house = House::with(Delivery::Query(status.clone()), Behaviour::ActsAndStops);
        let looks = Behaviour::Says(said.clone());
        house.bench.offer(status.as_str(), Mode::ReadOnly, Delivery::Redispatch, looks);
        let answer = house.stop_while_calling().await;
        let report = house.recover().await;
        assert_eq!(report.finished.len(), usize::from(is_settled), "{said}");
        assert_eq!(report.in_doubt.len(), usize::from(!is_settled), "{said}");
        let queries = house.bench.sent();
        let queries = queries.iter().filter(|sent| sent.args.get("idempotency_key").is_some());
        assert_eq!(queries.count(), 1, "{said}");
        assert_eq!(house.bench.sent().len(), sent + 1, "{said}");
        if is_settled {
            let dossier = house.dossier(&answer).await;
            assert_eq!(dossier.run.status, Status::Ok, "{said}");
            assert_eq!(guarantee(&dossier), Some(Guarantee::ExactlyOnce), "{said}");
            let resolved = dossier
                .events
                .iter()
                .find(|linked| linked.event.event_type == EventType::RunResolved)
                .unwrap();
            assert!(resolved.event.payload["query_run_id"].is_string(), "{said}");
        }
        house.verified().await;
    }
}

#[tokio::test]
async fn a_second_dispatch_without_an_answer_never_fails_the_run() {
    let troubles = [
        Behaviour::IsAway,
        Behaviour::Fails(ExecutionFailure::Timeout.into()),
        Behaviour::Fails(Failed { in_doubt: true, ..ExecutionFailure::ToolFailed.into() }),
    ];
    for trouble in troubles {
        let house = House::with(Delivery::HonoursKey, Behaviour::StopsBefore);
        let answer = house.stop_while_calling().await;
        house.bench.behave(VOLUME, trouble.clone());
        assert_eq!(house.recover().await.stuck.len(), 1, "{trouble:?}");
        assert_eq!(house.status(&answer).await, Status::Approved, "{trouble:?}");
        house.bench.behave(VOLUME, Behaviour::Acts);
        assert_eq!(house.recover().await.finished, [answer.run_id], "{trouble:?}");
        assert_eq!(house.bench.effects().len(), 1, "{trouble:?}");
        house.verified().await;
    }
}

#[tokio::test]
async fn recovery_of_core_traces_leaves_those_of_tool_servers_alone() {
    let house = House::with(Delivery::HonoursKey, Behaviour::StopsBefore);
    house.stop_while_calling().await;
    let report = recover::recover(&house.fixture.gate, Scope::Core).await.unwrap();
    assert_eq!(report, Report::default());
    assert_eq!(house.bench.sent().len(), 1);
    house.verified().await;
}

#[tokio::test]
async fn what_policy_decided_in_the_past_can_be_asked_again() {
    use stepgate_core::history::{PastDecision, Ruling, past_decision};
    let mut house = House::new();
    let caps = |max: i64| std::collections::BTreeMap::from([("volume".to_owned(), max)]);
    let (capped, approval_id) = house.ask(1, json!({ "volume": 90 })).await;
    house.approve(approval_id).await.unwrap();
    let looked = house.fixture.submit(proposal(2, AGENDA, json!({}))).await;
    house.fixture.gate.policy = Arc::new(DenyAll);
    let denied = house.fixture.submit(proposal(3, AGENDA, json!({}))).await;
    let outside =
        house.fixture.submit(proposal(4, "READ_FILE", json!({ "path": "/sandbox/a.exe" })));
    let outside = outside.await;
    let rows = [
        (&capped, Some(Ruling::RequireApproval(caps(30)))),
        (&looked, Some(Ruling::Permit(Default::default()))),
        (&denied, Some(Ruling::Deny)),
        (&outside, None),
    ];
    for (answer, expected) in rows {
        let dossier = house.dossier(answer).await;
        let past = past_decision(|name| ToolServers::tool(&*house.bench, name), &dossier).unwrap();
        assert_eq!(past.as_ref().map(|past| past.ruling.clone()), expected);
        let Some(past) = past else { continue };
        let policy = HomeRules { volume_max: Some(10) };
        let PastDecision { principal_id, call, facts, .. } = &past;
        let request = PolicyRequest { principal_id, call, facts };
        let now = Ruling::of(&policy.decide(request), &past.call);
        let changed = match expected.unwrap() {
            Ruling::RequireApproval(_) => now == Ruling::RequireApproval(caps(10)),
            Ruling::Permit(_) | Ruling::Deny => now == Ruling::Permit(Default::default()),
        };
        assert!(changed, "{now:?}");
    }
    house.verified().await;
}

#[tokio::test]
async fn the_latency_of_a_run_is_recorded_when_it_ends() {
    let house = House::new();
    let answer = house.fixture.submit(proposal(1, AGENDA, json!({}))).await;
    let dossier = house.dossier(&answer).await;
    let body = dossier.record.unwrap().0.body().unwrap();
    let latency_ms = body.completed_at.since_ms(body.received_at);
    assert!(latency_ms > 0, "the clock of this world moves with every look");
    assert_eq!(dossier.run.ending.unwrap().latency_ms, latency_ms);
    let (waiting, _) = house.ask(2, json!({ "volume": 20 })).await;
    assert_eq!(house.dossier(&waiting).await.run.ending, None);
    house.verified().await;
}
