//! An agent in process: a real gate over a sandbox and an in-memory store, and a model that says what
//! the test wrote down.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Value, json};
use stepgate_agent::envelope::{ClientTool, Envelope, Party, ToolCall, ToolCallResult};
use stepgate_agent::flow::Request;
use stepgate_agent::limits::AgentLimits;
use stepgate_agent::model::{Completion, Message, ModelError, Offer, Prompt};
use stepgate_agent::pipeline::{self, Done};
use stepgate_agent::ports::{Agent, Listener, Model, Profile, Progress, Told, Tools};
use stepgate_agent::response::{Response, Usage};
use stepgate_agent::stop::Stop;
use stepgate_core::approvers::Groups;
use stepgate_core::consent_cache::Consents;
use stepgate_core::fact_sources::FactSources;
use stepgate_core::gate::{Doubts, Extensions, Fault, Gate, Parked};
use stepgate_core::ids::{PrincipalId, RunId, SessionId};
use stepgate_core::limits::Limits;
use stepgate_core::policy::BuiltInRule;
use stepgate_core::ports::{NoToolServers, Policy, Store, World};
use stepgate_core::run::{Payload, Word};
use stepgate_core::step::{self, Answer, Submission};
use stepgate_core::time::Timestamp;
use stepgate_exec::{Sandbox, SandboxLimits};
use stepgate_store::MemoryStore;
use tempfile::TempDir;

/// A clock that moves one millisecond each time it is read, and ids that count.
struct CountingWorld(AtomicU64);

impl CountingWorld {
    fn tick(&self) -> u64 {
        1_790_000_000_000 + self.0.fetch_add(1, Ordering::SeqCst)
    }
}

#[async_trait]
impl World for CountingWorld {
    fn now(&self) -> Timestamp {
        Timestamp::from_millisecond(i64::try_from(self.tick()).unwrap())
    }

    fn fresh_uuid(&self) -> uuid::Uuid {
        uuid::Builder::from_unix_timestamp_millis(self.tick(), &[7; 10]).into_uuid()
    }

    async fn pause(&self, _: Duration) {}
}

/// Steps through the gate itself.
struct GateTools {
    gate: Gate,
    names: Vec<&'static str>,
}

const NAMES: [&str; 3] = ["WRITE_FILE", "READ_FILE", "RENAME_FILE"];

#[async_trait]
impl Tools for GateTools {
    fn offered(&self, _: &PrincipalId) -> Vec<Offer> {
        let offered = |name: &str| Offer {
            name: name.into(),
            action: Some(name.into()),
            description: None,
            parameters: json!({ "type": "object" }),
        };
        self.names.iter().copied().map(offered).collect()
    }

    async fn run(
        &self,
        principal_id: &PrincipalId,
        session_id: SessionId,
        payload: Payload,
    ) -> Result<Answer, Fault> {
        let principal_id = principal_id.clone();
        step::run(&self.gate, Submission { session_id, principal_id, payload }).await
    }

    async fn wait_until_finished(&self, run_id: RunId) -> Result<Answer, Fault> {
        loop {
            let answer = step::answer_of(&self.gate, run_id).await?;
            match answer.word() {
                Word::Outcome(_) => return Ok(answer),
                Word::Notice(_) => tokio::task::yield_now().await,
            }
        }
    }
}

/// What a model says next.
pub(crate) type Said = Result<Completion, ModelError>;

/// Says what was written down, and remembers what it was asked.
#[derive(Default)]
pub(crate) struct Script {
    says: Mutex<VecDeque<Said>>,
    pub(crate) asked: Mutex<Vec<Vec<Message>>>,
}

impl Script {
    /// Says this too.
    pub(crate) fn say(&self, said: Said) {
        self.says.lock().unwrap().push_back(said);
    }
}

#[async_trait]
impl Model for Script {
    async fn complete(&self, prompt: &Prompt, told: &Told<'_>) -> Result<Completion, ModelError> {
        self.asked.lock().unwrap().push(prompt.messages.clone());
        let said = self.says.lock().unwrap().pop_front();
        let said = said.unwrap_or_else(|| panic!("the model was asked once more than expected"));
        if let Ok(Completion { text: Some(text), .. }) = &said {
            told(text);
        }
        said
    }
}

/// Remembers everything that it hears.
#[derive(Default)]
pub(crate) struct Ear(pub(crate) Mutex<Vec<Progress>>);

impl Listener for Ear {
    fn hear(&self, progress: Progress) {
        self.0.lock().unwrap().push(progress);
    }
}

pub(crate) fn says(text: &str) -> Said {
    Ok(Completion { model: "m".into(), text: Some(text.into()), ..Completion::default() })
}

pub(crate) fn asks(calls: &[(&str, &str, Value)]) -> Said {
    let calls = calls.iter().map(|(id, name, arguments)| ToolCall {
        tool_call_id: (*id).into(),
        name: (*name).into(),
        arguments_json: arguments.to_string(),
    });
    let usage = Some(Usage { prompt_tokens: 10, completion_tokens: 5 });
    Ok(Completion { model: "m".into(), calls: calls.collect(), usage, ..Completion::default() })
}

pub(crate) fn write(file: &str) -> Value {
    json!({ "path": format!("/sandbox/{file}"), "content": "hello" })
}

pub(crate) struct Desk {
    pub(crate) agent: Agent,
    pub(crate) script: Arc<Script>,
    pub(crate) directory: Arc<TempDir>,
}

pub(crate) fn principal() -> PrincipalId {
    PrincipalId::parse("agent").unwrap()
}

impl Desk {
    pub(crate) fn new(script: impl IntoIterator<Item = Said>) -> Self {
        Self::with_store(Arc::new(MemoryStore::new()), script)
    }

    pub(crate) fn with_store(
        store: Arc<dyn Store>,
        script: impl IntoIterator<Item = Said>,
    ) -> Self {
        Self::at(Arc::new(TempDir::new().unwrap()), store, 0, script)
    }

    pub(crate) fn at(
        directory: Arc<TempDir>,
        store: Arc<dyn Store>,
        ticks: u64,
        script: impl IntoIterator<Item = Said>,
    ) -> Self {
        let sandbox = Sandbox::open(directory.path(), "sandbox".into(), SandboxLimits::default());
        let gate = Gate {
            store,
            executor: Arc::new(sandbox.unwrap()),
            tools: Arc::new(NoToolServers),
            policy: Arc::new(BuiltInRule),
            world: Arc::new(CountingWorld(AtomicU64::new(ticks))),
            limits: Limits::default(),
            extensions: Extensions::default(),
            parked: Parked::default(),
            doubts: Doubts::default(),
            groups: Groups::default(),
            consents: Consents::default(),
            facts: FactSources::default(),
        };
        let script = Script { says: Mutex::new(script.into_iter().collect()), ..Script::default() };
        let script = Arc::new(script);
        let profile = Profile {
            system_prompt: "be brief".into(),
            mode: "general".into(),
            mode_display_name: "General".into(),
        };
        let agent = Agent {
            tools: Arc::new(GateTools { gate: gate.clone(), names: NAMES.to_vec() }),
            gate,
            model: Arc::clone(&script) as _,
            profile,
            limits: AgentLimits::default(),
        };
        Self { agent, script, directory }
    }

    pub(crate) fn with_policy(mut self, policy: impl Policy + 'static) -> Self {
        self.agent.gate.policy = Arc::new(policy);
        let gate = self.agent.gate.clone();
        self.agent.tools = Arc::new(GateTools { gate, names: NAMES.to_vec() });
        self
    }

    /// From now on the server has a tool of this name too.
    pub(crate) fn server_gets(&mut self, name: &'static str) {
        let names = NAMES.into_iter().chain([name]).collect();
        self.agent.tools = Arc::new(GateTools { gate: self.agent.gate.clone(), names });
    }

    pub(crate) async fn ask(&self, key: &str, envelope: Envelope) -> Result<Done, Stop> {
        self.ask_heard(key, envelope, &Ear::default()).await
    }

    pub(crate) async fn ask_heard(
        &self,
        key: &str,
        envelope: Envelope,
        ear: &Ear,
    ) -> Result<Done, Stop> {
        pipeline::run(&self.agent, request(key, envelope), ear).await
    }

    /// The error codes of a request that is refused.
    pub(crate) async fn refused(&self, key: &str, envelope: Envelope) -> Vec<String> {
        match self.ask(key, envelope).await {
            Err(Stop::Invoke(result)) => {
                result.errors.into_iter().map(|error| error.code).collect()
            }
            other => panic!("it was not refused: {other:?}"),
        }
    }

    /// What the model was told in its last question.
    pub(crate) fn told(&self) -> Vec<Message> {
        self.script.asked.lock().unwrap().last().unwrap().clone()
    }

    pub(crate) fn times_asked(&self) -> usize {
        self.script.asked.lock().unwrap().len()
    }

    pub(crate) fn has(&self, file: &str) -> bool {
        self.directory.path().join(file).exists()
    }
}

pub(crate) fn request(key: &str, envelope: Envelope) -> Request {
    Request { principal_id: principal(), correlation_id: key.into(), envelope }
}

pub(crate) fn hello(text: &str) -> Envelope {
    let party = |id: &str| Some(Party { id: id.into() });
    Envelope {
        org: party("stepgate"),
        user: party("agent"),
        instructions: Some(text.into()),
        ..Envelope::default()
    }
}

/// A request that follows a response.
pub(crate) fn after(response: &Response, text: &str) -> Envelope {
    Envelope {
        session_id: response.session_id.clone(),
        turn_id: response.turn_id.clone(),
        ..hello(text)
    }
}

/// The results of the caller's tools, for the calls of a response.
pub(crate) fn results(response: &Response, results: &[(&str, &str, &str)]) -> Envelope {
    let tool_results = results.iter().map(|(id, name, result)| ToolCallResult {
        tool_call_id: (*id).into(),
        name: (*name).into(),
        result_json: Some((*result).into()),
        error_message: None,
    });
    let tool_results = tool_results.collect();
    Envelope { tool_results, instructions: None, ..after(response, "") }
}

/// A request that declares tools of its own.
pub(crate) fn with_tools(envelope: Envelope, names: &[&str]) -> Envelope {
    let tools = names.iter().map(|name| ClientTool {
        name: (*name).into(),
        description: None,
        parameters: json!({ "type": "object" }),
    });
    Envelope { tools: tools.collect(), ..envelope }
}
