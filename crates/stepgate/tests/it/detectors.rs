//! Detectors: what they find in a result, and what becomes of it.

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;

use serde_json::{Value, json};
use stepgate_core::detect::{Detector, Detectors, Scope};
use stepgate_core::event::EventType;
use stepgate_core::fact_sources::FactSources;
use stepgate_core::failure::ExecutionFailure;
use stepgate_core::label::{Carrier, Label};
use stepgate_core::labels;
use stepgate_core::ports::{EventQuery, Failed, RunQuery, Said, Store};
use stepgate_core::recover::{self, Scope as Recovered};
use stepgate_core::tool::{Delivery, Mode};
use stepgate_core::verify;
use stepgate_store::faulty::{Faults, FaultyStore, StopAt};
use stepgate_store::memory::MemoryStore;

use crate::gate::{CountingWorld, Fixture, agent, proposal, submit};
use crate::http_client::{Gateway, proposal as fresh_proposal};
use crate::scene::{Scene, kill};
use crate::spec_002::bench::{Behaviour, Bench, HomeRules};

/// Made up; split, so that nothing that looks for secrets in this file finds one.
fn token() -> String {
    ["ghp_", "abcdefghijklmnopqrstuvwxyz0123456789"].concat()
}

struct Lab {
    fixture: Fixture,
    bench: Arc<Bench>,
    count: u32,
}

impl Lab {
    fn over(store: Arc<dyn Store>) -> Self {
        let mut fixture = Fixture::with_store(store).with_policy(HomeRules { volume_max: None });
        let bench = Arc::new(Bench::default());
        let says = Behaviour::Says(json!({ "text": token() }));
        bench.offer("web.fetch", Mode::ReadOnly, Delivery::Redispatch, says);
        fixture.gate.tools = bench.clone();
        let secret = Label::parse("secret").unwrap();
        let detector = Detector::built_in("secrets", secret.clone(), Scope::default()).unwrap();
        fixture.gate.facts = FactSources {
            labels: [secret].into(),
            detectors: Detectors::new(BTreeMap::from([("keys".to_owned(), detector)])),
            ..FactSources::default()
        };
        Self { fixture, bench, count: 0 }
    }

    async fn call(&mut self, action: &str, args: Value) -> bool {
        self.count += 1;
        submit(&self.fixture.gate, proposal(self.count, action, args)).await.is_ok()
    }

    async fn labels(&self) -> Vec<String> {
        let session = self.fixture.gate.default_session(&agent()).await.unwrap();
        let carrier = Carrier::Session(session.session_id);
        let additions = labels::additions(&self.fixture.gate, &carrier).await.unwrap();
        let shown = |it: stepgate_core::event::payload::LabelAdded| {
            format!("{} by {:?} of {}", it.label, it.detector, it.tool)
        };
        additions.into_iter().map(shown).collect()
    }

    async fn verified(&self) {
        let report = verify::verify(&*self.fixture.gate.store, &[], |_| {}).await.unwrap();
        assert_eq!(report.problems, []);
    }
}

const FOUND: [&str; 1] = ["secret by Some(\"keys\") of web.fetch"];

#[tokio::test]
async fn a_secret_in_a_result_labels_the_session_and_is_told_nowhere() {
    let mut lab = Lab::over(Arc::new(MemoryStore::new()));
    lab.bench.behave("web.fetch", Behaviour::Says(json!({ "text": "nothing to see" })));
    lab.call("web.fetch", json!({})).await;
    assert_eq!(lab.labels().await, [""; 0]);
    lab.bench.behave("web.fetch", Behaviour::Says(json!({ "text": token() })));
    lab.call("web.fetch", json!({})).await;
    lab.call("web.fetch", json!({})).await;
    assert_eq!(lab.labels().await, FOUND);
    let types = vec![EventType::LabelAdded];
    let query = EventQuery { event_types: types, limit: 10, ..EventQuery::default() };
    let events = lab.fixture.gate.store.events(query).await.unwrap();
    assert_eq!(events.len(), 1);
    assert!(!events[0].event.payload.to_string().contains("ghp_"));
    lab.verified().await;
}

#[tokio::test]
async fn a_file_and_an_error_of_a_tool_are_searched_too() {
    let mut lab = Lab::over(Arc::new(MemoryStore::new()));
    lab.fixture.write("a.txt", token());
    lab.call("READ_FILE", json!({ "path": "/sandbox/a.txt" })).await;
    assert_eq!(lab.labels().await, ["secret by Some(\"keys\") of READ_FILE"]);

    let mut lab = Lab::over(Arc::new(MemoryStore::new()));
    let said =
        Said::Error(json!({ "content": [{ "text": token() }], "isError": true }).to_string());
    let failed = Failed { said, ..ExecutionFailure::ToolFailed.into() };
    lab.bench.behave("web.fetch", Behaviour::Fails(failed));
    lab.call("web.fetch", json!({})).await;
    assert_eq!(lab.labels().await, FOUND);
}

/// Wherever the store stops: a result that is recorded has its label, also where recovery brings it in.
#[tokio::test]
async fn no_crash_separates_a_result_from_its_label() {
    let (mut crashed, mut recovered) = (0, 0);
    for number in 1..20 {
        for stop in [StopAt::Before(number), StopAt::After(number)] {
            let memory = MemoryStore::new();
            Lab::over(Arc::new(memory.clone())).labels().await;
            let faults = Faults::new(stop);
            let store = FaultyStore::new(memory.clone(), Arc::clone(&faults));
            let mut lab = Lab::over(Arc::new(store));
            let answered = lab.call("web.fetch", json!({})).await;
            crashed += u32::from(faults.has_crashed());
            let mut after = Lab::over(Arc::new(memory.reopened()));
            after.fixture.gate.world = CountingWorld::starting_at(100_000);
            recover::recover(&after.fixture.gate, Recovered::Servers).await.unwrap();
            let query = RunQuery { limit: 10, ..RunQuery::default() };
            let runs = after.fixture.gate.store.runs(query).await.unwrap();
            let ended = runs.iter().filter_map(|run| run.ending.as_ref());
            let has_result = ended.into_iter().any(|ending| ending.output_json.is_some());
            recovered += u32::from(has_result && !answered);
            let labels = after.labels().await;
            assert!(!has_result || labels == FOUND, "{number} {stop:?}: {labels:?}");
            after.verified().await;
        }
    }
    assert!(crashed >= 6 && recovered >= 4, "{crashed} {recovered}");
}

/// The whole way: the configuration, a policy that asks, the command line, a kill.
#[test]
fn a_person_is_asked_after_a_secret_was_found() {
    let scene = Scene::with("honours_key = true\nsends = [\"egress\"]", &["--mail"]);
    let file = scene.place.path().join("stepgate.toml");
    let config = fs::read_to_string(&file).unwrap();
    let detect = r#"
[detect.keys]
kind = "secrets"
adds = "secret"
tools = ["fixture.find"]
[detect.projects]
pattern = "(?i)project \\w+"
adds = "internal"
servers = ["other"]
"#;
    fs::write(&file, config + detect).unwrap();
    let policies = r#"
        @id("read") permit (principal, action in Action::"read_only", resource);
        @id("act") permit (principal, action == Action::"fixture.act", resource);
        @id("flow") @approval("the session has read a secret") permit (principal, action, resource)
        when { context.sends.contains(Label::"egress") && context.session.labels.contains(Label::"secret") };
        @id("internal") forbid (principal, action == Action::"fixture.act", resource)
        when { context.session.labels.contains(Label::"internal") };
    "#;
    fs::write(scene.place.path().join("policies/all.cedar"), policies).unwrap();
    let finds =
        |text: &str| fs::write(scene.file("found.json"), json!({ "a": text }).to_string()).unwrap();
    let gateway = Gateway::start(&scene.place);
    let find = |gateway: &Gateway, server: &str| {
        let body = fresh_proposal(&format!("{server}.find"), json!({}));
        assert_eq!(gateway.propose(&body).status, 200);
    };
    let act = |gateway: &Gateway| {
        gateway.propose(&fresh_proposal("fixture.act", json!({ "value": 1 }))).status
    };
    finds("about Project Zebra");
    find(&gateway, "fixture");
    assert_eq!(act(&gateway), 200);
    finds(&token());
    // Not in its scope.
    find(&gateway, "other");
    assert_eq!(act(&gateway), 200);
    find(&gateway, "fixture");
    assert_eq!(act(&gateway), 202);
    kill(gateway);
    let gateway = Gateway::start(&scene.place);
    assert_eq!(act(&gateway), 202);
    let sessions = scene.stepgate(&["sessions", "--principal", "agent", "--json"]).stdout;
    let session: Value = serde_json::from_str(sessions.lines().next().unwrap()).unwrap();
    let session = session["session_id"].as_str().unwrap();
    let shown = scene.stepgate(&["labels", "--session", session]).stdout;
    let expected = "secret  found by the detector `keys` in a result of fixture.find, run ";
    assert!(shown.starts_with(expected) && !shown.contains("ghp_"), "{shown}");
    finds("about Project Zebra");
    find(&gateway, "other");
    assert_eq!(act(&gateway), 403);
    drop(gateway);
    scene.verified();
}
