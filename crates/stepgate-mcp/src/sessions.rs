//! Sessions of clients that make a handshake. Each is a session of the gate. Its name encodes what the client can
//! do, so that any process can continue it: nothing else is stored.
//!
//! ```text
//! 0198b2c4-7a51-7cc0-9f2e-2f6a4a6f8f10.2025-11-25.u
//! the gate's session                  │ version  │ u: opens pages, t: knows tasks
//! ```

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, OnceLock, Weak};
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
use stepgate_core::lock::locked;

use super::handler::VERSIONS;
use super::{Shared, tasks};

/// How long a client should wait before it reconnects a broken stream.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// How long a sent answer is kept for a client that reconnects. Short: answers are kept in memory.
const RESUME_MAX: Duration = Duration::from_secs(5);

/// How often to look for idle sessions, per idle timeout.
const LOOKS_PER_IDLE: u32 = 4;
const LOOK_PAUSE_MIN: Duration = Duration::from_millis(10);
const LOOK_PAUSE_MAX: Duration = Duration::from_secs(15);

pub(super) fn session_of(name: &str) -> Option<SessionId> {
    name.split('.').next()?.parse().ok()
}

/// What a session's name says about its client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ClientAbilities {
    version: ProtocolVersion,
    opens_pages: bool,
    knows_tasks: bool,
}

impl ClientAbilities {
    pub(super) fn of(params: &InitializeRequestParams) -> Self {
        let declared = &params.capabilities;
        Self {
            version: negotiated(&params.protocol_version),
            opens_pages: declared.elicitation.as_ref().is_some_and(|it| it.url.is_some()),
            knows_tasks: declared.extensions.as_ref().is_some_and(tasks::is_declared),
        }
    }

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

/// The version that the SDK negotiates with a client that makes a handshake. The session's name must contain that one,
/// not what the client asked for.
fn negotiated(asked: &ProtocolVersion) -> ProtocolVersion {
    let mut known = VERSIONS.iter().filter(|version| **version < ProtocolVersion::V_2026_07_28);
    known.find(|version| *version == asked).unwrap_or(&ProtocolVersion::V_2025_11_25).clone()
}

/// What the HTTP handler knows of a request and the SDK does not pass on.
#[derive(Clone, Debug)]
pub(super) struct RequestInfo {
    pub(super) principal_id: PrincipalId,
    pub(super) opening: Option<(SessionId, ClientAbilities)>,
    /// Whether it came over stdio, where no headers repeat arguments.
    pub(super) is_bridged: bool,
    /// Set if the SDK's own response would not say what is wrong.
    pub(super) failure: Arc<OnceLock<ServeFailure>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ServeFailure {
    /// The stream to resume is gone. The SDK would answer with a stream that ends at once, and some clients would
    /// reconnect forever.
    Gone,
    Full,
}

tokio::task_local! {
    /// The request that this task answers.
    pub(super) static REQUEST_INFO: RequestInfo;
}

/// Whether the request that this task answers came over stdio.
pub(super) fn is_bridged() -> bool {
    REQUEST_INFO.try_with(|arrival| arrival.is_bridged).unwrap_or(false)
}

/// Notes why the request that this task answers cannot be served. Does nothing outside of a request.
fn tell(failure: ServeFailure) {
    let _ = REQUEST_INFO.try_with(|arrival| arrival.failure.set(failure));
}

/// The sessions in memory. Those over the limit and idle ones are dropped; their clients do not notice, because a
/// session is restored from its name. The SDK's own idle timeout is off: it ignores requests that are under way.
pub(super) struct Sessions {
    shared: Arc<Shared>,
    local: LocalSessionManager,
    /// In the order in which this process began them.
    order: Mutex<VecDeque<Known>>,
    /// Sessions that were dropped, while the SDK has not noticed their end yet, with a count: a session may have begun
    /// again under the same name.
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
        let idle = shared.settings.config.session_idle;
        let sessions =
            Arc::new(Self { shared, local, order: Mutex::default(), ending: Mutex::default() });
        tokio::spawn(keep_letting_go(Arc::downgrade(&sessions), idle));
        sessions
    }

    async fn begin(
        &self,
        id: ClientSession,
    ) -> Result<WorkerTransport<LocalSessionWorker>, LocalSessionManagerError> {
        let principal_id = REQUEST_INFO.try_with(|arrival| arrival.principal_id.clone()).ok();
        match self.make_room(&id, principal_id) {
            Ok(Some(excess)) => self.drop_session(&excess).await,
            Ok(None) => {}
            Err(full) => {
                tell(full);
                return Err(LocalSessionManagerError::SessionNotFound(id));
            }
        }
        let (handle, worker) = create_local_session(id.clone(), self.local.session_config.clone());
        self.local.sessions.write().await.insert(id, handle);
        Ok(WorkerTransport::spawn(worker))
    }

    /// Reserves a place for a session. If the limit is reached, picks an idle session to drop: the oldest of the same
    /// principal, or else the oldest of any.
    fn make_room(
        &self,
        id: &ClientSession,
        principal_id: Option<PrincipalId>,
    ) -> Result<Option<ClientSession>, ServeFailure> {
        let mut order = locked(&self.order);
        let excess = match order.len() < self.shared.settings.config.sessions_max {
            true => None,
            false => {
                let is_idle = |known: &&Known| !self.shared.under_way.is_in_use(&known.id);
                let is_own = |known: &&Known| known.principal_id == principal_id;
                let mut own = order.iter().filter(is_own);
                let found = own.find(is_idle).or_else(|| order.iter().find(is_idle));
                Some(found.ok_or(ServeFailure::Full)?.id.clone())
            }
        };
        order.retain(|known| Some(&known.id) != excess.as_ref());
        order.push_back(Known { id: id.clone(), principal_id, used: Instant::now() });
        Ok(excess)
    }

    fn use_now(&self, id: &ClientSession) {
        if let Some(known) = locked(&self.order).iter_mut().find(|known| known.id == *id) {
            known.used = Instant::now();
        }
    }

    fn idle(&self, idle: Duration) -> Vec<ClientSession> {
        let mut order = locked(&self.order);
        for known in order.iter_mut() {
            if self.shared.under_way.is_in_use(&known.id) {
                known.used = Instant::now();
            }
        }
        let is_idle = |known: &&Known| known.used.elapsed() >= idle;
        order.iter().filter(is_idle).map(|known| known.id.clone()).collect()
    }

    async fn drop_session(&self, id: &ClientSession) {
        let was_here = self.local.sessions.read().await.contains_key(id);
        locked(&self.order).retain(|known| known.id != *id);
        if was_here {
            *locked(&self.ending).entry(id.clone()).or_default() += 1;
        }
        self.shared.unanswered.ended(id);
        self.shared.streams.end(id);
        // An error means that the session has ended already.
        let _ = self.local.close_session(id).await;
    }

    /// Called when the SDK notices the end of a session. False if this process dropped the session itself.
    fn is_news(&self, id: &ClientSession) -> bool {
        let mut ending = locked(&self.ending);
        let Some(count) = ending.get_mut(id) else { return true };
        *count -= 1;
        if *count == 0 {
            ending.remove(id);
        }
        false
    }
}

/// Drops idle sessions, until `Sessions` itself is dropped.
async fn keep_letting_go(sessions: Weak<Sessions>, idle: Duration) {
    let pause = (idle / LOOKS_PER_IDLE).clamp(LOOK_PAUSE_MIN, LOOK_PAUSE_MAX);
    loop {
        tokio::time::sleep(pause).await;
        let Some(sessions) = sessions.upgrade() else { return };
        for id in sessions.idle(idle) {
            sessions.drop_session(&id).await;
        }
    }
}

impl SessionManager for Sessions {
    type Error = LocalSessionManagerError;
    type Transport = WorkerTransport<LocalSessionWorker>;

    async fn create_session(&self) -> Result<(ClientSession, Self::Transport), Self::Error> {
        let opening = REQUEST_INFO.try_with(|arrival| arrival.opening.clone()).ok().flatten();
        // A handshake that did not come through the HTTP handler has no session.
        let missing = || LocalSessionManagerError::SessionNotFound("none".into());
        let (session_id, capabilities) = opening.ok_or_else(missing)?;
        let id: ClientSession = capabilities.name(session_id).into();
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
        // A client ends its session within a request; the SDK calls this outside of one.
        let is_asked = REQUEST_INFO.try_with(|_| ()).is_ok();
        if is_asked || self.is_news(id) {
            self.drop_session(id).await;
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
            tell(ServeFailure::Gone);
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

/// Restores a session's capabilities from its name. The HTTP handler has checked whose session it is.
pub(super) struct Restored;

#[async_trait]
impl SessionStore for Restored {
    async fn load(&self, name: &str) -> Result<Option<SessionState>, SessionStoreError> {
        Ok(ClientAbilities::read(name).map(|capabilities| SessionState::new(capabilities.params())))
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
