//! The store over an SQL database: the traits of the store for both engines, written once.
//!
//! Each engine is a [`Database`]: how it runs a query and a write, and the few reads that it has words of its own
//! for. Traits that an engine has to itself are implemented beside it.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::try_join_all;
use stepgate_core::approval::Approval;
use stepgate_core::archive::ArchivedRun;
use stepgate_core::budget::{Account, Balance, BudgetName, Window};
use stepgate_core::decimal::Decimal;
use stepgate_core::event::Event;
use stepgate_core::idempotency::Binding;
use stepgate_core::ids::{ApprovalId, ArtifactId, IdempotencyKey, PrincipalId, RunId, SessionId};
use stepgate_core::journal::ExecutionState;
use stepgate_core::ports::{
    Announce, ApprovalQuery, Approvals, ArchiveCommit, Archives, Budgets, Dossier, EndedQuery,
    EndedRun, ErasableArgs, Erasables, EraseCommit, EventQuery, Events, KeptRun, LinkedEvent,
    PlacedEvent, Recollection, RunQuery, Runs, SessionQuery, Sessions, StepCommit, StoreError,
    TurnQuery, Unfinished, Writes,
};
use stepgate_core::run::Run;
use stepgate_core::session::{Session, SessionKind};
use stepgate_core::spans::COMMIT;
use tracing::instrument;

use crate::Result;
use crate::announcer::Announcer;
use crate::chunk;
use crate::locks::TraceLocks;
use crate::payload_keys::PayloadKeys;
use crate::plan::{Step, Write, WriteResult};
use crate::search::{COUNTED_MAX, Finder, with_one_name};
use crate::select::{self, Engine, Select};
use crate::tables::EVENTS;

/// A store in a database of one of the engines.
#[derive(Debug)]
pub struct SqlStore<D> {
    pub(crate) database: D,
    pub(crate) locks: TraceLocks,
    pub(crate) keys: PayloadKeys,
    announcer: Announcer,
}

impl<D> SqlStore<D> {
    pub(crate) fn of(database: D, lock_wait: Duration) -> Self {
        Self {
            database,
            locks: TraceLocks::new(lock_wait),
            keys: PayloadKeys::default(),
            announcer: Announcer::default(),
        }
    }

    /// Announces its own writes from now on. Writes of other nodes come through `elsewhere`.
    pub fn announcing_to(self, announce: Arc<dyn Announce>) -> Self {
        Self { announcer: Announcer::to(announce), ..self }
    }

    /// Encrypts original payloads under these keys from now on, and reads what they have encrypted.
    pub fn with_payload_keys(self, keys: PayloadKeys) -> Self {
        Self { keys, ..self }
    }
}

/// What a database answers, later.
pub(crate) trait Answer<T>: Future<Output = Result<T>> + Send {}

impl<T, F: Future<Output = Result<T>> + Send> Answer<T> for F {}

/// What differs between the engines.
pub(crate) trait Database: Debug + Send + Sync + 'static {
    const ENGINE: Engine;
    /// Its name in traces of OpenTelemetry.
    const SYSTEM: &'static str;
    /// How many runs an index would find, up to [`COUNTED_MAX`].
    const COUNTED: fn(&RunQuery, Finder) -> Select<u64>;
    /// Runs, newest first.
    const RUNS: fn(&RunQuery, Finder) -> Select<Run>;
    /// The events that opened turns, newest first.
    const OPENED_TURNS: fn(&TurnQuery) -> Select<Event>;

    /// Runs that are not over and that no other living node works on, oldest first.
    fn unfinished(&self) -> Select<Unfinished>;

    /// Every row that a query finds.
    fn all<T: Send + 'static>(&self, select: Select<T>) -> impl Answer<Vec<T>>;

    /// The first row that a query finds.
    fn one<T: Send + 'static>(&self, select: Select<T>) -> impl Answer<Option<T>>;

    /// A row by a unique key, for the look-ups that every step makes.
    fn look_up<T: Send + 'static>(&self, select: Select<T>) -> impl Answer<Option<T>>;

    fn dossier(&self, run_id: RunId, keys: &PayloadKeys) -> impl Answer<Option<Dossier>>;

    fn recollections(&self, run_ids: &[RunId]) -> impl Answer<Vec<Recollection>>;

    fn events_by_id(&self, event_ids: &[ArtifactId]) -> impl Answer<Vec<Event>>;

    fn next_step_index(&self, session_id: SessionId) -> impl Answer<u64>;

    /// The last position of an event that belongs to no run, as this process knows it from its last commit.
    fn committed_loose_position(&self) -> Option<u64>;

    fn write(&self, write: Write) -> impl Answer<Option<Session>>;
}

async fn write<D: Database>(store: &SqlStore<D>, write: Write) -> WriteResult {
    let announcement = Announcer::announcement(&write);
    let written = store.database.write(write).await;
    store.announcer.tell(announcement, &written);
    written
}

#[async_trait]
impl<D: Database> Writes for SqlStore<D> {
    #[instrument(
        target = COMMIT, name = "commit", level = "debug", skip_all,
        fields(
            otel.kind = "client",
            db.system.name = D::SYSTEM,
            db.operation.name = "COMMIT",
        )
    )]
    async fn commit(&self, commit: StepCommit) -> Result<()> {
        let commit = self.keys.seal(commit)?;
        let packed = chunk::packed(&commit);
        write(self, Write::Step(Box::new(Step::of(commit, packed)))).await.map(drop)
    }

    async fn append_event(&self, event: Event) -> Result<()> {
        write(self, Write::Event(Box::new(event))).await.map(drop)
    }

    async fn open_session(&self, session: Session, event: Event) -> Result<Session> {
        let session_id = session.session_id;
        let answer = write(self, Write::Session(Box::new(session), Box::new(event))).await?;
        answer.ok_or(StoreError::UnknownSession(session_id))
    }
}

#[async_trait]
impl<D: Database> Runs for SqlStore<D> {
    async fn binding(&self, key: &IdempotencyKey) -> Result<Option<Binding>> {
        self.database.look_up(select::binding(D::ENGINE, key)).await
    }

    async fn load_state(&self, trace_id: RunId) -> Result<Option<ExecutionState>> {
        let dossier = self.dossier(trace_id).await?;
        Ok(dossier.map(|dossier| dossier.state()).transpose()?.flatten())
    }

    async fn dossier(&self, run_id: RunId) -> Result<Option<Dossier>> {
        self.database.dossier(run_id, &self.keys).await
    }

    async fn recollections(&self, run_ids: &[RunId]) -> Result<Vec<Recollection>> {
        self.database.recollections(run_ids).await
    }

    async fn runs(&self, query: RunQuery) -> Result<Vec<Run>> {
        let Some(query) = with_one_name(query) else { return Ok(Vec::new()) };
        let candidates = Finder::candidates(&query);
        let finder = match candidates[..] {
            [only] => only,
            _ => {
                let mut counted = Vec::new();
                for candidate in candidates {
                    let count = self.database.one((D::COUNTED)(&query, candidate)).await?;
                    counted.push((count.unwrap_or(COUNTED_MAX), candidate));
                }
                Finder::shortest(counted)
            }
        };
        self.database.all((D::RUNS)(&query, finder)).await
    }

    async fn run_ids(&self, before: Option<RunId>, limit: usize) -> Result<Vec<RunId>> {
        self.database.all(select::run_ids(before, limit)).await
    }

    async fn unfinished(&self) -> Result<Vec<Unfinished>> {
        self.database.all(self.database.unfinished()).await
    }
}

#[async_trait]
impl<D: Database> Sessions for SqlStore<D> {
    async fn session(&self, session_id: SessionId) -> Result<Option<Session>> {
        self.database.one(select::session(session_id)).await
    }

    async fn session_of(
        &self,
        principal_id: &PrincipalId,
        kind: SessionKind,
    ) -> Result<Option<Session>> {
        self.database.one(select::session_of(principal_id, kind)).await
    }

    async fn sessions(&self) -> Result<Vec<Session>> {
        self.database.all(select::sessions()).await
    }

    async fn session_page(&self, query: SessionQuery) -> Result<Vec<Session>> {
        self.database.all(select::session_page(D::ENGINE, &query)).await
    }

    async fn next_step_index(&self, session_id: SessionId) -> Result<u64> {
        self.database.next_step_index(session_id).await
    }
}

#[async_trait]
impl<D: Database> Approvals for SqlStore<D> {
    async fn approval(&self, approval_id: ApprovalId) -> Result<Option<Approval>> {
        self.database.one(select::approval(approval_id)).await
    }

    async fn approvals(&self, query: ApprovalQuery) -> Result<Vec<Approval>> {
        self.database.all(select::approvals(&query)).await
    }

    async fn open_approvals(&self, principal_id: Option<&PrincipalId>) -> Result<u64> {
        Ok(self.database.one(select::open_approvals(principal_id)).await?.unwrap_or(0))
    }
}

#[async_trait]
impl<D: Database> Budgets for SqlStore<D> {
    async fn used(&self, accounts: &[Account]) -> Result<Vec<Decimal>> {
        // All at once: on PostgreSQL they share a round trip.
        let looking = accounts.iter().map(|it| self.database.look_up(select::account(it)));
        let found = try_join_all(looking).await?.into_iter();
        Ok(found.map(|balance| balance.map(|it| it.used).unwrap_or_default()).collect())
    }

    async fn accounts(
        &self,
        budget: &BudgetName,
        window: Window,
        limit: usize,
    ) -> Result<Vec<Balance>> {
        self.database.all(select::accounts(budget, window, limit)).await
    }

    async fn balances(&self) -> Result<Vec<Balance>> {
        self.database.all(select::balances()).await
    }
}

#[async_trait]
impl<D: Database> Events for SqlStore<D> {
    async fn events_by_id(&self, event_ids: &[ArtifactId]) -> Result<Vec<Event>> {
        self.database.events_by_id(event_ids).await
    }

    async fn events(&self, query: EventQuery) -> Result<Vec<PlacedEvent>> {
        self.database.all(select::events(D::ENGINE, &query)).await
    }

    async fn opened_turns(&self, query: TurnQuery) -> Result<Vec<Event>> {
        self.database.all((D::OPENED_TURNS)(&query)).await
    }

    async fn last_position(&self) -> Result<u64> {
        Ok(self.database.one(select::last_position(EVENTS)).await?.unwrap_or(0))
    }

    async fn last_loose_position(&self) -> Result<u64> {
        match (D::ENGINE, self.database.committed_loose_position()) {
            // No other process writes to the file.
            (Engine::Sqlite, Some(position)) => Ok(position),
            (Engine::Sqlite, None) | (Engine::Postgres, _) => {
                let select = select::last_loose_position(D::ENGINE);
                Ok(self.database.look_up(select).await?.unwrap_or(0))
            }
        }
    }

    async fn committed_loose_position(&self) -> Result<Option<u64>> {
        Ok(self.database.committed_loose_position())
    }

    async fn loose_page(&self, after: u64, limit: usize) -> Result<Vec<LinkedEvent>> {
        self.database.all(select::loose_page(D::ENGINE, after, limit)).await
    }
}

#[async_trait]
impl<D: Database> Erasables for SqlStore<D> {
    async fn erasable(&self, run_id: RunId) -> Result<Option<ErasableArgs>> {
        let stored = self.database.one(select::erasable(run_id)).await?;
        Ok(stored.map(|stored| self.keys.erasable(stored)))
    }

    async fn erasable_page(&self, after: Option<RunId>, limit: usize) -> Result<Vec<ErasableArgs>> {
        let stored = self.database.all(select::erasable_page(after, limit)).await?;
        Ok(stored.into_iter().map(|stored| self.keys.erasable(stored)).collect())
    }

    async fn erase(&self, commit: EraseCommit) -> Result<()> {
        write(self, Write::Erase(Box::new(commit))).await.map(drop)
    }
}

#[async_trait]
impl<D: Database> Archives for SqlStore<D> {
    async fn ended(&self, query: EndedQuery) -> Result<Vec<EndedRun>> {
        self.database.all(select::ended(&query)).await
    }

    async fn archive(&self, commit: ArchiveCommit) -> Result<()> {
        write(self, Write::Archive(Box::new(commit))).await.map(drop)
    }

    async fn archived_run(&self, run_id: RunId) -> Result<Option<ArchivedRun>> {
        self.database.one(select::archived_run(run_id)).await
    }

    async fn archived_page(&self, after: u64, limit: usize) -> Result<Vec<KeptRun>> {
        self.database.all(select::archived_page(after, limit)).await
    }
}
