//! Tool servers for a test, and everything that is needed to call them.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use stepgate_core::call::ServerCall;
use stepgate_core::failure::ExecutionFailure;
use stepgate_core::ids::{ArtifactId, IdempotencyKey, PrincipalId, ProposalId, RunId};
use stepgate_core::late::LateResult;
use stepgate_core::ports::{Dispatch, Effect, Failed, Hold, Said, Sending, ToolServers};
use stepgate_core::tool::{Mode, ToolName};
use stepgate_exec::launcher::Launcher;
use stepgate_exec::servers::{
    CallProgress, DeliverySpec, Late, News, Pin, Pinning, Progress, Secret, ServerLimits,
    ServerSpec, Servers, StartError, ToolSpec, Transport,
};
use tempfile::TempDir;

/// Longest wait for something that must happen.
const PATIENCE: Duration = Duration::from_secs(20);

/// The program that is both the launcher and the server that misbehaves.
pub(crate) fn fixture() -> PathBuf {
    env!("CARGO_BIN_EXE_stepgate-exec-fixture").into()
}

pub(crate) fn launcher() -> Launcher {
    Launcher { program: fixture() }
}

/// The fixture as a server, in this mode; its tools write, and it honours the key.
pub(crate) fn spec(name: &str, mode: &str) -> ServerSpec {
    ServerSpec {
        name: name.to_owned(),
        executor_id: name.to_owned(),
        transport: Transport::Stdio {
            command: fixture().display().to_string(),
            args: vec![mode.to_owned()],
            env: BTreeMap::new(),
            directory: None,
        },
        tool: ToolSpec {
            mode: Some(Mode::ExecuteGated),
            delivery: Some(DeliverySpec::HonoursKey),
            ..ToolSpec::default()
        },
        tools: BTreeMap::new(),
        limits: ServerLimits::default(),
        hidden: vec![],
        required: false,
        pin: Pinning::Definition,
    }
}

pub(crate) fn with_args(mut spec: ServerSpec, more: &[String]) -> ServerSpec {
    if let Transport::Stdio { args, .. } = &mut spec.transport {
        args.extend_from_slice(more);
    }
    spec
}

pub(crate) fn with_env(mut spec: ServerSpec, name: &str, value: &str) -> ServerSpec {
    if let Transport::Stdio { env, .. } = &mut spec.transport {
        env.insert(name.to_owned(), Secret::new(value));
    }
    spec
}

/// A time limit for one tool; the others keep theirs, so that a busy machine changes nothing.
pub(crate) fn with_timeout(mut spec: ServerSpec, tool: &str, timeout: Duration) -> ServerSpec {
    let limited = ToolSpec { timeout: Some(timeout), ..ToolSpec::default() };
    spec.tools.insert(tool.to_owned(), limited);
    spec
}

/// Servers with everything accepted, what came too late, and how far calls came.
pub(crate) struct House {
    pub(crate) servers: Servers,
    pub(crate) late: Arc<Mutex<Vec<LateResult>>>,
    pub(crate) progress: Arc<Mutex<Vec<CallProgress>>>,
    pub(crate) news: Arc<Mutex<Vec<News>>>,
    pub(crate) keep: TempDir,
}

impl House {
    pub(crate) async fn of(specs: Vec<ServerSpec>) -> Self {
        let house = Self::unaccepted(specs, BTreeMap::new()).await.unwrap();
        for name in house.servers.first_seen() {
            house.servers.accept(&name).unwrap();
        }
        house
    }

    /// One server in the fixture's ordinary mode, that counts in the file `state`.
    pub(crate) async fn ordinary(change: impl FnOnce(ServerSpec) -> ServerSpec) -> Self {
        let keep = tempfile::tempdir().unwrap();
        let state = keep.path().join("state").display().to_string();
        let spec = change(with_args(spec("house", "normal"), &[state]));
        Self { keep, ..Self::of(vec![spec]).await }
    }

    pub(crate) async fn unaccepted(
        specs: Vec<ServerSpec>,
        pins: BTreeMap<ToolName, Pin>,
    ) -> Result<Self, StartError> {
        let late = Arc::new(Mutex::new(Vec::new()));
        let heard = Arc::clone(&late);
        let tell: Late = Arc::new(move |result| heard.lock().unwrap().push(result));
        let progress = Arc::new(Mutex::new(Vec::new()));
        let heard = Arc::clone(&progress);
        let tell_progress: Progress = Arc::new(move |said| heard.lock().unwrap().push(said));
        let news = Arc::new(Mutex::new(Vec::new()));
        let heard = Arc::clone(&news);
        let tell_news = Arc::new(move |said| heard.lock().unwrap().push(said));
        let servers =
            Servers::start(specs, pins, launcher(), tell, tell_progress, tell_news, Duration::MAX)
                .await?;
        Ok(Self { servers, late, progress, news, keep: tempfile::tempdir().unwrap() })
    }

    pub(crate) fn call(&self, tool: &str, args: Value) -> ServerCall {
        let tool = self.servers.tool(&name(tool)).unwrap_or_else(|| panic!("no tool {tool}"));
        let Value::Object(args) = args else { panic!("arguments are an object") };
        ServerCall { tool, args }
    }

    /// The whole way of a call: its turn, then the act.
    pub(crate) async fn run(&self, tool: &str, args: Value) -> Effect {
        self.send(tool, args, &sending()).await
    }

    pub(crate) async fn send(&self, tool: &str, args: Value, sending: &Sending) -> Effect {
        let call = self.call(tool, args);
        match self.servers.prepare(&call).await {
            Ok(_turn) => self.servers.dispatch(&call, sending).await,
            Err(failed) => Effect::Failed(failed),
        }
    }

    /// The text of a tool's first content.
    pub(crate) async fn text(&self, tool: &str, args: Value) -> String {
        let result = done(self.run(tool, args).await);
        result["content"][0]["text"].as_str().unwrap().to_owned()
    }

    pub(crate) async fn turn(&self, tool: &str) -> Result<Hold, Failed> {
        self.servers.prepare(&self.call(tool, json!({}))).await
    }

    /// What is accepted now, as another start would be told.
    pub(crate) fn pins(&self) -> BTreeMap<ToolName, Pin> {
        let tools = self.servers.tools();
        let pin = |name: &ToolName| {
            let pin = self.servers.accepted(name).unwrap();
            Pin::new(pin.digest(), pin.definition().cloned(), pin.beside())
        };
        tools.iter().map(|tool| (tool.name.clone(), pin(&tool.name))).collect()
    }

    /// What the fixture counted.
    pub(crate) fn state(&self) -> Value {
        let text = std::fs::read_to_string(self.keep.path().join("state"));
        text.map_or(json!({}), |text| serde_json::from_str(&text).unwrap())
    }
}

pub(crate) fn name(tool: &str) -> ToolName {
    tool.parse().unwrap()
}

/// A fresh call's papers.
pub(crate) fn sending() -> Sending {
    let principal = PrincipalId::parse("agent").unwrap();
    let proposal = ProposalId::parse(&uuid::Uuid::new_v4().to_string()).unwrap();
    Sending {
        run_id: RunId::new(uuid::Uuid::now_v7()),
        tool_call_id: ArtifactId::new(uuid::Uuid::now_v7()),
        key: IdempotencyKey::of(&principal, &proposal),
        dispatch: Dispatch::First,
    }
}

pub(crate) fn done(effect: Effect) -> Value {
    match effect {
        Effect::Done(Some(text)) => serde_json::from_str(&text).unwrap(),
        Effect::Done(None) | Effect::Failed(_) | Effect::Refused(_) | Effect::Unknown(_) => {
            panic!("not done: {effect:?}")
        }
    }
}

pub(crate) fn text_result(text: &str) -> Effect {
    let result = json!({ "content": [{ "type": "text", "text": text }] });
    Effect::Done(Some(result.to_string()))
}

pub(crate) fn failed(failure: ExecutionFailure, detail: &str, in_doubt: bool) -> Effect {
    let detail = Some(detail.to_owned());
    Effect::Failed(Failed { failure, detail, said: Said::Nothing, in_doubt })
}

/// The failure of a tool that says itself that it failed, in this text.
pub(crate) fn own_error(text: &str) -> Effect {
    let result = json!({ "content": [{ "type": "text", "text": text }] });
    Effect::Failed(Failed {
        detail: Some(text.to_owned()),
        said: Said::Error(result.to_string()),
        ..ExecutionFailure::ToolFailed.into()
    })
}

/// Waits until something holds.
pub(crate) async fn until<T>(what: &str, mut holds: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = holds().await {
            return found;
        }
        assert!(Instant::now() < deadline, "{what} did not happen");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
