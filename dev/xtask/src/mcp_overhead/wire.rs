//! The smallest clients that can call a tool: over the standard input of a program, and over HTTP.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use serde_json::{Value, json};

const PATIENCE: Duration = Duration::from_secs(30);

/// The first line of what a program says; the rest is read and dropped.
pub(super) fn first_line(output: ChildStdout) -> anyhow::Result<String> {
    let mut output = BufReader::new(output);
    let mut line = String::new();
    output.read_line(&mut line)?;
    thread::spawn(move || std::io::copy(&mut output, &mut std::io::sink()));
    Ok(line)
}

/// A program that is spoken to line by line, by any number of callers at the same time.
pub(super) struct Lines {
    child: Child,
    stdin: Mutex<ChildStdin>,
    waiting: Arc<Mutex<Waiting>>,
}

#[derive(Default)]
struct Waiting {
    last: u64,
    by_id: HashMap<u64, Sender<Value>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Lines {
    pub(super) fn start(command: &mut Command) -> anyhow::Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn()?;
        let stdin = Mutex::new(child.stdin.take().context("no input")?);
        let stdout = BufReader::new(child.stdout.take().context("no output")?);
        let waiting = Arc::new(Mutex::new(Waiting::default()));
        let shared = Arc::clone(&waiting);
        thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                let Ok(answer) = serde_json::from_str::<Value>(&line) else { continue };
                let id = answer.get("id").and_then(Value::as_u64);
                let caller = id.and_then(|id| locked(&shared).by_id.remove(&id));
                if let Some(caller) = caller {
                    // A caller that has given up is not waiting any more.
                    let _ = caller.send(answer);
                }
            }
        });
        let lines = Self { child, stdin, waiting };
        let hello = json!({
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "overhead", "version": "1"},
        });
        lines.ask("initialize", hello)?;
        lines.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}))?;
        Ok(lines)
    }

    /// Calls one after the other; how long each took.
    pub(super) fn calls(&self, tool: &str, count: usize) -> anyhow::Result<Vec<Duration>> {
        let call = || self.ask("tools/call", json!({"name": tool, "arguments": {}}));
        timed(count, call)
    }

    fn ask(&self, method: &str, params: Value) -> anyhow::Result<Value> {
        let (id, answer) = self.expect();
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))?;
        answer.recv_timeout(PATIENCE).context("no answer")
    }

    fn expect(&self) -> (u64, Receiver<Value>) {
        let (sender, receiver) = channel();
        let mut waiting = locked(&self.waiting);
        waiting.last += 1;
        let id = waiting.last;
        waiting.by_id.insert(id, sender);
        (id, receiver)
    }

    fn send(&self, message: &Value) -> anyhow::Result<()> {
        let mut line = message.to_string();
        line.push('\n');
        locked(&self.stdin).write_all(line.as_bytes())?;
        Ok(())
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A gateway's `/mcp`, without a handshake.
#[derive(Clone)]
pub(super) struct Http {
    address: SocketAddr,
    token: String,
}

impl Http {
    pub(super) fn new(address: SocketAddr, token: String) -> Self {
        Self { address, token }
    }

    /// Calls one after the other on a connection of its own; how long each took.
    pub(super) fn calls(&self, tool: &str, count: usize) -> anyhow::Result<Vec<Duration>> {
        let stream = TcpStream::connect(self.address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let request = self.request(tool);
        let mut reader = BufReader::new(stream.try_clone()?);
        timed(count, || {
            (&stream).write_all(request.as_bytes())?;
            answer(&mut reader)
        })
    }

    fn request(&self, tool: &str) -> String {
        const VERSION: &str = "2026-07-28";
        let meta = json!({
            "io.modelcontextprotocol/protocolVersion": VERSION,
            "io.modelcontextprotocol/clientInfo": {"name": "overhead", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        let params = json!({"name": tool, "arguments": {}, "_meta": meta});
        let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
        let body = call.to_string();
        format!(
            "POST /mcp HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\n\
             content-type: application/json\r\naccept: application/json, text/event-stream\r\n\
             mcp-protocol-version: {VERSION}\r\nmcp-method: tools/call\r\nmcp-name: {tool}\r\n\
             content-length: {}\r\n\r\n{body}",
            self.address,
            self.token,
            body.len(),
        )
    }
}

/// Reads one answer of a connection that stays open.
fn answer(reader: &mut BufReader<TcpStream>) -> anyhow::Result<Value> {
    let mut length = None;
    let mut line = String::new();
    loop {
        line.clear();
        ensure!(reader.read_line(&mut line)? > 0, "the gateway left");
        let head = line.trim().to_ascii_lowercase();
        if head.is_empty() {
            break;
        }
        if let Some(value) = head.strip_prefix("content-length:") {
            length = Some(value.trim().parse::<usize>()?);
        }
    }
    let mut body = vec![0; length.context("an answer of unknown length")?];
    reader.read_exact(&mut body)?;
    Ok(serde_json::from_slice(&body)?)
}

/// Does it so often, and sees that every answer is a result.
fn timed(
    count: usize,
    mut call: impl FnMut() -> anyhow::Result<Value>,
) -> anyhow::Result<Vec<Duration>> {
    let mut times = Vec::with_capacity(count);
    for _ in 0..count {
        let begin = Instant::now();
        let answer = call()?;
        times.push(begin.elapsed());
        let is_result = answer.pointer("/result/structuredContent").is_some();
        let failed = answer.pointer("/result/isError") == Some(&Value::Bool(true));
        ensure!(is_result && !failed, "no result: {answer}");
    }
    Ok(times)
}
