//! A proxy before PostgreSQL: it counts round trips, and can make the way longer.
//!
//! A round trip begins with a request while no other of its connection is waiting for an answer. Both
//! sides of PostgreSQL's protocol say where they end: a request with Sync or Query, and an answer with
//! ReadyForQuery. Statements that are sent together are one trip, however many they are.

#[cfg(test)]
mod tests;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

/// Names the threads, so that what they cost can be told from what clients cost.
pub(super) const THREAD_NAME: &str = "proxy";
const BUFFER_BYTES: usize = 64 * 1024;
const STACK_BYTES: usize = 128 * 1024;

/// A proxy that goes on until this program ends.
pub(super) struct Proxy {
    pub(super) port: u16,
    counts: Arc<Counts>,
}

#[derive(Default)]
struct Counts {
    trips: AtomicU64,
    bytes: AtomicU64,
}

/// What has passed so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Passed {
    pub(super) trips: u64,
    /// In both directions.
    pub(super) bytes: u64,
}

impl Proxy {
    /// Leads to this port of this machine, with so much time on the way in each direction.
    pub(super) fn start(port: u16, one_way: Duration) -> anyhow::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let target = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let counts = Arc::new(Counts::default());
        let shared = Arc::clone(&counts);
        let proxy = Self { port: listener.local_addr()?.port(), counts };
        spawned(move || {
            for near in listener.incoming().map_while(Result::ok) {
                // A server that is away is seen as a connection that ends at once.
                let Ok(far) = TcpStream::connect(target) else { continue };
                let _ended = carry(near, far, one_way, &shared);
            }
        })?;
        Ok(proxy)
    }

    pub(super) fn passed(&self) -> Passed {
        let Counts { trips, bytes } = &*self.counts;
        Passed { trips: trips.load(Ordering::Relaxed), bytes: bytes.load(Ordering::Relaxed) }
    }
}

fn spawned(work: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    let builder = thread::Builder::new().name(THREAD_NAME.into()).stack_size(STACK_BYTES);
    builder.spawn(work).map(drop)
}

fn carry(
    near: TcpStream,
    far: TcpStream,
    one_way: Duration,
    counts: &Arc<Counts>,
) -> std::io::Result<()> {
    near.set_nodelay(true)?;
    far.set_nodelay(true)?;
    // The start of a connection is a question too: it has no type, and is answered like the others.
    let waiting = Arc::new(AtomicI64::new(1));
    let (asking, answering) = (Arc::clone(counts), Arc::clone(counts));
    let (asked, answered) = (Arc::clone(&waiting), waiting);
    let mut requests = Messages::of_client();
    let count_requests = move |bytes: &[u8]| {
        asking.bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        requests.pass(bytes, |kind| {
            if matches!(kind, b'S' | b'Q') && asked.fetch_add(1, Ordering::SeqCst) == 0 {
                asking.trips.fetch_add(1, Ordering::Relaxed);
            }
        });
    };
    let mut answers = Messages::of_server();
    let count_answers = move |bytes: &[u8]| {
        answering.bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        answers.pass(bytes, |kind| {
            if kind == b'Z' {
                answered.fetch_sub(1, Ordering::SeqCst);
            }
        });
    };
    match one_way {
        Duration::ZERO => {
            at_once(near.try_clone()?, far.try_clone()?, count_requests)?;
            at_once(far, near, count_answers)
        }
        _ => {
            later(near.try_clone()?, far.try_clone()?, one_way, count_requests)?;
            later(far, near, one_way, count_answers)
        }
    }
}

/// Passes on what comes, as it comes.
fn at_once(
    mut from: TcpStream,
    mut to: TcpStream,
    mut count: impl FnMut(&[u8]) + Send + 'static,
) -> std::io::Result<()> {
    spawned(move || {
        let mut buffer = vec![0; BUFFER_BYTES];
        while let Some(bytes) = read(&mut from, &mut buffer) {
            count(bytes);
            if to.write_all(bytes).is_err() {
                break;
            }
        }
        end(&from, &to);
    })
}

/// Passes on what comes when its time has come. Reading goes on meanwhile: a long way is not a narrow one.
fn later(
    mut from: TcpStream,
    mut to: TcpStream,
    one_way: Duration,
    mut count: impl FnMut(&[u8]) + Send + 'static,
) -> std::io::Result<()> {
    let (sender, receiver): (Sender<(Instant, Vec<u8>)>, Receiver<_>) = channel();
    let (source, target) = (from.try_clone()?, to.try_clone()?);
    spawned(move || {
        let mut buffer = vec![0; BUFFER_BYTES];
        while let Some(bytes) = read(&mut from, &mut buffer) {
            if sender.send((Instant::now() + one_way, bytes.to_vec())).is_err() {
                break;
            }
        }
    })?;
    spawned(move || {
        for (due, bytes) in receiver {
            thread::sleep(due.saturating_duration_since(Instant::now()));
            count(&bytes);
            if to.write_all(&bytes).is_err() {
                break;
            }
        }
        end(&source, &target);
    })
}

fn read<'a>(from: &mut TcpStream, buffer: &'a mut [u8]) -> Option<&'a [u8]> {
    let count = from.read(buffer).ok().filter(|count| *count > 0)?;
    buffer.get(..count)
}

fn end(from: &TcpStream, to: &TcpStream) {
    // Where the other side has gone already, there is nothing to end.
    let _ended = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}

/// Where messages begin in a stream of bytes.
struct Messages {
    /// Whether the next message has no type: a client's first.
    is_bare: bool,
    /// The head of a message as far as it has come: its type, and its length in four bytes.
    head: Vec<u8>,
    /// How much of the message's body is still to come.
    left: usize,
}

impl Messages {
    fn of_client() -> Self {
        Self { is_bare: true, head: Vec::new(), left: 0 }
    }

    fn of_server() -> Self {
        Self { is_bare: false, head: Vec::new(), left: 0 }
    }

    /// Takes bytes, and says the type of each message that begins.
    fn pass(&mut self, mut bytes: &[u8], mut begins: impl FnMut(u8)) {
        while !bytes.is_empty() {
            let skipped = self.left.min(bytes.len());
            self.left -= skipped;
            let Some((first, rest)) = bytes.get(skipped..).and_then(<[u8]>::split_first) else {
                return;
            };
            bytes = rest;
            self.head.push(*first);
            let (kind, length) = match (self.is_bare, self.head.as_slice()) {
                (true, [a, b, c, d]) => (None, [*a, *b, *c, *d]),
                (false, [kind, a, b, c, d]) => (Some(*kind), [*a, *b, *c, *d]),
                (true | false, _) => continue,
            };
            // The length counts itself.
            let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or_default();
            self.left = length.saturating_sub(4);
            self.is_bare = false;
            self.head.clear();
            if let Some(kind) = kind {
                begins(kind);
            }
        }
    }
}
