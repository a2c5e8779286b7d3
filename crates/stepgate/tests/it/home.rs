//! `examples/home` as a newcomer starts it, and in it the operational examples of specification 002, word
//! for word: over the command line and over HTTP.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Instant;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::binary::{Output, Place, finish};
use crate::docs::readme::blocks;
use crate::docs::{read, root};
use crate::http_client::{Gateway, PATIENCE, Reply, exchange, proposal, request};
use crate::terminal::at_a_terminal;

/// A copy of the example, so that nothing is written into the repository, and a data directory.
pub(crate) struct Home {
    copy: TempDir,
    pub(crate) place: Place,
}

impl Home {
    pub(crate) fn new() -> Self {
        let copy = TempDir::new().unwrap();
        let config = copy_example(copy.path()).join("stepgate.toml");
        let variables = vec![("STEPGATE_CONFIG", config.into_os_string()), ("PATH", path())];
        Self { copy, place: Place::with(variables) }
    }

    /// The directory of the example.
    pub(crate) fn directory(&self) -> PathBuf {
        self.copy.path().join("examples/home")
    }

    /// `stepgate` and these words, as they are typed.
    fn stepgate(&self, line: &str) -> Output {
        self.place.stepgate(line.split(' '), "")
    }

    /// What the loudspeaker itself remembers.
    fn memory(&self) -> Value {
        let file = self.copy.path().join("examples/home/state/sonos.json");
        fs::read(file).map_or(Value::Null, |bytes| serde_json::from_slice(&bytes).unwrap())
    }

    /// The newest run, as `runs show` has it.
    fn last(&self) -> Value {
        serde_json::from_str(&self.stepgate("runs show last --json").stdout).unwrap()
    }

    /// The newest run once it is over: `approve` answers when the grant is durable.
    fn last_ended(&self) -> Value {
        let begin = Instant::now();
        loop {
            let run = self.last();
            if !run["record"].is_null() {
                return run;
            }
            assert!(begin.elapsed() < PATIENCE, "it never ends: {run}");
        }
    }

    /// The one approval that waits, as soon as there is one.
    fn pending(&self) -> Value {
        let begin = Instant::now();
        loop {
            let listed = self.stepgate("approvals --json").stdout;
            if let Some(line) = listed.lines().next() {
                return serde_json::from_str(line).unwrap();
            }
            assert!(begin.elapsed() < PATIENCE, "nobody is asked");
        }
    }

    fn verified(&self) {
        let verified = self.stepgate("verify");
        assert_eq!(verified.code, 0, "{}{}", verified.stdout, verified.stderr);
    }
}

/// The example beneath this directory, at the place that it has in the repository.
fn copy_example(base: &Path) -> PathBuf {
    let (from, to) = (root().join("examples/home"), base.join("examples/home"));
    fs::create_dir_all(to.join("state")).unwrap();
    fs::create_dir_all(to.join("policies")).unwrap();
    for file in ["stepgate.toml", "policies/home.cedar", "policies/home.cases.toml"] {
        fs::copy(from.join(file), to.join(file)).unwrap();
    }
    to
}

/// The search path with the binary and the example's server in front.
pub(crate) fn path() -> OsString {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| {
        let folder = Path::new(env!("CARGO_BIN_EXE_stepgate")).parent().unwrap();
        if !is_built(&folder.join("stepgate-example-home")) {
            build(folder);
        }
        folder.to_owned()
    });
    let mut path = folder.clone().into_os_string();
    path.push(":/usr/bin:/bin");
    path
}

/// Whether the server is younger than its source, as it is when all tests are built together.
fn is_built(server: &Path) -> bool {
    let changed = |file: &Path| fs::metadata(file).and_then(|file| file.modified()).ok();
    let sources = fs::read_dir(root().join("examples/home/src")).unwrap();
    let mut sources = sources.map(|entry| entry.unwrap().path());
    changed(server).is_some() && sources.all(|source| changed(&source) < changed(server))
}

/// Builds the server where the binary was built.
fn build(folder: &Path) {
    let profile = match folder.file_name().unwrap().to_str().unwrap() {
        "debug" => "dev",
        profile => profile,
    };
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--quiet", "-p", "stepgate-example-home", "--profile", profile]);
    cargo.arg("--target-dir").arg(folder.parent().unwrap()).current_dir(root());
    // Set for the times of tests; the compiler would build everything anew for it.
    cargo.env_remove("RUSTC_BOOTSTRAP");
    let output = finish(&mut cargo, b"");
    assert_eq!(output.code, 0, "{}", output.stderr);
}

fn outcome(response: &str) -> Value {
    serde_json::from_str::<Value>(response).unwrap()["outcome"].clone()
}

fn event_types(run: &Value) -> Vec<&str> {
    let events = run["events"].as_array().unwrap();
    events.iter().map(|event| event["event_type"].as_str().unwrap()).collect()
}

#[test]
fn the_read_only_example_goes_from_started_to_ok_on_the_command_line() {
    let home = Home::new();
    let _gateway = Gateway::start(&home.place);
    let agenda = home.stepgate("run calendar.google.get_agenda");
    assert_eq!(agenda.code, 0, "{}", agenda.stderr);
    assert_eq!(outcome(&agenda.stdout), "SUCCESS");
    let run = home.last();
    assert_eq!(run["states"], json!(["started", "ok"]));
    assert_eq!(event_types(&run), ["tool_called", "tool_succeeded"]);
    home.verified();
}

#[test]
fn the_gated_example_goes_over_approval_required_and_approved_to_ok_on_the_command_line() {
    let home = Home::new();
    let _gateway = Gateway::start(&home.place);
    let asked = home.stepgate("run sonos.set_volume volume=20");
    assert_eq!(asked.code, 13, "{}", asked.stderr);
    assert_eq!(outcome(&asked.stdout), "APPROVAL_REQUIRED");
    assert_eq!(home.last()["states"], json!(["started", "approval_required"]));
    assert_eq!(home.memory(), Value::Null);

    let id = home.pending()["approval_id"].as_str().unwrap().to_owned();
    assert!(home.stepgate("approvals").stdout.contains(&id));
    let approved = home.stepgate(&format!("approve {id}"));
    assert_eq!(approved.code, 0, "{}", approved.stderr);

    let run = home.last_ended();
    assert_eq!(run["states"], json!(["started", "approval_required", "approved", "ok"]));
    let told = ["approval_requested", "approval_granted", "tool_called", "tool_succeeded"];
    assert_eq!(event_types(&run), told);
    assert_eq!(home.memory()["effects"], 1);
    assert_eq!(home.memory()["volumes"], json!({ "living room": 20 }));
    let shown = home.stepgate("runs show last").stdout;
    for word in [
        "started → approval_required → approved → ok",
        "guarantee  exactly_once",
        "approved by operator",
        "reason: the loudspeaker gets louder or quieter",
    ] {
        assert!(shown.contains(word), "`{word}` is not in\n{shown}");
    }
    let again = home.stepgate(&format!("approve {id}"));
    assert_eq!((again.code, home.memory()["effects"].as_u64()), (1, Some(1)));
    home.verified();
}

/// Specification 002: "`assistant run sonos.set_volume`", "started → approval_required → approved → ok".
#[test]
fn the_gated_example_runs_word_for_word_without_an_argument() {
    let home = Home::new();
    let _gateway = Gateway::start(&home.place);
    let asked = home.stepgate("run sonos.set_volume");
    assert_eq!(asked.code, 13, "{}{}", asked.stdout, asked.stderr);
    let id = home.pending()["approval_id"].as_str().unwrap().to_owned();
    assert_eq!(home.stepgate(&format!("approve {id}")).code, 0);
    let run = home.last_ended();
    assert_eq!(run["states"], json!(["started", "approval_required", "approved", "ok"]));
    assert_eq!(home.memory()["volumes"], json!({ "living room": 10 }));
    home.verified();
}

#[test]
fn the_first_policies_let_a_tool_look_and_ask_before_one_acts() {
    let home = Home::new();
    // Without policies of its own the home gets the first ones.
    fs::remove_dir_all(home.copy.path().join("examples/home/policies")).unwrap();
    let _gateway = Gateway::start(&home.place);
    assert_eq!(home.stepgate("run calendar.google.get_agenda").code, 0);
    assert_eq!(home.last()["states"], json!(["started", "ok"]));
    assert_eq!(home.stepgate("run sonos.set_volume").code, 13);
    assert_eq!(home.last()["states"], json!(["started", "approval_required"]));
}

#[test]
fn a_failed_execution_goes_from_started_to_error_on_the_command_line() {
    let home = Home::new();
    let _gateway = Gateway::start(&home.place);
    let failed = home.stepgate("run sonos.get_volume room=cellar");
    assert_eq!(failed.code, 12, "{}", failed.stderr);
    assert_eq!(outcome(&failed.stdout), "EXECUTION_ERROR");
    assert_eq!(home.last()["states"], json!(["started", "error"]));
    let shown = home.stepgate("runs show last").stdout;
    assert!(shown.contains("there is no loudspeaker in `cellar`"), "{shown}");
    home.verified();
}

#[test]
fn a_volume_above_the_cap_is_lowered_before_anybody_is_asked_and_the_record_has_both() {
    let home = Home::new();
    let _gateway = Gateway::start(&home.place);
    assert_eq!(home.stepgate("run sonos.set_volume volume=90").code, 13);
    let approval = home.pending();
    assert_eq!(approval["context"]["args"], json!({ "volume": 30 }));
    home.stepgate(&format!("approve {}", approval["approval_id"].as_str().unwrap()));

    let run = home.last_ended();
    let [request, decision, call, _] = run["artifacts"].as_array().unwrap().as_slice() else {
        panic!("a step that was executed has four artifacts: {run}");
    };
    assert_eq!(request["proposal"]["args"], json!({ "volume": 90 }));
    assert_eq!(decision["meta"]["cap"], json!({ "volume": 30 }));
    assert_eq!(call["call"]["args"], json!({ "volume": 30 }));
    assert_eq!(home.memory()["volumes"], json!({ "living room": 30 }));
    let shown = home.stepgate("runs show last").stdout;
    for word in [r#"args       {"volume":90}"#, r#"capped: {"volume":30}"#] {
        assert!(shown.contains(word), "`{word}` is not in\n{shown}");
    }
    home.verified();
}

#[test]
fn a_denied_example_never_reaches_the_loudspeaker() {
    let home = Home::new();
    let _gateway = Gateway::start(&home.place);
    home.stepgate("run sonos.set_volume volume=20");
    let id = home.pending()["approval_id"].as_str().unwrap().to_owned();
    assert_eq!(home.stepgate(&format!("deny {id} --note asleep")).code, 0);
    assert_eq!(home.last_ended()["states"], json!(["started", "approval_required", "denied"]));
    assert!(home.stepgate("runs show last").stdout.contains("denied by operator: asleep"));
    assert_eq!(home.memory(), Value::Null);
    home.verified();
}

#[test]
fn the_three_examples_run_over_http_and_whoever_waits_is_woken_by_the_approval() {
    let home = Home::new();
    let gateway = Gateway::start(&home.place);
    let shown = |reply: &Reply| {
        let path = format!("/v1/runs/{}", reply.headers["stepgate-run"]);
        gateway.send("GET", &path, &gateway.agent, "").json()
    };

    let looked = gateway.propose(&proposal("calendar.google.get_agenda", json!({})));
    assert_eq!((looked.status, outcome(&looked.body)), (200, json!("SUCCESS")));
    assert_eq!(shown(&looked)["states"], json!(["started", "ok"]));

    let (address, agent) = (gateway.address, gateway.agent.clone());
    let patient = std::thread::spawn(move || {
        let body = proposal("sonos.set_volume", json!({ "volume": 20 }));
        let wait = [("prefer", "wait=25")];
        let request = request("POST", "/v1/steps", &agent, &wait, &body);
        exchange(address, request.as_bytes()).unwrap()
    });
    let approval = home.pending();
    let path = format!("/v1/runs/{}", approval["tool_run_id"].as_str().unwrap());
    let waiting = gateway.send("GET", &path, &gateway.operator, "").json();
    assert_eq!(waiting["states"], json!(["started", "approval_required"]));
    assert!(!patient.is_finished());
    let path = format!("/v1/approvals/{}/approve", approval["approval_id"].as_str().unwrap());
    assert_eq!(gateway.send("POST", &path, &gateway.agent, "").status, 403);
    assert_eq!(gateway.send("POST", &path, &gateway.operator, "").status, 200);
    let set = patient.join().unwrap();
    assert_eq!((set.status, outcome(&set.body)), (200, json!("SUCCESS")));
    let states = json!(["started", "approval_required", "approved", "ok"]);
    assert_eq!(shown(&set)["states"], states);
    assert_eq!(home.memory()["effects"], 1);

    let failed = gateway.propose(&proposal("sonos.get_volume", json!({ "room": "cellar" })));
    assert_eq!((failed.status, outcome(&failed.body)), (200, json!("EXECUTION_ERROR")));
    assert_eq!(shown(&failed)["states"], json!(["started", "error"]));
    drop(gateway);
    home.verified();
}

#[test]
fn the_readme_of_the_example_does_what_it_says() {
    let home = Home::new();
    let shell = blocks(&read("examples/home/README.md"), "sh");
    let (first, others) = shell.split_first().unwrap();
    // Built already, and found in PATH.
    let setting: String = first
        .lines()
        .filter(|line| !line.starts_with("cargo "))
        .map(|line| format!("{line}\n"))
        .collect();
    let mut id = String::new();
    let told: Vec<_> = others
        .iter()
        .map(|block| {
            let script = format!("{setting}{}", block.replace("ID", &id));
            let mut sh = Command::new("sh");
            sh.env_clear().env("PATH", path()).current_dir(home.copy.path());
            sh.args(["-u", "-c", &script]);
            // A person approves at a terminal.
            let output = match block.contains("stepgate approve") {
                true => at_a_terminal(&sh, "y\n"),
                false => finish(&mut sh, b""),
            };
            if let Some(rest) = output.stderr.split("`stepgate approve ").nth(1) {
                id = rest.split('`').next().unwrap().to_owned();
            }
            format!("{}{}", output.stdout, output.stderr)
        })
        .collect();
    let expected: [&[&str]; 5] = [
        &["Breakfast with Ada"],
        &["APPROVAL_REQUIRED", "waiting for a person"],
        &["pending", "approved"],
        &["Tool failed", "no loudspeaker in `cellar`"],
        &["sonos.set_volume", "verified: 3 runs", "\"effects\":1"],
    ];
    assert_eq!(told.len(), expected.len(), "a block that nobody checks");
    for (told, words) in told.iter().zip(expected) {
        for word in words {
            assert!(told.contains(word), "`{word}` is not in\n{told}");
        }
    }
}
