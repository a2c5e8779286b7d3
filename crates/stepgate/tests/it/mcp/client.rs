//! The smallest MCP client: one request a connection, so that a test can also hang up.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Map, Value, json};

use crate::http_client::{Gateway, PATIENCE};

/// The newest version: no handshake, and every message says what its client can do.
pub(crate) const STATELESS: &str = "2026-07-28";
/// The last version with a handshake.
pub(crate) const SESSIONS: &str = "2025-11-25";

/// A client of one principal.
pub(crate) struct Client<'a> {
    pub(crate) gateway: &'a Gateway,
    pub(crate) token: String,
    pub(crate) capabilities: Value,
    /// What a handshake gave.
    pub(crate) session: Option<String>,
    pub(crate) version: &'static str,
}

/// An answer whose body is still to come.
pub(crate) struct Incoming {
    pub(crate) status: u16,
    pub(crate) headers: Map<String, Value>,
    reader: BufReader<TcpStream>,
}

impl<'a> Client<'a> {
    pub(crate) fn of(gateway: &'a Gateway) -> Self {
        Self::with(gateway, json!({}))
    }

    pub(crate) fn with(gateway: &'a Gateway, capabilities: Value) -> Self {
        let token = gateway.agent.clone();
        Self { gateway, token, capabilities, session: None, version: STATELESS }
    }

    /// A client that has shaken hands.
    pub(crate) fn shaken(gateway: &'a Gateway, capabilities: Value) -> Self {
        Self::with(gateway, capabilities).shake()
    }

    /// One of this token.
    pub(crate) fn shaken_as(gateway: &'a Gateway, token: &str) -> Self {
        Self { token: token.to_owned(), ..Self::of(gateway) }.shake()
    }

    /// Begins a session, whatever comes of it.
    pub(crate) fn handshake(&self, version: &str) -> Incoming {
        let params = json!({
            "protocolVersion": version,
            "capabilities": self.capabilities,
            "clientInfo": { "name": "test", "version": "1" },
        });
        let initialize =
            json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params });
        let fresh = Client { session: None, token: self.token.clone(), ..Self::of(self.gateway) };
        fresh.open("POST", &[("mcp-protocol-version", "")], &initialize.to_string())
    }

    fn shake(mut self) -> Self {
        let client = &mut self;
        client.version = SESSIONS;
        let incoming = client.handshake(SESSIONS);
        assert_eq!(incoming.status, 200);
        let session = incoming.headers["mcp-session-id"].as_str().unwrap().to_owned();
        let answer = incoming.messages().pop().unwrap();
        assert_eq!(answer["result"]["protocolVersion"], SESSIONS);
        client.session = Some(session);
        let initialized = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        assert_eq!(client.open("POST", &[], &initialized.to_string()).status, 202);
        self
    }

    /// A request, with everything that this client says in each.
    pub(crate) fn message(&self, method: &str, params: Value) -> Value {
        let mut params = params;
        if self.session.is_none() {
            let meta = &mut params["_meta"];
            meta["io.modelcontextprotocol/protocolVersion"] = json!(STATELESS);
            meta["io.modelcontextprotocol/clientInfo"] = json!({ "name": "test", "version": "1" });
            meta["io.modelcontextprotocol/clientCapabilities"] = self.capabilities.clone();
        }
        // As the protocol wants it: no id twice in a session.
        static NEXT_ID: AtomicU64 = AtomicU64::new(1);
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
    }

    /// Sends a request; its answer is still to come.
    pub(crate) fn begin(&self, method: &str, params: Value) -> Incoming {
        let message = self.message(method, params);
        let name = message.pointer("/params/name").or(message.pointer("/params/taskId"));
        let name = name.and_then(Value::as_str).unwrap_or_default().to_owned();
        let mut headers = vec![("mcp-method", method)];
        if !name.is_empty() {
            headers.push(("mcp-name", &name));
        }
        self.open("POST", &headers, &message.to_string())
    }

    /// Sends a request that hangs up before it is answered.
    pub(crate) fn hang_up(&self, method: &str, params: Value, when: impl FnOnce()) {
        let message = self.message(method, params);
        let name = message["params"]["name"].as_str().unwrap_or_default().to_owned();
        let headers = [("mcp-method", method), ("mcp-name", &name)];
        let stream = self.send("POST", &headers, &message.to_string());
        when();
        drop(stream);
    }

    /// Asks, and gives the answer itself: the last message.
    pub(crate) fn ask(&self, method: &str, params: Value) -> Value {
        self.begin(method, params).messages().pop().unwrap()
    }

    /// Calls a tool, and gives its result.
    pub(crate) fn call(&self, name: &str, args: Value) -> Value {
        self.call_with(name, args, json!({}))
    }

    /// Calls a tool with this beside its arguments.
    pub(crate) fn call_with(&self, name: &str, args: Value, meta: Value) -> Value {
        let params = json!({ "name": name, "arguments": args, "_meta": meta });
        let answer = self.ask("tools/call", params);
        assert!(answer["result"].is_object(), "{answer}");
        answer["result"].clone()
    }

    /// The names of the tools.
    pub(crate) fn tools(&self) -> Vec<String> {
        let answer = self.ask("tools/list", json!({}));
        let tools = answer["result"]["tools"].as_array().unwrap();
        tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
    }

    /// Sends bytes as a body, with the headers that every request has.
    pub(crate) fn open(&self, method: &str, headers: &[(&str, &str)], body: &str) -> Incoming {
        Incoming::read(self.send(method, headers, body))
    }

    fn send(&self, method: &str, headers: &[(&str, &str)], body: &str) -> TcpStream {
        let mut head = format!(
            "{method} /mcp HTTP/1.1\r\nconnection: close\r\ncontent-type: application/json\r\n\
             accept: application/json, text/event-stream\r\nauthorization: Bearer {}\r\n",
            self.token
        );
        let is_named = |name: &str| headers.iter().any(|(other, _)| *other == name);
        if !is_named("host") {
            head.push_str("host: localhost\r\n");
        }
        if !is_named("mcp-protocol-version") {
            head.push_str(&format!("mcp-protocol-version: {}\r\n", self.version));
        }
        if let Some(session) = &self.session {
            head.push_str(&format!("mcp-session-id: {session}\r\n"));
        }
        for (name, value) in headers.iter().filter(|(_, value)| !value.is_empty()) {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        let request = format!("{head}content-length: {}\r\n\r\n{body}", body.len());
        let mut stream = TcpStream::connect(self.gateway.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let _ = stream.write_all(request.as_bytes());
        stream
    }
}

impl Incoming {
    fn read(stream: TcpStream) -> Self {
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        let status = line.split(' ').nth(1).unwrap().parse().unwrap();
        let mut headers = Map::new();
        loop {
            line.clear();
            reader.read_line(&mut line).unwrap();
            let Some((name, value)) = line.trim_end().split_once(": ") else { break };
            headers.insert(name.to_lowercase(), json!(value));
        }
        Self { status, headers, reader }
    }

    fn is(&self, name: &str, value: &str) -> bool {
        self.headers.get(name).and_then(Value::as_str).is_some_and(|it| it.contains(value))
    }

    /// The next piece of the body; none at its end.
    fn piece(&mut self) -> Option<Vec<u8>> {
        if !self.is("transfer-encoding", "chunked") {
            let mut body = Vec::new();
            self.reader.read_to_end(&mut body).unwrap();
            return (!body.is_empty()).then_some(body);
        }
        let mut size = String::new();
        self.reader.read_line(&mut size).unwrap();
        let size = usize::from_str_radix(size.trim(), 16).ok().filter(|size| *size > 0)?;
        let mut piece = vec![0; size + 2];
        self.reader.read_exact(&mut piece).unwrap();
        piece.truncate(size);
        Some(piece)
    }

    /// How far the stream has come, as its first event says.
    pub(crate) fn place(&mut self) -> String {
        let piece = String::from_utf8(self.piece().unwrap()).unwrap();
        let place = piece.lines().find_map(|line| line.strip_prefix("id:"));
        place.unwrap_or_else(|| panic!("no id in {piece:?}")).trim().to_owned()
    }

    /// The next message of a stream; none where it ended.
    pub(crate) fn next(&mut self) -> Option<Value> {
        loop {
            // Every event is written at once, so a piece is an event.
            let piece = String::from_utf8(self.piece()?).unwrap();
            let data: String =
                piece.lines().filter_map(|line| line.strip_prefix("data: ")).collect();
            if !data.trim().is_empty() {
                return Some(serde_json::from_str(&data).unwrap());
            }
        }
    }

    pub(crate) fn text(mut self) -> String {
        let mut text = Vec::new();
        while let Some(piece) = self.piece() {
            text.extend(piece);
        }
        String::from_utf8(text).unwrap()
    }

    /// Every message, to the end.
    pub(crate) fn messages(mut self) -> Vec<Value> {
        if !self.is("content-type", "event-stream") {
            let text = self.text();
            return vec![
                serde_json::from_str(&text).unwrap_or_else(|_| panic!("not JSON: {text}")),
            ];
        }
        let mut messages = Vec::new();
        while let Some(message) = self.next() {
            messages.push(message);
        }
        messages
    }
}
