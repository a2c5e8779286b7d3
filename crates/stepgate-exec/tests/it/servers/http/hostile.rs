//! A server by hand, that answers each tool in its own wrong way.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde_json::{Value, json};

#[derive(Clone, Default)]
pub(super) struct Hostile {
    session: Arc<AtomicU32>,
    redirects: Arc<AtomicU32>,
    giant: Arc<AtomicUsize>,
    token: Arc<Mutex<Option<String>>>,
}

const TOOLS: [&str; 11] = [
    "slow",
    "slow_event",
    "echo",
    "duplicate",
    "duplicate_event",
    "giant",
    "giant_event",
    "cut",
    "broken",
    "moved",
    "error",
];

impl Hostile {
    pub(super) fn router(&self) -> Router {
        let (answering, followed) = (self.clone(), self.clone());
        let answer = post(move |headers: HeaderMap, body: Bytes| async move {
            if body.windows(5).any(|piece| piece == b"\"slow") {
                tokio::time::sleep(Duration::from_millis(400)).await;
            }
            answering.answer(&headers, &body)
        });
        let elsewhere = post(move || async move {
            followed.redirects.fetch_add(1, Ordering::SeqCst);
        });
        let refuse = get(|| async { StatusCode::METHOD_NOT_ALLOWED });
        Router::new().route("/mcp", answer.merge(refuse)).route("/elsewhere", elsewhere)
    }

    pub(super) fn forget_sessions(&self) {
        self.session.fetch_add(1, Ordering::SeqCst);
    }

    /// How long the text of the giant is.
    pub(super) fn set_giant(&self, bytes: usize) {
        self.giant.store(bytes, Ordering::SeqCst);
    }

    /// From now on only who shows this token is answered.
    pub(super) fn set_token(&self, token: &str) {
        *self.token.lock().unwrap() = Some(token.to_owned());
    }

    pub(super) fn redirects_followed(&self) -> u32 {
        self.redirects.load(Ordering::SeqCst)
    }

    fn answer(&self, headers: &HeaderMap, body: &[u8]) -> Response {
        let shown = headers.get("authorization").map(|shown| shown.to_str().unwrap());
        if let Some(token) = &*self.token.lock().unwrap()
            && shown != Some(token)
        {
            return StatusCode::UNAUTHORIZED.into_response();
        }
        let session = self.session.load(Ordering::SeqCst).to_string();
        let message: Value = serde_json::from_slice(body).unwrap();
        let (id, params) = (&message["id"], &message["params"]);
        let named = headers.get("mcp-session-id").map(|named| named.to_str().unwrap());
        match message["method"].as_str().unwrap() {
            "initialize" => {
                let result = json!({
                    "protocolVersion": params["protocolVersion"],
                    "capabilities": { "tools": {} },
                    "serverInfo": { "name": "hostile", "version": "1" },
                });
                ([("mcp-session-id", session)], reply(id, &result)).into_response()
            }
            _ if named != Some(&session) => StatusCode::NOT_FOUND.into_response(),
            "tools/list" => {
                let tool =
                    |name: &&str| json!({ "name": name, "inputSchema": { "type": "object" } });
                reply(id, &json!({ "tools": TOOLS.iter().map(tool).collect::<Vec<_>>() }))
            }
            "tools/call" => {
                let giant = self.giant.load(Ordering::SeqCst);
                call(id, params["name"].as_str().unwrap(), giant)
            }
            _ => StatusCode::ACCEPTED.into_response(),
        }
    }
}

fn call(id: &Value, tool: &str, giant: usize) -> Response {
    let duplicate =
        || format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":[],"content":[]}}}}"#);
    let giant = || {
        let content = json!([{ "type": "text", "text": "x".repeat(giant) }]);
        json!({ "jsonrpc": "2.0", "id": id, "result": { "content": content } }).to_string()
    };
    match tool {
        "duplicate" => json_body(duplicate()),
        "duplicate_event" => events(format!("data: {}\n\n", duplicate())),
        "giant" => json_body(giant()),
        "giant_event" => events(format!("data: {}\n\n", giant())),
        "slow_event" => {
            let result = json!({ "content": [] });
            events(format!("data: {}\n\n", json!({ "jsonrpc": "2.0", "id": id, "result": result })))
        }
        "cut" => events(": nothing more comes\n\n".to_owned()),
        "broken" => (StatusCode::INTERNAL_SERVER_ERROR, "oh no").into_response(),
        "moved" => (StatusCode::TEMPORARY_REDIRECT, [("location", "/elsewhere")]).into_response(),
        "error" => {
            let error = json!({ "code": -32000, "message": "the house is on fire" });
            json_body(json!({ "jsonrpc": "2.0", "id": id, "error": error }).to_string())
        }
        _ => reply(id, &json!({ "content": [{ "type": "text", "text": "hello" }] })),
    }
}

fn reply(id: &Value, result: &Value) -> Response {
    json_body(json!({ "jsonrpc": "2.0", "id": id, "result": result }).to_string())
}

fn json_body(text: String) -> Response {
    ([("content-type", "application/json")], text).into_response()
}

fn events(text: String) -> Response {
    ([("content-type", "text/event-stream")], text).into_response()
}
