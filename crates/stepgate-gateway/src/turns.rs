//! The agent: turns as tasks of their own, and the gate's tools for them.
//!
//! A caller who leaves stops waiting and never stops the turn. The same request again joins the turn
//! that is under way, or goes on with one that was stopped.

mod live;
mod tools;
mod waits;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::Context;
use stepgate_agent::cancel::{Cancelled, cancel, cancelled};
use stepgate_agent::envelope::Envelope;
use stepgate_agent::flow::Request;
use stepgate_agent::limits::AgentLimits;
use stepgate_agent::openai::{Endpoint, OpenAi};
use stepgate_agent::pipeline::{self, Done};
use stepgate_agent::ports::{Agent, Profile, Waiting};
use stepgate_agent::stop::Stop;
use stepgate_agent::turn::{AskedCall, TurnId};
use stepgate_agent::view::{self, Standing, TurnView};
use stepgate_core::digest::Digest;
use stepgate_core::gate::Fault;
use stepgate_core::ids::{IdempotencyKey, PrincipalId, ProposalId};
use stepgate_core::ports::StoreError;
use stepgate_core::step;
use tracing::warn;

use crate::service::{Service, is_set};

pub use live::Live;
use tools::ServiceTools;
pub use waits::keep_taking_up;

/// Most turns that are under way at one time, those that wait for a person included.
const TURNS_LIVE_MAX: usize = 1000;

/// What the configuration says of the agent.
#[derive(Clone, Debug)]
pub struct AgentSettings {
    /// Where the model is.
    pub endpoint: Endpoint,
    /// What the model is told about itself.
    pub profile: Profile,
    /// What a turn may cost.
    pub limits: AgentLimits,
    /// The organisation whose gateway this is, for the record.
    pub org: String,
    /// Longest request.
    pub request_bytes_max: usize,
}

/// The same request is the same turn: who, with which key, and what.
type RequestKey = (PrincipalId, String, Digest);

/// Every conversation of this process.
pub struct Conversations {
    agent: Agent,
    service: Arc<Service>,
    /// The organisation whose gateway this is, for the record.
    pub org: String,
    /// Longest request.
    pub request_bytes_max: usize,
    /// INVARIANT: a turn is here exactly while its task runs.
    live: Mutex<HashMap<RequestKey, Arc<Live>>>,
}

/// Where a turn stands, for somebody who looks.
#[derive(Debug)]
pub enum Look {
    /// It is under way in this process.
    UnderWay,
    /// A person is asked, or nobody knows what became of a call.
    Waiting(Waiting),
    /// Nothing works on it: the same request again goes on.
    Stopped,
    /// It has come to an end, or to the caller.
    Ended(Standing),
}

impl Conversations {
    /// The agent that these settings describe.
    pub fn open(settings: AgentSettings, service: &Arc<Service>) -> anyhow::Result<Arc<Self>> {
        let complain = Arc::new(|text: &str| warn!("agent: {text}"));
        let model = OpenAi::new(settings.endpoint, complain).map_err(anyhow::Error::msg);
        let model = model.context("agent.base_url cannot be used")?;
        let agent = Agent {
            gate: service.gate.clone(),
            tools: Arc::new(ServiceTools::new(Arc::clone(service))),
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

    /// Begins a turn, or joins the same request where it is under way. None where there are too many.
    pub fn begin(
        self: &Arc<Self>,
        principal_id: PrincipalId,
        correlation_id: String,
        envelope: Envelope,
    ) -> Option<Arc<Live>> {
        let key = (principal_id.clone(), correlation_id.clone(), Digest::of(&envelope));
        let mut turns = self.turns();
        if let Some(live) = turns.get(&key) {
            return Some(Arc::clone(live));
        }
        if turns.len() >= TURNS_LIVE_MAX {
            return None;
        }
        let request = Request { principal_id, correlation_id, envelope };
        let live = Arc::new(Live::new(request.turn_id()));
        turns.insert(key.clone(), Arc::clone(&live));
        drop(turns);
        let (conversations, turn) = (Arc::clone(self), Arc::clone(&live));
        tokio::spawn(async move {
            let task = tokio::spawn(Arc::clone(&conversations).run(request, Arc::clone(&turn)));
            let ended = task.await.unwrap_or_else(|error| Err(stopped(&error.to_string())));
            conversations.turns().remove(&key);
            turn.end(ended);
        });
        Some(live)
    }

    /// The turn itself. A process that leaves leaves it: what is durable of it is enough to go on.
    async fn run(self: Arc<Self>, request: Request, live: Arc<Live>) -> Result<Done, Stop> {
        let mut leaving = self.service.leaving();
        tokio::select! {
            done = pipeline::run(&self.agent, request, &*live) => done,
            () = live.cancelled() => Err(Stop::Invoke(cancelled())),
            () = is_set(&mut leaving) => Err(stopped("the process stops")),
        }
    }

    /// Ends a turn of this principal's that is not over; what works on it here stops.
    pub async fn cancel(
        &self,
        principal_id: &PrincipalId,
        turn_id: TurnId,
    ) -> Result<Cancelled, Stop> {
        let ended = cancel(&self.agent, principal_id, turn_id).await?;
        match ended {
            Cancelled::Done => {
                let turns = self.turns();
                turns
                    .values()
                    .filter(|live| live.turn_id() == Some(turn_id))
                    .for_each(|live| live.cancel());
            }
            Cancelled::NoSuchTurn | Cancelled::WasOver => {}
        }
        Ok(ended)
    }

    /// A turn as it stands, with whose it is.
    pub async fn look(&self, turn_id: TurnId) -> Result<Option<(TurnView, Look)>, Stop> {
        // Before the store is read: what ends in between is found ended there.
        let live = self.turns().values().find(|live| live.turn_id() == Some(turn_id)).cloned();
        let Some(view) = view::view(&self.agent, turn_id).await? else { return Ok(None) };
        let look = match &view.standing {
            Standing::Answered(_) | Standing::Failed(_) => Look::Ended(view.standing.clone()),
            Standing::Asking if live.is_some() => Look::UnderWay,
            Standing::Asking => Look::Stopped,
            Standing::Calling(call) => match self.waits_for(&view, call).await? {
                Some(waiting) => Look::Waiting(waiting),
                None if live.is_some() => Look::UnderWay,
                None => Look::Stopped,
            },
        };
        Ok(Some((view, look)))
    }

    /// What the turn's call waits for, where its run has begun and is not over.
    async fn waits_for(&self, view: &TurnView, call: &AskedCall) -> Result<Option<Waiting>, Stop> {
        let gate = &self.service.gate;
        let Some(session) = gate.store.session(view.session_id).await? else { return Ok(None) };
        let id = view.turn_id.proposal_id(&call.tool_call_id).to_string();
        let proposal_id = ProposalId::parse(&id).map_err(Fault::from)?;
        let key = IdempotencyKey::of(&session.principal_id, &proposal_id);
        let Some(binding) = gate.store.binding(&key).await? else { return Ok(None) };
        let answer = step::answer_of(gate, binding.trace_id).await?;
        Ok(answer.is_notice().then(|| Waiting::of(&call.tool_call_id, &answer)))
    }

    /// Whether the turn is under way in this process.
    fn is_live(&self, turn_id: TurnId) -> bool {
        self.turns().values().any(|live| live.turn_id() == Some(turn_id))
    }

    fn turns(&self) -> MutexGuard<'_, HashMap<RequestKey, Arc<Live>>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Nobody is told an end: the same request again goes on.
fn stopped(why: &str) -> Stop {
    Stop::Fault(Fault::Store(StoreError::Unavailable(format!("the turn was stopped: {why}"))))
}
