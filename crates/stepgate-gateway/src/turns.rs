//! The agent: each turn runs in its own task and uses the gate's tools.
//!
//! A caller that disconnects stops waiting; the turn goes on. Sending the same request again joins the turn that
//! is under way, or continues one that was stopped.

mod live;
mod tools;
mod waits;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use anyhow::Context;
use stepgate_agent::cancel::{Cancelled, cancel, cancelled};
use stepgate_agent::flow::Request;
use stepgate_agent::limits::AgentLimits;
use stepgate_agent::openai::{Endpoint, OpenAi};
use stepgate_agent::pipeline::{self, Done};
use stepgate_agent::ports::{Agent, Profile};
use stepgate_agent::stop::Stop;
use stepgate_agent::turn::TurnId;
use stepgate_agent::view::{self, Standing};
use stepgate_core::digest::Digest;
use stepgate_core::gate::Fault;
use stepgate_core::ids::{PrincipalId, SessionId};
use stepgate_core::lock;
use stepgate_core::ports::StoreError;
use tracing::{Instrument, warn};

use crate::service::{Service, wait_until_set};
use crate::text::printable;

pub use live::Live;
use tools::ServiceTools;
pub use waits::keep_taking_up;

/// Most turns that are under way at one time, including those that wait for a person.
const TURNS_LIVE_MAX: usize = 1000;

/// The agent's part of the configuration.
#[derive(Clone, Debug)]
pub struct AgentSettings {
    /// Where the model is.
    pub endpoint: Endpoint,
    /// What the model is told about itself.
    pub profile: Profile,
    /// What a turn may cost.
    pub limits: AgentLimits,
    /// The organisation that runs this gateway, for the record.
    pub org: String,
    /// Longest request.
    pub request_bytes_max: usize,
}

/// Identifies a request, so that a repeated one is the same turn: the principal, its key, and the content.
type RequestKey = (PrincipalId, String, Digest);

/// Every conversation of this process.
pub struct Conversations {
    agent: Agent,
    service: Arc<Service>,
    /// The organisation that runs this gateway, for the record.
    pub org: String,
    /// Longest request.
    pub request_bytes_max: usize,
    /// INVARIANT: a turn is here exactly while its task runs.
    live: Mutex<HashMap<RequestKey, Arc<Live>>>,
}

/// The present state of a turn, for a caller that asks.
#[derive(Debug)]
pub struct Look {
    /// The turn.
    pub turn_id: TurnId,
    /// The session whose chain has it.
    pub session_id: SessionId,
    /// Its progress, as far as it is stored.
    pub standing: Standing,
    /// Whether it is under way in this process. If an open turn is not, sending the same request again continues it.
    pub is_live: bool,
}

impl Conversations {
    /// Opens the agent that these settings describe.
    pub fn open(settings: AgentSettings, service: &Arc<Service>) -> anyhow::Result<Arc<Self>> {
        let complain = Arc::new(|text: &str| warn!("agent: {}", printable(text)));
        let model = OpenAi::new(settings.endpoint, complain).map_err(anyhow::Error::msg);
        let model = model.context("agent.base_url cannot be used")?;
        let agent = Agent {
            gate: service.gate.clone(),
            tools: Arc::new(ServiceTools { service: Arc::clone(service) }),
            model: Arc::new(model),
            profile: settings.profile,
            limits: settings.limits,
        };
        Ok(Arc::new(Self {
            agent,
            service: Arc::clone(service),
            org: settings.org,
            request_bytes_max: settings.request_bytes_max,
            live: Mutex::default(),
        }))
    }

    /// Begins a turn, or joins the same request if it is under way. None if too many turns are under way.
    pub fn begin(self: &Arc<Self>, request: Request) -> Option<Arc<Live>> {
        let Request { principal_id, correlation_id, envelope } = &request;
        let key = (principal_id.clone(), correlation_id.clone(), Digest::of(envelope));
        let mut turns = self.turns();
        if let Some(live) = turns.get(&key) {
            return Some(Arc::clone(live));
        }
        if turns.len() >= TURNS_LIVE_MAX {
            return None;
        }
        let live = Arc::new(Live::new(request.turn_id()));
        turns.insert(key.clone(), Arc::clone(&live));
        drop(turns);
        let (conversations, turn) = (Arc::clone(self), Arc::clone(&live));
        let watched = async move {
            let work = Arc::clone(&conversations).run(request, Arc::clone(&turn));
            let task = tokio::spawn(work.in_current_span());
            let ended = task.await.unwrap_or_else(|error| Err(stopped(&error.to_string())));
            conversations.turns().remove(&key);
            turn.end(ended);
        };
        tokio::spawn(watched.in_current_span());
        Some(live)
    }

    /// Runs the turn. At shutdown it stops early: what is durable is enough to continue.
    async fn run(self: Arc<Self>, request: Request, live: Arc<Live>) -> Result<Done, Stop> {
        let mut leaving = self.service.leaving();
        tokio::select! {
            done = pipeline::run(&self.agent, request, &*live) => done,
            () = live.cancelled() => Err(Stop::Invoke(cancelled())),
            () = wait_until_set(&mut leaving) => Err(stopped("the process stops")),
        }
    }

    /// Ends a turn of this principal that is not over, and stops its task if it runs here.
    pub async fn cancel(
        &self,
        principal_id: &PrincipalId,
        turn_id: TurnId,
    ) -> Result<Cancelled, Stop> {
        let ended = cancel(&self.agent, principal_id, turn_id).await?;
        if ended == Cancelled::Done {
            let turns = self.turns();
            let cancelled = turns.values().filter(|live| live.turn_id == Some(turn_id));
            cancelled.for_each(|live| live.cancel());
        }
        Ok(ended)
    }

    /// The present state of a turn; none where there is none.
    pub async fn look(&self, turn_id: TurnId) -> Result<Option<Look>, Stop> {
        // Read before the store: a turn that ends in between is then found ended in the store.
        let is_live = self.is_live(turn_id);
        let view = view::view(&self.agent, turn_id).await?;
        Ok(view.map(|(session_id, standing)| Look { turn_id, session_id, standing, is_live }))
    }

    fn is_live(&self, turn_id: TurnId) -> bool {
        self.turns().values().any(|live| live.turn_id == Some(turn_id))
    }

    fn turns(&self) -> MutexGuard<'_, HashMap<RequestKey, Arc<Live>>> {
        lock::locked(&self.live)
    }
}

/// The turn gets no recorded end: sending the same request again continues it.
fn stopped(why: &str) -> Stop {
    Stop::Fault(Fault::Store(StoreError::Unavailable(format!("the turn was stopped: {why}"))))
}
