//! The ports of the core: a store, an executor, a policy, a clock.
//!
//! The core has no clock, randomness, environment, file or task of its own, so the whole lifecycle
//! runs in memory with a simulated clock and a store that crashes on demand.

mod acting;
mod deciding;
mod storing;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::approval::{Approval, ApprovalStatus};
use crate::archived::ArchivedRun;
use crate::budget::{Balance, BudgetChange, OverBudget};
use crate::digest::Digest;
use crate::event::payload::Request;
use crate::event::{Event, EventType};
use crate::idempotency::Binding;
use crate::ids::{ApprovalId, ArtifactId, IdPrefix, IdempotencyKey, PrincipalId, RunId, SessionId};
use crate::journal::{Appended, Checkpoint, ExecutionState, StateError, Tail};
use crate::record::Record;
use crate::run::{Arrival, Run, Status};
use crate::session::{Head, Link, Session};
use crate::time::Timestamp;

pub use crate::verdict::PolicyAnswer;
pub use acting::{
    Dispatch, Effect, Executor, Failed, Hold, NoToolServers, Prepared, Said, Sending, ToolServers,
};
pub use deciding::{
    ApprovalNeed, Payer, Policy, PolicyDecision, PolicyErasable, PolicyRequest, PolicyVerdict,
    Prospect,
};
pub use storing::{
    Alone, Approvals, Archives, Audits, Budgets, Cursors, Erasables, Events, Locks, Nodes, Runs,
    Sessions, Store, Writes,
};

/// Clock and random ids, and who is asking.
#[async_trait]
pub trait World: Send + Sync {
    /// The current time.
    fn now(&self) -> Timestamp;

    /// A fresh UUIDv7.
    fn fresh_uuid(&self) -> uuid::Uuid;

    /// Sleeps.
    async fn pause(&self, duration: Duration);

    /// The request that the current task answers, where one came over the network.
    fn request(&self) -> Option<Request> {
        None
    }
}

/// Why the store did not do what was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The entry does not continue the journal. Nothing was written.
    #[error(transparent)]
    State(#[from] StateError),
    /// The key is bound already. Nothing was written.
    #[error("the idempotency key is bound already")]
    KeyTaken,
    /// The approval is decided already. Nothing was written.
    #[error("the approval is decided already")]
    AlreadyDecided,
    /// A charge would exceed the limit of its budget. Nothing was written.
    #[error(transparent)]
    OverBudget(Box<OverBudget>),
    /// There is no such session. Nothing was written.
    #[error("there is no session {0}")]
    UnknownSession(SessionId),
    /// Not possible now. Nothing was written; a retry is safe.
    #[error("the store is not available: {0}")]
    Unavailable(String),
    /// The answer to a commit was lost: it was written or not. Read back before anything else.
    #[error("the store did not answer: {0}")]
    AnswerLost(String),
    /// The store cannot continue: it is damaged, or its last commit is in doubt. Restart and recover.
    #[error("the store cannot go on: {0}")]
    Broken(String),
}

/// Everything of one step that becomes durable together (I7).
#[derive(Clone, Debug)]
pub struct StepCommit {
    /// The run that everything here is about.
    pub place: Place,
    /// Creates the run's row.
    pub open: Option<Run>,
    /// Entries with their artifacts, in order.
    pub entries: Vec<Appended>,
    /// A checkpoint after them.
    pub checkpoint: Option<Checkpoint>,
    /// A question to a person, or the answer.
    pub approval: Option<ApprovalChange>,
    /// Binds the idempotency key to the trace, or marks that its effect is recorded.
    pub key: Option<KeyChange>,
    /// The run's new status, where it changes without ending.
    pub status: Option<Status>,
    /// What the run's call takes from budgets, or gives back.
    pub budgets: Vec<BudgetChange>,
    /// New events.
    pub events: Vec<Event>,
    /// The original payload, where the run's row has the payload with redacted arguments. It is kept until
    /// the record is written, and then erased.
    pub sealed: Option<Arc<[u8]>>,
    /// The erasable arguments of the run, with its opening. They are kept until they are erased.
    pub erasable: Option<Arc<[u8]>>,
    /// The record that ends the run.
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
            budgets: Vec::new(),
            events: Vec::new(),
            sealed: None,
            erasable: None,
            record: None,
        }
    }
}

/// The run and session that a commit belongs to.
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
    /// Creates a pending approval.
    Ask(Approval),
    /// Decides the approval. If it is not pending any more, the commit is refused.
    Decide(Approval),
}

/// What a commit does to the idempotency key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyChange {
    /// Binds the key. If it is not free, the commit is refused.
    Bind(Binding),
    /// The effect is recorded.
    Settle(IdempotencyKey),
}

/// Runs that leave the store, with the event that says so.
#[derive(Clone, Debug)]
pub struct ArchiveCommit {
    /// The end of the system session's chain when it was decided that they may leave.
    pub expected: Head,
    /// The event, in the system session.
    pub event: Event,
    /// What is kept of each.
    pub runs: Vec<ArchivedRun>,
}

/// Erasable arguments that are erased, with the event that says so.
#[derive(Clone, Debug)]
pub struct EraseCommit {
    /// The end of the system session's chain when it was decided that they may be erased.
    pub expected: Head,
    /// The event, in the system session.
    pub event: Event,
    /// The runs.
    pub runs: Vec<RunId>,
}

/// The erasable arguments of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErasableArgs {
    /// The run. It may have left the store.
    pub run_id: RunId,
    /// Its session.
    pub session_id: SessionId,
    /// The arguments, in their stored form, or why the row cannot be read.
    pub args: Result<OriginalPayload, StateError>,
}

/// Which runs that are over to list, in the order of their ids.
#[derive(Clone, Copy, Debug)]
pub struct EndedQuery {
    /// Only those after this one.
    pub after: Option<RunId>,
    /// Only those that came before this time.
    pub until: Timestamp,
    /// The most rows to return.
    pub limit: usize,
}

/// A run that is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndedRun {
    /// The run.
    pub run_id: RunId,
    /// When it came.
    pub received_at: Timestamp,
    /// Its action or tool, as its row has it.
    pub tool_name: Option<String>,
    /// Its final status.
    pub status: Status,
    /// The position of its last event; 0 where it has none.
    pub last_event: u64,
}

/// What is kept of an archived run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptRun {
    /// Its place in the order of their commits.
    pub position: u64,
    /// What is kept.
    pub run: ArchivedRun,
    /// The binding of its key, where there is one.
    pub binding: Option<Binding>,
}

/// An event with its own link, if it has one.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkedEvent {
    /// Its place in the order of all events, from 1; 0 in the file of an archive that does not say it.
    pub position: u64,
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
    /// The original payload, where the row has it redacted and the step is not over.
    pub sealed: Option<OriginalPayload>,
    /// The record with its CLOSE link, where the step is over.
    pub record: Option<(Record, Link)>,
}

/// The original payload of a run whose row has it redacted, as far as this process can read it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OriginalPayload {
    /// As it came.
    Known(Arc<[u8]>),
    /// It is encrypted under a key that this process does not have.
    Locked {
        /// The key's id.
        key: String,
    },
}

impl Dossier {
    /// The fold of the journal; none before genesis.
    pub fn state(&self) -> Result<Option<ExecutionState>, StateError> {
        let mut entries = self.entries.iter();
        let tail = entries.try_fold(Tail::EMPTY, |tail, it| tail.accept(&it.entry))?;
        let Arrival { run_id, session_id, .. } = self.run.arrival;
        Ok(ExecutionState::of(run_id, session_id, &tail))
    }

    /// Whether a journal that ends at this sequence number still has every entry that existed when the run's
    /// events were written.
    pub(crate) fn has_what_its_events_saw(&self, last_sequence_number: u64) -> bool {
        let seen = self.events.iter().map(|linked| linked.event.sequence_number);
        seen.max().is_none_or(|seen| seen <= last_sequence_number)
    }
}

/// How many rows each table has, so that `verify` finds rows that belong to no run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// `tool_runs`.
    pub runs: u64,
    /// Entries of journals.
    pub entries: u64,
    /// Records.
    pub records: u64,
    /// Checkpoints.
    pub checkpoints: u64,
    /// `events`.
    pub events: u64,
    /// `approvals`.
    pub approvals: u64,
    /// `effects`: bindings of keys that are in no run's own row.
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

    /// The rows of one run whose row has the binding of its key.
    pub fn of(dossier: &Dossier) -> Self {
        let count = |rows: usize| u64::try_from(rows).unwrap_or(u64::MAX);
        Self {
            runs: 1,
            entries: count(dossier.entries.len()),
            records: u64::from(dossier.record.is_some()),
            checkpoints: count(dossier.checkpoints.len()),
            events: count(dossier.events.len()),
            approvals: u64::from(dossier.approval.is_some()),
            bindings: 0,
            sessions: 0,
        }
    }
}

/// A point in time of the store. `verify` reads up to it, in short transactions, while other tasks write.
#[derive(Clone, Debug)]
pub struct Moment {
    /// Every session, in the order of their ids, with the ends of their chains.
    pub sessions: Result<Vec<Session>, StoreError>,
    /// How many rows there are.
    pub counts: Result<Counts, StoreError>,
    /// Every account of a budget.
    pub balances: Result<Vec<Balance>, StoreError>,
    /// The last position of each table. A row after it was written later.
    pub last: Counts,
}

impl Moment {
    /// The moment of a store that does not change while it is read, or that is read in one snapshot: no row
    /// was written later.
    pub async fn of_all(store: &(impl Sessions + Audits + Budgets)) -> Self {
        let (sessions, counts) = (store.sessions().await, store.counts().await);
        let balances = store.balances().await;
        Self { sessions, counts, balances, last: Counts::MAX }
    }
}

/// A run as `verify` reads it: its present state, with everything written since the [`Moment`].
#[derive(Clone, Debug)]
pub struct Audited {
    /// The run.
    pub run_id: RunId,
    /// Everything about it; none where the run's row is gone.
    pub dossier: Result<Option<Dossier>, StoreError>,
    /// How many of its rows existed at the moment.
    pub rows: Counts,
}

impl Audited {
    /// A run whose rows all existed at the moment.
    pub fn whole(run_id: RunId, dossier: Result<Option<Dossier>, StoreError>) -> Self {
        let rows = dossier.as_ref().ok().and_then(Option::as_ref).map(Counts::of);
        Self { run_id, dossier, rows: rows.unwrap_or_default() }
    }
}

/// The data for answering a known proposal again. Unlike a [`Dossier`] it does not grow with the number of
/// replays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recollection {
    /// The row.
    pub run: Run,
    /// The last sequence number of the journal; 0 where there is none.
    pub last_sequence_number: u64,
    /// The record, where the step is over.
    pub record: Option<Record>,
}

/// A run that is not over, with the fields that recovery needs to choose what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unfinished {
    /// The run.
    pub run_id: RunId,
    /// Its action or tool, as its row has it.
    pub tool_name: Option<String>,
    /// Whether the run waits for a person and no node works on it. Until a person decides there is nothing
    /// to do, and no lock to take.
    pub is_waiting: bool,
}

/// Which runs to list, newest first.
#[derive(Clone, Debug, Default)]
pub struct RunQuery {
    /// Only runs older than this one.
    pub before: Option<RunId>,
    /// Only runs that were written after this one.
    pub after: Option<RunId>,
    /// Only this session's.
    pub session_id: Option<SessionId>,
    /// Only this principal's.
    pub principal_id: Option<PrincipalId>,
    /// Only those with this status.
    pub status: Option<Status>,
    /// Only those of this tool.
    pub tool_name: Option<String>,
    /// Only those that came at this time or later.
    pub since: Option<Timestamp>,
    /// Only those that came before this time.
    pub until: Option<Timestamp>,
    /// Only those that match this.
    pub text: Option<RunText>,
    /// The most rows to return.
    pub limit: usize,
}

/// A text by which a person looks for runs. Only what an index finds: arguments are not searched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunText {
    /// The beginning of the run's id.
    IdPrefix(IdPrefix),
    /// A part of the tool's name, in any case.
    ToolPart(String),
}

impl RunText {
    /// What a person means by a text: the beginning of an id, or else a part of a tool's name.
    pub fn of(text: &str) -> Self {
        match IdPrefix::parse(text) {
            Ok(prefix) => Self::IdPrefix(prefix),
            Err(_) => Self::ToolPart(text.to_ascii_lowercase()),
        }
    }

    /// Whether a run matches.
    pub fn matches(&self, run: &Run) -> bool {
        match self {
            Self::IdPrefix(prefix) => prefix.fits(&run.arrival.run_id),
            Self::ToolPart(part) => {
                let name = run.tool_name.as_ref().map(|name| name.to_ascii_lowercase());
                name.is_some_and(|name| name.contains(part))
            }
        }
    }
}

/// Which sessions to list, newest first.
#[derive(Clone, Debug, Default)]
pub struct SessionQuery {
    /// Only sessions that were opened before this one.
    pub before: Option<SessionId>,
    /// Only those whose id begins with this. The index of ids finds them, so their order is that of the ids.
    pub id_prefix: Option<IdPrefix>,
    /// Only this principal's.
    pub principal_id: Option<PrincipalId>,
    /// The most rows to return.
    pub limit: usize,
}

/// Which turns to list, newest first, by the events that opened them.
#[derive(Clone, Debug, Default)]
pub struct TurnQuery {
    /// Only turns that were opened before the one that this event opened.
    pub before: Option<ArtifactId>,
    /// Only those whose id begins with this. The index of ids finds them, so their order is that of the ids.
    pub id_prefix: Option<IdPrefix>,
    /// Only this session's.
    pub session_id: Option<SessionId>,
    /// Only those in this principal's sessions.
    pub principal_id: Option<PrincipalId>,
    /// The most rows to return.
    pub limit: usize,
}

/// Which events to list, oldest first.
#[derive(Clone, Debug, Default)]
pub struct EventQuery {
    /// Only events after this position.
    pub after: u64,
    /// The newest first instead: those before this position.
    pub back_from: Option<u64>,
    /// Only those of this principal's sessions.
    pub principal_id: Option<PrincipalId>,
    /// Only those of these types; all where none is named.
    pub event_types: Vec<EventType>,
    /// Only those that belong to no run.
    pub loose_only: bool,
    /// The most rows to return.
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

/// How far a reader of the events has come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    /// The reader.
    pub name: String,
    /// The last position that it has finished with, or a time in milliseconds where it follows the clock.
    pub reached: u64,
    /// Why the reader cannot go on, where it cannot.
    pub error: Option<String>,
}

/// Which approvals to list, newest first unless asked otherwise.
#[derive(Clone, Debug, Default)]
pub struct ApprovalQuery {
    /// Only those that were asked before this one.
    pub before: Option<ApprovalId>,
    /// Only those that were asked after this one.
    pub after: Option<ApprovalId>,
    /// Only those whose id begins with this. The index of ids finds them, so their order is that of the ids.
    pub id_prefix: Option<IdPrefix>,
    /// Only those with this status.
    pub status: Option<ApprovalStatus>,
    /// Only those that this principal's runs wait for.
    pub principal_id: Option<PrincipalId>,
    /// Oldest first.
    pub oldest_first: bool,
    /// The most rows to return.
    pub limit: usize,
}

/// A process that shares an open store with other processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its name.
    pub node_id: String,
    /// The number of its registration among all registrations; it gets a new one each time its lease
    /// expires.
    pub incarnation: u64,
    /// When it registered.
    pub started_at: Timestamp,
    /// How long its lease is still valid by the store's clock; none where it has expired.
    pub lease_left: Option<Duration>,
    /// The policies in force on it, where it has reported them.
    pub policy_hash: Option<Digest>,
    /// The executors that it reaches: its sandbox, and the executors of its tool servers.
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
    /// The node that reached it last, where one has reported that.
    pub last_node_id: Option<String>,
}

/// A change that became durable, here or on another node, and that a task may wait for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Announcement {
    /// A person is asked.
    Asked(Box<Approval>),
    /// The approval of this run was decided.
    Decided(RunId),
    /// This run is over, and its approval, where it had one, is decided.
    Ended(RunId),
    /// Some other change: the waiting task must read the store.
    More,
}

impl Announcement {
    /// What a commit announces.
    pub fn of(commit: &StepCommit) -> Self {
        match (&commit.record, &commit.approval) {
            (Some(_), _) => Self::Ended(commit.place.run_id),
            (None, Some(ApprovalChange::Ask(approval))) => Self::Asked(Box::new(approval.clone())),
            (None, Some(ApprovalChange::Decide(_))) => Self::Decided(commit.place.run_id),
            (None, None) => Self::More,
        }
    }
}

/// Receives a notification of each write. A store calls this after a write that succeeded, or whose answer
/// was lost: a task that is woken must read the store before it relies on the change.
pub trait Announce: Send + Sync {
    /// Notifies. It must not block.
    fn announce(&self, announcement: Announcement);
}
