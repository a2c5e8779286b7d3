//! A balancer as one finds them: it looks at `/readyz`, keeps connections, and goes to the next node where a
//! connection is refused. What a node has accepted that node must answer: nothing is sent twice.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::load::{HANGS, Way};
use super::stage::Front;
use crate::http_client::{Reply, exchange_within, request};

/// How often it looks at each node. A node takes requests for longer after it has said that it stops.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Which nodes want requests.
pub(super) struct Balancer {
    addresses: Vec<SocketAddr>,
    ready: Vec<AtomicBool>,
}

impl Balancer {
    /// Looks at the nodes for as long as anybody balances.
    pub(super) fn before(front: &Front) -> Arc<Self> {
        let ready = front.addresses.iter().map(|_| AtomicBool::new(true)).collect();
        let balancer = Arc::new(Self { addresses: front.addresses.clone(), ready });
        for (node, &address) in balancer.addresses.iter().enumerate() {
            let watched = Arc::downgrade(&balancer);
            thread::spawn(move || {
                let question = request("GET", "/readyz", "", &[], "");
                while let Some(balancer) = watched.upgrade() {
                    let answer = exchange_within(address, question.as_bytes(), HANGS);
                    let is_ready = answer.is_some_and(|reply| reply.status == 200);
                    balancer.ready[node].store(is_ready, Ordering::SeqCst);
                    drop(balancer);
                    thread::sleep(LOOK_EVERY);
                }
            });
        }
        balancer
    }

    pub(super) fn is_ready(&self, node: usize) -> bool {
        self.ready[node].load(Ordering::SeqCst)
    }
}

/// One who sends everything through the balancer.
pub(super) struct Balanced {
    balancer: Arc<Balancer>,
    /// The node of the next request.
    node: usize,
    /// A connection that is kept, and to which node.
    kept: Option<(usize, Line)>,
}

impl Balanced {
    pub(super) fn new(balancer: &Arc<Balancer>, first: usize) -> Self {
        Self { balancer: Arc::clone(balancer), node: first, kept: None }
    }

    /// A connection to a node that wants requests.
    fn line(&mut self) -> (usize, Line) {
        if let Some((node, line)) = self.kept.take()
            && self.balancer.is_ready(node)
        {
            return (node, line);
        }
        let deadline = Instant::now() + HANGS;
        loop {
            assert!(Instant::now() < deadline, "no node wants requests");
            self.node = (self.node + 1) % self.balancer.addresses.len();
            if self.balancer.is_ready(self.node)
                && let Ok(line) = Line::to(self.balancer.addresses[self.node])
            {
                return (self.node, line);
            }
        }
    }
}

impl Way for Balanced {
    fn outcome(&mut self, request: &str) -> Reply {
        let (node, mut line) = self.line();
        let answer = line.send(&request.replace("connection: close\r\n", ""));
        let reply =
            answer.unwrap_or_else(|error| panic!("node {node} left without an answer: {error}"));
        assert_eq!(reply.status, 200, "a request has failed: {reply:?}");
        if reply.headers.get("connection").is_none_or(|word| word != "close") {
            self.kept = Some((node, line));
        }
        reply
    }
}

/// A connection for one request after the other.
struct Line {
    stream: BufReader<TcpStream>,
}

impl Line {
    fn to(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(HANGS))?;
        Ok(Self { stream: BufReader::new(stream) })
    }

    fn send(&mut self, request: &str) -> io::Result<Reply> {
        self.stream.get_mut().write_all(request.as_bytes())?;
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if self.stream.read_line(&mut head)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        let mut lines = head.trim_end().lines();
        let status = lines.next().and_then(|line| line.split(' ').nth(1)).unwrap().parse().unwrap();
        let headers: std::collections::HashMap<_, _> = lines
            .map(|line| line.split_once(": ").unwrap())
            .map(|(name, value)| (name.to_lowercase(), value.to_owned()))
            .collect();
        let mut body = vec![0; headers["content-length"].parse().unwrap()];
        self.stream.read_exact(&mut body)?;
        Ok(Reply { status, headers, body: String::from_utf8(body).unwrap() })
    }
}
