//! The embedded store: one file, one writing thread, many readers.

mod open;
mod schema;
mod moving;
mod writer;
mod log;
mod write;
mod read;
mod list;
mod audit;
mod cursors;
mod cells;
pub(crate) mod backup;
mod error;
mod roofline;

use std::collections::HashMap;
use std::iter;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use rusqlite::Connection;
use stepgate_core::approval::Approval;
use stepgate_core::archive::ArchivedRun;
use stepgate_core::budget::{Account, Balance, BudgetName, Window};
use stepgate_core::decimal::Decimal;
use stepgate_core::event::Event;
use stepgate_core::idempotency::Binding;
use stepgate_core::ids::{ApprovalId, ArtifactId, IdempotencyKey, PrincipalId, RunId, SessionId};
use stepgate_core::journal::{Appended, Checkpoint, ExecutionState};
use stepgate_core::lock::locked;
use stepgate_core::ports::{
    Alone, Announce, ApprovalQuery, Approvals, ArchiveCommit, Archives, Audited, Audits, Budgets,
    Counts, Cursor, Cursors, Dossier, EndedQuery, EndedRun, ErasableArgs, Erasables, EraseCommit,
    EventQuery, Events, Journals, KeptRun, LinkedEvent, Locks, Moment, PlacedEvent, Recollection,
    RunQuery, Runs, SessionQuery, Sessions, StepCommit, StoreError, TurnQuery, Unfinished, Writes,
};
use stepgate_core::run::Run;
use stepgate_core::session::{Session, SessionKind};
use stepgate_core::spans::COMMIT;
use tokio::sync::Semaphore;
use tracing::instrument;

pub use error::OpenError;
pub use open::SqliteOptions;
pub use roofline::Roofline;

use crate::Result;
use crate::announcer::Announcer;
use crate::chunk::{self, Chunk};
use crate::locks::TraceLocks;
use crate::payload_keys::PayloadKeys;
use crate::plan::{Step, Write};
use crate::search::with_one_name;
use crate::select::{self, Engine, Select};
use crate::tables::{EVENTS, TABLES};
use log::Log;
use writer::Writer;

/// A store in one SQLite file.
#[derive(Debug)]
pub struct SqliteStore {
    /// Declared before the writer, so that the readers are dropped first: the writer's last act, the
    /// checkpoint of the write-ahead log, then meets no reader.
    readers: Arc<Readers>,
    /// None where the store was opened for reading only.
    writer: Option<Writer>,
    locks: TraceLocks,
    /// The last index given in each session that was used since the start. It is never evicted: an index
    /// that was given and is not committed yet is recorded nowhere else.
    indexes: Mutex<HashMap<SessionId, u64>>,
    announcer: Announcer,
    keys: PayloadKeys,
}

impl Alone for SqliteStore {}

impl SqliteStore {
    /// Opens a store, and creates or migrates the file as needed. The caller must hold the lock of the data
    /// directory.
    pub fn open(path: &Path, options: SqliteOptions) -> Result<Self, OpenError> {
        let mut connection = open::writer(path, &options)?;
        let readers = Readers::open(path, &options)?;
        let log = Log::start(&mut connection, path, &options)?;
        let failed = |detail: String| OpenError::Io { path: path.to_owned(), detail };
        let last_loose = list::number(&connection, select::last_loose_position(Engine::Sqlite))
            .map_err(|error| failed(error.to_string()))?;
        let writer = Writer::start(connection, log, last_loose, &options)
            .map_err(|error| failed(error.to_string()))?;
        Ok(Self::new(readers, Some(writer), &options))
    }

    /// Opens an existing store for reading only. Nothing in the file changes. Each call reads the state at
    /// its moment and leaves no transaction open, so another process that writes can reset its write-ahead
    /// log.
    pub fn open_read_only(path: &Path) -> Result<Self, OpenError> {
        let options = SqliteOptions::default();
        Ok(Self::new(Readers::open(path, &options)?, None, &options))
    }

    fn new(readers: Arc<Readers>, writer: Option<Writer>, options: &SqliteOptions) -> Self {
        Self {
            readers,
            writer,
            locks: TraceLocks::new(options.lock_wait),
            indexes: Mutex::default(),
            announcer: Announcer::default(),
            keys: PayloadKeys::default(),
        }
    }

    /// Announces what it writes from now on.
    pub fn announcing_to(self, announce: Arc<dyn Announce>) -> Self {
        Self { announcer: Announcer::to(announce), ..self }
    }

    /// Encrypts original payloads under these keys from now on, and reads what they have encrypted.
    pub fn with_payload_keys(self, keys: PayloadKeys) -> Self {
        Self { keys, ..self }
    }

    /// The damage that SQLite finds in the file, without a check of the indexes' content.
    pub async fn quick_check(&self) -> Result<Vec<String>> {
        self.check("quick_check").await
    }

    /// Table by table, each in a transaction of its own: the write-ahead log cannot be reset while SQLite
    /// checks.
    async fn check(&self, check: &'static str) -> Result<Vec<String>> {
        let mut found = Vec::new();
        let tables = TABLES.iter().map(|table| table.name);
        for table in iter::once("sqlite_schema").chain(tables) {
            let damage = move |connection: &Connection| list::damage(connection, check, table);
            found.extend(self.readers.read(damage).await?);
        }
        Ok(found)
    }

    async fn write(&self, write: Write) -> Result<Option<Session>> {
        let announcement = Announcer::announcement(&write);
        let written = self.writer()?.write(write).await;
        self.announcer.tell(announcement, &written);
        written
    }

    fn writer(&self) -> Result<&Writer> {
        let read_only = || StoreError::Unavailable("opened read-only".into());
        self.writer.as_ref().ok_or_else(read_only)
    }
}

/// Connections that read beside the writer.
#[derive(Debug)]
struct Readers {
    path: PathBuf,
    options: SqliteOptions,
    /// How many may read at a time.
    permits: Arc<Semaphore>,
    idle: Mutex<Vec<Connection>>,
    /// For the look-up that every step makes (see [`Readers::point`]).
    point: Mutex<Connection>,
}

impl Readers {
    fn open(path: &Path, options: &SqliteOptions) -> Result<Arc<Self>, OpenError> {
        Ok(Arc::new(Self {
            path: path.to_owned(),
            options: options.clone(),
            permits: Arc::new(Semaphore::new(options.readers_max.max(1))),
            idle: Mutex::default(),
            point: Mutex::new(open::reader(path, options)?),
        }))
    }

    /// Reads on a blocking thread, in one transaction, so that all reads see one snapshot.
    async fn read<T: Send + 'static>(
        self: &Arc<Self>,
        query: impl FnOnce(&Connection) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let readers = Arc::clone(self);
        let permits = Arc::clone(&self.permits);
        let gone = |_| StoreError::Unavailable("the store is closing".into());
        let permit = permits.acquire_owned().await.map_err(gone)?;
        let reading = tokio::task::spawn_blocking(move || {
            // The blocking task keeps the permit: if the caller is dropped, the read still runs.
            let _permit = permit;
            readers.read_now(query)
        });
        reading
            .await
            .map_err(|error| StoreError::Unavailable(format!("a read was stopped: {error}")))?
    }

    /// Every row that a query finds.
    async fn all<T: Send + 'static>(self: &Arc<Self>, select: Select<T>) -> Result<Vec<T>> {
        self.read(move |connection| cells::all(connection, select)).await
    }

    /// The first row that a query finds.
    async fn one<T: Send + 'static>(self: &Arc<Self>, select: Select<T>) -> Result<Option<T>> {
        self.read(move |connection| cells::one(connection, select)).await
    }

    /// The number that is the whole answer of a query.
    async fn number(self: &Arc<Self>, select: Select<u64>) -> Result<u64> {
        Ok(self.one(select).await?.unwrap_or(0))
    }

    fn read_now<T>(&self, query: impl FnOnce(&Connection) -> Result<T>) -> Result<T> {
        let idle = locked(&self.idle).pop();
        let connection = match idle {
            Some(connection) => connection,
            None => open::reader(&self.path, &self.options)
                .map_err(|error| StoreError::Unavailable(error.to_string()))?,
        };
        let transaction = connection.unchecked_transaction().map_err(error::while_open)?;
        let answer = query(&transaction);
        transaction.finish().map_err(error::while_open)?;
        locked(&self.idle).push(connection);
        answer
    }

    /// Reads one row by a unique key, on the caller's thread.
    fn point<T>(&self, query: impl FnOnce(&Connection) -> Result<T>) -> Result<T> {
        query(&locked(&self.point))
    }
}

#[async_trait]
impl Writes for SqliteStore {
    #[instrument(
        target = COMMIT, name = "commit", level = "debug", skip_all,
        fields(otel.kind = "client", db.system.name = "sqlite", db.operation.name = "COMMIT")
    )]
    async fn commit(&self, commit: StepCommit) -> Result<()> {
        let commit = self.keys.seal(commit)?;
        let packed = chunk::packed(&commit);
        self.write(Write::Step(Box::new(Step::of(commit, packed)))).await.map(drop)
    }

    async fn append_event(&self, event: Event) -> Result<()> {
        self.write(Write::Event(Box::new(event))).await.map(drop)
    }

    async fn open_session(&self, session: Session, event: Event) -> Result<Session> {
        let session_id = session.session_id;
        let write = Write::Session(Box::new(session), Box::new(event));
        let answer = self.write(write).await?;
        answer.ok_or(StoreError::UnknownSession(session_id))
    }
}

#[async_trait]
impl Locks for SqliteStore {
    async fn acquire_trace_lock(&self, trace_id: RunId) -> Result<()> {
        self.locks.acquire(trace_id).await
    }

    async fn release_trace_lock(&self, trace_id: RunId) -> Result<()> {
        self.locks.release(trace_id);
        Ok(())
    }

    async fn may_dispatch(&self, _: RunId) -> Result<()> {
        Ok(())
    }
}

#[async_trait]
impl Journals for SqliteStore {
    async fn load_state(&self, trace_id: RunId) -> Result<Option<ExecutionState>> {
        let query = move |connection: &Connection| read::state(connection, trace_id);
        self.readers.read(query).await
    }

    async fn list_log_entries(&self, trace_id: RunId, after_seq: u64) -> Result<Vec<Appended>> {
        let chunks = self.readers.all(select::chunks(trace_id)).await?;
        Ok(Chunk::joined(chunks).entries_after(after_seq))
    }

    async fn load_latest_checkpoint(&self, trace_id: RunId) -> Result<Option<Checkpoint>> {
        let chunks = self.readers.all(select::chunks(trace_id)).await?;
        Ok(Chunk::joined(chunks).checkpoints.pop())
    }
}

#[async_trait]
impl Runs for SqliteStore {
    async fn binding(&self, key: &IdempotencyKey) -> Result<Option<Binding>> {
        let query =
            |connection: &Connection| cells::one(connection, select::binding(Engine::Sqlite, key));
        let alone = self.writer.as_ref().and_then(|writer| writer.read_alone(query));
        alone.unwrap_or_else(|| self.readers.point(query))
    }

    async fn dossier(&self, run_id: RunId) -> Result<Option<Dossier>> {
        let keys = self.keys.clone();
        let query = move |connection: &Connection| read::dossier(connection, run_id, &keys);
        self.readers.read(query).await
    }

    async fn recollections(&self, run_ids: &[RunId]) -> Result<Vec<Recollection>> {
        let run_ids = run_ids.to_vec();
        let query = move |connection: &Connection| {
            let found = run_ids.iter().map(|run_id| read::recollection(connection, *run_id));
            found.filter_map(Result::transpose).collect()
        };
        self.readers.read(query).await
    }

    async fn runs(&self, query: RunQuery) -> Result<Vec<Run>> {
        let Some(query) = with_one_name(query) else { return Ok(Vec::new()) };
        let list = move |connection: &Connection| {
            let finder = list::finder(connection, &query)?;
            cells::all(connection, list::runs(&query, finder))
        };
        self.readers.read(list).await
    }

    async fn run_ids(&self, before: Option<RunId>, limit: usize) -> Result<Vec<RunId>> {
        self.readers.all(select::run_ids(before, limit)).await
    }

    async fn unfinished(&self) -> Result<Vec<Unfinished>> {
        self.readers.all(list::unfinished()).await
    }
}

#[async_trait]
impl Sessions for SqliteStore {
    async fn session(&self, session_id: SessionId) -> Result<Option<Session>> {
        self.readers.one(select::session(session_id)).await
    }

    async fn session_of(
        &self,
        principal_id: &PrincipalId,
        kind: SessionKind,
    ) -> Result<Option<Session>> {
        self.readers.one(select::session_of(principal_id, kind)).await
    }

    async fn sessions(&self) -> Result<Vec<Session>> {
        self.readers.all(select::sessions()).await
    }

    async fn session_page(&self, query: SessionQuery) -> Result<Vec<Session>> {
        self.readers.all(select::session_page(Engine::Sqlite, &query)).await
    }

    async fn next_step_index(&self, session_id: SessionId) -> Result<u64> {
        self.writer()?;
        if let Some(given) = locked(&self.indexes).get_mut(&session_id) {
            *given += 1;
            return Ok(*given);
        }
        let chain = self
            .readers
            .point(|connection| read::chain(connection, session_id))?
            .ok_or(StoreError::UnknownSession(session_id))?;
        // Another caller may have inserted it meanwhile.
        let mut indexes = locked(&self.indexes);
        let given = indexes.entry(session_id).or_insert(chain.last_step_index);
        *given += 1;
        Ok(*given)
    }
}

#[async_trait]
impl Approvals for SqliteStore {
    async fn approval(&self, approval_id: ApprovalId) -> Result<Option<Approval>> {
        self.readers.one(select::approval(approval_id)).await
    }

    async fn approvals(&self, query: ApprovalQuery) -> Result<Vec<Approval>> {
        self.readers.all(select::approvals(&query)).await
    }

    async fn open_approvals(&self, principal_id: Option<&PrincipalId>) -> Result<u64> {
        self.readers.number(select::open_approvals(principal_id)).await
    }
}

#[async_trait]
impl Budgets for SqliteStore {
    async fn used(&self, accounts: &[Account]) -> Result<Vec<Decimal>> {
        let used = |connection: &Connection| -> Result<Vec<Decimal>> {
            let used = |account| {
                let balance = cells::one(connection, select::account(account))?;
                Ok(balance.map(|balance| balance.used).unwrap_or_default())
            };
            accounts.iter().map(used).collect()
        };
        let alone = self.writer.as_ref().and_then(|writer| writer.read_alone(used));
        alone.unwrap_or_else(|| self.readers.point(used))
    }

    async fn accounts(
        &self,
        budget: &BudgetName,
        window: Window,
        limit: usize,
    ) -> Result<Vec<Balance>> {
        self.readers.all(select::accounts(budget, window, limit)).await
    }

    async fn balances(&self) -> Result<Vec<Balance>> {
        self.readers.all(select::balances()).await
    }
}

#[async_trait]
impl Events for SqliteStore {
    async fn events_by_id(&self, event_ids: &[ArtifactId]) -> Result<Vec<Event>> {
        let event_ids = event_ids.to_vec();
        let query = move |connection: &Connection| {
            let found = event_ids.iter().map(|id| cells::one(connection, select::event(*id)));
            found.filter_map(Result::transpose).collect()
        };
        self.readers.read(query).await
    }

    async fn events(&self, query: EventQuery) -> Result<Vec<PlacedEvent>> {
        self.readers.all(select::events(Engine::Sqlite, &query)).await
    }

    async fn opened_turns(&self, query: TurnQuery) -> Result<Vec<Event>> {
        self.readers.all(list::opened_turns(&query)).await
    }

    async fn last_position(&self) -> Result<u64> {
        self.readers.number(list::last_position(EVENTS)).await
    }

    async fn last_loose_position(&self) -> Result<u64> {
        match &self.writer {
            Some(writer) => Ok(writer.last_loose_position()),
            None => self.readers.number(select::last_loose_position(Engine::Sqlite)).await,
        }
    }

    async fn committed_loose_position(&self) -> Result<Option<u64>> {
        Ok(self.writer.as_ref().map(Writer::last_loose_position))
    }

    async fn loose_page(&self, after: u64, limit: usize) -> Result<Vec<(u64, LinkedEvent)>> {
        self.readers.all(select::loose_page(Engine::Sqlite, after, limit)).await
    }
}

#[async_trait]
impl Cursors for SqliteStore {
    async fn take_cursor(&self, name: &str, first: u64) -> Result<Option<u64>> {
        let name = name.to_owned();
        let take = move |connection: &Connection| cursors::take(connection, &name, first);
        self.writer()?.between_batches(take).await.map(Some)
    }

    async fn move_cursor(&self, cursor: &Cursor) -> Result<bool> {
        let cursor = cursor.clone();
        let step = move |connection: &Connection| cursors::step(connection, &cursor);
        self.writer()?.between_batches(step).await
    }

    async fn cursors(&self) -> Result<Vec<Cursor>> {
        self.readers.all(select::cursors()).await
    }
}

#[async_trait]
impl Audits for SqliteStore {
    async fn counts(&self) -> Result<Counts> {
        self.readers.read(list::counts).await
    }

    async fn moment(&self) -> Result<Moment> {
        self.readers.read(audit::moment).await
    }

    async fn audit(
        &self,
        last: &Counts,
        before: Option<RunId>,
        limit: usize,
    ) -> Result<Vec<Audited>> {
        let last = *last;
        let keys = self.keys.clone();
        let page =
            move |connection: &Connection| audit::page(connection, &keys, &last, before, limit);
        self.readers.read(page).await
    }

    async fn shared_keys(&self, limit: usize) -> Result<Vec<IdempotencyKey>> {
        self.readers.all(list::shared_keys(limit)).await
    }

    async fn size_bytes(&self) -> Result<Option<u64>> {
        self.readers.number(list::size_bytes()).await.map(Some)
    }

    async fn damage(&self) -> Result<Vec<String>> {
        let mut found = self.check("integrity_check").await?;
        match self.readers.read(schema::differences).await {
            Ok(differences) => found.extend(differences),
            // The schema itself is damaged.
            Err(StoreError::Broken(why)) => found.push(why),
            Err(error) => return Err(error),
        }
        Ok(found)
    }
}

#[async_trait]
impl Erasables for SqliteStore {
    async fn erasable(&self, run_id: RunId) -> Result<Option<ErasableArgs>> {
        let stored = self.readers.one(select::erasable(run_id)).await?;
        Ok(stored.map(|stored| self.keys.erasable(stored)))
    }

    async fn erasable_page(&self, after: Option<RunId>, limit: usize) -> Result<Vec<ErasableArgs>> {
        let stored = self.readers.all(select::erasable_page(after, limit)).await?;
        Ok(stored.into_iter().map(|stored| self.keys.erasable(stored)).collect())
    }

    async fn erase(&self, commit: EraseCommit) -> Result<()> {
        self.write(Write::Erase(Box::new(commit))).await.map(drop)
    }
}

#[async_trait]
impl Archives for SqliteStore {
    async fn ended(&self, query: EndedQuery) -> Result<Vec<EndedRun>> {
        self.readers.all(select::ended(&query)).await
    }

    async fn archive(&self, commit: ArchiveCommit) -> Result<()> {
        self.write(Write::Archive(Box::new(commit))).await.map(drop)
    }

    async fn archived_run(&self, run_id: RunId) -> Result<Option<ArchivedRun>> {
        self.readers.one(select::archived_run(run_id)).await
    }

    async fn archived_page(&self, after: u64, limit: usize) -> Result<Vec<KeptRun>> {
        self.readers.all(select::archived_page(after, limit)).await
    }
}
