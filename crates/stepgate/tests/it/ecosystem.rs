//! Real tool servers, as people run them: the official ones of npm and PyPI, behind the gate.
//!
//! `cargo xtask setup` installs them beside the build's output; `cargo xtask test` does it by itself.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::binary::{Place, finish};
use crate::gate::proposal;
use crate::mcp_scene::{installed, loopback_only, place_with};

/// A data directory whose configuration puts five servers behind the gate.
fn place_with_servers(work: &Path) -> Place {
    let servers = installed();
    let node = |name: &str| servers.join("node/node_modules/.bin").join(name);
    let python = |name: &str| servers.join("python/bin").join(name);
    let server = |name: &str, command: PathBuf, args: &[&str]| {
        format!("[servers.{name}]\ncommand = {:?}\nargs = {args:?}\n", command.to_str().unwrap())
    };
    let tool = |server: &str, tool: &str, mode: &str| {
        let doubt = if mode == "read_only" { "" } else { "in_doubt = \"redispatch\"\n" };
        format!("[servers.{server}.tools.{tool}]\nmode = {mode:?}\n{doubt}")
    };
    let files = work.to_str().unwrap();
    let (memory, loopback) = (work.join("memory.jsonl"), loopback_only());
    let config = [
        server("files", node("mcp-server-filesystem"), &[files]),
        format!("env = {{ NODE_OPTIONS = {loopback:?} }}\n"),
        tool("files", "read_text_file", "read_only"),
        tool("files", "write_file", "draft"),
        server("memory", node("mcp-server-memory"), &[]),
        format!("env = {{ MEMORY_FILE_PATH = {memory:?}, NODE_OPTIONS = {loopback:?} }}\n"),
        tool("memory", "create_entities", "draft"),
        tool("memory", "read_graph", "read_only"),
        server("everything", node("mcp-server-everything"), &["stdio"]),
        format!("mode = \"read_only\"\nenv = {{ NODE_OPTIONS = {loopback:?} }}\n"),
        server("time", python("mcp-server-time"), &[]),
        tool("time", "convert_time", "read_only"),
        server("git", python("mcp-server-git"), &["--repository", files]),
        tool("git", "git_status", "read_only"),
    ];
    let policies =
        "permit (principal, action in [Action::\"read_only\", Action::\"draft\"], resource);";
    place_with(&config.concat(), policies)
}

#[test]
fn official_servers_of_npm_and_pypi_run_behind_the_gate() {
    let work = tempfile::TempDir::new().unwrap();
    let init = Command::new("git").args(["init", "--quiet"]).arg(work.path()).status().unwrap();
    assert!(init.success());
    let place = place_with_servers(work.path());
    let file = work.path().join("note.txt");
    let entities = json!([{"name": "gate", "entityType": "thing", "observations": ["it stands"]}]);
    let noon =
        json!({"source_timezone": "Europe/Berlin", "time": "12:00", "target_timezone": "UTC"});
    let rows = [
        ("files.write_file", json!({"path": file, "content": "written"}), "SUCCESS"),
        ("files.read_text_file", json!({"path": file}), "SUCCESS"),
        ("files.read_text_file", json!({"path": "/etc/hostname"}), "EXECUTION_ERROR"),
        ("files.read_text_file", json!({"path": file, "colour": "red"}), "VALIDATION_ERROR"),
        ("files.move_file", json!({"source": file, "destination": file}), "DENIED"),
        ("memory.create_entities", json!({"entities": entities}), "SUCCESS"),
        ("memory.read_graph", json!({}), "SUCCESS"),
        ("everything.get-sum", json!({"a": 2, "b": 3}), "SUCCESS"),
        ("everything.get-structured-content", json!({"location": "New York"}), "SUCCESS"),
        ("everything.get-sum", json!({"a": "two", "b": 3}), "VALIDATION_ERROR"),
        ("time.convert_time", noon, "SUCCESS"),
        ("git.git_status", json!({"repo_path": work.path()}), "SUCCESS"),
    ];
    let payloads: String = (1..)
        .zip(&rows)
        .map(|(number, (tool, args, _))| proposal(number, tool, args.clone()) + "\n")
        .collect();
    let mut command = place.command(["step", "--lines"]);
    command.env("PATH", std::env::var_os("PATH").unwrap());
    let output = finish(&mut command, payloads.as_bytes());
    assert_eq!(output.code, 0, "{}", output.stderr);
    let answers: Vec<Value> =
        output.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for ((tool, args, outcome), answer) in rows.iter().zip(&answers) {
        assert_eq!(answer["outcome"], *outcome, "{tool} {args}: {answer}");
    }
    assert_eq!(answers.len(), rows.len());
    assert_eq!(fs::read_to_string(&file).unwrap(), "written");
    let text = |index: usize| answers[index]["result"]["content"][0]["text"].as_str().unwrap();
    assert_eq!(text(1), "written");
    assert!(text(6).contains("it stands"), "{}", text(6));
    assert!(text(7).contains('5'), "{}", text(7));
    assert!(text(11).contains("note.txt"), "{}", text(11));
    let verified = place.stepgate(["verify"], "");
    assert_eq!(verified.code, 0, "{}{}", verified.stdout, verified.stderr);
}
