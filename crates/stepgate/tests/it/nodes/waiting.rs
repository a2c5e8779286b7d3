//! What waits for a node that is gone, and who says so.

use std::fs;

use rustix::process::Signal;
use serde_json::{Value, json};

use super::{House, SERVER, until, write};
use crate::binary::Place;
use crate::http_client::{Gateway, exchange, request};
use crate::scene::kill;

/// Holds the table of records, so that whoever ends a step waits.
struct Held<'a> {
    house: &'a House,
    holding: Option<std::thread::JoinHandle<()>>,
}

impl<'a> Held<'a> {
    fn records(house: &'a House) -> Self {
        let database = house.database.clone();
        let sql = "BEGIN; LOCK TABLE records IN EXCLUSIVE MODE; SELECT pg_sleep(60)";
        // It ends when it is told to, which is an error.
        let holding = std::thread::spawn(move || drop(SERVER.sql(&database, sql)));
        until("the table is not held", || {
            let locks = "SELECT count(*) FROM pg_locks WHERE mode = 'ExclusiveLock' AND granted
                         AND relation = 'records'::regclass";
            house.sql(locks).is_ok_and(|count| count == "1")
        });
        Self { house, holding: Some(holding) }
    }

    fn let_go(mut self) {
        terminate(self.house, "query LIKE 'BEGIN; LOCK%'");
        self.holding.take().unwrap().join().unwrap();
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
    let doctor = places[1].stepgate(["doctor"], "");
    assert_eq!(doctor.code, 1, "{doctor:?}");
    let advice =
        "1 runs wait for `sandbox@first`, which no living node reaches: start node `first` again";
    assert!(doctor.stdout.contains(advice), "{doctor:?}");

    let first = Gateway::start(&places[0]);
    until("it still waits", || unreached(&places[1]).is_empty());
    let runs = places[1].stepgate(["--json", "runs"], "");
    let run: Value = serde_json::from_str(runs.stdout.lines().next().unwrap()).unwrap();
    assert_eq!((runs.stdout.lines().count(), &run["status"]), (1, &json!("ok")), "{runs:?}");
    assert_eq!(fs::read_to_string(places[0].path().join("sandbox/own.txt")).unwrap(), "once");
    assert!(!places[1].path().join("sandbox/own.txt").exists());
    assert_eq!(places[1].stepgate(["doctor"], "").code, 0);
    first.signal(Signal::TERM);
    assert_eq!(first.end().0, Some(0));
    assert_eq!(places[1].stepgate(["verify"], "").code, 0);
    drop(second);
}
