//! `stepgate mcp`: the door for clients that start a process.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use super::client::STATELESS;
use crate::http_client::{Gateway, PATIENCE};
use crate::scene::{Scene, until, until_within};

/// Long for a process that only has to end, and shorter than calls wait for a person.
const SOON: Duration = Duration::from_secs(15);

/// A process that speaks MCP. It is killed when it goes out of sight.
struct Process {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

impl Process {
    fn start(scene: &Scene, args: &[&str]) -> Self {
        let mut child = scene
            .place
            .command(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let stdin = child.stdin.take();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        Self { child, stdin, stdout }
    }

    fn say(&mut self, line: &str) {
        writeln!(self.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    fn hear(&mut self) -> Value {
        let mut line = String::new();
        assert_ne!(self.stdout.read_line(&mut line).unwrap(), 0, "it ended");
        serde_json::from_str(&line).unwrap()
    }

    fn ask(&mut self, id: u64, method: &str, mut params: Value) -> Value {
        params["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!(STATELESS);
        params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = json!({});
        let message = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        self.say(&message.to_string());
        let answer = self.hear();
        assert_eq!(answer["id"], id, "{answer}");
        answer["result"].clone()
    }

    fn think(&mut self, id: u64) {
        let result = self.ask(id, "tools/call", json!({ "name": "THINK", "arguments": {} }));
        assert_eq!(result["_meta"]["stepgate/verdict"], "SUCCESS", "{result}");
    }

    fn leave(mut self) -> Option<i32> {
        drop(self.stdin.take());
        self.end_within(PATIENCE)
    }

    /// Waits for the end: the exit code.
    fn end_within(&mut self, patience: Duration) -> Option<i32> {
        let mut ended = None;
        until_within(patience, "it ends", || {
            ended = self.child.try_wait().unwrap();
            ended.is_some()
        });
        ended.unwrap().code()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn it_holds_the_directory_where_nobody_does_and_operators_reach_it() {
    let scene = Scene::new("honours_key = true");
    let mut process = Process::start(&scene, &["mcp"]);
    process.think(1);
    let act = json!({ "name": "fixture__act", "arguments": { "value": 1 } });
    let mut params = act.clone();
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": STATELESS,
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let call = json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params });
    process.say(&call.to_string());
    until("a person is asked", || {
        scene.stepgate(&["approvals", "--json"]).stdout.contains("pending")
    });
    let approved = scene.stepgate(&["approve", &scene.pending()]);
    assert_eq!(approved.code, 0, "{}", approved.stderr);
    let answer = process.hear();
    assert_eq!(answer["result"]["structuredContent"], json!({ "value": 1 }), "{answer}");
    assert_eq!(process.leave(), Some(0));
    assert_eq!(scene.effects(), 1);
    scene.verified();
}

#[test]
fn several_share_one_directory_and_when_the_one_that_serves_leaves_another_takes_over() {
    let scene = Scene::new("honours_key = true");
    let mut first = Process::start(&scene, &["mcp"]);
    first.think(1);
    let mut second = Process::start(&scene, &["mcp"]);
    second.think(1);
    assert_eq!(first.leave(), Some(0));
    // Meanwhile nobody answers, and the client is told to ask again.
    let mut id = 1;
    until("another serves the directory", || {
        id += 1;
        let result = second.ask(id, "tools/call", json!({ "name": "THINK", "arguments": {} }));
        !result.is_null()
    });
    assert_eq!(second.leave(), Some(0));
}

#[test]
fn it_is_a_client_of_the_gateway_that_serves_the_directory_or_an_address() {
    let scene = Scene::new("honours_key = true");
    let gateway = Gateway::start(&scene.place);
    let url = gateway.url();
    let token = scene.place.path().join("agent.token");
    let remote = ["--url", &url, "--token-file", token.to_str().unwrap(), "mcp"];
    for args in [&["mcp"][..], &remote] {
        let mut process = Process::start(&scene, args);
        process.think(1);
        assert_eq!(process.leave(), Some(0));
    }
}

#[test]
fn lines_that_are_no_messages_are_answered_with_errors_and_the_next_one_is_heard() {
    let scene = Scene::new("honours_key = true");
    let mut process = Process::start(&scene, &["mcp"]);
    for (line, code) in [("{", -32700), ("{\"id\":1,\"id\":2}", -32700), ("[]", -32600)] {
        process.say(line);
        assert_eq!(process.hear()["error"]["code"], code, "{line}");
    }
    process.think(1);
}

#[test]
fn a_client_that_shakes_hands_gets_a_session_and_hears_of_changes() {
    for version in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        a_client_of_a_version_gets_a_session_and_hears_of_changes(version);
    }
}

fn a_client_of_a_version_gets_a_session_and_hears_of_changes(version: &str) {
    let scene = Scene::new("honours_key = true");
    let mut process = Process::start(&scene, &["mcp"]);
    let client = json!({ "name": "test", "version": "1" });
    let params = json!({ "protocolVersion": version, "capabilities": {}, "clientInfo": client });
    let initialize = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params });
    process.say(&initialize.to_string());
    assert_eq!(process.hear()["result"]["protocolVersion"], version);
    process.say(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }).to_string());
    let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call",
                       "params": { "name": "THINK", "arguments": {} } });
    process.say(&call.to_string());
    assert_eq!(process.hear()["result"]["_meta"]["stepgate/verdict"], "SUCCESS");
    let policies = "permit (principal, action == Action::\"THINK\", resource);";
    std::fs::write(scene.place.path().join("policies/all.cedar"), policies).unwrap();
    assert_eq!(process.hear()["method"], "notifications/tools/list_changed");
}

/// A call of a client that shakes no hands.
fn call(id: u64, name: &str, arguments: Value) -> String {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": STATELESS,
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let params = json!({ "name": name, "arguments": arguments, "_meta": meta });
    json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params }).to_string()
}

#[test]
fn one_that_holds_the_directory_and_is_stopped_answers_the_calls_that_run() {
    let scene = Scene::new("honours_key = true");
    let policies = "permit (principal, action, resource);";
    std::fs::write(scene.place.path().join("policies/all.cedar"), policies).unwrap();
    let mut process = Process::start(&scene, &["mcp"]);
    process.think(1);
    std::fs::write(scene.file("hold-after"), "").unwrap();
    process.say(&call(2, "fixture__act", json!({ "value": 1 })));
    until("the tool is reached", || scene.file("hold-after.reached").exists());
    let pid = rustix::process::Pid::from_child(&process.child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let socket = scene.place.path().join("stepgate.sock");
    until("nobody listens", || !socket.exists());
    std::fs::remove_file(scene.file("hold-after")).unwrap();
    let answer = process.hear();
    assert_eq!(answer["result"]["structuredContent"], json!({ "value": 1 }), "{answer}");
    assert_eq!(process.end_within(PATIENCE), Some(0));
}

#[test]
fn requests_that_wait_keep_nothing_else_from_being_heard() {
    let scene = Scene::new("honours_key = true");
    let mut process = Process::start(&scene, &["mcp"]);
    process.think(1);
    let waiting = 70;
    for id in 0..waiting {
        process.say(&call(100 + id, "fixture__act", json!({ "value": id })));
    }
    // Without a session, this is to hang up: the others get their turn.
    for id in 0..waiting {
        let params = json!({ "requestId": 100 + id });
        let word =
            json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": params });
        process.say(&word.to_string());
    }
    process.think(2);
    for id in 0..waiting {
        process.say(&call(200 + id, "fixture__act", json!({ "value": id })));
    }
    // And the end of the input is heard at once, whoever waits.
    drop(process.stdin.take());
    assert_eq!(process.end_within(SOON), Some(0));
}

#[test]
fn a_gateway_that_does_not_answer_keeps_no_client_from_leaving() {
    let scene = Scene::new("honours_key = true");
    let gateway = Gateway::start(&scene.place);
    let mut process = Process::start(&scene, &["mcp"]);
    let client = json!({ "name": "test", "version": "1" });
    let params =
        json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client });
    let initialize = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params });
    process.say(&initialize.to_string());
    process.hear();
    gateway.signal(rustix::process::Signal::STOP);
    drop(process.stdin.take());
    assert_eq!(process.end_within(SOON), Some(0));
    gateway.signal(rustix::process::Signal::CONT);
}

#[test]
fn one_that_keeps_a_gateway_from_starting_is_named_with_the_way_out() {
    let scene = Scene::new("honours_key = true");
    let mut process = Process::start(&scene, &["mcp"]);
    process.think(1);
    let refused = scene.stepgate(&["serve", "--bind", "127.0.0.1:0"]);
    assert_ne!(refused.code, 0);
    let way_out = format!(
        "process {}: it is a `stepgate mcp`, so close its client, or end it with SIGTERM",
        process.child.id()
    );
    assert!(refused.stderr.contains(&way_out), "{}", refused.stderr);
    assert_eq!(process.leave(), Some(0));
}
