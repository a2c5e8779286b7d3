//! Many clients at once, for a number of steps or for a while.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use anyhow::anyhow;

use super::chance::Chance;
use super::client::{Client, Work};
use super::node::Node;

/// What a client needs beside its buffers.
const STACK_BYTES: usize = 128 * 1024;

/// Who shares a session, and with it the one order of its chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sessions {
    /// Nobody: each client has its own.
    OfClients,
    /// The clients of a node.
    OfNodes,
    /// All clients of all nodes.
    Shared,
    /// Whoever comes as the same principal: the client names none.
    Unnamed,
}

impl Sessions {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::OfClients => "one for each client",
            Self::OfNodes => "one for each node",
            Self::Shared => "one for all",
            Self::Unnamed => "not named",
        }
    }
}

/// Clients that are connected.
pub(super) struct Crowd {
    clients: Vec<Client>,
}

impl Crowd {
    /// So many clients at each node.
    pub(super) fn gather(
        nodes: &[Node],
        clients_per_node: usize,
        sessions: Sessions,
        work: Work,
    ) -> anyhow::Result<Self> {
        let mut ids = Chance::of_now();
        let of_all = ids.session_id();
        let mut clients = Vec::new();
        for node in nodes {
            let of_node = ids.session_id();
            for number in 0..clients_per_node {
                let session = match sessions {
                    Sessions::OfClients => Some(ids.session_id()),
                    Sessions::OfNodes => Some(of_node.clone()),
                    Sessions::Shared => Some(of_all.clone()),
                    Sessions::Unnamed => None,
                };
                clients.push(Client::connect(node, number, session.as_deref(), work)?);
            }
        }
        Ok(Self { clients })
    }

    /// Takes so many steps, all clients together, and answers how long it took.
    pub(super) fn take(&mut self, steps: usize) -> anyhow::Result<Duration> {
        let taken = AtomicUsize::new(0);
        let begin = Instant::now();
        thread::scope(|scope| {
            let go_on = || taken.fetch_add(1, Ordering::Relaxed) < steps;
            let work = |client| spawned(scope, move || all(client, go_on));
            let clients: Result<Vec<_>, _> = self.clients.iter_mut().map(work).collect();
            joined(clients?).map(drop)
        })?;
        Ok(begin.elapsed())
    }

    /// Works for a while, and lets somebody look on. Answers when each step began and ended.
    pub(super) fn work<T>(
        &mut self,
        look_on: impl FnOnce() -> anyhow::Result<T>,
    ) -> anyhow::Result<(Vec<Taken>, T)> {
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let go_on = || !is_over.load(Ordering::Relaxed);
            let work = |client| spawned(scope, move || all(client, go_on));
            let clients: Result<Vec<_>, _> = self.clients.iter_mut().map(work).collect();
            let seen = look_on();
            is_over.store(true, Ordering::Relaxed);
            let taken = joined(clients?)?;
            Ok((taken, seen?))
        })
    }
}

/// A step that was taken.
#[derive(Clone, Copy, Debug)]
pub(super) struct Taken {
    pub(super) begin: Instant,
    pub(super) end: Instant,
}

fn all(client: &mut Client, go_on: impl Fn() -> bool) -> anyhow::Result<Vec<Taken>> {
    let mut taken = Vec::new();
    while go_on() {
        let begin = Instant::now();
        client.step()?;
        taken.push(Taken { begin, end: Instant::now() });
    }
    Ok(taken)
}

fn spawned<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    work: impl FnOnce() -> T + Send + 'scope,
) -> std::io::Result<ScopedJoinHandle<'scope, T>> {
    thread::Builder::new().name("client".into()).stack_size(STACK_BYTES).spawn_scoped(scope, work)
}

type Working<'scope> = ScopedJoinHandle<'scope, anyhow::Result<Vec<Taken>>>;

fn joined(clients: Vec<Working<'_>>) -> anyhow::Result<Vec<Taken>> {
    let mut taken = Vec::new();
    for client in clients {
        taken.extend(client.join().map_err(|_| anyhow!("a client stopped"))??);
    }
    Ok(taken)
}
