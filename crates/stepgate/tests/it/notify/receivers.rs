//! Receivers: an HTTP server that keeps what it is told, and an SMTP server from PyPI.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use serde_json::Value;

use crate::http_client::PATIENCE;
use crate::mcp_scene::{fixture, installed};

/// One request, as it came.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) path: String,
    /// Names in lower case.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
    pub(crate) bytes: Vec<u8>,
    /// What was answered.
    pub(crate) status: u16,
}

impl Request {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }

    pub(crate) fn header(&self, name: &str) -> String {
        self.headers.iter().find(|(found, _)| found == name).unwrap().1.clone()
    }
}

struct State {
    requests: Vec<Request>,
    status: u16,
    delay: Duration,
    /// What each kilobyte of a request adds to that.
    delay_per_kib: Duration,
    /// The answer's body.
    says: &'static str,
    /// Longer requests are refused with 413.
    longest: usize,
}

/// An HTTP server that answers as it is told to.
pub(crate) struct Sink {
    pub(crate) address: String,
    state: Arc<Mutex<State>>,
}

impl Sink {
    pub(crate) fn start() -> Self {
        Self::at("127.0.0.1:0")
    }

    pub(crate) fn at(address: &str) -> Self {
        let listener = TcpListener::bind(address).unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let state = State {
            requests: Vec::new(),
            status: 200,
            delay: Duration::ZERO,
            delay_per_kib: Duration::ZERO,
            says: "",
            longest: usize::MAX,
        };
        let state = Arc::new(Mutex::new(state));
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = Arc::clone(&shared);
                std::thread::spawn(move || answer(stream, &shared));
            }
        });
        Self { address, state }
    }

    pub(crate) fn requests(&self) -> Vec<Request> {
        self.state.lock().unwrap().requests.clone()
    }

    pub(crate) fn answer(&self, status: u16) {
        self.state.lock().unwrap().status = status;
    }

    pub(crate) fn say(&self, says: &'static str) {
        self.state.lock().unwrap().says = says;
    }

    pub(crate) fn refuse_above(&self, longest: usize) {
        self.state.lock().unwrap().longest = longest;
    }

    pub(crate) fn answer_after(&self, delay: Duration) {
        self.state.lock().unwrap().delay = delay;
    }

    pub(crate) fn take_per_kib(&self, delay: Duration) {
        self.state.lock().unwrap().delay_per_kib = delay;
    }
}

fn answer(stream: TcpStream, state: &Mutex<State>) -> Option<()> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let path = line.split(' ').nth(1)?.to_owned();
    let mut headers = Vec::new();
    loop {
        line.clear();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        headers.push((name.to_ascii_lowercase(), value.to_owned()));
    }
    let length = headers.iter().find(|(name, _)| name == "content-length")?.1.parse().ok()?;
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let text = String::from_utf8_lossy(&body).into_owned();
    let (status, delay, says) = {
        let mut state = state.lock().unwrap();
        let status = if length <= state.longest { state.status } else { 413 };
        state.requests.push(Request { path, headers, body: text, bytes: body, status });
        let kib = u32::try_from(length / 1024).unwrap();
        (status, state.delay + state.delay_per_kib * kib, state.says)
    };
    std::thread::sleep(delay);
    let length = says.len();
    let text = format!(
        "HTTP/1.1 {status} So\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{says}"
    );
    reader.into_inner().write_all(text.as_bytes()).ok()
}

/// An address at which no process listens.
pub(crate) fn free_address() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

/// A real SMTP server, which ends with this value.
pub(super) struct MailSink {
    pub(super) port: u16,
    process: Child,
    lines: mpsc::Receiver<String>,
}

impl MailSink {
    pub(super) fn start() -> Self {
        let mut process = Command::new(installed().join("python-notify/bin/python"))
            .arg(fixture("mail_sink.py"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            output.lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        let port = lines.recv_timeout(PATIENCE).unwrap().parse().unwrap();
        Self { port, process, lines }
    }

    pub(super) fn next(&self) -> Value {
        serde_json::from_str(&self.lines.recv_timeout(PATIENCE).unwrap()).unwrap()
    }
}

impl Drop for MailSink {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
