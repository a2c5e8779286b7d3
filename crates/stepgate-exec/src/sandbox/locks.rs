//! One lock per path that is being changed, held from the first read of its state until the effect is
//! committed. The text of a path is enough as a key, because links are never followed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use stepgate_core::lock::locked;
use stepgate_core::path::SandboxPath;
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

/// How long a new call waits for its paths. A call whose effect could not be recorded keeps its paths until
/// recovery has ended it, and other calls should not wait for that without a limit.
pub(super) const WAIT: Duration = Duration::from_secs(30);

/// How long recovery waits for the paths of a call before it goes on with the next run. Otherwise two nodes
/// that recover each other's runs would deadlock.
pub(super) const WAIT_AGAIN: Duration = Duration::from_secs(3);

/// The locks that are held or waited for, and no others.
#[derive(Clone, Default)]
pub(super) struct Locks(Arc<Mutex<HashMap<SandboxPath, Entry>>>);

#[derive(Default)]
struct Entry {
    lock: Arc<AsyncMutex<()>>,
    /// How many callers hold it or wait for it. The last one removes the entry.
    callers: usize,
}

impl Locks {
    /// Waits for all of the paths. They are taken in the order of their text and each once, so that two
    /// calls on the same paths cannot deadlock, nor a call with itself.
    pub(super) async fn acquire(&self, mut paths: Vec<&SandboxPath>) -> Vec<PathLock> {
        paths.sort_unstable();
        paths.dedup();
        let mut held = Vec::with_capacity(paths.len());
        for path in paths {
            let mut path_lock = PathLock { guard: None, path: path.clone(), locks: self.clone() };
            let lock = {
                let mut entries = locked(&self.0);
                let entry = entries.entry(path.clone()).or_default();
                entry.callers += 1;
                Arc::clone(&entry.lock)
            };
            path_lock.guard = Some(lock.lock_owned().await);
            held.push(path_lock);
        }
        held
    }
}

/// A path that is locked or waited for. A caller that stops waiting drops it too.
pub(super) struct PathLock {
    guard: Option<OwnedMutexGuard<()>>,
    path: SandboxPath,
    locks: Locks,
}

impl Drop for PathLock {
    fn drop(&mut self) {
        drop(self.guard.take());
        let mut entries = locked(&self.locks.0);
        if let Some(entry) = entries.get_mut(&self.path) {
            entry.callers -= 1;
            if entry.callers == 0 {
                entries.remove(&self.path);
            }
        }
    }
}

#[cfg(test)]
mod tests;
