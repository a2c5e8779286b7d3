//! Spec 001: versions, and the two actions that never exist.

use serde_json::{Value, json};

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

#[tokio::test]
async fn run_command_and_spawn_process_do_not_exist() {
    let fixture = Fixture::new();
    for action in ["run_command", "spawn_process"] {
        let payload = proposal(1, action, json!({"command": "rm -rf /"}));
        assert_eq!(
            fixture.respond(payload).await,
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
        );
    }
}
