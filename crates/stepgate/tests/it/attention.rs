//! What recovery cannot end by itself is told to people, whatever is started next.

pub(crate) mod everywhere;
pub(crate) mod quarantine;

use std::fs;

use serde_json::{Value, json};

use crate::binary::{Output, Place};
use crate::gate::proposal;
use crate::gateway_tools::{act, killed_at};
use crate::http_client::{Gateway, exchange, request};
use crate::nodes;
use crate::scene::{Scene, approve, until};

/// Each way to say what happens in doubt, and how often the tool has acted in the end.
const WAYS: [(&str, usize); 4] = [
    ("honours_key = true", 1),
    ("in_doubt = \"redispatch\"", 2),
    ("in_doubt = \"query\"\nstatus_tool = \"status\"", 1),
    ("in_doubt = \"ask\"", 1),
];

/// What comes after the gateway was killed during a call.
#[derive(Clone, Copy, Debug)]
enum Next {
    Serve,
    Recover,
    RecoverBesideServe,
    SameProposal,
    OtherProposal,
    OtherOperatorCommand,
}

const NEXT: [Next; 6] = [
    Next::Serve,
    Next::Recover,
    Next::RecoverBesideServe,
    Next::SameProposal,
    Next::OtherProposal,
    Next::OtherOperatorCommand,
];

fn shown(place: &Place, run: &str) -> Value {
    let shown = place.stepgate(["runs", "show", run, "--json"], "");
    serde_json::from_str(&shown.stdout).unwrap_or_else(|_| panic!("{shown:?}"))
}

/// The run of the gated call: the oldest.
pub(crate) fn run_of_the_call(place: &Place) -> String {
    let runs = place.stepgate(["--json", "runs", "--tool", "fixture.act"], "");
    let run: Value = serde_json::from_str(runs.stdout.lines().last().unwrap()).unwrap();
    run["tool_run_id"].as_str().unwrap().to_owned()
}

fn is_over(place: &Place, run: &str) -> bool {
    shown(place, run)["run"]["status"] == "ok"
}

fn is_told(place: &Place, run: &str) -> bool {
    shown(place, run)["attention"]["kind"] == "in_doubt"
}

/// How often people were told.
fn events(place: &Place) -> i64 {
    let connection = rusqlite::Connection::open(place.database()).unwrap();
    let sql = "SELECT count(*) FROM events WHERE event_type = 'run_needs_person'";
    connection.query_row(sql, [], |row| row.get(0)).unwrap()
}

/// Every place that an operator looks at names the run, with the way out.
fn is_told_everywhere(place: &Place, run: &str) {
    let way_out = format!("`stepgate runs resolve {run} --succeeded` or `--failed`");
    for (args, code) in [(["runs"].as_slice(), 0), (&["runs", "show", run], 0), (&["doctor"], 1)] {
        let output = place.stepgate(args, "");
        assert_eq!(output.code, code, "{args:?}: {output:?}");
        let said = format!("{}{}", output.stdout, output.stderr);
        assert!(said.contains("in doubt") && said.contains(&way_out), "{args:?}: {said}");
    }
}

/// The command that came next named the run with the way out by itself.
fn names(output: &Output, run: &str) {
    let said = format!("{}{}", output.stdout, output.stderr);
    assert!(said.contains(&format!("stepgate runs resolve {run}")), "{said}");
}

fn what_comes_next(scene: &Scene, next: Next, run: &str, asks: bool) {
    let place = &scene.place;
    match next {
        Next::Serve => {
            let mut gateway = Gateway::start(place);
            until("it is over or told", || is_over(place, run) || is_told(place, run));
            if asks {
                gateway.until_it_says(&format!("stepgate runs resolve {run}"));
                serving_tells(&gateway, run);
            }
        }
        Next::RecoverBesideServe => {
            let _gateway = Gateway::start(place);
            let recovered = scene.stepgate(&["recover"]);
            assert_eq!(recovered.code, i32::from(asks), "{recovered:?}");
            if asks {
                names(&recovered, run);
            }
        }
        Next::Recover => {
            let recovered = scene.stepgate(&["recover", "--json"]);
            assert_eq!(recovered.code, i32::from(asks), "{recovered:?}");
            let told: Value = serde_json::from_str(&recovered.stdout).unwrap();
            let list = if asks { "in_doubt" } else { "finished" };
            assert_eq!(told[list], json!([run]), "{told}");
        }
        Next::SameProposal => {
            let answer = place.stepgate(["step", "-"], act(1));
            let said: Value = serde_json::from_str(&answer.stdout).unwrap();
            if asks {
                assert_eq!((answer.code, &said["outcome"]), (14, &json!("IN_PROGRESS")));
                assert_eq!(said["result"]["needs_person"], "in_doubt", "{said}");
                names(&answer, run);
            } else {
                assert_eq!((answer.code, &said["outcome"]), (0, &json!("SUCCESS")), "{answer:?}");
            }
        }
        Next::OtherProposal | Next::OtherOperatorCommand => {
            let args: &[&str] = match next {
                Next::OtherProposal => &["run", "THINK"],
                _ => &["tools"],
            };
            let output = scene.stepgate(args);
            assert_eq!(output.code, 0, "{output:?}");
            if asks {
                names(&output, run);
            }
        }
    }
}

/// What a gateway says about a run in doubt: to operators all of it, to the agent that a person must look.
fn serving_tells(gateway: &Gateway, run: &str) {
    assert_eq!(gateway.metric("stepgate_runs_needing_person{kind=\"in_doubt\"}"), 1);
    assert_eq!(gateway.metric("stepgate_runs_needing_person{kind=\"stuck\"}"), 0);
    let waiting = gateway.propose(&act(1));
    assert_eq!(waiting.status, 409, "{}", waiting.body);
    let result = &waiting.json()["result"];
    assert_eq!(result["needs_person"], "in_doubt");
    assert!(result["message"].as_str().unwrap().contains("operator"), "{result}");
    for path in ["/v1/runs".to_owned(), format!("/v1/runs/{run}")] {
        let told = gateway.send("GET", &path, &gateway.operator, "").body;
        assert!(told.contains(&format!("stepgate runs resolve {run}")), "{path}: {told}");
        let told = gateway.send("GET", &path, &gateway.agent, "").body;
        assert!(!told.contains("stepgate runs resolve"), "{path}: {told}");
    }
}

#[test]
fn a_call_that_a_kill_interrupted_ends_or_a_person_is_told_whatever_comes_next() {
    std::thread::scope(|scope| {
        for (way, effects) in WAYS {
            scope.spawn(move || NEXT.map(|next| ends_or_is_told(way, effects, next)));
        }
    });
}

fn ends_or_is_told(way: &str, effects: usize, next: Next) {
    let scene = Scene::new(way);
    let asks = way.contains("ask");
    killed_at(&scene, "hold-after");
    let run = run_of_the_call(&scene.place);
    what_comes_next(&scene, next, &run, asks);
    let place = &scene.place;
    assert_eq!((is_over(place, &run), is_told(place, &run)), (!asks, asks), "{way} {next:?}");
    assert_eq!(scene.effects(), effects, "{way} {next:?}");
    // Once, however often it is found again.
    scene.stepgate(&["recover"]);
    assert_eq!(events(place), i64::from(asks), "{way} {next:?}");
    if asks {
        is_told_everywhere(place, &run);
        let resolved = scene.stepgate(&["runs", "resolve", &run, "--succeeded"]);
        assert_eq!(resolved.code, 0, "{resolved:?}");
    }
    let recovered = scene.stepgate(&["recover"]);
    assert_eq!(recovered.code, 0, "{way} {next:?}: {recovered:?}");
    let doctor = scene.stepgate(&["doctor"]);
    assert!(doctor.stdout.contains("no run needs a person"), "{doctor:?}");
    scene.verified();
}

#[test]
fn a_call_that_a_killed_node_left_ends_on_another_or_a_person_is_told() {
    for (way, effects) in WAYS {
        let house = nodes::House::new();
        let [first, second] = house.two();
        let scene = Scene::at(first, way, &[]);
        let config = fs::read_to_string(scene.place.path().join("stepgate.toml")).unwrap();
        let config = config.replace("[servers.fixture]", "[servers.fixture]\nshared = true");
        for place in [&scene.place, &second] {
            fs::write(place.path().join("stepgate.toml"), &config).unwrap();
        }
        let policies = scene.place.path().join("policies/all.cedar");
        fs::create_dir_all(second.path().join("policies")).unwrap();
        fs::copy(policies, second.path().join("policies/all.cedar")).unwrap();
        killed_at(&scene, "hold-after");
        let run = run_of_the_call(&second);
        let mut gateway = Gateway::start(&second);
        until("it is over or told", || is_over(&second, &run) || is_told(&second, &run));
        let asks = way.contains("ask");
        assert_eq!((is_over(&second, &run), is_told(&second, &run)), (!asks, asks), "{way}");
        assert_eq!(scene.effects(), effects, "{way}");
        if asks {
            gateway.until_it_says(&format!("stepgate runs resolve {run}"));
            serving_tells(&gateway, &run);
            is_told_everywhere(&second, &run);
            let told =
                house.sql("SELECT count(*) FROM events WHERE event_type = 'run_needs_person'");
            assert_eq!(told.unwrap(), "1");
        }
        drop(gateway);
        assert_eq!(second.stepgate(["verify"], "").code, 0, "{way}");
    }
}

#[test]
fn a_run_that_a_person_sent_again_and_is_in_doubt_again_is_told_again() {
    let scene = Scene::new("in_doubt = \"ask\"");
    killed_at(&scene, "hold-after");
    let run = run_of_the_call(&scene.place);
    assert_eq!(scene.stepgate(&["recover"]).code, 1);
    fs::write(scene.file("hold-after"), "").unwrap();
    fs::remove_file(scene.file("hold-after.reached")).unwrap();
    let resolving = ["runs", "resolve", &run, "--redispatch"];
    let mut resolving = scene.place.command(resolving).spawn().unwrap();
    until("it is sent again", || scene.file("hold-after.reached").exists());
    resolving.kill().unwrap();
    resolving.wait().unwrap();
    until("the tool server is gone", || !scene.has_processes());
    fs::remove_file(scene.file("hold-after")).unwrap();
    for _ in 0..2 {
        assert_eq!(scene.stepgate(&["recover"]).code, 1);
        assert_eq!(events(&scene.place), 2);
    }
    scene.verified();
}

#[test]
fn a_server_that_is_gone_leaves_its_interrupted_run_to_a_person() {
    let scene = Scene::new("honours_key = true");
    killed_at(&scene, "hold-after");
    let run = run_of_the_call(&scene.place);
    let config = scene.place.path().join("stepgate.toml");
    let text = fs::read_to_string(&config).unwrap();
    fs::write(&config, "").unwrap();
    let policies = scene.place.path().join("policies/all.cedar");
    let kept = fs::read_to_string(&policies).unwrap();
    fs::write(&policies, r#"@id("core") permit (principal, action in Action::"core", resource);"#)
        .unwrap();
    let recovered = scene.stepgate(&["recover"]);
    assert_eq!(recovered.code, 1, "{recovered:?}");
    names(&recovered, &run);
    // It comes back, and the run ends.
    fs::write(&config, text).unwrap();
    fs::write(&policies, kept).unwrap();
    assert_eq!(scene.stepgate(&["recover"]).code, 0);
    assert!(is_over(&scene.place, &run));
    assert_eq!(scene.effects(), 1);
    scene.verified();
}

#[test]
fn doctor_tells_interrupted_runs_from_those_that_wait_for_an_approval() {
    let scene = Scene::new("honours_key = true");
    assert_eq!(scene.place.stepgate(["step", "-"], act(7)).code, 13);
    let doctor = scene.stepgate(&["doctor"]);
    let line = |name: &str| {
        let found = doctor.stdout.lines().find(|line| line.contains(name));
        found.unwrap_or_else(|| panic!("{doctor:?}")).to_owned()
    };
    assert!(line("interrupted runs").ends_with("none"), "{doctor:?}");
    assert!(line("attention").contains("1 runs wait for an approval"), "{doctor:?}");
    let scene = Scene::new("honours_key = true");
    killed_at(&scene, "hold-after");
    let run = run_of_the_call(&scene.place);
    let doctor = scene.stepgate(&["doctor"]).stdout;
    assert!(doctor.contains("1: the next command, or `stepgate recover`, goes on"), "{doctor}");
    assert!(doctor.contains(&format!("{run} fixture.act")), "{doctor}");
}

#[test]
fn a_call_that_waits_for_its_servers_place_has_a_row() {
    let scene = Scene::new("honours_key = true");
    let config = scene.place.path().join("stepgate.toml");
    let text = fs::read_to_string(&config).unwrap();
    let one = "[servers.fixture]\nconcurrency = 1";
    fs::write(&config, text.replace("[servers.fixture]", one)).unwrap();
    fs::write(scene.file("hold-before"), "").unwrap();
    let gateway = Gateway::start(&scene.place);
    assert_eq!(gateway.propose(&act(1)).status, 202);
    assert_eq!(approve(&gateway, &scene.pending()).status, 200);
    until("the tool is reached", || scene.file("hold-before.reached").exists());
    let look = proposal(2, "fixture.look", json!({}));
    let request = request("POST", "/v1/steps", &gateway.agent, &[], &look);
    let address = gateway.address;
    let waiting = std::thread::spawn(move || exchange(address, request.as_bytes()).unwrap());
    until("it has a row", || {
        let runs = gateway.send("GET", "/v1/runs?tool=fixture.look", &gateway.operator, "");
        runs.json()["runs"][0]["status"] == "started"
    });
    fs::remove_file(scene.file("hold-before")).unwrap();
    assert_eq!(waiting.join().unwrap().json()["outcome"], "SUCCESS");
    drop(gateway);
    scene.verified();
}
