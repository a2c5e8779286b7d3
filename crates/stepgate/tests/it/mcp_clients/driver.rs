//! A client of one of the SDKs, as a process that does what it is told, line by line
//! (`tests/fixtures/python_client.py`, `tests/fixtures/typescript_client.ts`).

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::symlink;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Instant;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::docs::root;
use crate::http_client::{Gateway, PATIENCE};
use crate::mcp_scene::{fixture, installed, node22, python_with_sdk};

/// Which SDK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sdk {
    Python,
    TypeScript,
}

/// Both SDKs, with the handshake and without.
pub(crate) const EVERY: [(Sdk, &str); 4] = [
    (Sdk::Python, "legacy"),
    (Sdk::Python, "2026-07-28"),
    (Sdk::TypeScript, "legacy"),
    (Sdk::TypeScript, "2026-07-28"),
];

/// A client that is connected. It is killed when it goes out of sight.
pub(crate) struct Driver {
    child: Child,
    stdin: ChildStdin,
    lines: Receiver<Value>,
    /// What was said to somebody else who waits.
    heard: Vec<Value>,
    last: u64,
    _folder: Option<TempDir>,
}

impl Driver {
    pub(crate) fn connect(gateway: &Gateway, (sdk, mode): (Sdk, &str), declared: &[&str]) -> Self {
        let url = format!("{}/mcp", gateway.url());
        let (mut command, folder) = match sdk {
            Sdk::Python => (python(), None),
            Sdk::TypeScript => {
                let folder = typescript();
                (node22(folder.path().join("typescript_client.ts")), Some(folder))
            }
        };
        command.args([url.as_str(), &gateway.agent, mode]).args(declared);
        let mut driver = Self::start(command, folder);
        let version = if mode == "legacy" { "2025-11-25" } else { "2026-07-28" };
        let connected = driver.until("a connection", |line| line.get("connected").is_some());
        assert_eq!(connected["connected"], version, "{sdk:?} {mode}");
        driver
    }

    /// The Python SDK, with a program that it starts instead of an address.
    pub(crate) fn start_program(program: &[&str], mode: &str, declared: &[&str]) -> Self {
        let mut command = python();
        command.args(["stdio:", &json!(program).to_string(), mode]).args(declared);
        let mut driver = Self::start(command, None);
        driver.until("a connection", |line| line.get("connected").is_some());
        driver
    }

    fn start(mut command: Command, folder: Option<TempDir>) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let stdin = child.stdin.take().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = channel();
        thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                let line = serde_json::from_str(&line).unwrap_or(Value::String(line));
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Self { child, stdin, lines, heard: Vec::new(), last: 0, _folder: folder }
    }

    /// Sends a command, and gives its number.
    pub(crate) fn send(&mut self, mut command: Value) -> u64 {
        self.last += 1;
        command["id"] = json!(self.last);
        writeln!(self.stdin, "{command}").unwrap();
        self.last
    }

    /// The answer to a command: a result.
    pub(crate) fn answer(&mut self, number: u64) -> Value {
        let end = self.end(number);
        assert!(end.get("error").is_none(), "{end}");
        end["answer"].clone()
    }

    /// The end of a command: a result or an error.
    pub(crate) fn end(&mut self, number: u64) -> Value {
        let is_end = |line: &Value| line.get("answer").or_else(|| line.get("error")).is_some();
        self.until("an end", |line| line["id"] == json!(number) && is_end(line))
    }

    pub(crate) fn call(&mut self, name: &str, arguments: Value) -> Value {
        self.call_with(name, arguments, json!({}))
    }

    pub(crate) fn call_with(&mut self, name: &str, arguments: Value, meta: Value) -> Value {
        let number = self.send_call(name, arguments, meta);
        self.answer(number)
    }

    pub(crate) fn send_call(&mut self, name: &str, arguments: Value, meta: Value) -> u64 {
        self.send(json!({"do": "call", "name": name, "arguments": arguments, "meta": meta}))
    }

    /// The next line that is meant; what else is said meanwhile stays for others.
    pub(crate) fn until(&mut self, what: &str, is_meant: impl Fn(&Value) -> bool) -> Value {
        if let Some(index) = self.heard.iter().position(&is_meant) {
            return self.heard.remove(index);
        }
        let begin = Instant::now();
        loop {
            let left = PATIENCE.saturating_sub(begin.elapsed());
            let line = self.lines.recv_timeout(left).unwrap_or_else(|_| {
                panic!("never {what}; it said {:?}", self.heard);
            });
            if is_meant(&line) {
                return line;
            }
            self.heard.push(line);
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The example's Tasks extension is the clients' own.
fn python() -> Command {
    let mut command = python_with_sdk(fixture("python_client.py"));
    command.env("PYTHONPATH", root().join("examples/python-sdk"));
    command
}

/// A folder with the client, the example's Tasks extension, and the SDK.
fn typescript() -> TempDir {
    let folder = TempDir::new().unwrap();
    let copy = |from: std::path::PathBuf| {
        fs::copy(&from, folder.path().join(from.file_name().unwrap())).unwrap();
    };
    copy(fixture("typescript_client.ts"));
    copy(root().join("examples/typescript-sdk/tasks.ts"));
    copy(root().join("examples/typescript-sdk/package.json"));
    symlink(installed().join("clients/node_modules"), folder.path().join("node_modules")).unwrap();
    folder
}
