//! The gate that is measured: real policies over the store in memory, and tools that do nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, ensure};
use async_trait::async_trait;
use rustix::time::{ClockId, clock_gettime};
use serde_json::json;
use stepgate_core::action::{CoreCall, InvalidArgs};
use stepgate_core::approvers::Groups;
use stepgate_core::call::ServerCall;
use stepgate_core::consent_cache::Consents;
use stepgate_core::digest::Digest;
use stepgate_core::fact_sources::FactSources;
use stepgate_core::gate::{Doubts, Extensions, Gate, Parked};
use stepgate_core::json::{Map, Value};
use stepgate_core::label::{Flow, Label};
use stepgate_core::limits::Limits;
use stepgate_core::ports::{
    Dispatch, Effect, Executor, Failed, Hold, Prepared, Sending, Store, ToolServers, World,
};
use stepgate_core::time::Timestamp;
use stepgate_core::tool::{Contract, Delivery, Mode, Standing, Tool, ToolName};
use stepgate_policy::{Nameable, PolicySet, ToolShape};
use uuid::Uuid;

use crate::rules::{TOOLS, tool_name};

/// Who asks.
pub(crate) const AGENT: &str = "agent";

/// Processor time of this thread, from the proposal to the end of AUTHORIZE.
#[derive(Default)]
pub(crate) struct Meter(Mutex<Measured>);

#[derive(Default)]
struct Measured {
    /// None where no time is taken.
    started: Option<Duration>,
    took: Vec<Duration>,
}

impl Meter {
    pub(crate) fn start(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).started = Some(processor_time());
    }

    fn stop(&self) {
        let mut measured = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(started) = measured.started.take() {
            measured.took.push(processor_time().saturating_sub(started));
        }
    }

    /// Median and 99th percentile of the last decisions, in microseconds.
    pub(crate) fn percentiles(&self, count: usize) -> anyhow::Result<[f64; 2]> {
        let mut measured = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut took = std::mem::take(&mut measured.took);
        ensure!(took.len() >= count, "{} decisions were measured, not {count}", took.len());
        took.drain(..took.len() - count);
        took.sort_unstable();
        let at = |percent: usize| {
            let index = (count * percent / 100).min(count - 1);
            took.get(index).map(|took| took.as_secs_f64() * 1e6)
        };
        Ok([at(50).context("no decision")?, at(99).context("no decision")?])
    }
}

fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or_default())
}

/// The gate over a store. Sessions have read something untrusted, and the tool that is measured sends something out.
pub(crate) fn gate(
    policies: &str,
    budgets: &str,
    store: Arc<dyn Store>,
    meter: &Arc<Meter>,
) -> anyhow::Result<Gate> {
    let labels = ["untrusted", "secret", "personal"].map(Label::parse);
    let labels = labels.into_iter().collect::<Result<_, _>>()?;
    let facts = FactSources { labels, ..FactSources::default() };
    let groups = Groups::new(BTreeMap::from([("guests".to_owned(), BTreeSet::new())]));
    let mut names = facts.names(&groups);
    names.windows.insert("office".to_owned());
    let shapes = (0..TOOLS).map(shape).collect::<anyhow::Result<Vec<_>>>()?;
    let nameable = Nameable { tools: &shapes, facts: &names };
    let directory = tempfile::tempdir()?;
    fs::write(directory.path().join("rules.cedar"), policies)?;
    fs::write(directory.path().join("budgets.toml"), budgets)?;
    let policy = PolicySet::load(directory.path(), nameable)?;
    let tools = shapes.iter().map(|shape| (shape.name.clone(), tool(shape))).collect();
    Ok(Gate {
        store,
        executor: Arc::new(NoSandbox),
        tools: Arc::new(IdleTools { tools, meter: Arc::clone(meter) }),
        policy: Arc::new(policy),
        world: Arc::new(RealWorld),
        limits: Limits::default(),
        extensions: Extensions::default(),
        parked: Parked::default(),
        doubts: Doubts::default(),
        groups,
        consents: Consents::default(),
        facts,
    })
}

fn shape(number: usize) -> anyhow::Result<ToolShape> {
    let label = |text: &str| Label::parse(text);
    Ok(ToolShape {
        name: ToolName::parse(&tool_name(number))?,
        mode: Mode::ExecuteGated,
        input_schema: json!({
            "type": "object",
            "required": ["to", "subject"],
            "properties": {
                "to": { "type": "string" },
                "cc": { "type": "array", "items": { "type": "string" } },
                "subject": { "type": "string" },
                "body": { "type": "string" },
                "amount": { "type": "number" },
                "count": { "type": "integer" },
                "urgent": { "type": "boolean" },
            },
        }),
        redacted: Vec::new(),
        flow: Flow {
            reads: [label("untrusted")?].into(),
            sends: [label("egress")?].into(),
            targets: Some(vec!["to".to_owned(), "cc".to_owned()]),
            ..Flow::default()
        },
        definition_digest: Digest::of_bytes(tool_name(number).as_bytes()),
        is_accepted: true,
    })
}

fn tool(shape: &ToolShape) -> Arc<Tool> {
    Arc::new(Tool {
        name: shape.name.clone(),
        mode: shape.mode,
        delivery: Delivery::HonoursKey,
        definition_digest: shape.definition_digest,
        standing: Standing::Accepted,
        redacted: Vec::new(),
        erasable: Vec::new(),
        flow: shape.flow.clone(),
        contract: Arc::new(AnyArgs),
    })
}

/// The contract of the tools is not measured: it is the JSON Schema validator's time.
struct AnyArgs;

impl Contract for AnyArgs {
    fn check(&self, _: &Map<String, Value>) -> Result<(), InvalidArgs> {
        Ok(())
    }
}

/// Tools that do nothing.
struct IdleTools {
    tools: BTreeMap<ToolName, Arc<Tool>>,
    meter: Arc<Meter>,
}

#[async_trait]
impl ToolServers for IdleTools {
    fn tool(&self, name: &ToolName) -> Option<Arc<Tool>> {
        self.tools.get(name).cloned()
    }

    fn tools(&self) -> Vec<Arc<Tool>> {
        self.tools.values().cloned().collect()
    }

    async fn prepare(&self, _: &ServerCall) -> Result<Hold, Failed> {
        self.meter.stop();
        Ok(Box::new(()))
    }

    async fn dispatch(&self, _: &ServerCall, _: &Sending) -> Effect {
        Effect::Done(None)
    }
}

/// There is no sandbox: every action on files is refused.
struct NoSandbox;

#[async_trait]
impl Executor for NoSandbox {
    fn id(&self) -> &str {
        "none"
    }

    async fn prepare(&self, _: &CoreCall) -> Result<Prepared, &'static str> {
        Err("there is no sandbox")
    }

    async fn hold(&self, _: &CoreCall) -> Option<Hold> {
        None
    }

    async fn dispatch(&self, _: &CoreCall, _: Option<&Value>, _: Dispatch) -> Effect {
        Effect::Refused("there is no sandbox")
    }
}

struct RealWorld;

#[async_trait]
impl World for RealWorld {
    fn now(&self) -> Timestamp {
        // Valgrind cannot run rustix's clock.
        let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp::from_millisecond(i64::try_from(time.as_millis()).unwrap_or_default())
    }

    fn fresh_uuid(&self) -> Uuid {
        Uuid::now_v7()
    }

    async fn pause(&self, duration: Duration) {
        tokio::time::sleep(duration).await;
    }
}
