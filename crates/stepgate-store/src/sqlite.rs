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
mod cells;
pub(crate) mod backup;
mod error;
mod roofline;

use std::collections::HashMap;
use std::iter;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use rusqlite::{Connection, params};
use stepgate_core::event::Event;
use stepgate_core::ids::{ArtifactId, IdempotencyKey, RunId, SessionId};
use stepgate_core::lock::locked;
use stepgate_core::ports::{
    Alone, Audited, Audits, Counts, Cursor, Cursors, Dossier, Locks, Moment, Recollection,
    RunQuery, StoreError, TurnQuery, Unfinished,
};
use stepgate_core::run::Run;
use stepgate_core::session::Session;
use tokio::sync::Semaphore;

pub use error::OpenError;
pub use open::SqliteOptions;
pub use roofline::Roofline;

use crate::Result;
use crate::payload_keys::PayloadKeys;
use crate::plan::Write;
use crate::search::Finder;
use crate::select::{self, Engine, Select};
use crate::sql::{Database, SqlStore};
use crate::tables::{TABLES, integer};
use log::Log;
use writer::Writer;

/// A store in one SQLite file.
pub type SqliteStore = SqlStore<Sqlite>;

/// The connections of one process to its file.
#[derive(Debug)]
pub struct Sqlite {
    /// Declared before the writer, so that the readers are dropped first: the writer's last act, the
    /// checkpoint of the write-ahead log, then meets no reader.
    readers: Arc<Readers>,
    /// None where the store was opened for reading only.
    writer: Option<Writer>,
    /// The last index given in each session that was used since the start. It is never evicted: an index
    /// that was given and is not committed yet is recorded nowhere else.
    indexes: Mutex<HashMap<SessionId, u64>>,
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
        Ok(Self::over(readers, Some(writer), &options))
    }

    /// Opens an existing store for reading only. Nothing in the file changes. Each call reads the state at
    /// its moment and leaves no transaction open, so another process that writes can reset its write-ahead
    /// log.
    pub fn open_read_only(path: &Path) -> Result<Self, OpenError> {
        let options = SqliteOptions::default();
        Ok(Self::over(Readers::open(path, &options)?, None, &options))
    }

    fn over(readers: Arc<Readers>, writer: Option<Writer>, options: &SqliteOptions) -> Self {
        Self::of(Sqlite { readers, writer, indexes: Mutex::default() }, options.lock_wait)
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
            found.extend(self.database.readers.read(damage).await?);
        }
        Ok(found)
    }
}

impl Sqlite {
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

impl Database for Sqlite {
    const ENGINE: Engine = Engine::Sqlite;
    const SYSTEM: &'static str = "sqlite";
    const COUNTED: fn(&RunQuery, Finder) -> Select<u64> = list::counted;
    const RUNS: fn(&RunQuery, Finder) -> Select<Run> = list::runs;
    const OPENED_TURNS: fn(&TurnQuery) -> Select<Event> = list::opened_turns;

    fn unfinished(&self) -> Select<Unfinished> {
        list::unfinished()
    }

    async fn all<T: Send + 'static>(&self, select: Select<T>) -> Result<Vec<T>> {
        self.readers.read(move |connection| cells::all(connection, select)).await
    }

    async fn one<T: Send + 'static>(&self, select: Select<T>) -> Result<Option<T>> {
        self.readers.read(move |connection| cells::one(connection, select)).await
    }

    async fn look_up<T: Send + 'static>(&self, select: Select<T>) -> Result<Option<T>> {
        let query = |connection: &Connection| cells::first(connection, &select);
        let alone = self.writer.as_ref().and_then(|writer| writer.read_alone(query));
        alone.unwrap_or_else(|| self.readers.point(query))
    }

    async fn dossier(&self, run_id: RunId, keys: &PayloadKeys) -> Result<Option<Dossier>> {
        let keys = keys.clone();
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

    async fn events_by_id(&self, event_ids: &[ArtifactId]) -> Result<Vec<Event>> {
        let event_ids = event_ids.to_vec();
        let query = move |connection: &Connection| {
            let found = event_ids.iter().map(|id| cells::one(connection, select::event(*id)));
            found.filter_map(Result::transpose).collect()
        };
        self.readers.read(query).await
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

    fn committed_loose_position(&self) -> Option<u64> {
        self.writer.as_ref().map(Writer::last_loose_position)
    }

    async fn write(&self, write: Write) -> Result<Option<Session>> {
        self.writer()?.write(write).await
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
impl Cursors for SqliteStore {
    async fn take_cursor(&self, name: &str, first: u64) -> Result<Option<u64>> {
        let sql = "INSERT INTO cursors (name, reached) VALUES (?1, ?2)
                   ON CONFLICT (name) DO UPDATE SET reached = reached RETURNING reached";
        let name = name.to_owned();
        let take = move |connection: &Connection| {
            let values = params![name, integer(first)];
            let reached = connection.query_row(sql, values, |row| row.get::<_, i64>(0));
            Ok(u64::try_from(reached.map_err(error::while_open)?).unwrap_or(0))
        };
        self.database.writer()?.between_batches(take).await.map(Some)
    }

    async fn move_cursor(&self, cursor: &Cursor) -> Result<bool> {
        let sql = "UPDATE cursors SET reached = max(reached, ?2), error = ?3 WHERE name = ?1";
        let Cursor { name, reached, error } = cursor.clone();
        let step = move |connection: &Connection| {
            let moved = connection.execute(sql, params![name, integer(reached), error]);
            Ok(moved.map_err(error::while_open)? == 1)
        };
        self.database.writer()?.between_batches(step).await
    }

    async fn cursors(&self) -> Result<Vec<Cursor>> {
        self.database.all(select::cursors()).await
    }
}

#[async_trait]
impl Audits for SqliteStore {
    async fn counts(&self) -> Result<Counts> {
        self.database.readers.read(list::counts).await
    }

    async fn moment(&self) -> Result<Moment> {
        self.database.readers.read(audit::moment).await
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
        self.database.readers.read(page).await
    }

    async fn shared_keys(&self, limit: usize) -> Result<Vec<IdempotencyKey>> {
        self.database.all(list::shared_keys(limit)).await
    }

    async fn size_bytes(&self) -> Result<Option<u64>> {
        self.database.one(list::size_bytes()).await
    }

    async fn damage(&self) -> Result<Vec<String>> {
        let mut found = self.check("integrity_check").await?;
        match self.database.readers.read(schema::differences).await {
            Ok(differences) => found.extend(differences),
            // The schema itself is damaged.
            Err(StoreError::Broken(why)) => found.push(why),
            Err(error) => return Err(error),
        }
        Ok(found)
    }
}
