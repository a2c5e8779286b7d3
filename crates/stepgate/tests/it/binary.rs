//! The binary itself, with a data directory of its own.

use std::ffi::{OsStr, OsString};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::terminal::at_a_terminal;

/// A data directory that goes away at the end.
pub(crate) struct Place {
    directory: TempDir,
    variables: Vec<(&'static str, OsString)>,
    /// An operator's token, where nothing has served yet and a command needs one.
    operator: OnceLock<String>,
}

/// What a command answered.
#[derive(Debug)]
pub(crate) struct Output {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Place {
    pub(crate) fn new() -> Self {
        Self::with(Vec::new())
    }

    /// With these variables in the environment of every command.
    pub(crate) fn with(variables: Vec<(&'static str, OsString)>) -> Self {
        Self { directory: TempDir::new().unwrap(), variables, operator: OnceLock::new() }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    pub(crate) fn database(&self) -> PathBuf {
        self.path().join("stepgate.db")
    }

    /// The command, with this data directory and nothing of the caller's environment. One that decides has
    /// an operator's token.
    pub(crate) fn command<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Command {
        let mut command = self.bare_command(args);
        if decides(&command) {
            command.env("STEPGATE_TOKEN", self.operator_token());
        }
        command
    }

    /// The same without any token.
    pub(crate) fn bare_command<S: AsRef<OsStr>>(
        &self,
        args: impl IntoIterator<Item = S>,
    ) -> Command {
        let mut command = command(&self.path(), args);
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command
    }

    /// The token that the first `serve` made; where nothing has served, one that the owner of the directory
    /// makes at a terminal.
    pub(crate) fn operator_token(&self) -> String {
        if let Ok(token) = std::fs::read_to_string(self.path().join("operator.token")) {
            return token.trim().to_owned();
        }
        self.operator.get_or_init(|| self.own_token("operator", "operator")).clone()
    }

    /// A token that the owner of the directory makes at a terminal: it is linked to no other principal.
    pub(crate) fn own_token(&self, name: &str, role: &str) -> String {
        let args = ["token", "create", "--name", name, "--role", role];
        let made = at_a_terminal(&self.bare_command(args), "y\n");
        let at = made.stdout.find("sg_").unwrap_or_else(|| panic!("{made:?}"));
        made.stdout[at..].lines().next().unwrap().to_owned()
    }

    /// Runs the command to its end.
    pub(crate) fn stepgate<S: AsRef<OsStr>>(
        &self,
        args: impl IntoIterator<Item = S>,
        input: impl AsRef<[u8]>,
    ) -> Output {
        finish(&mut self.command(args), input.as_ref())
    }
}

pub(crate) fn command<S: AsRef<OsStr>>(data: &Path, args: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stepgate"));
    // On a busy machine a server may take long, and its tools are wanted all the same.
    command.env_clear().env("STEPGATE_SERVE_SERVERS_WAIT_MS", "30000");
    command.arg("--data").arg(data).args(args);
    command
}

/// Whether a command decides on this directory, so that it needs an operator.
fn decides(command: &Command) -> bool {
    let args: Vec<_> = command.get_args().skip(2).filter_map(OsStr::to_str).collect();
    let words: Vec<_> = args.iter().copied().filter(|arg| !arg.starts_with('-')).collect();
    let is_here = !args.contains(&"--url") && !args.contains(&"--token-file");
    let words = (words.first().copied(), words.get(1).copied());
    let decides = match words {
        (Some("approve" | "deny" | "chat" | "stop" | "lift"), _) => true,
        (Some("token" | "grants"), Some("create" | "revoke")) => true,
        (Some("archive"), Some("run")) | (Some("hold"), Some("add" | "lift")) => true,
        (Some("erasable"), _) => true,
        (Some("tools"), Some("accept")) | (Some("runs"), Some("resolve")) => true,
        (_, _) => false,
    };
    is_here && decides && !args.contains(&"--help")
}

/// Copies a program that the test starts then. By another process: this one starts others all the time, a child has
/// the copy open for writing until it calls exec, and a file that is open for writing cannot be started.
pub(crate) fn copy_program(from: impl AsRef<Path>, to: impl AsRef<Path>) {
    let copied = Command::new("cp")
        .arg("--preserve=mode")
        .args([from.as_ref(), to.as_ref()])
        .status()
        .unwrap();
    assert!(copied.success(), "{}", to.as_ref().display());
}

/// How long a command may run. The slowest, a browser, takes two minutes on two busy cores.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(10 * 60);
/// How long its output may stay open after its end: what it started may still hold it.
const OUTPUT_TIMEOUT: Duration = Duration::from_secs(60);

/// Runs a command to its end. One that does not end is killed, and what it said is in the panic.
pub(crate) fn finish(command: &mut Command, input: &[u8]) -> Output {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let stdout = Heard::by_a_thread(child.stdout.take().unwrap());
    let stderr = Heard::by_a_thread(child.stderr.take().unwrap());
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    // From a thread of its own: the child may answer before it has read everything.
    std::thread::spawn(move || {
        let _ = stdin.write_all(&input);
    });
    let begin = Instant::now();
    let status = loop {
        match child.try_wait().unwrap() {
            Some(status) => break status,
            None if begin.elapsed() < COMMAND_TIMEOUT => std::thread::sleep(POLL),
            None => {
                let _ = child.kill();
                panic!("{command:?} does not end\n{}\n{}", stdout.so_far(), stderr.so_far());
            }
        }
    };
    Output { code: status.code().unwrap_or(-1), stdout: stdout.whole(), stderr: stderr.whole() }
}

/// How often a command is asked whether it has ended.
const POLL: Duration = Duration::from_millis(2);

/// What a thread has read from a stream.
struct Heard {
    bytes: Arc<Mutex<Vec<u8>>>,
    /// Ends with the stream.
    end: Receiver<()>,
}

impl Heard {
    fn by_a_thread(mut stream: impl Read + Send + 'static) -> Self {
        let bytes = Arc::new(Mutex::new(Vec::new()));
        let (until, end) = channel();
        let heard = Arc::clone(&bytes);
        std::thread::spawn(move || {
            let mut piece = [0; 8192];
            while let Ok(count @ 1..) = stream.read(&mut piece) {
                heard.lock().unwrap().extend_from_slice(&piece[..count]);
            }
            drop(until);
        });
        Self { bytes, end }
    }

    fn so_far(&self) -> String {
        String::from_utf8_lossy(&self.bytes.lock().unwrap()).into_owned()
    }

    fn whole(&self) -> String {
        let end = self.end.recv_timeout(OUTPUT_TIMEOUT);
        assert_eq!(
            end,
            Err(RecvTimeoutError::Disconnected),
            "the output stays open: {}",
            self.so_far()
        );
        String::from_utf8(std::mem::take(&mut self.bytes.lock().unwrap())).unwrap()
    }
}
