//! Tool servers that count their effects by key themselves, and answer late, wrongly, or not at all.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use serde_json::json;
use stepgate_core::action::InvalidArgs;
use stepgate_core::call::ServerCall;
use stepgate_core::digest::Digest;
use stepgate_core::failure::ExecutionFailure;
use stepgate_core::ids::RunId;
use stepgate_core::json::{Map, Value};
use stepgate_core::label::Flow;
use stepgate_core::late::{self, LateResult};
use stepgate_core::ports::{Dispatch, Effect, Failed, Hold, Said, Sending, ToolServers};
use stepgate_core::tool::{Contract, Delivery, Mode, Standing, Tool, ToolName};

use crate::environment::Environment;
use crate::ledger::Ledger;
use crate::locked;
use crate::processes::{Processes, Seat};
use crate::sabotage::Sabotage;
use crate::schedule::{Group, Instant};
use crate::signal::{Answering, answer};
use crate::trace::number_of;
use crate::weather::{MS, SECOND, TOOL_TIMEOUT, ToolFate, WAY_MAX};

/// The tools that change something, one for each way a call in doubt is treated.
pub(crate) const CHANGING: [&str; 4] = ["s.honours", "s.redispatch", "s.query", "s.ask"];
const STATUS: &str = "s.status";

/// What a call asks for.
pub(crate) fn amount_of(args: &Map<String, Value>) -> u64 {
    args.get("n").and_then(Value::as_u64).unwrap_or(0)
}

/// How long a server listens for the end of a call with the same key.
const JOIN_MAX: Instant = 60 * SECOND;

/// Every tool server, and what their tools did.
pub(crate) struct Servers {
    env: Arc<Environment>,
    ledger: Arc<Ledger>,
    tools: BTreeMap<ToolName, Arc<Tool>>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Calls that are being worked on, by key.
    working: BTreeMap<String, u32>,
    /// How often each key had its effect.
    acts: BTreeMap<String, u32>,
}

struct AnyArgs;

impl Contract for AnyArgs {
    fn check(&self, _: &Map<String, Value>) -> Result<(), InvalidArgs> {
        Ok(())
    }
}

impl Servers {
    pub(crate) fn new(env: Arc<Environment>, ledger: Arc<Ledger>) -> Self {
        let ask = match env.sabotage {
            Some(Sabotage::ResendAsk) => Delivery::HonoursKey,
            Some(_) | None => Delivery::Ask,
        };
        let query = ToolName::parse(STATUS).map_or(Delivery::Ask, Delivery::Query);
        let tools = [
            ("s.honours", Mode::ExecuteGated, Delivery::HonoursKey),
            ("s.redispatch", Mode::ExecuteGated, Delivery::Redispatch),
            ("s.query", Mode::ExecuteGated, query),
            ("s.ask", Mode::ExecuteGated, ask),
            (STATUS, Mode::ReadOnly, Delivery::Redispatch),
        ];
        let tools = tools.into_iter().filter_map(|(name, mode, delivery)| {
            let name = ToolName::parse(name).ok()?;
            let redacted = match delivery {
                Delivery::Redispatch if mode == Mode::ExecuteGated => vec!["secret".to_owned()],
                Delivery::HonoursKey
                | Delivery::Redispatch
                | Delivery::Query(_)
                | Delivery::Ask => Vec::new(),
            };
            let tool = Tool {
                definition_digest: Digest::of_bytes(name.as_str().as_bytes()),
                mode,
                delivery,
                standing: Standing::Accepted,
                redacted,
                erasable: Vec::new(),
                flow: Flow::default(),
                contract: Arc::new(AnyArgs),
                name: name.clone(),
            };
            Some((name, Arc::new(tool)))
        });
        Self { tools: tools.collect(), state: Mutex::default(), env, ledger }
    }

    /// How often a key had its effect.
    pub(crate) fn acts(&self, key: &str) -> u32 {
        locked(&self.state).acts.get(key).copied().unwrap_or(0)
    }

    /// Whether a call with this key is being worked on.
    pub(crate) fn is_working(&self, key: &str) -> bool {
        locked(&self.state).working.contains_key(key)
    }

    fn begin(&self, key: &str) {
        *locked(&self.state).working.entry(key.to_owned()).or_default() += 1;
    }

    fn end(&self, key: &str) {
        let mut state = locked(&self.state);
        if let Some(count) = state.working.get_mut(key) {
            *count -= 1;
            if *count == 0 {
                state.working.remove(key);
            }
        }
    }
}

/// The tool servers as one node reaches them.
pub(crate) struct NodeServers {
    pub(crate) servers: Arc<Servers>,
    pub(crate) processes: Arc<Processes>,
    pub(crate) seat: Seat,
}

/// A call at its server.
struct Received {
    servers: Arc<Servers>,
    node: u64,
    tool: Arc<Tool>,
    args: Map<String, Value>,
    key: String,
    run_id: RunId,
    fate: ToolFate,
}

#[async_trait]
impl ToolServers for NodeServers {
    fn tool(&self, name: &ToolName) -> Option<Arc<Tool>> {
        self.servers.tools.get(name).cloned()
    }

    fn tools(&self) -> Vec<Arc<Tool>> {
        self.servers.tools.values().cloned().collect()
    }

    async fn prepare(&self, _: &ServerCall) -> Result<Hold, Failed> {
        if self.servers.env.is_stormy() && self.servers.env.happens(15) {
            return Err(ExecutionFailure::Unavailable.into());
        }
        Ok(Box::new(()))
    }

    async fn dispatch(&self, call: &ServerCall, sending: &Sending) -> Effect {
        let fate = self.servers.env.tool_fate();
        let again = u64::from(sending.dispatch == Dispatch::Again);
        let about = number_of(sending.run_id.as_uuid()) ^ again;
        self.servers.env.note("send", self.seat.node, about, || {
            format!("{} {:?} {fate:?} {}", call.tool.name, sending.dispatch, sending.key)
        });
        let received = Received {
            servers: Arc::clone(&self.servers),
            node: self.seat.node,
            tool: Arc::clone(&call.tool),
            args: call.args.clone(),
            key: sending.key.to_string(),
            run_id: sending.run_id,
            fate,
        };
        let (answering, awaited) = answer();
        self.servers.env.spawn(Group::WORLD, received.serve(answering));
        match self.servers.env.within(TOOL_TIMEOUT, awaited.get()).await {
            Some(Some(effect)) => effect,
            Some(None) => {
                let lost = Failed::from(ExecutionFailure::ToolFailed);
                Effect::Failed(Failed { in_doubt: true, ..lost })
            }
            None => {
                self.listen(sending.run_id, awaited);
                // As if nothing had been sent, for a tool of which nothing else would tell.
                let releases = self.servers.env.is_sabotaged(Sabotage::ReleaseInDoubt)
                    && call.tool.delivery == Delivery::Redispatch;
                match releases {
                    true => Effect::Failed(ExecutionFailure::Unavailable.into()),
                    false => Effect::Failed(ExecutionFailure::Timeout.into()),
                }
            }
        }
    }
}

impl NodeServers {
    /// Listens for what comes too late.
    fn listen(&self, run_id: RunId, awaited: crate::signal::Awaited<Effect>) {
        let (processes, node) = (Arc::clone(&self.processes), self.seat.node);
        self.servers.env.spawn(self.seat.group, async move {
            let Some(Effect::Done(Some(result))) = awaited.get().await else { return };
            let Some(process) = processes.serving(node) else { return };
            let result_digest = Digest::of_bytes(result.as_bytes());
            let late = LateResult { run_id, succeeded: true, result_digest };
            let noted = late::note(&process.gate, late).await;
            process.heed(noted.as_ref().err());
        });
    }
}

impl Received {
    async fn serve(self, answering: Answering<Effect>) {
        let way = self.servers.env.between(MS, WAY_MAX);
        self.servers.env.sleep(way).await;
        match self.fate {
            ToolFate::Lost => {}
            ToolFate::Fails => answering.send(Effect::Failed(ExecutionFailure::ToolFailed.into())),
            ToolFate::CrashBefore
            | ToolFate::CrashAfter
            | ToolFate::Calm
            | ToolFate::Wrong
            | ToolFate::Slow => {
                if self.tool.name.as_str() == STATUS {
                    answering.send(Effect::Done(Some(self.status())));
                    return;
                }
                if let Some(effect) = self.work().await {
                    let way = self.servers.env.between(MS, WAY_MAX);
                    self.servers.env.sleep(way).await;
                    answering.send(effect);
                }
            }
        }
    }

    fn status(&self) -> String {
        let key = self.args.get("idempotency_key").and_then(Value::as_str).unwrap_or_default();
        let status = if self.servers.is_working(key) {
            "working"
        } else if self.servers.acts(key) > 0 {
            "done"
        } else {
            "not_done"
        };
        self.servers.env.note("status", self.node, 0, || format!("{key} is {status}"));
        json!({ "content": [], "structuredContent": { "status": status } }).to_string()
    }

    /// What the tool answers, if it answers.
    async fn work(&self) -> Option<Effect> {
        let honours = self.tool.name.as_str() == "s.honours";
        if honours && let Some(effect) = self.join().await {
            return Some(effect);
        }
        self.servers.begin(&self.key);
        let time = match self.fate {
            ToolFate::Slow => self.servers.env.between(3 * SECOND, 25 * SECOND),
            ToolFate::Calm
            | ToolFate::Lost
            | ToolFate::Fails
            | ToolFate::CrashBefore
            | ToolFate::CrashAfter
            | ToolFate::Wrong => self.servers.env.between(MS, 2 * SECOND),
        };
        self.servers.env.sleep(time).await;
        let acts = self.fate != ToolFate::CrashBefore;
        if acts {
            *locked(&self.servers.state).acts.entry(self.key.clone()).or_default() += 1;
            let amount = amount_of(&self.args);
            self.servers.ledger.tool_acted(self.node, self.run_id, &self.key, amount);
        }
        self.servers.end(&self.key);
        match self.fate {
            ToolFate::CrashBefore | ToolFate::CrashAfter => None,
            ToolFate::Wrong => {
                let said = Said::Unusable(Digest::of_bytes(b"?"));
                let wrong = Failed::from(ExecutionFailure::OutputInvalid);
                Some(Effect::Failed(Failed { said, in_doubt: true, ..wrong }))
            }
            ToolFate::Calm | ToolFate::Lost | ToolFate::Fails | ToolFate::Slow => {
                Some(Effect::Done(Some(self.result())))
            }
        }
    }

    /// The answer to a call whose key is known: the first one's.
    async fn join(&self) -> Option<Effect> {
        let deadline = self.servers.env.now() + JOIN_MAX;
        while self.servers.is_working(&self.key) && self.servers.env.now() < deadline {
            self.servers.env.sleep(100 * MS).await;
        }
        let is_done = self.servers.acts(&self.key) > 0;
        is_done.then(|| Effect::Done(Some(self.result())))
    }

    fn result(&self) -> String {
        json!({ "content": [], "structuredContent": { "key": self.key } }).to_string()
    }
}
