//! The open connections of one listener. At the limit one that is not in use gives way: first the oldest that never
//! showed a token or a login, then the one that is unused for longest.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex};

use stepgate_core::lock;
use tokio::task::AbortHandle;

use crate::network::Network;
use crate::refusals::Limit;

/// Every open connection, and which goes first.
pub(crate) struct Connections {
    most: usize,
    /// Most connections of one network that never showed a token.
    unknown_max: usize,
    rows: Mutex<Rows>,
}

#[derive(Default)]
struct Rows {
    /// Numbers connections, and moments at which one was no longer in use.
    next: u64,
    open: HashMap<u64, Row>,
    /// Those that never showed a token, the oldest first.
    unknown: BTreeSet<u64>,
    unknown_of: HashMap<Network, BTreeSet<u64>>,
    /// The others without a request under way: since when, and which.
    idle: BTreeSet<(u64, u64)>,
}

struct Row {
    network: Option<Network>,
    state: State,
    /// Ends the connection's task.
    task: Option<AbortHandle>,
}

enum State {
    /// It never showed a token.
    Unknown,
    /// A request of a known caller is under way.
    InUse,
    /// Known, and without a request, since this moment.
    Idle(u64),
}

/// There is no place, and no connection that could give way.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Full;

impl Connections {
    pub(crate) fn new(most: usize, unknown_max: usize) -> Arc<Self> {
        Arc::new(Self { most, unknown_max, rows: Mutex::default() })
    }

    /// Adds a connection. Also says which limit made another one give way. The socket's connections have no network.
    pub(crate) fn add(
        self: &Arc<Self>,
        network: Option<Network>,
    ) -> Result<(OpenConnection, Option<Limit>), Full> {
        let mut rows = lock::locked(&self.rows);
        let of_network = network.and_then(|network| rows.unknown_of.get(&network));
        let oldest = of_network.filter(|ids| ids.len() >= self.unknown_max);
        let oldest = oldest.and_then(|ids| ids.first().copied());
        let gave_way = match oldest {
            Some(id) => {
                rows.end(id);
                Some(Limit::ConnectionsOfAddress)
            }
            None if rows.open.len() >= self.most => {
                rows.end_one()?;
                Some(Limit::Connections)
            }
            None => None,
        };
        let id = rows.tick();
        rows.unknown.insert(id);
        if let Some(network) = network {
            rows.unknown_of.entry(network).or_default().insert(id);
        }
        rows.open.insert(id, Row { network, state: State::Unknown, task: None });
        let connection = Connection { connections: Arc::clone(self), id };
        Ok((OpenConnection(connection), gave_way))
    }

    /// Ends one connection that is not in use, because the process can open no more files.
    pub(crate) fn make_room(&self) -> Result<(), Full> {
        lock::locked(&self.rows).end_one()
    }
}

impl Rows {
    fn tick(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Ends the connection that goes first.
    fn end_one(&mut self) -> Result<(), Full> {
        let first = self.unknown.first().copied();
        let first = first.or_else(|| self.idle.first().map(|(_, id)| *id));
        self.end(first.ok_or(Full)?);
        Ok(())
    }

    fn end(&mut self, id: u64) {
        if let Some(task) = self.remove(id).and_then(|row| row.task) {
            task.abort();
        }
    }

    fn remove(&mut self, id: u64) -> Option<Row> {
        let row = self.open.remove(&id)?;
        self.leave(id, &row);
        Some(row)
    }

    /// Takes a connection out of the order of those that may give way.
    fn leave(&mut self, id: u64, row: &Row) {
        match row.state {
            State::Unknown => {
                self.unknown.remove(&id);
                if let Some(network) = row.network
                    && let Some(ids) = self.unknown_of.get_mut(&network)
                {
                    ids.remove(&id);
                    if ids.is_empty() {
                        self.unknown_of.remove(&network);
                    }
                }
            }
            State::InUse => {}
            State::Idle(since) => drop(self.idle.remove(&(since, id))),
        }
    }

    fn set(&mut self, id: u64, state: State) {
        // Absent where the connection had to give way.
        let Some(row) = self.remove(id) else { return };
        if let State::Idle(since) = state {
            self.idle.insert((since, id));
        }
        self.open.insert(id, Row { state, ..row });
    }
}

/// Owned by the connection's task: it is no longer listed when this is dropped.
pub(crate) struct OpenConnection(Connection);

impl OpenConnection {
    /// What the connection's requests know of it.
    pub(crate) fn connection(&self) -> Connection {
        self.0.clone()
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        lock::locked(&self.0.connections.rows).remove(self.0.id);
    }
}

/// One connection, as its requests know it. A request may be kept for longer than its connection is open.
#[derive(Clone)]
pub(crate) struct Connection {
    connections: Arc<Connections>,
    id: u64,
}

impl Connection {
    /// How to end it.
    pub(crate) fn runs_in(&self, task: AbortHandle) {
        if let Some(row) = lock::locked(&self.connections.rows).open.get_mut(&self.id) {
            row.task = Some(task);
        }
    }

    /// A request of a known caller begins: the connection does not give way until it is over.
    pub(crate) fn use_it(&self) -> InUse {
        lock::locked(&self.connections.rows).set(self.id, State::InUse);
        InUse(self.clone())
    }
}

/// Held while a request of a known caller is under way.
pub(crate) struct InUse(Connection);

impl Drop for InUse {
    fn drop(&mut self) {
        let mut rows = lock::locked(&self.0.connections.rows);
        let now = rows.tick();
        rows.set(self.0.id, State::Idle(now));
    }
}

#[cfg(test)]
mod tests;
