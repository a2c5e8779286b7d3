//! What the core itself knows of a session, over every store.

use std::sync::{Arc, Mutex};

use serde_json::{Map, Value, json};
use stepgate_core::action::InvalidArgs;
use stepgate_core::digest::Digest;
use stepgate_core::facts::{FactNeeds, Facts};
use stepgate_core::ids::SessionId;
use stepgate_core::origin::Origin;
use stepgate_core::policy::BuiltInRule;
use stepgate_core::ports::{Policy, PolicyDecision, PolicyRequest, PolicyVerdict, Store};
use stepgate_core::requests::{self, ToldBy};
use stepgate_core::run::Payload;
use stepgate_core::session_cache::SessionCache;
use stepgate_core::step::{self, Answer, Submission};
use stepgate_core::tool::{Contract, Delivery, Mode};
use stepgate_store::memory::MemoryStore;
use stepgate_store::sqlite::SqliteStore;
use tempfile::TempDir;

use crate::gate::{Fixture, agent, proposal};
use crate::spec_002::bench::{Behaviour, Bench};

/// Permits everything, and notes what it knew.
#[derive(Clone, Default)]
struct Watcher {
    needs: FactNeeds,
    seen: Arc<Mutex<Vec<Facts>>>,
}

impl Policy for Watcher {
    fn decide(&self, request: PolicyRequest<'_>) -> PolicyDecision {
        self.seen.lock().unwrap().push(request.facts.clone());
        let policy_hash = Digest::of("watcher");
        PolicyDecision {
            verdict: PolicyVerdict::Permit,
            policy_hash,
            ..BuiltInRule.decide(request)
        }
    }

    fn needs(&self, _: &str) -> FactNeeds {
        self.needs
    }
}

struct Anything;

impl Contract for Anything {
    fn check(&self, _: &Map<String, Value>) -> Result<(), InvalidArgs> {
        Ok(())
    }
}

struct Office {
    fixture: Fixture,
    bench: Arc<Bench>,
    watcher: Watcher,
    session_id: SessionId,
    count: u32,
}

impl Office {
    async fn over(store: Arc<dyn Store>, needs: FactNeeds) -> Self {
        let watcher = Watcher { needs, ..Watcher::default() };
        let mut fixture = Fixture::with_store(store).with_policy(watcher.clone());
        let bench = Arc::new(Bench::default());
        fixture.gate.tools = bench.clone();
        let session_id = SessionId::new(fixture.gate.world.fresh_uuid());
        fixture.gate.named_session(session_id, &agent()).await.unwrap();
        let office = Self { fixture, bench, watcher, session_id, count: 0 };
        office.offer_find();
        office.bench.offer("mail.send", Mode::Draft, Delivery::HonoursKey, Behaviour::Acts);
        office.bench.change("mail.send", |tool| {
            tool.flow.targets = Some(vec!["to".to_owned()]);
            tool.contract = Arc::new(Anything);
        });
        office
    }

    async fn in_memory() -> Self {
        let needs = FactNeeds { origins: true, opened: true, steps: true };
        Self::over(Arc::new(MemoryStore::new()), needs).await
    }

    fn offer_find(&self) {
        let says = Behaviour::Says(json!({ "ids": ["id-one"] }));
        self.bench.offer("mail.find", Mode::ReadOnly, Delivery::Redispatch, says);
        self.bench.change("mail.find", |tool| {
            tool.flow.trusted = vec!["/ids/*".parse().unwrap()];
            tool.contract = Arc::new(Anything);
        });
    }

    fn finds(&self, ids: Value) {
        self.bench.behave("mail.find", Behaviour::Says(json!({ "ids": ids })));
    }

    fn submission(&mut self, action: &str, args: Value) -> Submission {
        self.count += 1;
        Submission {
            session_id: self.session_id,
            principal_id: agent(),
            payload: Payload::whole(proposal(self.count, action, args).as_bytes()),
        }
    }

    async fn call(&mut self, action: &str, args: Value) -> Answer {
        let submission = self.submission(action, args);
        step::run(&self.fixture.gate, submission).await.unwrap()
    }

    /// The origins of the targets of a mail.
    async fn targets(&mut self, to: Value) -> Vec<String> {
        self.call("mail.send", json!({ "to": to })).await;
        names(&self.facts().targets)
    }

    fn facts(&self) -> Facts {
        self.watcher.seen.lock().unwrap().last().unwrap().clone()
    }
}

fn names(origins: &std::collections::BTreeSet<Origin>) -> Vec<String> {
    origins.iter().map(ToString::to_string).collect()
}

const RECORD: [&str; 2] = ["mail.find", "record"];
const AGENT: [&str; 1] = ["agent"];

#[tokio::test]
async fn a_session_is_read_on_and_read_again_to_the_same_values() {
    let place = TempDir::new().unwrap();
    let file = SqliteStore::open(&place.path().join("s.db"), Default::default()).unwrap();
    let stores: [Arc<dyn Store>; 2] = [Arc::new(MemoryStore::new()), Arc::new(file)];
    for store in stores {
        let needs = FactNeeds { origins: true, ..FactNeeds::default() };
        let mut office = Office::over(store, needs).await;
        // More than one page.
        for number in 0..70 {
            office.finds(json!([format!("id-{number:03}")]));
            office.call("mail.find", json!({})).await;
            assert_eq!(office.targets(json!(format!("id-{number:03}"))).await, RECORD);
        }
        assert_eq!(office.targets(json!("id-999")).await, AGENT);
        // As after a restart.
        office.fixture.gate.facts.sessions = SessionCache::default();
        for number in [0, 31, 32, 69] {
            assert_eq!(office.targets(json!([format!("id-{number:03}")])).await, RECORD);
        }
        assert_eq!(office.targets(json!(["id-000", "id-999"])).await, AGENT);
        assert_eq!(office.targets(json!([])).await, AGENT);
        assert_eq!(office.targets(json!(null)).await, AGENT);
        assert_eq!(office.targets(json!(true)).await, AGENT);
        // The name of a member is a value, too.
        assert_eq!(office.targets(json!({ "id-001": "id-002" })).await, RECORD);
        assert_eq!(office.targets(json!({ "evil": "id-002" })).await, AGENT);
    }
}

#[tokio::test]
async fn a_result_that_came_while_others_were_read_is_seen() {
    let mut office = Office::in_memory().await;
    let told = Arc::new(tokio::sync::Notify::new());
    let says = Behaviour::SaysWhen(json!({ "ids": ["id-late"] }), Arc::clone(&told));
    office.bench.behave("mail.find", says);
    let (gate, submission) =
        (office.fixture.gate.clone(), office.submission("mail.find", json!({})));
    let finding = tokio::spawn(async move { step::run(&gate, submission).await.unwrap() });
    while office.bench.sent().is_empty() {
        tokio::task::yield_now().await;
    }
    // The session is read while the run is open, and newer runs end before it.
    assert_eq!(office.targets(json!("id-late")).await, AGENT);
    assert_eq!(office.targets(json!("id-late")).await, AGENT);
    told.notify_one();
    finding.await.unwrap();
    assert_eq!(office.targets(json!("id-late")).await, RECORD);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn calls_at_the_same_time_see_every_result_before_them() {
    let place = TempDir::new().unwrap();
    let file = SqliteStore::open(&place.path().join("s.db"), Default::default()).unwrap();
    let needs = FactNeeds { origins: true, ..FactNeeds::default() };
    let mut office = Office::over(Arc::new(file), needs).await;
    for round in 0..10 {
        office.finds(json!([format!("round-{round}")]));
        office.call("mail.find", json!({})).await;
        office.watcher.seen.lock().unwrap().clear();
        let mut calls = tokio::task::JoinSet::new();
        for _ in 0..16 {
            let args = json!({ "to": format!("round-{round}") });
            let (gate, submission) =
                (office.fixture.gate.clone(), office.submission("mail.send", args));
            calls.spawn(async move { step::run(&gate, submission).await.unwrap() });
        }
        calls.join_all().await;
        let seen = office.watcher.seen.lock().unwrap().clone();
        assert_eq!(seen.len(), 16);
        assert!(seen.iter().all(|facts| names(&facts.targets) == RECORD), "{seen:?}");
    }
}

#[tokio::test]
async fn results_of_a_tool_count_also_where_its_server_came_up_later() {
    let mut office = Office::in_memory().await;
    office.call("mail.find", json!({})).await;
    office.bench.withdraw("mail.find");
    office.fixture.gate.facts.sessions = SessionCache::default();
    assert_eq!(office.targets(json!("id-one")).await, AGENT);
    office.offer_find();
    assert_eq!(office.targets(json!("id-one")).await, RECORD);
    assert_eq!(office.targets(json!("id-one")).await, RECORD);
}

#[tokio::test]
async fn a_failed_call_vouches_for_nothing() {
    let mut office = Office::in_memory().await;
    let failed = stepgate_core::ports::Failed {
        said: stepgate_core::ports::Said::Error(
            json!({ "structuredContent": { "ids": ["id-bad"] }, "isError": true }).to_string(),
        ),
        ..stepgate_core::failure::ExecutionFailure::ToolFailed.into()
    };
    office.bench.behave("mail.find", Behaviour::Fails(failed));
    office.call("mail.find", json!({})).await;
    assert_eq!(office.targets(json!("id-bad")).await, AGENT);
}

#[tokio::test]
async fn values_and_calls_beyond_the_limits_come_from_the_agent() {
    let mut office = Office::in_memory().await;
    let (long, longer) = ("x".repeat(1024), "y".repeat(1025));
    office.finds(json!([long, longer]));
    office.call("mail.find", json!({})).await;
    assert_eq!(office.targets(json!(long)).await, RECORD);
    assert_eq!(office.targets(json!(longer)).await, AGENT);
    office.fixture.gate.limits.payload_bytes_max = 1024 * 1024;
    assert_eq!(office.targets(json!(vec![long.as_str(); 400])).await, RECORD);
    office.finds(json!(["id-two"]));
    office.call("mail.find", json!({})).await;
    assert_eq!(office.targets(json!(vec!["id-two"; 1000])).await, RECORD);
    assert_eq!(office.targets(json!(vec!["id-two"; 1001])).await, AGENT);
}

#[tokio::test]
async fn nothing_is_looked_up_where_no_policy_asks_for_it() {
    let mut office = Office::over(Arc::new(MemoryStore::new()), FactNeeds::default()).await;
    office.call("mail.find", json!({})).await;
    office.call("mail.send", json!({ "to": "id-one" })).await;
    assert_eq!(office.facts(), Facts::default());
}

#[tokio::test]
async fn a_decision_knows_how_many_steps_the_session_had_and_when_it_was_opened() {
    let mut office = Office::in_memory().await;
    office.call("mail.find", json!({})).await;
    assert_eq!((office.facts().steps, office.facts().opened), (Some(0), Some([].into())));
    office.call("THINK", json!({})).await;
    office.call("mail.find", json!({})).await;
    assert_eq!(office.facts().steps, Some(2));
}

#[tokio::test]
async fn requests_that_are_told_at_the_same_time_are_all_recorded() {
    let place = TempDir::new().unwrap();
    let file = SqliteStore::open(&place.path().join("s.db"), Default::default()).unwrap();
    let stores: [Arc<dyn Store>; 2] = [Arc::new(MemoryStore::new()), Arc::new(file)];
    for store in stores {
        let needs = FactNeeds { origins: true, ..FactNeeds::default() };
        let mut office = Office::over(store, needs).await;
        let mut telling = tokio::task::JoinSet::new();
        for number in 0..16 {
            let (gate, session_id) = (office.fixture.gate.clone(), office.session_id);
            telling.spawn(async move {
                // Each twice.
                let text = format!("write to number-{:02}", number / 2);
                requests::tell(&gate, session_id, &text, ToldBy::Operator, &agent()).await.unwrap();
            });
        }
        telling.join_all().await;
        let everyone: Vec<String> = (0..8).map(|number| format!("number-{number:02}")).collect();
        let known = ["known", "link", "record", "user"];
        assert_eq!(office.targets(json!(everyone)).await, known);
    }
}

/// Steps of the long session.
const STEPS: u32 = 10_000;
/// Pairs of decisions that are measured.
const PAIRS: usize = 500;

/// Ten thousand steps take a while to write, so only this command looks at them:
/// `cargo test --release -p stepgate --test it ten_thousand -- --ignored --nocapture`
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "writes ten thousand steps"]
async fn a_session_with_ten_thousand_steps_is_decided_on_as_fast_as_a_new_one() {
    let place = TempDir::new().unwrap();
    let file = SqliteStore::open(&place.path().join("s.db"), Default::default()).unwrap();
    let needs = FactNeeds { origins: true, opened: true, steps: true };
    let mut office = Office::over(Arc::new(file), needs).await;
    fill(&mut office).await;
    let long = office.session_id;
    let new = SessionId::new(office.fixture.gate.world.fresh_uuid());
    office.fixture.gate.named_session(new, &agent()).await.unwrap();
    let begin = std::time::Instant::now();
    stepgate_core::origins::given(&office.fixture.gate, long).await.unwrap();
    println!("read {STEPS} steps, as after a restart: {:?}", begin.elapsed());
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..PAIRS {
        for (session_id, times) in [long, new].into_iter().zip(&mut times) {
            office.session_id = session_id;
            office.call("mail.find", json!({})).await;
            // What a decision costs beside the commits: it reads the result before it.
            let begin = std::time::Instant::now();
            stepgate_core::origins::given(&office.fixture.gate, session_id).await.unwrap();
            times.push(begin.elapsed());
            assert_eq!(office.targets(json!("id-one")).await, RECORD);
        }
    }
    let [long, new] = times.map(|mut times| {
        times.sort();
        times[PAIRS / 2]
    });
    let ratio = long.as_secs_f64() / new.as_secs_f64();
    println!(
        "one decision reads on: {long:?} after {STEPS} steps, {new:?} in a new session, ratio {ratio:.2}"
    );
    assert!(ratio < 1.5, "{ratio}");
}

/// Steps of the office's session, each with a value of its own.
async fn fill(office: &mut Office) {
    let values: Vec<String> = (0..20).map(|number| format!("value-{number:05}")).collect();
    office.bench.behave("mail.find", Behaviour::Says(json!({ "ids": values })));
    let watching = std::mem::replace(&mut office.fixture.gate.policy, Arc::new(Watcher::default()));
    let mut steps = tokio::task::JoinSet::new();
    for _ in 0..STEPS {
        let (gate, submission) =
            (office.fixture.gate.clone(), office.submission("mail.find", json!({})));
        if steps.len() >= 64 {
            steps.join_next().await.unwrap().unwrap();
        }
        steps.spawn(async move { step::run(&gate, submission).await.unwrap() });
    }
    steps.join_all().await;
    office.fixture.gate.policy = watching;
    office.finds(json!(["id-one"]));
}
