//! The world, as the core sees it: a store, an executor, a policy, a clock.
//!
//! The core has no clock, randomness, environment, file or task of its own, so the whole lifecycle
//! runs in memory with a simulated clock and a store that crashes on demand.

mod acting;
mod deciding;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::approval::{Approval, ApprovalStatus};
use crate::digest::Digest;
use crate::event::{Event, EventType};
use crate::idempotency::Binding;
use crate::ids::{ApprovalId, ArtifactId, IdempotencyKey, PrincipalId, RunId, SessionId};
use crate::journal::{Appended, Checkpoint, ExecutionState, StateError};
use crate::record::Record;
use crate::run::{Run, Status};
use crate::session::{Link, Session, SessionKind};
use crate::time::Timestamp;

pub use acting::{
    Dispatch, Effect, Executor, Failed, Hold, NoToolServers, Prepared, Said, Sending, ToolServers,
};
pub use deciding::{Policy, PolicyDecision, PolicyRequest, PolicyVerdict};

/// Clock and chance.
#[async_trait]
pub trait World: Send + Sync {
    /// The present.
    fn now(&self) -> Timestamp;

    /// A fresh UUIDv7.
    fn fresh_uuid(&self) -> uuid::Uuid;

    /// Lets time pass.
    async fn pause(&self, duration: Duration);
}

/// Why the store did not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The journal does not go on like this. Nothing was written.
    #[error(transparent)]
    State(#[from] StateError),
    /// The key is bound already. Nothing was written.
    #[error("the idempotency key is bound already")]
    KeyTaken,
    /// The approval is decided already. Nothing was written.
    #[error("the approval is decided already")]
    AlreadyDecided,
    /// There is no such session. Nothing was written.
    #[error("there is no session {0}")]
    UnknownSession(SessionId),
    /// Not possible now. Nothing was written, and trying again is safe.
    #[error("the store is not available: {0}")]
    Unavailable(String),
    /// The answer to a commit was lost: it was written or not. Read back before anything else.
    #[error("the store did not answer: {0}")]
    AnswerLost(String),
    /// The store cannot go on: damaged, or its last commit is in doubt. Restart and recover.
    #[error("the store cannot go on: {0}")]
    Broken(String),
}

/// Everything of one step that becomes durable together (I7).
#[derive(Clone, Debug)]
pub struct StepCommit {
    /// The run that everything here is about.
    pub place: Place,
    /// The run's row comes into being.
    pub open: Option<Run>,
    /// Entries with their artifacts, in order.
    pub entries: Vec<Appended>,
    /// A checkpoint after them.
    pub checkpoint: Option<Checkpoint>,
    /// A question to a person, or the answer.
    pub approval: Option<ApprovalChange>,
    /// The key that the trace binds, or that its effect is recorded.
    pub key: Option<KeyChange>,
    /// The run's new status, where it changes without ending.
    pub status: Option<Status>,
    /// What happened.
    pub events: Vec<Event>,
    /// The payload as it came, where the run's row has it with redacted arguments. It is kept until
    /// the record is written, and then erased.
    pub sealed: Option<Arc<[u8]>>,
    /// The end.
    pub record: Option<Record>,
}

impl StepCommit {
    /// A commit about this run that changes nothing yet.
    pub fn at(place: Place) -> Self {
        Self {
            place,
            open: None,
            entries: Vec::new(),
            checkpoint: None,
            approval: None,
            key: None,
            status: None,
            events: Vec::new(),
            sealed: None,
            record: None,
        }
    }
}

/// Where a commit belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The session.
    pub session_id: SessionId,
    /// The run, and its trace.
    pub run_id: RunId,
}

/// What a commit does to approvals.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApprovalChange {
    /// Asks. The approval is pending.
    Ask(Approval),
    /// Decides: only if it is still pending, or the commit is refused.
    Decide(Approval),
}

/// What a commit does to the idempotency key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyChange {
    /// Binds it: only if it is free, or the commit is refused.
    Bind(Binding),
    /// The effect is recorded.
    Settle(IdempotencyKey),
}

/// An event with its own link, where it has one.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkedEvent {
    /// The event.
    pub event: Event,
    /// Its link, where no OPEN or CLOSE covers it.
    pub link: Option<Link>,
}

/// Everything that the store knows about one run.
#[derive(Clone, Debug, PartialEq)]
pub struct Dossier {
    /// The row.
    pub run: Run,
    /// The journal, in order.
    pub entries: Vec<Appended>,
    /// The OPEN link, in the genesis row.
    pub open_link: Option<Link>,
    /// Checkpoints, in order.
    pub checkpoints: Vec<Checkpoint>,
    /// The approval, where a person was asked.
    pub approval: Option<Approval>,
    /// The key's binding, where the trace has one.
    pub binding: Option<Binding>,
    /// Events, in order.
    pub events: Vec<LinkedEvent>,
    /// The payload as it came, where the row has it redacted and the step is not over.
    pub sealed: Option<Arc<[u8]>>,
    /// The record with its CLOSE link, where the step is over.
    pub record: Option<(Record, Link)>,
}

impl Dossier {
    /// Whether a journal that ends with this entry has every entry that was there when an event was
    /// written.
    pub(crate) fn has_what_its_events_saw(&self, last_sequence_number: u64) -> bool {
        let seen = self.events.iter().map(|linked| linked.event.sequence_number);
        seen.max().is_none_or(|seen| seen <= last_sequence_number)
    }
}

/// How many rows each table has, so that `verify` finds rows that belong to nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// `tool_runs`.
    pub runs: u64,
    /// `journal`.
    pub entries: u64,
    /// `records`.
    pub records: u64,
    /// `checkpoints`.
    pub checkpoints: u64,
    /// `events`.
    pub events: u64,
    /// `approvals`.
    pub approvals: u64,
    /// `effects`.
    pub bindings: u64,
    /// `sessions`.
    pub sessions: u64,
}

impl Counts {
    /// More rows than any table has.
    pub const MAX: Self = Self {
        runs: u64::MAX,
        entries: u64::MAX,
        records: u64::MAX,
        checkpoints: u64::MAX,
        events: u64::MAX,
        approvals: u64::MAX,
        bindings: u64::MAX,
        sessions: u64::MAX,
    };

    /// The rows of one run.
    pub fn of(dossier: &Dossier) -> Self {
        let count = |rows: usize| u64::try_from(rows).unwrap_or(u64::MAX);
        Self {
            runs: 1,
            entries: count(dossier.entries.len()),
            records: u64::from(dossier.record.is_some()),
            checkpoints: count(dossier.checkpoints.len()),
            events: count(dossier.events.len()),
            approvals: u64::from(dossier.approval.is_some()),
            bindings: u64::from(dossier.binding.is_some()),
            sessions: 0,
        }
    }
}

/// The store at one moment: `verify` reads up to there, in short transactions, while others write.
#[derive(Clone, Debug)]
pub struct Moment {
    /// Every session, in the order of their ids, with the ends of their chains.
    pub sessions: Result<Vec<Session>, StoreError>,
    /// How many rows there are.
    pub counts: Result<Counts, StoreError>,
    /// The last position of each table. A row after it is younger than the moment.
    pub last: Counts,
}

/// A run as `verify` reads it: as it is now, whatever was written since the [`Moment`].
#[derive(Clone, Debug)]
pub struct Audited {
    /// The run.
    pub run_id: RunId,
    /// Everything about it; none where the run's row is gone.
    pub dossier: Result<Option<Dossier>, StoreError>,
    /// How many of its rows were there at the moment.
    pub rows: Counts,
}

impl Audited {
    /// A run all of whose rows were there at the moment.
    pub fn whole(run_id: RunId, dossier: Result<Option<Dossier>, StoreError>) -> Self {
        let rows = dossier.as_ref().ok().and_then(Option::as_ref).map(Counts::of);
        Self { run_id, dossier, rows: rows.unwrap_or_default() }
    }
}

/// What the answer to a known proposal is made of. Unlike a [`Dossier`] it does not grow with the
/// number of times the proposal comes again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recollection {
    /// The row.
    pub run: Run,
    /// The last sequence number of the journal; 0 where there is none.
    pub last_sequence_number: u64,
    /// The record, where the step is over.
    pub record: Option<Record>,
}

/// A run that is not over: as much of it as tells what recovery has to do with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unfinished {
    /// The run.
    pub run_id: RunId,
    /// Its action or tool, as its row has it.
    pub tool_name: Option<String>,
    /// Whether a person is asked and nobody works on it meanwhile: until somebody decides there is
    /// nothing to do, and no lock to take.
    pub is_waiting: bool,
}

/// Which runs to list, newest first.
#[derive(Clone, Debug, Default)]
pub struct RunQuery {
    /// Only runs older than this one.
    pub before: Option<RunId>,
    /// Only this session's.
    pub session_id: Option<SessionId>,
    /// Only this principal's.
    pub principal_id: Option<PrincipalId>,
    /// Only those with this status.
    pub status: Option<Status>,
    /// Only those of this tool.
    pub tool_name: Option<String>,
    /// At most so many.
    pub limit: usize,
}

/// Which events to list, oldest first.
#[derive(Clone, Debug, Default)]
pub struct EventQuery {
    /// Only events after this position.
    pub after: u64,
    /// Only those of this principal's sessions.
    pub principal_id: Option<PrincipalId>,
    /// Only those of these types; all where none is named.
    pub event_types: Vec<EventType>,
    /// Only those that belong to no run.
    pub loose_only: bool,
    /// At most so many.
    pub limit: usize,
}

/// An event with its place in the order of all events.
#[derive(Clone, Debug, PartialEq)]
pub struct PlacedEvent {
    /// From 1, increasing. A stream resumes after it.
    pub position: u64,
    /// The event.
    pub event: Event,
}

/// Which approvals to list, newest first.
#[derive(Clone, Debug, Default)]
pub struct ApprovalQuery {
    /// Only those that were asked before this one.
    pub before: Option<ApprovalId>,
    /// Only those with this status.
    pub status: Option<ApprovalStatus>,
    /// Only those that this principal's runs wait for.
    pub principal_id: Option<PrincipalId>,
    /// At most so many.
    pub limit: usize,
}

/// What remembers. The first seven operations are spec 004's, under its names.
#[async_trait]
pub trait Store: Send + Sync {
    /// The state of a trace: the fold of its journal.
    async fn load_state(&self, trace_id: RunId) -> Result<Option<ExecutionState>, StoreError>;

    /// Appends one entry to a trace whose run is open: the one-entry form of `commit`.
    async fn append_log_entry(&self, place: Place, entry: Appended) -> Result<(), StoreError> {
        entry.prove()?;
        self.commit(StepCommit { entries: vec![entry], ..StepCommit::at(place) }).await
    }

    /// The entries after a sequence number, in order.
    async fn list_log_entries(
        &self,
        trace_id: RunId,
        after_seq: u64,
    ) -> Result<Vec<Appended>, StoreError>;

    /// Writes a checkpoint: the no-entry form of `commit`.
    async fn write_checkpoint(&self, checkpoint: Checkpoint) -> Result<(), StoreError> {
        let place =
            Place { session_id: checkpoint.checkpoint_state.plan_id, run_id: checkpoint.trace_id };
        self.commit(StepCommit { checkpoint: Some(checkpoint), ..StepCommit::at(place) }).await
    }

    /// The checkpoint with the highest sequence number.
    async fn load_latest_checkpoint(
        &self,
        trace_id: RunId,
    ) -> Result<Option<Checkpoint>, StoreError>;

    /// Takes the trace's lock, or STATE_LOCK_ACQUIRE_FAILED after the wait.
    async fn acquire_trace_lock(&self, trace_id: RunId) -> Result<(), StoreError>;

    /// Takes the lock of a trace that is about to come into being. Nobody else knows its id, so there is
    /// nobody to ask.
    async fn lock_new_trace(&self, trace_id: RunId) -> Result<(), StoreError> {
        self.acquire_trace_lock(trace_id).await
    }

    /// Gives it back.
    async fn release_trace_lock(&self, trace_id: RunId) -> Result<(), StoreError>;

    /// Whether a call of this trace may be sent now: STATE_CONCURRENT_EXECUTION where another node may
    /// have taken the trace over. A store that one process holds has no other node.
    async fn may_dispatch(&self, _trace_id: RunId) -> Result<(), StoreError> {
        Ok(())
    }

    /// Writes everything or nothing, durably. The conditions are the journal's tail, a free key, and
    /// a pending approval; links are numbered here.
    async fn commit(&self, commit: StepCommit) -> Result<(), StoreError>;

    /// Appends an event outside any step, with a link of its own.
    async fn append_event(&self, event: Event) -> Result<(), StoreError>;

    /// Opens a session, together with its event in the system session. Opening it again for the same
    /// principal changes nothing.
    async fn open_session(&self, session: Session, event: Event) -> Result<Session, StoreError>;

    /// A session.
    async fn session(&self, session_id: SessionId) -> Result<Option<Session>, StoreError>;

    /// The first session of this kind that belongs to the principal.
    async fn session_of(
        &self,
        principal_id: &PrincipalId,
        kind: SessionKind,
    ) -> Result<Option<Session>, StoreError>;

    /// The default session that the principal's callers join here: on this node, where several share the
    /// store.
    async fn default_session_of(
        &self,
        principal_id: &PrincipalId,
    ) -> Result<Option<Session>, StoreError> {
        self.session_of(principal_id, SessionKind::Default).await
    }

    /// Every session, in the order of their ids.
    async fn sessions(&self) -> Result<Vec<Session>, StoreError>;

    /// The next step index of a session. Gaps are legal.
    async fn next_step_index(&self, session_id: SessionId) -> Result<u64, StoreError>;

    /// What a key is bound to.
    async fn binding(&self, key: &IdempotencyKey) -> Result<Option<Binding>, StoreError>;

    /// An approval.
    async fn approval(&self, approval_id: ApprovalId) -> Result<Option<Approval>, StoreError>;

    /// Approvals, newest first.
    async fn approvals(&self, query: ApprovalQuery) -> Result<Vec<Approval>, StoreError>;

    /// How many approvals are pending: of this principal's runs, or of all.
    async fn open_approvals(&self, principal_id: Option<&PrincipalId>) -> Result<u64, StoreError>;

    /// The event of this id.
    async fn event(&self, event_id: ArtifactId) -> Result<Option<Event>, StoreError>;

    /// Events, oldest first.
    async fn events(&self, query: EventQuery) -> Result<Vec<PlacedEvent>, StoreError>;

    /// The position of the last event; 0 where there is none. No event comes at a smaller position later, so
    /// whoever asks this first, then reads events and finds none, need never look up to here again.
    async fn last_position(&self) -> Result<u64, StoreError>;

    /// Everything about one run.
    async fn dossier(&self, run_id: RunId) -> Result<Option<Dossier>, StoreError>;

    /// What the answer to a known proposal is made of.
    async fn recall(&self, run_id: RunId) -> Result<Option<Recollection>, StoreError> {
        let dossier = self.dossier(run_id).await?;
        Ok(dossier.map(|dossier| Recollection {
            last_sequence_number: dossier.entries.last().map_or(0, |row| row.entry.sequence_number),
            record: dossier.record.map(|(record, _)| record),
            run: dossier.run,
        }))
    }

    /// Runs, newest first.
    async fn runs(&self, query: RunQuery) -> Result<Vec<Run>, StoreError>;

    /// The ids of runs, newest first.
    async fn run_ids(&self, before: Option<RunId>, limit: usize) -> Result<Vec<RunId>, StoreError> {
        let runs = self.runs(RunQuery { before, limit, ..RunQuery::default() }).await?;
        Ok(runs.into_iter().map(|run| run.arrival.run_id).collect())
    }

    /// Runs that are not over and that no other living node works on, oldest first.
    async fn unfinished(&self) -> Result<Vec<Unfinished>, StoreError>;

    /// Their ids.
    async fn unfinished_runs(&self) -> Result<Vec<RunId>, StoreError> {
        Ok(self.unfinished().await?.into_iter().map(|run| run.run_id).collect())
    }

    /// Events that belong to no run, after a position, oldest first, each with its position.
    async fn loose_page(
        &self,
        after: u64,
        limit: usize,
    ) -> Result<Vec<(u64, LinkedEvent)>, StoreError>;

    /// Events that belong to no run, oldest first.
    async fn loose_events(&self) -> Result<Vec<LinkedEvent>, StoreError> {
        let events = self.loose_page(0, usize::MAX).await?;
        Ok(events.into_iter().map(|(_, linked)| linked).collect())
    }

    /// How many rows there are.
    async fn counts(&self) -> Result<Counts, StoreError>;

    /// The moment that `verify` reads up to. A store that stands still while it is read, or that is read
    /// in one snapshot, has no younger rows.
    async fn moment(&self) -> Result<Moment, StoreError> {
        let (sessions, counts) = (self.sessions().await, self.counts().await);
        Ok(Moment { sessions, counts, last: Counts::MAX })
    }

    /// A page of the runs that were there at the moment, newest first: how `verify` walks the store. No
    /// transaction outlasts the call.
    async fn audit(
        &self,
        _last: &Counts,
        before: Option<RunId>,
        limit: usize,
    ) -> Result<Vec<Audited>, StoreError> {
        let mut page = Vec::new();
        for run_id in self.run_ids(before, limit).await? {
            page.push(Audited::whole(run_id, self.dossier(run_id).await));
        }
        Ok(page)
    }

    /// Keys under which more than one trace is bound, at most so many (I2: there is none). Told by the
    /// rows and not by the index that should have kept the second away, in bounded memory.
    async fn shared_keys(&self, limit: usize) -> Result<Vec<IdempotencyKey>, StoreError>;

    /// What the engine itself finds wrong with its files, a line each. None where it cannot be asked.
    async fn damage(&self) -> Result<Vec<String>, StoreError> {
        Ok(Vec::new())
    }

    /// How this process calls itself among those that share the store; none where only one process can
    /// have it.
    fn node_id(&self) -> Option<String> {
        None
    }

    /// Whether a node is gone that worked on runs which are not over.
    async fn has_stray_runs(&self) -> Result<bool, StoreError> {
        Ok(false)
    }

    /// Tells the other nodes which policies are in force on this one.
    async fn tell_policy(&self, _policy_hash: Digest) -> Result<(), StoreError> {
        Ok(())
    }

    /// Tells the other nodes which executors this one reaches.
    async fn tell_executors(&self, _executor_ids: Vec<String>) -> Result<(), StoreError> {
        Ok(())
    }

    /// Records which sandbox the name of an executor stands for, unless one is recorded already, and answers which
    /// one it is. Two sandboxes under one name would be asked about each other's calls.
    async fn claim_executor(&self, _executor_id: &str, mark: &str) -> Result<String, StoreError> {
        Ok(mark.to_owned())
    }

    /// Runs that nobody can go on with, because no living node reaches what their call was sent to.
    /// None where only one process can have the store: it reaches everything.
    async fn unreached(&self) -> Result<Vec<Unreached>, StoreError> {
        Ok(Vec::new())
    }

    /// The nodes that have the store open, oldest first; none where only one process can.
    async fn nodes(&self) -> Result<Vec<Node>, StoreError> {
        Ok(Vec::new())
    }

    /// Lets go of the store in an orderly way, so that other nodes need not wait for this one. Nothing is
    /// asked of the store afterwards.
    async fn leave(&self) {}

    /// Waits for what another node does. For ever, where there is no other.
    async fn elsewhere(&self) -> Elsewhere {
        std::future::pending().await
    }
}

/// A process that has a store open together with others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// How it calls itself.
    pub node_id: String,
    /// Its number among all that ever were; another after every lapse of its lease.
    pub incarnation: u64,
    /// When it came.
    pub started_at: Timestamp,
    /// How long its lease is still good by the store's clock; none where it has lapsed.
    pub lease_left: Option<Duration>,
    /// The policies in force on it, where it has said.
    pub policy_hash: Option<Digest>,
    /// The executors that it reaches: its sandbox, and what acts for its tool servers.
    pub executor_ids: Vec<String>,
    /// How many runs it works on.
    pub runs: u64,
    /// Whether it is this process.
    pub is_this: bool,
}

/// An executor that no living node reaches, with the runs that wait for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreached {
    /// The executor, as the tool_calls name it.
    pub executor_id: String,
    /// How many runs wait.
    pub runs: u64,
    /// When the oldest of their calls was made.
    pub since: Timestamp,
    /// The node that reached it last, where one has said so.
    pub last_node_id: Option<String>,
}

/// What another node did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Elsewhere {
    /// The approval of this run was decided.
    Decided(RunId),
    /// This run, which a person was asked about, is over.
    Ended(RunId),
    /// Something: whoever waits looks for itself.
    More,
}
