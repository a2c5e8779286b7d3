//! `stepgate bench` with few steps: that it measures every way and says so completely. How fast it is, no test judges.

use serde_json::{Value, json};

use crate::binary::Place;
use crate::nodes::House;

const WAYS: [&str; 3] = ["process", "http", "mcp"];

/// Steps of one round, for any number of clients: they can be divided among four.
const STEPS: u64 = 48;

fn figures(place: &Place, args: &[&str]) -> Vec<Value> {
    let steps = STEPS.to_string();
    let args = ["bench", "--json", "--steps", &steps].into_iter().chain(args.iter().copied());
    let output = place.stepgate(args, "");
    assert_eq!(output.code, 0, "{output:?}");
    output.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn number(figure: &Value, name: &str) -> f64 {
    let number = figure[name].as_f64().unwrap_or_else(|| panic!("{name} in {figure}"));
    assert!(number > 0.0 && number.is_finite(), "{name} in {figure}");
    number
}

/// That a part is this one of the other rate, which holds exactly where there was one round.
fn is_part(figure: &Value, part: &str, of: f64) {
    let expected = number(figure, "steps_per_second") / of;
    assert!((number(figure, part) / expected - 1.0).abs() < 1e-9, "{part} in {figure}");
}

/// What holds for each way of a measurement with one round.
fn is_complete(figure: &Value, process: &Value) {
    is_part(figure, "part_of_roofline", number(figure, "roofline_steps_per_second"));
    is_part(figure, "part_of_append_only", number(figure, "append_only_steps_per_second"));
    is_part(figure, "part_of_process", number(process, "steps_per_second"));
    assert_eq!(figure["latencies"], figure["steps"], "{figure}");
    has_rising_latencies(figure);
    number(figure, "times_bare");
    // At the least, the proposal is in it.
    assert!(number(figure, "append_only_bytes_per_step") > 200.0, "{figure}");
}

fn has_rising_latencies(figure: &Value) {
    let names = ["p50", "p90", "p99", "p99_9", "max"];
    let latencies = names.map(|name| number(figure, &format!("latency_{name}_ms")));
    assert!(latencies.is_sorted(), "{figure}");
}

#[test]
fn every_way_is_measured_beside_the_roofline_and_the_append_only_file() {
    let args = ["--via", "all", "--rounds", "1", "--clients", "1,4", "--sessions", "3"];
    let actions = ["--actions", "THINK,MIX"];
    let figures = figures(&Place::new(), &[&args[..], &actions].concat());
    let rows = [("THINK", 1, 1.0), ("THINK", 4, 1.0), ("MIX", 1, 1.75), ("MIX", 4, 1.75)];
    assert_eq!(figures.len(), rows.len() * WAYS.len());
    for (of_run, (action, clients, appends)) in figures.chunks(WAYS.len()).zip(rows) {
        for (figure, way) in of_run.iter().zip(WAYS) {
            assert_eq!(figure["via"], way, "{figure}");
            assert_eq!((&figure["action"], &figure["clients"]), (&json!(action), &json!(clients)));
            assert_eq!(figure["steps"], STEPS);
            is_complete(figure, &of_run[0]);
            // THINK commits once, the others of MIX twice.
            assert_eq!(figure["append_only_appends_per_step"], appends, "{figure}");
            number(figure, "verified_entries_per_second");
        }
    }
}

#[test]
fn a_way_alone_has_nothing_to_be_compared_with_and_its_latencies_are_of_all_rounds() {
    let args = ["--via", "mcp,mcp", "--rounds", "2", "--clients", "4", "--actions", "READ_FILE"];
    let [figure] = &figures(&Place::new(), &args)[..] else { panic!("one figure is expected") };
    assert_eq!((&figure["via"], &figure["part_of_process"]), (&json!("mcp"), &Value::Null));
    assert_eq!(figure["latencies"], 2 * STEPS);
    has_rising_latencies(figure);
}

#[test]
fn over_http_and_mcp_the_steps_pass_the_gateway_with_its_limits() {
    let place = Place::with(vec![
        ("STEPGATE_SERVE_REQUESTS_PER_SECOND_MAX", "1".into()),
        ("STEPGATE_SERVE_REQUESTS_BURST_MAX", "1".into()),
    ]);
    for (way, says) in [("process", None), ("http", Some("")), ("mcp", Some("over MCP"))] {
        let args = ["bench", "--steps", "48", "--rounds", "1", "--clients", "1"];
        let output = place.stepgate(args.iter().chain(&["--actions", "THINK", "--via", way]), "");
        let is_refused = output.stderr.contains("(429)");
        assert_eq!((output.code != 0, is_refused), (says.is_some(), says.is_some()), "{output:?}");
        assert!(output.stderr.contains(says.unwrap_or_default()), "{output:?}");
    }
}

#[test]
fn people_get_a_table() {
    let args = ["bench", "--steps", "48", "--rounds", "1", "--clients", "2", "--actions", "THINK"];
    let output = Place::new().stepgate(args, "");
    let lines: Vec<Vec<&str>> =
        output.stdout.lines().map(|line| line.split_whitespace().take(3).collect()).collect();
    assert_eq!(lines, [["ACTION", "CLIENTS", "VIA"], ["THINK", "2", "process"]], "{output:?}");
    // No terminal, no bar.
    assert_eq!(output.stderr, "measured THINK with 2 client(s)\n");
}

#[test]
fn on_postgresql_every_way_is_measured_beside_pgbench_and_the_append_only_file() {
    let lease = vec![("STEPGATE_STORE_LEASE_MS", "10000".into())];
    let place = House::new().alone_with("bench", lease);
    let args = ["--via", "all", "--rounds", "1", "--clients", "4", "--actions", "READ_FILE"];
    let figures = figures(&place, &args);
    assert_eq!(figures.len(), WAYS.len());
    for (figure, way) in figures.iter().zip(WAYS) {
        assert_eq!(figure["via"], way);
        is_complete(figure, &figures[0]);
        assert_eq!(figure["append_only_appends_per_step"], 2.0, "{figure}");
        assert_eq!(figure["verified_entries_per_second"], Value::Null);
    }
}
