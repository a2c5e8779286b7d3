//! A store that crashes on demand, for tests of everything that must survive a crash.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use async_trait::async_trait;
use stepgate_core::approval::Approval;
use stepgate_core::event::Event;
use stepgate_core::idempotency::Binding;
use stepgate_core::ids::{ApprovalId, ArtifactId, IdempotencyKey, PrincipalId, RunId, SessionId};
use stepgate_core::journal::{Appended, Checkpoint, ExecutionState};
use stepgate_core::ports::{
    ApprovalQuery, Counts, Dossier, EventQuery, LinkedEvent, PlacedEvent, RunQuery, StepCommit,
    Store, StoreError, Unfinished,
};
use stepgate_core::run::Run;
use stepgate_core::session::{Session, SessionKind};

/// Where a store stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopAt {
    /// Never: only counts.
    Never,
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
    /// A plan that stops there.
    pub fn new(stop: StopAt) -> Arc<Self> {
        Arc::new(Self { stop, writes: AtomicU64::new(0), has_crashed: AtomicBool::new(false) })
    }

    /// How many writes were asked for, the one that stopped included.
    pub fn writes(&self) -> u64 {
        self.writes.load(Ordering::SeqCst)
    }

    /// Whether the store has stopped.
    pub fn has_crashed(&self) -> bool {
        self.has_crashed.load(Ordering::SeqCst)
    }

    /// Stops the store now, wherever it is.
    pub fn crash(&self) {
        self.has_crashed.store(true, Ordering::SeqCst);
    }

    fn alive(&self) -> Result<(), StoreError> {
        if self.has_crashed() { Err(StoreError::Broken("crashed".into())) } else { Ok(()) }
    }

    /// Counts a write, and stops before it where the plan says so.
    fn begin_write(&self) -> Result<u64, StoreError> {
        self.alive()?;
        let number = self.writes.fetch_add(1, Ordering::SeqCst) + 1;
        if self.stop == StopAt::Before(number) {
            self.crash();
        }
        self.alive()?;
        Ok(number)
    }

    /// Stops after a write where the plan says so. A write that was refused applied nothing, so its
    /// answer is lost like any other.
    fn end_write<T>(&self, number: u64, answer: Result<T, StoreError>) -> Result<T, StoreError> {
        if self.stop == StopAt::After(number) {
            self.crash();
            return Err(StoreError::AnswerLost("crashed".into()));
        }
        self.alive()?;
        answer
    }
}

/// Any store, with a crash in it. After the stop every call fails; what the inner store holds is what
/// a restart would find.
#[derive(Debug)]
pub struct FaultyStore<S> {
    inner: S,
    faults: Arc<Faults>,
}

impl<S: Store> FaultyStore<S> {
    /// Puts the plan around a store.
    pub fn new(inner: S, faults: Arc<Faults>) -> Self {
        Self { inner, faults }
    }

    /// The store inside, as it is.
    pub fn inner(&self) -> &S {
        &self.inner
    }
}

#[async_trait]
impl<S: Store> Store for FaultyStore<S> {
    async fn load_state(&self, trace_id: RunId) -> Result<Option<ExecutionState>, StoreError> {
        self.faults.alive()?;
        self.inner.load_state(trace_id).await
    }

    async fn list_log_entries(
        &self,
        trace_id: RunId,
        after_seq: u64,
    ) -> Result<Vec<Appended>, StoreError> {
        self.faults.alive()?;
        self.inner.list_log_entries(trace_id, after_seq).await
    }

    async fn load_latest_checkpoint(
        &self,
        trace_id: RunId,
    ) -> Result<Option<Checkpoint>, StoreError> {
        self.faults.alive()?;
        self.inner.load_latest_checkpoint(trace_id).await
    }

    async fn acquire_trace_lock(&self, trace_id: RunId) -> Result<(), StoreError> {
        self.faults.alive()?;
        self.inner.acquire_trace_lock(trace_id).await
    }

    async fn release_trace_lock(&self, trace_id: RunId) -> Result<(), StoreError> {
        self.faults.alive()?;
        self.inner.release_trace_lock(trace_id).await
    }

    async fn lock_new_trace(&self, trace_id: RunId) -> Result<(), StoreError> {
        self.faults.alive()?;
        self.inner.lock_new_trace(trace_id).await
    }

    async fn may_dispatch(&self, trace_id: RunId) -> Result<(), StoreError> {
        self.faults.alive()?;
        self.inner.may_dispatch(trace_id).await
    }

    fn node_id(&self) -> Option<String> {
        self.inner.node_id()
    }

    async fn default_session_of(
        &self,
        principal_id: &PrincipalId,
    ) -> Result<Option<Session>, StoreError> {
        self.faults.alive()?;
        self.inner.default_session_of(principal_id).await
    }

    async fn has_stray_runs(&self) -> Result<bool, StoreError> {
        self.faults.alive()?;
        self.inner.has_stray_runs().await
    }

    async fn commit(&self, commit: StepCommit) -> Result<(), StoreError> {
        let number = self.faults.begin_write()?;
        let answer = self.inner.commit(commit).await;
        self.faults.end_write(number, answer)
    }

    async fn append_event(&self, event: Event) -> Result<(), StoreError> {
        let number = self.faults.begin_write()?;
        let answer = self.inner.append_event(event).await;
        self.faults.end_write(number, answer)
    }

    async fn open_session(&self, session: Session, event: Event) -> Result<Session, StoreError> {
        let number = self.faults.begin_write()?;
        let answer = self.inner.open_session(session, event).await;
        self.faults.end_write(number, answer)
    }

    async fn session(&self, session_id: SessionId) -> Result<Option<Session>, StoreError> {
        self.faults.alive()?;
        self.inner.session(session_id).await
    }

    async fn session_of(
        &self,
        principal_id: &PrincipalId,
        kind: SessionKind,
    ) -> Result<Option<Session>, StoreError> {
        self.faults.alive()?;
        self.inner.session_of(principal_id, kind).await
    }

    async fn sessions(&self) -> Result<Vec<Session>, StoreError> {
        self.faults.alive()?;
        self.inner.sessions().await
    }

    async fn next_step_index(&self, session_id: SessionId) -> Result<u64, StoreError> {
        self.faults.alive()?;
        self.inner.next_step_index(session_id).await
    }

    async fn binding(&self, key: &IdempotencyKey) -> Result<Option<Binding>, StoreError> {
        self.faults.alive()?;
        self.inner.binding(key).await
    }

    async fn approval(&self, approval_id: ApprovalId) -> Result<Option<Approval>, StoreError> {
        self.faults.alive()?;
        self.inner.approval(approval_id).await
    }

    async fn open_approvals(&self, principal_id: Option<&PrincipalId>) -> Result<u64, StoreError> {
        self.faults.alive()?;
        self.inner.open_approvals(principal_id).await
    }

    async fn approvals(&self, query: ApprovalQuery) -> Result<Vec<Approval>, StoreError> {
        self.faults.alive()?;
        self.inner.approvals(query).await
    }

    async fn event(&self, event_id: ArtifactId) -> Result<Option<Event>, StoreError> {
        self.faults.alive()?;
        self.inner.event(event_id).await
    }

    async fn events(&self, query: EventQuery) -> Result<Vec<PlacedEvent>, StoreError> {
        self.faults.alive()?;
        self.inner.events(query).await
    }

    async fn last_position(&self) -> Result<u64, StoreError> {
        self.faults.alive()?;
        self.inner.last_position().await
    }

    async fn dossier(&self, run_id: RunId) -> Result<Option<Dossier>, StoreError> {
        self.faults.alive()?;
        self.inner.dossier(run_id).await
    }

    async fn runs(&self, query: RunQuery) -> Result<Vec<Run>, StoreError> {
        self.faults.alive()?;
        self.inner.runs(query).await
    }

    async fn unfinished(&self) -> Result<Vec<Unfinished>, StoreError> {
        self.faults.alive()?;
        self.inner.unfinished().await
    }

    async fn loose_page(
        &self,
        after: u64,
        limit: usize,
    ) -> Result<Vec<(u64, LinkedEvent)>, StoreError> {
        self.faults.alive()?;
        self.inner.loose_page(after, limit).await
    }

    async fn counts(&self) -> Result<Counts, StoreError> {
        self.faults.alive()?;
        self.inner.counts().await
    }

    async fn shared_keys(&self, limit: usize) -> Result<Vec<IdempotencyKey>, StoreError> {
        self.faults.alive()?;
        self.inner.shared_keys(limit).await
    }

    async fn damage(&self) -> Result<Vec<String>, StoreError> {
        self.faults.alive()?;
        self.inner.damage().await
    }
}
