//! Spec 001: versions, and the two actions that never exist.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use serde_json::{Map, Value, json};
use stepgate_core::action::InvalidArgs;
use stepgate_core::call::ServerCall;
use stepgate_core::policy::BuiltInRule;
use stepgate_core::ports::{
    Effect, Failed, Hold, Policy, PolicyDecision, PolicyRequest, PolicyVerdict, Sending,
    ToolServers,
};
use stepgate_core::tool::{Contract, Delivery, Mode, Standing, Tool, ToolName};

use crate::binary::Place;
use crate::gate::{Fixture, id, proposal};

fn versioned(version: &str, action: &str) -> String {
    let mut proposal: Value = serde_json::from_str(&proposal(1, action, json!({}))).unwrap();
    proposal["schema_version"] = json!(version);
    proposal.to_string()
}

#[tokio::test]
async fn each_proposal_must_include_its_schema_version() {
    let fixture = Fixture::new();
    let mut proposal: Value = serde_json::from_str(&proposal(1, "THINK", json!({}))).unwrap();
    proposal.as_object_mut().unwrap().remove("schema_version");
    let response = fixture.respond(proposal.to_string()).await;
    assert_eq!(response["error"]["error_code"], "INVALID_PROPOSAL");
}

#[tokio::test]
async fn minor_and_patch_may_differ_and_major_may_not() {
    let fixture = Fixture::new();
    let rows = [
        ("1.0.0", "SUCCESS"),
        ("1.8.5", "SUCCESS"),
        ("1.999999999.999999999", "SUCCESS"),
        ("5.0.0", "VALIDATION_ERROR"),
        ("0.0.0", "VALIDATION_ERROR"),
        ("01.0.0", "VALIDATION_ERROR"),
        ("10.0.0", "VALIDATION_ERROR"),
    ];
    for (version, outcome) in rows {
        let response = fixture.respond(versioned(version, "THINK")).await;
        assert_eq!(response["outcome"], outcome, "{version}");
    }
}

#[tokio::test]
async fn another_major_version_is_a_structured_error() {
    let response = Fixture::new().respond(versioned("2.0.0", "READ_FILE")).await;
    assert_eq!(
        response,
        json!({
            "proposal_id": id(1),
            "action": "READ_FILE",
            "outcome": "VALIDATION_ERROR",
            "result": null,
            "error": {
                "error_code": "SCHEMA_VERSION_INCOMPATIBLE",
                "message": "Unsupported proposal schema version.",
                "received_version": "2.0.0",
                "supported_version_range": "1.x.x"
            }
        })
    );
}

#[tokio::test]
async fn another_major_version_never_falls_back_in_silence() {
    let fixture = Fixture::new();
    let write = json!({"path": "/sandbox/a.txt", "content": "x"});
    let payload = proposal(1, "WRITE_FILE", write);
    let other = payload.replace("\"1.0.0\"", "\"2.0.0\"");
    assert_ne!(other, payload);
    let answer = fixture.submit(other).await;
    assert!(!fixture.path("a.txt").exists());
    assert!(fixture.dossier(&answer).await.entries.is_empty());
    // Nothing is bound either: the same proposal in a version that is supported is a new one.
    assert_eq!(fixture.respond(payload).await["outcome"], "SUCCESS");
}

#[tokio::test]
async fn a_compatible_version_gets_the_action_s_result() {
    let fixture = Fixture::new();
    fixture.write("a.txt", "hello world\n");
    let read = proposal(1, "READ_FILE", json!({"path": "/sandbox/a.txt"}));
    let response = fixture.respond(read.replace("\"1.0.0\"", "\"1.2.3\"")).await;
    assert_eq!(response["outcome"], "SUCCESS");
    assert_eq!(response["result"], json!({"content": "hello world\n"}));
}

#[tokio::test]
async fn the_version_is_judged_before_every_other_field() {
    let payload = json!({"schema_version": "2.0.0", "action": "read_file", "unknown": 1});
    let response = Fixture::new().respond(payload.to_string()).await;
    assert_eq!(response["error"]["error_code"], "SCHEMA_VERSION_INCOMPATIBLE");
}

/// Everything that a configuration could say in favour of them: a server that has a tool of any name, and a
/// policy that permits it.
struct OffersEverything(AtomicU64);

#[async_trait]
impl ToolServers for OffersEverything {
    fn tool(&self, name: &ToolName) -> Option<Arc<Tool>> {
        struct TakesAnything;
        impl Contract for TakesAnything {
            fn check(&self, _: &Map<String, Value>) -> Result<(), InvalidArgs> {
                Ok(())
            }
        }
        let known = Tool::gone(name.clone());
        let (mode, standing) = (Mode::ReadOnly, Standing::Accepted);
        let contract = Arc::new(TakesAnything);
        Some(Arc::new(Tool { mode, standing, contract, delivery: Delivery::Redispatch, ..known }))
    }

    fn tools(&self) -> Vec<Arc<Tool>> {
        self.tool(&ToolName::parse("shell.look").unwrap()).into_iter().collect()
    }

    async fn prepare(&self, _: &ServerCall) -> Result<Hold, Failed> {
        Ok(Box::new(()))
    }

    async fn dispatch(&self, _: &ServerCall, _: &Sending) -> Effect {
        self.0.fetch_add(1, Ordering::SeqCst);
        Effect::Done(None)
    }
}

struct PermitAll;

impl Policy for PermitAll {
    fn decide(&self, request: PolicyRequest<'_>) -> PolicyDecision {
        PolicyDecision { verdict: PolicyVerdict::Permit, ..BuiltInRule.decide(request) }
    }
}

/// What the runtime answers to the two, whatever is configured.
fn refusal(action: &str) -> Value {
    json!({
        "proposal_id": id(1),
        "action": action,
        "outcome": "DENIED",
        "result": null,
        "error": {
            "error_code": "ACTION_NOT_ALLOWED",
            "message": "Generic command execution is not permitted in the core schema."
        }
    })
}

#[tokio::test]
async fn run_command_and_spawn_process_do_not_exist() {
    let servers = Arc::new(OffersEverything(AtomicU64::new(0)));
    let mut fixture = Fixture::new().with_policy(PermitAll);
    fixture.gate.tools = Arc::clone(&servers) as _;
    let offered = proposal(1, "shell.look", json!({"command": "true"}));
    assert_eq!(fixture.respond(offered).await["outcome"], "SUCCESS", "the server is there");
    assert_eq!(servers.0.load(Ordering::SeqCst), 1);
    for action in ["run_command", "spawn_process"] {
        let payload = proposal(1, action, json!({"command": "rm -rf /"}));
        assert_eq!(fixture.respond(payload).await, refusal(action));
        // Not behind the name of a server either.
        ToolName::parse(&format!("shell.{action}")).unwrap_err();
    }
    assert_eq!(servers.0.load(Ordering::SeqCst), 1);
}

#[test]
fn no_policy_brings_run_command_or_spawn_process_into_being() {
    let place = Place::new();
    fs::create_dir_all(place.path().join("policies")).unwrap();
    let permit = "@id(\"all\")\npermit (principal, action, resource);\n";
    fs::write(place.path().join("policies/all.cedar"), permit).unwrap();
    for action in ["run_command", "spawn_process"] {
        let payload = proposal(1, action, json!({"command": "rm -rf /"}));
        let output = place.stepgate(["step", "-"], payload);
        let answer: Value = serde_json::from_str(&output.stdout).unwrap();
        assert_eq!(answer, refusal(action), "{}", output.stderr);
    }
}

/// Word by word: it has neither id nor reasoning, and the version is judged before them.
#[tokio::test]
async fn example_1_an_incompatible_version_is_the_structured_error() {
    let payload = r#"{
      "schema_version": "2.0.0",
      "action": "read_file",
      "args": {
        "path": "/tmp/a.txt"
      }
    }"#;
    let response = Fixture::new().respond(payload).await;
    let expected = json!({
        "error_code": "SCHEMA_VERSION_INCOMPATIBLE",
        "message": "Unsupported proposal schema version.",
        "received_version": "2.0.0",
        "supported_version_range": "1.x.x"
    });
    assert_eq!((&response["error"], &response["result"]), (&expected, &Value::Null));
}

/// As a proposal of specification 000, which names the fields, the casing and the sandbox.
#[tokio::test]
async fn examples_2_and_3_are_a_result_and_a_policy_error() {
    let fixture = Fixture::new();
    fixture.write("a.txt", "hello world\n");
    let read = proposal(1, "READ_FILE", json!({"path": "/sandbox/a.txt"}));
    let response = fixture.respond(read.replace("\"1.0.0\"", "\"1.2.3\"")).await;
    assert_eq!(response["outcome"], "SUCCESS");
    assert_eq!(response["result"], json!({"content": "hello world\n"}));
    let run = proposal(1, "run_command", json!({"command": "rm -rf /"}));
    let response = fixture.respond(run.replace("\"1.0.0\"", "\"1.2.0\"")).await;
    assert_eq!(response, refusal("run_command"));
}

#[tokio::test]
async fn each_situation_has_its_output() {
    let fixture = Fixture::new();
    fixture.write("a.txt", "hello");
    let read = |args| proposal(1, "READ_FILE", args);
    let path = json!({"path": "/sandbox/a.txt"});
    let rows = [
        (read(path.clone()).replace("\"1.0.0\"", "\"7.0.0\""), "VALIDATION_ERROR"),
        (proposal(1, "spawn_process", json!({})), "DENIED"),
        (read(json!({"path": 7})), "VALIDATION_ERROR"),
        (read(path), "SUCCESS"),
    ];
    for (payload, outcome) in rows {
        let response = fixture.respond(&payload).await;
        assert_eq!(response["outcome"], outcome, "{payload}");
        assert_eq!(response["error"].is_null(), outcome == "SUCCESS", "{payload}");
    }
}
