//! The port that stores: small traits by purpose, and [`Store`] for all of them.
//!
//! No trait has a default that an engine could forget to replace. Methods that follow from the others alone
//! are written once, in [`Store`] itself.

use async_trait::async_trait;

use super::{
    Announcement, ApprovalQuery, ArchiveCommit, Audited, Counts, Cursor, Dossier, EndedQuery,
    EndedRun, ErasableArgs, EraseCommit, EventQuery, KeptRun, LinkedEvent, Moment, Node, Place,
    PlacedEvent, Recollection, RunQuery, SessionQuery, StepCommit, StoreError, TurnQuery,
    Unfinished, Unreached,
};
use crate::approval::Approval;
use crate::archived::ArchivedRun;
use crate::budget::{Account, Balance, BudgetName, Window};
use crate::decimal::Decimal;
use crate::digest::Digest;
use crate::event::Event;
use crate::idempotency::Binding;
use crate::ids::{ApprovalId, ArtifactId, IdempotencyKey, PrincipalId, RunId, SessionId};
use crate::journal::{Appended, Checkpoint, ExecutionState};
use crate::run::Run;
use crate::session::{Session, SessionKind};

/// Everything that the gate asks of a store. Seven operations have the names of spec 004: `load_state`,
/// `append_log_entry`, `list_log_entries`, `write_checkpoint`, `load_latest_checkpoint`,
/// `acquire_trace_lock` and `release_trace_lock`.
#[async_trait]
pub trait Store:
    Writes
    + Locks
    + Runs
    + Sessions
    + Approvals
    + Budgets
    + Events
    + Cursors
    + Audits
    + Archives
    + Erasables
    + Nodes
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

    /// The entries after a sequence number, in order.
    async fn list_log_entries(
        &self,
        trace_id: RunId,
        after_seq: u64,
    ) -> Result<Vec<Appended>, StoreError> {
        let mut entries = self.dossier(trace_id).await?.map_or_else(Vec::new, |it| it.entries);
        entries.retain(|appended| appended.entry.sequence_number > after_seq);
        Ok(entries)
    }

    /// The checkpoint with the highest sequence number.
    async fn load_latest_checkpoint(
        &self,
        trace_id: RunId,
    ) -> Result<Option<Checkpoint>, StoreError> {
        Ok(self.dossier(trace_id).await?.and_then(|mut it| it.checkpoints.pop()))
    }

    /// The data for answering a known proposal again.
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
        self.loose_page(0, usize::MAX).await
    }
}

impl<T> Store for T where
    T: Writes
        + Locks
        + Runs
        + Sessions
        + Approvals
        + Budgets
        + Events
        + Cursors
        + Audits
        + Archives
        + Erasables
        + Nodes
{
}

/// Writes. Each call writes everything or nothing, durably. The store sends its announcement afterwards.
#[async_trait]
pub trait Writes: Send + Sync {
    /// Commits a part of a step. It is refused unless the entries continue the journal's tail, the key is
    /// free, the approval is pending and no charge exceeds its budget. The store numbers the links here.
    async fn commit(&self, commit: StepCommit) -> Result<(), StoreError>;

    /// Appends an event outside any step, with a link of its own.
    async fn append_event(&self, event: Event) -> Result<(), StoreError>;

    /// Opens a session, together with its event in the system session. Opening it again for the same
    /// principal changes nothing.
    async fn open_session(&self, session: Session, event: Event) -> Result<Session, StoreError>;
}

/// Locks: at most one task works on a trace.
#[async_trait]
pub trait Locks: Send + Sync {
    /// Takes the trace's lock, or STATE_LOCK_ACQUIRE_FAILED after the wait.
    async fn acquire_trace_lock(&self, trace_id: RunId) -> Result<(), StoreError>;

    /// Releases it.
    async fn release_trace_lock(&self, trace_id: RunId) -> Result<(), StoreError>;

    /// Whether a call of this trace may be sent now: STATE_CONCURRENT_EXECUTION where another node may have
    /// taken the trace over. A store that only one process can open has no other node.
    async fn may_dispatch(&self, trace_id: RunId) -> Result<(), StoreError>;
}

/// Runs, and the keys that they act under.
#[async_trait]
pub trait Runs: Send + Sync {
    /// What a key is bound to.
    async fn binding(&self, key: &IdempotencyKey) -> Result<Option<Binding>, StoreError>;

    /// The state of a trace: the fold of its journal.
    async fn load_state(&self, trace_id: RunId) -> Result<Option<ExecutionState>, StoreError>;

    /// Everything about one run.
    async fn dossier(&self, run_id: RunId) -> Result<Option<Dossier>, StoreError>;

    /// The data for answering known proposals again, for each of these runs that exists, in their order.
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

    /// A page of sessions, newest first.
    async fn session_page(&self, query: SessionQuery) -> Result<Vec<Session>, StoreError>;

    /// The next step index of a session. Gaps are legal.
    async fn next_step_index(&self, session_id: SessionId) -> Result<u64, StoreError>;
}

/// Questions to people.
#[async_trait]
pub trait Approvals: Send + Sync {
    /// An approval.
    async fn approval(&self, approval_id: ApprovalId) -> Result<Option<Approval>, StoreError>;

    /// Approvals, in the order that the query asks for.
    async fn approvals(&self, query: ApprovalQuery) -> Result<Vec<Approval>, StoreError>;

    /// How many approvals are pending: of this principal's runs, or of all.
    async fn open_approvals(&self, principal_id: Option<&PrincipalId>) -> Result<u64, StoreError>;
}

/// How much of the budgets is used.
#[async_trait]
pub trait Budgets: Send + Sync {
    /// How much of each of these accounts is used, in their order; nothing of one that was never charged.
    async fn used(&self, accounts: &[Account]) -> Result<Vec<Decimal>, StoreError>;

    /// The accounts of a budget in a window, the fullest first.
    async fn accounts(
        &self,
        budget: &BudgetName,
        window: Window,
        limit: usize,
    ) -> Result<Vec<Balance>, StoreError>;

    /// Every account that was ever charged, in any order.
    async fn balances(&self) -> Result<Vec<Balance>, StoreError>;
}

/// What happened.
#[async_trait]
pub trait Events: Send + Sync {
    /// The events of these ids, in any order.
    async fn events_by_id(&self, event_ids: &[ArtifactId]) -> Result<Vec<Event>, StoreError>;

    /// Events, oldest first.
    async fn events(&self, query: EventQuery) -> Result<Vec<PlacedEvent>, StoreError>;

    /// The events that opened turns, newest first.
    async fn opened_turns(&self, query: TurnQuery) -> Result<Vec<Event>, StoreError>;

    /// The position of the last event; 0 where there is none. No event is added later at a smaller position.
    /// So a reader that asks for this first, then reads events and finds none, need not read up to this
    /// position again.
    async fn last_position(&self) -> Result<u64, StoreError>;

    /// The same for events that belong to no run. Every step asks for this, so it must be cheap: no thread and no
    /// file where one process has the store, one round trip where several share it.
    async fn last_loose_position(&self) -> Result<u64, StoreError>;

    /// The same as the last commit of this process found it, without asking the store; none where that is not known.
    /// After a commit with events, none that was committed before it is missing.
    async fn committed_loose_position(&self) -> Result<Option<u64>, StoreError>;

    /// Events that belong to no run, after a position, oldest first.
    async fn loose_page(&self, after: u64, limit: usize) -> Result<Vec<LinkedEvent>, StoreError>;
}

/// How far readers of the events have come. A cursor belongs to no chain: it says what was read, not what
/// happened.
#[async_trait]
pub trait Cursors: Send + Sync {
    /// Takes a cursor for this process, and returns what it has reached. A cursor of a new name begins at
    /// `first`. None while another living node has it.
    async fn take_cursor(&self, name: &str, first: u64) -> Result<Option<u64>, StoreError>;

    /// Moves a cursor that this process has taken: forward, never back. False where another node has taken
    /// it meanwhile: nothing was written.
    async fn move_cursor(&self, cursor: &Cursor) -> Result<bool, StoreError>;

    /// Every cursor, in the order of their names.
    async fn cursors(&self) -> Result<Vec<Cursor>, StoreError>;
}

/// How `verify` walks a store.
#[async_trait]
pub trait Audits: Send + Sync {
    /// How many rows there are.
    async fn counts(&self) -> Result<Counts, StoreError>;

    /// The moment that `verify` reads up to.
    async fn moment(&self) -> Result<Moment, StoreError>;

    /// A page of the runs that existed at the moment, newest first. Each call uses transactions of its own
    /// and leaves none open.
    async fn audit(
        &self,
        last: &Counts,
        before: Option<RunId>,
        limit: usize,
    ) -> Result<Vec<Audited>, StoreError>;

    /// Keys that are bound to more than one trace, at most `limit` (I2: there is none). Found from the rows,
    /// not from the unique index that should have prevented the second, and in bounded memory.
    async fn shared_keys(&self, limit: usize) -> Result<Vec<IdempotencyKey>, StoreError>;

    /// How large the store is, in bytes; none where the engine does not know.
    async fn size_bytes(&self) -> Result<Option<u64>, StoreError>;

    /// Damage that the engine itself finds in its files, a line each. Empty where the engine has no such
    /// check.
    async fn damage(&self) -> Result<Vec<String>, StoreError>;
}

/// Runs that leave the store for archives.
#[async_trait]
pub trait Archives: Send + Sync {
    /// Runs that are over, in the order of their ids. A run that has the last row of a table is left out: the position of
    /// that row would be given again.
    async fn ended(&self, query: EndedQuery) -> Result<Vec<EndedRun>, StoreError>;

    /// Takes runs out of the store, all or none, and keeps what the commit says of them. It is refused with
    /// STATE_CONCURRENT_EXECUTION where the system session has gone on, and with another code where a run is not over, or
    /// has other rows than the commit says.
    async fn archive(&self, commit: ArchiveCommit) -> Result<(), StoreError>;

    /// What is kept of an archived run.
    async fn archived_run(&self, run_id: RunId) -> Result<Option<ArchivedRun>, StoreError>;

    /// What is kept of archived runs, after a position, in the order of their commits, each with the binding of its key.
    async fn archived_page(&self, after: u64, limit: usize) -> Result<Vec<KeptRun>, StoreError>;
}

/// Arguments that are kept apart until they are erased.
#[async_trait]
pub trait Erasables: Send + Sync {
    /// Those of a run.
    async fn erasable(&self, run_id: RunId) -> Result<Option<ErasableArgs>, StoreError>;

    /// Those of all runs after this one, in the order of their ids.
    async fn erasable_page(
        &self,
        after: Option<RunId>,
        limit: usize,
    ) -> Result<Vec<ErasableArgs>, StoreError>;

    /// Erases those of runs, all or none. It is refused with STATE_CONCURRENT_EXECUTION where the system session has gone
    /// on.
    async fn erase(&self, commit: EraseCommit) -> Result<(), StoreError>;
}

/// Operations that differ where several processes share a store. A store that only one process can open is
/// [`Alone`].
#[async_trait]
pub trait Nodes: Send + Sync {
    /// The name of this process among those that share the store; none where only one process can open it.
    fn node_id(&self) -> Option<String>;

    /// The nodes that have the store open, oldest first; none where only one process can.
    async fn nodes(&self) -> Result<Vec<Node>, StoreError>;

    /// Whether a node is gone while it owned runs that are not over.
    async fn has_stray_runs(&self) -> Result<bool, StoreError>;

    /// Runs that no node can continue, because no living node reaches the executor that their call was sent
    /// to.
    async fn unreached(&self) -> Result<Vec<Unreached>, StoreError>;

    /// Takes the lock of a trace that is about to be created. No other node knows its id yet, so none has to
    /// be asked.
    async fn lock_new_trace(&self, trace_id: RunId) -> Result<(), StoreError>;

    /// The default session of this principal on this node.
    async fn default_session_of(
        &self,
        principal_id: &PrincipalId,
    ) -> Result<Option<Session>, StoreError>;

    /// Reports to the other nodes which policies are in force on this one.
    async fn tell_policy(&self, policy_hash: Digest) -> Result<(), StoreError>;

    /// Reports to the other nodes which executors this one reaches.
    async fn tell_executors(&self, executor_ids: Vec<String>) -> Result<(), StoreError>;

    /// Records which sandbox an executor's name refers to, unless one is recorded already, and returns the
    /// recorded one. If two sandboxes had one name, each could be asked about the other's calls.
    async fn claim_executor(&self, executor_id: &str, mark: &str) -> Result<String, StoreError>;

    /// Closes the store in an orderly way, so that other nodes need not wait for this one's lease to expire.
    /// The store must not be used afterwards.
    async fn leave(&self);

    /// Waits for a change by another node; for ever where there is no other node.
    async fn elsewhere(&self) -> Announcement;
}

/// A store that only one process at a time can open: there are no other nodes, and it reaches every
/// executor.
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
