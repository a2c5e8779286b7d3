//! Clients as people use them, at the MCP door: the Python SDK, the TypeScript SDK and the inspector's
//! command line, each with the handshake of 2025-11-25 and without it, as 2026-07-28 does.

mod agents;
mod driver;
mod examples;

use std::fs;
use std::path::PathBuf;
use std::time::Instant;

use serde_json::{Value, json};

use crate::binary::{Output, Place, finish};
use crate::http_client::{Gateway, PATIENCE};
use crate::mcp_scene::{fixture, node22, place_with};
use crate::scene::{kill, python, until};
use driver::{Driver, EVERY, Sdk};

/// `act` is free up to 10, needs a person up to 50, and is denied beyond.
const POLICIES: &str = r#"
    @id("look")
    permit (principal, action in Action::"read_only", resource);
    @id("free")
    permit (principal, action == Action::"fixture.act", resource)
    when { context.args.value <= 10 };
    @id("ask") @approval("it acts")
    permit (principal, action == Action::"fixture.act", resource)
    when { context.args.value > 10 && context.args.value <= 50 };
    @id("core")
    permit (principal, action in Action::"core", resource);
"#;

struct Scene {
    place: Place,
    state: tempfile::TempDir,
}

impl Scene {
    fn new() -> Self {
        Self::waiting(20_000)
    }

    /// With calls that wait so long for a person.
    fn waiting(wait_ms: u64) -> Self {
        let state = tempfile::TempDir::new().unwrap();
        let config = format!(
            "[mcp]\nwait_ms = {wait_ms}\n\
             [servers.fixture]\ncommand = {:?}\nargs = [{:?}, {:?}, \"--honours-key\", \"--output-schema\"]\n\
             mode = \"read_only\"\ntimeout_ms = 20000\n\
             [servers.fixture.tools.act]\nmode = \"execute_gated\"\nhonours_key = true\n",
            python(),
            fixture("tool_server.py"),
            state.path(),
        );
        Self { place: place_with(&config, POLICIES), state }
    }

    fn serve(&self) -> Gateway {
        Gateway::start_with(&self.place, &["--quiet"])
    }

    fn file(&self, name: &str) -> PathBuf {
        self.state.path().join(name)
    }

    /// How often the tool itself says that it acted.
    fn effects(&self) -> usize {
        fs::read_to_string(self.file("effects")).map_or(0, |text| text.lines().count())
    }

    fn stepgate(&self, args: &[&str]) -> Output {
        self.place.stepgate(args, "")
    }

    /// The only approval that waits, once there is one.
    fn asked(&self) -> String {
        let begin = Instant::now();
        loop {
            let output = self.stepgate(&["approvals", "--json"]);
            if let Some(line) = output.stdout.lines().next() {
                let approval: Value = serde_json::from_str(line).unwrap();
                return approval["approval_id"].as_str().unwrap().to_owned();
            }
            assert!(begin.elapsed() < PATIENCE, "nobody is asked");
        }
    }

    fn approve(&self) {
        let approved = self.stepgate(&["approve", &self.asked()]);
        assert_eq!(approved.code, 0, "{}{}", approved.stdout, approved.stderr);
    }

    fn verified(&self) {
        let verified = self.stepgate(&["verify"]);
        assert_eq!(verified.code, 0, "{}{}", verified.stdout, verified.stderr);
    }
}

fn meta<'a>(result: &'a Value, name: &str) -> &'a str {
    let value = &result["_meta"][format!("stepgate/{name}")];
    value.as_str().unwrap_or_else(|| panic!("no {name} in {result}"))
}

fn value_of(result: &Value) -> &Value {
    &result["structuredContent"]["value"]
}

#[test]
fn a_client_lists_and_calls_and_can_look_its_call_up() {
    let scene = Scene::new();
    let gateway = scene.serve();
    for client in EVERY {
        let mut driver = Driver::connect(&gateway, client, &[]);
        let number = driver.send(json!({"do": "list"}));
        let tools = driver.answer(number)["tools"].clone();
        let names: Vec<_> =
            tools.as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect();
        for name in ["READ_FILE", "WRITE_FILE", "fixture__act", "fixture__look"] {
            assert!(names.contains(&name), "{client:?}: {name} is not in {names:?}");
        }
        let reason = json!({"stepgate/reasoning": "to see how it stands"});
        let result = driver.call_with("fixture__look", json!({}), reason);
        assert_eq!(result["structuredContent"], json!({"effects": 0}), "{client:?}");
        assert_ne!(result["isError"], json!(true), "{client:?}");
        assert_eq!(meta(&result, "verdict"), "SUCCESS");
        let run = meta(&result, "run-id").to_owned();
        let bundle = scene.stepgate(&["runs", "export", &run]).stdout;
        assert!(bundle.contains(meta(&result, "entry-digest")), "{client:?}: {bundle}");
        assert!(bundle.contains("to see how it stands"), "{client:?}: {bundle}");
    }
    drop(gateway);
    scene.verified();
}

#[test]
fn a_refusal_is_a_result_that_the_model_can_read_and_an_unknown_tool_an_error() {
    let scene = Scene::new();
    let gateway = scene.serve();
    for client in EVERY {
        let mut driver = Driver::connect(&gateway, client, &[]);
        let rows = [
            ("fixture__act", json!({"value": 99}), "DENIED", "POLICY_VIOLATION"),
            ("fixture__act", json!({"value": "x"}), "VALIDATION_ERROR", "INVALID_ARGS"),
            ("fixture__look", json!({"colour": 1}), "VALIDATION_ERROR", "INVALID_ARGS"),
            ("READ_FILE", json!({"path": "/etc/passwd"}), "VALIDATION_ERROR", "INVALID_ARGS"),
        ];
        for (name, arguments, outcome, code) in rows {
            let result = driver.call(name, arguments);
            assert_eq!(result["isError"], true, "{client:?} {name}: {result}");
            assert_eq!(meta(&result, "verdict"), outcome, "{client:?} {name}");
            let response = &result["_meta"]["stepgate/response"];
            // Several clients would show the model this instead of the words.
            assert_eq!(result["structuredContent"], Value::Null, "{client:?} {name}");
            let words = result["content"][0]["text"].as_str().unwrap();
            assert!(words.contains("Nothing was done"), "{client:?} {name}: {words}");
            assert_eq!(response["outcome"], outcome, "{client:?} {name}: {result}");
            assert_eq!(response["error"]["error_code"], code, "{client:?} {name}: {result}");
        }
        // What a tool says of its own failure is told as it said it.
        let failed = driver.call("fixture__refuse", json!({}));
        assert_eq!(failed["isError"], true, "{client:?}: {failed}");
        assert_eq!(failed["content"], json!([{"type": "text", "text": "no"}]), "{client:?}");
        assert_eq!(meta(&failed, "verdict"), "EXECUTION_ERROR");
        let number = driver.send_call("fixture__nothing", json!({}), json!({}));
        assert_eq!(driver.end(number)["error"]["code"], -32602, "{client:?}");
    }
    assert_eq!(scene.effects(), 0);
    drop(gateway);
    scene.verified();
}

#[test]
fn an_approval_that_is_granted_while_the_client_waits_gives_the_result_to_it() {
    let scene = Scene::new();
    let gateway = scene.serve();
    for (count, client) in (1..).zip(EVERY) {
        let mut driver = Driver::connect(&gateway, client, &[]);
        let number = driver.send_call("fixture__act", json!({"value": 20}), json!({}));
        let told = driver.until("progress", |line| line.get("progress").is_some());
        assert!(told["message"].as_str().unwrap().contains("to decide"), "{told}");
        assert_eq!(scene.effects(), count - 1);
        scene.approve();
        let result = driver.answer(number);
        assert_eq!(value_of(&result), 20, "{client:?}: {result}");
        assert_eq!(meta(&result, "verdict"), "SUCCESS");
        assert_eq!(scene.effects(), count);
    }
    drop(gateway);
    scene.verified();
}

#[test]
fn a_denial_while_the_client_waits_is_told_to_it() {
    let scene = Scene::new();
    let gateway = scene.serve();
    for client in EVERY {
        let mut driver = Driver::connect(&gateway, client, &[]);
        let number = driver.send_call("fixture__act", json!({"value": 20}), json!({}));
        let denied = scene.stepgate(&["deny", &scene.asked()]);
        assert_eq!(denied.code, 0, "{}", denied.stderr);
        let result = driver.answer(number);
        assert_eq!(result["isError"], true, "{client:?}: {result}");
        assert_eq!(result["_meta"]["stepgate/response"]["error"]["error_code"], "APPROVAL_DENIED");
    }
    assert_eq!(scene.effects(), 0);
}

#[test]
fn a_client_that_waited_long_enough_learns_how_to_ask_again() {
    let scene = Scene::waiting(300);
    let gateway = scene.serve();
    for (count, client) in (1..).zip(EVERY) {
        let mut driver = Driver::connect(&gateway, client, &[]);
        let notice = driver.call("fixture__act", json!({"value": 30}));
        assert_eq!(meta(&notice, "verdict"), "APPROVAL_REQUIRED", "{client:?}");
        // The SDKs hold every result that is none of an error to the tool's schema.
        assert_eq!(notice["isError"], json!(true), "{client:?}: {notice}");
        let approval = meta(&notice, "approval-id").to_owned();
        assert_eq!(approval, scene.asked());
        let words = notice["content"][0]["text"].as_str().unwrap();
        assert!(words.contains(&approval), "{words}");
        scene.approve();
        let key = json!({"stepgate/idempotency-key": meta(&notice, "idempotency-key")});
        let result = loop {
            let result = driver.call_with("fixture__act", json!({"value": 30}), key.clone());
            if meta(&result, "verdict") != "IN_PROGRESS" {
                break result;
            }
        };
        assert_eq!(value_of(&result), 30, "{client:?}: {result}");
        assert_eq!(meta(&result, "run-id"), meta(&notice, "run-id"), "{client:?}");
        assert_eq!(scene.effects(), count);
    }
    drop(gateway);
    scene.verified();
}

#[test]
fn a_call_that_needs_a_person_becomes_a_task_for_clients_that_know_tasks() {
    let scene = Scene::new();
    let gateway = scene.serve();
    for (count, sdk) in (1..).zip([Sdk::Python, Sdk::TypeScript]) {
        let mut driver = Driver::connect(&gateway, (sdk, "2026-07-28"), &["tasks"]);
        // What needs nobody is answered as ever.
        let looked = driver.call("fixture__look", json!({}));
        assert_eq!(looked["structuredContent"], json!({"effects": count - 1}), "{sdk:?}");
        let number = driver.send_call("fixture__act", json!({"value": 20}), json!({}));
        let asked = scene.asked();
        assert_eq!(scene.effects(), count - 1);
        let approved = scene.stepgate(&["approve", &asked]);
        assert_eq!(approved.code, 0, "{}", approved.stderr);
        let result = driver.answer(number);
        assert_eq!(value_of(&result), 20, "{sdk:?}: {result}");
        assert_eq!(scene.effects(), count);
    }
    drop(gateway);
    scene.verified();
}

#[test]
fn a_task_is_still_known_after_the_gateway_was_killed() {
    let scene = Scene::new();
    let gateway = scene.serve();
    let python = (Sdk::Python, "2026-07-28");
    let mut driver = Driver::connect(&gateway, python, &["tasks"]);
    driver.send_call("fixture__act", json!({"value": 20}), json!({}));
    let task = driver.until("a task", |line| line.get("task").is_some())["task"].clone();
    kill(gateway);
    let gateway = scene.serve();
    let mut driver = Driver::connect(&gateway, python, &["tasks"]);
    let number = driver.send(json!({"do": "task", "task": task}));
    scene.approve();
    let result = driver.answer(number);
    assert_eq!(value_of(&result), 20, "{result}");
    assert_eq!(scene.effects(), 1);
    drop(gateway);
    scene.verified();
}

#[test]
fn a_client_that_can_open_a_page_is_given_the_approvals_page() {
    let scene = Scene::new();
    let gateway = scene.serve();
    for (count, client) in (1..).zip(EVERY) {
        let mut driver = Driver::connect(&gateway, client, &["elicitation"]);
        let number = driver.send_call("fixture__act", json!({"value": 20}), json!({}));
        let asked = driver.until("a page", |line| line.get("asked").is_some())["asked"].clone();
        assert_eq!(asked["mode"], "url", "{client:?}: {asked}");
        let url = asked["url"].as_str().unwrap();
        assert!(url.starts_with(&gateway.url()), "{client:?}: {url}");
        assert!(url.contains(&scene.asked()), "{client:?}: {url}");
        // That the client opened the page says nothing about what a person decided.
        assert_eq!(scene.effects(), count - 1);
        scene.approve();
        let result = driver.answer(number);
        assert_eq!(value_of(&result), 20, "{client:?}: {result}");
        assert_eq!(scene.effects(), count);
    }
    drop(gateway);
    scene.verified();
}

#[test]
fn the_same_key_again_gets_the_recorded_result_and_acts_no_second_time() {
    let scene = Scene::new();
    let gateway = scene.serve();
    for (count, client) in (1..).zip(EVERY) {
        let mut driver = Driver::connect(&gateway, client, &[]);
        let key = format!("key of {client:?}");
        let with_key = json!({"stepgate/idempotency-key": key});
        let first = driver.call_with("fixture__act", json!({"value": 3}), with_key.clone());
        let mut other = Driver::connect(&gateway, client, &[]);
        let again = other.call_with("fixture__act", json!({"value": 3}), with_key.clone());
        assert_eq!(value_of(&again), value_of(&first));
        assert_eq!(meta(&again, "run-id"), meta(&first, "run-id"), "{client:?}");
        assert_eq!(meta(&again, "entry-digest"), meta(&first, "entry-digest"), "{client:?}");
        assert_eq!(scene.effects(), count);
        let conflict = other.call_with("fixture__act", json!({"value": 4}), with_key);
        let error = &conflict["_meta"]["stepgate/response"]["error"];
        assert_eq!(error["error_code"], "IDEMPOTENCY_CONFLICT", "{client:?}: {conflict}");
        // Without a key, two calls that both live are two calls.
        let free = driver.call("fixture__act", json!({"value": 3}));
        assert_ne!(meta(&free, "run-id"), meta(&first, "run-id"), "{client:?}");
        fs::write(scene.file("effects"), "x\n".repeat(count)).unwrap();
    }
    drop(gateway);
    scene.verified();
}

/// With a key the recorded result is certain; without one the identical call is joined to the one that
/// the kill cut off.
#[test]
fn after_kill_nine_a_client_that_comes_again_gets_the_result_of_its_only_effect() {
    for client in EVERY {
        for with_key in [json!({"stepgate/idempotency-key": "lost"}), json!({})] {
            let scene = Scene::new();
            fs::write(scene.file("hold-after"), "").unwrap();
            let gateway = scene.serve();
            let mut driver = Driver::connect(&gateway, client, &[]);
            let number = driver.send_call("fixture__act", json!({"value": 5}), with_key.clone());
            until("the tool has acted", || scene.file("hold-after.reached").exists());
            let address = gateway.address.to_string();
            kill(gateway);
            fs::remove_file(scene.file("hold-after")).unwrap();
            let gateway = Gateway::start_at(&scene.place, &address, &["--quiet"]);
            // The TypeScript SDK's client of 2025-11-25 gives up at its own timeout alone.
            if client != (Sdk::TypeScript, "legacy") {
                assert!(driver.end(number).get("error").is_some(), "{client:?}");
            }
            let mut driver = Driver::connect(&gateway, client, &[]);
            let result = loop {
                let result =
                    driver.call_with("fixture__act", json!({"value": 5}), with_key.clone());
                if meta(&result, "verdict") != "IN_PROGRESS" {
                    break result;
                }
            };
            assert_eq!(value_of(&result), 5, "{client:?} {with_key}: {result}");
            assert_eq!(scene.effects(), 1, "{client:?} {with_key}");
            drop(gateway);
            scene.verified();
        }
    }
}

#[test]
fn a_client_that_starts_a_program_comes_through_the_same_door() {
    let scene = Scene::new();
    let data = scene.place.path();
    let program = [env!("CARGO_BIN_EXE_stepgate"), "--data", data.to_str().unwrap(), "mcp"];
    for mode in ["legacy", "2026-07-28"] {
        // With a gateway that serves the directory, and with none.
        for gateway in [Some(scene.serve()), None] {
            let mut driver = Driver::start_program(&program, mode, &[]);
            let result = driver.call("fixture__look", json!({}));
            assert_eq!(result["structuredContent"], json!({"effects": 0}), "{mode}");
            let number = driver.send(json!({"do": "list"}));
            assert!(driver.answer(number)["tools"].as_array().unwrap().len() > 8);
            drop(driver);
            drop(gateway);
            // The program leaves by itself, when its client has.
            crate::scene::until("nobody holds the directory", || {
                !crate::scene::is_named_by_a_process(&data)
            });
        }
    }
    scene.verified();
}

/// What the inspector's command line answers.
fn inspect(gateway: &Gateway, args: &[&str]) -> Output {
    let home = tempfile::TempDir::new().unwrap();
    let mut command = node22("@modelcontextprotocol/inspector/clients/launcher/build/index.js");
    command.env("HOME", home.path()).args(["--cli", &format!("{}/mcp", gateway.url())]);
    command.args(["--transport", "http", "--header"]);
    command.arg(format!("Authorization: Bearer {}", gateway.agent)).args(args);
    finish(&mut command, b"")
}

#[test]
fn the_inspectors_command_line_lists_calls_and_sees_refusals() {
    let scene = Scene::new();
    let gateway = scene.serve();
    let listed = inspect(&gateway, &["--method", "tools/list"]);
    assert_eq!(listed.code, 0, "{}{}", listed.stdout, listed.stderr);
    let listed: Value = serde_json::from_str(&listed.stdout).unwrap();
    let tools = listed["tools"].as_array().unwrap();
    assert!(tools.iter().any(|tool| tool["name"] == "fixture__act"), "{listed}");
    let call = |tool: &str, arguments: &[&str], key: &str| {
        let key = format!("stepgate/idempotency-key={key}");
        let call = ["--method", "tools/call", "--tool-name", tool, "--tool-metadata", &key];
        let arguments = arguments.iter().flat_map(|&argument| ["--tool-arg", argument]);
        let words: Vec<_> = call.into_iter().chain(arguments).collect();
        let output = inspect(&gateway, &words);
        let result = serde_json::from_str::<Value>(&output.stdout);
        (output.code, result.unwrap_or_else(|_| panic!("{}{}", output.stdout, output.stderr)))
    };
    let (code, first) = call("fixture__act", &["value=7"], "inspected");
    assert_eq!((code, value_of(&first)), (0, &json!(7)), "{first}");
    let (_, again) = call("fixture__act", &["value=7"], "inspected");
    assert_eq!(meta(&again, "run-id"), meta(&first, "run-id"));
    assert_eq!(scene.effects(), 1);
    let rows = [
        ("WRITE_FILE", &["path=/sandbox/a.exe", "content=x"][..], "DENIED"),
        ("fixture__act", &["value=99"], "DENIED"),
        ("fixture__look", &["colour=red"], "VALIDATION_ERROR"),
    ];
    for (tool, arguments, outcome) in rows {
        let (code, refused) = call(tool, arguments, tool);
        assert_ne!(code, 0, "{refused}");
        assert_eq!(refused["isError"], true, "{refused}");
        assert_eq!(refused["_meta"]["stepgate/response"]["outcome"], outcome, "{refused}");
    }
    drop(gateway);
    scene.verified();
}
