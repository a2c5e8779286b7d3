//! The gate: the ports and limits that every step passes with, and the sessions that steps join.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::action::{CORE_SERVER, Touch};
use crate::call::Call;
use crate::event::{Event, EventType};
use crate::ids::{ArtifactId, InvalidId, PrincipalId, RunId, SessionId};
use crate::journal::{StateCode, StateError};
use crate::json::Value;
use crate::limits::Limits;
use crate::need::Reading;
use crate::ports::{EventQuery, Executor, Hold, Policy, Store, StoreError, ToolServers, World};
use crate::session::{Head, Session, SessionKind, Uniqueness};
use crate::time::Timestamp;

/// Everything a step needs of the world.
#[derive(Clone)]
pub struct Gate {
    /// What remembers.
    pub store: Arc<dyn Store>,
    /// What acts on the sandbox.
    pub executor: Arc<dyn Executor>,
    /// What acts through tool servers.
    pub tools: Arc<dyn ToolServers>,
    /// What permits.
    pub policy: Arc<dyn Policy>,
    /// Clock and chance.
    pub world: Arc<dyn World>,
    /// What a step may cost.
    pub limits: Limits,
    /// Which files may be touched.
    pub extensions: Extensions,
    /// What this process keeps for runs that are not over.
    pub parked: Parked,
    /// When the tools of calls in doubt are asked again.
    pub doubts: Doubts,
}

/// What a process keeps for runs that are not over, from one recovery to the next.
#[derive(Clone, Default)]
pub struct Parked {
    /// What a step held when it could not record its effect. It stays held until recovery ends the run:
    /// whoever touched the same in between would be overwritten by the second dispatch.
    holds: Arc<Mutex<HashMap<RunId, Hold>>>,
    /// Runs that wait for a person and were found sound. They are not read again until somebody decides,
    /// and then they are proven once more.
    sound: Arc<Mutex<HashSet<RunId>>>,
    /// What was read of the list of runs that need a person.
    told: Reading,
    /// How many questions to a person are being written for each principal. They count as open, so that
    /// steps that ask at the same time cannot pass the limit together.
    asking: Arc<Mutex<HashMap<PrincipalId, u64>>>,
}

/// One question that is being written, counted until it is dropped.
pub(crate) struct Asking {
    parked: Parked,
    principal_id: PrincipalId,
    /// How many there are with this one.
    pub(crate) count: u64,
}

impl Drop for Asking {
    fn drop(&mut self) {
        let mut counts = self.parked.asking();
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
        self.holds().insert(run_id, hold);
    }

    pub(crate) fn take(&self, run_id: RunId) -> Option<Hold> {
        self.holds().remove(&run_id)
    }

    /// The runs that something is held for.
    pub(crate) fn runs(&self) -> Vec<RunId> {
        self.holds().keys().copied().collect()
    }

    pub(crate) fn told(&self) -> &Reading {
        &self.told
    }

    /// Notes that a run waits and is sound.
    pub(crate) fn note_sound(&self, run_id: RunId) {
        self.sound().insert(run_id);
    }

    /// Whether a run that waits was found sound before.
    pub(crate) fn is_sound(&self, run_id: RunId) -> bool {
        self.sound().contains(&run_id)
    }

    /// Forgets what it noted of runs that no longer wait.
    pub(crate) fn forget_all_but(&self, waiting: &HashSet<RunId>) {
        self.sound().retain(|run_id| waiting.contains(run_id));
    }

    /// Counts one more question of this principal.
    pub(crate) fn begin_asking(&self, principal_id: &PrincipalId) -> Asking {
        let mut counts = self.asking();
        let count = counts.entry(principal_id.clone()).or_default();
        *count += 1;
        Asking { parked: self.clone(), principal_id: principal_id.clone(), count: *count }
    }

    fn asking(&self) -> MutexGuard<'_, HashMap<PrincipalId, u64>> {
        self.asking.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sound(&self) -> MutexGuard<'_, HashSet<RunId>> {
        self.sound.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn holds(&self) -> MutexGuard<'_, HashMap<RunId, Hold>> {
        self.holds.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// When the status tool of a call in doubt is asked again. Each question is a run of its own, so a tool that
/// does not know is asked less and less often. A new process begins anew.
#[derive(Clone, Default)]
pub struct Doubts(Arc<Mutex<HashMap<RunId, Doubt>>>);

#[derive(Clone, Copy)]
struct Doubt {
    next: Timestamp,
    pause_ms: u64,
}

/// Shortest and longest time between two questions about one call.
const DOUBT_PAUSE_MIN_MS: u64 = 1000;
const DOUBT_PAUSE_MAX_MS: u64 = 60 * 60 * 1000;

impl Doubts {
    /// Whether it is too soon to ask about this run again.
    pub(crate) fn is_too_soon(&self, run_id: RunId, now: Timestamp) -> bool {
        self.doubts().get(&run_id).is_some_and(|doubt| now < doubt.next)
    }

    /// The tool did not know.
    pub(crate) fn put_off(&self, run_id: RunId, now: Timestamp) {
        let mut doubts = self.doubts();
        let pause_ms = doubts.get(&run_id).map_or(DOUBT_PAUSE_MIN_MS, |doubt| {
            doubt.pause_ms.saturating_mul(2).min(DOUBT_PAUSE_MAX_MS)
        });
        doubts.insert(run_id, Doubt { next: now.plus_ms(pause_ms), pause_ms });
    }

    /// Nobody asks about runs any more that are over.
    pub(crate) fn keep(&self, is_open: impl Fn(RunId) -> bool) {
        self.doubts().retain(|run_id, _| is_open(*run_id));
    }

    fn doubts(&self) -> MutexGuard<'_, HashMap<RunId, Doubt>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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

/// Stepgate's own trouble: it fails closed and goes to the operator. The caller knows nothing about
/// the step, and asks again with the same id.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The store did not do what it must.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The executor stopped in the middle of an act.
    #[error("the executor stopped: {0}")]
    Executor(String),
    /// The session belongs to another principal.
    #[error("there is no session {0} for this principal")]
    ForeignSession(SessionId),
    /// A name that no principal can have.
    #[error(transparent)]
    Name(#[from] InvalidId),
}

impl Fault {
    /// Whether another executor has the run by now, or may have it (decision 10).
    pub(crate) fn is_taken_over(&self) -> bool {
        match self {
            Self::Store(StoreError::State(error)) => error.code == StateCode::ConcurrentExecution,
            Self::Store(_) | Self::Executor(_) | Self::ForeignSession(_) | Self::Name(_) => false,
        }
    }
}

impl From<StateError> for Fault {
    fn from(error: StateError) -> Self {
        Self::Store(error.into())
    }
}

/// Events of the system session that are read at once.
const NOTED_PAGE: usize = 1000;

/// The name under which the system session is kept. No token can have it.
pub const SYSTEM_PRINCIPAL: &str = "system";

impl Gate {
    /// The name of what acts here when this call is sent.
    pub(crate) fn executor_of(&self, call: &Call) -> Option<String> {
        match (call, call.touch()) {
            (Call::Core(_), Touch::Nothing) => None,
            (Call::Core(_), Touch::Reads | Touch::Writes) => Some(self.executor.id().to_owned()),
            (Call::Server(call), _) => self.tools.executor_id(call.tool.name.server()),
        }
    }

    /// Whether what became of a call that was sent to this executor of a server's can be found out here:
    /// another node's own sandbox has other files, and its processes know of other calls.
    pub fn answers_for(&self, tool_server: &str, executor_id: &str) -> bool {
        match tool_server {
            CORE_SERVER => self.executor.answers_for(executor_id),
            server => self.tools.executor_id(server).as_deref() == Some(executor_id),
        }
    }

    /// A fresh id for an artifact or an event.
    pub(crate) fn fresh_id(&self) -> ArtifactId {
        ArtifactId::new(self.world.fresh_uuid())
    }

    /// The system session, opened on first use: it chains the openings of all others.
    pub async fn system_session(&self) -> Result<Session, Fault> {
        let principal = PrincipalId::parse(SYSTEM_PRINCIPAL)?;
        match self.store.session_of(&principal, SessionKind::System).await? {
            Some(session) => Ok(session),
            None => {
                let session =
                    self.new_session(self.fresh_session_id(), principal, SessionKind::System);
                self.open(session.session_id, session).await
            }
        }
    }

    /// The session of a principal that names none, opened on first use.
    pub async fn default_session(&self, principal: &PrincipalId) -> Result<Session, Fault> {
        if let Some(session) = self.store.default_session_of(principal).await? {
            return Ok(session);
        }
        let system = self.system_session().await?;
        let session =
            self.new_session(self.fresh_session_id(), principal.clone(), SessionKind::Default);
        let node_id = self.store.node_id();
        self.open(system.session_id, Session { node_id, ..session }).await
    }

    /// The session of this id, opened on first use; another principal's is not there.
    pub async fn named_session(
        &self,
        id: SessionId,
        principal: &PrincipalId,
    ) -> Result<Session, Fault> {
        match self.store.session(id).await? {
            Some(session) if session.principal_id == *principal => Ok(session),
            Some(_) => Err(Fault::ForeignSession(id)),
            None => {
                let system = self.system_session().await?;
                let session = self.new_session(id, principal.clone(), SessionKind::Named);
                self.open(system.session_id, session).await
            }
        }
    }

    /// Notes something that operators did, in the system session.
    pub async fn note(&self, event_type: EventType, payload: Value) -> Result<Event, Fault> {
        let event = Event {
            event_id: self.fresh_id(),
            event_type,
            payload,
            run_id: None,
            sequence_number: 0,
            session_id: self.system_session().await?.session_id,
            ts: self.world.now(),
        };
        self.store.append_event(event.clone()).await?;
        Ok(event)
    }

    /// Everything of these types that was noted, oldest first.
    pub async fn noted(&self, event_types: &[EventType]) -> Result<Vec<Event>, Fault> {
        let mut query = EventQuery {
            principal_id: Some(PrincipalId::parse(SYSTEM_PRINCIPAL)?),
            event_types: event_types.to_vec(),
            loose_only: true,
            limit: NOTED_PAGE,
            ..EventQuery::default()
        };
        let mut noted = Vec::new();
        loop {
            let page = self.store.events(query.clone()).await?;
            let Some(last) = page.last() else { return Ok(noted) };
            query.after = last.position;
            noted.extend(page.into_iter().map(|placed| placed.event));
        }
    }

    fn fresh_session_id(&self) -> SessionId {
        SessionId::new(self.world.fresh_uuid())
    }

    fn new_session(
        &self,
        session_id: SessionId,
        principal_id: PrincipalId,
        kind: SessionKind,
    ) -> Session {
        Session {
            session_id,
            principal_id,
            kind,
            node_id: None,
            ts: self.world.now(),
            head: Head::EMPTY,
            last_step_index: 0,
        }
    }

    /// Opens a session. Of a kind that there is one of, another caller may have been first: theirs is
    /// the one, whichever way the store says so.
    async fn open(&self, chained_in: SessionId, session: Session) -> Result<Session, Fault> {
        let event = Event {
            event_id: self.fresh_id(),
            event_type: EventType::SessionOpened,
            payload: opening_payload(&session),
            run_id: None,
            sequence_number: 0,
            session_id: chained_in,
            ts: session.ts,
        };
        let (principal_id, kind) = (session.principal_id.clone(), session.kind);
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

/// What the system session says of a session's opening; `verify` compares the row with it.
pub(crate) fn opening_payload(session: &Session) -> Value {
    let mut payload = serde_json::json!({
        "kind": session.kind.as_str(),
        "principal_id": session.principal_id,
        "session_id": session.session_id,
        "ts": session.ts,
    });
    if let (Some(node_id), Value::Object(said)) = (&session.node_id, &mut payload) {
        said.insert("node_id".to_owned(), node_id.clone().into());
    }
    payload
}
