//! Calls whose streams end before their answers: the gateway never ends one by itself, and where a client
//! does, the same call again is joined to it.

use std::fs;
use std::net::TcpStream;

use rustix::process::Signal;
use serde_json::{Value, json};

use super::client::{Client, Incoming};
use crate::http_client::{Gateway, PATIENCE};
use crate::scene::{Scene, until, until_within};

/// A scene where `act` needs nobody, with these settings of the door.
fn scene(settings: &str) -> Scene {
    let scene = Scene::new("honours_key = true");
    let policies = "permit (principal, action, resource);";
    fs::write(scene.place.path().join("policies/all.cedar"), policies).unwrap();
    let config = scene.place.path().join("stepgate.toml");
    let text = fs::read_to_string(&config).unwrap();
    fs::write(&config, format!("[mcp]\n{settings}\n{text}")).unwrap();
    scene
}

fn act() -> Value {
    json!({ "name": "fixture__act", "arguments": { "value": 1 } })
}

/// Does something while the tool is at it, and gives the last message of the call's answer.
fn while_it_runs(scene: &Scene, client: &Client<'_>, meanwhile: impl FnOnce()) -> Option<Value> {
    fs::write(scene.file("hold-after"), "").unwrap();
    std::thread::scope(|scope| {
        let call = scope.spawn(|| client.begin("tools/call", act()).messages().pop());
        until("the tool is reached", || scene.file("hold-after.reached").exists());
        fs::remove_file(scene.file("hold-after.reached")).unwrap();
        meanwhile();
        let _ = fs::remove_file(scene.file("hold-after"));
        call.join().unwrap()
    })
}

fn is_answered(answer: Option<Value>) {
    let answer = answer.unwrap();
    assert_eq!(answer["result"]["structuredContent"], json!({ "value": 1 }), "{answer}");
}

/// A session that has nothing to do, which its client listens to.
fn listening<'a>(gateway: &'a Gateway, token: &str) -> (Client<'a>, Incoming) {
    let client = Client { token: token.to_owned(), ..Client::shaken_as(gateway, token) };
    let stream = client.open("GET", &[], "");
    assert_eq!(stream.status, 200);
    (client, stream)
}

/// How many runs of the tool there are.
fn runs(gateway: &Gateway) -> usize {
    let listed = gateway.send("GET", "/v1/runs?tool=fixture.act", &gateway.agent, "").json();
    listed["runs"].as_array().unwrap().len()
}

#[test]
fn a_session_with_a_running_call_is_not_idle() {
    let scene = scene("session_idle_ms = 1000");
    let gateway = Gateway::start(&scene.place);
    let client = Client::shaken(&gateway, json!({}));
    let answer = while_it_runs(&scene, &client, || {
        // Twice as long as a session with nothing to do is kept.
        for _ in 0..2 {
            let (_, mut idle) = listening(&gateway, &gateway.agent);
            assert_eq!(idle.next(), None);
        }
    });
    is_answered(answer);
    assert_eq!(scene.effects(), 1);
}

#[test]
fn a_session_with_a_running_call_is_not_let_go_for_others() {
    let scene = scene("sessions_max = 2");
    let gateway = Gateway::start(&scene.place);
    let client = Client::shaken(&gateway, json!({}));
    let answer = while_it_runs(&scene, &client, || {
        for _ in 0..3 {
            Client::shaken(&gateway, json!({}));
        }
    });
    is_answered(answer);
    assert_eq!(scene.effects(), 1);
}

#[test]
fn where_every_session_is_in_use_another_one_has_to_wait() {
    let scene = scene("sessions_max = 1");
    let gateway = Gateway::start(&scene.place);
    let client = Client::shaken(&gateway, json!({}));
    let answer = while_it_runs(&scene, &client, || {
        let refused = client.handshake("2025-11-25");
        assert_eq!(refused.status, 503);
        let refused: Value = serde_json::from_str(&refused.text()).unwrap();
        let message = "every session is in use: come again later, or raise mcp.sessions_max";
        assert_eq!(refused["error"]["message"], message);
    });
    is_answered(answer);
    Client::shaken(&gateway, json!({}));
}

#[test]
fn whoever_needs_room_for_a_session_makes_it_among_its_own_first() {
    let scene = scene("sessions_max = 2");
    let gateway = Gateway::start(&scene.place);
    let (_, mut foreign) = listening(&gateway, &gateway.operator);
    let (_, mut own) = listening(&gateway, &gateway.agent);
    Client::shaken(&gateway, json!({}));
    assert_eq!(own.next(), None);
    let policies = "permit (principal, action == Action::\"THINK\", resource);";
    fs::write(scene.place.path().join("policies/all.cedar"), policies).unwrap();
    assert_eq!(foreign.next().unwrap()["method"], "notifications/tools/list_changed");
}

#[test]
fn a_gateway_that_stops_answers_the_calls_that_run_and_ends_the_streams_of_those_who_listen() {
    for shakes_hands in [true, false] {
        let scene = scene("");
        let gateway = Gateway::start(&scene.place);
        let client = match shakes_hands {
            true => Client::shaken(&gateway, json!({})),
            false => Client::of(&gateway),
        };
        let (_, mut idle) = listening(&gateway, &gateway.agent);
        let answer = while_it_runs(&scene, &client, || {
            gateway.signal(Signal::TERM);
            until("nobody listens", || TcpStream::connect(gateway.address).is_err());
            assert_eq!(idle.next(), None);
        });
        is_answered(answer);
        let (code, said) = gateway.end();
        assert_eq!(code, Some(0), "{said}");
    }
}

#[test]
fn a_call_that_its_client_cancels_is_joined_by_the_same_call() {
    let scene = scene("");
    let gateway = Gateway::start(&scene.place);
    let client = Client::shaken(&gateway, json!({}));
    let call = client.message("tools/call", act());
    fs::write(scene.file("hold-after"), "").unwrap();
    std::thread::scope(|scope| {
        let cut = scope.spawn(|| client.open("POST", &[], &call.to_string()).messages());
        until("the tool is reached", || scene.file("hold-after.reached").exists());
        let params = json!({ "requestId": call["id"], "reason": "it took too long" });
        let word =
            json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": params });
        assert_eq!(client.open("POST", &[], &word.to_string()).status, 202);
        assert_eq!(cut.join().unwrap(), Vec::<Value>::new());
    });
    fs::remove_file(scene.file("hold-after")).unwrap();
    is_answered(Some(client.ask("tools/call", act())));
    assert_eq!(runs(&gateway), 1);
    // It was answered now, so the next one is a call of its own.
    is_answered(Some(client.ask("tools/call", act())));
    assert_eq!(runs(&gateway), 2);
}

/// Begins a call and hangs up while the tool is at it. What the stream was called so far.
fn lose(scene: &Scene, client: &Client<'_>) -> String {
    fs::write(scene.file("hold-after"), "").unwrap();
    let mut incoming = client.begin("tools/call", act());
    let place = incoming.place();
    until("the tool is reached", || scene.file("hold-after.reached").exists());
    drop(incoming);
    until("the break is seen", || client.gateway.metric("stepgate_http_connections") <= 1);
    place
}

#[test]
fn to_listen_again_to_the_session_is_not_to_take_up_its_calls() {
    let scene = scene("");
    let gateway = Gateway::start(&scene.place);
    let client = Client::shaken(&gateway, json!({}));
    lose(&scene, &client);
    assert_eq!(client.open("GET", &[("last-event-id", "0")], "").status, 200);
    fs::remove_file(scene.file("hold-after")).unwrap();
    is_answered(Some(client.ask("tools/call", act())));
    assert_eq!(runs(&gateway), 1);
}

#[test]
fn a_call_whose_stream_is_taken_up_is_answered_there_and_joined_where_that_breaks_too() {
    let scene = scene("");
    let gateway = Gateway::start(&scene.place);
    let client = Client::shaken(&gateway, json!({}));
    for breaks_again in [false, true] {
        let before = runs(&gateway);
        let place = lose(&scene, &client);
        let taken_up = client.open("GET", &[("last-event-id", &place)], "");
        assert_eq!(taken_up.status, 200);
        if breaks_again {
            drop(taken_up);
            until("the break is seen", || gateway.metric("stepgate_http_connections") <= 1);
            fs::remove_file(scene.file("hold-after")).unwrap();
        } else {
            fs::remove_file(scene.file("hold-after")).unwrap();
            is_answered(taken_up.messages().pop());
        }
        is_answered(Some(client.ask("tools/call", act())));
        let expected = if breaks_again { 1 } else { 2 };
        assert_eq!(runs(&gateway), before + expected, "{breaks_again}");
        fs::remove_file(scene.file("hold-after.reached")).unwrap();
    }
}

#[test]
fn a_call_that_the_gateway_could_not_answer_names_its_key_and_is_joined_by_the_same_call() {
    let scene = scene("");
    let gateway = Gateway::start(&scene.place);
    let client = Client::of(&gateway);
    let store = scene.place.path().join("stepgate.db");
    assert!(store.exists());
    let mut refused = None;
    let answer = while_it_runs(&scene, &client, || {
        let script = "import sqlite3, sys\n\
             db = sqlite3.connect(sys.argv[1], isolation_level=None)\n\
             db.execute('BEGIN IMMEDIATE')\nprint('held', flush=True)\nsys.stdin.read()";
        let mut command = std::process::Command::new(crate::scene::python());
        let command = command.arg("-c").arg(script).arg(&store);
        let command = command.stdin(std::process::Stdio::piped());
        let mut lock = command.stdout(std::process::Stdio::piped()).spawn().unwrap();
        let mut line = [0; 5];
        std::io::Read::read_exact(lock.stdout.as_mut().unwrap(), &mut line).unwrap();
        refused = Some(lock);
        fs::remove_file(scene.file("hold-after")).unwrap();
    })
    .unwrap();
    let mut lock = refused.unwrap();
    assert_eq!(answer["error"]["code"], -32603, "{answer}");
    drop(lock.stdin.take());
    lock.wait().unwrap();
    let key = answer["error"]["data"]["stepgate/idempotency-key"].as_str().unwrap().to_owned();
    let mut run = Value::Null;
    until_within(4 * PATIENCE, "recovery has ended the run", || {
        let listed = gateway.send("GET", "/v1/runs?tool=fixture.act", &gateway.agent, "").json();
        run = listed["runs"][0].clone();
        run["status"] != "started"
    });
    assert_eq!(run["status"], "ok", "{run}");
    let result = client.call("fixture__act", json!({ "value": 1 }));
    assert_eq!(result["_meta"]["stepgate/idempotency-key"], *key);
    assert_eq!(runs(&gateway), 1);
    assert_eq!(scene.effects(), 1);
}
