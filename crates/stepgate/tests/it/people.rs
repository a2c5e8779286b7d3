//! What people do at a terminal: they name things by a part of an id, watch, decide by key, and read tables.

mod ids;
mod lists;
mod reasons;
mod top;
mod watch;

use serde_json::Value;

use crate::binary::{Output, Place};
use crate::mcp_scene::place_with;

/// To make a directory needs a person; to write a file does not; to read one is denied.
const POLICIES: &str = r#"
    @id("ask") @approval("a directory is made")
    permit (principal, action == Action::"CREATE_DIRECTORY", resource);
    @id("free")
    permit (principal, action in [Action::"WRITE_FILE", Action::"LIST_FILES"], resource);
"#;

fn place() -> Place {
    place_with("", POLICIES)
}

/// Asks for a directory: the approval, and the run.
fn ask(place: &Place, name: &str) -> (String, String) {
    let path = format!("path=/sandbox/{name}");
    let asked = place.stepgate(["run", "CREATE_DIRECTORY", &path], "");
    assert_eq!(asked.code, 13, "{asked:?}");
    let response: Value = serde_json::from_str(&asked.stdout).unwrap();
    let text = |name: &str| response["result"][name].as_str().unwrap().to_owned();
    (text("approval_id"), text("run_id"))
}

fn rows(output: &Output) -> Vec<Value> {
    assert_eq!(output.code, 0, "{output:?}");
    output.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The ids of the approvals that wait, newest first.
fn waiting(place: &Place) -> Vec<String> {
    let listed = rows(&place.stepgate(["approvals", "--json"], ""));
    listed.iter().map(|row| row["approval_id"].as_str().unwrap().to_owned()).collect()
}
