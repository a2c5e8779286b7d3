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
mod cursors;
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
use deadpool_postgres::Object;
use stepgate_core::approval::Approval;
use stepgate_core::archive::ArchivedRun;
use stepgate_core::budget::{Account, Balance, BudgetName, Window};
use stepgate_core::decimal::Decimal;
use stepgate_core::digest::Digest;
use stepgate_core::event::Event;
use stepgate_core::idempotency::Binding;
use stepgate_core::ids::{ApprovalId, ArtifactId, IdempotencyKey, PrincipalId, RunId, SessionId};
use stepgate_core::journal::{Appended, Checkpoint, ExecutionState, StateError};
use stepgate_core::ports::{
    Announce, Announcement, ApprovalQuery, Approvals, ArchiveCommit, Archives, Audited, Audits,
    Budgets, Counts, Cursor, Cursors, Dossier, EndedQuery, EndedRun, ErasableArgs, Erasables,
    EraseCommit, EventQuery, Events, Journals, KeptRun, LinkedEvent, Locks, Moment, Node, Nodes,
    PlacedEvent, Recollection, RunQuery, Runs, SessionQuery, Sessions, StepCommit, StoreError,
    TurnQuery, Unfinished, Unreached, Writes,
};
use stepgate_core::run::Run;
use stepgate_core::session::{Session, SessionKind};
use stepgate_core::spans::COMMIT;
use stepgate_core::time::Timestamp;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tracing::instrument;

pub use backup::Restoring;
pub use error::OpenError;
pub use open::PostgresOptions;
pub use roofline::{Scratch, Script};

use crate::Result;
use crate::announcer::Announcer;
use crate::chunk::{self, Chunk};
use crate::locks::TraceLocks;
use crate::payload_keys::PayloadKeys;
use crate::plan::{Step, Write};
use crate::rows::{balance_from, binding_from, event_from};
use crate::search::with_one_name;
use crate::select::{self, Engine};
use crate::tables::{BINDINGS, BUDGET_ACCOUNTS, CURSORS, LOOSE_EVENTS};
use cells::{all, one};
use link::Query;
use listen::Listener;
use open::{Address, Lines};
use point::{Durability, Point};
use readers::{Readers, Source};
use writer::Writer;

/// How many runs are read in one round trip.
const RUNS_AT_ONCE: usize = 32;

/// A store in a PostgreSQL database.
#[derive(Debug)]
pub struct PostgresStore {
    readers: Readers,
    point: Arc<Point>,
    locks: TraceLocks,
    /// None where the store was opened for reading only.
    desk: Option<Desk>,
    announcer: Announcer,
    keys: PayloadKeys,
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
        Ok(Self {
            point: Point::new(lines.clone(), options.answer_wait, Durability::After),
            readers: Readers { source: Source::Pool(pool), patience: options.answer_wait },
            locks: TraceLocks::new(options.lock_wait),
            desk: Some(Desk { writer, node, lines, listener, renewing, leaving }),
            announcer: Announcer::default(),
            keys: PayloadKeys::default(),
        })
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
        Ok(Self::reading(Arc::new(tokio::sync::Mutex::new(connection)), lines, &options))
    }

    /// Reads on one connection, which stays in its transaction.
    fn reading(
        connection: Arc<tokio::sync::Mutex<Object>>,
        lines: Lines,
        options: &PostgresOptions,
    ) -> Self {
        let source = Source::OneMoment(connection);
        Self {
            point: Point::new(lines, options.answer_wait, Durability::After),
            readers: Readers { source, patience: options.answer_wait },
            locks: TraceLocks::new(options.lock_wait),
            desk: None,
            announcer: Announcer::default(),
            keys: PayloadKeys::default(),
        }
    }

    /// What the database's clock says, by which leases are measured.
    pub async fn now(&self) -> Result<Timestamp> {
        let ms = self.readers.one(list::clock()).await?.unwrap_or(0);
        Ok(Timestamp::from_millisecond(i64::try_from(ms).unwrap_or(i64::MAX)))
    }

    /// Announces its own writes from now on. Writes of other nodes come through `elsewhere`.
    pub fn announcing_to(self, announce: Arc<dyn Announce>) -> Self {
        Self { announcer: Announcer::to(announce), ..self }
    }

    /// Encrypts original payloads under these keys from now on, and reads what they have encrypted.
    pub fn with_payload_keys(self, keys: PayloadKeys) -> Self {
        Self { keys, ..self }
    }

    /// Renews this node's lease now instead of when it is due. If the lease has expired, the node registers
    /// as a new incarnation.
    pub async fn renew_lease(&self) -> Result<()> {
        self.desk()?.node.renew().await
    }

    async fn write(&self, write: Write) -> Result<Option<Session>> {
        let Desk { writer, node, .. } = self.desk()?;
        let claim = match &write {
            Write::Step(step) => node.claim_on(step.commit().place.run_id),
            Write::Event(_) | Write::Session(..) | Write::Archive(_) | Write::Erase(_) => None,
        };
        let announcement = Announcer::announcement(&write);
        let written = writer.write(write, claim).await;
        self.announcer.tell(announcement, &written);
        written
    }

    fn desk(&self) -> Result<&Desk> {
        let read_only = || StoreError::Unavailable("opened read-only".into());
        self.desk.as_ref().ok_or_else(read_only)
    }
}

#[async_trait]
impl Writes for PostgresStore {
    #[instrument(
        target = COMMIT, name = "commit", level = "debug", skip_all,
        fields(otel.kind = "client", db.system.name = "postgresql", db.operation.name = "COMMIT")
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
impl Locks for PostgresStore {
    async fn acquire_trace_lock(&self, trace_id: RunId) -> Result<()> {
        self.locks.acquire(trace_id).await?;
        let Some(desk) = &self.desk else { return Ok(()) };
        // A caller that is dropped while another node is asked leaves no lock behind.
        let held = Held { locks: &self.locks, trace_id: Some(trace_id) };
        desk.node.claim(trace_id).await?;
        held.keep();
        Ok(())
    }

    async fn release_trace_lock(&self, trace_id: RunId) -> Result<()> {
        let disowned = match &self.desk {
            Some(desk) => desk.node.disown(trace_id).await,
            None => Ok(()),
        };
        self.locks.release(trace_id);
        disowned
    }

    async fn may_dispatch(&self, trace_id: RunId) -> Result<()> {
        self.desk()?.node.may_dispatch(trace_id).await
    }
}

#[async_trait]
impl Journals for PostgresStore {
    async fn load_state(&self, trace_id: RunId) -> Result<Option<ExecutionState>> {
        let trace = self.readers.one(read::trace(trace_id)).await?;
        Ok(trace.and_then(|trace| ExecutionState::of(trace_id, trace.session_id, &trace.tail)))
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
impl Runs for PostgresStore {
    async fn binding(&self, key: &IdempotencyKey) -> Result<Option<Binding>> {
        match self.desk {
            Some(_) => {
                let rows = self.point.ask(select::binding(Engine::Postgres, key).into()).await?;
                one(&rows, BINDINGS, binding_from)
            }
            None => self.readers.one(select::binding(Engine::Postgres, key)).await,
        }
    }

    async fn dossier(&self, run_id: RunId) -> Result<Option<Dossier>> {
        read::dossier_from(&self.readers.read(&read::dossier(run_id)).await?, &self.keys)
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

    async fn runs(&self, query: RunQuery) -> Result<Vec<Run>> {
        let Some(query) = with_one_name(query) else { return Ok(Vec::new()) };
        let finder = self.readers.finder(&query).await?;
        self.readers.all(list::runs(&query, finder)).await
    }

    async fn run_ids(&self, before: Option<RunId>, limit: usize) -> Result<Vec<RunId>> {
        self.readers.all(select::run_ids(before, limit)).await
    }

    async fn unfinished(&self) -> Result<Vec<Unfinished>> {
        let incarnation = self.desk.as_ref().map(|desk| desk.node.incarnation());
        self.readers.all(list::unfinished(incarnation)).await
    }
}

#[async_trait]
impl Sessions for PostgresStore {
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
        self.readers.all(select::session_page(Engine::Postgres, &query)).await
    }

    async fn next_step_index(&self, session_id: SessionId) -> Result<u64> {
        self.desk()?;
        self.point.next_index(session_id).await
    }
}

#[async_trait]
impl Approvals for PostgresStore {
    async fn approval(&self, approval_id: ApprovalId) -> Result<Option<Approval>> {
        self.readers.one(select::approval(approval_id)).await
    }

    async fn approvals(&self, query: ApprovalQuery) -> Result<Vec<Approval>> {
        self.readers.all(select::approvals(&query)).await
    }

    async fn open_approvals(&self, principal_id: Option<&PrincipalId>) -> Result<u64> {
        Ok(self.readers.one(select::open_approvals(principal_id)).await?.unwrap_or(0))
    }
}

#[async_trait]
impl Budgets for PostgresStore {
    async fn used(&self, accounts: &[Account]) -> Result<Vec<Decimal>> {
        let query = read::accounts(accounts.iter(), "");
        let rows = match self.desk {
            Some(_) => self.point.ask(query).await?,
            None => self.readers.rows(query).await?,
        };
        let found = all(&rows, BUDGET_ACCOUNTS, balance_from)?;
        let used = |account: &Account| {
            let balance = found.iter().find(|balance| balance.account == *account);
            balance.map(|balance| balance.used).unwrap_or_default()
        };
        Ok(accounts.iter().map(used).collect())
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
impl Events for PostgresStore {
    async fn events_by_id(&self, event_ids: &[ArtifactId]) -> Result<Vec<Event>> {
        let rows = self.readers.rows(read::events_by_id(event_ids)).await?;
        all(&rows, LOOSE_EVENTS, |cells| Ok(event_from(cells)?.event))
    }

    async fn events(&self, query: EventQuery) -> Result<Vec<PlacedEvent>> {
        self.readers.all(select::events(Engine::Postgres, &query)).await
    }

    async fn opened_turns(&self, query: TurnQuery) -> Result<Vec<Event>> {
        self.readers.all(list::opened_turns(&query)).await
    }

    async fn last_position(&self) -> Result<u64> {
        Ok(self.readers.one(list::last_position()).await?.unwrap_or(0))
    }

    async fn last_loose_position(&self) -> Result<u64> {
        let select = select::last_loose_position(Engine::Postgres);
        let position = match self.desk {
            Some(_) => {
                let (table, read) = (select.table, select.read);
                one(&self.point.ask(select.into()).await?, table, read)?
            }
            None => self.readers.one(select).await?,
        };
        Ok(position.unwrap_or(0))
    }

    async fn committed_loose_position(&self) -> Result<Option<u64>> {
        Ok(self.desk.as_ref().and_then(|desk| desk.writer.committed_loose_position()))
    }

    async fn loose_page(&self, after: u64, limit: usize) -> Result<Vec<(u64, LinkedEvent)>> {
        self.readers.all(select::loose_page(Engine::Postgres, after, limit)).await
    }
}

#[async_trait]
impl Cursors for PostgresStore {
    async fn take_cursor(&self, name: &str, first: u64) -> Result<Option<u64>> {
        let node = &self.desk()?.node;
        let rows = node.ask(cursors::take(name, first, node.incarnation())).await?;
        one(&rows, CURSORS, |cells| cells.number("reached"))
    }

    async fn move_cursor(&self, cursor: &Cursor) -> Result<bool> {
        let node = &self.desk()?.node;
        let rows = node.ask(cursors::step(cursor, node.incarnation())).await?;
        Ok(!rows.is_empty())
    }

    async fn cursors(&self) -> Result<Vec<Cursor>> {
        self.readers.all(select::cursors()).await
    }
}

#[async_trait]
impl Audits for PostgresStore {
    async fn counts(&self) -> Result<Counts> {
        let counts = self.readers.one(list::counts()).await?;
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
            let rows = self.readers.read(&queries).await?;
            let dossiers = run_ids.iter().zip(rows.chunks(queries.len() / run_ids.len()));
            page.extend(dossiers.map(|(run_id, rows)| read::audited(*run_id, rows, &self.keys)));
        }
        Ok(page)
    }

    async fn shared_keys(&self, limit: usize) -> Result<Vec<IdempotencyKey>> {
        self.readers.all(list::shared_keys(limit)).await
    }

    async fn size_bytes(&self) -> Result<Option<u64>> {
        self.readers.one(list::size_bytes()).await
    }

    async fn damage(&self) -> Result<Vec<String>> {
        Ok(guards::differences(&self.readers.read(&guards::found()).await?))
    }
}

#[async_trait]
impl Nodes for PostgresStore {
    fn node_id(&self) -> Option<String> {
        self.desk.as_ref().map(|desk| desk.node.node_id().to_owned())
    }

    async fn nodes(&self) -> Result<Vec<Node>> {
        let this = self.desk.as_ref().map(|desk| desk.node.incarnation());
        let rows = self.readers.rows(list::nodes()).await?;
        all(&rows, list::NODES, |cells| list::node_from(cells, this))
    }

    async fn has_stray_runs(&self) -> Result<bool> {
        let Some(desk) = &self.desk else { return Ok(false) };
        let rows = self.readers.rows(list::stray_runs(desk.node.incarnation())).await?;
        Ok(!rows.is_empty())
    }

    async fn unreached(&self) -> Result<Vec<Unreached>> {
        let calls = self.readers.all(waiting::calls()).await?;
        let waiting = waiting::by_executor(calls.into_iter().flatten());
        if waiting.is_empty() {
            return Ok(Vec::new());
        }
        let rows = self.readers.rows(waiting::last_nodes(&waiting)).await?;
        let last_nodes = all(&rows, list::NODES, waiting::last_node_from)?;
        Ok(waiting::unreached(waiting, last_nodes))
    }

    async fn lock_new_trace(&self, trace_id: RunId) -> Result<()> {
        self.locks.acquire(trace_id).await
    }

    async fn default_session_of(&self, principal_id: &PrincipalId) -> Result<Option<Session>> {
        let node_id = self.desk.as_ref().map(|desk| desk.node.node_id());
        self.readers.one(read::default_session_of(principal_id, node_id)).await
    }

    async fn tell_policy(&self, policy_hash: Digest) -> Result<()> {
        self.desk()?.node.tell_policy(policy_hash).await
    }

    async fn tell_executors(&self, executor_ids: Vec<String>) -> Result<()> {
        self.desk()?.node.tell_executors(executor_ids).await
    }

    async fn claim_executor(&self, executor_id: &str, mark: &str) -> Result<String> {
        self.desk()?.node.claim_executor(executor_id, mark).await
    }

    async fn leave(&self) {
        let Some(desk) = &self.desk else { return };
        desk.renewing.abort();
        desk.node.leave().await;
        desk.leaving.send_replace(true);
        desk.listener.stop();
        self.point.stop().await;
        desk.lines.close();
        match &self.readers.source {
            Source::Pool(pool) => pool.close(),
            Source::OneMoment(_) => {}
        }
    }

    async fn elsewhere(&self) -> Announcement {
        match &self.desk {
            Some(desk) => desk.listener.next().await,
            None => std::future::pending().await,
        }
    }
}

#[async_trait]
impl Erasables for PostgresStore {
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
impl Archives for PostgresStore {
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
