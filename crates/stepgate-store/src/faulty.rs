//! A store that crashes on demand, for tests of crash recovery.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use async_trait::async_trait;
use stepgate_core::approval::Approval;
use stepgate_core::archive::ArchivedRun;
use stepgate_core::budget::{Account, Balance, BudgetName, Window};
use stepgate_core::decimal::Decimal;
use stepgate_core::event::Event;
use stepgate_core::idempotency::Binding;
use stepgate_core::ids::{ApprovalId, ArtifactId, IdempotencyKey, PrincipalId, RunId, SessionId};
use stepgate_core::ports::{
    Alone, ApprovalQuery, Approvals, ArchiveCommit, Archives, Audited, Audits, Budgets, Counts,
    Cursor, Cursors, Dossier, EndedQuery, EndedRun, ErasableArgs, Erasables, EraseCommit,
    EventQuery, Events, KeptRun, LinkedEvent, Locks, Moment, PlacedEvent, Recollection, RunQuery,
    Runs, SessionQuery, Sessions, StepCommit, Store, StoreError, TurnQuery, Unfinished, Writes,
};
use stepgate_core::run::Run;
use stepgate_core::session::{Session, SessionKind};

use crate::Result;

/// Where a store stops, or fails for a moment and goes on. Writes are counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopAt {
    /// Never: only counts.
    Never,
    /// Goes on, after it refused these writes as unavailable.
    Refuse {
        /// The first refused write.
        first: u64,
        /// How many are refused.
        count: u64,
    },
    /// Goes on, after the answer to this write was lost.
    LoseAnswer {
        /// The write.
        number: u64,
        /// Whether it is applied.
        is_applied: bool,
    },
    /// At the n-th write, counted from 1, before it is applied.
    Before(u64),
    /// At the n-th write, counted from 1, after it is applied: its answer is lost.
    After(u64),
}

/// The plan of a [`FaultyStore`], shared with the test that made it.
#[derive(Debug)]
pub struct Faults {
    stop: StopAt,
    writes: AtomicU64,
    has_crashed: AtomicBool,
}

impl Faults {
    /// A plan that stops at this point.
    pub fn new(stop: StopAt) -> Arc<Self> {
        Arc::new(Self { stop, writes: AtomicU64::new(0), has_crashed: AtomicBool::new(false) })
    }

    /// How many writes were requested, including the one that stopped.
    pub fn writes(&self) -> u64 {
        self.writes.load(Ordering::SeqCst)
    }

    /// Whether the store has stopped.
    pub fn has_crashed(&self) -> bool {
        self.has_crashed.load(Ordering::SeqCst)
    }

    /// Stops the store now.
    pub fn crash(&self) {
        self.has_crashed.store(true, Ordering::SeqCst);
    }

    fn alive(&self) -> Result<()> {
        if self.has_crashed() { Err(StoreError::Broken("crashed".into())) } else { Ok(()) }
    }

    /// Counts a write, and stops before it where the plan says so.
    fn begin_write(&self) -> Result<u64> {
        self.alive()?;
        let number = self.writes.fetch_add(1, Ordering::SeqCst) + 1;
        match self.stop {
            StopAt::Before(at) if at == number => self.crash(),
            StopAt::Refuse { first, count } if (first..first + count).contains(&number) => {
                return Err(StoreError::Unavailable("refused".into()));
            }
            StopAt::LoseAnswer { number: at, is_applied: false } if at == number => {
                return Err(StoreError::AnswerLost("lost".into()));
            }
            StopAt::Never
            | StopAt::Before(_)
            | StopAt::After(_)
            | StopAt::Refuse { .. }
            | StopAt::LoseAnswer { .. } => {}
        }
        self.alive()?;
        Ok(number)
    }

    /// Stops after a write where the plan says so. A refused write applied nothing, but its answer is lost
    /// as well.
    fn end_write<T>(&self, number: u64, answer: Result<T>) -> Result<T> {
        if self.stop == StopAt::After(number) {
            self.crash();
            return Err(StoreError::AnswerLost("crashed".into()));
        }
        if self.stop == (StopAt::LoseAnswer { number, is_applied: true }) {
            return Err(StoreError::AnswerLost("lost".into()));
        }
        self.alive()?;
        answer
    }
}

/// Any store of one process, with a planned crash. After the stop every call fails; the inner store holds
/// what a restart would find.
#[derive(Debug)]
pub struct FaultyStore<S> {
    inner: S,
    faults: Arc<Faults>,
}

impl<S: Store> Alone for FaultyStore<S> {}

impl<S: Store> FaultyStore<S> {
    /// Wraps a store with the plan.
    pub fn new(inner: S, faults: Arc<Faults>) -> Self {
        Self { inner, faults }
    }

    /// The store inside, as it is.
    pub fn inner(&self) -> &S {
        &self.inner
    }
}

#[async_trait]
impl<S: Store> Writes for FaultyStore<S> {
    async fn commit(&self, commit: StepCommit) -> Result<()> {
        let number = self.faults.begin_write()?;
        let answer = self.inner.commit(commit).await;
        self.faults.end_write(number, answer)
    }

    async fn append_event(&self, event: Event) -> Result<()> {
        let number = self.faults.begin_write()?;
        let answer = self.inner.append_event(event).await;
        self.faults.end_write(number, answer)
    }

    async fn open_session(&self, session: Session, event: Event) -> Result<Session> {
        let number = self.faults.begin_write()?;
        let answer = self.inner.open_session(session, event).await;
        self.faults.end_write(number, answer)
    }
}

#[async_trait]
impl<S: Store> Erasables for FaultyStore<S> {
    async fn erasable(&self, run_id: RunId) -> Result<Option<ErasableArgs>> {
        self.faults.alive()?;
        self.inner.erasable(run_id).await
    }

    async fn erasable_page(&self, after: Option<RunId>, limit: usize) -> Result<Vec<ErasableArgs>> {
        self.faults.alive()?;
        self.inner.erasable_page(after, limit).await
    }

    async fn erase(&self, commit: EraseCommit) -> Result<()> {
        let number = self.faults.begin_write()?;
        let answer = self.inner.erase(commit).await;
        self.faults.end_write(number, answer)
    }
}

#[async_trait]
impl<S: Store> Archives for FaultyStore<S> {
    async fn ended(&self, query: EndedQuery) -> Result<Vec<EndedRun>> {
        self.faults.alive()?;
        self.inner.ended(query).await
    }

    async fn archive(&self, commit: ArchiveCommit) -> Result<()> {
        let number = self.faults.begin_write()?;
        let answer = self.inner.archive(commit).await;
        self.faults.end_write(number, answer)
    }

    async fn archived_run(&self, run_id: RunId) -> Result<Option<ArchivedRun>> {
        self.faults.alive()?;
        self.inner.archived_run(run_id).await
    }

    async fn archived_page(&self, after: u64, limit: usize) -> Result<Vec<KeptRun>> {
        self.faults.alive()?;
        self.inner.archived_page(after, limit).await
    }
}

/// Forwards the methods of a trait while the store has not crashed.
macro_rules! forward_while_alive {
    ($trait:ident { $($method:ident($($name:ident: $type:ty),*) -> $answer:ty;)* }) => {
        #[async_trait]
        impl<S: Store> $trait for FaultyStore<S> {
            $(async fn $method(&self, $($name: $type),*) -> Result<$answer> {
                self.faults.alive()?;
                self.inner.$method($($name),*).await
            })*
        }
    };
}

forward_while_alive!(Locks {
    acquire_trace_lock(trace_id: RunId) -> ();
    release_trace_lock(trace_id: RunId) -> ();
    may_dispatch(trace_id: RunId) -> ();
});

forward_while_alive!(Runs {
    binding(key: &IdempotencyKey) -> Option<Binding>;
    dossier(run_id: RunId) -> Option<Dossier>;
    recollections(run_ids: &[RunId]) -> Vec<Recollection>;
    runs(query: RunQuery) -> Vec<Run>;
    run_ids(before: Option<RunId>, limit: usize) -> Vec<RunId>;
    unfinished() -> Vec<Unfinished>;
});

forward_while_alive!(Sessions {
    session(session_id: SessionId) -> Option<Session>;
    session_of(principal_id: &PrincipalId, kind: SessionKind) -> Option<Session>;
    sessions() -> Vec<Session>;
    session_page(query: SessionQuery) -> Vec<Session>;
    next_step_index(session_id: SessionId) -> u64;
});

forward_while_alive!(Approvals {
    approval(approval_id: ApprovalId) -> Option<Approval>;
    approvals(query: ApprovalQuery) -> Vec<Approval>;
    open_approvals(principal_id: Option<&PrincipalId>) -> u64;
});

forward_while_alive!(Budgets {
    used(accounts: &[Account]) -> Vec<Decimal>;
    accounts(budget: &BudgetName, window: Window, limit: usize) -> Vec<Balance>;
    balances() -> Vec<Balance>;
});

forward_while_alive!(Events {
    events_by_id(event_ids: &[ArtifactId]) -> Vec<Event>;
    events(query: EventQuery) -> Vec<PlacedEvent>;
    opened_turns(query: TurnQuery) -> Vec<Event>;
    last_position() -> u64;
    last_loose_position() -> u64;
    committed_loose_position() -> Option<u64>;
    loose_page(after: u64, limit: usize) -> Vec<LinkedEvent>;
});

forward_while_alive!(Cursors {
    take_cursor(name: &str, first: u64) -> Option<u64>;
    move_cursor(cursor: &Cursor) -> bool;
    cursors() -> Vec<Cursor>;
});

forward_while_alive!(Audits {
    counts() -> Counts;
    moment() -> Moment;
    audit(last: &Counts, before: Option<RunId>, limit: usize) -> Vec<Audited>;
    shared_keys(limit: usize) -> Vec<IdempotencyKey>;
    size_bytes() -> Option<u64>;
    damage() -> Vec<String>;
});
