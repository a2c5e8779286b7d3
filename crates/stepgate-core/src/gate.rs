//! The gate: the ports and limits that every step uses, and the sessions that steps join.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};

use serde::Serialize;

use crate::action::{CORE_SERVER, Touch};
use crate::approvers::Groups;
use crate::call::Call;
use crate::consent_cache::Consents;
use crate::event::{Event, EventType, payload};
use crate::fact_sources::FactSources;
use crate::facts::Facts;
use crate::ids::{ArtifactId, PrincipalId, RunId, SessionId};
use crate::journal::{StateCode, StateError};
use crate::json::Value;
use crate::label::Flow;
use crate::limits::Limits;
use crate::lock::locked;
use crate::need::Reading;
use crate::ports::{
    Executor, Hold, Policy, Prospect, Recollection, Store, StoreError, ToolServers, World,
};
use crate::run::Arrival;
use crate::session::{Head, Session, SessionKind, Uniqueness};
use crate::system;
use crate::time::Timestamp;

/// Everything that a step needs from outside the core.
#[derive(Clone)]
pub struct Gate {
    /// Stores runs, journals and events.
    pub store: Arc<dyn Store>,
    /// Runs core actions on the sandbox.
    pub executor: Arc<dyn Executor>,
    /// Calls the tools of tool servers.
    pub tools: Arc<dyn ToolServers>,
    /// Decides which calls are permitted.
    pub policy: Arc<dyn Policy>,
    /// Clock and random ids.
    pub world: Arc<dyn World>,
    /// The limits of a step.
    pub limits: Limits,
    /// The extensions of files that may be read and written.
    pub extensions: Extensions,
    /// State of this process for runs that have not ended.
    pub parked: Parked,
    /// Backoff for the status questions about calls in doubt.
    pub doubts: Doubts,
    /// Groups of people that policies name as approvers.
    pub groups: Groups,
    /// Cache of the grants, of the votes on approvals, and of the stops.
    pub consents: Consents,
    /// Where the facts come from that policies know beside a call.
    pub facts: FactSources,
}

/// State that a process keeps for runs that have not ended, from one recovery to the next.
#[derive(Clone, Default)]
pub struct Parked {
    /// The holds of steps that could not record their effect. A hold is kept until recovery ends the run: a
    /// change that another call made to the same paths in between would be overwritten by the second
    /// dispatch.
    holds: Arc<Mutex<HashMap<RunId, Hold>>>,
    /// Runs that wait for a person and that verified. Recovery does not read them again until a person
    /// decides; then they are verified once more.
    sound: Arc<Mutex<HashSet<RunId>>>,
    /// Cache of the list of runs that need a person.
    told: Reading,
    /// How many approvals are being written now for each principal. They count as open, so that concurrent
    /// steps cannot exceed the limit together.
    asking: Arc<Mutex<HashMap<PrincipalId, u64>>>,
}

/// One approval that is being written. It counts until it is dropped.
pub(crate) struct Asking {
    parked: Parked,
    principal_id: PrincipalId,
    /// How many are being written for its principal, this one included.
    pub(crate) count: u64,
    /// The same for all principals.
    pub(crate) total: u64,
}

impl Drop for Asking {
    fn drop(&mut self) {
        let mut counts = locked(&self.parked.asking);
        if let Some(count) = counts.get_mut(&self.principal_id) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.principal_id);
            }
        }
    }
}

impl Parked {
    pub(crate) fn keep(&self, run_id: RunId, hold: Hold) {
        locked(&self.holds).insert(run_id, hold);
    }

    pub(crate) fn take(&self, run_id: RunId) -> Option<Hold> {
        locked(&self.holds).remove(&run_id)
    }

    /// The runs that have a hold.
    pub(crate) fn runs(&self) -> Vec<RunId> {
        locked(&self.holds).keys().copied().collect()
    }

    pub(crate) fn told(&self) -> &Reading {
        &self.told
    }

    /// Notes that a run waits for a person and has verified.
    pub(crate) fn note_sound(&self, run_id: RunId) {
        locked(&self.sound).insert(run_id);
    }

    /// Whether a waiting run has verified before.
    pub(crate) fn is_sound(&self, run_id: RunId) -> bool {
        locked(&self.sound).contains(&run_id)
    }

    /// Forgets the runs that no longer wait.
    pub(crate) fn forget_all_but(&self, waiting: &HashSet<RunId>) {
        locked(&self.sound).retain(|run_id| waiting.contains(run_id));
    }

    /// Counts one more approval that is being written for this principal.
    pub(crate) fn begin_asking(&self, principal_id: &PrincipalId) -> Asking {
        let mut counts = locked(&self.asking);
        let count = counts.entry(principal_id.clone()).or_default();
        *count += 1;
        let count = *count;
        let total = counts.values().sum();
        Asking { parked: self.clone(), principal_id: principal_id.clone(), count, total }
    }
}

/// Backoff for asking the status tool about a call in doubt. Each question is a run of its own, so a tool
/// that does not know the answer is asked less and less often. The backoff is not stored: a new process
/// starts from the shortest pause.
#[derive(Clone, Default)]
pub struct Doubts(Arc<Mutex<HashMap<RunId, Doubt>>>);

#[derive(Clone, Copy)]
struct Doubt {
    next: Timestamp,
    pause_ms: u64,
}

/// Shortest and longest pause between two questions about one call.
const DOUBT_PAUSE_MIN_MS: u64 = 1000;
const DOUBT_PAUSE_MAX_MS: u64 = 60 * 60 * 1000;

impl Doubts {
    /// Whether the pause before the next question about this run is not over yet.
    pub(crate) fn is_too_soon(&self, run_id: RunId, now: Timestamp) -> bool {
        locked(&self.0).get(&run_id).is_some_and(|doubt| now < doubt.next)
    }

    /// The tool did not know: doubles the pause.
    pub(crate) fn put_off(&self, run_id: RunId, now: Timestamp) {
        let mut doubts = locked(&self.0);
        let pause_ms = doubts.get(&run_id).map_or(DOUBT_PAUSE_MIN_MS, |doubt| {
            doubt.pause_ms.saturating_mul(2).min(DOUBT_PAUSE_MAX_MS)
        });
        doubts.insert(run_id, Doubt { next: now.plus_ms(pause_ms), pause_ms });
    }

    /// Forgets the runs that are no longer open.
    pub(crate) fn keep(&self, is_open: impl Fn(RunId) -> bool) {
        locked(&self.0).retain(|run_id, _| is_open(*run_id));
    }
}

/// The extensions of files that may be read and written (decision 8). Exact spelling, no dot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extensions {
    /// For READ_FILE.
    pub read: Vec<String>,
    /// For WRITE_FILE, DELETE_FILE and RENAME_FILE.
    pub write: Vec<String>,
}

impl Default for Extensions {
    fn default() -> Self {
        let text = vec!["txt".to_owned(), "md".to_owned()];
        Self { read: text.clone(), write: text }
    }
}

/// An internal error of Stepgate: it fails closed and is reported to the operator. The caller learns nothing
/// about the step, and retries with the same id.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The executor stopped in the middle of a call.
    #[error("the executor stopped: {0}")]
    Executor(String),
    /// The session belongs to another principal.
    #[error("there is no session {0} for this principal")]
    ForeignSession(SessionId),
}

impl Fault {
    /// What is wrong with the state of a trace, where that is the fault.
    pub(crate) fn state_code(&self) -> Option<StateCode> {
        match self {
            Self::Store(StoreError::State(error)) => Some(error.code),
            Self::Store(_) | Self::Executor(_) | Self::ForeignSession(_) => None,
        }
    }
}

impl From<StateError> for Fault {
    fn from(error: StateError) -> Self {
        Self::Store(error.into())
    }
}

impl Gate {
    /// The id of the executor that this call would be sent to from this node.
    pub(crate) fn executor_of(&self, call: &Call) -> Option<String> {
        match (call, call.touch()) {
            (Call::Core(_), Touch::Nothing) => None,
            (Call::Core(_), Touch::Reads | Touch::Writes) => Some(self.executor.id().to_owned()),
            (Call::Server(call), _) => self.tools.executor_id(call.tool.name.server()),
        }
    }

    /// Whether this node can find out what became of a call that was sent to this executor of a server. It
    /// cannot for another node's own sandbox, which has other files, or for another node's processes, which
    /// know of other calls.
    pub fn answers_for(&self, tool_server: &str, executor_id: &str) -> bool {
        match tool_server {
            CORE_SERVER => self.executor.answers_for(executor_id),
            server => self.tools.executor_id(server).as_deref() == Some(executor_id),
        }
    }

    /// What policy could decide on calls of this action by the principal.
    pub fn prospect(&self, principal_id: &PrincipalId, action: &str) -> Prospect {
        self.policy.prospect(principal_id, &self.groups.of(principal_id), action)
    }

    /// What is known beside a call without looking into the store.
    pub(crate) fn facts_of(&self, principal_id: &PrincipalId, call: &Call) -> Facts {
        let Flow { reads, sends, .. } = self.facts.flow(call);
        Facts {
            groups: self.groups.of(principal_id),
            reads: reads.clone(),
            sends: sends.clone(),
            schedule: self.facts.schedule.open_at(self.world.now()),
            ..Facts::default()
        }
    }

    /// A fresh id for an artifact or an event.
    pub(crate) fn fresh_id(&self) -> ArtifactId {
        ArtifactId::new(self.world.fresh_uuid())
    }

    /// The system session, opened on first use: it chains the openings of all others.
    pub async fn system_session(&self) -> Result<Session, Fault> {
        let principal = PrincipalId::system();
        match self.store.session_of(&principal, SessionKind::System).await? {
            Some(session) => Ok(session),
            None => {
                let session_id = SessionId::new(self.world.fresh_uuid());
                self.open(session_id, session_id, principal, SessionKind::System).await
            }
        }
    }

    /// The session of a principal that names no session; opened on first use.
    pub async fn default_session(&self, principal: &PrincipalId) -> Result<Session, Fault> {
        if let Some(session) = self.store.default_session_of(principal).await? {
            return Ok(session);
        }
        let system = self.system_session().await?.session_id;
        let session_id = SessionId::new(self.world.fresh_uuid());
        self.open(system, session_id, principal.clone(), SessionKind::Default).await
    }

    /// The session of this id, opened on first use; an error where it belongs to another principal.
    pub async fn named_session(
        &self,
        id: SessionId,
        principal: &PrincipalId,
    ) -> Result<Session, Fault> {
        match self.store.session(id).await? {
            Some(session) if session.principal_id == *principal => Ok(session),
            Some(_) => Err(Fault::ForeignSession(id)),
            None => {
                let system = self.system_session().await?.session_id;
                self.open(system, id, principal.clone(), SessionKind::Named).await
            }
        }
    }

    /// Records an operator's act as an event of the system session.
    pub async fn note(
        &self,
        event_type: EventType,
        payload: impl Serialize,
    ) -> Result<Event, Fault> {
        let payload = payload::value_from(payload, self.world.request());
        let system = self.system_session().await?;
        let event = self.event(self.fresh_id(), event_type, payload, system.session_id);
        self.store.append_event(event.clone()).await?;
        Ok(event)
    }

    /// An event of now that belongs to no run.
    pub fn event(
        &self,
        event_id: ArtifactId,
        event_type: EventType,
        payload: Value,
        session_id: SessionId,
    ) -> Event {
        let ts = self.world.now();
        Event { event_id, event_type, payload, run_id: None, sequence_number: 0, session_id, ts }
    }

    /// An event of now about a run as it is known.
    pub(crate) fn event_of(
        &self,
        known: &Recollection,
        event_type: EventType,
        payload: Value,
    ) -> Event {
        let Arrival { run_id, session_id, .. } = known.run.arrival;
        let event = self.event(self.fresh_id(), event_type, payload, session_id);
        let sequence_number = known.last_sequence_number;
        Event { run_id: Some(run_id), sequence_number, ..event }
    }

    /// All events of these types in the system session, oldest first.
    pub async fn noted(&self, event_types: &[EventType]) -> Result<Vec<Event>, Fault> {
        let noted = system::events_since(&*self.store, event_types, 0).await?;
        Ok(noted.into_iter().map(|placed| placed.event).collect())
    }

    /// Opens a session. For a kind that is unique, another caller may win the race: then the winner's
    /// session is used, in whichever way the store reports the conflict.
    async fn open(
        &self,
        chained_in: SessionId,
        session_id: SessionId,
        principal_id: PrincipalId,
        kind: SessionKind,
    ) -> Result<Session, Fault> {
        let session = Session {
            session_id,
            principal_id: principal_id.clone(),
            kind,
            node_id: self.store.node_id().filter(|_| kind == SessionKind::Default),
            ts: self.world.now(),
            head: Head::EMPTY,
            last_step_index: 0,
        };
        let payload = opening_payload(&session);
        let event = self.event(self.fresh_id(), EventType::SessionOpened, payload, chained_in);
        let event = Event { ts: session.ts, ..event };
        let refused = match self.store.open_session(session, event).await {
            Err(refused @ StoreError::State(_)) => refused,
            answer => return Ok(answer?),
        };
        let there = match kind.uniqueness() {
            Uniqueness::None => None,
            Uniqueness::InStore => self.store.session_of(&principal_id, kind).await?,
            Uniqueness::ForPrincipal => self.store.default_session_of(&principal_id).await?,
        };
        there.ok_or_else(|| refused.into())
    }
}

/// The payload of the event that opens a session; `verify` compares the session's row with it.
pub(crate) fn opening_payload(session: &Session) -> Value {
    payload::value(payload::SessionOpened {
        kind: session.kind,
        node_id: session.node_id.clone(),
        principal_id: session.principal_id.clone(),
        session_id: session.session_id,
        ts: session.ts,
    })
}

#[cfg(test)]
mod tests;
