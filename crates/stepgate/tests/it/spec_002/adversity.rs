//! What must hold when things change under a run: numbers, tools, servers, people and payloads.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Map, Value, json};
use stepgate_core::action::InvalidArgs;
use stepgate_core::approval::ApprovalStatus;
use stepgate_core::assumed::Assumed;
use stepgate_core::bundle::Bundle;
use stepgate_core::call::Call;
use stepgate_core::digest::Digest;
use stepgate_core::event::EventType;
use stepgate_core::failure::{ExecutionFailure, Outcome};
use stepgate_core::history::{PastDecision, Ruling, past_decision};
use stepgate_core::journal::Artifact;
use stepgate_core::journal::artifact::{EffectStatus, Guarantee};
use stepgate_core::late::{self, LateResult};
use stepgate_core::policy::BuiltInRule;
use stepgate_core::ports::{
    Failed, Policy, PolicyDecision, PolicyRequest, PolicyVerdict, Said, ToolServers, World,
};
use stepgate_core::recover::{self, Report, Scope};
use stepgate_core::run::{Notice, Payload, Status, Word};
use stepgate_core::step::{self, Answer, Person, Refused, Settlement};
use stepgate_core::stop::{StopOrder, StopTarget};
use stepgate_core::stops::{self, Made};
use stepgate_core::time::Timestamp;
use stepgate_core::tool::{Contract, Delivery, Mode, Standing, ToolName};
use stepgate_core::verify;
use stepgate_store::faulty::{Faults, FaultyStore, StopAt};
use stepgate_store::memory::MemoryStore;
use stepgate_store::sqlite::SqliteStore;
use tokio::sync::Notify;

use super::bench::Behaviour;
use super::{AGENDA, House, VOLUME, artifacts, effect_status, events, guarantee, operator};
use crate::gate::{Acting, AskAlways, DenyAll, Fixture, StopsAt, agent, id, proposal, submit};
use crate::spec_004::assert_verified;

const STATUS: &str = "sonos.was_it_done";

impl House {
    /// A gated call with these arguments, up to the moment at which the gateway stops.
    async fn stop_with(&self, args: Value) -> Answer {
        let (answer, approval_id) = self.ask(1, args).await;
        let stopped = self.approve(approval_id).await;
        assert!(matches!(stopped, Err(Refused::Fault(_))), "{stopped:?}");
        answer
    }

    /// A house whose loudspeaker can be asked what it did.
    fn with_status_tool(mode: Mode, says: Behaviour) -> Self {
        let status = ToolName::parse(STATUS).unwrap();
        let house = Self::with(Delivery::Query(status), Behaviour::StopsBefore);
        house.bench.offer(STATUS, mode, Delivery::Redispatch, says);
        house
    }

    async fn settle(&self, answer: &Answer, settlement: Settlement) -> Result<Answer, Refused> {
        step::resolve(&self.fixture.gate, answer.run_id, settlement, operator(), None).await
    }
}

#[tokio::test]
async fn a_number_is_the_same_however_it_is_spelled() {
    for spelled in ["20.0", "2e1", "90.0", "1e17", "1E20", "-0.0", "12.5"] {
        for pin in ["", r#","pin":"1234""#] {
            let house = House::with(Delivery::HonoursKey, Behaviour::StopsBefore);
            let payload = format!(
                r#"{{"schema_version":"1.0.0","id":"550e8400-e29b-41d4-a716-446600000001",
                   "reasoning":"a test","action":"{VOLUME}","args":{{"volume":{spelled}{pin}}}}}"#
            );
            let answer = house.fixture.submit(payload).await;
            let approval = house.dossier(&answer).await.approval.unwrap();
            let stopped = house.approve(approval.approval_id).await;
            assert!(matches!(stopped, Err(Refused::Fault(_))), "{spelled}{pin}: {stopped:?}");
            house.bench.behave(VOLUME, Behaviour::Acts);
            let report = house.recover().await;
            let expected = Report { finished: vec![answer.run_id], ..Report::default() };
            assert_eq!(report, expected, "{spelled}{pin}");
            let [first, second] = &*house.bench.sent() else { panic!("not sent twice") };
            assert_eq!(first.args, second.args, "{spelled}{pin}");
            house.verified().await;
        }
    }
}

/// Refuses everything.
struct Closed;

impl Contract for Closed {
    fn check(&self, _: &Map<String, Value>) -> Result<(), InvalidArgs> {
        Err(InvalidArgs::new("volume", "not today"))
    }
}

#[tokio::test]
async fn a_capped_call_in_doubt_can_be_settled_when_its_tool_is_gone_or_asks_for_something_else() {
    for change in ["gone", "contract"] {
        let house = House::with(Delivery::Ask, Behaviour::StopsBefore);
        let answer = house.stop_with(json!({ "volume": 90 })).await;
        match change {
            "gone" => house.bench.withdraw(VOLUME),
            _ => house.bench.change(VOLUME, |tool| tool.contract = Arc::new(Closed)),
        }
        assert_eq!(house.recover().await.in_doubt, [answer.run_id], "{change}");
        let notice = house.set_volume(2, json!({ "volume": 90 })).await;
        assert_ne!(notice.word(), Word::Notice(Notice::ApprovalRequired), "{change}");
        house.settle(&answer, Settlement::Succeeded(None)).await.unwrap();
        assert_eq!(house.status(&answer).await, Status::Ok, "{change}");
        house.verified().await;
    }
}

#[tokio::test]
async fn a_call_is_not_sent_again_to_a_tool_that_is_no_longer_the_one_that_was_called() {
    for change in ["changed", "accepted anew", "gated"] {
        let house = House::with(Delivery::HonoursKey, Behaviour::StopsBefore);
        if change == "gated" {
            house.bench.change(VOLUME, |tool| tool.mode = Mode::ReadOnly);
            let payload = proposal(1, VOLUME, json!({ "volume": 20 }));
            submit(&house.fixture.gate, payload).await.unwrap_err();
        } else {
            house.stop_with(json!({ "volume": 20 })).await;
        }
        house.bench.behave(VOLUME, Behaviour::Acts);
        house.bench.change(VOLUME, |tool| match change {
            "changed" => tool.standing = Standing::Changed,
            "accepted anew" => tool.definition_digest = Digest::of("another"),
            _ => tool.mode = Mode::ExecuteGated,
        });
        assert_eq!(house.recover().await.in_doubt.len(), 1, "{change}");
        assert_eq!(house.bench.sent().len(), 1, "{change}");
        house.verified().await;
    }
}

#[tokio::test]
async fn nobody_can_send_a_call_again_to_a_tool_that_is_not_accepted() {
    for change in ["gone", "changed"] {
        let house = House::with(Delivery::Ask, Behaviour::StopsBefore);
        let answer = house.stop_with(json!({ "volume": 20 })).await;
        match change {
            "gone" => house.bench.change(VOLUME, |tool| tool.standing = Standing::Gone),
            _ => house.bench.change(VOLUME, |tool| tool.standing = Standing::Changed),
        }
        house.bench.behave(VOLUME, Behaviour::Acts);
        let refused = house.settle(&answer, Settlement::Redispatch).await;
        assert!(matches!(refused, Err(Refused::Fault(_))), "{change}: {refused:?}");
        assert_eq!(house.bench.sent().len(), 1, "{change}");
        assert_eq!(house.status(&answer).await, Status::Approved, "{change}");
        house.verified().await;
    }
}

#[tokio::test]
async fn what_a_person_had_sent_again_is_told_also_when_nobody_answered() {
    for delivery in [Delivery::Ask, Delivery::Query(ToolName::parse(STATUS).unwrap())] {
        let house = House::with(delivery.clone(), Behaviour::StopsBefore);
        let answer = house.stop_with(json!({ "volume": 20 })).await;
        let stopped = house.settle(&answer, Settlement::Redispatch).await;
        assert!(matches!(stopped, Err(Refused::Fault(_))), "{stopped:?}");
        house.settle(&answer, Settlement::Succeeded(None)).await.unwrap();
        let dossier = house.dossier(&answer).await;
        assert_eq!(guarantee(&dossier), Some(Guarantee::AtLeastOnce), "{delivery:?}");
        let resolved: Vec<_> = dossier
            .events
            .iter()
            .filter_map(|linked| linked.event.payload.get("resolved_as")?.as_str())
            .collect();
        assert_eq!(resolved, ["redispatch", "succeeded"], "{delivery:?}");
        house.verified().await;
    }
}

#[tokio::test]
async fn a_person_who_sends_again_what_could_have_been_asked_gets_no_exactly_once() {
    let house = House::with_status_tool(Mode::ReadOnly, Behaviour::Acts);
    let answer = house.stop_with(json!({ "volume": 20 })).await;
    house.bench.behave(VOLUME, Behaviour::Acts);
    house.settle(&answer, Settlement::Redispatch).await.unwrap();
    assert_eq!(guarantee(&house.dossier(&answer).await), Some(Guarantee::AtLeastOnce));
    house.verified().await;
}

#[tokio::test]
async fn a_second_dispatch_is_on_record_before_it_happens() {
    let house = House::with(Delivery::Redispatch, Behaviour::StopsBefore);
    let answer = house.stop_with(json!({ "volume": 20 })).await;
    assert_eq!(house.recover().await.stuck.len(), 1);
    assert_eq!(house.bench.sent().len(), 2);
    let events = events(&house.dossier(&answer).await);
    assert_eq!(events.last(), Some(&EventType::ToolRedispatched));
    house.bench.change(VOLUME, |tool| tool.delivery = Delivery::Ask);
    house.settle(&answer, Settlement::Succeeded(None)).await.unwrap();
    assert_eq!(guarantee(&house.dossier(&answer).await), Some(Guarantee::AtLeastOnce));
    house.verified().await;
}

#[tokio::test]
async fn a_status_tool_that_writes_or_may_not_be_asked_is_not_asked() {
    for (mode, standing) in [
        (Mode::Draft, Standing::Accepted),
        (Mode::ExecuteGated, Standing::Accepted),
        (Mode::ReadOnly, Standing::Changed),
        (Mode::ReadOnly, Standing::Accepted),
    ] {
        let says = Behaviour::Says(json!({ "status": "done" }));
        let mut house = House::with_status_tool(mode, says);
        house.bench.change(STATUS, |tool| tool.standing = standing);
        let answer = house.stop_with(json!({ "volume": 20 })).await;
        let policies: [Arc<dyn Policy>; 3] =
            [house.fixture.gate.policy.clone(), Arc::new(AskAlways), Arc::new(DenyAll)];
        let permitted = (mode, standing) == (Mode::ReadOnly, Standing::Accepted);
        for policy in policies.into_iter().skip(usize::from(permitted)) {
            house.fixture.gate.policy = policy;
            assert_eq!(house.recover().await.in_doubt, [answer.run_id], "{mode:?}");
        }
        assert_eq!(house.bench.sent().len(), 1, "{mode:?}");
        let runs = house.fixture.gate.store.run_ids(None, 10).await.unwrap();
        assert_eq!(runs, [answer.run_id], "{mode:?}");
        house.verified().await;
    }
}

#[tokio::test]
async fn a_status_tool_is_not_asked_while_an_operator_has_stopped_it() {
    let says = Behaviour::Says(json!({ "status": "done" }));
    let house = House::with_status_tool(Mode::ReadOnly, says);
    let answer = house.stop_with(json!({ "volume": 20 })).await;
    let gate = &house.fixture.gate;
    let (note, target) = (None, StopTarget::Server("sonos".to_owned()));
    let order = StopOrder { note, stopped_by: operator(), target };
    let Made::Now(stop) = stops::make(gate, order).await.unwrap() else { panic!("before") };
    for _ in 0..2 {
        assert_eq!(house.recover().await.in_doubt, [answer.run_id]);
    }
    assert_eq!(house.bench.sent().len(), 1, "only the call itself");
    // A question that is denied would leave a run at each recovery.
    assert_eq!(gate.store.run_ids(None, 10).await.unwrap(), [answer.run_id]);
    stops::lift(gate, stop.stop_id, operator()).await.unwrap().unwrap();
    assert_eq!(house.recover().await.finished, [answer.run_id]);
    house.verified().await;
}

#[tokio::test]
async fn a_call_in_doubt_does_not_keep_its_servers_permit() {
    let house = House::with(Delivery::Ask, Behaviour::StopsBefore);
    let answer = house.stop_with(json!({ "volume": 20 })).await;
    assert_eq!(house.bench.held(), 0);
    house.settle(&answer, Settlement::Succeeded(None)).await.unwrap();
    assert_eq!(house.bench.held(), 0);
    house.verified().await;
}

#[tokio::test]
async fn an_approval_that_comes_too_late_is_none() {
    let mut house = House::new();
    house.fixture.gate.limits.approval_ttl_ms = 5;
    let (answer, approval_id) = house.ask(1, json!({ "volume": 20 })).await;
    for _ in 0..10 {
        house.fixture.gate.world.now();
    }
    let late = house.approve(approval_id).await.unwrap();
    assert!(late.body().contains("APPROVAL_DENIED"), "{}", late.body());
    let dossier = house.dossier(&answer).await;
    assert_eq!(dossier.run.status, Status::Denied);
    assert_eq!(dossier.approval.unwrap().status, ApprovalStatus::Expired);
    assert_eq!(house.bench.sent(), []);
    house.verified().await;
}

#[tokio::test]
async fn a_redacted_argument_is_not_recorded_where_the_proposal_is_none() {
    const SECRET: &str = "correct horse";
    let house = House::new();
    let args = json!({ "volume": 20, "pin": SECRET });
    let whole = json!({
        "schema_version": "1.0.0", "id": id(1), "reasoning": "a test",
        "action": VOLUME, "args": args,
    });
    for (field, value) in [
        ("schema_version", json!("2.0.0")),
        ("schema_version", json!(1)),
        ("id", json!("none")),
        ("reasoning", json!("")),
        ("extra", json!(1)),
    ] {
        let mut proposal = whole.clone();
        proposal[field] = value.clone();
        let answer = house.fixture.submit(proposal.to_string()).await;
        assert_eq!(answer.word(), Word::Outcome(Outcome::ValidationError), "{field}");
        let dossier = house.dossier(&answer).await;
        let payload = String::from_utf8(dossier.run.arrival.payload.bytes.to_vec()).unwrap();
        let came = Digest::of_bytes(proposal.to_string().as_bytes());
        assert!(payload.contains(&came.to_string()), "{payload}");
        assert!(!format!("{dossier:?}{payload}").contains(SECRET), "{field}: {value}");
    }
    let wrong = json!({ "volume": "loud", "pin": SECRET });
    let answer = house.set_volume(1, wrong).await;
    let dossier = house.dossier(&answer).await;
    let payload = String::from_utf8(dossier.run.arrival.payload.bytes.to_vec()).unwrap();
    assert!(!format!("{dossier:?}{payload}").contains(SECRET));
    house.verified().await;
}

/// Payloads in which the gate cannot find the redacted argument: misspelled, twice, misplaced, in no JSON, cut off.
#[tokio::test]
async fn of_a_proposal_that_is_refused_no_value_is_kept_where_a_tool_redacts() {
    const SECRET: &str = "correct horse";
    let house = House::new();
    let whole = proposal(1, VOLUME, json!({ "volume": 20, "pin": SECRET }));
    let payloads = [
        proposal(1, VOLUME, json!({ "volume": 20, "pni": SECRET })),
        proposal(1, VOLUME, json!({ "volume": SECRET })),
        proposal(1, "sonos.set_volum", json!({ "volume": 20, "pin": SECRET })),
        proposal(1, "nosuch", json!({ "pin": SECRET })),
        proposal(1, "run_command", json!({ "pin": SECRET })),
        proposal(1, "THINK", json!({ "pin": SECRET })),
        whole.replace("\"args\"", "\"arg\""),
        whole.replace("\"volume\"", "\"pin\""),
        whole.replace("\"1.0.0\"", "\"2.0.0\""),
        whole.trim_end_matches('}').to_owned(),
        format!("{whole}{}", " ".repeat(5_000)),
        format!("[{whole}]"),
        format!("\"{SECRET}\""),
    ];
    for payload in payloads {
        let answer = house.fixture.submit(&payload).await;
        let dossier = house.dossier(&answer).await;
        let arrival = &dossier.run.arrival;
        let kept = String::from_utf8(arrival.payload.bytes.to_vec()).unwrap();
        assert!(!format!("{dossier:?}{kept}").contains(SECRET), "{payload}: {kept}");
        let came = &payload.as_bytes()[..payload.len().min(4096)];
        let kept: Value = serde_json::from_str(&kept).unwrap();
        assert_eq!(kept["withheld"]["sha256"], Digest::of_bytes(came).to_string(), "{payload}");
        assert_eq!(arrival.payload.length, payload.len() as u64);
        assert_eq!(Bundle::of(&dossier).unwrap().verify(), [], "{payload}");
    }
    assert_eq!(house.bench.sent(), []);
    house.verified().await;
}

#[tokio::test]
async fn a_refused_proposal_is_kept_as_it_came_where_no_tool_redacts() {
    let fixture = Fixture::new();
    let payload = proposal(1, "THINK", json!({ "unknown": "a word" }));
    let answer = fixture.submit(&payload).await;
    assert_eq!(&*fixture.dossier(&answer).await.run.arrival.payload.bytes, payload.as_bytes());
}

#[tokio::test]
async fn a_result_that_is_no_json_settles_nothing() {
    let house = House::with(Delivery::Ask, Behaviour::StopsBefore);
    let answer = house.stop_with(json!({ "volume": 20 })).await;
    for result in ["{", "", r#"{"a":1,"a":2}"#, "1}"] {
        let refused = house.settle(&answer, Settlement::Succeeded(Some(result.into()))).await;
        assert!(matches!(refused, Err(Refused::Fault(_))), "{result}: {refused:?}");
    }
    assert_eq!(house.status(&answer).await, Status::Approved);
    let done = house.settle(&answer, Settlement::Succeeded(Some(r#"{"a": 1}"#.into()))).await;
    let response: Value = serde_json::from_str(&done.unwrap().body()).unwrap();
    assert_eq!(response["result"], json!({ "a": 1 }));
    house.verified().await;
}

#[tokio::test]
async fn what_a_status_tool_said_before_the_call_went_out_again_settles_nothing() {
    let answers = Arc::new(Notify::new());
    let says = Behaviour::SaysWhen(json!({ "status": "not_done" }), Arc::clone(&answers));
    let house = House::with_status_tool(Mode::ReadOnly, says);
    let answer = house.stop_with(json!({ "volume": 20 })).await;
    let gate = house.fixture.gate.clone();
    let recovery = tokio::spawn(async move { recover::recover(&gate, Scope::Servers).await });
    while house.bench.sent().len() < 2 {
        tokio::task::yield_now().await;
    }
    // In the meantime an operator sends it again, and again nobody knows what became of it.
    let stopped = house.settle(&answer, Settlement::Redispatch).await;
    assert!(matches!(stopped, Err(Refused::Fault(_))), "{stopped:?}");
    house.bench.behave(VOLUME, Behaviour::Acts);
    answers.notify_one();
    assert_eq!(recovery.await.unwrap().unwrap().in_doubt, [answer.run_id]);
    assert_eq!(house.bench.effects(), Vec::<String>::new());
    assert_eq!(house.status(&answer).await, Status::Approved);
    house.verified().await;
}

#[tokio::test]
async fn a_grant_that_could_not_be_written_down_keeps_nothing_from_others() {
    let memory = MemoryStore::new();
    let mut fixture = Fixture::with_store(Arc::new(memory.clone())).with_policy(AskAlways);
    let args = json!({ "path": "/sandbox/a.txt", "content": "once" });
    let answer = fixture.submit(proposal(1, "WRITE_FILE", args)).await;
    let approval_id = fixture.dossier(&answer).await.approval.unwrap().approval_id;
    let grants = || Person::Approves { approver_id: operator(), note: None };
    let faults = Faults::new(StopAt::Before(1));
    fixture.gate.store = Arc::new(FaultyStore::new(memory.reopened(), faults));
    let stopped = step::resume(&fixture.gate, approval_id, grants()).await;
    assert!(matches!(stopped, Err(Refused::Fault(_))), "{stopped:?}");
    fixture.gate.store = Arc::new(memory.reopened());
    let done = step::resume(&fixture.gate, approval_id, grants()).await.unwrap();
    assert_eq!(done.word(), Word::Outcome(Outcome::Success), "{}", done.body());
}

#[tokio::test]
async fn a_sealed_payload_that_was_changed_or_is_gone_is_seen_and_never_sent() {
    let other = json!({ "volume": 20, "pin": "another" });
    let louder = json!({ "volume": 29, "pin": "1234" });
    let more = json!({ "volume": 20, "pin": "1234", "idempotency_key": "x" });
    for args in [Some(other), Some(louder), Some(more), None] {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("stepgate.db");
        let mut house = House::new();
        house.fixture.gate.store = Arc::new(SqliteStore::open(&path, Default::default()).unwrap());
        let (answer, approval_id) = house.ask(1, json!({ "volume": 20, "pin": "1234" })).await;
        house.fixture.gate.store = Arc::new(MemoryStore::new());
        let connection = rusqlite::Connection::open(&path).unwrap();
        connection
            .execute_batch(
                "DROP TRIGGER sealed_payloads_no_update; DROP TRIGGER sealed_payloads_needed",
            )
            .unwrap();
        let changed = match &args {
            Some(args) => {
                let payload = proposal(1, VOLUME, args.clone()).into_bytes();
                connection.execute("UPDATE sealed_payloads SET payload = ?1", [payload])
            }
            None => connection.execute("DELETE FROM sealed_payloads", []),
        };
        assert_eq!(changed, Ok(1));
        drop(connection);
        house.fixture.gate.store = Arc::new(SqliteStore::open(&path, Default::default()).unwrap());
        let refused = house.approve(approval_id).await;
        assert!(matches!(refused, Err(Refused::Fault(_))), "{args:?}: {refused:?}");
        assert_eq!(house.bench.sent(), [], "{args:?}");
        assert_eq!(house.status(&answer).await, Status::ApprovalRequired, "{args:?}");
        let report = verify::verify(&*house.fixture.gate.store, &[], |_| {}).await.unwrap();
        let is_guard = |what: &str| what.starts_with("the trigger sealed_payloads_");
        let rest: Vec<_> = report.problems.iter().filter(|it| !is_guard(&it.what)).collect();
        assert_eq!(rest.len(), 1, "{args:?}: {rest:?}");
    }
}

#[tokio::test]
async fn a_redacted_payload_of_the_same_length_is_known_as_redacted() {
    let house = House::new();
    for length in 1..120 {
        let pin = "x".repeat(length);
        let args = json!({ "volume": 20, "pin": pin });
        let number = u32::try_from(length).unwrap();
        let (_, approval_id) = house.ask(number, args.clone()).await;
        let done = house.approve(approval_id).await.unwrap();
        assert_eq!(done.word(), Word::Outcome(Outcome::Success), "{length}");
        assert_eq!(house.bench.sent().pop().unwrap().args, args);
    }
    house.verified().await;
}

#[tokio::test]
async fn what_policy_asked_a_person_is_known_whatever_the_person_said() {
    let caps = BTreeMap::from([("volume".to_owned(), 30)]);
    let house = House::new();
    let people = [
        None,
        Some(Person::Nobody),
        Some(Person::Denies { approver_id: operator(), note: None }),
        Some(Person::Approves { approver_id: operator(), note: None }),
    ];
    for (number, person) in (1..).zip(people) {
        let (answer, approval_id) = house.ask(number, json!({ "volume": 90 })).await;
        if let Some(person) = person.clone() {
            step::resume(&house.fixture.gate, approval_id, person).await.unwrap();
        }
        let past = past_decision(
            |name| ToolServers::tool(&*house.bench, name),
            &house.dossier(&answer).await,
        )
        .unwrap()
        .unwrap();
        assert_eq!(past.ruling, Ruling::RequireApproval(caps.clone()), "{person:?}");
        assert_eq!(past.policies, ["home"], "{person:?}");
    }
    house.verified().await;
}

/// Permits everything with one cap, and remembers what it saw.
#[derive(Default)]
struct Watcher {
    cap: Option<(&'static str, i64)>,
    seen: Mutex<Vec<Value>>,
}

impl Policy for Watcher {
    fn decide(&self, request: PolicyRequest<'_>) -> PolicyDecision {
        if let Call::Server(call) = request.call {
            self.seen.lock().unwrap().push(Value::Object(call.args.clone()));
        }
        let caps = self.cap.iter().map(|(name, max)| ((*name).to_owned(), *max)).collect();
        PolicyDecision { caps, verdict: PolicyVerdict::Permit, ..BuiltInRule.decide(request) }
    }
}

/// Takes a volume of at least ten.
struct Loud;

impl Contract for Loud {
    fn check(&self, args: &Map<String, Value>) -> Result<(), InvalidArgs> {
        match args.get("volume").and_then(Value::as_i64) {
            Some(10..) => Ok(()),
            Some(_) | None => Err(InvalidArgs::new("volume", "below ten")),
        }
    }
}

#[tokio::test]
async fn a_cap_that_cannot_be_applied_refuses_the_call() {
    let rows = [
        (("volume", 5), "cap: the capped arguments break the tool's contract"),
        (("pin", 5), "cap: a redacted argument cannot be capped"),
        (("idempotency_key", 5), "cap: what is capped is not a number"),
    ];
    for (cap, expected) in rows {
        let mut house = House::new();
        house.bench.change(VOLUME, |tool| tool.contract = Arc::new(Loud));
        house.fixture.gate.policy = Arc::new(Watcher { cap: Some(cap), ..Watcher::default() });
        let args = json!({ "volume": 20, "pin": 1234, "idempotency_key": "x" });
        let answer = house.set_volume(1, args.clone()).await;
        assert_eq!(answer.word(), Word::Outcome(Outcome::Denied), "{expected}");
        let record = house.dossier(&answer).await.record.unwrap().0.body().unwrap();
        assert_eq!(record.detail.as_deref(), Some(expected));
        assert_eq!(house.bench.sent(), [], "{expected}");
        // Whoever asks what would be decided is told the same.
        let session = house.fixture.gate.default_session(&agent()).await.unwrap();
        let submission = step::Submission {
            session_id: session.session_id,
            principal_id: agent(),
            payload: Payload::whole(proposal(2, VOLUME, args).as_bytes()),
        };
        let weighed = step::weigh(&house.fixture.gate, &submission, &Assumed::default()).unwrap();
        assert_eq!(weighed.rule.as_deref(), Some(expected));
        // And so is whoever asks the same policy, or another one, about the past.
        let past = past_decision(
            |name| ToolServers::tool(&*house.bench, name),
            &house.dossier(&answer).await,
        )
        .unwrap()
        .unwrap();
        let asked = |cap| {
            let PastDecision { principal_id, call, facts, .. } = &past;
            let request = PolicyRequest { principal_id, call, facts };
            Watcher { cap, ..Watcher::default() }.decide(request)
        };
        assert_eq!((&past.ruling, &past.policies), (&Ruling::Deny, &asked(None).policies));
        assert_eq!(past.would_be(&asked(Some(cap))), Ruling::Deny, "{expected}");
        assert_eq!(past.would_be(&asked(None)), Ruling::Permit(BTreeMap::new()), "{expected}");
        house.verified().await;
    }
}

#[tokio::test]
async fn a_core_action_that_policy_caps_is_refused() {
    let mut house = House::new();
    house.fixture.gate.policy = Arc::new(Watcher { cap: Some(("path", 5)), ..Watcher::default() });
    let args = json!({ "path": "/sandbox/a.txt", "content": "x" });
    let answer = house.fixture.submit(proposal(1, "WRITE_FILE", args)).await;
    let record = house.dossier(&answer).await.record.unwrap().0.body().unwrap();
    assert_eq!(record.detail.as_deref(), Some("cap: core actions cannot be capped"));
    house.verified().await;
}

#[tokio::test]
async fn policy_sees_a_redacted_argument_as_its_digest() {
    let mut house = House::new();
    let watcher = Arc::new(Watcher::default());
    house.fixture.gate.policy = Arc::clone(&watcher) as _;
    house.set_volume(1, json!({ "volume": 20, "pin": "1234" })).await;
    let expected = json!({ "volume": 20, "pin": { "sha256": Digest::of("1234") } });
    assert_eq!(*watcher.seen.lock().unwrap(), [expected]);
    assert_eq!(house.bench.sent()[0].args, json!({ "volume": 20, "pin": "1234" }));
    house.verified().await;
}

#[tokio::test]
async fn a_tool_that_its_server_no_longer_has_is_denied() {
    let house = House::new();
    house.bench.change(VOLUME, |tool| tool.standing = Standing::Gone);
    let answer = house.set_volume(1, json!({ "volume": 20 })).await;
    let record = house.dossier(&answer).await.record.unwrap().0.body().unwrap();
    assert_eq!(record.detail.as_deref(), Some("pin: the tool is gone"));
    assert_eq!(house.bench.sent(), []);
    house.verified().await;
}

#[tokio::test]
async fn a_result_that_cannot_be_used_leaves_its_digest_and_a_call_names_who_acts() {
    let house = House::new();
    let result_digest = Some(Digest::of_bytes(b"unusable"));
    let said = result_digest.map_or(Said::Nothing, Said::Unusable);
    let failed = Failed { said, ..ExecutionFailure::OutputInvalid.into() };
    house.bench.behave(AGENDA, Behaviour::Fails(failed));
    let answer = house.fixture.submit(proposal(1, AGENDA, json!({}))).await;
    let dossier = house.dossier(&answer).await;
    let [.., Artifact::ToolCall(call), Artifact::ToolEffect(effect)] = &*artifacts(&dossier) else {
        panic!("no call with its effect");
    };
    assert_eq!(effect.meta.result_digest, result_digest);
    assert_eq!(effect.outcome.status, EffectStatus::Error);
    assert_eq!(call.meta.executor_id.as_deref(), Some("bench/calendar"));
    assert_eq!(call.meta.tool_definition_digest, Some(Digest::of(AGENDA)));
    house.verified().await;
}

#[tokio::test]
async fn what_a_status_tool_says_was_done_is_the_result() {
    let says = Behaviour::Says(json!({ "status": "done", "result": { "volume": 20 } }));
    let house = House::with_status_tool(Mode::ReadOnly, says);
    let answer = house.stop_with(json!({ "volume": 20 })).await;
    assert_eq!(house.recover().await.finished, [answer.run_id]);
    let again = house.set_volume(1, json!({ "volume": 20 })).await;
    let response: Value = serde_json::from_str(&again.body()).unwrap();
    assert_eq!(response["result"], json!({ "volume": 20 }));
    house.verified().await;
}

#[tokio::test]
async fn a_status_tool_that_does_not_know_is_asked_less_and_less_often() {
    let says = Behaviour::Says(json!({ "status": "unknown" }));
    let house = House::with_status_tool(Mode::ReadOnly, says);
    let answer = house.stop_with(json!({ "volume": 20 })).await;
    for _ in 0..40 {
        assert_eq!(house.recover().await.in_doubt, [answer.run_id]);
    }
    // The call itself, and the questions.
    let sent = house.bench.sent().len();
    assert!((2..10).contains(&sent), "{sent}");
    house.verified().await;
}

#[tokio::test]
async fn a_payload_that_was_changed_while_a_person_thought_is_not_sent() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("stepgate.db");
    let mut house = House::new();
    house.fixture.gate.store = Arc::new(SqliteStore::open(&path, Default::default()).unwrap());
    let (_, approval_id) = house.ask(1, json!({ "volume": 20 })).await;
    house.fixture.gate.store = Arc::new(MemoryStore::new());
    let connection = rusqlite::Connection::open(&path).unwrap();
    let triggers =
        "SELECT name FROM sqlite_schema WHERE type = 'trigger' AND tbl_name = 'tool_runs'";
    let triggers: Vec<String> = connection
        .prepare(triggers)
        .unwrap()
        .query_map([], |row| row.get(0))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    for trigger in triggers {
        connection.execute_batch(&format!("DROP TRIGGER {trigger}")).unwrap();
    }
    let louder = proposal(1, VOLUME, json!({ "volume": 29 })).into_bytes();
    assert_eq!(connection.execute("UPDATE tool_runs SET payload = ?1", [louder]), Ok(1));
    drop(connection);
    house.fixture.gate.store = Arc::new(SqliteStore::open(&path, Default::default()).unwrap());
    let Err(Refused::Fault(fault)) = house.approve(approval_id).await else { panic!() };
    assert!(fault.to_string().contains("payload does not follow from the rest"), "{fault}");
    assert_eq!(house.bench.sent(), []);
}

/// A world in which others get their turn while somebody waits.
struct Patient(Arc<dyn World>);

#[async_trait]
impl World for Patient {
    fn now(&self) -> Timestamp {
        self.0.now()
    }

    fn fresh_uuid(&self) -> uuid::Uuid {
        self.0.fresh_uuid()
    }

    async fn pause(&self, _: Duration) {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_late_result_waits_for_the_record_of_its_run() {
    let answers = Arc::new(Notify::new());
    let mut house = House::new();
    house.fixture.gate.world = Arc::new(Patient(Arc::clone(&house.fixture.gate.world)));
    house.bench.behave(AGENDA, Behaviour::SaysWhen(json!({}), Arc::clone(&answers)));
    let gate = house.fixture.gate.clone();
    let step = tokio::spawn(async move { submit(&gate, proposal(1, AGENDA, json!({}))).await });
    while house.bench.sent().is_empty() {
        tokio::task::yield_now().await;
    }
    let result_digest = Digest::of_bytes(b"late");
    let late =
        LateResult { run_id: house.bench.sent()[0].sending.run_id, succeeded: true, result_digest };
    let gate = house.fixture.gate.clone();
    let note = tokio::spawn(async move { late::note(&gate, late).await });
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    answers.notify_one();
    let answer = step.await.unwrap().unwrap();
    note.await.unwrap().unwrap();
    let event = house.dossier(&answer).await.events.pop().unwrap().event;
    assert_eq!(event.event_type, EventType::LateResult);
    let expected = json!({ "result_digest": result_digest, "succeeded": true, "tool": AGENDA });
    assert_eq!(event.payload, expected);
    house.verified().await;
}

#[tokio::test]
async fn a_late_result_of_a_call_in_doubt_is_there_before_anybody_settles_it() {
    let house = House::with(Delivery::Ask, Behaviour::ActsAndStops);
    let answer = house.stop_while_calling().await;
    let gate = &house.fixture.gate;
    let late = |text: &[u8]| {
        let result_digest = Digest::of_bytes(text);
        LateResult { run_id: answer.run_id, succeeded: true, result_digest }
    };
    late::note(gate, late(b"first")).await.unwrap();
    let known = house.dossier(&answer).await;
    assert_eq!(
        (known.record.is_none(), events(&known).last()),
        (true, Some(&EventType::LateResult))
    );
    assert_verified(&*gate.store).await;
    // Recovery, the operator and the record go on from there.
    assert_eq!(house.recover().await.in_doubt, [answer.run_id]);
    step::resolve(gate, answer.run_id, Settlement::Failed, operator(), None).await.unwrap();
    assert_verified(&*gate.store).await;
    late::note(gate, late(b"second")).await.unwrap();
    let late_results = events(&house.dossier(&answer).await);
    let count = late_results.iter().filter(|known| **known == EventType::LateResult).count();
    assert_eq!(count, 2);
    house.verified().await;
}

#[tokio::test]
async fn a_core_action_that_a_person_settled_keeps_its_path_no_longer() {
    let mut fixture = Fixture::new();
    let args = json!({ "path": "/sandbox/a.txt", "content": "x" });
    let real = Arc::clone(&fixture.gate.executor);
    fixture.gate.executor = Arc::new(Acting(StopsAt { inner: Arc::clone(&real), name: "" }));
    submit(&fixture.gate, proposal(1, "WRITE_FILE", args.clone())).await.unwrap_err();
    let run_id = fixture.gate.store.run_ids(None, 1).await.unwrap()[0];
    step::resolve(&fixture.gate, run_id, Settlement::Failed, operator(), None).await.unwrap();
    fixture.gate.executor = real;
    let other = fixture.submit(proposal(2, "WRITE_FILE", args)).await;
    assert_eq!(other.word(), Word::Outcome(Outcome::Success), "{}", other.body());
}

#[tokio::test]
async fn a_second_dispatch_that_was_answered_ends_the_run_whatever_the_answer() {
    for failure in [ExecutionFailure::OutputInvalid, ExecutionFailure::ToolFailed] {
        let house = House::with(Delivery::HonoursKey, Behaviour::StopsBefore);
        let answer = house.stop_with(json!({ "volume": 20 })).await;
        house.bench.behave(VOLUME, Behaviour::Fails(failure.into()));
        assert_eq!(house.recover().await.finished, [answer.run_id], "{failure:?}");
        let dossier = house.dossier(&answer).await;
        assert_eq!(dossier.run.status, Status::Error, "{failure:?}");
        // What it says of the second dispatch says nothing of the first.
        assert_eq!(effect_status(&dossier), EffectStatus::Error, "{failure:?}");
        house.verified().await;
    }
}

#[tokio::test]
async fn the_latency_of_a_run_leaves_out_the_time_that_a_person_took() {
    let house = House::new();
    let (answer, approval_id) = house.ask(1, json!({ "volume": 20 })).await;
    let before = house.fixture.gate.world.now();
    for _ in 0..1000 {
        house.fixture.gate.world.now();
    }
    let waited_ms = house.fixture.gate.world.now().since_ms(before);
    house.approve(approval_id).await.unwrap();
    let latency_ms = house.dossier(&answer).await.run.ending.unwrap().latency_ms;
    assert!((1..waited_ms).contains(&latency_ms), "{latency_ms} of {waited_ms}");
    house.verified().await;
}
