//! A client that keeps its connection from one request to the next.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};

use serde_json::Value;

use crate::http_client::{PATIENCE, request};

/// One connection, for as long as it is good.
pub(super) struct Client {
    stream: BufReader<TcpStream>,
    token: String,
}

/// What came.
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) is_replay: bool,
    pub(super) body: String,
}

impl Answer {
    pub(super) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("not JSON: {:?}", self.body))
    }
}

impl Client {
    pub(super) fn new(address: SocketAddr, token: &str) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self { stream: BufReader::new(stream), token: token.to_owned() }
    }

    /// One request and its answer. A connection that breaks stops the test.
    pub(super) fn send(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Answer {
        let request = request(method, path, &self.token, headers, body);
        let request = request.replace("connection: close\r\n", "");
        self.stream.get_mut().write_all(request.as_bytes()).unwrap();
        let status = self.line().split(' ').nth(1).unwrap().parse().unwrap();
        let (mut length, mut is_replay) = (0, false);
        loop {
            let line = self.line().to_ascii_lowercase();
            match line.split_once(": ") {
                None => break,
                Some(("content-length", value)) => length = value.parse().unwrap(),
                Some(("idempotent-replayed", value)) => is_replay = value == "true",
                Some(_) => {}
            }
        }
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body).unwrap();
        Answer { status, is_replay, body: String::from_utf8(body).unwrap() }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        let count = self.stream.read_line(&mut line).unwrap();
        assert_ne!(count, 0, "the connection broke off");
        line.trim_end().to_owned()
    }
}
