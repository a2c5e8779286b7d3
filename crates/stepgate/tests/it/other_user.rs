//! A gateway whose user is not root. It closes its own `/proc` entries to others of that user, and the kernel then
//! gives them to root: whatever it needs of itself or of its clients it must have in another way.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::binary::{Output, copy_program, finish};
use crate::gate::proposal;
use crate::http_client::Gateway;
use crate::mcp_scene::fixture;
use crate::terminal::at_a_terminal;

/// A user that no machine has.
const UID: u32 = 61_978;

const POLICIES: &str = r#"
    @id("ask") @approval("it acts") permit (principal, action == Action::"fixture.act", resource);
    @id("look") permit (principal, action in Action::"read_only", resource);
    @id("core") permit (principal, action in Action::"core", resource);
    @id("delete") @approval("a file is deleted")
    permit (principal, action == Action::"DELETE_FILE", resource);
"#;

/// Everything that the user needs, in a directory of its own.
struct Home(TempDir);

impl Home {
    /// Nothing, where this process cannot become another user.
    fn new() -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: only root can start a process of another user");
            return None;
        }
        let home = Self(TempDir::new().unwrap());
        copy_program(env!("CARGO_BIN_EXE_stepgate"), home.file("stepgate"));
        fs::copy(fixture("tool_server.py"), home.file("tool_server.py")).unwrap();
        fs::copy(fixture("agent_that_tries.py"), home.file("agent.py")).unwrap();
        fs::create_dir_all(home.data().join("policies")).unwrap();
        fs::create_dir(home.file("state")).unwrap();
        fs::write(home.data().join("policies/all.cedar"), POLICIES).unwrap();
        let config = format!(
            "[mcp]\nwait_ms = 50\n[servers.fixture]\ncommand = \"/usr/bin/python3\"\nargs = [{:?}, {:?}]\nmode = \"read_only\"\n\
             [servers.fixture.tools.act]\nmode = \"execute_gated\"\nin_doubt = \"ask\"\n",
            home.file("tool_server.py"),
            home.file("state"),
        );
        fs::write(home.data().join("stepgate.toml"), config).unwrap();
        hand_over(home.0.path());
        Some(home)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn data(&self) -> PathBuf {
        self.file("data")
    }

    /// A program that the user runs.
    fn program(&self, program: impl AsRef<OsStr>) -> Command {
        let id = UID.to_string();
        let mut command = Command::new("/usr/bin/setpriv");
        command.args(["--reuid", &id, "--regid", &id, "--clear-groups", "--"]).arg(program);
        command.env_clear().env("PATH", "/usr/bin:/bin").current_dir("/");
        command
    }

    /// A command of the user.
    fn command(&self, args: &[&str]) -> Command {
        let mut command = self.program(self.file("stepgate"));
        command.arg("--data").arg(self.data()).args(args);
        command
    }

    fn stepgate(&self, args: &[&str]) -> Output {
        finish(&mut self.command(args), b"")
    }

    fn serve(&self) -> Gateway {
        let mut serve = self.command(&["serve", "--bind", "127.0.0.1:0"]);
        Gateway::of(serve.stderr(Stdio::piped()), &self.data())
    }
}

/// Gives everything here to the user.
fn hand_over(path: &Path) {
    chown(path, Some(UID), Some(UID)).unwrap();
    if path.is_dir() {
        fs::set_permissions(path, PermissionsExt::from_mode(0o700)).unwrap();
        fs::read_dir(path).unwrap().for_each(|entry| hand_over(&entry.unwrap().path()));
    }
}

/// The user of a process, and whom the kernel gives its environment to.
fn owners(pid: u32) -> (u32, u32) {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let user = status.lines().find_map(|line| line.strip_prefix("Uid:")).unwrap();
    let user = user.split_whitespace().next().unwrap().parse().unwrap();
    (user, fs::metadata(format!("/proc/{pid}/environ")).unwrap().uid())
}

#[test]
fn a_gateway_of_another_user_than_root_works_although_its_process_is_closed() {
    let Some(home) = Home::new() else { return };
    let gateway = home.serve();
    assert_eq!(owners(gateway.child.id()), (UID, 0), "it runs as the user, and is closed");

    // The tool server was started, and the sandbox written to.
    let look = gateway.propose(&proposal(1, "fixture.look", json!({})));
    assert_eq!((look.status, &look.json()["outcome"]), (200, &json!("SUCCESS")), "{}", look.body);
    let args = json!({ "path": "/sandbox/a.txt", "content": "x" });
    let write = gateway.propose(&proposal(2, "WRITE_FILE", args));
    assert_eq!(write.json()["outcome"], "SUCCESS", "{}", write.body);
    assert_eq!(fs::metadata(home.data().join("sandbox/a.txt")).unwrap().uid(), UID);

    // A command of the same user, through the socket; and a person at a terminal, whose process is closed, too.
    let think = home.stepgate(&["run", "THINK"]);
    assert_eq!(think.code, 0, "{think:?}");
    let asked = gateway.propose(&proposal(3, "fixture.act", json!({ "value": 1 })));
    assert_eq!(asked.status, 202, "{}", asked.body);
    let approval = asked.json()["result"]["approval_id"].as_str().unwrap().to_owned();
    let refused = home.stepgate(&["approve", &approval]);
    assert_eq!(refused.code, 1, "nobody is at a terminal: {refused:?}");
    let approved = at_a_terminal(&home.command(&["approve", &approval]), "y\n");
    assert_eq!(approved.code, 0, "{}", approved.stdout);
    assert_eq!(fs::read_to_string(home.file("state/effects")).unwrap().lines().count(), 1);
    drop(gateway);
    let verified = home.stepgate(&["verify"]);
    assert_eq!(verified.code, 0, "{verified:?}");
}

/// Without a gateway, too: a command that starts the tool servers itself.
#[test]
fn a_command_of_another_user_than_root_starts_tool_servers_by_itself() {
    let Some(home) = Home::new() else { return };
    let ran = home.stepgate(&["run", "fixture.look", "--json"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let answer: Value = serde_json::from_str(ran.stdout.lines().next().unwrap()).unwrap();
    assert_eq!(answer["outcome"], "SUCCESS", "{ran:?}");
}

/// The gateway cannot look what `stepgate mcp` reads from, which is closed, too. A wrapper that hands its input
/// down is still not taken for the client.
#[test]
fn a_client_that_starts_its_bridge_through_a_wrapper_decides_nothing() {
    let Some(home) = Home::new() else { return };
    let gateway = home.serve();
    let args = json!({ "path": "/sandbox/a.txt", "content": "x" });
    assert_eq!(gateway.propose(&proposal(1, "WRITE_FILE", args)).status, 200);
    let bridge = format!("{:?} --data {:?} mcp; true", home.file("stepgate"), home.data());
    let situation = json!({
        "way": { "command": "/bin/sh", "args": ["-c", bridge] },
        "program": home.file("stepgate"),
        "data": home.data(),
        "gateway": null,
        "token": null,
        "is_other": false,
    });
    let mut agent = home.program("/usr/bin/python3");
    agent.arg(home.file("agent.py")).arg(situation.to_string());
    let told = finish(&mut agent, b"");
    assert_eq!(told.code, 0, "{told:?}");
    let told: Value = serde_json::from_str(&told.stdout).unwrap();
    let tries = told["tries"].as_array().unwrap();
    assert!(tries.len() >= 16, "{tries:?}");
    for attempt in tries {
        assert_eq!(attempt[1], json!(false), "it worked: {attempt}");
    }
    // A person elsewhere decides.
    let approval = told["approval"].as_str().unwrap();
    let approved = at_a_terminal(&home.command(&["approve", approval]), "y\n");
    assert_eq!(approved.code, 0, "{}", approved.stdout);
}
