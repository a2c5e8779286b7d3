//! Clients that never give up: each sends one proposal after the other, and asks again with the same id, at
//! another node, until it has an outcome.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::stage::Front;
use crate::http_client::{Reply, exchange_within, request};

const CLIENTS: usize = 6;
/// How long a client waits for an answer before it asks elsewhere.
const ANSWER: Duration = Duration::from_secs(3);
/// How long it waits before it asks again.
const ASK_AGAIN: Duration = Duration::from_millis(50);
/// How long it waits before its next proposal: agents think, and two cores are not many.
const THINKING: Duration = Duration::from_millis(10);
/// How long anything may take before it hangs.
pub(super) const HANGS: Duration = Duration::from_secs(90);

/// What is proposed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Write,
    /// By a tool that honours the key.
    Once,
    /// Done twice, it fails.
    Rename,
    /// By a tool whose calls in doubt are sent again.
    Again,
    Read,
    /// By a tool that is asked about calls in doubt.
    Asked,
}

impl Kind {
    const ALL: [Self; 6] =
        [Self::Write, Self::Once, Self::Rename, Self::Again, Self::Read, Self::Asked];

    /// Action and arguments, about a file of this name.
    fn call(self, name: &str) -> (&'static str, Value) {
        let (before, after) = (format!("/sandbox/{name}.txt"), format!("/sandbox/{name}.md"));
        match self {
            Self::Write => ("WRITE_FILE", json!({ "path": before, "content": name })),
            Self::Rename => ("RENAME_FILE", json!({ "source": before, "destination": after })),
            Self::Read => ("READ_FILE", json!({ "path": after })),
            Self::Once => ("once.act", json!({ "value": 1 })),
            Self::Again => ("again.act", json!({ "value": 2 })),
            Self::Asked => ("asked.act", json!({ "value": 3 })),
        }
    }

    /// Whether it is about the file.
    fn is_core(self) -> bool {
        match self {
            Self::Write | Self::Rename | Self::Read => true,
            Self::Once | Self::Again | Self::Asked => false,
        }
    }
}

/// A proposal and the outcome that a client was told.
#[derive(Clone, Debug)]
pub(super) struct Told {
    pub(super) kind: Kind,
    pub(super) id: String,
    /// The name of the file, and its content.
    pub(super) name: String,
    pub(super) body: String,
    pub(super) reply: Reply,
    /// Whether it was done, or the disk was full.
    pub(super) is_done: bool,
}

/// What the clients brought home.
#[derive(Default)]
pub(super) struct Harvest {
    pub(super) told: Vec<Told>,
    /// The longest time that a client had to wait for an outcome.
    pub(super) longest_pause: Duration,
}

impl Harvest {
    pub(super) fn add(&mut self, other: Self) {
        self.told.extend(other.told);
        self.longest_pause = self.longest_pause.max(other.longest_pause);
    }
}

/// How a client comes to an outcome.
pub(super) trait Way: Send {
    /// The answer to this request, which has an outcome.
    fn outcome(&mut self, request: &str) -> Reply;
}

/// Asks again, at the next node, whenever it has no outcome.
struct Stubborn {
    addresses: Vec<SocketAddr>,
    first: usize,
}

impl Way for Stubborn {
    fn outcome(&mut self, request: &str) -> Reply {
        let deadline = Instant::now() + HANGS;
        for &address in self.addresses.iter().cycle().skip(self.first) {
            let answer = exchange_within(address, request.as_bytes(), ANSWER);
            match answer {
                Some(reply) if reply.status == 200 => return reply,
                None | Some(Reply { status: 409 | 500.., .. }) => thread::sleep(ASK_AGAIN),
                Some(reply) => panic!("{request}\n{reply:?}"),
            }
            assert!(Instant::now() < deadline, "there is no outcome of {request}");
        }
        unreachable!("there are nodes");
    }
}

/// Clients at work.
pub(super) struct Load {
    is_over: Arc<AtomicBool>,
    outcomes: Arc<[AtomicUsize; CLIENTS]>,
    clients: Vec<JoinHandle<Harvest>>,
}

impl Load {
    /// Files have names that begin like this.
    pub(super) fn begin(front: &Front, prefix: &str) -> Self {
        let way = |first| Box::new(Stubborn { addresses: front.addresses.clone(), first }) as _;
        Self::with(front, prefix, way)
    }

    /// With clients that go this way.
    pub(super) fn with(front: &Front, prefix: &str, way: impl Fn(usize) -> Box<dyn Way>) -> Self {
        let (is_over, outcomes) = (Arc::default(), Arc::<[AtomicUsize; CLIENTS]>::default());
        let clients = (0..CLIENTS)
            .map(|number| {
                let client = Client {
                    number,
                    way: way(number),
                    front: front.clone(),
                    prefix: prefix.to_owned(),
                    is_over: Arc::clone(&is_over),
                    outcomes: Arc::clone(&outcomes),
                };
                thread::spawn(move || client.work())
            })
            .collect();
        Self { is_over, outcomes, clients }
    }

    /// Until every client has had so many more outcomes.
    pub(super) fn until_each_had(&self, more: usize) {
        let now = || self.outcomes.each_ref().map(|count| count.load(Ordering::Relaxed));
        let (before, deadline) = (now(), Instant::now() + HANGS);
        while now().iter().zip(before).any(|(now, before)| *now < before + more) {
            assert!(Instant::now() < deadline, "clients wait for nothing: {before:?}, {:?}", now());
            assert!(!self.clients.iter().any(JoinHandle::is_finished), "a client gave up");
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Lets every client have its last outcome.
    pub(super) fn end(self) -> Harvest {
        self.is_over.store(true, Ordering::Relaxed);
        let mut harvest = Harvest::default();
        for client in self.clients {
            harvest.add(client.join().unwrap());
        }
        harvest
    }
}

struct Client {
    number: usize,
    way: Box<dyn Way>,
    front: Front,
    prefix: String,
    is_over: Arc<AtomicBool>,
    outcomes: Arc<[AtomicUsize; CLIENTS]>,
}

impl Client {
    fn work(mut self) -> Harvest {
        let mut harvest = Harvest::default();
        for group in 0.. {
            let name = format!("{}-{}-{group}", self.prefix, self.number);
            let mut has_file = true;
            for kind in Kind::ALL {
                if self.is_over.load(Ordering::Relaxed) {
                    return harvest;
                }
                if kind.is_core() && !has_file {
                    continue;
                }
                let begin = Instant::now();
                let told = self.ask(kind, &name);
                harvest.longest_pause = harvest.longest_pause.max(begin.elapsed());
                has_file &= told.is_done;
                harvest.told.push(told);
                self.outcomes[self.number].fetch_add(1, Ordering::Relaxed);
                thread::sleep(THINKING);
            }
        }
        harvest
    }

    fn ask(&mut self, kind: Kind, name: &str) -> Told {
        let id = uuid::Uuid::new_v4().to_string();
        let (action, args) = kind.call(name);
        let body = json!({
            "schema_version": "1.0.0", "id": id, "reasoning": "a fault", "action": action, "args": args,
        });
        let body = body.to_string();
        let sent = request("POST", "/v1/steps", &self.front.agent, &[], &body);
        let reply = self.way.outcome(&sent);
        let is_done = self.is_done(kind, name, &reply);
        Told { kind, id, name: name.to_owned(), body, reply, is_done }
    }

    /// Whether the answer says that it was done, as it must unless the disk may be full, or a run that could not be recorded
    /// kept the lock of its path for 30 s: one lock is for many paths (docs/nodes.md).
    fn is_done(&self, kind: Kind, name: &str, reply: &Reply) -> bool {
        let response = reply.json();
        if kind.is_core() && waited_in_vain(&response) {
            eprintln!("{kind:?} {name} waited for its path in vain: {reply:?}");
            return false;
        }
        if self.front.may_be_full && response["error"]["message"] == "Storage is full" {
            assert!(kind.is_core(), "{reply:?}");
            return false;
        }
        assert_eq!(response["outcome"], "SUCCESS", "{kind:?} {name}: {reply:?}");
        if kind == Kind::Read {
            assert_eq!(response["result"]["content"], name, "{reply:?}");
        }
        true
    }
}

/// Whether an action was refused because another run kept the lock of its path.
pub(super) fn waited_in_vain(response: &Value) -> bool {
    response["error"]["message"] == "Tool is unavailable"
}
