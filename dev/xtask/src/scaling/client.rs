//! The cheapest client that can take a step over HTTP: it shares the cores with what it measures.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, ensure};
use serde_json::{Value, json};

use super::chance::Chance;
use super::node::{CONTENT, Node};

const PATIENCE: Duration = Duration::from_secs(60);
const ANSWER_BYTES_MAX: usize = 64 * 1024;
/// Ends the first line of a request whose client waits for the outcome.
const PATIENT: &str = "\r\nprefer: wait=30\r\n";
/// Stands where the id of each step goes.
const ID: &str = "00000000-0000-4000-8000-000000000000";

/// What a client does over and over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    Read,
    Write,
    /// A read that a person is asked about and grants at once, and whose outcome is then fetched.
    GrantedRead,
}

impl Work {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Read => "READ_FILE",
            Self::Write => "WRITE_FILE",
            Self::GrantedRead => "READ_FILE, granted by a person",
        }
    }

    /// The body of a request, which has the same length whatever the id is.
    fn proposal(self, client: usize) -> String {
        let (action, args) = match self {
            Self::Read | Self::GrantedRead => ("READ_FILE", json!({ "path": "/sandbox/read.txt" })),
            Self::Write => {
                let path = format!("/sandbox/{client}.txt");
                ("WRITE_FILE", json!({ "path": path, "content": CONTENT }))
            }
        };
        json!({
            "schema_version": "1.0.0",
            "id": ID,
            "reasoning": "a measurement",
            "action": action,
            "args": args,
        })
        .to_string()
    }
}

/// A client with a connection that it keeps.
pub(super) struct Client {
    stream: TcpStream,
    work: Work,
    /// The whole request; only the id changes.
    request: Vec<u8>,
    id_at: usize,
    ids: Chance,
    operator: String,
    buffer: Vec<u8>,
}

impl Client {
    pub(super) fn connect(
        node: &Node,
        number: usize,
        session: Option<&str>,
        work: Work,
    ) -> anyhow::Result<Self> {
        let stream = connected(node.address)?;
        let body = work.proposal(number);
        let session = session.map(|id| format!("stepgate-session: {id}\r\n")).unwrap_or_default();
        let head = head("/v1/steps", &node.agent, &session);
        let request = format!("{head}content-length: {}\r\n\r\n{body}", body.len());
        let id_at = request.find(ID).context("no place for an id")?;
        let mut ids = Chance::of_now();
        // Clients that start in the same instant must not use the same ids.
        let ids = Chance::new(ids.number() ^ super::chance::mixed(number as u64 + 1));
        Ok(Self {
            stream,
            work,
            request: request.into_bytes(),
            id_at,
            ids,
            operator: node.operator.clone(),
            buffer: vec![0; ANSWER_BYTES_MAX],
        })
    }

    /// Takes one step to its end.
    pub(super) fn step(&mut self) -> anyhow::Result<()> {
        let id = self.ids.step_id();
        let place = self.request.get_mut(self.id_at..self.id_at + ID.len());
        place.context("no place for an id")?.copy_from_slice(id.as_bytes());
        self.stream.write_all(&self.request)?;
        match self.work {
            Work::Read | Work::Write => {
                let answer = self.answer()?;
                ensure!(has(answer, b"\"SUCCESS\""), "no success: {}", shown(answer));
                Ok(())
            }
            Work::GrantedRead => self.grant(),
        }
    }

    fn grant(&mut self) -> anyhow::Result<()> {
        let notice: Value = serde_json::from_slice(self.answer()?)?;
        let approval = notice.pointer("/result/approval_id").and_then(Value::as_str);
        let approval = approval.with_context(|| format!("nobody was asked: {notice}"))?;
        let head = head(&format!("/v1/approvals/{approval}/approve"), &self.operator, "");
        self.stream.write_all(format!("{head}content-length: 0\r\n\r\n").as_bytes())?;
        let granted: Value = serde_json::from_slice(self.answer()?)?;
        let status = granted.get("status").and_then(Value::as_str);
        ensure!(status == Some("approved"), "not granted: {granted}");
        // The same proposal again is answered with the outcome, as soon as there is one. The first time
        // it must not wait: nobody would know what to grant.
        let again = String::from_utf8_lossy(&self.request).replacen("\r\n", PATIENT, 1);
        self.stream.write_all(again.as_bytes())?;
        let answer = self.answer()?;
        ensure!(has(answer, b"\"SUCCESS\""), "no success: {}", shown(answer));
        Ok(())
    }

    /// Reads one answer, and gives back its body.
    fn answer(&mut self) -> anyhow::Result<&[u8]> {
        let mut filled = 0;
        let mut whole = None;
        while whole.is_none_or(|(_, end)| filled < end) {
            let room = self.buffer.get_mut(filled..).context("an answer without end")?;
            let count = self.stream.read(room)?;
            ensure!(count > 0, "the gateway left, or the answer is too long");
            filled += count;
            if whole.is_none() {
                whole = extent(self.buffer.get(..filled).unwrap_or_default())?;
            }
        }
        let (body, end) = whole.context("no answer")?;
        self.buffer.get(body..end).context("an answer that ends before it begins")
    }
}

fn connected(address: SocketAddr) -> anyhow::Result<TcpStream> {
    let stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(stream)
}

fn head(path: &str, token: &str, more: &str) -> String {
    format!("POST {path} HTTP/1.1\r\nhost: gate\r\nauthorization: Bearer {token}\r\n{more}")
}

/// Where the body begins and ends, once the head is there.
fn extent(bytes: &[u8]) -> anyhow::Result<Option<(usize, usize)>> {
    let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else {
        return Ok(None);
    };
    let head = String::from_utf8_lossy(bytes.get(..end).unwrap_or_default()).to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
    let length: usize = length.context("an answer of unknown length")?.trim().parse()?;
    Ok(Some((end + 4, end + 4 + length)))
}

fn has(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

fn shown(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).chars().take(300).collect()
}
