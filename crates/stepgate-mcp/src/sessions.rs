//! Sessions of clients that shake hands. Each is a session of the gate, and its name says what the
//! client can do, so that any process can go on with it: nothing about it is kept but its journal.
//!
//! ```text
//! 0198b2c4-7a51-7cc0-9f2e-2f6a4a6f8f10.2025-11-25.u
//! the gate's session                  │ version  │ u: opens pages, t: knows tasks
//! ```

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures_util::Stream;
use rmcp::model::{
    ClientCapabilities, ClientJsonRpcMessage, ElicitationCapability, ExtensionCapabilities,
    Implementation, InitializeRequestParams, ProtocolVersion, ServerJsonRpcMessage,
    TASKS_EXTENSION_ID, UrlElicitationCapability,
};
use rmcp::transport::WorkerTransport;
use rmcp::transport::common::server_side_http::ServerSseMessage;
use rmcp::transport::streamable_http_server::session::local::{
    LocalSessionManager, LocalSessionManagerError, LocalSessionWorker, SessionConfig,
    create_local_session,
};
use rmcp::transport::streamable_http_server::session::{
    RestoreOutcome, SessionId as ClientSession, SessionManager, SessionState, SessionStore,
    SessionStoreError,
};
use stepgate_core::ids::{PrincipalId, SessionId};

use super::handler::VERSIONS;
use super::{Shared, tasks};

/// When a client whose stream broke should come again.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// How long an answer that was sent is kept for a client that comes again: all of it is in memory.
const RESUME_MAX: Duration = Duration::from_secs(5);

/// How often it is looked, while a session could become idle, whether one has.
const LOOKS_PER_IDLE: u32 = 4;
const LOOK_PAUSE_MIN: Duration = Duration::from_millis(10);
const LOOK_PAUSE_MAX: Duration = Duration::from_secs(15);

/// The gate's session of a client's.
pub(super) fn session_of(name: &str) -> Option<SessionId> {
    name.split('.').next()?.parse().ok()
}

/// What a session's name says of its client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Manner {
    version: ProtocolVersion,
    opens_pages: bool,
    knows_tasks: bool,
}

impl Manner {
    pub(super) fn of(params: &InitializeRequestParams) -> Self {
        let declared = &params.capabilities;
        Self {
            version: negotiated(&params.protocol_version),
            opens_pages: declared.elicitation.as_ref().is_some_and(|it| it.url.is_some()),
            knows_tasks: declared.extensions.as_ref().is_some_and(tasks::is_declared),
        }
    }

    /// The name of a session with this client.
    fn name(&self, session_id: SessionId) -> String {
        let flag = |is_set, letter| if is_set { letter } else { "" };
        let (pages, tasks) = (flag(self.opens_pages, "u"), flag(self.knows_tasks, "t"));
        format!("{session_id}.{}.{pages}{tasks}", self.version)
    }

    fn read(name: &str) -> Option<Self> {
        let mut parts = name.splitn(3, '.');
        let (_, version, flags) = (parts.next()?, parts.next()?, parts.next()?);
        let known = ProtocolVersion::KNOWN_VERSIONS.iter();
        let version = known.clone().find(|known| known.as_str() == version)?.clone();
        let is_flag = |c: char| c == 'u' || c == 't';
        flags.chars().all(is_flag).then(|| Self {
            version,
            opens_pages: flags.contains('u'),
            knows_tasks: flags.contains('t'),
        })
    }

    fn params(&self) -> InitializeRequestParams {
        let mut capabilities = ClientCapabilities::default();
        if self.opens_pages {
            let pages = ElicitationCapability::new().with_url(UrlElicitationCapability::new());
            capabilities.elicitation = Some(pages);
        }
        if self.knows_tasks {
            let mut extensions = ExtensionCapabilities::new();
            extensions.insert(TASKS_EXTENSION_ID.to_owned(), serde_json::Map::new());
            capabilities.extensions = Some(extensions);
        }
        InitializeRequestParams::new(capabilities, Implementation::default())
            .with_protocol_version(self.version.clone())
    }
}

/// The version that is spoken with a client that shakes hands, as the SDK chooses it: the name must say
/// that one, and nothing that a client made up.
fn negotiated(asked: &ProtocolVersion) -> ProtocolVersion {
    let mut known = VERSIONS.iter().filter(|version| **version < ProtocolVersion::V_2026_07_28);
    known.find(|version| *version == asked).unwrap_or(&ProtocolVersion::V_2025_11_25).clone()
}

/// What the door knows of a request, and the SDK does not hand on.
#[derive(Clone, Debug)]
pub(super) struct Arrival {
    pub(super) principal_id: PrincipalId,
    /// The session that a handshake opens.
    pub(super) opening: Option<(SessionId, Manner)>,
    /// Whether it came over standard input, where no header repeats an argument.
    pub(super) is_bridged: bool,
    /// Set where the SDK would answer with something else than what is wrong.
    pub(super) hitch: Arc<OnceLock<Hitch>>,
}

/// Why a request cannot be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hitch {
    /// The stream that it wants to take up is not there: the SDK would answer with a stream that ends at
    /// once, and some clients would come again for ever.
    Gone,
    /// There is no room for its session.
    Full,
}

tokio::task_local! {
    /// The request that this task answers.
    pub(super) static ARRIVAL: Arrival;
}

/// Whether the request that this task answers came over standard input.
pub(super) fn is_bridged() -> bool {
    ARRIVAL.try_with(|arrival| arrival.is_bridged).unwrap_or(false)
}

/// Says why the request that this task answers cannot be served. Outside of one there is nobody to tell.
fn tell(hitch: Hitch) {
    let _ = ARRIVAL.try_with(|arrival| arrival.hitch.set(hitch));
}

/// The sessions that this process knows. Beyond the limit, and when nothing happens in them, they are
/// let go; their clients do not notice. The SDK knows nothing of requests under way, so it is not asked
/// which ones are idle.
pub(super) struct Sessions {
    shared: Arc<Shared>,
    local: LocalSessionManager,
    /// In the order in which they began here.
    order: Mutex<VecDeque<Known>>,
    /// Sessions that were let go, and whose end the SDK has still to notice. By then one may have begun
    /// again under its name.
    ending: Mutex<HashMap<ClientSession, usize>>,
}

struct Known {
    id: ClientSession,
    principal_id: Option<PrincipalId>,
    used: Instant,
}

impl Sessions {
    pub(super) fn new(shared: Arc<Shared>) -> Arc<Self> {
        let mut config = SessionConfig::default();
        config.keep_alive = None;
        config.sse_retry = Some(RETRY_PAUSE);
        config.completed_cache_ttl = RESUME_MAX;
        let mut local = LocalSessionManager::default();
        local.session_config = config;
        let idle = shared.settings.session_idle;
        let sessions =
            Arc::new(Self { shared, local, order: Mutex::default(), ending: Mutex::default() });
        tokio::spawn(keep_letting_go(Arc::downgrade(&sessions), idle));
        sessions
    }

    fn order(&self) -> MutexGuard<'_, VecDeque<Known>> {
        self.order.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn begin(
        &self,
        id: ClientSession,
    ) -> Result<WorkerTransport<LocalSessionWorker>, LocalSessionManagerError> {
        let principal_id = ARRIVAL.try_with(|arrival| arrival.principal_id.clone()).ok();
        let Ok(excess) = self.make_room(&id, principal_id) else {
            tell(Hitch::Full);
            return Err(LocalSessionManagerError::SessionNotFound(id));
        };
        if let Some(excess) = excess {
            self.let_go(&excess).await;
        }
        let (handle, worker) = create_local_session(id.clone(), self.local.session_config.clone());
        self.local.sessions.write().await.insert(id, handle);
        Ok(WorkerTransport::spawn(worker))
    }

    /// Takes a place for a session. Where there is none, another one is let go that nothing happens in:
    /// the same principal's oldest, or anybody's.
    fn make_room(
        &self,
        id: &ClientSession,
        principal_id: Option<PrincipalId>,
    ) -> Result<Option<ClientSession>, Full> {
        let mut order = self.order();
        let excess = match order.len() < self.shared.settings.sessions_max {
            true => None,
            false => {
                let is_idle = |known: &&Known| !self.shared.under_way.is_in_use(&known.id);
                let is_own = |known: &&Known| known.principal_id == principal_id;
                let mut own = order.iter().filter(is_own);
                let found = own.find(is_idle).or_else(|| order.iter().find(is_idle));
                Some(found.ok_or(Full)?.id.clone())
            }
        };
        order.retain(|known| Some(&known.id) != excess.as_ref());
        order.push_back(Known { id: id.clone(), principal_id, used: Instant::now() });
        Ok(excess)
    }

    /// Something happens in the session.
    fn use_now(&self, id: &ClientSession) {
        if let Some(known) = self.order().iter_mut().find(|known| known.id == *id) {
            known.used = Instant::now();
        }
    }

    /// Sessions where nothing has happened for so long.
    fn idle(&self, idle: Duration) -> Vec<ClientSession> {
        let mut order = self.order();
        for known in order.iter_mut() {
            if self.shared.under_way.is_in_use(&known.id) {
                known.used = Instant::now();
            }
        }
        let is_idle = |known: &&Known| known.used.elapsed() >= idle;
        order.iter().filter(is_idle).map(|known| known.id.clone()).collect()
    }

    async fn let_go(&self, id: &ClientSession) {
        let was_here = self.local.sessions.read().await.contains_key(id);
        self.order().retain(|known| known.id != *id);
        if was_here {
            *self.ending().entry(id.clone()).or_default() += 1;
        }
        self.shared.unanswered.ended(id);
        self.shared.streams.end(id);
        // One that has ended meanwhile is gone already.
        let _ = self.local.close_session(id).await;
    }

    fn ending(&self) -> MutexGuard<'_, HashMap<ClientSession, usize>> {
        self.ending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The SDK notices the end of a session. Whether that is news.
    fn is_news(&self, id: &ClientSession) -> bool {
        let mut ending = self.ending();
        match ending.get_mut(id) {
            None => true,
            Some(1) => {
                ending.remove(id);
                false
            }
            Some(count) => {
                *count -= 1;
                false
            }
        }
    }
}

/// Every session is in use.
struct Full;

/// Lets go what is idle, for as long as there are sessions.
async fn keep_letting_go(sessions: Weak<Sessions>, idle: Duration) {
    let pause = (idle / LOOKS_PER_IDLE).clamp(LOOK_PAUSE_MIN, LOOK_PAUSE_MAX);
    loop {
        tokio::time::sleep(pause).await;
        let Some(sessions) = sessions.upgrade() else { return };
        for id in sessions.idle(idle) {
            sessions.let_go(&id).await;
        }
    }
}

impl SessionManager for Sessions {
    type Error = LocalSessionManagerError;
    type Transport = WorkerTransport<LocalSessionWorker>;

    async fn create_session(&self) -> Result<(ClientSession, Self::Transport), Self::Error> {
        let opening = ARRIVAL.try_with(|arrival| arrival.opening.clone()).ok().flatten();
        // A handshake that did not come through the door has no session.
        let missing = || LocalSessionManagerError::SessionNotFound("none".into());
        let (session_id, manner) = opening.ok_or_else(missing)?;
        let name = manner.name(session_id);
        let id: ClientSession = name.into();
        let transport = self.begin(id.clone()).await?;
        Ok((id, transport))
    }

    async fn initialize_session(
        &self,
        id: &ClientSession,
        message: ClientJsonRpcMessage,
    ) -> Result<ServerJsonRpcMessage, Self::Error> {
        self.local.initialize_session(id, message).await
    }

    async fn has_session(&self, id: &ClientSession) -> Result<bool, Self::Error> {
        self.local.has_session(id).await
    }

    async fn close_session(&self, id: &ClientSession) -> Result<(), Self::Error> {
        // A client ends its session within a request; the SDK does so by itself.
        let is_asked = ARRIVAL.try_with(|_| ()).is_ok();
        if is_asked || self.is_news(id) {
            self.let_go(id).await;
        }
        Ok(())
    }

    async fn create_stream(
        &self,
        id: &ClientSession,
        message: ClientJsonRpcMessage,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        self.use_now(id);
        self.local.create_stream(id, message).await
    }

    async fn accept_message(
        &self,
        id: &ClientSession,
        message: ClientJsonRpcMessage,
    ) -> Result<(), Self::Error> {
        self.use_now(id);
        self.local.accept_message(id, message).await
    }

    async fn create_standalone_stream(
        &self,
        id: &ClientSession,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        self.use_now(id);
        self.local.create_standalone_stream(id).await
    }

    async fn resume(
        &self,
        id: &ClientSession,
        last_event_id: String,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        self.use_now(id);
        let resumed = self.local.resume(id, last_event_id).await;
        if resumed.is_err() {
            tell(Hitch::Gone);
        }
        resumed
    }

    async fn restore_session(
        &self,
        id: ClientSession,
    ) -> Result<RestoreOutcome<Self::Transport>, Self::Error> {
        Ok(RestoreOutcome::Restored(self.begin(id).await?))
    }
}

/// Reads out of a session's name what its handshake said. Whose it is was asked at the door.
pub(super) struct Restored;

#[async_trait]
impl SessionStore for Restored {
    async fn load(&self, name: &str) -> Result<Option<SessionState>, SessionStoreError> {
        Ok(Manner::read(name).map(|manner| SessionState::new(manner.params())))
    }

    async fn store(&self, _: &str, _: &SessionState) -> Result<(), SessionStoreError> {
        Ok(())
    }

    async fn delete(&self, _: &str) -> Result<(), SessionStoreError> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
