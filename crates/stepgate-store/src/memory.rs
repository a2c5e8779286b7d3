//! The store in memory: a full implementation, and the one that crash tests reopen.

mod data;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use stepgate_core::approval::{Approval, ApprovalStatus};
use stepgate_core::archive::ArchivedRun;
use stepgate_core::budget::{Account, Balance, BudgetName, Window};
use stepgate_core::decimal::Decimal;
use stepgate_core::event::{Event, EventType};
use stepgate_core::idempotency::Binding;
use stepgate_core::ids::{
    ApprovalId, ArtifactId, IdPrefix, IdempotencyKey, PrincipalId, RunId, SessionId,
};
use stepgate_core::journal::ExecutionState;
use stepgate_core::lock::locked;
use stepgate_core::ports::{
    Alone, Announce, ApprovalQuery, Approvals, ArchiveCommit, Archives, Audited, Audits, Budgets,
    Counts, Cursor, Cursors, Dossier, EndedQuery, EndedRun, ErasableArgs, Erasables, EraseCommit,
    EventQuery, Events, KeptRun, LinkedEvent, Locks, Moment, PlacedEvent, Recollection, RunQuery,
    Runs, SessionQuery, Sessions, StepCommit, StoreError, TurnQuery, Unfinished, Writes,
};
use stepgate_core::run::{Run, Status};
use stepgate_core::session::{Session, SessionKind};

use crate::Result;
use crate::announcer::Announcer;
use crate::locks::{LOCK_WAIT_DEFAULT, TraceLocks};
use crate::plan::{Step, View, Write};
use data::{Data, Seat, number};

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
        self.rows().binding(key)
    }

    async fn load_state(&self, trace_id: RunId) -> Result<Option<ExecutionState>> {
        let dossier = self.dossier(trace_id).await?;
        Ok(dossier.map(|dossier| dossier.state()).transpose()?.flatten())
    }

    async fn dossier(&self, run_id: RunId) -> Result<Option<Dossier>> {
        Ok(self.rows().runs.get(&run_id).cloned())
    }

    async fn recollections(&self, run_ids: &[RunId]) -> Result<Vec<Recollection>> {
        let rows = self.rows();
        Ok(run_ids.iter().filter_map(|run_id| rows.recall(*run_id)).collect())
    }

    async fn runs(&self, query: RunQuery) -> Result<Vec<Run>> {
        let rows = self.rows();
        let older = older(&rows.order, query.before, |run_id| *run_id);
        let is_asked_for = |run: &&Run| {
            let session_id = run.arrival.session_id;
            let session = query.session_id.is_none_or(|id| session_id == id)
                && rows.is_in_session_of(query.principal_id.as_ref(), session_id);
            let status = query.status.is_none_or(|status| run.status == status);
            let came = run.arrival.received_at;
            let time = query.since.is_none_or(|since| came >= since)
                && query.until.is_none_or(|until| came < until);
            let text = query.text.as_ref().is_none_or(|text| text.matches(run));
            let name = query.tool_name.is_none() || query.tool_name == run.tool_name;
            session && status && name && time && text
        };
        let newest_first =
            later(older, query.after).iter().rev().filter_map(|run_id| rows.runs.get(run_id));
        let asked_for = newest_first.map(|dossier| &dossier.run).filter(is_asked_for);
        Ok(asked_for.take(query.limit).cloned().collect())
    }

    async fn run_ids(&self, before: Option<RunId>, limit: usize) -> Result<Vec<RunId>> {
        let runs = self.runs(RunQuery { before, limit, ..RunQuery::default() }).await?;
        Ok(runs.into_iter().map(|run| run.arrival.run_id).collect())
    }

    async fn unfinished(&self) -> Result<Vec<Unfinished>> {
        let rows = self.rows();
        let dossiers = rows.order.iter().filter_map(|run_id| rows.runs.get(run_id));
        let unfinished = dossiers.filter(|dossier| !dossier.run.status.is_final());
        let is_pending = |approval: &Approval| approval.status == ApprovalStatus::Pending;
        let unfinished = unfinished.map(|Dossier { run, approval, .. }| Unfinished {
            run_id: run.arrival.run_id,
            tool_name: run.tool_name.clone(),
            is_waiting: run.status == Status::ApprovalRequired
                && approval.as_ref().is_some_and(is_pending),
        });
        Ok(unfinished.collect())
    }
}

#[async_trait]
impl Sessions for MemoryStore {
    async fn session(&self, session_id: SessionId) -> Result<Option<Session>> {
        self.rows().session(session_id)
    }

    async fn session_of(
        &self,
        principal_id: &PrincipalId,
        kind: SessionKind,
    ) -> Result<Option<Session>> {
        let rows = self.rows();
        let is_theirs =
            |seat: &&Seat| seat.session.principal_id == *principal_id && seat.session.kind == kind;
        let first = rows.sessions.values().filter(is_theirs).min_by_key(|seat| seat.number);
        Ok(first.map(|seat| seat.session.clone()))
    }

    async fn sessions(&self) -> Result<Vec<Session>> {
        Ok(self.rows().sessions.values().map(|seat| seat.session.clone()).collect())
    }

    async fn session_page(&self, query: SessionQuery) -> Result<Vec<Session>> {
        let rows = self.rows();
        let mut seats: Vec<&Seat> = rows.sessions.values().collect();
        seats.sort_by_key(|seat| seat.number);
        let older = older(&seats, query.before, |seat| seat.session.session_id);
        let principal_id = query.principal_id.as_ref();
        let is_asked_for = |session: &&Session| {
            principal_id.is_none_or(|id| session.principal_id == *id)
                && fits(query.id_prefix.as_ref(), &session.session_id)
        };
        let sessions = older.iter().rev().map(|seat| &seat.session).filter(is_asked_for);
        Ok(sessions.take(query.limit).cloned().collect())
    }

    async fn next_step_index(&self, session_id: SessionId) -> Result<u64> {
        let session = self.rows().session(session_id)?;
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
        self.rows().approval(approval_id)
    }

    async fn approvals(&self, query: ApprovalQuery) -> Result<Vec<Approval>> {
        let rows = self.rows();
        let place = |id: ApprovalId| {
            let run_id = rows.approvals.get(&id);
            rows.asked.iter().position(|asked| Some(asked) == run_id)
        };
        let end = query.before.map_or(rows.asked.len(), |id| place(id).unwrap_or(0));
        let start = query.after.map_or(0, |id| place(id).map_or(rows.asked.len(), |at| at + 1));
        let asked = rows.asked.get(start..end).unwrap_or_default();
        let in_order: Box<dyn Iterator<Item = &RunId>> = match query.oldest_first {
            true => Box::new(asked.iter()),
            false => Box::new(asked.iter().rev()),
        };
        let in_order = in_order.filter_map(|run_id| rows.runs.get(run_id));
        let of_principal = in_order.filter(|dossier| {
            let session_id = dossier.run.arrival.session_id;
            rows.is_in_session_of(query.principal_id.as_ref(), session_id)
        });
        let approvals = of_principal.filter_map(|dossier| dossier.approval.as_ref());
        let is_asked_for = |approval: &&Approval| {
            query.status.is_none_or(|status| approval.status == status)
                && fits(query.id_prefix.as_ref(), &approval.approval_id)
        };
        Ok(approvals.filter(is_asked_for).take(query.limit).cloned().collect())
    }

    async fn open_approvals(&self, principal_id: Option<&PrincipalId>) -> Result<u64> {
        let rows = self.rows();
        let asked = rows.asked.iter().filter_map(|run_id| rows.runs.get(run_id));
        let theirs = asked
            .filter(|dossier| rows.is_in_session_of(principal_id, dossier.run.arrival.session_id));
        let approvals = theirs.filter_map(|dossier| dossier.approval.as_ref());
        let open = approvals.filter(|approval| approval.status == ApprovalStatus::Pending);
        Ok(number(open.count()))
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
        let rows = self.rows();
        let places = event_ids.iter().filter_map(|event_id| rows.events.get(event_id));
        let places: BTreeSet<usize> = places.copied().collect();
        Ok(places.into_iter().filter_map(|place| rows.history.get(place)).cloned().collect())
    }

    async fn events(&self, query: EventQuery) -> Result<Vec<PlacedEvent>> {
        let rows = self.rows();
        let is_asked_for = |placed: &(u64, &Event)| {
            let (position, event) = *placed;
            let types = &query.event_types;
            position > query.after
                && rows.events.contains_key(&event.event_id)
                && query.back_from.is_none_or(|before| position < before)
                && (types.is_empty() || types.contains(&event.event_type))
                && (!query.loose_only || event.run_id.is_none())
                && rows.is_in_session_of(query.principal_id.as_ref(), event.session_id)
        };
        let asked_for = (1..).zip(&rows.history).filter(is_asked_for);
        let found: Vec<(u64, &Event)> = match query.back_from {
            None => asked_for.take(query.limit).collect(),
            Some(_) => {
                let oldest_first: Vec<_> = asked_for.collect();
                oldest_first.into_iter().rev().take(query.limit).collect()
            }
        };
        let placed =
            |(position, event): (u64, &Event)| PlacedEvent { position, event: event.clone() };
        Ok(found.into_iter().map(placed).collect())
    }

    async fn opened_turns(&self, query: TurnQuery) -> Result<Vec<Event>> {
        let rows = self.rows();
        let older = older(&rows.history, query.before, |event| event.event_id);
        let is_asked_for = |event: &&Event| {
            event.event_type == EventType::TurnOpened
                && fits(query.id_prefix.as_ref(), &event.event_id)
                && query.session_id.is_none_or(|id| event.session_id == id)
                && rows.is_in_session_of(query.principal_id.as_ref(), event.session_id)
        };
        Ok(older.iter().rev().filter(is_asked_for).take(query.limit).cloned().collect())
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
        let rows = self.rows();
        let mut counts = Counts {
            runs: number(rows.runs.len()),
            events: number(rows.events.len()),
            approvals: number(rows.approvals.len()),
            bindings: number(rows.archived.iter().filter(|kept| kept.binding.is_some()).count()),
            sessions: number(rows.sessions.len()),
            ..Counts::default()
        };
        for dossier in rows.runs.values() {
            counts.entries += number(dossier.entries.len());
            counts.checkpoints += number(dossier.checkpoints.len());
            counts.records += u64::from(dossier.record.is_some());
        }
        Ok(counts)
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
        let rows = self.rows();
        let bindings = rows.runs.values().filter_map(|dossier| dossier.binding.as_ref());
        let mut traces: BTreeMap<&IdempotencyKey, usize> = BTreeMap::new();
        for binding in bindings {
            *traces.entry(&binding.idempotency_key).or_default() += 1;
        }
        let shared = traces.into_iter().filter(|(_, traces)| *traces > 1);
        Ok(shared.map(|(key, _)| key.clone()).take(limit).collect())
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
        let rows = self.rows();
        let is_asked_for = |dossier: &&Dossier| {
            let arrival = &dossier.run.arrival;
            dossier.run.status.is_final()
                && query.after.is_none_or(|after| arrival.run_id > after)
                && arrival.received_at < query.until
                && rows.order.last() != Some(&arrival.run_id)
                && rows.asked.last() != Some(&arrival.run_id)
        };
        let ended = |dossier: &Dossier| EndedRun {
            run_id: dossier.run.arrival.run_id,
            received_at: dossier.run.arrival.received_at,
            tool_name: dossier.run.tool_name.clone(),
            status: dossier.run.status,
            last_event: dossier.events.last().map_or(0, |linked| linked.position),
        };
        let mut found: Vec<_> = rows.runs.values().filter(is_asked_for).map(ended).collect();
        found.sort_by_key(|run| run.run_id);
        found.truncate(query.limit);
        Ok(found)
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

/// The rows before the one with this id: all where no id is given, none where it is unknown.
fn older<T, I: PartialEq>(rows: &[T], before: Option<I>, id: impl Fn(&T) -> I) -> &[T] {
    let Some(before) = before else { return rows };
    let at = rows.iter().position(|row| id(row) == before);
    rows.get(..at.unwrap_or(0)).unwrap_or_default()
}

/// The runs after this one.
fn later(run_ids: &[RunId], after: Option<RunId>) -> &[RunId] {
    let Some(after) = after else { return run_ids };
    // From the newest: a reader asks for what is new.
    let at = run_ids.iter().rposition(|run_id| *run_id == after);
    at.and_then(|at| run_ids.get(at + 1..)).unwrap_or_default()
}

/// Whether an id begins with the prefix, where one is asked for.
fn fits(prefix: Option<&IdPrefix>, id: &impl ToString) -> bool {
    prefix.is_none_or(|prefix| prefix.fits(id))
}
