//! The store in PostgreSQL: any number of nodes on one database.

mod servers;
mod open;
mod pooler;
mod schema;
mod moving;
mod link;
mod writer;
mod facts;
mod write;
mod readers;
mod read;
mod list;
mod cells;
mod columns;
mod point;
mod nodes;
mod waiting;
mod listen;
mod backup;
mod error;
mod guards;
mod roofline;

use std::sync::Arc;

use async_trait::async_trait;
use stepgate_core::digest::Digest;
use stepgate_core::event::Event;
use stepgate_core::ids::{ArtifactId, IdempotencyKey, PrincipalId, RunId, SessionId};
use stepgate_core::journal::StateError;
use stepgate_core::ports::{
    Announcement, Audited, Audits, Counts, Cursor, Cursors, Dossier, Locks, Moment, Node, Nodes,
    Recollection, RunQuery, Runs, StoreError, TurnQuery, Unfinished, Unreached,
};
use stepgate_core::run::Run;
use stepgate_core::session::Session;
use stepgate_core::time::Timestamp;
use tokio::sync::watch;
use tokio::task::JoinHandle;

pub use backup::Restoring;
pub use error::OpenError;
pub use open::PostgresOptions;
pub use roofline::{Scratch, Script};

use crate::Result;
use crate::locks::TraceLocks;
use crate::payload_keys::PayloadKeys;
use crate::plan::Write;
use crate::rows::{event_from, session_from};
use crate::search::Finder;
use crate::select::{self, Engine, Select};
use crate::sql::{Database, SqlStore};
use crate::tables::{CURSORS, Cell, LOOSE_EVENTS, SESSIONS};
use cells::{all, escaped, one};
use link::Query;
use listen::Listener;
use open::{Address, Lines};
use point::{Durability, Point};
use readers::{Readers, Source};
use writer::Writer;

/// How many runs are read in one round trip.
const RUNS_AT_ONCE: usize = 32;

/// A store in a PostgreSQL database.
pub type PostgresStore = SqlStore<Postgres>;

/// The connections of one node to its database.
#[derive(Debug)]
pub struct Postgres {
    readers: Readers,
    point: Arc<Point>,
    /// None where the store was opened for reading only.
    desk: Option<Desk>,
}

/// What a node needs for writing.
#[derive(Debug)]
struct Desk {
    writer: Writer,
    node: Arc<nodes::Node>,
    lines: Lines,
    listener: Listener,
    renewing: JoinHandle<()>,
    /// Signals that the node leaves the store.
    leaving: watch::Sender<bool>,
}

impl Drop for Desk {
    fn drop(&mut self) {
        self.renewing.abort();
        if *self.leaving.borrow() {
            return;
        }
        let node = Arc::clone(&self.node);
        // If the runtime is gone too, the lease expires by itself.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { node.leave().await });
        }
    }
}

impl PostgresStore {
    /// Opens a store as one of its nodes, and creates or migrates its tables as needed.
    pub async fn open(url: &str, options: PostgresOptions) -> Result<Self, OpenError> {
        let address = Address::of(url, &options)?;
        let pool = address.pool(&options);
        drop(open::first(&pool, &address.shown, false).await?);
        let shown = address.shown.clone();
        let other = |error: StoreError| OpenError::Other { shown, detail: error.to_string() };
        let lines = Lines::new(&address, &options);
        let own = Point::new(lines.clone(), options.answer_wait, Durability::Before);
        let node = nodes::Node::register(own, &options).await.map_err(other)?;
        let told = Arc::clone(&node);
        let is_own = move |incarnation| told.incarnation() == incarnation;
        let listener = Listener::start(address, pool.clone(), options.answer_wait, is_own);
        let renewing = tokio::spawn(Arc::clone(&node).keep_renewing());
        let (leaving, left) = watch::channel(false);
        let writer = Writer::start(lines.clone(), Arc::clone(&node), &options, left);
        let desk = Desk { writer, node, lines: lines.clone(), listener, renewing, leaving };
        Ok(Self::over(Source::Pool(pool), lines, Some(desk), &options))
    }

    /// Opens an existing store for reading only. Nothing in it changes, and all reads see one snapshot,
    /// whatever nodes write meanwhile.
    pub async fn open_read_only(url: &str, options: PostgresOptions) -> Result<Self, OpenError> {
        let address = Address::of(url, &options)?;
        let pool = address.pool(&options);
        let connection = open::first(&pool, &address.shown, true).await?;
        let lines = Lines::new(&address, &options);
        // The snapshot is taken by the first read.
        let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;
                     SET LOCAL idle_in_transaction_session_timeout = 0;
                     SELECT count(*) FROM stepgate_store";
        let begun = connection.batch_execute(begin).await;
        begun.map_err(|error| error::while_opening(&address.shown, &error))?;
        let source = Source::OneMoment(Arc::new(tokio::sync::Mutex::new(connection)));
        Ok(Self::over(source, lines, None, &options))
    }

    fn over(source: Source, lines: Lines, desk: Option<Desk>, options: &PostgresOptions) -> Self {
        let point = Point::new(lines, options.answer_wait, Durability::After);
        let readers = Readers { source, patience: options.answer_wait };
        Self::of(Postgres { readers, point, desk }, options.lock_wait)
    }

    /// What the database's clock says, by which leases are measured.
    pub async fn now(&self) -> Result<Timestamp> {
        let ms = self.database.one(list::clock()).await?.unwrap_or(0);
        Ok(Timestamp::from_millisecond(i64::try_from(ms).unwrap_or(i64::MAX)))
    }

    /// Renews this node's lease now instead of when it is due. If the lease has expired, the node registers
    /// as a new incarnation.
    pub async fn renew_lease(&self) -> Result<()> {
        self.database.desk()?.node.renew().await
    }
}

impl Postgres {
    fn desk(&self) -> Result<&Desk> {
        let read_only = || StoreError::Unavailable("opened read-only".into());
        self.desk.as_ref().ok_or_else(read_only)
    }
}

impl Database for Postgres {
    const ENGINE: Engine = Engine::Postgres;
    const SYSTEM: &'static str = "postgresql";
    const COUNTED: fn(&RunQuery, Finder) -> Select<u64> = list::counted;
    const RUNS: fn(&RunQuery, Finder) -> Select<Run> = list::runs;
    const OPENED_TURNS: fn(&TurnQuery) -> Select<Event> = list::opened_turns;

    fn unfinished(&self) -> Select<Unfinished> {
        list::unfinished(self.desk.as_ref().map(|desk| desk.node.incarnation()))
    }

    async fn all<T: Send + 'static>(&self, select: Select<T>) -> Result<Vec<T>> {
        let (table, read) = (select.table, select.read);
        all(&self.readers.rows(select.into()).await?, table, read)
    }

    async fn one<T: Send + 'static>(&self, select: Select<T>) -> Result<Option<T>> {
        let (table, read) = (select.table, select.read);
        one(&self.readers.rows(select.into()).await?, table, read)
    }

    async fn look_up<T: Send + 'static>(&self, select: Select<T>) -> Result<Option<T>> {
        if self.desk.is_none() {
            return self.one(select).await;
        }
        let (table, read) = (select.table, select.read);
        one(&self.point.ask(select.into()).await?, table, read)
    }

    async fn dossier(&self, run_id: RunId, keys: &PayloadKeys) -> Result<Option<Dossier>> {
        read::dossier_from(&self.readers.read(&read::dossier(run_id)).await?, keys)
    }

    /// Reads many runs in one round trip.
    async fn recollections(&self, run_ids: &[RunId]) -> Result<Vec<Recollection>> {
        let mut found = Vec::new();
        for run_ids in run_ids.chunks(RUNS_AT_ONCE) {
            let queries: Vec<Query> =
                run_ids.iter().copied().flat_map(read::recollection).collect();
            let rows = self.readers.read(&queries).await?;
            for rows in rows.chunks(queries.len() / run_ids.len()) {
                found.extend(read::recollection_from(rows)?);
            }
        }
        Ok(found)
    }

    async fn events_by_id(&self, event_ids: &[ArtifactId]) -> Result<Vec<Event>> {
        let ids: Vec<String> = event_ids.iter().map(ToString::to_string).collect();
        let sql = LOOSE_EVENTS.select() + " WHERE event_id = ANY($1)";
        let rows = self.readers.rows(Query::new(sql, vec![Box::new(ids)])).await?;
        all(&rows, LOOSE_EVENTS, |cells| Ok(event_from(cells)?.event))
    }

    async fn next_step_index(&self, session_id: SessionId) -> Result<u64> {
        self.desk()?;
        self.point.next_index(session_id).await
    }

    fn committed_loose_position(&self) -> Option<u64> {
        self.desk.as_ref().and_then(|desk| desk.writer.committed_loose_position())
    }

    async fn write(&self, write: Write) -> Result<Option<Session>> {
        let Desk { writer, node, .. } = self.desk()?;
        let claim = write.commit().and_then(|commit| node.claim_on(commit.place.run_id));
        writer.write(write, claim).await
    }
}

#[async_trait]
impl Locks for PostgresStore {
    async fn acquire_trace_lock(&self, trace_id: RunId) -> Result<()> {
        self.locks.acquire(trace_id).await?;
        let Some(desk) = &self.database.desk else { return Ok(()) };
        // A caller that is dropped while another node is asked leaves no lock behind.
        let held = Held { locks: &self.locks, trace_id: Some(trace_id) };
        desk.node.claim(trace_id).await?;
        held.keep();
        Ok(())
    }

    async fn release_trace_lock(&self, trace_id: RunId) -> Result<()> {
        let disowned = match &self.database.desk {
            Some(desk) => desk.node.disown(trace_id).await,
            None => Ok(()),
        };
        self.locks.release(trace_id);
        disowned
    }

    async fn may_dispatch(&self, trace_id: RunId) -> Result<()> {
        self.database.desk()?.node.may_dispatch(trace_id).await
    }
}

#[async_trait]
impl Cursors for PostgresStore {
    async fn take_cursor(&self, name: &str, first: u64) -> Result<Option<u64>> {
        // If another living node has it, there is no row. A reader may read twice, so a lease that is renewed at this
        // moment does no harm.
        let sql = "INSERT INTO cursors AS there (name, reached, owner) VALUES ($1, $2, $3)
                   ON CONFLICT (name) DO UPDATE SET owner = excluded.owner
                   WHERE there.owner IS NULL OR there.owner = excluded.owner
                      OR NOT EXISTS (SELECT 1 FROM nodes WHERE incarnation = there.owner
                                       AND expires_at > clock_timestamp())
                   RETURNING reached";
        let node = &self.database.desk()?.node;
        let values = [Cell::text_of(name), first.into(), Cell::Number(node.incarnation())];
        let rows = node.ask(Query::of(sql, values)).await?;
        one(&rows, CURSORS, |cells| cells.number("reached"))
    }

    async fn move_cursor(&self, cursor: &Cursor) -> Result<bool> {
        let sql = "UPDATE cursors SET reached = greatest(reached, $2), error = $3
                   WHERE name = $1 AND owner = $4 RETURNING reached";
        let node = &self.database.desk()?.node;
        let error = cursor.error.as_deref().map(|error| Cell::text_of(escaped(error)));
        let (name, owner) = (Cell::text_of(&cursor.name), Cell::Number(node.incarnation()));
        let values = [name, cursor.reached.into(), error.into(), owner];
        Ok(!node.ask(Query::of(sql, values)).await?.is_empty())
    }

    async fn cursors(&self) -> Result<Vec<Cursor>> {
        self.database.all(select::cursors()).await
    }
}

#[async_trait]
impl Audits for PostgresStore {
    async fn counts(&self) -> Result<Counts> {
        let counts = self.database.one(list::counts()).await?;
        counts.ok_or_else(|| StateError::checksum("PostgreSQL does not count its rows").into())
    }

    async fn moment(&self) -> Result<Moment> {
        Ok(Moment::of_all(self).await)
    }

    /// Reads many runs in one round trip.
    async fn audit(
        &self,
        _last: &Counts,
        before: Option<RunId>,
        limit: usize,
    ) -> Result<Vec<Audited>> {
        let mut page = Vec::new();
        for run_ids in self.run_ids(before, limit).await?.chunks(RUNS_AT_ONCE) {
            let queries: Vec<Query> = run_ids.iter().copied().flat_map(read::dossier).collect();
            let rows = self.database.readers.read(&queries).await?;
            let dossiers = run_ids.iter().zip(rows.chunks(queries.len() / run_ids.len()));
            page.extend(dossiers.map(|(run_id, rows)| read::audited(*run_id, rows, &self.keys)));
        }
        Ok(page)
    }

    async fn shared_keys(&self, limit: usize) -> Result<Vec<IdempotencyKey>> {
        self.database.all(list::shared_keys(limit)).await
    }

    async fn size_bytes(&self) -> Result<Option<u64>> {
        self.database.one(list::size_bytes()).await
    }

    async fn damage(&self) -> Result<Vec<String>> {
        Ok(guards::differences(&self.database.readers.read(&guards::found()).await?))
    }
}

#[async_trait]
impl Nodes for PostgresStore {
    fn node_id(&self) -> Option<String> {
        self.database.desk.as_ref().map(|desk| desk.node.node_id().to_owned())
    }

    async fn nodes(&self) -> Result<Vec<Node>> {
        let this = self.database.desk.as_ref().map(|desk| desk.node.incarnation());
        let rows = self.database.readers.rows(list::nodes()).await?;
        all(&rows, list::NODES, |cells| list::node_from(cells, this))
    }

    async fn has_stray_runs(&self) -> Result<bool> {
        let Some(desk) = &self.database.desk else { return Ok(false) };
        let rows = self.database.readers.rows(list::stray_runs(desk.node.incarnation())).await?;
        Ok(!rows.is_empty())
    }

    async fn unreached(&self) -> Result<Vec<Unreached>> {
        let calls = self.database.all(waiting::calls()).await?;
        let waiting = waiting::by_executor(calls.into_iter().flatten());
        if waiting.is_empty() {
            return Ok(Vec::new());
        }
        let rows = self.database.readers.rows(waiting::last_nodes(&waiting)).await?;
        let last_nodes = all(&rows, list::NODES, waiting::last_node_from)?;
        Ok(waiting::unreached(waiting, last_nodes))
    }

    async fn lock_new_trace(&self, trace_id: RunId) -> Result<()> {
        self.locks.acquire(trace_id).await
    }

    async fn default_session_of(&self, principal_id: &PrincipalId) -> Result<Option<Session>> {
        let node_id = self.database.desk.as_ref().map(|desk| desk.node.node_id());
        let sql = SESSIONS.select()
            + " WHERE principal_id = $1 AND kind = 'default' AND node_id IS NOT DISTINCT FROM $2";
        let values = vec![Cell::text_of(principal_id.as_str()), node_id.map(Cell::text_of).into()];
        self.database.one(Select::new(SESSIONS, sql, values, session_from)).await
    }

    async fn tell_policy(&self, policy_hash: Digest) -> Result<()> {
        self.database.desk()?.node.tell(|told| told.policy_hash = Some(policy_hash)).await
    }

    async fn tell_executors(&self, executor_ids: Vec<String>) -> Result<()> {
        self.database.desk()?.node.tell(|told| told.executor_ids = executor_ids).await
    }

    async fn claim_executor(&self, executor_id: &str, mark: &str) -> Result<String> {
        self.database.desk()?.node.claim_executor(executor_id, mark).await
    }

    async fn leave(&self) {
        let Some(desk) = &self.database.desk else { return };
        desk.renewing.abort();
        desk.node.leave().await;
        desk.leaving.send_replace(true);
        desk.listener.stop();
        self.database.point.stop().await;
        desk.lines.pool.close();
        match &self.database.readers.source {
            Source::Pool(pool) => pool.close(),
            Source::OneMoment(_) => {}
        }
    }

    async fn elsewhere(&self) -> Announcement {
        match &self.database.desk {
            Some(desk) => desk.listener.next().await,
            None => std::future::pending().await,
        }
    }
}

/// A lock that is released on drop, unless it is kept.
struct Held<'a> {
    locks: &'a TraceLocks,
    trace_id: Option<RunId>,
}

impl Held<'_> {
    fn keep(mut self) {
        self.trace_id = None;
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        if let Some(trace_id) = self.trace_id {
            self.locks.release(trace_id);
        }
    }
}
