//! One lock per path that is being changed, held from the look before the act until its effect is
//! committed. Text is enough to tell paths apart, because no link is ever followed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use stepgate_core::lock::locked;
use stepgate_core::path::SandboxPath;
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

/// How long a new call waits for its paths. A call whose effect could not be recorded keeps its paths
/// until recovery has ended it, and nobody should wait for that without end.
pub(super) const WAIT: Duration = Duration::from_secs(30);

/// How long recovery waits for the paths of a call before it goes on with the next run. Two nodes that recover
/// each other's runs would otherwise wait for each other without end.
pub(super) const WAIT_AGAIN: Duration = Duration::from_secs(3);

/// The locks that somebody holds or waits for, and no others.
#[derive(Clone, Default)]
pub(super) struct Locks(Arc<Mutex<HashMap<SandboxPath, Entry>>>);

#[derive(Default)]
struct Entry {
    lock: Arc<AsyncMutex<()>>,
    /// Who holds it or waits for it. The last one takes the entry away.
    tickets: usize,
}

impl Locks {
    /// Waits for all of the paths. Taken in the order of their text and each once, so that two
    /// calls on the same paths never wait for each other, nor a call for itself.
    pub(super) async fn acquire(&self, mut paths: Vec<&SandboxPath>) -> Vec<PathLock> {
        paths.sort_unstable();
        paths.dedup();
        let mut held = Vec::with_capacity(paths.len());
        for path in paths {
            let (lock, ticket) = self.ticket(path);
            let guard = lock.lock_owned().await;
            held.push(PathLock { _guard: guard, _ticket: ticket });
        }
        held
    }

    fn ticket(&self, path: &SandboxPath) -> (Arc<AsyncMutex<()>>, Ticket) {
        let mut entries = self.entries();
        let entry = entries.entry(path.clone()).or_default();
        entry.tickets += 1;
        let ticket = Ticket { path: path.clone(), locks: self.clone() };
        (Arc::clone(&entry.lock), ticket)
    }

    fn entries(&self) -> MutexGuard<'_, HashMap<SandboxPath, Entry>> {
        locked(&self.0)
    }
}

/// A path that nobody else changes. The guard goes first: fields drop in their order.
pub(super) struct PathLock {
    _guard: OwnedMutexGuard<()>,
    _ticket: Ticket,
}

/// An interest in a path's lock, held or waited for. A caller who stops waiting drops it too.
struct Ticket {
    path: SandboxPath,
    locks: Locks,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut entries = self.locks.entries();
        if let Some(entry) = entries.get_mut(&self.path) {
            entry.tickets -= 1;
            if entry.tickets == 0 {
                entries.remove(&self.path);
            }
        }
    }
}

#[cfg(test)]
mod tests;
