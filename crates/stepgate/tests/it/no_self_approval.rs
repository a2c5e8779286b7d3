//! The agent of every client's guide, with a shell of its own, tries to decide on what it asked for.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::binary::{Output, Place, copy_program, finish};
use crate::docs::read;
use crate::docs::readme::blocks;
use crate::http_client::Gateway;
use crate::mcp_scene::{fixture, place_with};
use crate::scene::python;
use crate::terminal::at_a_terminal;

const GUIDES: [&str; 5] = ["claude-code", "claude-desktop", "cursor", "vscode", "codex"];

/// What the guides have in place of the reader's own.
const URL: &str = "http://127.0.0.1:7420";
const DATA: &str = "/srv/gate";
const TOKEN_FILE: &str = "/srv/agent.token";
const PROGRAM: &str = "/usr/local/bin/stepgate";

/// A user that no machine has.
const OTHER_UID: u32 = 61_977;

const POLICIES: &str = r#"
    @id("ask") @approval("a file is deleted")
    permit (principal, action == Action::"DELETE_FILE", resource);
"#;

/// How many commands of a guide print a configuration: for a gateway of another user, and for one's own.
enum Setup {
    OtherUser,
    SameUser,
}

/// A data directory where a deletion waits for a person, and a program that another user can start.
struct Stage {
    place: Place,
    common: TempDir,
}

impl Stage {
    fn new() -> Self {
        let place = place_with("[mcp]\nwait_ms = 50\n", POLICIES);
        let mode = |mode| fs::Permissions::from_mode(mode);
        fs::set_permissions(place.path(), mode(0o700)).unwrap();
        // Only the data directory itself is closed, as it is on a reader's machine.
        fs::set_permissions(place.path().parent().unwrap(), mode(0o755)).unwrap();
        let common = TempDir::new().unwrap();
        fs::set_permissions(common.path(), mode(0o755)).unwrap();
        let stage = Self { place, common };
        let built = env!("CARGO_BIN_EXE_stepgate");
        if fs::hard_link(built, stage.program()).is_err() {
            copy_program(built, stage.program());
        }
        fs::copy(fixture("agent_that_tries.py"), stage.common.path().join("agent.py")).unwrap();
        stage
    }

    fn program(&self) -> PathBuf {
        self.common.path().join("stepgate")
    }

    /// What the guide's own command prints, read as the client reads it.
    fn configured(&self, client: &str, setup: &Setup, url: &str) -> Value {
        let page = read(format!("docs/clients/{client}.md"));
        let commands: Vec<_> =
            blocks(&page, "sh").into_iter().filter(|block| block.contains("mcp config")).collect();
        let [other_user, same_user] = commands.as_slice() else { panic!("{client}: {commands:?}") };
        let line = match setup {
            Setup::OtherUser => other_user,
            Setup::SameUser => same_user,
        };
        let data = self.place.path();
        let token = self.token_file();
        let line = line.replace(URL, url).replace(DATA, data.to_str().unwrap());
        let line = line.replace(TOKEN_FILE, token.to_str().unwrap());
        let words: Vec<_> = line.split_whitespace().skip(1).collect();
        let mut command = Command::new(self.program());
        let printed = finish(command.env_clear().args(words), b"");
        assert_eq!(printed.code, 0, "{line}: {}", printed.stderr);
        let configured: Value = match client {
            "codex" => toml::from_str(&printed.stdout).unwrap(),
            _ => serde_json::from_str(&printed.stdout).unwrap(),
        };
        let names = ["mcpServers", "servers", "mcp_servers"];
        let servers = names.iter().find_map(|name| configured.get(name)).unwrap();
        servers["stepgate"].clone()
    }

    fn token_file(&self) -> PathBuf {
        self.common.path().join("agent.token")
    }

    /// How the agent's client comes to the gate, as its configuration says.
    fn way(configured: &Value, token: &str) -> Value {
        match configured.get("url") {
            Some(url) => json!({ "url": url, "token": token }),
            None => json!({ "command": configured["command"], "args": configured["args"] }),
        }
    }

    /// Lets the agent try: the approval that waits, and what it tried.
    fn tries(
        &self,
        mut agent: Command,
        situation: &Value,
    ) -> (String, Vec<(String, bool, String)>) {
        agent.arg(self.common.path().join("agent.py")).arg(situation.to_string());
        agent.env_clear().env("PATH", "/usr/bin:/bin").current_dir("/");
        let Output { stdout, stderr, .. } = finish(&mut agent, b"");
        let told: Value = serde_json::from_str(&stdout).unwrap_or_else(|_| panic!("{stderr}"));
        let tries = serde_json::from_value(told["tries"].clone()).unwrap();
        (told["approval"].as_str().unwrap().to_owned(), tries)
    }

    fn policies(&self) -> Vec<(PathBuf, String)> {
        let files = fs::read_dir(self.place.path().join("policies")).unwrap();
        let text = |path: PathBuf| (path.clone(), fs::read_to_string(path).unwrap());
        files.map(|file| text(file.unwrap().path())).collect()
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// All of it failed, and nothing changed.
fn assert_nothing_came_of_it(
    stage: &Stage,
    client: &str,
    (approval, tries): (String, Vec<(String, bool, String)>),
    least: usize,
) {
    assert!(tries.len() >= least, "{client}: {}", tries.len());
    for (name, worked, said) in &tries {
        assert!(!worked, "{client}: `{name}` worked: {said}");
    }
    let pending = stage.place.stepgate(["approvals", "--json"], "").stdout;
    assert!(pending.contains(&approval) && pending.contains("pending"), "{client}: {pending}");
    let tokens = stage.place.stepgate(["token", "list", "--json"], "").stdout;
    let names = ["\"second\"", "\"x\""];
    assert!(!names.iter().any(|name| tokens.contains(name)), "{client}: {tokens}");
}

#[test]
fn an_agent_that_runs_as_another_user_decides_nothing_in_the_set_up_of_any_guide() {
    let python = Path::new("/usr/bin/python3");
    if !is_root() || !python.exists() {
        // The same rules are tried for one user below.
        eprintln!("skipped: only root can start a process of another user, with /usr/bin/python3");
        return;
    }
    for client in GUIDES {
        let stage = Stage::new();
        let gateway = Gateway::start_with(&stage.place, &["--quiet"]);
        fs::write(stage.token_file(), &gateway.agent).unwrap();
        std::os::unix::fs::chown(stage.token_file(), Some(OTHER_UID), Some(OTHER_UID)).unwrap();
        fs::set_permissions(stage.token_file(), fs::Permissions::from_mode(0o600)).unwrap();
        let policies = stage.policies();
        let configured = stage.configured(client, &Setup::OtherUser, &gateway.url());
        let mut agent = Command::new(python);
        agent.uid(OTHER_UID).gid(OTHER_UID);
        let situation = json!({
            "way": Stage::way(&configured, &gateway.agent),
            "program": stage.program(),
            "data": stage.place.path(),
            "gateway": gateway.url(),
            "token": gateway.agent,
            "is_other": true,
        });
        let told = stage.tries(agent, &situation);
        let approval = told.0.clone();
        assert_nothing_came_of_it(&stage, client, told, 40);
        assert_eq!(stage.policies(), policies, "{client}");
        // The guide's own way to decide works meanwhile.
        let decided = at_a_terminal(&stage.place.bare_command(["approve", &approval]), "y\n");
        assert_eq!(decided.code, 0, "{client}: {}", decided.stdout);
    }
}

#[test]
fn a_client_that_started_stepgate_mcp_decides_nothing_from_its_shell_and_a_person_elsewhere_does() {
    for (client, is_served) in GUIDES.into_iter().zip([true, false, true, false, true]) {
        let stage = Stage::new();
        // Without one, `stepgate mcp` holds the directory itself.
        let gateway = is_served.then(|| Gateway::start_with(&stage.place, &["--quiet"]));
        let configured = stage.configured(client, &Setup::SameUser, URL);
        assert_eq!(configured["command"], json!(stage.program()), "{client}: {PROGRAM}");
        let situation = json!({
            "way": Stage::way(&configured, ""),
            "program": stage.program(),
            "data": stage.place.path(),
            "gateway": null,
            "token": null,
            "is_other": false,
        });
        let told = stage.tries(Command::new(python()), &situation);
        let approval = told.0.clone();
        let refused: Vec<_> = told.1.iter().filter(|(_, _, said)| said.contains("agent")).collect();
        assert!(refused.len() >= 6, "{client}: it is told why: {:?}", told.1);
        assert_nothing_came_of_it(&stage, client, told, 16);
        let person = stage.place.bare_command(["approve", &approval]);
        let no = at_a_terminal(&person, "n\n");
        assert_eq!(no.code, 1, "{client}: {}", no.stdout);
        for shown in ["DELETE_FILE", "/sandbox/a.txt", "a file is deleted", "approve it? [y/N]"] {
            assert!(no.stdout.contains(shown), "{client}: {shown} is not in\n{}", no.stdout);
        }
        let yes = at_a_terminal(&person, "y\n");
        assert_eq!(yes.code, 0, "{client}: {}", yes.stdout);
        let run = stage.place.stepgate(["runs", "show", "last"], "").stdout;
        assert!(run.contains("approved by operator-at-terminal"), "{client}: {run}");
        drop(gateway);
    }
}

#[test]
fn without_a_terminal_or_a_token_an_operators_command_changes_nothing_and_says_what_to_do() {
    let stage = Stage::new();
    let asked = stage.place.stepgate(["run", "DELETE_FILE", "path=/sandbox/a.txt"], "");
    assert_eq!(asked.code, 13, "{asked:?}");
    let pending = stage.place.stepgate(["approvals", "--json"], "").stdout;
    let approval: Value = serde_json::from_str(&pending).unwrap();
    let approval = approval["approval_id"].as_str().unwrap();
    for served in [false, true] {
        let gateway = served.then(|| Gateway::start_with(&stage.place, &["--quiet"]));
        for words in [
            vec!["approve", approval],
            vec!["deny", approval],
            vec!["token", "create", "--name", "x", "--role", "operator"],
            vec!["token", "revoke", approval],
            vec!["tools", "accept", "a.b"],
            vec!["runs", "resolve", approval, "--failed"],
        ] {
            // A session of its own has no terminal, wherever this test was started.
            let mut command = Command::new("setsid");
            command.args(["--wait"]).arg(stage.program()).env_clear();
            command.arg("--data").arg(stage.place.path()).args(&words);
            let output = finish(&mut command, b"y\n");
            assert_eq!(output.code, 1, "{words:?}: {output:?}");
            assert!(output.stderr.contains("--token-file"), "{words:?}: {}", output.stderr);
        }
        for words in [vec!["approvals"], vec!["token", "list"], vec!["tools"], vec!["runs"]] {
            let output = finish(&mut stage.place.bare_command(words), b"");
            assert_eq!(output.code, 0, "only reading needs nothing: {output:?}");
        }
        drop(gateway);
    }
    assert_eq!(stage.place.stepgate(["approvals", "--json"], "").stdout, pending);
}
