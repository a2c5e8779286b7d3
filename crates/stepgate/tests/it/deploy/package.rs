//! The Debian package under systemd: installed, serving, stopped, upgraded with its data, removed.

use std::fs;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use serde_json::{Value, json};
use stepgate_package::{Packing, Profile, cargo_deb};
use tempfile::TempDir;

use super::machine::Machine;
use super::{Served, free_address, target};
use crate::docs::root;
use crate::gate::proposal;
use crate::mcp_scene::fixture;
use crate::scene::until;

/// Where the package has its data.
const DATA: &str = "/var/lib/stepgate";
/// Where the tool server of the tests keeps its state: the drop-in below opens it.
const STATE: &str = "/srv/tool";

const DROP_IN: &str = "[Service]\nReadWritePaths=/srv/tool\n";

const POLICIES: &str = r#"
    @id("test/tools") permit (principal, action == Action::"fixture.act", resource);
    @id("test/look") permit (principal, action in Action::"read_only", resource);
"#;

/// Most that `systemd-analyze security` may find, in tenths: 0 is best, 100 worst.
const EXPOSURE_MAX: &str = "20";

/// One package at a time: the pages that the program makes are in one place.
static PACKING: Mutex<()> = Mutex::new(());

/// A package of the program that is tested, with this version.
fn package(version: &str, output: &TempDir) -> PathBuf {
    let _alone = PACKING.lock().unwrap_or_else(PoisonError::into_inner);
    let (repository, target) = (root(), target());
    assert!(cargo_deb(&target).exists(), "run `cargo xtask setup` once");
    let (repository, target, output) = (repository.as_path(), target.as_path(), output.path());
    let (profile, version) = (Profile::Dev, Some(version));
    stepgate_package::make(&Packing { repository, target, profile, version, output }).unwrap()
}

/// The machine with a package of this version installed, and the gateway that it has started.
fn installed(machine: &Machine, version: &str, output: &TempDir) -> Served {
    let served = Served { address: free_address(), data: machine.file(DATA) };
    let settings = format!("STEPGATE_SERVE_BIND={}\n", served.address);
    machine.write("/etc/default/stepgate", &settings);
    install(machine, version, output);
    served
}

fn install(machine: &Machine, version: &str, output: &TempDir) {
    machine.copy(&package(version, output), "/root/stepgate.deb");
    machine.must(&["dpkg", "--no-triggers", "--install", "/root/stepgate.deb"]);
}

/// A tool server that works outside of the data directory, as the documentation says how.
fn configure_tool(machine: &Machine) {
    machine.copy(&fixture("tool_server.py"), "/opt/tool_server.py");
    machine.must(&["mkdir", "--parents", STATE]);
    machine.must(&["chown", "stepgate:stepgate", STATE]);
    machine.write("/etc/systemd/system/stepgate.service.d/tool.conf", DROP_IN);
    // Those of the package ask a person before a tool acts; the cases belong to them.
    for name in ["20-tools.cedar", "defaults.cases.toml"] {
        fs::remove_file(machine.file("/etc/stepgate/policies").join(name)).unwrap();
    }
    machine.write("/etc/stepgate/policies/90-test.cedar", POLICIES);
    let sample = fs::read_to_string(machine.file("/etc/stepgate/stepgate.toml")).unwrap();
    let server = "[servers.fixture]\ncommand = \"/usr/bin/python3\"\n\
        args = [\"/opt/tool_server.py\", \"/srv/tool\", \"--probe\", \"/var/lib/stepgate/agent.token\"]\n\
        mode = \"read_only\"\n[servers.fixture.tools.act]\nmode = \"execute_gated\"\nin_doubt = \"ask\"\n";
    machine.write("/etc/stepgate/stepgate.toml", &(sample + server));
    machine.must(&["systemctl", "daemon-reload"]);
    machine.must(&["systemctl", "restart", "stepgate"]);
}

fn write(number: u32) -> String {
    let path = format!("/sandbox/{number}.txt");
    proposal(number, "WRITE_FILE", json!({ "path": path, "content": "x" }))
}

/// What the kernel says of a process of the machine.
fn status(machine: &Machine, pid: &str, word: &str) -> String {
    let status = machine.must(&["cat", &format!("/proc/{pid}/status")]);
    let value = status.lines().find_map(|line| line.strip_prefix(&format!("{word}:")));
    value.unwrap().split_whitespace().next().unwrap().to_owned()
}

#[test]
fn the_package_serves_when_it_is_installed_and_keeps_its_data_over_an_upgrade() {
    let Some(machine) = Machine::boot() else { return };
    let output = TempDir::new().unwrap();
    let served = installed(&machine, "0.1.0~before", &output);

    // `Type=notify`: when the installation is over, requests are answered.
    assert_eq!(served.status_of("/readyz"), Some(200), "{}", machine.log());
    let first = served.propose(&write(1));
    assert_eq!(first.json()["outcome"], "SUCCESS", "{}", first.body);
    let before = machine.property("MainPID");
    let mode = |path: &str| machine.must(&["stat", "--format=%a %U", path]).trim().to_owned();
    assert_eq!(mode(DATA), "700 stepgate");
    assert_eq!(mode("/var/lib/stepgate/operator.token"), "600 stepgate");
    assert_eq!(mode("/etc/stepgate/stepgate.toml"), "644 root");

    // An operator has changed the configuration, added a policy and removed one: the upgrade leaves that as it is.
    configure_tool(&machine);
    install(&machine, "0.1.0", &output);
    assert_ne!(machine.property("MainPID"), before);
    assert_eq!(served.status_of("/readyz"), Some(200), "{}", machine.log());
    let again = served.propose(&write(1));
    assert_eq!((again.status, again.body), (first.status, first.body), "the recorded answer");
    let act = served.propose(&proposal(2, "fixture.act", json!({ "value": 1 })));
    assert_eq!(act.json()["outcome"], "SUCCESS", "{}", act.body);
    let as_user = ["setpriv", "--reuid=stepgate", "--regid=stepgate", "--clear-groups", "stepgate"];
    machine.must(&[&as_user[..], &["--data", DATA, "verify"]].concat());

    // Removed, it stops; the record stays, also after a purge.
    machine.must(&["dpkg", "--no-triggers", "--remove", "stepgate"]);
    assert_eq!(served.status_of("/readyz"), None);
    machine.must(&["dpkg", "--no-triggers", "--purge", "stepgate"]);
    assert!(machine.file(DATA).join("stepgate.db").exists());
    assert!(!machine.file("/etc/stepgate/stepgate.toml").exists());
}

#[test]
fn the_unit_confines_the_gateway_and_its_tool_servers_and_does_not_break_them() {
    let Some(machine) = Machine::boot() else { return };
    let output = TempDir::new().unwrap();
    let served = installed(&machine, "0.1.0", &output);
    configure_tool(&machine);

    let unit = "/usr/lib/systemd/system/stepgate.service";
    let verified = machine.run(&["systemd-analyze", "verify", "--man=no", unit]);
    assert_eq!((verified.code, verified.stderr.as_str()), (0, ""), "{verified:?}");
    let threshold = format!("--threshold={EXPOSURE_MAX}");
    machine.must(&[
        "systemd-analyze",
        "security",
        "--offline=true",
        "--no-pager",
        &threshold,
        unit,
    ]);

    let pid = machine.property("MainPID");
    assert_ne!(status(&machine, &pid, "Uid"), "0");
    for (word, expected) in [("CapBnd", "0000000000000000"), ("NoNewPrivs", "1"), ("Seccomp", "2")]
    {
        assert_eq!(status(&machine, &pid, word), expected, "{word}");
    }
    // Landlock stands although system calls are filtered: the server cannot read what its user can.
    let probe = served.propose(&proposal(1, "fixture.probe", json!({})));
    let probe: Value = probe.json()["result"]["structuredContent"].clone();
    assert_eq!(probe["file"], "PermissionError", "{probe}\n{}", machine.log());
    assert_eq!(probe["CapBnd"], "0000000000000000", "{probe}");
    assert!(!machine.log().contains("no Landlock"), "{}", machine.log());
    // It can write where the drop-in says.
    let act = served.propose(&proposal(2, "fixture.act", json!({ "value": 1 })));
    assert_eq!(act.json()["outcome"], "SUCCESS", "{}", act.body);
}

#[test]
fn a_call_that_runs_when_the_unit_is_stopped_is_finished_first() {
    let Some(machine) = Machine::boot() else { return };
    let output = TempDir::new().unwrap();
    let served = installed(&machine, "0.1.0", &output);
    configure_tool(&machine);
    machine.write("/srv/tool/hold-before", "");
    let stopped = std::thread::scope(|scope| {
        let call =
            scope.spawn(|| served.propose(&proposal(1, "fixture.act", json!({ "value": 1 }))));
        until("the tool is called", || machine.file("/srv/tool/hold-before.reached").exists());
        let mut stop = machine.begin(&["systemctl", "stop", "stepgate"]);
        until("it is told to stop", || {
            machine.log().contains("stopping: running steps finish first")
        });
        fs::remove_file(machine.file("/srv/tool/hold-before")).unwrap();
        let reply = call.join().unwrap();
        assert_eq!(reply.json()["outcome"], "SUCCESS", "{}\n{}", reply.body, machine.log());
        stop.wait().unwrap()
    });
    assert!(stopped.success());
    assert_eq!(machine.property("Result"), "success", "{}", machine.log());
    let effects = fs::read_to_string(machine.file("/srv/tool/effects")).unwrap();
    assert_eq!(effects.lines().count(), 1);
}
