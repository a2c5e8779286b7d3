//! Steps over MCP: `tools/call` at `/mcp`, by clients that shake hands first. Each client has a session of its own.

use anyhow::{Context, ensure};
use axum::http::{Method, StatusCode, header};
use indicatif::ProgressBar;
use serde_json::{Value, json};
use stepgate_core::action::Action;
use stepgate_core::sse::Parser;
use uuid::Uuid;

use super::Run;
use super::clients::{self, Client, REASONING, Real};
use super::served::Served;
use crate::client::{self, Reply};
use crate::data_dir::DataDir;

/// The newest version with a handshake.
const VERSION: &str = "2025-11-25";
const EVENT_BYTES_MAX: usize = 1024 * 1024;

pub(super) async fn steps(data: DataDir, run: Run, progress: &ProgressBar) -> anyhow::Result<Real> {
    let served = Served::open(&data).await?;
    let open = async |_| {
        let caller = Caller::shake_hands(served.client().await?).await;
        caller.context("the handshake over MCP failed")
    };
    let real = clients::measure(run, progress, open).await?;
    served.close().await?;
    Ok(real)
}

struct Caller {
    gateway: client::Client,
    headers: Vec<(&'static str, String)>,
}

impl Caller {
    async fn shake_hands(gateway: client::Client) -> anyhow::Result<Self> {
        let headers = vec![
            ("content-type", "application/json".to_owned()),
            ("accept", "application/json, text/event-stream".to_owned()),
            ("mcp-protocol-version", VERSION.to_owned()),
        ];
        let mut caller = Self { gateway, headers };
        let params = json!({
            "protocolVersion": VERSION,
            "capabilities": {},
            "clientInfo": { "name": "stepgate bench", "version": env!("CARGO_PKG_VERSION") },
        });
        let reply = caller.post(request("initialize", params)).await?;
        reply.succeeded()?;
        let session =
            reply.headers.get("mcp-session-id").context("the handshake has no session")?;
        caller.headers.push(("mcp-session-id", session.to_str()?.to_owned()));
        let initialized = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        let reply = caller.post(initialized.to_string().into_bytes()).await?;
        ensure!(reply.status == StatusCode::ACCEPTED, "{}", reply.refusal());
        Ok(caller)
    }

    async fn post(&mut self, message: Vec<u8>) -> anyhow::Result<Reply> {
        self.gateway.send(Method::POST, "/mcp", &self.headers, message).await
    }
}

impl Client for Caller {
    fn request(action: Action, args: Value) -> Vec<u8> {
        let meta = json!({
            "stepgate/idempotency-key": Uuid::new_v4(),
            "stepgate/reasoning": REASONING,
        });
        let params = json!({ "name": action.name(), "arguments": args, "_meta": meta });
        request("tools/call", params)
    }

    async fn send(&mut self, request: Vec<u8>) -> anyhow::Result<()> {
        let reply = self.post(request).await?;
        let answer = message(&reply)?;
        let verdict = answer.pointer("/result/_meta/stepgate~1verdict");
        ensure!(verdict.and_then(Value::as_str) == Some("SUCCESS"), "{answer}");
        Ok(())
    }
}

/// A JSON-RPC request. No id is used twice in a session.
fn request(method: &str, params: Value) -> Vec<u8> {
    let id = Uuid::new_v4();
    let request = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
    request.to_string().into_bytes()
}

/// The answer to a call: the body, or the last message of an event stream.
fn message(reply: &Reply) -> anyhow::Result<Value> {
    let kind = reply.headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    if !kind.is_some_and(|kind| kind.starts_with("text/event-stream")) {
        return reply.json();
    }
    let events = Parser::new(EVENT_BYTES_MAX).feed(&reply.body);
    let events = events.map_err(|why| anyhow::anyhow!("the stream cannot be read: {why:?}"))?;
    let data = events.into_iter().rev().filter_map(|event| event.data);
    let last = data.into_iter().find(|data| !data.is_empty());
    Ok(serde_json::from_str(&last.context("the stream ended without an answer")?)?)
}
