//! The store in memory: a full implementation, and the one that crash tests reopen.

mod data;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use stepgate_core::approval::Approval;
use stepgate_core::archive::ArchivedRun;
use stepgate_core::budget::{Account, Balance, BudgetName, Window};
use stepgate_core::decimal::Decimal;
use stepgate_core::event::Event;
use stepgate_core::idempotency::Binding;
use stepgate_core::ids::{ApprovalId, ArtifactId, IdempotencyKey, PrincipalId, RunId, SessionId};
use stepgate_core::lock::locked;
use stepgate_core::ports::{
    Alone, Announce, ApprovalQuery, Approvals, ArchiveCommit, Archives, Audited, Audits, Budgets,
    Counts, Cursor, Cursors, Dossier, EndedQuery, EndedRun, ErasableArgs, Erasables, EraseCommit,
    EventQuery, Events, KeptRun, LinkedEvent, Locks, Moment, PlacedEvent, Recollection, RunQuery,
    Runs, SessionQuery, Sessions, StepCommit, StoreError, TurnQuery, Unfinished, Writes,
};
use stepgate_core::run::Run;
use stepgate_core::session::{Session, SessionKind};

use crate::Result;
use crate::announcer::Announcer;
use crate::locks::{LOCK_WAIT_DEFAULT, TraceLocks};
use crate::plan::{Step, Write};
use data::Data;

/// A store whose rows live as long as a handle to them. A clone is the same store.
#[derive(Clone, Debug)]
pub struct MemoryStore {
    data: Arc<Mutex<Data>>,
    cursors: Arc<Mutex<BTreeMap<String, Cursor>>>,
    process: Arc<Process>,
    announcer: Announcer,
}

impl Alone for MemoryStore {}

/// The state that a restart loses.
#[derive(Debug)]
struct Process {
    locks: TraceLocks,
    lock_wait: Duration,
    indexes: Mutex<HashMap<SessionId, u64>>,
}

impl Process {
    fn new(lock_wait: Duration) -> Arc<Self> {
        Arc::new(Self { locks: TraceLocks::new(lock_wait), lock_wait, indexes: Mutex::default() })
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl MemoryStore {
    /// An empty store with the default lock wait.
    pub fn new() -> Self {
        Self::with_lock_wait(LOCK_WAIT_DEFAULT)
    }

    /// An empty store with this limit of the wait for a trace's lock.
    pub fn with_lock_wait(lock_wait: Duration) -> Self {
        let process = Process::new(lock_wait);
        let (data, cursors) = (Arc::default(), Arc::default());
        Self { data, cursors, process, announcer: Announcer::default() }
    }

    /// The same rows after a restart: no lock is held, and step indexes continue from the rows.
    pub fn reopened(&self) -> Self {
        Self { process: Process::new(self.process.lock_wait), ..self.clone() }
    }

    /// The same store, which announces writes of this handle and its clones from now on.
    pub fn announcing_to(self, announce: Arc<dyn Announce>) -> Self {
        Self { announcer: Announcer::to(announce), ..self }
    }

    fn write(&self, write: Write) -> Result<Option<Session>> {
        let written = self.rows().write(&write);
        self.announcer.tell(Announcer::announcement(&write), &written);
        written
    }

    fn rows(&self) -> MutexGuard<'_, Data> {
        // The lock cannot guard half a write: a write is planned first and applied by code that does not
        // panic.
        locked(&self.data)
    }
}

#[async_trait]
impl Writes for MemoryStore {
    async fn commit(&self, commit: StepCommit) -> Result<()> {
        self.write(Write::Step(Box::new(Step::of(commit, None)))).map(drop)
    }

    async fn append_event(&self, event: Event) -> Result<()> {
        self.write(Write::Event(Box::new(event))).map(drop)
    }

    async fn open_session(&self, session: Session, event: Event) -> Result<Session> {
        let session_id = session.session_id;
        let opened = self.write(Write::Session(Box::new(session), Box::new(event)))?;
        opened.ok_or(StoreError::UnknownSession(session_id))
    }
}

#[async_trait]
impl Locks for MemoryStore {
    async fn acquire_trace_lock(&self, trace_id: RunId) -> Result<()> {
        self.process.locks.acquire(trace_id).await
    }

    async fn release_trace_lock(&self, trace_id: RunId) -> Result<()> {
        self.process.locks.release(trace_id);
        Ok(())
    }

    async fn may_dispatch(&self, _: RunId) -> Result<()> {
        Ok(())
    }
}

#[async_trait]
impl Runs for MemoryStore {
    async fn binding(&self, key: &IdempotencyKey) -> Result<Option<Binding>> {
        Ok(self.rows().binding(key))
    }

    async fn dossier(&self, run_id: RunId) -> Result<Option<Dossier>> {
        Ok(self.rows().runs.get(&run_id).cloned())
    }

    async fn recollections(&self, run_ids: &[RunId]) -> Result<Vec<Recollection>> {
        let rows = self.rows();
        Ok(run_ids.iter().filter_map(|run_id| rows.recall(*run_id)).collect())
    }

    async fn runs(&self, query: RunQuery) -> Result<Vec<Run>> {
        Ok(self.rows().runs(&query))
    }

    async fn run_ids(&self, before: Option<RunId>, limit: usize) -> Result<Vec<RunId>> {
        let runs = self.runs(RunQuery { before, limit, ..RunQuery::default() }).await?;
        Ok(runs.into_iter().map(|run| run.arrival.run_id).collect())
    }

    async fn unfinished(&self) -> Result<Vec<Unfinished>> {
        Ok(self.rows().unfinished())
    }
}

#[async_trait]
impl Sessions for MemoryStore {
    async fn session(&self, session_id: SessionId) -> Result<Option<Session>> {
        Ok(self.rows().session(session_id))
    }

    async fn session_of(
        &self,
        principal_id: &PrincipalId,
        kind: SessionKind,
    ) -> Result<Option<Session>> {
        Ok(self.rows().session_of(principal_id, kind))
    }

    async fn sessions(&self) -> Result<Vec<Session>> {
        Ok(self.rows().sessions.values().map(|seat| seat.session.clone()).collect())
    }

    async fn session_page(&self, query: SessionQuery) -> Result<Vec<Session>> {
        Ok(self.rows().session_page(&query))
    }

    async fn next_step_index(&self, session_id: SessionId) -> Result<u64> {
        let session = self.rows().session(session_id);
        let durable = session.ok_or(StoreError::UnknownSession(session_id))?.last_step_index;
        let mut indexes = locked(&self.process.indexes);
        let given = indexes.entry(session_id).or_default();
        *given = durable.max(*given) + 1;
        Ok(*given)
    }
}

#[async_trait]
impl Approvals for MemoryStore {
    async fn approval(&self, approval_id: ApprovalId) -> Result<Option<Approval>> {
        Ok(self.rows().approval(approval_id))
    }

    async fn approvals(&self, query: ApprovalQuery) -> Result<Vec<Approval>> {
        Ok(self.rows().approvals(&query))
    }

    async fn open_approvals(&self, principal_id: Option<&PrincipalId>) -> Result<u64> {
        Ok(self.rows().open_approvals(principal_id))
    }
}

#[async_trait]
impl Budgets for MemoryStore {
    async fn used(&self, accounts: &[Account]) -> Result<Vec<Decimal>> {
        let rows = self.rows();
        let used = |account: &Account| rows.accounts.get(account).copied().unwrap_or_default();
        Ok(accounts.iter().map(used).collect())
    }

    async fn accounts(
        &self,
        budget: &BudgetName,
        window: Window,
        limit: usize,
    ) -> Result<Vec<Balance>> {
        let mut found = self.balances().await?;
        found.retain(|it| it.account.budget == *budget && it.account.window == window);
        // The rows come in the order of their keys, which the sort keeps for equal amounts.
        found.sort_by_key(|balance| std::cmp::Reverse(balance.used));
        found.truncate(limit);
        Ok(found)
    }

    async fn balances(&self) -> Result<Vec<Balance>> {
        let rows = self.rows();
        let balance = |(account, used): (&Account, &Decimal)| Balance {
            account: account.clone(),
            used: *used,
        };
        Ok(rows.accounts.iter().map(balance).collect())
    }
}

#[async_trait]
impl Events for MemoryStore {
    async fn events_by_id(&self, event_ids: &[ArtifactId]) -> Result<Vec<Event>> {
        Ok(self.rows().events_by_id(event_ids))
    }

    async fn events(&self, query: EventQuery) -> Result<Vec<PlacedEvent>> {
        Ok(self.rows().events(&query))
    }

    async fn opened_turns(&self, query: TurnQuery) -> Result<Vec<Event>> {
        Ok(self.rows().opened_turns(&query))
    }

    async fn last_position(&self) -> Result<u64> {
        Ok(self.rows().history.len() as u64)
    }

    async fn last_loose_position(&self) -> Result<u64> {
        Ok(self.rows().loose.last().map_or(0, |linked| linked.position))
    }

    async fn committed_loose_position(&self) -> Result<Option<u64>> {
        self.last_loose_position().await.map(Some)
    }

    async fn loose_page(&self, after: u64, limit: usize) -> Result<Vec<LinkedEvent>> {
        let rows = self.rows();
        let later = rows.loose.iter().filter(|linked| linked.position > after);
        Ok(later.take(limit).cloned().collect())
    }
}

#[async_trait]
impl Cursors for MemoryStore {
    async fn take_cursor(&self, name: &str, first: u64) -> Result<Option<u64>> {
        let mut cursors = locked(&self.cursors);
        let fresh = || Cursor { name: name.to_owned(), reached: first, error: None };
        Ok(Some(cursors.entry(name.to_owned()).or_insert_with(fresh).reached))
    }

    async fn move_cursor(&self, cursor: &Cursor) -> Result<bool> {
        let mut cursors = locked(&self.cursors);
        let Some(there) = cursors.get_mut(&cursor.name) else { return Ok(false) };
        let reached = there.reached.max(cursor.reached);
        *there = Cursor { reached, ..cursor.clone() };
        Ok(true)
    }

    async fn cursors(&self) -> Result<Vec<Cursor>> {
        Ok(locked(&self.cursors).values().cloned().collect())
    }
}

#[async_trait]
impl Audits for MemoryStore {
    async fn counts(&self) -> Result<Counts> {
        Ok(self.rows().counts())
    }

    async fn moment(&self) -> Result<Moment> {
        Ok(Moment::of_all(self).await)
    }

    async fn audit(&self, _: &Counts, before: Option<RunId>, limit: usize) -> Result<Vec<Audited>> {
        let mut page = Vec::new();
        for run_id in self.run_ids(before, limit).await? {
            page.push(Audited::whole(run_id, self.dossier(run_id).await));
        }
        Ok(page)
    }

    async fn shared_keys(&self, limit: usize) -> Result<Vec<IdempotencyKey>> {
        Ok(self.rows().shared_keys(limit))
    }

    async fn size_bytes(&self) -> Result<Option<u64>> {
        Ok(None)
    }

    async fn damage(&self) -> Result<Vec<String>> {
        Ok(Vec::new())
    }
}

#[async_trait]
impl Erasables for MemoryStore {
    async fn erasable(&self, run_id: RunId) -> Result<Option<ErasableArgs>> {
        Ok(self.rows().erasable.get(&run_id).cloned())
    }

    async fn erasable_page(&self, after: Option<RunId>, limit: usize) -> Result<Vec<ErasableArgs>> {
        let rows = self.rows();
        let later = rows.erasable.values().filter(|row| after.is_none_or(|it| row.run_id > it));
        Ok(later.take(limit).cloned().collect())
    }

    async fn erase(&self, commit: EraseCommit) -> Result<()> {
        self.write(Write::Erase(Box::new(commit))).map(drop)
    }
}

#[async_trait]
impl Archives for MemoryStore {
    async fn ended(&self, query: EndedQuery) -> Result<Vec<EndedRun>> {
        Ok(self.rows().ended(&query))
    }

    async fn archive(&self, commit: ArchiveCommit) -> Result<()> {
        self.write(Write::Archive(Box::new(commit))).map(drop)
    }

    async fn archived_run(&self, run_id: RunId) -> Result<Option<ArchivedRun>> {
        let rows = self.rows();
        let kept = rows.archived.iter().find(|kept| kept.run.run_id == run_id);
        Ok(kept.map(|kept| kept.run.clone()))
    }

    async fn archived_page(&self, after: u64, limit: usize) -> Result<Vec<KeptRun>> {
        let rows = self.rows();
        let later = rows.archived.iter().filter(|kept| kept.position > after);
        Ok(later.take(limit).cloned().collect())
    }
}
