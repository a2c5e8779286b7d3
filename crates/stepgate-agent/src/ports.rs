//! The ports of the pipeline: tools behind the gate, a model, and a listener.

use std::sync::Arc;

use async_trait::async_trait;
use stepgate_core::gate::{Fault, Gate};
use stepgate_core::ids::{ApprovalId, PrincipalId, RunId, SessionId};
use stepgate_core::run::Payload;
use stepgate_core::step::Answer;

use crate::limits::AgentLimits;
use crate::model::{Completion, ModelError, Offer, Prompt};
use crate::turn::{AskedCall, ToolEnded, TurnId};

/// An agent: everything that a turn needs.
#[derive(Clone)]
pub struct Agent {
    /// Its store has the turns, its `World` the clock. Steps go through `tools`.
    pub gate: Gate,
    /// The tools behind the gate.
    pub tools: Arc<dyn Tools>,
    /// The model.
    pub model: Arc<dyn Model>,
    /// The agent's settings.
    pub profile: Profile,
    /// The limits of a turn.
    pub limits: AgentLimits,
}

/// The agent's settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// The system prompt.
    pub system_prompt: String,
    /// The mode of every session.
    pub mode: String,
    /// Its display name.
    pub mode_display_name: String,
}

/// The tools behind the gate.
#[async_trait]
pub trait Tools: Send + Sync {
    /// The tools that policy could ever permit to this principal, each under a unique name and with its action.
    fn offered(&self, principal_id: &PrincipalId) -> Vec<Offer>;

    /// Runs a proposal through the gate: its outcome, or its notice.
    async fn run(
        &self,
        principal_id: &PrincipalId,
        session_id: SessionId,
        proposal: Payload,
    ) -> Result<Answer, Fault>;

    /// Waits until a run is over.
    async fn wait_until_finished(&self, run_id: RunId) -> Result<Answer, Fault>;
}

/// Callback for parts of a model's text as they come.
pub type Told<'a> = dyn for<'t> Fn(&'t str) + Send + Sync + 'a;

/// A model.
#[async_trait]
pub trait Model: Send + Sync {
    /// Asks it. Parts of its text go to `told` as they come.
    async fn complete(&self, prompt: &Prompt, told: &Told<'_>) -> Result<Completion, ModelError>;
}

/// Receives the progress of a turn.
pub trait Listener: Send + Sync {
    /// Receives progress. It must not block.
    fn hear(&self, progress: Progress);
}

/// An event in a turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The turn is durable.
    Opened {
        /// The session.
        session_id: SessionId,
        /// The turn.
        turn_id: TurnId,
    },
    /// A part of the model's text.
    Text(String),
    /// The model's answer is durable: the text so far is complete.
    Answered,
    /// A call is sent through the gate.
    Calling(AskedCall),
    /// A call waits for a person's decision, or its result is not known yet.
    Waiting(Waiting),
    /// A call is over.
    Called(ToolEnded),
}

/// The run that a turn waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// The call.
    pub tool_call_id: String,
    /// Its run.
    pub run_id: RunId,
    /// The approval, if a person is asked.
    pub approval_id: Option<ApprovalId>,
}

impl Waiting {
    /// What a turn waits for, from the notice of its call's step.
    pub fn of(tool_call_id: &str, answer: &Answer) -> Self {
        let approval_id = answer.approval_id();
        Self { tool_call_id: tool_call_id.to_owned(), run_id: answer.run_id, approval_id }
    }
}
