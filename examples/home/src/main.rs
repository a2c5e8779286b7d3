//! Three tool servers to play with, in one program: a calendar that only looks, a loudspeaker that
//! changes the world, and a mailbox. The last two act once per idempotency key.
//!
//! `stepgate-example-home calendar`, `stepgate-example-home sonos STATE` or `stepgate-example-home mail STATE`,
//! where STATE is the file in which the server remembers what it did.
//!
//! MCP over standard input and output is one JSON object a line, so this speaks it by itself: with no more
//! than a JSON parser it is built in seconds.

mod calendar;
mod mail;
mod sonos;

use std::io::{self, BufRead, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use serde_json::{Map, Value, json};

/// Longest line that is read.
const LINE_BYTES_MAX: u64 = 1024 * 1024;

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    let role = args.next().and_then(|role| role.into_string().ok()).unwrap_or_default();
    let home = match (role.as_str(), args.next()) {
        ("calendar", None) => Home::Calendar,
        ("sonos", Some(state)) => Home::Sonos(sonos::Speaker::at(PathBuf::from(state))),
        ("mail", Some(state)) => Home::Mail(mail::Outbox::at(PathBuf::from(state))),
        (_, _) => {
            return fail(
                "call it as `calendar`, or as `sonos STATE` or `mail STATE` with a file to remember in",
            );
        }
    };
    match home.serve(&mut io::stdin().lock(), &mut io::stdout().lock()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error.to_string()),
    }
}

fn fail(why: &str) -> ExitCode {
    // Where even this cannot be written, the exit code is all that is left.
    let _ = writeln!(io::stderr(), "{why}");
    ExitCode::FAILURE
}

/// What the program is.
enum Home {
    Calendar,
    Sonos(sonos::Speaker),
    Mail(mail::Outbox),
}

/// What travels beside the arguments of a call.
const KEY: &str = "stepgate/idempotency-key";

impl Home {
    fn tools(&self) -> Value {
        match self {
            Self::Calendar => calendar::tools(),
            Self::Sonos(_) => sonos::tools(),
            Self::Mail(_) => mail::tools(),
        }
    }

    /// What a tool answers, or why it did not do what it was asked.
    fn answer(
        &self,
        tool: &str,
        args: &Map<String, Value>,
        key: Option<&str>,
    ) -> Result<Value, String> {
        match (self, tool) {
            (Self::Calendar, calendar::AGENDA) => Ok(calendar::agenda()),
            (Self::Sonos(speaker), sonos::SET_VOLUME) => speaker.set_volume(args, key),
            (Self::Sonos(speaker), sonos::VOLUME) => speaker.volume(args),
            (Self::Mail(_), mail::INBOX) => Ok(mail::inbox()),
            (Self::Mail(outbox), mail::SEND) => outbox.send(args, key),
            (Self::Calendar | Self::Sonos(_) | Self::Mail(_), _) => {
                Err(format!("there is no tool `{tool}`"))
            }
        }
    }
}

/// Codes of JSON-RPC.
const PARSE_ERROR: i32 = -32700;
const INVALID_REQUEST: i32 = -32600;
const METHOD_NOT_FOUND: i32 = -32601;

impl Home {
    /// Answers line by line, until there are no more.
    fn serve(&self, input: &mut dyn BufRead, output: &mut dyn Write) -> io::Result<()> {
        loop {
            let mut line = Vec::new();
            let length =
                io::Read::take(&mut *input, LINE_BYTES_MAX).read_until(b'\n', &mut line)?;
            match length {
                0 => return Ok(()),
                _ if !line.ends_with(b"\n") => return Err(io::Error::other("a line has no end")),
                _ => {}
            }
            if let Some(message) = self.message(&line) {
                writeln!(output, "{message}")?;
                output.flush()?;
            }
        }
    }

    /// The answer to a message; none to a notification, or to an answer.
    fn message(&self, line: &[u8]) -> Option<Value> {
        let Ok(message) = serde_json::from_slice::<Value>(line) else {
            return Some(failed(&Value::Null, PARSE_ERROR, "this is not JSON"));
        };
        let Some(message) = message.as_object() else {
            return Some(failed(&Value::Null, INVALID_REQUEST, "a message is an object"));
        };
        let (id, method) = (message.get("id")?, message.get("method")?.as_str()?);
        let nothing = Map::new();
        let params = message.get("params").and_then(Value::as_object).unwrap_or(&nothing);
        let result = match method {
            "initialize" => json!({
                "protocolVersion": params.get("protocolVersion"),
                "capabilities": { "tools": {} },
                "serverInfo": { "name": "stepgate-example-home", "version": env!("CARGO_PKG_VERSION") },
            }),
            "ping" => json!({}),
            "tools/list" => json!({ "tools": self.tools() }),
            "tools/call" => self.call(params),
            _ => return Some(failed(id, METHOD_NOT_FOUND, "there is no such method")),
        };
        Some(json!({ "jsonrpc": "2.0", "id": id, "result": result }))
    }

    fn call(&self, params: &Map<String, Value>) -> Value {
        let name = params.get("name").and_then(Value::as_str).unwrap_or_default();
        let nothing = Map::new();
        let args = params.get("arguments").and_then(Value::as_object).unwrap_or(&nothing);
        let key = params.get("_meta").and_then(|meta| meta.get(KEY)).and_then(Value::as_str);
        match self.answer(name, args, key) {
            Ok(said) => json!({
                "content": [{ "type": "text", "text": said.to_string() }],
                "structuredContent": said,
            }),
            Err(why) => json!({ "content": [{ "type": "text", "text": why }], "isError": true }),
        }
    }
}

fn failed(id: &Value, code: i32, message: &str) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code, "message": message } })
}
