use async_trait::async_trait;
use serde_json::json;
use stepgate_core::action::InvalidArgs;
use stepgate_core::approvers::Groups;
use stepgate_core::call::ServerCall;
use stepgate_core::consent_cache::Consents;
use stepgate_core::digest::Digest;
use stepgate_core::fact_sources::FactSources;
use stepgate_core::failure::Outcome;
use stepgate_core::gate::{Doubts, Extensions, Parked};
use stepgate_core::json::{Map, Value};
use stepgate_core::limits::Limits;
use stepgate_core::policy::BuiltInRule;
use stepgate_core::ports::{
    Effect, Failed, Hold, Policy, PolicyDecision, PolicyRequest, PolicyVerdict, Sending,
    ToolServers,
};
use stepgate_core::tool::{Contract, Delivery, Mode, Standing, Tool, ToolName};
use stepgate_exec::servers::CallProgress;
use stepgate_exec::{Sandbox, SandboxLimits};
use stepgate_store::memory::MemoryStore;
use tempfile::TempDir;

use super::*;
use crate::hub::Hub;
use crate::world::RealWorld;

const COOK: &str = "kitchen.cook";

/// A tool that reports its progress, and finishes when the test tells it to.
struct Kitchen {
    hub: Arc<Hub>,
    may_end: Arc<Notify>,
}

struct Anything;

impl Contract for Anything {
    fn check(&self, _: &Map<String, Value>) -> Result<(), InvalidArgs> {
        Ok(())
    }
}

#[async_trait]
impl ToolServers for Kitchen {
    fn tool(&self, name: &ToolName) -> Option<Arc<Tool>> {
        self.tools().into_iter().find(|tool| tool.name == *name)
    }

    fn tools(&self) -> Vec<Arc<Tool>> {
        vec![Arc::new(Tool {
            name: ToolName::parse(COOK).unwrap(),
            mode: Mode::ReadOnly,
            delivery: Delivery::Redispatch,
            definition_digest: Digest::of(COOK),
            standing: Standing::Accepted,
            redacted: vec![],
            erasable: Vec::new(),
            flow: Default::default(),
            contract: Arc::new(Anything),
        })]
    }

    async fn prepare(&self, _: &ServerCall) -> Result<Hold, Failed> {
        Ok(Box::new(()))
    }

    async fn dispatch(&self, _: &ServerCall, sending: &Sending) -> Effect {
        self.hub.progress(half(sending.run_id));
        self.may_end.notified().await;
        Effect::Done(None)
    }
}

struct PermitAll;

impl Policy for PermitAll {
    fn decide(&self, request: PolicyRequest<'_>) -> PolicyDecision {
        PolicyDecision { verdict: PolicyVerdict::Permit, ..BuiltInRule.decide(request) }
    }
}

fn half(run_id: RunId) -> CallProgress {
    CallProgress { run_id, progress: 0.5, total: Some(1.0), message: None }
}

/// A service with the kitchen as its tool server, and the signal that lets a call finish.
async fn kitchen(place: &TempDir) -> (Arc<Service>, Arc<Notify>) {
    let sandbox = Sandbox::open(place.path(), "sandbox".into(), SandboxLimits::default()).unwrap();
    let (hub, may_end) = (Hub::new(), Arc::new(Notify::new()));
    let gate = Gate {
        store: Arc::new(MemoryStore::new().announcing_to(hub.clone())),
        executor: Arc::new(sandbox),
        tools: Arc::new(Kitchen { hub: Arc::clone(&hub), may_end: Arc::clone(&may_end) }),
        policy: Arc::new(PermitAll),
        world: Arc::new(RealWorld),
        limits: Limits::default(),
        extensions: Extensions::default(),
        parked: Parked::default(),
        doubts: Doubts::default(),
        groups: Groups::default(),
        consents: Consents::default(),
        facts: FactSources::default(),
    };
    (Service::new(gate, hub, None).await.unwrap(), may_end)
}

/// Proposes to cook, as the run of this id.
async fn cook(service: &Arc<Service>, run_id: RunId, id: &str) -> Result<Answer, Fault> {
    let proposal = json!({
        "schema_version": "1.0.0", "id": id, "reasoning": "hungry", "action": COOK, "args": {},
    });
    let payload = Payload::whole(proposal.to_string().into_bytes());
    let agent = PrincipalId::parse("agent").unwrap();
    service.submit_as(run_id, agent, None, payload, Duration::ZERO).await
}

#[tokio::test]
async fn a_watch_leaves_nothing_behind() {
    let hub = Hub::new();
    let run_id = RunId::new(uuid::Uuid::now_v7());
    let (first, second) = (hub.watch(run_id), hub.watch(run_id));
    assert_eq!(hub.watched_runs().len(), 1);
    drop(first);
    assert_eq!(hub.watched_runs().len(), 1);
    drop(second);
    assert_eq!(hub.watched_runs().len(), 0);
}

#[tokio::test]
async fn a_run_can_be_watched_from_its_beginning_and_its_id_is_used_once() {
    let place = TempDir::new().unwrap();
    let (service, may_end) = kitchen(&place).await;
    let run_id = RunId::new(uuid::Uuid::now_v7());
    let mut watch = service.hub.watch(run_id);
    let watching = async {
        assert_eq!(watch.progressed().await, half(run_id));
        may_end.notify_one();
    };
    let first = "550e8400-e29b-41d4-a716-446655440001";
    let (answer, ()) = tokio::join!(cook(&service, run_id, first), watching);
    let answer = answer.unwrap();
    assert_eq!((answer.run_id, answer.word()), (run_id, Word::Outcome(Outcome::Success)));
    // A known proposal with another run id keeps its run. Another proposal cannot reuse a run id.
    let other = RunId::new(uuid::Uuid::now_v7());
    assert_eq!(cook(&service, other, first).await.unwrap().run_id, run_id);
    let second = cook(&service, run_id, "550e8400-e29b-41d4-a716-446655440002").await;
    assert!(matches!(second, Err(Fault::Store(StoreError::State(_)))), "{second:?}");
}

#[tokio::test]
async fn a_part_that_was_told_is_not_told_again_by_another_process() {
    use stepgate_core::attention::Kind;
    use stepgate_core::event::EventType;
    use stepgate_core::parts::Finding;

    let place = TempDir::new().unwrap();
    let (service, _) = kitchen(&place).await;
    let gate = &service.gate;
    let found = [Finding::new(Kind::ServerOff, "kitchen", "no gas", None)];
    let told = service.parts.tell(gate, &found).await.unwrap();
    assert_eq!(told.len(), 1);
    assert_eq!(service.parts.needs(gate, &found).await.unwrap(), told);
    // Another process knows from the events alone, since when too.
    let other = Parts::default();
    assert_eq!(other.tell(gate, &found).await.unwrap(), []);
    assert_eq!(other.needs(gate, &found).await.unwrap(), told);
    let noted = gate.noted(&[EventType::PartNeedsPerson]).await.unwrap();
    let payloads: Vec<&Value> = noted.iter().map(|event| &event.payload).collect();
    let expected = json!({ "kind": "server_off", "reason": "no gas", "subject": "kitchen" });
    assert_eq!(payloads, [&expected]);
}
