//! Emergency stops, seen from outside: real gateways, real tool servers, real kills.

use std::fs;

use serde_json::{Value, json};

use crate::attention::run_of_the_call;
use crate::gateway_tools::killed_at;
use crate::http_client::{Gateway, Reply, exchange, proposal, request};
use crate::nodes::House;
use crate::scene::{Scene, approve, until};
use crate::terminal::at_a_terminal;

fn stop(gateway: &Gateway, target: Value) -> Reply {
    let body = json!({ "target": target, "note": "it runs wild" }).to_string();
    gateway.send("POST", "/v1/stops", &gateway.operator, &body)
}

fn lift(gateway: &Gateway, made: &Reply) -> Reply {
    let path = format!("/v1/stops/{}/lift", made.json()["stop"]["stop_id"].as_str().unwrap());
    gateway.send("POST", &path, &gateway.operator, "")
}

fn write(name: &str) -> String {
    proposal("WRITE_FILE", json!({ "path": format!("/sandbox/{name}.txt"), "content": "x" }))
}

fn act() -> String {
    proposal("fixture.act", json!({ "value": 1 }))
}

fn is_denied(reply: &Reply) {
    assert_eq!((reply.status, &reply.json()["outcome"]), (403, &json!("DENIED")), "{reply:?}");
    assert!(!reply.body.contains("wild"), "the note is not for the agent: {reply:?}");
}

/// A call of its own thread, as the agent of this gateway.
fn calling(gateway: &Gateway, body: String) -> std::thread::JoinHandle<Option<Reply>> {
    let (address, token) = (gateway.address, gateway.agent.clone());
    let request = request("POST", "/v1/steps", &token, &[], &body);
    std::thread::spawn(move || exchange(address, request.as_bytes()))
}

#[test]
fn a_stopped_principal_is_denied_and_nobody_else_until_the_stop_is_lifted() {
    let scene = Scene::new("in_doubt = \"ask\"");
    let [other, auditor] = [("other", "agent"), ("aud", "auditor")]
        .map(|(name, role)| scene.place.own_token(name, role));
    let mut gateway = Gateway::start(&scene.place);
    assert_eq!(gateway.propose(&act()).status, 202);
    let pending = scene.pending();
    for token in [&gateway.agent, &auditor] {
        let body = json!({ "target": "all" }).to_string();
        assert_eq!(gateway.send("POST", "/v1/stops", token, &body).status, 403);
    }
    let made = stop(&gateway, json!({ "principal": "agent" }));
    assert_eq!(made.status, 201, "{made:?}");
    let expected = json!({ "running": 0, "running_run_ids": [], "waiting": 1 });
    for (name, value) in expected.as_object().unwrap() {
        assert_eq!(&made.json()[name], value, "{made:?}");
    }
    assert_eq!(made.json().get("warning"), None);
    gateway.until_it_says("stopped: principal `agent`, by operator: it runs wild");
    let again = stop(&gateway, json!({ "principal": "agent" }));
    assert_eq!((again.status, &again.json()["stop"]), (200, &made.json()["stop"]));
    assert_eq!(gateway.metric("stepgate_stops_in_force"), 1);

    let refused = write("refused");
    let denied = gateway.propose(&refused);
    is_denied(&denied);
    let run = gateway.send(
        "GET",
        &format!("/v1/runs/{}", denied.headers["stepgate-run"]),
        &gateway.operator,
        "",
    );
    assert!(run.body.contains(r#""policies":["stop"]"#), "{run:?}");
    assert!(run.body.contains("STOPPED: by operator, who noted: it runs wild"), "{run:?}");
    let approved = approve(&gateway, &pending);
    assert!(approved.status == 409 && approved.body.contains("has stopped"), "{approved:?}");
    assert_eq!(gateway.send("POST", "/v1/steps", &other, &write("other")).status, 200);
    let weighed =
        gateway.send("POST", "/v1/policy/evaluate?principal=agent", &auditor, &write("weighed"));
    assert_eq!(weighed.json()["verdict"], "deny", "{weighed:?}");

    assert_eq!(gateway.send("GET", "/v1/stops", &gateway.agent, "").status, 403);
    let listed = gateway.send("GET", "/v1/stops", &auditor, "").json();
    assert_eq!(listed["stops"], json!([made.json()["stop"]]));
    let path = format!("/v1/stops/{}/lift", made.json()["stop"]["stop_id"].as_str().unwrap());
    assert_eq!(gateway.send("POST", &path, &gateway.agent, "").status, 403);
    let lifted = lift(&gateway, &made);
    assert_eq!(lifted.json()["lift"]["lifted_by"], "operator", "{lifted:?}");
    assert_eq!(lift(&gateway, &made).status, 404);
    gateway.until_it_says("lifted by operator: principal `agent`");
    assert_eq!(gateway.metric("stepgate_stops_in_force"), 0);

    // What was refused stays refused; what is asked now is decided now.
    assert_eq!(gateway.propose(&refused).body, denied.body);
    assert_eq!(gateway.propose(&write("again")).status, 200);
    assert_eq!(scene.effects(), 0);
    assert_eq!(approve(&gateway, &pending).status, 200);
    until("it is not done", || scene.effects() == 1);
    scene.verified();
}

#[test]
fn a_name_that_is_not_known_is_stopped_with_a_warning_and_what_is_no_name_is_refused() {
    let scene = Scene::new("in_doubt = \"ask\"");
    let gateway = Gateway::start(&scene.place);
    let nowhere = "0198b2c4-7a51-7cc0-9f2e-2f6a4a6f8f10";
    for (target, is_known) in [
        (json!("all"), true),
        (json!({ "principal": "operator" }), true),
        (json!({ "principal": "agnet" }), false),
        (json!({ "server": "fixture" }), true),
        (json!({ "server": "core" }), true),
        (json!({ "server": "fixtures" }), false),
        (json!({ "session": nowhere }), false),
    ] {
        let made = stop(&gateway, target.clone());
        assert_eq!(made.status, 201, "{made:?}");
        assert_eq!(made.json().get("warning").is_none(), is_known, "{made:?}");
        is_denied(&gateway.propose(&write("all")));
    }
    for target in [
        json!("everything"),
        json!({ "server": "a.b" }),
        json!({ "server": "" }),
        json!({ "principal": "" }),
        json!({ "session": "last" }),
        json!({ "principal": "a", "server": "b" }),
        json!(null),
    ] {
        assert_eq!(stop(&gateway, target.clone()).status, 400, "{target}");
    }
    assert_eq!(gateway.send("POST", "/v1/stops", &gateway.operator, "").status, 400);
}

#[test]
fn the_terminal_stops_without_a_question_lists_and_lifts() {
    let scene = Scene::new("in_doubt = \"ask\"");
    let place = &scene.place;
    let gateway = Gateway::start(place);
    assert_eq!(gateway.propose(&act()).status, 202);
    assert_eq!(place.stepgate(["stops"], "").stdout, "nothing is stopped\n");
    assert_eq!(place.stepgate(["stop"], "").code, 1);
    assert_eq!(place.stepgate(["stop", "--all", "--server", "core"], "").code, 1);
    // A person at a terminal, without a token: nothing is asked.
    let made = at_a_terminal(&place.bare_command(["stop", "--all", "--note", "odd mails"]), "");
    assert_eq!(made.code, 0, "{made:?}");
    for words in ["in force  everything, stopped by", "note: odd mails", "no call is under way"] {
        assert!(made.stdout.contains(words), "{words}: {made:?}");
    }
    assert!(made.stdout.contains("1 run(s) wait for an approval"), "{made:?}");
    is_denied(&gateway.propose(&write("a")));
    let typo = place.stepgate(["stop", "--principal", "agnet"], "");
    assert!(typo.code == 0 && typo.stderr.contains("is the name right?"), "{typo:?}");
    let listed = place.stepgate(["--json", "stops"], "");
    let stops: Vec<Value> =
        listed.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(
        stops.iter().map(|stop| &stop["target"]).collect::<Vec<_>>(),
        [&json!({ "principal": "agnet" }), &json!("all")]
    );
    let doctor = place.stepgate(["doctor"], "");
    let id = stops[1]["stop_id"].as_str().unwrap();
    let line = doctor.stdout.lines().find(|line| line.contains(&format!("`stepgate lift {id}`")));
    assert!(doctor.code == 1 && line.is_some(), "{doctor:?}");

    let kept = at_a_terminal(&place.bare_command(["lift", "last"]), "n\n");
    assert!(kept.code == 1 && kept.stdout.contains("principal `agnet`"), "{kept:?}");
    let lifted = at_a_terminal(&place.bare_command(["lift", "last"]), "y\n");
    assert_eq!(lifted.code, 0, "{lifted:?}");
    let lifted = place.stepgate(["lift", id], "");
    assert!(lifted.code == 0 && lifted.stdout.contains("lifted  everything"), "{lifted:?}");
    assert_eq!(gateway.propose(&write("a")).status, 200);
    assert_eq!(place.stepgate(["stops"], "").stdout, "nothing is stopped\n");
    let past = place.stepgate(["stops", "--all"], "").stdout;
    assert!(past.contains("lifted by operator") && past.contains("odd mails"), "{past}");
    let doctor = place.stepgate(["doctor"], "").stdout;
    assert!(doctor.contains("none in force"), "{doctor}");
}

/// A gateway is killed in the middle of a call that recovery would send again. Where no process serves, the stop is
/// there before recovery is.
#[test]
fn a_stop_where_nothing_serves_comes_before_recovery_and_keeps_it_from_sending_again() {
    let scene = Scene::new("in_doubt = \"redispatch\"");
    killed_at(&scene, "hold-after");
    assert_eq!(scene.effects(), 1);
    let made = scene.stepgate(&["--json", "stop", "--server", "fixture"]);
    assert_eq!(made.code, 0, "{made:?}");
    let made: Value = serde_json::from_str(&made.stdout).unwrap();
    let run = run_of_the_call(&scene.place);
    assert_eq!((&made["running"], &made["running_run_ids"]), (&json!(1), &json!([run])));
    assert_eq!(scene.effects(), 1, "nothing went on before the stop");
    let recovered = scene.stepgate(&["recover"]);
    assert_eq!((recovered.code, scene.effects()), (1, 1), "{recovered:?}");
    let gateway = Gateway::start(&scene.place);
    let shown = || gateway.send("GET", &format!("/v1/runs/{run}"), &gateway.operator, "").json();
    until("it is not told", || shown()["attention"]["kind"] == "stuck");
    let body = json!({ "as": "redispatch" }).to_string();
    let path = format!("/v1/runs/{run}/resolve");
    let refused = gateway.send("POST", &path, &gateway.operator, &body);
    assert!(refused.status == 409 && refused.body.contains("has stopped"), "{refused:?}");
    assert_eq!(scene.effects(), 1);
    let id = made["stop"]["stop_id"].as_str().unwrap();
    assert_eq!(scene.stepgate(&["lift", id]).code, 0);
    until("it is not over", || shown()["run"]["status"] == "ok");
    assert_eq!(scene.effects(), 2);
    drop(gateway);
    scene.verified();
}

/// Two nodes, each with a tool server that takes one call at a time.
fn two_scenes(house: &House) -> [Scene; 2] {
    ["first", "second"].map(|node_id| {
        let scene = Scene::at(house.alone(node_id), "in_doubt = \"ask\"", &[]);
        let policy = "permit (principal, action, resource);";
        fs::write(scene.place.path().join("policies/all.cedar"), policy).unwrap();
        let file = scene.place.path().join("stepgate.toml");
        let config = fs::read_to_string(&file).unwrap();
        let one = config.replace("[servers.fixture]\n", "[servers.fixture]\nconcurrency = 1\n");
        fs::write(file, one).unwrap();
        scene
    })
}

#[test]
fn a_stop_made_on_one_node_is_in_force_on_the_other_for_its_very_next_call() {
    let house = House::new();
    let scenes = two_scenes(&house);
    let [first, second] = scenes.each_ref().map(|scene| Gateway::start(&scene.place));
    for (here, there) in [(&first, &second), (&second, &first), (&first, &second)] {
        assert_eq!(there.propose(&write("before")).status, 200);
        let made = stop(here, json!({ "principal": "agent" }));
        assert_eq!(made.status, 201, "{made:?}");
        // No wait: the very next call.
        is_denied(&there.propose(&write("after")));
        is_denied(&here.propose(&write("after")));
        assert_eq!(lift(there, &made).status, 200);
        assert_eq!(here.propose(&write("again")).status, 200);
    }
    drop([first, second]);
    scenes[0].verified();
}

#[test]
fn a_call_that_waits_for_its_servers_place_is_refused_when_another_node_stops_it() {
    let house = House::new();
    let scenes = two_scenes(&house);
    let [first, second] = scenes.each_ref().map(|scene| Gateway::start(&scene.place));
    fs::write(scenes[1].file("hold-before"), "").unwrap();
    let started = || {
        let path = "/v1/runs?status=started";
        let runs = second.send("GET", path, &second.operator, "").json();
        runs["runs"].as_array().unwrap().len()
    };
    let sent = calling(&second, act());
    until("the tool is reached", || scenes[1].file("hold-before.reached").exists());
    let waits = calling(&second, act());
    until("the second call does not wait", || started() == 2);
    let made = stop(&first, json!({ "server": "fixture" }));
    assert_eq!((made.status, &made.json()["running"]), (201, &json!(1)), "{made:?}");
    fs::remove_file(scenes[1].file("hold-before")).unwrap();
    let sent = sent.join().unwrap().unwrap();
    assert_eq!(sent.status, 200, "what was sent before is not taken back: {sent:?}");
    assert_eq!(made.json()["running_run_ids"], json!([sent.headers["stepgate-run"]]));
    is_denied(&waits.join().unwrap().unwrap());
    assert_eq!(scenes[1].effects(), 1);
    // Another server goes on.
    assert_eq!(second.propose(&proposal("other.look", json!({}))).status, 200);
    drop([first, second]);
    scenes[0].verified();
}

/// The node of this command is none that serves.
#[test]
fn a_command_on_a_directory_that_does_not_serve_stops_the_nodes_that_do() {
    let house = House::new();
    let scenes = two_scenes(&house);
    assert_eq!(scenes[1].stepgate(&["run", "THINK"]).code, 0);
    let first = Gateway::start(&scenes[0].place);
    let made = at_a_terminal(&scenes[1].place.bare_command(["stop", "--all"]), "");
    assert_eq!(made.code, 0, "{made:?}");
    is_denied(&first.propose(&write("a")));
}
