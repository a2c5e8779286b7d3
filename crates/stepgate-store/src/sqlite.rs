//! The embedded store: one file, one writing thread, many readers.

mod open;
mod schema;
mod writer;
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
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use rusqlite::Connection;
use stepgate_core::approval::Approval;
use stepgate_core::event::Event;
use stepgate_core::idempotency::Binding;
use stepgate_core::ids::{ApprovalId, ArtifactId, IdempotencyKey, PrincipalId, RunId, SessionId};
use stepgate_core::journal::{Appended, Checkpoint, ExecutionState};
use stepgate_core::lock::locked;
use stepgate_core::ports::{
    Alone, Announce, ApprovalQuery, Approvals, Audited, Audits, Counts, Cursor, Cursors, Dossier,
    EventQuery, Events, Journals, LinkedEvent, Locks, Moment, PlacedEvent, Recollection, RunQuery,
    Runs, SessionQuery, Sessions, StepCommit, StoreError, TurnQuery, Unfinished, Writes,
};
use stepgate_core::run::Run;
use stepgate_core::session::{Session, SessionKind};
use tokio::sync::Semaphore;

pub use error::OpenError;
pub use open::SqliteOptions;
pub use roofline::Roofline;

use crate::announcer::Announcer;
use crate::locks::TraceLocks;
use crate::plan::{Step, Write};
use crate::search::with_one_name;
use list::Care;
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
}

impl Alone for SqliteStore {}

impl SqliteStore {
    /// Opens a store, and creates or migrates the file as needed. The caller must hold the lock of the data
    /// directory.
    pub fn open(path: &Path, options: SqliteOptions) -> Result<Self, OpenError> {
        let connection = open::writer(path, &options)?;
        let readers = Readers::open(path, &options)?;
        let writer = Writer::start(connection, &options)
            .map_err(|error| OpenError::Io { path: path.to_owned(), detail: error.to_string() })?;
        Ok(Self {
            readers,
            writer: Some(writer),
            locks: TraceLocks::new(options.lock_wait),
            indexes: Mutex::default(),
            announcer: Announcer::default(),
        })
    }

    /// Opens an existing store for reading only. Nothing in the file changes. Each call reads the state at
    /// its moment and leaves no transaction open, so another process that writes can reset its write-ahead
    /// log.
    pub fn open_read_only(path: &Path) -> Result<Self, OpenError> {
        let options = SqliteOptions::default();
        Ok(Self {
            readers: Readers::open(path, &options)?,
            writer: None,
            locks: TraceLocks::new(options.lock_wait),
            indexes: Mutex::default(),
            announcer: Announcer::default(),
        })
    }

    /// Announces what it writes from now on.
    pub fn announcing_to(self, announce: Arc<dyn Announce>) -> Self {
        Self { announcer: Announcer::to(announce), ..self }
    }

    /// The damage that SQLite finds in the file, without a check of the indexes' content.
    pub async fn quick_check(&self) -> Result<Vec<String>, StoreError> {
        self.check(Care::Quick).await
    }

    /// Table by table, each in a transaction of its own: the write-ahead log cannot be reset while SQLite
    /// checks.
    async fn check(&self, care: Care) -> Result<Vec<String>, StoreError> {
        let mut found = Vec::new();
        for table in list::CHECKED_TABLES {
            let check = move |connection: &Connection| list::damage(connection, table, care);
            found.extend(self.readers.read(check).await?);
        }
        Ok(found)
    }

    async fn write(&self, write: Write) -> Result<Option<Session>, StoreError> {
        let announcement = Announcer::announcement(&write);
        let written = self.writer()?.write(write).await;
        self.announcer.tell(announcement, &written);
        written
    }

    fn writer(&self) -> Result<&Writer, StoreError> {
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
        query: impl FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
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

    fn read_now<T>(
        &self,
        query: impl FnOnce(&Connection) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let lift = |error: rusqlite::Error| error::while_open(&error);
        let idle = locked(&self.idle).pop();
        let connection = match idle {
            Some(connection) => connection,
            None => open::reader(&self.path, &self.options)
                .map_err(|error| StoreError::Unavailable(error.to_string()))?,
        };
        let transaction = connection.unchecked_transaction().map_err(lift)?;
        let answer = query(&transaction);
        transaction.finish().map_err(lift)?;
        locked(&self.idle).push(connection);
        answer
    }

    /// Reads one row by a unique key, on the caller's thread.
    fn point<T>(
        &self,
        query: impl FnOnce(&Connection) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        query(&locked(&self.point))
    }
}

#[async_trait]
impl Writes for SqliteStore {
    async fn commit(&self, commit: StepCommit) -> Result<(), StoreError> {
        self.write(Write::Step(Box::new(Step::of(commit)))).await.map(drop)
    }

    async fn append_event(&self, event: Event) -> Result<(), StoreError> {
        self.write(Write::Event(Box::new(event))).await.map(drop)
    }

    async fn open_session(&self, session: Session, event: Event) -> Result<Session, StoreError> {
        let session_id = session.session_id;
        let write = Write::Session(Box::new(session), Box::new(event));
        let answer = self.write(write).await?;
        answer.ok_or(StoreError::UnknownSession(session_id))
    }
}

#[async_trait]
impl Locks for SqliteStore {
    async fn acquire_trace_lock(&self, trace_id: RunId) -> Result<(), StoreError> {
        self.locks.acquire(trace_id).await
    }

    async fn release_trace_lock(&self, trace_id: RunId) -> Result<(), StoreError> {
        self.locks.release(trace_id);
        Ok(())
    }

    async fn may_dispatch(&self, _: RunId) -> Result<(), StoreError> {
        Ok(())
    }
}

#[async_trait]
impl Journals for SqliteStore {
    async fn load_state(&self, trace_id: RunId) -> Result<Option<ExecutionState>, StoreError> {
        let query = move |connection: &Connection| read::state(connection, trace_id);
        self.readers.read(query).await
    }

    async fn list_log_entries(
        &self,
        trace_id: RunId,
        after_seq: u64,
    ) -> Result<Vec<Appended>, StoreError> {
        let query = move |connection: &Connection| read::entries(connection, trace_id, after_seq);
        let rows = self.readers.read(query).await?;
        Ok(rows.into_iter().map(|(appended, _)| appended).collect())
    }

    async fn load_latest_checkpoint(
        &self,
        trace_id: RunId,
    ) -> Result<Option<Checkpoint>, StoreError> {
        let query = move |connection: &Connection| read::latest_checkpoint(connection, trace_id);
        self.readers.read(query).await
    }
}

#[async_trait]
impl Runs for SqliteStore {
    async fn binding(&self, key: &IdempotencyKey) -> Result<Option<Binding>, StoreError> {
        let query = |connection: &Connection| read::binding(connection, key);
        let alone = self.writer.as_ref().and_then(|writer| writer.read_alone(query));
        alone.unwrap_or_else(|| self.readers.point(query))
    }

    async fn dossier(&self, run_id: RunId) -> Result<Option<Dossier>, StoreError> {
        let query = move |connection: &Connection| read::dossier(connection, run_id);
        self.readers.read(query).await
    }

    async fn recollections(&self, run_ids: &[RunId]) -> Result<Vec<Recollection>, StoreError> {
        let run_ids = run_ids.to_vec();
        let query = move |connection: &Connection| {
            let found = run_ids.iter().map(|run_id| read::recollection(connection, *run_id));
            found.filter_map(Result::transpose).collect()
        };
        self.readers.read(query).await
    }

    async fn runs(&self, query: RunQuery) -> Result<Vec<Run>, StoreError> {
        let Some(query) = with_one_name(query) else { return Ok(Vec::new()) };
        let list = move |connection: &Connection| list::runs(connection, &query);
        self.readers.read(list).await
    }

    async fn run_ids(&self, before: Option<RunId>, limit: usize) -> Result<Vec<RunId>, StoreError> {
        let list = move |connection: &Connection| list::run_ids(connection, before, limit);
        self.readers.read(list).await
    }

    async fn unfinished(&self) -> Result<Vec<Unfinished>, StoreError> {
        self.readers.read(list::unfinished).await
    }
}

#[async_trait]
impl Sessions for SqliteStore {
    async fn session(&self, session_id: SessionId) -> Result<Option<Session>, StoreError> {
        let query = move |connection: &Connection| read::session(connection, session_id);
        self.readers.read(query).await
    }

    async fn session_of(
        &self,
        principal_id: &PrincipalId,
        kind: SessionKind,
    ) -> Result<Option<Session>, StoreError> {
        let principal_id = principal_id.clone();
        let query =
            move |connection: &Connection| read::session_of(connection, &principal_id, kind);
        self.readers.read(query).await
    }

    async fn sessions(&self) -> Result<Vec<Session>, StoreError> {
        self.readers.read(read::sessions).await
    }

    async fn session_page(&self, query: SessionQuery) -> Result<Vec<Session>, StoreError> {
        let list = move |connection: &Connection| list::session_page(connection, &query);
        self.readers.read(list).await
    }

    async fn next_step_index(&self, session_id: SessionId) -> Result<u64, StoreError> {
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
    async fn approval(&self, approval_id: ApprovalId) -> Result<Option<Approval>, StoreError> {
        let query = move |connection: &Connection| read::approval(connection, approval_id);
        self.readers.read(query).await
    }

    async fn approvals(&self, query: ApprovalQuery) -> Result<Vec<Approval>, StoreError> {
        let list = move |connection: &Connection| list::approvals(connection, &query);
        self.readers.read(list).await
    }

    async fn open_approvals(&self, principal_id: Option<&PrincipalId>) -> Result<u64, StoreError> {
        let principal_id = principal_id.cloned();
        self.readers.read(move |open| list::open_approvals(open, principal_id.as_ref())).await
    }
}

#[async_trait]
impl Events for SqliteStore {
    async fn events_by_id(&self, event_ids: &[ArtifactId]) -> Result<Vec<Event>, StoreError> {
        let event_ids = event_ids.to_vec();
        let query = move |connection: &Connection| {
            let found = event_ids.iter().map(|event_id| read::event(connection, *event_id));
            found.filter_map(Result::transpose).collect()
        };
        self.readers.read(query).await
    }

    async fn events(&self, query: EventQuery) -> Result<Vec<PlacedEvent>, StoreError> {
        let list = move |connection: &Connection| list::events(connection, &query);
        self.readers.read(list).await
    }

    async fn opened_turns(&self, query: TurnQuery) -> Result<Vec<Event>, StoreError> {
        let list = move |connection: &Connection| list::opened_turns(connection, &query);
        self.readers.read(list).await
    }

    async fn last_position(&self) -> Result<u64, StoreError> {
        self.readers.read(list::last_position).await
    }

    async fn loose_page(
        &self,
        after: u64,
        limit: usize,
    ) -> Result<Vec<(u64, LinkedEvent)>, StoreError> {
        let list = move |connection: &Connection| list::loose_page(connection, after, limit);
        self.readers.read(list).await
    }
}

#[async_trait]
impl Cursors for SqliteStore {
    async fn take_cursor(&self, name: &str, first: u64) -> Result<Option<u64>, StoreError> {
        let name = name.to_owned();
        let take = move |connection: &Connection| cursors::take(connection, &name, first);
        self.writer()?.between_batches(take).await.map(Some)
    }

    async fn move_cursor(&self, cursor: &Cursor) -> Result<bool, StoreError> {
        let cursor = cursor.clone();
        let step = move |connection: &Connection| cursors::step(connection, &cursor);
        self.writer()?.between_batches(step).await
    }

    async fn cursors(&self) -> Result<Vec<Cursor>, StoreError> {
        self.readers.read(cursors::all_of).await
    }
}

#[async_trait]
impl Audits for SqliteStore {
    async fn counts(&self) -> Result<Counts, StoreError> {
        self.readers.read(list::counts).await
    }

    async fn moment(&self) -> Result<Moment, StoreError> {
        self.readers.read(audit::moment).await
    }

    async fn audit(
        &self,
        last: &Counts,
        before: Option<RunId>,
        limit: usize,
    ) -> Result<Vec<Audited>, StoreError> {
        let last = *last;
        let page = move |connection: &Connection| audit::page(connection, &last, before, limit);
        self.readers.read(page).await
    }

    async fn shared_keys(&self, limit: usize) -> Result<Vec<IdempotencyKey>, StoreError> {
        let list = move |connection: &Connection| list::shared_keys(connection, limit);
        self.readers.read(list).await
    }

    async fn size_bytes(&self) -> Result<Option<u64>, StoreError> {
        self.readers.read(list::size_bytes).await.map(Some)
    }

    async fn damage(&self) -> Result<Vec<String>, StoreError> {
        let mut found = self.check(Care::Whole).await?;
        match self.readers.read(schema::differences).await {
            Ok(differences) => found.extend(differences),
            // The schema itself is damaged.
            Err(StoreError::Broken(why)) => found.push(why),
            Err(error) => return Err(error),
        }
        Ok(found)
    }
}
