//! A gate in process: a real sandbox, an in-memory store, and a world whose clock and ids repeat.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Value, json};
use stepgate_core::action::CoreCall;
use stepgate_core::approvers::Groups;
use stepgate_core::consent_cache::Consents;
use stepgate_core::fact_sources::FactSources;
use stepgate_core::gate::{Doubts, Extensions, Gate, Parked};
use stepgate_core::ids::PrincipalId;
use stepgate_core::limits::Limits;
use stepgate_core::policy::BuiltInRule;
use stepgate_core::ports::{
    Dispatch, Dossier, Effect, Executor, Hold, NoToolServers, Policy, PolicyDecision,
    PolicyRequest, PolicyVerdict, Prepared, Store, World,
};
use stepgate_core::run::Payload;
use stepgate_core::step::{self, Answer, Submission};
use stepgate_core::time::Timestamp;
use stepgate_exec::{Sandbox, SandboxLimits};
use stepgate_store::memory::MemoryStore;
use tempfile::TempDir;

/// A clock that moves one millisecond each time it is read, and ids that count.
pub(crate) struct CountingWorld {
    ticks: AtomicU64,
}

impl CountingWorld {
    pub(crate) fn starting_at(ticks: u64) -> Arc<Self> {
        Arc::new(Self { ticks: AtomicU64::new(ticks) })
    }

    fn tick(&self) -> u64 {
        self.ticks.fetch_add(1, Ordering::SeqCst)
    }
}

#[async_trait]
impl World for CountingWorld {
    fn now(&self) -> Timestamp {
        let ms = i64::try_from(self.tick()).unwrap();
        Timestamp::from_millisecond(1_790_000_000_000 + ms)
    }

    fn fresh_uuid(&self) -> uuid::Uuid {
        let tick = self.tick();
        uuid::Builder::from_unix_timestamp_millis(1_790_000_000_000 + tick, &[7; 10]).into_uuid()
    }

    async fn pause(&self, _: Duration) {}
}

/// Asks a person about everything, and denies what names `forbidden`.
pub(crate) struct AskAlways;

impl Policy for AskAlways {
    fn decide(&self, request: PolicyRequest<'_>) -> PolicyDecision {
        let forbidden = request.call.paths().iter().any(|path| path.as_str().contains("forbidden"));
        let verdict = if forbidden {
            PolicyVerdict::Deny
        } else {
            PolicyVerdict::RequireApproval("everything is asked about".into())
        };
        PolicyDecision { verdict, ..BuiltInRule.decide(request) }
    }
}

/// Denies everything.
pub(crate) struct DenyAll;

impl Policy for DenyAll {
    fn decide(&self, request: PolicyRequest<'_>) -> PolicyDecision {
        PolicyDecision { verdict: PolicyVerdict::Deny, ..BuiltInRule.decide(request) }
    }
}

/// What stands between the gate and its executor when something is acted out: everything passes but the act.
#[async_trait]
pub(crate) trait Act: Send + Sync {
    fn inner(&self) -> &dyn Executor;

    async fn act(&self, call: &CoreCall, before: Option<&Value>, dispatch: Dispatch) -> Effect;
}

/// An executor whose acts are somebody else's.
pub(crate) struct Acting<A>(pub(crate) A);

#[async_trait]
impl<A: Act> Executor for Acting<A> {
    fn id(&self) -> &str {
        self.0.inner().id()
    }

    async fn prepare(&self, call: &CoreCall) -> Result<Prepared, &'static str> {
        self.0.inner().prepare(call).await
    }

    async fn hold(&self, call: &CoreCall) -> Option<Hold> {
        self.0.inner().hold(call).await
    }

    async fn dispatch(
        &self,
        call: &CoreCall,
        before: Option<&Value>,
        dispatch: Dispatch,
    ) -> Effect {
        self.0.act(call, before, dispatch).await
    }
}

/// Stops before it acts on paths that contain this name.
pub(crate) struct StopsAt {
    pub(crate) inner: Arc<dyn Executor>,
    pub(crate) name: &'static str,
}

#[async_trait]
impl Act for StopsAt {
    fn inner(&self) -> &dyn Executor {
        &*self.inner
    }

    async fn act(&self, call: &CoreCall, before: Option<&Value>, dispatch: Dispatch) -> Effect {
        if call.paths().iter().any(|path| path.as_str().contains(self.name)) {
            return Effect::Unknown("stopped".into());
        }
        self.inner.dispatch(call, before, dispatch).await
    }
}

/// A gate with its sandbox; the directory goes away with it.
pub(crate) struct Fixture {
    pub(crate) gate: Gate,
    pub(crate) directory: TempDir,
}

impl Fixture {
    pub(crate) fn new() -> Self {
        Self::with_store(Arc::new(MemoryStore::new()))
    }

    pub(crate) fn with_store(store: Arc<dyn Store>) -> Self {
        let directory = TempDir::new().unwrap();
        let gate = gate(store, directory.path());
        Self { gate, directory }
    }

    pub(crate) fn with_policy(mut self, policy: impl Policy + 'static) -> Self {
        self.gate.policy = Arc::new(policy);
        self
    }

    pub(crate) fn path(&self, beneath: &str) -> PathBuf {
        self.directory.path().join(beneath)
    }

    pub(crate) fn write(&self, beneath: &str, content: impl AsRef<[u8]>) {
        let path = self.path(beneath);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    pub(crate) async fn submit(&self, payload: impl AsRef<[u8]>) -> Answer {
        submit(&self.gate, payload).await.unwrap()
    }

    /// Takes a proposal through the gate and reads its response back.
    pub(crate) async fn respond(&self, payload: impl AsRef<[u8]>) -> Value {
        serde_json::from_str(&self.submit(payload).await.body()).unwrap()
    }

    pub(crate) async fn dossier(&self, answer: &Answer) -> Dossier {
        self.gate.store.dossier(answer.run_id).await.unwrap().unwrap()
    }

    pub(crate) async fn record_of(
        &self,
        payload: impl AsRef<[u8]>,
    ) -> stepgate_core::record::RecordBody {
        let answer = self.submit(payload).await;
        self.dossier(&answer).await.record.unwrap().0.body().unwrap()
    }
}

pub(crate) fn gate(store: Arc<dyn Store>, sandbox: &Path) -> Gate {
    let limits = SandboxLimits::default();
    Gate {
        store,
        executor: Arc::new(Sandbox::open(sandbox, "sandbox".into(), limits).unwrap()),
        tools: Arc::new(NoToolServers),
        policy: Arc::new(BuiltInRule),
        world: CountingWorld::starting_at(0),
        limits: Limits { payload_bytes_max: 4096, ..Limits::default() },
        extensions: Extensions::default(),
        parked: Parked::default(),
        doubts: Doubts::default(),
        groups: Groups::default(),
        consents: Consents::default(),
        facts: FactSources::default(),
    }
}

pub(crate) fn agent() -> PrincipalId {
    PrincipalId::parse("agent").unwrap()
}

pub(crate) async fn submit(
    gate: &Gate,
    payload: impl AsRef<[u8]>,
) -> Result<Answer, stepgate_core::gate::Fault> {
    let session = gate.default_session(&agent()).await?;
    let submission = Submission {
        session_id: session.session_id,
        principal_id: agent(),
        payload: Payload::whole(payload.as_ref()),
    };
    step::run(gate, submission).await
}

/// A UUID with this number.
pub(crate) fn id(number: u32) -> String {
    format!("550e8400-e29b-41d4-a716-4466{number:08x}")
}

/// A proposal with this number as its id.
pub(crate) fn proposal(number: u32, action: &str, args: Value) -> String {
    json!({
        "schema_version": "1.0.0",
        "id": id(number),
        "reasoning": "a test",
        "action": action,
        "args": args,
    })
    .to_string()
}
