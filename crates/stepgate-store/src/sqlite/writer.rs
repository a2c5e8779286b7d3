//! The only writer: group commit.
//!
//! Writes that wait together share one transaction and one fsync. Each is planned on its own, so a refused
//! write harms no other. If the database refuses a batch, every write of it is tried again alone. No write
//! is answered before it is durable.
//!
//! A thread takes the writes from the queue. While there is no other write, a caller writes on its own
//! thread, which saves two thread switches.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, TryLockError};
use std::thread::JoinHandle;
use std::time::Duration;

use rusqlite::Connection;
use stepgate_core::approval::Approval;
use stepgate_core::archive::ArchivedRun;
use stepgate_core::budget::Account;
use stepgate_core::decimal::Decimal;
use stepgate_core::idempotency::Binding;
use stepgate_core::ids::{ApprovalId, IdempotencyKey, RunId, SessionId};
use stepgate_core::ports::{KeyChange, StoreError};
use stepgate_core::run::Run;
use stepgate_core::session::{Session, Uniqueness};
use stepgate_core::spans::BATCH;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::{mpsc, oneshot};
use tracing::instrument;

use super::cells::one;
use super::log::Log;
use super::open::SqliteOptions;
use super::write::Statements;
use super::{error, locked, read, write};
use crate::Result;
use crate::plan::{Chain, Rows, SealedChange, Trace, View, Write, WriteResult, plan};
use crate::select::{self, Engine};

/// Limit of the cached open traces, and of the cached sessions. Beyond it the cache is cleared and filled
/// again.
const REMEMBERED_MAX: usize = 65_536;

struct Job {
    write: Write,
    answer: oneshot::Sender<WriteResult>,
}

/// The handle of the writing thread. Dropping it ends the thread when the queue is empty.
#[derive(Debug)]
pub(super) struct Writer {
    /// INVARIANT: both are `Some` until the drop.
    queue: Option<mpsc::Sender<Job>>,
    thread: Option<JoinHandle<()>>,
    desk: Arc<Desk>,
}

/// The state that the thread and its callers share.
#[derive(Debug)]
struct Desk {
    /// The thread that holds the lock writes.
    writing: Mutex<Writing>,
    /// How many writes the last commit had.
    last_batch_jobs: AtomicUsize,
    /// The last position of an event that belongs to no run. Written after its commit and before its answer.
    last_loose_position: Arc<AtomicU64>,
}

impl Writer {
    pub(super) fn start(
        connection: Connection,
        log: Log,
        last_loose_position: u64,
        options: &SqliteOptions,
    ) -> std::io::Result<Self> {
        let (queue, jobs) = mpsc::channel(options.queue_jobs_max.max(1));
        let last_loose_position = Arc::new(AtomicU64::new(last_loose_position));
        let writing = Writing {
            connection,
            last_loose_position: Arc::clone(&last_loose_position),
            log,
            busy_wait: options.busy_wait,
            durable: Standings::default(),
            has_erased: false,
            broken: None,
        };
        let (writing, last_batch_jobs) = (Mutex::new(writing), AtomicUsize::new(0));
        let desk = Arc::new(Desk { writing, last_batch_jobs, last_loose_position });
        let batch_jobs_max = options.batch_jobs_max.max(1);
        let serving = Arc::clone(&desk);
        let thread = std::thread::Builder::new()
            .name("stepgate-writer".into())
            .spawn(move || serving.serve(jobs, batch_jobs_max))?;
        Ok(Self { queue: Some(queue), thread: Some(thread), desk })
    }

    /// Writes, and returns when the write is durable or refused. A caller that is dropped while it waits for
    /// the answer does not stop the write.
    pub(super) async fn write(&self, write: Write) -> WriteResult {
        let stopped = || StoreError::Broken("the writer has stopped; restart to recover".into());
        let queue = self.queue.as_ref().ok_or_else(stopped)?;
        let nobody_waits = queue.capacity() == queue.max_capacity();
        let write = match self.desk.write_alone(write, nobody_waits) {
            Ok(answer) => return answer,
            Err(write) => write,
        };
        let (answer, answered) = oneshot::channel();
        let job = Job { write, answer };
        queue.send(job).await.map_err(|_| stopped())?;
        answered
            .await
            .map_err(|_| StoreError::AnswerLost("the writer stopped before it answered".into()))?
    }

    /// Runs one statement as a transaction of its own, between two batches, on a blocking thread. It must not
    /// touch the rows that batches write: those are cached.
    pub(super) async fn between_batches<T: Send + 'static>(
        &self,
        statement: impl FnOnce(&Connection) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let desk = Arc::clone(&self.desk);
        let running = tokio::task::spawn_blocking(move || {
            let writing = locked(&desk.writing);
            match &writing.broken {
                Some(why) => Err(StoreError::Broken(why.clone())),
                // The batch before panicked in its transaction; the next batch rolls it back.
                None if !writing.connection.is_autocommit() => {
                    Err(StoreError::Unavailable("a batch did not end".into()))
                }
                None => statement(&writing.connection),
            }
        });
        let stopped = |error| StoreError::AnswerLost(format!("a statement was stopped: {error}"));
        running.await.map_err(stopped)?
    }

    /// The last position of an event that belongs to no run. No other process writes to the file.
    pub(super) fn last_loose_position(&self) -> u64 {
        self.desk.last_loose_position.load(Ordering::Acquire)
    }

    /// Reads on the connection that writes, if no thread is writing now and the last commit had at most one
    /// write. The cache of this connection is never stale, because it makes every change itself; any other
    /// connection reads its pages again after each commit.
    pub(super) fn read_alone<T>(&self, query: impl FnOnce(&Connection) -> T) -> Option<T> {
        let is_quiet = self.desk.last_batch_jobs.load(Ordering::Relaxed) <= 1;
        let writing = self.desk.writing.try_lock().ok()?;
        (is_quiet && writing.broken.is_none()).then(|| query(&writing.connection))
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        drop(self.queue.take());
        if let Some(thread) = self.thread.take() {
            // If the thread panicked, its callers got no answer, and this thread has no caller to report it to.
            let _ended = thread.join();
        }
    }
}

impl Desk {
    /// Writes on the caller's thread, if the queue is empty, no thread is writing and the last commit had at
    /// most one write; otherwise returns the write. It blocks for one fsync, and at most one caller at a
    /// time: a runtime with a second thread continues meanwhile.
    fn write_alone(&self, write: Write, nobody_waits: bool) -> Result<WriteResult, Write> {
        let is_quiet = nobody_waits && self.last_batch_jobs.load(Ordering::Relaxed) <= 1;
        // With a single runtime thread, each caller would write alone before the next could even queue.
        let others_go_on = Handle::try_current().is_ok_and(|runtime| {
            runtime.runtime_flavor() == RuntimeFlavor::MultiThread
                && runtime.metrics().num_workers() > 1
        });
        if !is_quiet || !others_go_on {
            return Err(write);
        }
        let mut writing = match self.writing.try_lock() {
            Ok(writing) => writing,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Err(write),
        };
        let (answer, mut answered) = oneshot::channel();
        writing.write_batch(&mut vec![Job { write, answer }]);
        let unanswered = || StoreError::AnswerLost("the write was not answered".into());
        Ok(answered.try_recv().unwrap_or_else(|_| Err(unanswered())))
    }

    fn serve(&self, mut jobs: mpsc::Receiver<Job>, batch_jobs_max: usize) {
        let mut batch = Vec::with_capacity(batch_jobs_max);
        while jobs.blocking_recv_many(&mut batch, batch_jobs_max) > 0 {
            self.last_batch_jobs.store(batch.len(), Ordering::Relaxed);
            locked(&self.writing).write_batch(&mut batch);
        }
        locked(&self.writing).close();
    }
}

#[derive(Debug)]
struct Writing {
    connection: Connection,
    last_loose_position: Arc<AtomicU64>,
    log: Log,
    /// How long a write waits for a lock of another process.
    busy_wait: Duration,
    durable: Standings,
    /// Whether the log still has pages from before a payload was erased.
    has_erased: bool,
    /// Why nothing can be written any more.
    broken: Option<String>,
}

impl Writing {
    /// Moves the log into the file. A failure loses nothing.
    fn close(&mut self) {
        self.log.stop();
        if self.broken.is_none() {
            let _moved =
                self.connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
        }
    }

    fn write_batch(&mut self, batch: &mut Vec<Job>) {
        match self.attempt(batch) {
            Ok(answers) => {
                for (job, answer) in batch.drain(..).zip(answers) {
                    // The caller may have been dropped.
                    let _left = job.answer.send(answer);
                }
                self.log.between_batches(&self.connection);
            }
            Err(error) if batch.len() == 1 || self.broken.is_some() => {
                for job in batch.drain(..) {
                    let _left = job.answer.send(Err(error.clone()));
                }
            }
            Err(_) => {
                for job in batch.drain(..) {
                    self.write_batch(&mut vec![job]);
                }
            }
        }
    }

    /// Writes all of a batch in one transaction, or nothing.
    #[instrument(
        target = BATCH, name = "transaction", level = "debug", skip_all,
        fields(
            otel.kind = "client",
            db.system.name = "sqlite",
            db.operation.name = "TRANSACTION",
            db.operation.batch.size = batch.len() as u64,
        )
    )]
    fn attempt(&mut self, batch: &[Job]) -> Result<Vec<WriteResult>> {
        if let Some(why) = &self.broken {
            return Err(StoreError::Broken(why.clone()));
        }
        if !self.connection.is_autocommit() {
            // The batch before panicked in the middle of its transaction.
            self.connection.execute_batch("ROLLBACK").map_err(error::while_open)?;
        }
        let answers = self.transact(batch);
        match &answers {
            Ok(_) if self.has_erased => self.cut_log(),
            Ok(_) => {}
            Err(error) => self.roll_back(error),
        }
        answers
    }

    /// Moves the log into the file and truncates it, without waiting for a reader. If a reader still needs the
    /// log, the next write tries again, and so does the close.
    fn cut_log(&mut self) {
        let connection = &self.connection;
        let _no_wait = connection.busy_timeout(Duration::ZERO);
        let is_busy = self.log.alone(|| {
            connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, i64>(0))
        });
        let _wait_again = connection.busy_timeout(self.busy_wait);
        self.has_erased = is_busy != Ok(0);
    }

    fn transact(&mut self, batch: &[Job]) -> Result<Vec<WriteResult>> {
        let connection = &self.connection;
        connection
            .prepare_cached("BEGIN IMMEDIATE")
            .and_then(|mut begin| begin.execute([]))
            .map_err(error::while_open)?;
        let mut looking =
            Looking { connection, durable: &self.durable, fresh: Standings::default() };
        let mut statements = Statements::of_batch(connection);
        let mut answers = Vec::with_capacity(batch.len());
        let (mut has_written, mut has_erased, mut has_loose) = (false, false, false);
        for job in batch {
            let rows = match plan(&job.write, &mut looking) {
                Ok(rows) => rows,
                Err(broken @ StoreError::Broken(_)) => return Err(broken),
                Err(refused) => {
                    answers.push(Err(refused));
                    continue;
                }
            };
            has_written |= !rows.is_empty();
            has_erased |= matches!(rows.sealed, Some(SealedChange::Erase(_)));
            has_erased |= !rows.erased.is_empty();
            has_loose |= rows.events.iter().any(|(event, _)| event.run_id.is_none());
            write::rows(&mut statements, &rows).map_err(error::while_open)?;
            looking.note(&rows);
            answers.push(Ok(rows.answer));
        }
        let fresh = looking.fresh;
        for (session_id, chain) in &fresh.chains {
            write::chain(&mut statements, *session_id, chain).map_err(error::while_open)?;
        }
        drop(statements);
        let last_loose_position = match has_loose {
            true => one(connection, select::last_loose_position(Engine::Sqlite))?,
            false => None,
        };
        let end = if has_written { "COMMIT" } else { "ROLLBACK" };
        let end = connection.prepare_cached(end).and_then(|mut end| end.execute([]));
        end.map_err(error::while_committing)?;
        if let Some(position) = last_loose_position {
            self.last_loose_position.store(position, Ordering::Release);
        }
        self.durable.absorb(fresh);
        self.has_erased |= has_erased;
        Ok(answers)
    }

    /// Leaves the transaction. The cache does not depend on it, but after an error it is cleared, and
    /// everything is read again.
    fn roll_back(&mut self, error: &StoreError) {
        self.durable = Standings::default();
        if let StoreError::Broken(why) = error {
            self.broken = Some(why.clone());
        }
        // Some errors end the transaction by themselves.
        if self.connection.is_autocommit() {
            return;
        }
        if let Err(error) = self.connection.execute_batch("ROLLBACK") {
            let why = format!("a refused batch could not be rolled back ({error}); restart");
            self.broken.get_or_insert(why);
        }
    }
}

/// Cache: the state of open traces and sessions.
#[derive(Debug, Default)]
struct Standings {
    traces: HashMap<RunId, Known>,
    chains: HashMap<SessionId, Chain>,
}

/// The cached facts of an open trace.
#[derive(Clone, Debug)]
struct Known {
    trace: Trace,
    /// The key under which its call is in flight, if that was seen.
    in_flight: Option<IdempotencyKey>,
    /// Whether it is known to have no checkpoint: it was cached from its opening on.
    is_unmarked: bool,
}

impl Known {
    /// The facts after a plan, from those before it.
    fn after(rows: &Rows<'_>, trace: Trace, before: Option<&Self>) -> Self {
        let in_flight = match rows.key {
            Some(KeyChange::Bind(binding)) => {
                (!binding.settled).then(|| binding.idempotency_key.clone())
            }
            Some(KeyChange::Settle(_)) => None,
            None => before.and_then(|known| known.in_flight.clone()),
        };
        let was_unmarked = rows.run.is_some() || before.is_some_and(|known| known.is_unmarked);
        Self { trace, in_flight, is_unmarked: was_unmarked && rows.checkpoint.is_none() }
    }
}

impl Standings {
    /// Takes over the changes of a committed batch. A run that is over is not needed any more.
    fn absorb(&mut self, fresh: Self) {
        if self.traces.len() > REMEMBERED_MAX {
            self.traces.clear();
        }
        if self.chains.len() > REMEMBERED_MAX {
            self.chains.clear();
        }
        for (run_id, known) in fresh.traces {
            if known.trace.status.is_final() {
                self.traces.remove(&run_id);
            } else {
                self.traces.insert(run_id, known);
            }
        }
        self.chains.extend(fresh.chains);
    }
}

/// The database as the plan of a batch sees it: first the changes of the batch so far, then the cache, then
/// the rows.
struct Looking<'a> {
    connection: &'a Connection,
    durable: &'a Standings,
    fresh: Standings,
}

impl Looking<'_> {
    fn known(&self, run_id: RunId) -> Option<&Known> {
        self.fresh.traces.get(&run_id).or_else(|| self.durable.traces.get(&run_id))
    }

    /// Notes what a plan changes.
    fn note(&mut self, rows: &Rows<'_>) {
        if let Some((run_id, trace)) = rows.trace {
            let known = Known::after(rows, trace, self.known(run_id));
            self.fresh.traces.insert(run_id, known);
        }
        self.fresh.chains.extend(rows.chain);
    }
}

impl View for Looking<'_> {
    fn trace(&mut self, run_id: RunId) -> Result<Option<Trace>> {
        match self.known(run_id) {
            Some(known) => Ok(Some(known.trace)),
            None => read::trace(self.connection, run_id),
        }
    }

    fn chain(&mut self, session_id: SessionId) -> Result<Option<Chain>> {
        let fresh = self.fresh.chains.get(&session_id);
        match fresh.or_else(|| self.durable.chains.get(&session_id)) {
            Some(chain) => Ok(Some(*chain)),
            None => read::chain(self.connection, session_id),
        }
    }

    fn session(&mut self, session_id: SessionId) -> Result<Option<Session>> {
        one(self.connection, select::session(session_id))
    }

    fn only_session_like(&mut self, asked: &Session) -> Result<Option<Session>> {
        match asked.kind.uniqueness() {
            Uniqueness::None => Ok(None),
            Uniqueness::InStore | Uniqueness::ForPrincipal => {
                one(self.connection, select::session_of(&asked.principal_id, asked.kind))
            }
        }
    }

    fn run(&mut self, run_id: RunId) -> Result<Option<Run>> {
        one(self.connection, select::run(run_id))
    }

    fn binding(&mut self, key: &IdempotencyKey) -> Result<Option<Binding>> {
        one(self.connection, select::binding(Engine::Sqlite, key))
    }

    fn is_bound(&mut self, key: &IdempotencyKey) -> Result<bool> {
        read::is_bound(self.connection, key)
    }

    fn is_in_flight(&mut self, key: &IdempotencyKey, run_id: RunId) -> Result<bool> {
        let in_flight = self.known(run_id).and_then(|known| known.in_flight.as_ref());
        Ok(in_flight == Some(key) || self.binding(key)?.is_some_and(|it| it.is_in_flight(run_id)))
    }

    fn has_key(&mut self, run_id: RunId) -> Result<bool> {
        read::has_key(self.connection, run_id)
    }

    fn approval(&mut self, approval_id: ApprovalId) -> Result<Option<Approval>> {
        one(self.connection, select::approval(approval_id))
    }

    fn has_approval(&mut self, run_id: RunId) -> Result<bool> {
        Ok(one(self.connection, select::approval_of(run_id))?.is_some())
    }

    /// Earlier plans of the batch have written their rows already.
    fn used(&mut self, account: &Account) -> Result<Option<Decimal>> {
        Ok(one(self.connection, select::account(account))?.map(|balance| balance.used))
    }

    fn has_checkpoint(&mut self, run_id: RunId, number: u64) -> Result<bool> {
        if self.known(run_id).is_some_and(|known| known.is_unmarked) {
            return Ok(false);
        }
        read::has_checkpoint(self.connection, run_id, number)
    }

    fn changed_run(&mut self, runs: &[ArchivedRun]) -> Result<Option<RunId>> {
        for run in runs {
            if one(self.connection, select::events_of_ended(run.run_id))? != Some(run.events) {
                return Ok(Some(run.run_id));
            }
        }
        Ok(None)
    }
}
