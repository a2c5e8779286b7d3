//! The program of today on what earlier ones left: a data directory that 0.1.0 wrote (`tests/fixtures/store_0.1.0`).

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::binary::Place;
use crate::http_client::{Gateway, proposal};
use crate::mcp_scene::fixture;
use crate::scene::{approve, until};

/// Seconds after the fixture was made at which the program of today is started on it.
const LATER_S: i64 = 60;

/// A copy of the fixture, on which every command has the clock of the moment at which it was made.
fn left_by_0_1_0(libraries: &TempDir) -> Place {
    let library = libraries.path().join("clock.so");
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-O2", "-Wall", "-Werror", "-o"]);
    assert!(compiler.arg(&library).arg(fixture("clock.c")).status().unwrap().success());
    let from = fixture("store_0.1.0");
    let made_at: i64 = fs::read_to_string(from.join("made_at")).unwrap().trim().parse().unwrap();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let ahead = made_at + LATER_S - i64::try_from(now).unwrap();
    let place = Place::with(vec![
        ("LD_PRELOAD", library.into()),
        ("CLOCK_AHEAD_S", ahead.to_string().into()),
    ]);
    let copied = Command::new("cp").arg("-R").args([&from, &place.path()]).status().unwrap();
    let closed = Command::new("chmod").args(["-R", "go="]).arg(place.path()).status().unwrap();
    assert!(copied.success() && closed.success());
    place
}

fn lines(place: &Path, name: &str) -> Vec<String> {
    fs::read_to_string(place.join(name)).unwrap().lines().map(str::to_owned).collect()
}

/// The version of the layout, by SQLite's own word.
fn layout(place: &Place) -> i64 {
    let connection = rusqlite::Connection::open(place.database()).unwrap();
    connection.query_row("PRAGMA user_version", [], |row| row.get(0)).unwrap()
}

fn verified(place: &Place) -> u64 {
    let verified = place.stepgate(["--json", "verify"], "");
    assert_eq!(verified.code, 0, "{verified:?}");
    serde_json::from_str::<Value>(&verified.stdout).unwrap()["runs"].as_u64().unwrap()
}

#[test]
fn what_0_1_0_has_answered_asked_and_permitted_is_so_after_the_upgrade() {
    let libraries = TempDir::new().unwrap();
    let place = left_by_0_1_0(&libraries);
    assert_eq!(layout(&place), 4);
    let (proposals, answers) = (lines(&place.path(), "proposals"), lines(&place.path(), "answers"));
    assert_eq!((proposals.len(), answers.len()), (9, 9));
    let gateway = Gateway::start(&place);
    for (proposal, answer) in proposals.iter().zip(&answers) {
        let again = gateway.propose(proposal);
        assert_eq!(&format!("{} {}", again.status, again.body), answer);
    }
    assert!(layout(&place) > 4);
    assert_eq!(verified(&place), 9);

    // What waited can be decided; the tokens are good, each for what it was made for.
    let asked: Value = serde_json::from_str(answers[8].split_once(' ').unwrap().1).unwrap();
    let approval = asked["result"]["approval_id"].as_str().unwrap();
    let auditor = fs::read_to_string(place.path().join("auditor.token")).unwrap();
    let waiting = gateway.send("GET", "/v1/approvals?status=pending", auditor.trim(), "").json();
    let ids: Vec<_> = waiting["approvals"].as_array().unwrap().iter().collect();
    assert_eq!(ids.len(), 1, "{waiting}");
    assert_eq!(ids[0]["approval_id"], json!(approval));
    let path = format!("/v1/approvals/{approval}/approve");
    assert_eq!(gateway.send("POST", &path, auditor.trim(), "").status, 403);
    assert_eq!(approve(&gateway, approval).status, 200);
    let granted = place.path().join("sandbox/asked/later.txt");
    until("what was granted is done", || granted.exists());
    assert_eq!(fs::read_to_string(&granted).unwrap(), "later");
    let next = gateway.propose(&proposal("READ_FILE", json!({ "path": "/sandbox/note.txt" })));
    assert_eq!(next.json()["result"]["content"], "kept by 0.1.0\n", "{next:?}");

    // One of the old runs, taken away.
    let old = gateway.send("GET", "/v1/runs?tool=LIST_FILES", &gateway.operator, "").json();
    let old = old["runs"][0]["tool_run_id"].as_str().unwrap().to_owned();
    let bundle = place.stepgate(["runs", "export", &old], "");
    assert_eq!(bundle.code, 0, "{bundle:?}");
    let alone = place.stepgate(["verify", "--bundle", "-"], bundle.stdout);
    assert_eq!(alone.code, 0, "{alone:?}");
    drop(gateway);
    assert_eq!(verified(&place), 10);
}
