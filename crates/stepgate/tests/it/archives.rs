//! Retention, seen from outside: real gateways that archive while agents work, kills, backups, and files that change.

use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Instant;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::binary::{Place, command, finish};
use crate::console::{log_in, page};
use crate::http_client::{Gateway, PATIENCE, proposal};
use crate::nodes::House;
use crate::scene::until;

/// Variables with which every run is archived as soon as it is over.
pub(crate) fn at_once() -> Vec<(&'static str, OsString)> {
    let days = ["OK", "ERROR", "TIMEOUT", "DENIED"].map(|kind| match kind {
        "OK" => "STEPGATE_RETENTION_OK_DAYS",
        "ERROR" => "STEPGATE_RETENTION_ERROR_DAYS",
        "TIMEOUT" => "STEPGATE_RETENTION_TIMEOUT_DAYS",
        _ => "STEPGATE_RETENTION_DENIED_DAYS",
    });
    let mut variables: Vec<_> = days.into_iter().map(|name| (name, "0".into())).collect();
    variables.push(("STEPGATE_RETENTION_INTERVAL_MS", "50".into()));
    variables
}

pub(crate) fn files(place: &Place) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(place.path().join("archives")) else { return Vec::new() };
    let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.to_str().unwrap().ends_with(".archive.jsonl"));
    files.sort();
    files
}

fn write(number: usize) -> String {
    let path = format!("/sandbox/{number}.txt");
    proposal("WRITE_FILE", json!({ "path": path, "content": number.to_string() }))
}

fn lines(output: &str) -> Vec<Value> {
    output.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn listed(place: &Place) -> Vec<Value> {
    lines(&place.stepgate(["archive", "list", "--json"], "").stdout)
}

/// What `verify` says, and its exit code.
fn verified(place: &Place, flags: &[&str]) -> (i32, Value) {
    let args = ["verify", "--json"].into_iter().chain(flags.iter().copied());
    let said = place.stepgate(args, "");
    let report = serde_json::from_str(said.stdout.lines().next().unwrap_or("null"));
    (said.code, report.unwrap_or_else(|_| panic!("{said:?}")))
}

fn run_of(reply: &crate::http_client::Reply) -> String {
    reply.headers["stepgate-run"].clone()
}

/// A store with runs, of which all but the last are archived; the bodies and runs of the archived ones.
fn archived(place: &Place) -> Vec<(String, String)> {
    let gateway = Gateway::start(place);
    let mut runs = Vec::new();
    for number in 0..6 {
        let body = write(number);
        let reply = gateway.propose(&body);
        assert_eq!(reply.status, 200, "{reply:?}");
        runs.push((body, run_of(&reply)));
    }
    runs.pop();
    let made = gateway.send("POST", "/v1/archives", &gateway.operator, &before());
    assert_eq!(made.status, 200, "{made:?}");
    assert_eq!(made.json()["archives"][0]["runs"], 5, "{made:?}");
    runs
}

/// Everything that is over, however young.
fn before() -> String {
    json!({ "before": "2999-01-01T00:00:00.000Z" }).to_string()
}

/// The tests below, on each engine.
fn on_both(test: impl Fn(&Place)) {
    test(&Place::new());
    test(&House::new().alone("first"));
}

#[test]
fn runs_are_archived_while_agents_work_and_everything_verifies() {
    let on_postgres = House::new().alone_with("first", at_once());
    for place in [Place::with(at_once()), on_postgres] {
        let gateway = Gateway::start(&place);
        let begun = Instant::now();
        let mut number = 0;
        while files(&place).len() < 5 || number < 100 {
            assert!(begun.elapsed() < PATIENCE * 2, "{} files", files(&place).len());
            assert_eq!(gateway.propose(&write(number)).status, 200);
            number += 1;
        }
        gateway.signal(Signal::TERM);
        assert_eq!(gateway.end().0, Some(0));
        let (code, report) = verified(&place, &[]);
        assert_eq!((code, &report["problems"]), (0, &json!([])), "{report}");
        let kept = report["runs"].as_u64().unwrap();
        assert_eq!(kept + report["archived_runs"].as_u64().unwrap(), number as u64, "{report}");
        assert_eq!(report["archives"], report["archives_read"]);
        let listed = listed(&place);
        assert!(listed.len() > 1 && listed.iter().all(|it| it["is_there"] == true), "{listed:?}");
    }
}

#[test]
fn an_archived_run_says_where_it_is_and_its_key_never_acts_again() {
    on_both(|place| {
        let runs = archived(place);
        let gateway = Gateway::start(place);
        let (body, run_id) = &runs[0];
        let path = format!("/v1/runs/{run_id}");
        let seen = gateway.send("GET", &path, &gateway.operator, "");
        let file = files(place)[0].file_name().unwrap().to_str().unwrap().to_owned();
        assert_eq!(seen.status, 410, "{seen:?}");
        assert!(seen.body.contains("RUN_ARCHIVED") && seen.body.contains(&file), "{seen:?}");
        let seen = gateway.send("GET", &path, &gateway.agent, "");
        assert!(seen.status == 410 && !seen.body.contains(&file), "{seen:?}");
        let (_, cookie) = log_in(&gateway, &gateway.operator, "/");
        let seen = page(&gateway, &format!("/runs/{run_id}"), &cookie);
        assert!(seen.status == 410 && seen.body.contains(&file), "{seen:?}");
        let file = place.path().join("sandbox/0.txt");
        fs::remove_file(&file).unwrap();
        let again = gateway.propose(body);
        assert!(again.body.contains("RESULT_ARCHIVED"), "{again:?}");
        assert!(!file.exists(), "it was done again");
    });
}

#[test]
fn changed_and_missing_archives_show() {
    let place = Place::new();
    archived(&place);
    let file = &files(&place)[0];
    let alone = |code| {
        let said = place.stepgate(["archive", "verify", file.to_str().unwrap()], "");
        assert_eq!(said.code, code, "{said:?}");
    };
    alone(0);
    let text = fs::read_to_string(file).unwrap();
    fs::write(file, text.replacen("0.txt", "9.txt", 1)).unwrap();
    alone(1);
    let (code, report) = verified(&place, &[]);
    assert!(code == 1 && !report["problems"].as_array().unwrap().is_empty(), "{report}");
    let elsewhere = place.path().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    fs::remove_file(file).unwrap();
    let name = file.file_name().unwrap().to_str().unwrap();
    fs::write(elsewhere.join(name), text).unwrap();
    let (code, report) = verified(&place, &[]);
    assert_eq!((code, &report["archives_missing"]), (0, &json!([name])), "{report}");
    assert_eq!(listed(&place)[0]["is_there"], false);
    let elsewhere = elsewhere.to_str().unwrap();
    let (code, report) = verified(&place, &["--archives", elsewhere]);
    assert_eq!((code, &report["archives_read"]), (0, &json!(1)), "{report}");
    let (code, report) = verified(&place, &["--archives", "/nowhere"]);
    assert_eq!(code, 1, "{report}");
}

#[test]
fn what_keeps_runs_from_being_archived_is_told_to_who_asked() {
    let place = Place::with(vec![("STEPGATE_RETENTION_DIRECTORY", "stepgate.db/archives".into())]);
    let gateway = Gateway::start(&place);
    for number in 0..3 {
        assert_eq!(gateway.propose(&write(number)).status, 200);
    }
    let ran = place.stepgate(["archive", "run", "--before", "0s"], "");
    assert!(ran.code != 0 && ran.stderr.contains("cannot write"), "{ran:?}");
    let (code, report) = verified(&place, &[]);
    assert_eq!((code, &report["runs"]), (0, &json!(3)), "{report}");
}

#[test]
fn a_hold_keeps_runs_until_it_is_lifted() {
    on_both(|place| {
        let gateway = Gateway::start(place);
        for number in 0..3 {
            assert_eq!(gateway.propose(&write(number)).status, 200);
        }
        let add = ["hold", "add", "--principal", "agent", "--note", "case 7", "--json"];
        let made = place.stepgate(add, "");
        assert_eq!(made.code, 0, "{made:?}");
        let hold: Value = serde_json::from_str(&made.stdout).unwrap();
        let agents = gateway.send("POST", "/v1/holds", &gateway.agent, "{}");
        assert_eq!(agents.status, 403, "{agents:?}");
        let ran = place.stepgate(["archive", "run", "--before", "0s"], "");
        assert!(ran.stdout.contains("0 run(s) archived"), "{ran:?}");
        assert!(ran.stdout.contains("2 old run(s) stay: a hold covers them"), "{ran:?}");
        let list = place.stepgate(["hold", "list"], "");
        assert!(list.stdout.contains("principal `agent`, held by operator"), "{list:?}");
        // One that came over the network covers nothing else either, though its event has an address.
        let other = r#"{"target":{"principal":"other"}}"#;
        let made = gateway.send("POST", "/v1/holds", &gateway.operator, other);
        assert!(made.status == 200 || made.status == 201, "{made:?}");
        let lifted = place.stepgate(["hold", "lift", hold["hold_id"].as_str().unwrap()], "");
        assert_eq!(lifted.code, 0, "{lifted:?}");
        let ran = place.stepgate(["archive", "run", "--before", "0s"], "");
        assert!(ran.stdout.contains("2 run(s) archived"), "{ran:?}");
        assert_eq!(verified(place, &[]).0, 0);
    });
}

/// Kills a gateway as soon as a file has its name, again and again: mostly before its runs have left the store.
#[test]
fn a_kill_between_file_and_event_loses_nothing() {
    let place = Place::with(at_once());
    let (mut number, mut unnamed) = (0, 0);
    for _ in 0..8 {
        let before = files(&place).len();
        let mut gateway = Gateway::start(&place);
        for _ in 0..4 {
            gateway.propose(&write(number));
            number += 1;
        }
        until("a file", || files(&place).len() > before);
        gateway.child.kill().unwrap();
        drop(gateway);
        unnamed = files(&place).len() - listed(&place).len();
        let (code, report) = verified(&place, &[]);
        assert_eq!(code, 0, "{report}");
        assert_eq!(report["archives_missing"], json!([]));
        let runs = report["runs"].as_u64().unwrap() + report["archived_runs"].as_u64().unwrap();
        assert_eq!(runs, number as u64, "{report}");
    }
    assert!(unnamed > 0, "no kill came between the two");
}

#[test]
fn a_backup_has_what_is_kept_of_archived_runs() {
    on_both(|place| {
        let runs = archived(place);
        let backup = place.path().join("backup");
        let made = place.stepgate(["backup", backup.to_str().unwrap()], "");
        assert_eq!(made.code, 0, "{made:?}");
        let restored = Place::new();
        let made = restored.stepgate(["restore", backup.to_str().unwrap()], "");
        assert_eq!(made.code, 0, "{made:?}");
        let (code, report) = verified(&restored, &[]);
        assert_eq!(
            (code, report["archives_missing"].as_array().unwrap().len()),
            (0, 1),
            "{report}"
        );
        let archives = place.path().join("archives");
        let flags = ["verify", "--archives", archives.to_str().unwrap()];
        let said = finish(command(&restored.path(), flags).stdin(Stdio::null()), b"");
        assert_eq!(said.code, 0, "{said:?}");
        let gateway = Gateway::start(&restored);
        let again = gateway.propose(&runs[0].0);
        assert!(again.body.contains("RESULT_ARCHIVED"), "{again:?}");
    });
}

#[test]
fn one_of_two_nodes_archives() {
    let house = House::new();
    let places = [("first", at_once()), ("second", at_once())]
        .map(|(name, variables)| house.alone_with(name, variables));
    let gateways = places.each_ref().map(Gateway::start);
    for number in 0..20 {
        for gateway in &gateways {
            let think = proposal("THINK", json!({}));
            assert_eq!(gateway.propose(&think).status, 200, "{number}");
        }
    }
    until("a file", || !files(&places[0]).is_empty());
    assert_eq!(files(&places[1]).len(), 0, "the younger node archives, too");
}
