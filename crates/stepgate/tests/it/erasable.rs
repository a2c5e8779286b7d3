//! What must not stand in a file, and what an operator erases: real gateways, kills, and a search of every file.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, OpenFlags};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::binary::Place;
use crate::gate::proposal;
use crate::http_client::{self, Gateway};
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

/// The files beneath a directory that have these bytes.
fn with_bytes(directory: &Path, bytes: &[u8]) -> Vec<PathBuf> {
    let has = |file: &PathBuf| {
        let content = fs::read(file).unwrap_or_default();
        content.windows(bytes.len()).any(|at| at == bytes)
    };
    files(directory).into_iter().filter(has).collect()
}

fn no_file_has(scene: &Scene, texts: &[&str]) {
    for text in texts {
        assert_eq!(
            with_bytes(&scene.place.path(), text.as_bytes()),
            Vec::<PathBuf>::new(),
            "{text}"
        );
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

/// The rows of erasable arguments as they stand in the store: encrypted.
fn encrypted(place: &Place, house: Option<&House>) -> Vec<Vec<u8>> {
    let sql = "SELECT lower(hex(args)) FROM erasable_args";
    let rows: Vec<String> = match house {
        Some(house) => {
            let found = house.sql("SELECT encode(args, 'hex') FROM erasable_args").unwrap();
            found.lines().map(str::to_owned).collect()
        }
        None => {
            let store = Connection::open_with_flags(
                place.database(),
                OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX,
            );
            let store = store.unwrap();
            let mut rows = store.prepare(sql).unwrap();
            rows.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
        }
    };
    let byte = |row: &str, at: usize| u8::from_str_radix(&row[at..at + 2], 16).unwrap();
    rows.iter().map(|row| (0..row.len()).step_by(2).map(|at| byte(row, at)).collect()).collect()
}

/// The log of a node and the file of an audit stream have told what happened, and nothing of the arguments.
fn was_told_without(scene: &Scene, gateway: Gateway, texts: &[&str]) {
    let stream = scene.place.path().join("events.jsonl");
    let is_told = |kind: &str| fs::read_to_string(&stream).unwrap().contains(kind);
    until("the stream has the erasure", || is_told("erasable_erased"));
    assert!(is_told("tool_called"));
    gateway.signal(Signal::TERM);
    let (code, log) = gateway.end();
    assert!(code == Some(0) && log.contains("/v1/erasable/erase"), "{code:?} {log}");
    for text in texts {
        assert!(!log.contains(text), "{text} is in {log}");
    }
    // The stream's file is one of these.
    no_file_has(scene, texts);
}

#[test]
fn what_is_erased_is_gone_and_everything_verifies_also_after_it_was_archived() {
    let keys = tempfile::tempdir().unwrap();
    let (house, shared) = on_postgres(&keys);
    for (place, house) in [(Place::new(), None), (shared, Some(house))] {
        let stream = "[[audit]]\nname = \"file\"\nkind = \"file\"\npath = \"events.jsonl\"";
        let scene = Scene::at(place, &format!("{DELIVERY}\n{stream}"), &["--words"]);
        let gateway = Gateway::start(&scene.place);
        for number in 1..4 {
            assert_eq!(gateway.propose(&act(number)).status, 202);
            assert_eq!(approve(&gateway, &scene.pending()).status, 200);
            until("the tool has acted", || scene.effects() == number as usize);
        }
        // The last run stays in the store, and so do those that the stream has not told yet.
        let before = json!({ "before": "2999-01-01T00:00:00.000Z" }).to_string();
        let mut archived = 0;
        until("two runs are archived", || {
            let reply = gateway.send("POST", "/v1/archives", &gateway.operator, &before).json();
            let archives = reply["archives"].as_array().unwrap();
            archived += archives.iter().map(|it| it["runs"].as_u64().unwrap()).sum::<u64>();
            archived == 2
        });
        no_file_has(&scene, &[PIN, ABOUT]);
        let containing = ["erasable", "find", "--containing", "alice-wonder", "--json"];
        assert_eq!(said(&scene, &containing)["runs"].as_array().unwrap().len(), 3);
        let rows = encrypted(&scene.place, house.as_ref());
        assert!(rows.len() == 3 && rows.iter().all(|row| row.len() > ABOUT.len()), "{rows:?}");
        let with_rows = || rows.iter().flat_map(|row| with_bytes(&scene.place.path(), row));
        let files: Vec<PathBuf> = with_rows().collect();
        // What this search would find, if it were still there.
        assert!(if house.is_none() { files.len() >= 3 } else { files.is_empty() }, "{files:?}");
        let erase =
            ["erasable", "erase", "--containing", ABOUT, "--reason", "request 4711", "--json"];
        let erased = said(&scene, &erase);
        assert_eq!(erased["runs"].as_array().unwrap().len(), 3, "{erased}");
        assert_eq!(encrypted(&scene.place, house.as_ref()), Vec::<Vec<u8>>::new());
        let is_gone = || with_rows().next().is_none();
        // The write-ahead log is cut off at once, or where somebody reads from it, by one of the next writes.
        let writes = || gateway.propose(&http_client::proposal("THINK", json!({}))).status == 200;
        assert!((0..5).any(|_| is_gone() || !writes()), "{:?}", with_rows().collect::<Vec<_>>());
        assert_eq!(said(&scene, &containing)["runs"], json!([]));
        for run in erased["runs"].as_array().unwrap() {
            let shown = said(&scene, &["erasable", "show", run.as_str().unwrap(), "--json"]);
            assert_eq!(shown["arguments"], Value::Null);
            assert_eq!(shown["erased"]["reason"], "request 4711");
            assert_eq!(shown["erased"]["erased_by"], "operator");
        }
        was_told_without(&scene, gateway, &[PIN, ABOUT]);
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
    let find = ["erasable", "find", "--containing", ABOUT, "--json"];
    until("both runs are over", || said(&scene, &find)["open"] == json!([]));
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
    let stranger = Connection::open(scene.place.database()).unwrap();
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

/// Puts policies in force that make an argument erasable, or do not.
fn erases(scene: &Scene, is_erasable: bool) {
    let file = scene.place.path().join("policies/all.cedar");
    let plain = fs::read_to_string(&file).unwrap().replace(" @erasable(\"about\")", "");
    let erasing = plain.replace("@id(\"ask\")", "@id(\"ask\") @erasable(\"about\")");
    fs::write(file, if is_erasable { erasing } else { plain }).unwrap();
}

fn about(number: u32) -> String {
    proposal(number, "fixture.act", json!({ "value": 1, "pin": "none", "about": ABOUT }))
}

#[test]
fn what_a_policy_makes_erasable_stays_so_through_kills_and_other_policies_until_it_is_gone() {
    let keys = tempfile::tempdir().unwrap();
    let (house, shared) = on_postgres(&keys);
    for (place, house) in [(Place::new(), None), (shared, Some(house))] {
        let scene = Scene::at(place, "honours_key = true", &["--words"]);
        let nothing_has_it = || {
            no_file_has(&scene, &[ABOUT]);
            house.iter().for_each(|it| no_cell_has(it, &[ABOUT]));
        };
        erases(&scene, true);
        let gateway = Gateway::start(&scene.place);
        let asked = gateway.propose(&about(1));
        assert_eq!(asked.status, 202, "{asked:?}");
        let approval = scene.pending();
        nothing_has_it();
        kill(gateway);
        nothing_has_it();
        // Another set, which does not make it erasable: the same proposal is known, and goes on as it came.
        erases(&scene, false);
        let mut gateway = Gateway::start(&scene.place);
        let again = gateway.propose(&about(1));
        let run = |reply: &http_client::Reply| reply.headers["stepgate-run"].clone();
        assert_eq!((again.status, run(&again)), (202, run(&asked)), "{again:?}");
        assert_eq!(approve(&gateway, &approval).status, 200);
        until("the tool has acted", || scene.effects() == 1);
        nothing_has_it();
        // Put in force again while the gateway runs.
        erases(&scene, true);
        gateway.until_it_says("policies reloaded");
        assert_eq!(gateway.propose(&about(2)).status, 202);
        assert_eq!(approve(&gateway, &scene.pending()).status, 200);
        until("the tool has acted", || scene.effects() == 2);
        kill(gateway);
        nothing_has_it();
        let gateway = Gateway::start(&scene.place);
        let shown = said(&scene, &["erasable", "show", &run(&asked), "--json"]);
        assert_eq!(shown["arguments"], json!({ "about": ABOUT }), "{shown}");
        let rows = encrypted(&scene.place, house.as_ref());
        assert_eq!(rows.len(), 2);
        let find = ["erasable", "find", "--containing", ABOUT, "--json"];
        until("both runs are over", || said(&scene, &find)["open"] == json!([]));
        let erase = ["erasable", "erase", "--containing", ABOUT, "--reason", "gone", "--json"];
        let erased = said(&scene, &erase);
        assert_eq!(erased["runs"].as_array().unwrap().len(), 2, "{erased}");
        assert_eq!(encrypted(&scene.place, house.as_ref()), Vec::<Vec<u8>>::new());
        kill(gateway);
        let gateway = Gateway::start(&scene.place);
        let with_rows = || rows.iter().flat_map(|row| with_bytes(&scene.place.path(), row));
        // The write-ahead log is cut off by one of the next writes at the latest.
        let writes = || gateway.propose(&http_client::proposal("THINK", json!({}))).status == 200;
        let is_gone = || with_rows().next().is_none();
        assert!((0..5).any(|_| is_gone() || !writes()), "{:?}", with_rows().collect::<Vec<_>>());
        drop(gateway);
        nothing_has_it();
        scene.verified();
    }
}

#[test]
fn policies_that_make_arguments_erasable_wait_for_a_key() {
    let scene = Scene::at(Place::new(), "honours_key = true", &["--words"]);
    let key = scene.place.path().join("payload.key");
    let mut gateway = Gateway::start(&scene.place);
    assert!(!key.exists());
    erases(&scene, true);
    gateway.until_it_says("has no key to encrypt them with");
    assert_eq!(gateway.propose(&about(1)).status, 202);
    drop(gateway);
    let gateway = Gateway::start(&scene.place);
    assert!(key.exists());
    assert_eq!(gateway.propose(&about(2)).status, 202);
    drop(gateway);
    assert_eq!(encrypted(&scene.place, None).len(), 1);
    scene.verified();
    // The nodes of a shared store must all have the same one.
    let house = House::new();
    let scene = Scene::at(house.alone("first"), "honours_key = true", &["--words"]);
    erases(&scene, true);
    let refused = scene.stepgate(&["run", "THINK"]);
    assert!(refused.code == 1 && refused.stderr.contains("store.payload_key_file"), "{refused:?}");
}
