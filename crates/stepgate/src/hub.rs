//! What becomes durable is announced here: waiting callers and event streams are woken at once.
//!
//! A store that announces stands before the real one. Nobody who listens can slow it down: a run's
//! watchers see only the latest of its progress, and streams are told that there is more, not what.
//! What a tool says of its own progress is announced here too; it is the one thing that is never durable.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use stepgate_core::approval::Approval;
use stepgate_core::digest::Digest;
use stepgate_core::event::Event;
use stepgate_core::idempotency::Binding;
use stepgate_core::ids::{ApprovalId, ArtifactId, IdempotencyKey, PrincipalId, RunId, SessionId};
use stepgate_core::journal::{Appended, Checkpoint, ExecutionState};
use stepgate_core::lock::locked;
use stepgate_core::ports::{
    ApprovalChange, ApprovalQuery, Audited, Counts, Dossier, Elsewhere, EventQuery, LinkedEvent,
    Moment, Node, Place, PlacedEvent, Recollection, RunQuery, StepCommit, Store, StoreError,
    Unfinished, Unreached,
};
use stepgate_core::run::Run;
use stepgate_core::session::{Session, SessionKind};
use stepgate_exec::servers::CallProgress;
use tokio::sync::{mpsc, watch};

/// How far a run has come since somebody began to watch it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Progress {
    /// Its approval was decided.
    pub(crate) decided: bool,
    /// It is recorded.
    pub(crate) finished: bool,
    /// What its tool said last of how far it has come.
    said: Option<CallProgress>,
    /// How often it has said something.
    said_count: u64,
}

/// Who wants to know what.
pub(crate) struct Hub {
    /// INVARIANT: a run has an entry only while somebody watches it.
    runs: Mutex<HashMap<RunId, watch::Sender<Progress>>>,
    /// Counts whatever happened.
    pulse: watch::Sender<u64>,
    /// Questions to people, for whoever keeps the time.
    asked: Mutex<Option<mpsc::UnboundedSender<Approval>>>,
}

impl Hub {
    pub(crate) fn new() -> Arc<Self> {
        let (pulse, _) = watch::channel(0);
        Arc::new(Self { runs: Mutex::default(), pulse, asked: Mutex::default() })
    }

    /// Watches one run from now on.
    pub(crate) fn watch(self: &Arc<Self>, run_id: RunId) -> RunWatch {
        let mut runs = locked(&self.runs);
        let sender = runs.entry(run_id).or_insert_with(|| watch::channel(Progress::default()).0);
        RunWatch { hub: Arc::clone(self), run_id, progress: sender.subscribe(), heard_count: 0 }
    }

    /// Tells whoever watches the run how far its tool says that it has come.
    pub(crate) fn progress(&self, said: CallProgress) {
        if let Some(sender) = locked(&self.runs).get(&said.run_id) {
            sender.send_modify(|progress| {
                progress.said = Some(said);
                progress.said_count = progress.said_count.wrapping_add(1);
            });
        }
    }

    /// Wakes whenever there is more to read.
    pub(crate) fn pulse(&self) -> watch::Receiver<u64> {
        self.pulse.subscribe()
    }

    /// Every question to a person from now on. There is one who keeps the time.
    pub(crate) fn asked(&self) -> mpsc::UnboundedReceiver<Approval> {
        let (sender, receiver) = mpsc::unbounded_channel();
        *locked(&self.asked) = Some(sender);
        receiver
    }

    /// How many runs are watched.
    #[cfg(test)]
    pub(crate) fn watched(&self) -> usize {
        locked(&self.runs).len()
    }

    /// What another node did to a run: its approval was decided, and perhaps it is over.
    pub(crate) fn heard(&self, run_id: RunId, finished: bool) {
        self.announce(Change { run_id, decided: true, finished, asked: None });
    }

    /// The runs that somebody watches.
    pub(crate) fn watched_runs(&self) -> Vec<RunId> {
        locked(&self.runs).keys().copied().collect()
    }

    fn announce(&self, change: Change) {
        if let Some(sender) = locked(&self.runs).get(&change.run_id) {
            sender.send_modify(|progress| {
                progress.decided |= change.decided;
                progress.finished |= change.finished;
            });
        }
        if let (Some(approval), Some(keeper)) = (change.asked, &*locked(&self.asked)) {
            // A keeper that is gone keeps no time, and reads the store when it comes back.
            let _ = keeper.send(approval);
        }
        self.wake();
    }

    /// Wakes whoever follows what happens.
    pub(crate) fn wake(&self) {
        self.pulse.send_modify(|count| *count = count.wrapping_add(1));
    }
}

/// One watcher of one run.
pub(crate) struct RunWatch {
    hub: Arc<Hub>,
    run_id: RunId,
    progress: watch::Receiver<Progress>,
    /// Up to where it has heard what the tool said.
    heard_count: u64,
}

impl RunWatch {
    /// Until the run is recorded.
    pub(crate) async fn finished(&mut self) {
        self.until(|progress| progress.finished).await;
    }

    /// Until its approval is decided.
    pub(crate) async fn decided(&mut self) {
        self.until(|progress| progress.decided).await;
    }

    /// Until the run's tool says more of how far it has come than was heard here; the latest of it. It may
    /// begin anew where a call is sent again. Dropped before it is over, it has heard nothing.
    pub(crate) async fn progressed(&mut self) -> CallProgress {
        loop {
            let heard = self.heard_count;
            let Progress { said, said_count, .. } =
                self.until(|progress| progress.said_count != heard).await;
            self.heard_count = said_count;
            if let Some(said) = said {
                return said;
            }
        }
    }

    /// How far the run has come when it is far enough.
    async fn until(&mut self, is_enough: impl FnMut(&Progress) -> bool) -> Progress {
        if let Ok(progress) = self.progress.wait_for(is_enough).await {
            return progress.clone();
        }
        // The sender lives as long as a watcher does, so this is never reached; and if it were, there
        // would be nothing to wake up for.
        std::future::pending().await
    }
}

impl Drop for RunWatch {
    fn drop(&mut self) {
        let mut runs = locked(&self.hub.runs);
        // This receiver is still counted.
        if runs.get(&self.run_id).is_some_and(|sender| sender.receiver_count() <= 1) {
            runs.remove(&self.run_id);
        }
    }
}

/// What a commit did that somebody may wait for.
struct Change {
    run_id: RunId,
    decided: bool,
    finished: bool,
    asked: Option<Approval>,
}

impl Change {
    fn of(commit: &StepCommit) -> Self {
        let (asked, decided) = match &commit.approval {
            Some(ApprovalChange::Ask(approval)) => (Some(approval.clone()), false),
            Some(ApprovalChange::Decide(_)) => (None, true),
            None => (None, false),
        };
        Self { run_id: commit.place.run_id, decided, finished: commit.record.is_some(), asked }
    }
}

/// A store that announces what became durable.
pub(crate) struct WatchedStore<S> {
    inner: S,
    hub: Arc<Hub>,
}

impl<S: Store> WatchedStore<S> {
    pub(crate) fn new(inner: S, hub: Arc<Hub>) -> Self {
        Self { inner, hub }
    }
}

#[async_trait]
impl<S: Store> Store for WatchedStore<S> {
    async fn commit(&self, commit: StepCommit) -> Result<(), StoreError> {
        let change = Change::of(&commit);
        let written = self.inner.commit(commit).await;
        // A commit whose answer was lost may be there: whoever is woken reads before they believe.
        if matches!(written, Ok(()) | Err(StoreError::AnswerLost(_))) {
            self.hub.announce(change);
        }
        written
    }

    async fn append_event(&self, event: Event) -> Result<(), StoreError> {
        self.inner.append_event(event).await?;
        self.hub.wake();
        Ok(())
    }

    async fn open_session(&self, session: Session, event: Event) -> Result<Session, StoreError> {
        let opened = self.inner.open_session(session, event).await?;
        self.hub.wake();
        Ok(opened)
    }

    // From here on everything is the inner store's own, also what has a default.

    async fn append_log_entry(&self, place: Place, entry: Appended) -> Result<(), StoreError> {
        self.inner.append_log_entry(place, entry).await
    }

    async fn write_checkpoint(&self, checkpoint: Checkpoint) -> Result<(), StoreError> {
        self.inner.write_checkpoint(checkpoint).await
    }

    async fn load_state(&self, trace_id: RunId) -> Result<Option<ExecutionState>, StoreError> {
        self.inner.load_state(trace_id).await
    }

    async fn list_log_entries(
        &self,
        trace_id: RunId,
        after_seq: u64,
    ) -> Result<Vec<Appended>, StoreError> {
        self.inner.list_log_entries(trace_id, after_seq).await
    }

    async fn load_latest_checkpoint(
        &self,
        trace_id: RunId,
    ) -> Result<Option<Checkpoint>, StoreError> {
        self.inner.load_latest_checkpoint(trace_id).await
    }

    async fn acquire_trace_lock(&self, trace_id: RunId) -> Result<(), StoreError> {
        self.inner.acquire_trace_lock(trace_id).await
    }

    async fn release_trace_lock(&self, trace_id: RunId) -> Result<(), StoreError> {
        self.inner.release_trace_lock(trace_id).await
    }

    async fn lock_new_trace(&self, trace_id: RunId) -> Result<(), StoreError> {
        self.inner.lock_new_trace(trace_id).await
    }

    async fn may_dispatch(&self, trace_id: RunId) -> Result<(), StoreError> {
        self.inner.may_dispatch(trace_id).await
    }

    fn node_id(&self) -> Option<String> {
        self.inner.node_id()
    }

    async fn default_session_of(
        &self,
        principal_id: &PrincipalId,
    ) -> Result<Option<Session>, StoreError> {
        self.inner.default_session_of(principal_id).await
    }

    async fn has_stray_runs(&self) -> Result<bool, StoreError> {
        self.inner.has_stray_runs().await
    }

    async fn tell_policy(&self, policy_hash: Digest) -> Result<(), StoreError> {
        self.inner.tell_policy(policy_hash).await
    }

    async fn tell_executors(&self, executor_ids: Vec<String>) -> Result<(), StoreError> {
        self.inner.tell_executors(executor_ids).await
    }

    async fn claim_executor(&self, executor_id: &str, mark: &str) -> Result<String, StoreError> {
        self.inner.claim_executor(executor_id, mark).await
    }

    async fn unreached(&self) -> Result<Vec<Unreached>, StoreError> {
        self.inner.unreached().await
    }

    async fn nodes(&self) -> Result<Vec<Node>, StoreError> {
        self.inner.nodes().await
    }

    async fn leave(&self) {
        self.inner.leave().await;
    }

    async fn elsewhere(&self) -> Elsewhere {
        self.inner.elsewhere().await
    }

    async fn session(&self, session_id: SessionId) -> Result<Option<Session>, StoreError> {
        self.inner.session(session_id).await
    }

    async fn session_of(
        &self,
        principal_id: &PrincipalId,
        kind: SessionKind,
    ) -> Result<Option<Session>, StoreError> {
        self.inner.session_of(principal_id, kind).await
    }

    async fn sessions(&self) -> Result<Vec<Session>, StoreError> {
        self.inner.sessions().await
    }

    async fn next_step_index(&self, session_id: SessionId) -> Result<u64, StoreError> {
        self.inner.next_step_index(session_id).await
    }

    async fn binding(&self, key: &IdempotencyKey) -> Result<Option<Binding>, StoreError> {
        self.inner.binding(key).await
    }

    async fn approval(&self, approval_id: ApprovalId) -> Result<Option<Approval>, StoreError> {
        self.inner.approval(approval_id).await
    }

    async fn open_approvals(&self, principal_id: Option<&PrincipalId>) -> Result<u64, StoreError> {
        self.inner.open_approvals(principal_id).await
    }

    async fn approvals(&self, query: ApprovalQuery) -> Result<Vec<Approval>, StoreError> {
        self.inner.approvals(query).await
    }

    async fn event(&self, event_id: ArtifactId) -> Result<Option<Event>, StoreError> {
        self.inner.event(event_id).await
    }

    async fn events(&self, query: EventQuery) -> Result<Vec<PlacedEvent>, StoreError> {
        self.inner.events(query).await
    }

    async fn last_position(&self) -> Result<u64, StoreError> {
        self.inner.last_position().await
    }

    async fn dossier(&self, run_id: RunId) -> Result<Option<Dossier>, StoreError> {
        self.inner.dossier(run_id).await
    }

    async fn recall(&self, run_id: RunId) -> Result<Option<Recollection>, StoreError> {
        self.inner.recall(run_id).await
    }

    async fn runs(&self, query: RunQuery) -> Result<Vec<Run>, StoreError> {
        self.inner.runs(query).await
    }

    async fn run_ids(&self, before: Option<RunId>, limit: usize) -> Result<Vec<RunId>, StoreError> {
        self.inner.run_ids(before, limit).await
    }

    async fn unfinished(&self) -> Result<Vec<Unfinished>, StoreError> {
        self.inner.unfinished().await
    }

    async fn loose_page(
        &self,
        after: u64,
        limit: usize,
    ) -> Result<Vec<(u64, LinkedEvent)>, StoreError> {
        self.inner.loose_page(after, limit).await
    }

    async fn counts(&self) -> Result<Counts, StoreError> {
        self.inner.counts().await
    }

    async fn moment(&self) -> Result<Moment, StoreError> {
        self.inner.moment().await
    }

    async fn audit(
        &self,
        last: &Counts,
        before: Option<RunId>,
        limit: usize,
    ) -> Result<Vec<Audited>, StoreError> {
        self.inner.audit(last, before, limit).await
    }

    async fn shared_keys(&self, limit: usize) -> Result<Vec<IdempotencyKey>, StoreError> {
        self.inner.shared_keys(limit).await
    }

    async fn damage(&self) -> Result<Vec<String>, StoreError> {
        self.inner.damage().await
    }
}

#[cfg(test)]
mod tests;
