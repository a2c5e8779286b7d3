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
use stepgate_core::journal::ExecutionState;
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

    /// A read, while the store has not crashed.
    async fn read<T>(&self, answer: impl Future<Output = Result<T>>) -> Result<T> {
        self.alive()?;
        answer.await
    }

    async fn write<T>(&self, answer: impl Future<Output = Result<T>>) -> Result<T> {
        let number = self.begin_write()?;
        let answer = answer.await;
        self.end_write(number, answer)
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

/// Forwards the methods of a trait to the inner store: those that read and those that write.
macro_rules! forward {
    ($trait:ident { $($access:ident $method:ident($($name:ident: $type:ty),*) -> $answer:ty;)* }) => {
        #[async_trait]
        impl<S: Store> $trait for FaultyStore<S> {
            $(async fn $method(&self, $($name: $type),*) -> Result<$answer> {
                self.faults.$access(self.inner.$method($($name),*)).await
            })*
        }
    };
}

forward!(Writes {
    write commit(commit: StepCommit) -> ();
    write append_event(event: Event) -> ();
    write open_session(session: Session, event: Event) -> Session;
});

forward!(Locks {
    read acquire_trace_lock(trace_id: RunId) -> ();
    read release_trace_lock(trace_id: RunId) -> ();
    read may_dispatch(trace_id: RunId) -> ();
});

forward!(Runs {
    read binding(key: &IdempotencyKey) -> Option<Binding>;
    read load_state(trace_id: RunId) -> Option<ExecutionState>;
    read dossier(run_id: RunId) -> Option<Dossier>;
    read recollections(run_ids: &[RunId]) -> Vec<Recollection>;
    read runs(query: RunQuery) -> Vec<Run>;
    read run_ids(before: Option<RunId>, limit: usize) -> Vec<RunId>;
    read unfinished() -> Vec<Unfinished>;
});

forward!(Sessions {
    read session(session_id: SessionId) -> Option<Session>;
    read session_of(principal_id: &PrincipalId, kind: SessionKind) -> Option<Session>;
    read sessions() -> Vec<Session>;
    read session_page(query: SessionQuery) -> Vec<Session>;
    read next_step_index(session_id: SessionId) -> u64;
});

forward!(Approvals {
    read approval(approval_id: ApprovalId) -> Option<Approval>;
    read approvals(query: ApprovalQuery) -> Vec<Approval>;
    read open_approvals(principal_id: Option<&PrincipalId>) -> u64;
});

forward!(Budgets {
    read used(accounts: &[Account]) -> Vec<Decimal>;
    read accounts(budget: &BudgetName, window: Window, limit: usize) -> Vec<Balance>;
    read balances() -> Vec<Balance>;
});

forward!(Events {
    read events_by_id(event_ids: &[ArtifactId]) -> Vec<Event>;
    read events(query: EventQuery) -> Vec<PlacedEvent>;
    read opened_turns(query: TurnQuery) -> Vec<Event>;
    read last_position() -> u64;
    read last_loose_position() -> u64;
    read committed_loose_position() -> Option<u64>;
    read loose_page(after: u64, limit: usize) -> Vec<LinkedEvent>;
});

forward!(Cursors {
    read take_cursor(name: &str, first: u64) -> Option<u64>;
    read move_cursor(cursor: &Cursor) -> bool;
    read cursors() -> Vec<Cursor>;
});

forward!(Audits {
    read counts() -> Counts;
    read moment() -> Moment;
    read audit(last: &Counts, before: Option<RunId>, limit: usize) -> Vec<Audited>;
    read shared_keys(limit: usize) -> Vec<IdempotencyKey>;
    read size_bytes() -> Option<u64>;
    read damage() -> Vec<String>;
});

forward!(Erasables {
    read erasable(run_id: RunId) -> Option<ErasableArgs>;
    read erasable_page(after: Option<RunId>, limit: usize) -> Vec<ErasableArgs>;
    write erase(commit: EraseCommit) -> ();
});

forward!(Archives {
    read ended(query: EndedQuery) -> Vec<EndedRun>;
    write archive(commit: ArchiveCommit) -> ();
    read archived_run(run_id: RunId) -> Option<ArchivedRun>;
    read archived_page(after: u64, limit: usize) -> Vec<KeptRun>;
});
