//! The write-ahead log: how it gets into the database file without holding up steps.
//!
//! If the writer copied the whole log, every step would wait until the disk is done. So a thread with a
//! connection of its own copies it in pieces, and the writer goes on meanwhile. SQLite starts the log over
//! only when all of it has been copied, and a log that grows all the time never is. So once the log is long
//! and the thread has nearly caught up, the writer copies the few pages that are left, between two batches.

use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use rusqlite::Connection;
use rusqlite::hooks::Wal;
use stepgate_core::lock::locked;

use super::error::{OpenError, while_opening};
use super::open::{self, SqliteOptions};

/// The log as the writer sees it, and the thread that copies it.
#[derive(Debug)]
pub(super) struct Log {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl Log {
    /// Starts the thread. From now on, commits of `writer` copy nothing by themselves.
    pub(super) fn start(
        writer: &mut Connection,
        path: &Path,
        options: &SqliteOptions,
    ) -> Result<Self, OpenError> {
        let connection = open::checkpointer(path, options)?;
        let state = Mutex::new(State::new(options.wal_pages));
        let shared = Arc::new(Shared { state, changed: Condvar::new() });
        let noted = Arc::clone(&shared);
        // SQLite calls this after each commit, in place of its own checkpoint.
        let hook = move |_: &mut Wal, pages: i32| {
            noted.grow(u32::try_from(pages).unwrap_or_default());
            Ok(())
        };
        writer.wal_hook(Some(hook)).map_err(|error| while_opening(path, &error))?;
        let serving = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("stepgate-log".into())
            .spawn(move || serving.serve(&connection))
            .map_err(|error| OpenError::Io { path: path.to_owned(), detail: error.to_string() })?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Copies what is left of a long log, so that it starts over with the next commit. The writer calls it
    /// between two batches.
    pub(super) fn between_batches(&self, writer: &Connection) {
        if locked(&self.shared.state).tries_now()
            && let Some(copied) = self.alone(|| copy(writer))
        {
            locked(&self.shared.state).copied = copied;
        }
    }

    /// Runs `work` while the thread copies nothing: SQLite lets only one connection copy at a time.
    pub(super) fn alone<T>(&self, work: impl FnOnce() -> T) -> T {
        let state = locked(&self.shared.state);
        self.shared.wait_while(state, |state| state.is_copying).is_held = true;
        let done = work();
        locked(&self.shared.state).is_held = false;
        done
    }

    /// Ends the thread, after the piece that it copies now.
    pub(super) fn stop(&mut self) {
        locked(&self.shared.state).is_stopped = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // If it panicked, the log is longer than it should be, and nothing is lost.
            let _ended = thread.join();
        }
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    fn grow(&self, pages: u32) {
        let mut state = locked(&self.state);
        state.grow(pages);
        if state.has_piece() {
            self.changed.notify_all();
        }
    }

    fn serve(&self, connection: &Connection) {
        while let Some(restarts) = self.next_piece() {
            let copied = copy(connection);
            locked(&self.state).finish_piece(copied, restarts);
            self.changed.notify_all();
        }
    }

    /// Waits until there is a piece to copy. Returns how often the log had started over then, or none at the
    /// end.
    fn next_piece(&self) -> Option<u64> {
        let is_idle = |state: &mut State| !state.is_stopped && !state.has_piece();
        let mut state = self.wait_while(locked(&self.state), is_idle);
        (!state.is_stopped).then(|| state.begin_piece())
    }

    fn wait_while<'a>(
        &self,
        state: MutexGuard<'a, State>,
        condition: impl FnMut(&mut State) -> bool,
    ) -> MutexGuard<'a, State> {
        self.changed.wait_while(state, condition).unwrap_or_else(PoisonError::into_inner)
    }
}

/// Copies what can be copied without waiting for a reader. Returns how many of the log's first pages are
/// copied now. If it fails, the log keeps them.
fn copy(connection: &Connection) -> Option<u32> {
    connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |row| row.get(2)).ok()
}

#[derive(Debug, Default)]
struct State {
    /// The length at which the log should start over. All lengths are in pages.
    pages_max: u32,
    /// How long the log is.
    pages: u32,
    /// How much of it has been copied, from its beginning.
    copied: u32,
    /// How long it was when the thread began its last piece.
    begun_at: u32,
    /// How long it was when the writer tried last to copy what was left.
    tried_at: u32,
    /// How often the log has started over.
    restarts: u64,
    is_copying: bool,
    /// The thread must not begin to copy.
    is_held: bool,
    is_stopped: bool,
}

impl State {
    fn new(pages_max: u32) -> Self {
        Self { pages_max, ..Self::default() }
    }

    /// New pages that the thread waits for before it copies them.
    fn piece(&self) -> u32 {
        self.pages_max / 4
    }

    /// The most pages that the writer copies to let the log start over.
    fn rest_max(&self) -> u32 {
        self.pages_max / 16
    }

    /// The length at which the writer waits for the thread and copies whatever is left: the disk cannot
    /// follow.
    fn overdue(&self) -> u32 {
        self.pages_max.saturating_mul(4)
    }

    /// Notes how long the log is after a commit.
    fn grow(&mut self, pages: u32) {
        if pages <= self.pages {
            self.restarts += 1;
            (self.copied, self.begun_at, self.tried_at) = (0, 0, 0);
        }
        self.pages = pages;
    }

    /// Whether the thread should copy now. A reader can keep pages from being copied, so only what came after
    /// the last piece counts.
    fn has_piece(&self) -> bool {
        let new = self.pages.saturating_sub(self.copied.max(self.begun_at));
        !self.is_copying && !self.is_held && new >= self.piece()
    }

    /// Begins a piece. Returns how often the log had started over.
    fn begin_piece(&mut self) -> u64 {
        self.is_copying = true;
        self.begun_at = self.pages;
        self.restarts
    }

    fn rest(&self) -> u32 {
        self.pages.saturating_sub(self.copied)
    }

    /// Notes that a piece has been copied. If the log has started over since, the number is of the old one.
    fn finish_piece(&mut self, copied: Option<u32>, restarts: u64) {
        self.is_copying = false;
        if let Some(copied) = copied
            && restarts == self.restarts
        {
            self.copied = copied;
        }
    }

    /// Whether the writer should copy what is left now, which is noted. It tries again only when the log has
    /// grown.
    fn tries_now(&mut self) -> bool {
        let is_long = self.pages >= self.pages_max && self.rest() <= self.rest_max();
        let is_overdue = self.pages >= self.overdue();
        let has_grown = self.pages >= self.tried_at.saturating_add(self.rest_max());
        let tries = has_grown && (is_overdue || (is_long && !self.is_copying));
        if tries {
            self.tried_at = self.pages;
        }
        tries
    }
}

#[cfg(test)]
mod tests;
