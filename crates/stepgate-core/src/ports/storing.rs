//! What remembers: small traits by purpose, and [`Store`] for all of them.
//!
//! No trait has a default that an engine could forget to replace. What follows from the other methods alone
//! is written once, in [`Store`] itself.

use async_trait::async_trait;

use super::{
    Announcement, ApprovalQuery, Audited, Counts, Dossier, EventQuery, LinkedEvent, Moment, Node,
    Place, PlacedEvent, Recollection, RunQuery, StepCommit, StoreError, Unfinished, Unreached,
};
use crate::approval::Approval;
use crate::digest::Digest;
use crate::event::Event;
use crate::idempotency::Binding;
use crate::ids::{ApprovalId, ArtifactId, IdempotencyKey, PrincipalId, RunId, SessionId};
use crate::journal::{Appended, Checkpoint, ExecutionState};
use crate::run::Run;
use crate::session::{Session, SessionKind};

/// Everything that the gate asks of a store. Seven operations are spec 004's, under its names: `load_state`,
/// `append_log_entry`, `list_log_entries`, `write_checkpoint`, `load_latest_checkpoint`,
/// `acquire_trace_lock` and `release_trace_lock`.
#[async_trait]
pub trait Store:
    Writes + Locks + Journals + Runs + Sessions + Approvals + Events + Audits + Nodes
{
    /// Appends one entry to a trace whose run is open: the one-entry form of `commit`.
    async fn append_log_entry(&self, place: Place, entry: Appended) -> Result<(), StoreError> {
        entry.prove()?;
        self.commit(StepCommit { entries: vec![entry], ..StepCommit::at(place) }).await
    }

    /// Writes a checkpoint: the no-entry form of `commit`.
    async fn write_checkpoint(&self, checkpoint: Checkpoint) -> Result<(), StoreError> {
        let place =
            Place { session_id: checkpoint.checkpoint_state.plan_id, run_id: checkpoint.trace_id };
        self.commit(StepCommit { checkpoint: Some(checkpoint), ..StepCommit::at(place) }).await
    }

    /// What the answer to a known proposal is made of.
    async fn recall(&self, run_id: RunId) -> Result<Option<Recollection>, StoreError> {
        Ok(self.recollections(&[run_id]).await?.pop())
    }

    /// The event of this id.
    async fn event(&self, event_id: ArtifactId) -> Result<Option<Event>, StoreError> {
        Ok(self.events_by_id(&[event_id]).await?.pop())
    }

    /// The ids of the runs that are `unfinished`.
    async fn unfinished_runs(&self) -> Result<Vec<RunId>, StoreError> {
        Ok(self.unfinished().await?.into_iter().map(|run| run.run_id).collect())
    }

    /// Events that belong to no run, oldest first.
    async fn loose_events(&self) -> Result<Vec<LinkedEvent>, StoreError> {
        let events = self.loose_page(0, usize::MAX).await?;
        Ok(events.into_iter().map(|(_, linked)| linked).collect())
    }
}

impl<T> Store for T where
    T: Writes + Locks + Journals + Runs + Sessions + Approvals + Events + Audits + Nodes
{
}

/// What is written. Each call writes everything or nothing, durably; whoever the store announces to is told
/// afterwards.
#[async_trait]
pub trait Writes: Send + Sync {
    /// Commits a part of a step. The conditions are the journal's tail, a free key, and a pending approval;
    /// links are numbered here.
    async fn commit(&self, commit: StepCommit) -> Result<(), StoreError>;

    /// Appends an event outside any step, with a link of its own.
    async fn append_event(&self, event: Event) -> Result<(), StoreError>;

    /// Opens a session, together with its event in the system session. Opening it again for the same
    /// principal changes nothing.
    async fn open_session(&self, session: Session, event: Event) -> Result<Session, StoreError>;
}

/// Who may go on with a trace.
#[async_trait]
pub trait Locks: Send + Sync {
    /// Takes the trace's lock, or STATE_LOCK_ACQUIRE_FAILED after the wait.
    async fn acquire_trace_lock(&self, trace_id: RunId) -> Result<(), StoreError>;

    /// Gives it back.
    async fn release_trace_lock(&self, trace_id: RunId) -> Result<(), StoreError>;

    /// Whether a call of this trace may be sent now: STATE_CONCURRENT_EXECUTION where another node may
    /// have taken the trace over. A store that one process holds has no other node.
    async fn may_dispatch(&self, trace_id: RunId) -> Result<(), StoreError>;
}

/// The journal of one trace.
#[async_trait]
pub trait Journals: Send + Sync {
    /// The state of a trace: the fold of its journal.
    async fn load_state(&self, trace_id: RunId) -> Result<Option<ExecutionState>, StoreError>;

    /// The entries after a sequence number, in order.
    async fn list_log_entries(
        &self,
        trace_id: RunId,
        after_seq: u64,
    ) -> Result<Vec<Appended>, StoreError>;

    /// The checkpoint with the highest sequence number.
    async fn load_latest_checkpoint(
        &self,
        trace_id: RunId,
    ) -> Result<Option<Checkpoint>, StoreError>;
}

/// Runs, and the keys that they act under.
#[async_trait]
pub trait Runs: Send + Sync {
    /// What a key is bound to.
    async fn binding(&self, key: &IdempotencyKey) -> Result<Option<Binding>, StoreError>;

    /// Everything about one run.
    async fn dossier(&self, run_id: RunId) -> Result<Option<Dossier>, StoreError>;

    /// What the answers to known proposals are made of, for each of these runs that there is, in their
    /// order.
    async fn recollections(&self, run_ids: &[RunId]) -> Result<Vec<Recollection>, StoreError>;

    /// Runs, newest first.
    async fn runs(&self, query: RunQuery) -> Result<Vec<Run>, StoreError>;

    /// The ids of runs, newest first.
    async fn run_ids(&self, before: Option<RunId>, limit: usize) -> Result<Vec<RunId>, StoreError>;

    /// Runs that are not over and that no other living node works on, oldest first.
    async fn unfinished(&self) -> Result<Vec<Unfinished>, StoreError>;
}

/// Sessions.
#[async_trait]
pub trait Sessions: Send + Sync {
    /// A session.
    async fn session(&self, session_id: SessionId) -> Result<Option<Session>, StoreError>;

    /// The first session of this kind that belongs to the principal.
    async fn session_of(
        &self,
        principal_id: &PrincipalId,
        kind: SessionKind,
    ) -> Result<Option<Session>, StoreError>;

    /// Every session, in the order of their ids.
    async fn sessions(&self) -> Result<Vec<Session>, StoreError>;

    /// The next step index of a session. Gaps are legal.
    async fn next_step_index(&self, session_id: SessionId) -> Result<u64, StoreError>;
}

/// Questions to people.
#[async_trait]
pub trait Approvals: Send + Sync {
    /// An approval.
    async fn approval(&self, approval_id: ApprovalId) -> Result<Option<Approval>, StoreError>;

    /// Approvals, newest first.
    async fn approvals(&self, query: ApprovalQuery) -> Result<Vec<Approval>, StoreError>;

    /// How many approvals are pending: of this principal's runs, or of all.
    async fn open_approvals(&self, principal_id: Option<&PrincipalId>) -> Result<u64, StoreError>;
}

/// What happened.
#[async_trait]
pub trait Events: Send + Sync {
    /// The events of these ids, in any order.
    async fn events_by_id(&self, event_ids: &[ArtifactId]) -> Result<Vec<Event>, StoreError>;

    /// Events, oldest first.
    async fn events(&self, query: EventQuery) -> Result<Vec<PlacedEvent>, StoreError>;

    /// The position of the last event; 0 where there is none. No event comes at a smaller position later, so
    /// whoever asks this first, then reads events and finds none, need never look up to here again.
    async fn last_position(&self) -> Result<u64, StoreError>;

    /// Events that belong to no run, after a position, oldest first, each with its position.
    async fn loose_page(
        &self,
        after: u64,
        limit: usize,
    ) -> Result<Vec<(u64, LinkedEvent)>, StoreError>;
}

/// How `verify` walks a store.
#[async_trait]
pub trait Audits: Send + Sync {
    /// How many rows there are.
    async fn counts(&self) -> Result<Counts, StoreError>;

    /// The moment that `verify` reads up to.
    async fn moment(&self) -> Result<Moment, StoreError>;

    /// A page of the runs that were there at the moment, newest first. No transaction outlasts the call.
    async fn audit(
        &self,
        last: &Counts,
        before: Option<RunId>,
        limit: usize,
    ) -> Result<Vec<Audited>, StoreError>;

    /// Keys under which more than one trace is bound, at most so many (I2: there is none). Told by the
    /// rows and not by the index that should have kept the second away, in bounded memory.
    async fn shared_keys(&self, limit: usize) -> Result<Vec<IdempotencyKey>, StoreError>;

    /// What the engine itself finds wrong with its files, a line each. None where it cannot be asked.
    async fn damage(&self) -> Result<Vec<String>, StoreError>;
}

/// What differs where several processes share a store. One that only a single process can open is [`Alone`].
#[async_trait]
pub trait Nodes: Send + Sync {
    /// How this process calls itself among those that share the store; none where only one process can
    /// have it.
    fn node_id(&self) -> Option<String>;

    /// The nodes that have the store open, oldest first; none where only one process can.
    async fn nodes(&self) -> Result<Vec<Node>, StoreError>;

    /// Whether a node is gone that worked on runs which are not over.
    async fn has_stray_runs(&self) -> Result<bool, StoreError>;

    /// Runs that nobody can go on with, because no living node reaches what their call was sent to.
    async fn unreached(&self) -> Result<Vec<Unreached>, StoreError>;

    /// Takes the lock of a trace that is about to come into being. Nobody else knows its id, so no other node
    /// has to be asked.
    async fn lock_new_trace(&self, trace_id: RunId) -> Result<(), StoreError>;

    /// The default session that the principal's callers join here: on this node, where several share the
    /// store.
    async fn default_session_of(
        &self,
        principal_id: &PrincipalId,
    ) -> Result<Option<Session>, StoreError>;

    /// Tells the other nodes which policies are in force on this one.
    async fn tell_policy(&self, policy_hash: Digest) -> Result<(), StoreError>;

    /// Tells the other nodes which executors this one reaches.
    async fn tell_executors(&self, executor_ids: Vec<String>) -> Result<(), StoreError>;

    /// Records which sandbox the name of an executor stands for, unless one is recorded already, and answers which
    /// one it is. Two sandboxes under one name would be asked about each other's calls.
    async fn claim_executor(&self, executor_id: &str, mark: &str) -> Result<String, StoreError>;

    /// Lets go of the store in an orderly way, so that other nodes need not wait for this one. Nothing is
    /// asked of the store afterwards.
    async fn leave(&self);

    /// Waits for what another node does. For ever, where there is no other.
    async fn elsewhere(&self) -> Announcement;
}

/// A store that one process at a time can have: there are no other nodes, and it reaches every executor.
pub trait Alone: Locks + Sessions {}

#[async_trait]
impl<T: Alone> Nodes for T {
    fn node_id(&self) -> Option<String> {
        None
    }

    async fn nodes(&self) -> Result<Vec<Node>, StoreError> {
        Ok(Vec::new())
    }

    async fn has_stray_runs(&self) -> Result<bool, StoreError> {
        Ok(false)
    }

    async fn unreached(&self) -> Result<Vec<Unreached>, StoreError> {
        Ok(Vec::new())
    }

    async fn lock_new_trace(&self, trace_id: RunId) -> Result<(), StoreError> {
        self.acquire_trace_lock(trace_id).await
    }

    async fn default_session_of(
        &self,
        principal_id: &PrincipalId,
    ) -> Result<Option<Session>, StoreError> {
        self.session_of(principal_id, SessionKind::Default).await
    }

    async fn tell_policy(&self, _: Digest) -> Result<(), StoreError> {
        Ok(())
    }

    async fn tell_executors(&self, _: Vec<String>) -> Result<(), StoreError> {
        Ok(())
    }

    async fn claim_executor(&self, _: &str, mark: &str) -> Result<String, StoreError> {
        Ok(mark.to_owned())
    }

    async fn leave(&self) {}

    async fn elsewhere(&self) -> Announcement {
        std::future::pending().await
    }
}
