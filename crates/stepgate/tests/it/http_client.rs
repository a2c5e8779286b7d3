//! A gateway as a process of its own, and the smallest client that can talk to it.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::binary::Place;

/// How long anything may take before a test gives up.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A process that serves. It is killed when it goes out of sight.
pub(crate) struct Gateway {
    pub(crate) child: Child,
    pub(crate) address: SocketAddr,
    pub(crate) operator: String,
    pub(crate) agent: String,
    pub(crate) greeting: Vec<String>,
    /// The lines of its standard error. A thread reads them as they come: a gateway whose log is not read stops.
    log: Option<Mutex<Receiver<String>>>,
}

impl Gateway {
    pub(crate) fn start(place: &Place) -> Self {
        Self::start_with(place, &[])
    }

    pub(crate) fn start_with(place: &Place, args: &[&str]) -> Self {
        Self::start_at(place, "127.0.0.1:0", args)
    }

    /// At this address: where an earlier one was, so that its clients find it again.
    pub(crate) fn start_at(place: &Place, address: &str, args: &[&str]) -> Self {
        let args = ["serve", "--bind", address].into_iter().chain(args.iter().copied());
        let mut command = place.command(args);
        Self::of(command.stderr(Stdio::piped()), &place.path())
    }

    /// As this command says, which serves; its tokens are in this directory.
    pub(crate) fn of(command: &mut Command, tokens: &Path) -> Self {
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut greeting = Vec::new();
        loop {
            let Some(line) = lines.next() else {
                let mut error = String::new();
                child.stderr.take().map(|mut stderr| stderr.read_to_string(&mut error).unwrap());
                panic!("it does not serve: {error}");
            };
            greeting.push(line.unwrap());
            if greeting.last().unwrap().starts_with("stop") {
                break;
            }
        }
        let address = greeting[0].split("://").nth(1).unwrap().parse().unwrap();
        let token = |role: &str| {
            let file = tokens.join(format!("{role}.token"));
            std::fs::read_to_string(file).unwrap().trim().to_owned()
        };
        let log = child.stderr.take().map(|stderr| Mutex::new(lines_of(stderr)));
        Self { address, operator: token("operator"), agent: token("agent"), child, greeting, log }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Reads standard error until a line says this.
    pub(crate) fn until_it_says(&mut self, text: &str) {
        self.line_with(text);
    }

    /// The next line of standard error that says this.
    pub(crate) fn line_with(&mut self, text: &str) -> String {
        let log = self.log.as_mut().unwrap().get_mut().unwrap();
        while let Ok(line) = log.recv_timeout(PATIENCE) {
            if line.contains(text) {
                return line;
            }
        }
        panic!("it never said `{text}`");
    }

    /// Waits for the end: the exit code, and what went to standard error.
    pub(crate) fn end(mut self) -> (Option<i32>, String) {
        let stderr = self.log.take().unwrap().into_inner().unwrap().iter().collect();
        (self.child.wait().unwrap().code(), stderr)
    }

    pub(crate) fn send(&self, method: &str, path: &str, token: &str, body: &str) -> Reply {
        let request = request(method, path, token, &[], body);
        exchange(self.address, request.as_bytes()).unwrap()
    }

    pub(crate) fn propose(&self, body: &str) -> Reply {
        self.send("POST", "/v1/steps", &self.agent, body)
    }

    /// One number of `/metrics`.
    pub(crate) fn metric(&self, name: &str) -> u64 {
        let text = self.send("GET", "/metrics", &self.operator, "").body;
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("{name} ")));
        line.unwrap_or_else(|| panic!("{name} is not in\n{text}")).parse().unwrap()
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The lines of a stream as they come, each with its end.
fn lines_of(stream: ChildStderr) -> Receiver<String> {
    let (sender, lines) = channel();
    let mut stream = BufReader::new(stream);
    std::thread::spawn(move || {
        let mut line = Vec::new();
        while let Ok(1..) = stream.read_until(b'\n', &mut line) {
            let text = String::from_utf8_lossy(&line).into_owned();
            if sender.send(text).is_err() {
                return;
            }
            line.clear();
        }
    });
    lines
}

pub(crate) fn request(
    method: &str,
    path: &str,
    token: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> String {
    let mut head = format!("{method} {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n");
    if !token.is_empty() {
        head.push_str(&format!("authorization: Bearer {token}\r\n"));
    }
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    format!("{head}content-length: {}\r\n\r\n{body}", body.len())
}

/// An answer, all of it.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: HashMap<String, String>,
    pub(crate) body: String,
}

impl Reply {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("not JSON: {:?}", self.body))
    }
}

/// Sends bytes and reads until the other side is done. Nothing is an answer too: none.
pub(crate) fn exchange(address: SocketAddr, bytes: &[u8]) -> Option<Reply> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    // The other side may have seen enough before it has seen everything.
    let _ = stream.write_all(bytes);
    read(&mut stream)
}

/// The same for one who does not wait longer, and goes away then.
pub(crate) fn exchange_within(
    address: SocketAddr,
    bytes: &[u8],
    patience: Duration,
) -> Option<Reply> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(patience)).unwrap();
    let _ = stream.write_all(bytes);
    let mut answer = Vec::new();
    // Half of an answer is none.
    stream.read_to_end(&mut answer).ok()?;
    reply_of(answer)
}

/// Reads an answer to its end.
pub(crate) fn read(stream: &mut TcpStream) -> Option<Reply> {
    let mut bytes = Vec::new();
    let start = Instant::now();
    let _ = stream.read_to_end(&mut bytes);
    assert!(start.elapsed() < PATIENCE, "the connection hangs");
    reply_of(bytes)
}

fn reply_of(bytes: Vec<u8>) -> Option<Reply> {
    let text = String::from_utf8(bytes).unwrap();
    let (head, body) = text.split_once("\r\n\r\n")?;
    let mut lines = head.lines();
    let status = lines.next()?.split(' ').nth(1)?.parse().ok()?;
    let headers = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_lowercase(), value.to_owned()))
        .collect();
    Some(Reply { status, headers, body: body.to_owned() })
}

pub(crate) fn proposal(action: &str, args: Value) -> String {
    json!({
        "schema_version": "1.0.0",
        "id": uuid::Uuid::new_v4(),
        "reasoning": "a test",
        "action": action,
        "args": args,
    })
    .to_string()
}
