//! What must not stand in a file, and what an operator erases: real gateways, kills, and a search of every file.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::binary::Place;
use crate::gate::proposal;
use crate::http_client::Gateway;
use crate::nodes::House;
use crate::scene::{Scene, approve, kill, until};

const PIN: &str = "correct-horse-battery-staple";
const ABOUT: &str = "alice-wonder@example.org";
const DELIVERY: &str = "honours_key = true\nredacted = [\"pin\"]\nerasable = [\"about\"]";

fn act(number: u32) -> String {
    proposal(number, "fixture.act", json!({ "value": 1, "pin": PIN, "about": ABOUT }))
}

fn scene(place: Place) -> Scene {
    Scene::at(place, DELIVERY, &["--words"])
}

/// A shared store, with a file of keys that its nodes are told of.
fn on_postgres(keys: &tempfile::TempDir) -> (House, Place) {
    let file = keys.path().join("payload.key");
    fs::write(&file, "8f".repeat(32)).unwrap();
    let named: (_, OsString) = ("STEPGATE_STORE_PAYLOAD_KEY_FILE", file.into());
    let house = House::new();
    let place = house.alone_with("first", vec![named]);
    (house, place)
}

/// Every file beneath a directory.
fn files(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap().flatten() {
        match entry.file_type().unwrap() {
            kind if kind.is_dir() => found.extend(files(&entry.path())),
            kind if kind.is_file() => found.push(entry.path()),
            _ => {}
        }
    }
    found
}

/// The files beneath a directory that have this text.
fn with_text(directory: &Path, text: &str) -> Vec<PathBuf> {
    let has = |file: &PathBuf| {
        let bytes = fs::read(file).unwrap_or_default();
        bytes.windows(text.len()).any(|at| at == text.as_bytes())
    };
    files(directory).into_iter().filter(has).collect()
}

fn no_file_has(scene: &Scene, texts: &[&str]) {
    for text in texts {
        assert_eq!(with_text(&scene.place.path(), text), Vec::<PathBuf>::new(), "{text}");
    }
}

/// No cell of the tables in PostgreSQL has this text.
fn no_cell_has(house: &House, texts: &[&str]) {
    let tables = ["tool_runs", "chunks", "events", "sealed_payloads", "erasable_args", "approvals"];
    for (table, text) in tables.iter().flat_map(|table| texts.iter().map(move |text| (table, text)))
    {
        let sql = format!(
            "SELECT count(*) FROM {table} AS it WHERE it::text LIKE '%{text}%'
               OR it::text LIKE '%' || encode(convert_to('{text}', 'UTF8'), 'hex') || '%'"
        );
        let found = house.sql(&sql).unwrap();
        assert!(found.contains('0') && !found.contains('1'), "{table} has {text}: {found}");
    }
}

fn said(scene: &Scene, args: &[&str]) -> Value {
    let output = scene.stepgate(args);
    assert_eq!(output.code, 0, "{args:?}: {output:?}");
    serde_json::from_str(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"))
}

#[test]
fn what_is_redacted_or_erasable_stands_in_no_file_and_survives_a_kill() {
    let keys = tempfile::tempdir().unwrap();
    let (house, shared) = on_postgres(&keys);
    for (place, house) in [(Place::new(), None), (shared, Some(house))] {
        let no_cell_has = |texts: &[&str]| house.iter().for_each(|it| no_cell_has(it, texts));
        let scene = scene(place);
        let gateway = Gateway::start(&scene.place);
        assert_eq!(gateway.propose(&act(1)).status, 202);
        let approval = scene.pending();
        no_file_has(&scene, &[PIN, ABOUT]);
        no_cell_has(&[PIN, ABOUT]);
        kill(gateway);
        no_file_has(&scene, &[PIN, ABOUT]);
        let gateway = Gateway::start(&scene.place);
        assert_eq!(approve(&gateway, &approval).status, 200);
        until("the tool has acted", || scene.effects() == 1);
        let shown = said(&scene, &["erasable", "show", "last", "--json"]);
        assert_eq!(shown["arguments"], json!({ "about": ABOUT }), "{shown}");
        drop(gateway);
        no_file_has(&scene, &[PIN, ABOUT]);
        no_cell_has(&[PIN, ABOUT]);
        scene.verified();
    }
}

#[test]
fn what_is_erased_is_gone_and_everything_verifies_also_after_it_was_archived() {
    let keys = tempfile::tempdir().unwrap();
    let (_house, shared) = on_postgres(&keys);
    for place in [Place::new(), shared] {
        let scene = scene(place);
        let gateway = Gateway::start(&scene.place);
        for number in 1..4 {
            assert_eq!(gateway.propose(&act(number)).status, 202);
            assert_eq!(approve(&gateway, &scene.pending()).status, 200);
            until("the tool has acted", || scene.effects() == number as usize);
        }
        // The last run stays in the store.
        let before = json!({ "before": "2999-01-01T00:00:00.000Z" }).to_string();
        let archived = gateway.send("POST", "/v1/archives", &gateway.operator, &before);
        assert_eq!(archived.json()["archives"][0]["runs"], 2, "{archived:?}");
        no_file_has(&scene, &[PIN, ABOUT]);
        let containing = ["erasable", "find", "--containing", "alice-wonder", "--json"];
        assert_eq!(said(&scene, &containing)["runs"].as_array().unwrap().len(), 3);
        let erase =
            ["erasable", "erase", "--containing", ABOUT, "--reason", "request 4711", "--json"];
        let erased = said(&scene, &erase);
        assert_eq!(erased["runs"].as_array().unwrap().len(), 3, "{erased}");
        assert_eq!(said(&scene, &containing)["runs"], json!([]));
        for run in erased["runs"].as_array().unwrap() {
            let shown = said(&scene, &["erasable", "show", run.as_str().unwrap(), "--json"]);
            assert_eq!(shown["arguments"], Value::Null);
            assert_eq!(shown["erased"]["reason"], "request 4711");
            assert_eq!(shown["erased"]["erased_by"], "operator");
        }
        drop(gateway);
        scene.verified();
    }
}

/// What the archive's file says was stored, and what is deleted behind the gateway's back.
#[test]
fn lost_arguments_of_an_archived_run_show() {
    let scene = scene(Place::new());
    let gateway = Gateway::start(&scene.place);
    for number in 1..3 {
        assert_eq!(gateway.propose(&act(number)).status, 202);
        assert_eq!(approve(&gateway, &scene.pending()).status, 200);
    }
    let before = json!({ "before": "2999-01-01T00:00:00.000Z" }).to_string();
    let archived = gateway.send("POST", "/v1/archives", &gateway.operator, &before);
    let run = archived.json()["archives"][0]["runs"].clone();
    assert_eq!(run, 1, "{archived:?}");
    let none = gateway.send(
        "GET",
        "/v1/runs/01a1f278-5155-705b-b1ed-69ea68ec8aae/erasable",
        &gateway.operator,
        "",
    );
    assert!(none.status == 404 && none.body.contains("never had any"), "{none:?}");
    drop(gateway);
    scene.verified();
    let stranger = rusqlite::Connection::open(scene.place.database()).unwrap();
    assert_eq!(stranger.execute("DELETE FROM erasable_args", []), Ok(2));
    drop(stranger);
    let verified = scene.stepgate(&["verify"]);
    let told = format!("{}{}", verified.stdout, verified.stderr);
    assert_eq!(verified.code, 1, "{told}");
    assert_eq!(told.matches("no event says that they were erased").count(), 2, "{told}");
}

#[test]
fn without_its_key_a_waiting_call_is_not_sent_and_with_it_it_goes_on() {
    let scene = scene(Place::new());
    let gateway = Gateway::start(&scene.place);
    assert_eq!(gateway.propose(&act(1)).status, 202);
    let approval = scene.pending();
    drop(gateway);
    let key = scene.place.path().join("payload.key");
    let text = fs::read_to_string(&key).unwrap();
    fs::remove_file(&key).unwrap();
    scene.verified();
    // A new key is made, which opens nothing that was encrypted before.
    let gateway = Gateway::start(&scene.place);
    assert_ne!(fs::read_to_string(&key).unwrap(), text);
    let refused = approve(&gateway, &approval);
    assert!(
        refused.status == 409 && refused.body.contains("store.payload_key_file"),
        "{refused:?}"
    );
    assert_eq!(scene.effects(), 0);
    drop(gateway);
    let both = fs::read_to_string(&key).unwrap() + &text;
    fs::write(&key, both).unwrap();
    let gateway = Gateway::start(&scene.place);
    assert_eq!(approve(&gateway, &approval).status, 200);
    until("the tool has acted", || scene.effects() == 1);
    drop(gateway);
    scene.verified();
}

#[test]
fn a_key_file_that_is_missing_or_broken_stops_the_start_with_the_way_out() {
    let house = House::new();
    let scene = scene(house.alone("first"));
    let refused = scene.stepgate(&["run", "THINK"]);
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(refused.stderr.contains("openssl rand -hex 32"), "{refused:?}");
    let own = self::scene(Place::new());
    fs::write(own.place.path().join("payload.key"), "not a key\n").unwrap();
    let refused = own.stepgate(&["run", "THINK"]);
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(refused.stderr.contains("line 1 is not 64 hexadecimal digits"), "{refused:?}");
}
