//! Tool servers in memory: tools whose modes, answers and troubles a test chooses, and a count of what
//! they did.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use serde_json::{Map, Value, json};
use stepgate_core::action::InvalidArgs;
use stepgate_core::call::{Call, ServerCall};
use stepgate_core::digest::Digest;
use stepgate_core::failure::ExecutionFailure;
use stepgate_core::label::Flow;
use stepgate_core::policy::BuiltInRule;
use stepgate_core::ports::{
    Dispatch, Effect, Failed, Hold, Policy, PolicyDecision, PolicyRequest, PolicyVerdict, Sending,
    ToolServers,
};
use stepgate_core::tool::{Contract, Delivery, Mode, Standing, Tool, ToolName};
use tokio::sync::Notify;

/// What a tool does when it is called.
#[derive(Clone, Debug)]
pub(crate) enum Behaviour {
    /// Acts once per key, and answers with its arguments.
    Acts,
    /// The gateway stops after the tool acted, before its answer.
    ActsAndStops,
    /// The gateway stops before the tool acted.
    StopsBefore,
    /// Fails like this.
    Fails(Failed),
    /// Answers with this.
    Says(Value),
    /// Answers with this, once it is told to.
    SaysWhen(Value, Arc<Notify>),
    /// Cannot be reached at all.
    IsAway,
}

/// What was sent to a tool.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sent {
    pub(crate) args: Value,
    pub(crate) sending: Sending,
}

struct Entry {
    tool: Arc<Tool>,
    behaviour: Behaviour,
}

/// The servers.
#[derive(Default)]
pub(crate) struct Bench {
    tools: Mutex<BTreeMap<ToolName, Entry>>,
    sent: Mutex<Vec<Sent>>,
    effects: Mutex<Vec<String>>,
    permits: Arc<()>,
}

/// Takes `volume`, an integer, and a `pin`.
struct Volume;

impl Contract for Volume {
    fn check(&self, args: &Map<String, Value>) -> Result<(), InvalidArgs> {
        match args
            .keys()
            .find(|name| !["volume", "pin", "idempotency_key"].contains(&name.as_str()))
        {
            Some(unknown) => Err(InvalidArgs::new(unknown, "unknown argument")),
            None if args.get("volume").is_some_and(|volume| !volume.is_number()) => {
                Err(InvalidArgs::new("volume", "not a number"))
            }
            None => Ok(()),
        }
    }
}

impl Bench {
    /// Offers a tool, or offers it anew.
    pub(crate) fn offer(&self, name: &str, mode: Mode, delivery: Delivery, behaviour: Behaviour) {
        let name = ToolName::parse(name).unwrap();
        let tool = Tool {
            mode,
            delivery,
            definition_digest: Digest::of(name.as_str()),
            standing: Standing::Accepted,
            redacted: vec!["pin".into()],
            erasable: Vec::new(),
            flow: Flow::default(),
            contract: Arc::new(Volume),
            name: name.clone(),
        };
        let entry = Entry { tool: Arc::new(tool), behaviour };
        self.tools.lock().unwrap().insert(name, entry);
    }

    pub(crate) fn change(&self, name: &str, change: impl FnOnce(&mut Tool)) {
        let mut tools = self.tools.lock().unwrap();
        let entry = tools.get_mut(&ToolName::parse(name).unwrap()).unwrap();
        let mut tool = Tool::clone(&entry.tool);
        change(&mut tool);
        entry.tool = Arc::new(tool);
    }

    pub(crate) fn behave(&self, name: &str, behaviour: Behaviour) {
        let mut tools = self.tools.lock().unwrap();
        tools.get_mut(&ToolName::parse(name).unwrap()).unwrap().behaviour = behaviour;
    }

    pub(crate) fn withdraw(&self, name: &str) {
        self.tools.lock().unwrap().remove(&ToolName::parse(name).unwrap());
    }

    /// Everything that was sent.
    pub(crate) fn sent(&self) -> Vec<Sent> {
        self.sent.lock().unwrap().clone()
    }

    /// The effects that the tools themselves counted, as their keys.
    pub(crate) fn effects(&self) -> Vec<String> {
        self.effects.lock().unwrap().clone()
    }

    /// How many permits are held.
    pub(crate) fn held(&self) -> usize {
        Arc::strong_count(&self.permits) - 1
    }

    fn behaviour(&self, name: &ToolName) -> Behaviour {
        self.tools
            .lock()
            .unwrap()
            .get(name)
            .map_or(Behaviour::IsAway, |entry| entry.behaviour.clone())
    }

    fn act(&self, call: &ServerCall, sending: &Sending) {
        let key = sending.key.to_string();
        let mut effects = self.effects.lock().unwrap();
        let honours = call.tool.delivery == Delivery::HonoursKey;
        if !honours || !effects.contains(&key) {
            effects.push(key);
        }
    }
}

#[async_trait]
impl ToolServers for Bench {
    fn tool(&self, name: &ToolName) -> Option<Arc<Tool>> {
        self.tools.lock().unwrap().get(name).map(|entry| Arc::clone(&entry.tool))
    }

    fn tools(&self) -> Vec<Arc<Tool>> {
        self.tools.lock().unwrap().values().map(|entry| Arc::clone(&entry.tool)).collect()
    }

    fn executor_id(&self, server: &str) -> Option<String> {
        Some(format!("bench/{server}"))
    }

    async fn prepare(&self, call: &ServerCall) -> Result<Hold, Failed> {
        match self.behaviour(&call.tool.name) {
            Behaviour::IsAway => Err(ExecutionFailure::Unavailable.into()),
            _ => Ok(Box::new(Arc::clone(&self.permits))),
        }
    }

    async fn dispatch(&self, call: &ServerCall, sending: &Sending) -> Effect {
        let args = Value::Object(call.args.clone());
        self.sent.lock().unwrap().push(Sent { args: args.clone(), sending: sending.clone() });
        match self.behaviour(&call.tool.name) {
            Behaviour::Acts => {
                self.act(call, sending);
                Effect::Done(Some(json!({ "structuredContent": args }).to_string()))
            }
            Behaviour::ActsAndStops if sending.dispatch == Dispatch::First => {
                self.act(call, sending);
                Effect::Unknown("the gateway stopped".into())
            }
            Behaviour::ActsAndStops => {
                self.act(call, sending);
                Effect::Done(None)
            }
            Behaviour::StopsBefore => Effect::Unknown("the gateway stopped".into()),
            Behaviour::Fails(failed) => Effect::Failed(failed),
            Behaviour::Says(value) => {
                Effect::Done(Some(json!({ "structuredContent": value }).to_string()))
            }
            Behaviour::SaysWhen(value, told) => {
                told.notified().await;
                Effect::Done(Some(json!({ "structuredContent": value }).to_string()))
            }
            Behaviour::IsAway => Effect::Failed(ExecutionFailure::Unavailable.into()),
        }
    }
}

/// Permits what looks, asks about what acts, and caps the volume.
pub(crate) struct HomeRules {
    pub(crate) volume_max: Option<i64>,
}

impl Policy for HomeRules {
    fn decide(&self, request: PolicyRequest<'_>) -> PolicyDecision {
        let (verdict, caps) = match request.call {
            Call::Core(_) => (PolicyVerdict::Permit, BTreeMap::new()),
            Call::Server(call) => match call.tool.mode {
                Mode::ReadOnly => (PolicyVerdict::Permit, BTreeMap::new()),
                Mode::Draft => (PolicyVerdict::Permit, self.caps()),
                Mode::ExecuteGated => {
                    (PolicyVerdict::RequireApproval("it acts in the house".into()), self.caps())
                }
            },
        };
        let policy_hash = Digest::of("home");
        PolicyDecision {
            verdict,
            policies: vec!["home".into()],
            policy_hash,
            caps,
            ..BuiltInRule.decide(request)
        }
    }
}

impl HomeRules {
    fn caps(&self) -> BTreeMap<String, i64> {
        self.volume_max.map(|max| ("volume".to_owned(), max)).into_iter().collect()
    }
}
