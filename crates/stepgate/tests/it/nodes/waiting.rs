//! What waits for a node that is gone, and who says so.

use std::fs;

use rustix::process::Signal;
use serde_json::{Value, json};

use super::{House, SERVER, until, write};
use crate::attention::everywhere::is_shown;
use crate::binary::Place;
use crate::http_client::{Gateway, exchange, proposal, request};
use crate::scene::{Scene, approve, kill};

/// Holds a lock that a commit with a record waits for, so that a step does not end.
struct Held<'a> {
    house: &'a House,
    holding: Option<std::thread::JoinHandle<()>>,
}

impl<'a> Held<'a> {
    fn records(house: &'a House) -> Self {
        let database = house.database.clone();
        let waits = "CREATE FUNCTION wait_for_the_test() RETURNS trigger LANGUAGE plpgsql AS
                     'BEGIN PERFORM pg_advisory_xact_lock(42); RETURN NEW; END';
                     CREATE TRIGGER wait_for_the_test BEFORE INSERT ON chunks FOR EACH ROW
                     WHEN (NEW.records > 0) EXECUTE FUNCTION wait_for_the_test()";
        house.sql(waits).unwrap();
        let sql = "BEGIN; SELECT pg_advisory_xact_lock(42); SELECT pg_sleep(60)";
        // It ends when it is told to, which is an error.
        let holding = std::thread::spawn(move || drop(SERVER.sql(&database, sql)));
        until("the lock is not held", || {
            let locks =
                "SELECT count(*) FROM pg_locks JOIN pg_database ON database = pg_database.oid
                         WHERE locktype = 'advisory' AND objid = 42 AND granted
                           AND datname = current_database()";
            house.sql(locks).is_ok_and(|count| count == "1")
        });
        Self { house, holding: Some(holding) }
    }

    fn let_go(mut self) {
        terminate(self.house, "query LIKE 'BEGIN; SELECT pg_advisory%'");
        self.holding.take().unwrap().join().unwrap();
        let drop = "DROP TRIGGER wait_for_the_test ON chunks; DROP FUNCTION wait_for_the_test()";
        self.house.sql(drop).unwrap();
    }
}

fn terminate(house: &House, which: &str) {
    let sql = format!(
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
         WHERE datname = current_database() AND pid <> pg_backend_pid() AND {which}"
    );
    house.sql(&sql).unwrap();
}

fn lines(place: &Place) -> Vec<Value> {
    let listed = place.stepgate(["--json", "nodes"], "");
    assert_eq!(listed.code, 0, "{listed:?}");
    listed.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn unreached(place: &Place) -> Vec<Value> {
    let lines = lines(place).into_iter();
    lines.filter(|line| line.get("unreached_executor_id").is_some()).collect()
}

/// Waits until one event tells that no node reaches this executor.
fn is_told(house: &House, executor_id: &str) {
    let told = format!(
        "SELECT count(*) FROM events WHERE event_type = 'part_needs_person'
         AND payload_json LIKE '%\"executor_unreached\"%\"{executor_id}\"%'"
    );
    until("it is not told", || house.sql(&told).unwrap() == "1");
}

/// The first node acts in its own sandbox, and is gone before it could record the effect.
fn left_by_the_first(house: &House, place: &Place, first: Gateway) {
    let held = Held::records(house);
    let (address, token) = (first.address, first.agent.clone());
    let asking = std::thread::spawn(move || {
        let request = request("POST", "/v1/steps", &token, &[], &write("own", "once"));
        exchange(address, request.as_bytes())
    });
    let file = place.path().join("sandbox/own.txt");
    until("it is not written", || file.exists());
    kill(first);
    // What it sent may still be on its way.
    terminate(house, "application_name = 'stepgate first'");
    held.let_go();
    assert!(asking.join().unwrap().is_none_or(|reply| reply.status != 200));
}

#[test]
fn nodes_and_a_run_that_is_taken_over_are_in_the_metrics() {
    let house = House::new();
    let places = house.two();
    let [first, second] = [Gateway::start(&places[0]), Gateway::start(&places[1])];
    assert_eq!(second.metric("stepgate_nodes_alive"), 2);
    assert_eq!(second.metric("stepgate_takeovers_total"), 0);
    let text = second.send("GET", "/metrics", &second.operator, "").body;
    let lease = text.lines().find_map(|line| line.strip_prefix("stepgate_lease_left_seconds "));
    assert!(lease.unwrap().parse::<f64>().unwrap() > 0.0, "{text}");
    left_by_the_first(&house, &places[0], first);
    until("it is taken over", || second.metric("stepgate_takeovers_total") == 1);
    until("it is finished", || second.metric("stepgate_recovered_runs_total") == 1);
    until("one node is gone", || second.metric("stepgate_nodes_alive") == 1);
}

#[test]
fn a_run_in_a_sandbox_that_nobody_reaches_waits_for_its_node_and_everybody_says_so() {
    let house = House::new();
    let places = [house.alone("first"), house.alone("second")];
    let [first, second] = [Gateway::start(&places[0]), Gateway::start(&places[1])];
    let executors: Vec<Value> =
        lines(&places[1]).iter().map(|node| node["executor_ids"].clone()).collect();
    assert_eq!(executors, [json!(["sandbox@first"]), json!(["sandbox@second"])]);
    assert_eq!(second.metric("stepgate_runs_unreached"), 0);
    left_by_the_first(&house, &places[0], first);

    until("nothing waits", || !unreached(&places[1]).is_empty());
    let waiting = unreached(&places[1]).remove(0);
    let expected = json!({
        "last_node_id": "first",
        "runs_waiting": 1,
        "since": waiting["since"],
        "unreached_executor_id": "sandbox@first",
    });
    assert_eq!(waiting, expected);
    let shown = places[1].stepgate(["nodes"], "");
    let row = shown.stdout.lines().find(|line| line.starts_with("sandbox@first")).unwrap();
    assert!(row.ends_with("first"), "{shown:?}");
    assert_eq!(second.metric("stepgate_runs_unreached"), 1);
    let way_out = is_shown(&second, &places[1], "executor_unreached", "sandbox@first");
    assert!(way_out.contains("`stepgate nodes`"), "{way_out}");
    is_told(&house, "sandbox@first");
    let doctor = places[1].stepgate(["doctor"], "");
    assert_eq!(doctor.code, 1, "{doctor:?}");
    let advice =
        "1 runs wait for `sandbox@first`, which no living node reaches: start node `first` again";
    assert!(doctor.stdout.contains(advice), "{doctor:?}");

    let first = Gateway::start(&places[0]);
    until("it still waits", || unreached(&places[1]).is_empty());
    // The second node may hold the run for a moment, to see that it cannot go on with it.
    until("it is not over", || {
        let runs = places[1].stepgate(["--json", "runs"], "");
        let run: Value = serde_json::from_str(runs.stdout.lines().next().unwrap()).unwrap();
        runs.stdout.lines().count() == 1 && run["status"] == "ok"
    });
    assert_eq!(fs::read_to_string(places[0].path().join("sandbox/own.txt")).unwrap(), "once");
    assert!(!places[1].path().join("sandbox/own.txt").exists());
    assert_eq!(places[1].stepgate(["doctor"], "").code, 0);
    first.signal(Signal::TERM);
    assert_eq!(first.end().0, Some(0));
    assert_eq!(places[1].stepgate(["verify"], "").code, 0);
    drop(second);
}

/// What the agent saw, it saw in the sandbox of the node that it asked.
#[test]
fn a_call_is_granted_where_its_own_sandbox_is() {
    let house = House::new();
    let places = [house.alone("first"), house.alone("second")];
    for place in &places {
        fs::create_dir_all(place.path().join("policies")).unwrap();
        let policy = r#"@approval("it writes") permit (principal, action, resource);"#;
        fs::write(place.path().join("policies/all.cedar"), policy).unwrap();
    }
    let [first, second] = [Gateway::start(&places[0]), Gateway::start(&places[1])];
    let asked = first.propose(&write("own", "granted"));
    assert_eq!(asked.status, 202, "{asked:?}");
    let approval = asked.json()["result"]["approval_id"].as_str().unwrap().to_owned();
    let refused = approve(&second, &approval);
    assert_eq!(refused.status, 409, "{refused:?}");
    assert!(refused.body.contains("does not reach the call's executor"), "{refused:?}");
    assert_eq!(approve(&first, &approval).status, 200);
    let file = |place: &Place| place.path().join("sandbox/own.txt");
    until("it is not written", || file(&places[0]).exists());
    assert!(!file(&places[1]).exists());
}

/// A process of another node knows nothing of the calls that this one's was sent.
#[test]
fn a_call_to_a_process_that_is_gone_is_not_sent_to_another_nodes() {
    let house = House::new();
    let scenes = ["first", "second"].map(|node_id| {
        let scene = Scene::at(house.alone(node_id), "honours_key = true", &[]);
        let policy = "permit (principal, action, resource);";
        fs::write(scene.place.path().join("policies/all.cedar"), policy).unwrap();
        scene
    });
    let [first, second] = scenes.each_ref().map(|scene| Gateway::start(&scene.place));
    fs::write(scenes[0].file("hold-after"), "").unwrap();
    let (address, token) = (first.address, first.agent.clone());
    let asking = std::thread::spawn(move || {
        let act = proposal("fixture.act", json!({ "value": 1 }));
        exchange(address, request("POST", "/v1/steps", &token, &[], &act).as_bytes())
    });
    until("the tool is reached", || scenes[0].file("hold-after.reached").exists());
    kill(first);
    assert!(asking.join().unwrap().is_none_or(|reply| reply.status != 200));

    let place = &scenes[1].place;
    until("nothing waits", || !unreached(place).is_empty());
    assert_eq!(unreached(place).remove(0)["unreached_executor_id"], "fixture@first");
    let way_out = is_shown(&second, place, "executor_unreached", "fixture@first");
    assert!(way_out.contains("`stepgate nodes`"), "{way_out}");
    is_told(&house, "fixture@first");
    let runs = place.stepgate(["--json", "runs"], "").stdout;
    let run: Value = serde_json::from_str(runs.lines().next().unwrap()).unwrap();
    let resolve = ["runs", "resolve", run["tool_run_id"].as_str().unwrap(), "--redispatch"];
    let refused = place.stepgate(resolve, "");
    assert_eq!(refused.code, 1, "{refused:?}");

    fs::remove_file(scenes[0].file("hold-after")).unwrap();
    let first = Gateway::start(&scenes[0].place);
    until("it still waits", || unreached(place).is_empty());
    assert_eq!(scenes.each_ref().map(Scene::effects), [1, 0]);
    assert_eq!(place.stepgate(["verify"], "").code, 0);
    drop([first, second]);
}

/// Two directories of one machine are two nodes, and each keeps its name.
#[test]
fn nodes_that_nobody_named_have_names_of_their_own() {
    let house = House::new();
    let places = [0, 1].map(|_| Place::with(vec![("STEPGATE_STORE", house.url.clone().into())]));
    let name = |place: &Place| {
        let run = place.stepgate(["run", "THINK"], "");
        assert_eq!(run.code, 0, "{run:?}");
        fs::read_to_string(place.path().join("node_id")).unwrap()
    };
    let names = places.each_ref().map(name);
    assert_ne!(names[0], names[1]);
    assert_eq!(names, places.each_ref().map(name));
    // A command that is over has given its lease back.
    let listed = lines(&places[0]);
    assert!(listed.iter().all(|node| node["lease_left_ms"].is_null()), "{listed:?}");
}
