//! Tests of the router in process: a real sandbox, the in-memory store, and a policy that requires approvals.

mod access;
mod approvals;
mod console;
mod documents;
mod limits;
mod lists;
mod steps;
mod streams;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Method, Request, StatusCode};
use axum::routing::MethodFilter;
use http_body_util::BodyExt;
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
    Dispatch, Effect, Executor, Hold, NoToolServers, Policy, PolicyDecision, PolicyRequest,
    PolicyVerdict, Prepared,
};
use stepgate_exec::{Sandbox, SandboxLimits};
use stepgate_gateway::hub::Hub;
use stepgate_gateway::service::Service;
use stepgate_gateway::tokens::{Maker, NewToken, Role};
use stepgate_gateway::world::RealWorld;
use stepgate_store::memory::MemoryStore;
use tempfile::TempDir;
use tokio::sync::Semaphore;
use tower::ServiceExt;

use super::{Access, AccessLog, App, Peer, Proposer, PublicUrl, Route, ServeConfig, router};
use crate::local::Process;

/// Requires approval before a file is deleted or a directory is created, and denies paths that contain `forbidden`.
struct AskFirst;

impl Policy for AskFirst {
    fn decide(&self, request: PolicyRequest<'_>) -> PolicyDecision {
        let forbidden = request.call.paths().iter().any(|path| path.as_str().contains("forbidden"));
        let verdict = match request.call.name() {
            _ if forbidden => PolicyVerdict::Deny,
            "DELETE_FILE" | "CREATE_DIRECTORY" => {
                PolicyVerdict::RequireApproval("it changes what is there".into())
            }
            _ => PolicyVerdict::Permit,
        };
        PolicyDecision { verdict, ..BuiltInRule.decide(request) }
    }

    /// Would deny paths that contain `differs`.
    fn shadow(
        &self,
        asked: PolicyRequest<'_>,
        in_force: &PolicyDecision,
    ) -> Option<PolicyDecision> {
        let differs = asked.call.paths().iter().any(|path| path.as_str().contains("differs"));
        let verdict = PolicyVerdict::Deny;
        differs.then(|| PolicyDecision { verdict, ..in_force.clone() })
    }
}

/// The sandbox with a counter of dispatches. It acts only while it holds a permit.
struct Counting {
    sandbox: Sandbox,
    dispatched: AtomicUsize,
    leave: Semaphore,
}

/// At least as many permits as any test needs at once.
const LEAVE: usize = 64;

impl Counting {
    /// Blocks every dispatch until the permit is dropped.
    async fn hold_back(&self) -> tokio::sync::SemaphorePermit<'_> {
        self.leave.acquire_many(u32::try_from(LEAVE).unwrap()).await.unwrap()
    }
}

#[async_trait]
impl Executor for Counting {
    fn id(&self) -> &str {
        self.sandbox.id()
    }

    async fn prepare(&self, call: &CoreCall) -> Result<Prepared, &'static str> {
        self.sandbox.prepare(call).await
    }

    async fn hold(&self, call: &CoreCall) -> Option<Hold> {
        self.sandbox.hold(call).await
    }

    async fn dispatch(&self, call: &CoreCall, before: Option<&Value>, again: Dispatch) -> Effect {
        let _leave = self.leave.acquire().await;
        self.dispatched.fetch_add(1, Ordering::SeqCst);
        self.sandbox.dispatch(call, before, again).await
    }
}

/// A gateway with its principals' tokens.
struct House {
    app: Arc<App>,
    router: Router,
    executor: Arc<Counting>,
    directory: TempDir,
    alice: String,
    bob: String,
    olga: String,
    otto: String,
    anna: String,
}

#[derive(Debug)]
struct Reply {
    status: StatusCode,
    headers: HeaderMap,
    body: String,
}

impl Reply {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("not JSON: {}", self.body))
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }
}

impl House {
    async fn new() -> Self {
        Self::with(ServeConfig::default(), Limits::default()).await
    }

    async fn with(serve: ServeConfig, limits: Limits) -> Self {
        let directory = TempDir::new().unwrap();
        let sandbox =
            Sandbox::open(directory.path(), "sandbox".into(), SandboxLimits::default()).unwrap();
        let leave = Semaphore::new(LEAVE);
        let executor = Arc::new(Counting { sandbox, dispatched: AtomicUsize::new(0), leave });
        let hub = Hub::new();
        let gate = Gate {
            store: Arc::new(MemoryStore::new().announcing_to(hub.clone())),
            executor: executor.clone(),
            tools: Arc::new(NoToolServers),
            policy: Arc::new(AskFirst),
            world: Arc::new(RealWorld),
            limits,
            extensions: Extensions::default(),
            parked: Parked::default(),
            doubts: Doubts::default(),
            groups: Groups::default(),
            consents: Consents::default(),
            facts: FactSources::default(),
        };
        let service = Service::new(gate, hub, None).await.unwrap();
        let mut tokens = Vec::new();
        for (name, role) in [
            ("alice", Role::Agent),
            ("bob", Role::Agent),
            ("olga", Role::Operator),
            ("otto", Role::Operator),
            ("anna", Role::Auditor),
        ] {
            let name = PrincipalId::parse(name).unwrap();
            let new = NewToken { principal_id: name, role, maker: Maker::Start, life_s: None };
            let (_, secret) = service.tokens.create(&service.gate, new).await.unwrap();
            tokens.push(secret.reveal().to_owned());
        }
        let [alice, bob, olga, otto, anna] = tokens.try_into().unwrap();
        let public_url = PublicUrl::parse("http://127.0.0.1:7420").unwrap();
        let app = App::new(service, serve, public_url, AccessLog::Silent, mounted());
        let router = router(&app);
        Self { app, router, executor, directory, alice, bob, olga, otto, anna }
    }

    fn dispatched(&self) -> usize {
        self.executor.dispatched.load(Ordering::SeqCst)
    }

    fn request(&self, method: &str, path: &str, token: &str, body: String) -> Request<Body> {
        let mut request = Request::builder().method(method).uri(path);
        if !token.is_empty() {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let mut request = request.body(Body::from(body)).unwrap();
        request.extensions_mut().insert(Peer::Address([127, 0, 0, 1].into()));
        request
    }

    async fn send(&self, request: Request<Body>) -> Reply {
        let response = self.router.clone().oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let body = String::from_utf8(body.to_vec()).unwrap();
        Reply { status: parts.status, headers: parts.headers, body }
    }

    async fn get(&self, token: &str, path: &str) -> Reply {
        self.send(self.request("GET", path, token, String::new())).await
    }

    async fn post(&self, token: &str, path: &str, body: impl ToString) -> Reply {
        let mut request = self.request(Method::POST.as_str(), path, token, body.to_string());
        request.headers_mut().insert("content-type", "application/json".parse().unwrap());
        self.send(request).await
    }

    async fn propose(&self, token: &str, proposal: &str) -> Reply {
        self.send(self.request("POST", "/v1/steps", token, proposal.to_owned())).await
    }

    /// Proposes something that needs approval. Returns the ids of the approval and the run.
    async fn ask(&self, token: &str, name: &str) -> (String, String) {
        let asked = proposal("CREATE_DIRECTORY", json!({ "path": format!("/sandbox/{name}") }));
        let reply = self.propose(token, &asked).await;
        assert_eq!(reply.status, StatusCode::ACCEPTED, "{}", reply.body);
        let result = &reply.json()["result"];
        let text = |name: &str| result[name].as_str().unwrap().to_owned();
        (text("approval_id"), text("run_id"))
    }

    /// Waits until the run has this status.
    async fn until(&self, run_id: &str, status: &str) -> Value {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            let run = self.get(&self.olga, &format!("/v1/runs/{run_id}")).await.json();
            if run["run"]["status"] == status {
                return run;
            }
            assert!(Instant::now() < deadline, "it is {}", run["run"]["status"]);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// Routes mounted by another crate.
fn mounted() -> Vec<Route> {
    let route = |method, filter| {
        let handler = axum::routing::on(filter, async |_: Proposer| StatusCode::NO_CONTENT);
        Route::new(method, "/mcp", Access::Proposer, handler).named(method, "Speak")
    };
    let (post, get, delete) = (MethodFilter::POST, MethodFilter::GET, MethodFilter::DELETE);
    vec![route("POST", post), route("GET", get), route("DELETE", delete)]
}

fn proposal(action: &str, args: Value) -> String {
    json!({
        "schema_version": "1.0.0",
        "id": uuid::Uuid::new_v4(),
        "reasoning": "a test",
        "action": action,
        "args": args,
    })
    .to_string()
}

fn fresh_id() -> String {
    uuid::Uuid::now_v7().to_string()
}
