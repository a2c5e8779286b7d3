//! A gateway with a tool server that a test holds in its hands (`tests/fixtures/tool_server.py`).

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use crate::binary::{Output, Place};
use crate::http_client::{Gateway, PATIENCE, Reply};

/// A data directory, a directory for the tool server's state, and what is configured.
pub(crate) struct Scene {
    pub(crate) place: Place,
    pub(crate) state: tempfile::TempDir,
}

impl Scene {
    /// The fixture behind the gate: `act` needs a person and is in doubt like this, the others only look.
    pub(crate) fn new(delivery: &str) -> Self {
        Self::with(delivery, &[])
    }

    pub(crate) fn with(delivery: &str, flags: &[&str]) -> Self {
        Self::at(Place::new(), delivery, flags)
    }

    pub(crate) fn at(place: Place, delivery: &str, flags: &[&str]) -> Self {
        let scene = Self { place, state: tempfile::TempDir::new().unwrap() };
        fs::create_dir_all(scene.place.path().join("policies")).unwrap();
        let policies = r#"
            @id("ask") @approval("it acts")
            permit (principal, action == Action::"fixture.act", resource);
            @id("look")
            permit (principal, action in Action::"read_only", resource);
            @id("core")
            permit (principal, action in Action::"core", resource);
        "#;
        fs::write(scene.place.path().join("policies/all.cedar"), policies).unwrap();
        scene.configure(delivery, flags);
        scene
    }

    pub(crate) fn configure(&self, delivery: &str, flags: &[&str]) {
        let server = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tool_server.py");
        let mut args = vec![server.to_str().unwrap(), self.state.path().to_str().unwrap()];
        if delivery.contains("honours_key") {
            args.push("--honours-key");
        }
        args.extend(flags);
        let config = format!(
            "[policy]\nreload_ms = 20\n\
             [servers.fixture]\ncommand = {:?}\nargs = {args:?}\nmode = \"read_only\"\ntimeout_ms = 20000\n\
             [servers.fixture.tools.act]\nmode = \"execute_gated\"\n{delivery}\n\
             [servers.fixture.tools.hang]\ntimeout_ms = 300\n\
             [servers.other]\ncommand = {:?}\nargs = {args:?}\nmode = \"read_only\"\n",
            python(),
            python(),
        );
        fs::write(self.place.path().join("stepgate.toml"), config).unwrap();
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.state.path().join(name)
    }

    /// How often the tool itself says that it acted.
    pub(crate) fn effects(&self) -> usize {
        fs::read_to_string(self.file("effects")).map_or(0, |text| text.lines().count())
    }

    pub(crate) fn stepgate(&self, args: &[&str]) -> Output {
        self.place.stepgate(args, "")
    }

    /// The only approval that waits.
    pub(crate) fn pending(&self) -> String {
        let output = self.stepgate(&["approvals", "--json"]);
        let approval: Value = serde_json::from_str(output.stdout.lines().next().unwrap()).unwrap();
        approval["approval_id"].as_str().unwrap().to_owned()
    }

    /// Whether any process knows this tool server's state.
    pub(crate) fn has_processes(&self) -> bool {
        is_named_by_a_process(self.state.path())
    }

    pub(crate) fn verified(&self) {
        let verified = self.stepgate(&["verify"]);
        assert_eq!(verified.code, 0, "{}{}", verified.stdout, verified.stderr);
    }
}

/// Whether the command line of any process names this path.
pub(crate) fn is_named_by_a_process(path: &Path) -> bool {
    let path = path.to_str().unwrap();
    let processes = fs::read_dir("/proc").unwrap();
    processes.flatten().any(|process| {
        let line = fs::read(process.path().join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(path)
    })
}

/// Found here, because the gateway is started with nothing of our environment.
pub(crate) fn python() -> String {
    let path = std::env::var_os("PATH").unwrap();
    let found = std::env::split_paths(&path).map(|folder| folder.join("python3"));
    found.into_iter().find(|file| file.is_file()).unwrap().to_str().unwrap().to_owned()
}

pub(crate) fn until(what: &str, holds: impl FnMut() -> bool) {
    until_within(PATIENCE, what, holds);
}

pub(crate) fn until_within(patience: Duration, what: &str, mut holds: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < patience, "never: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

pub(crate) fn kill(gateway: Gateway) {
    gateway.signal(Signal::KILL);
    let (code, _) = gateway.end();
    assert_eq!(code, None);
}

pub(crate) fn approve(gateway: &Gateway, approval: &str) -> Reply {
    let path = format!("/v1/approvals/{approval}/approve");
    gateway.send("POST", &path, &gateway.operator, "")
}
