//! The world, as the pipeline sees it: tools behind the gate, a model, and somebody who listens.

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::Value;
use stepgate_core::gate::{Fault, Gate};
use stepgate_core::ids::{ApprovalId, PrincipalId, RunId, SessionId};
use stepgate_core::run::Payload;
use stepgate_core::step::Answer;

use crate::limits::AgentLimits;
use crate::model::{Ask, Completion, ModelError};
use crate::turn::TurnId;

/// An agent: everything that a turn needs.
#[derive(Clone)]
pub struct Agent {
    /// Its store has the turns, its world the clock. Steps go through `tools`.
    pub gate: Gate,
    /// The tools behind the gate.
    pub tools: Arc<dyn Tools>,
    /// The model.
    pub model: Arc<dyn Model>,
    /// Who the agent is.
    pub profile: Profile,
    /// What a turn may cost.
    pub limits: AgentLimits,
}

/// Who the agent is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// What the model is told about itself.
    pub system_prompt: String,
    /// The mode of every session.
    pub mode: String,
    /// What people call it.
    pub mode_display_name: String,
}

/// A tool behind the gate, as the model is told of it.
#[derive(Clone, Debug, PartialEq)]
pub struct OfferedTool {
    /// The name for the model: 1 to 64 letters, digits, `_` or `-`.
    pub name: String,
    /// What a proposal names.
    pub action: String,
    /// What it is for.
    pub description: Option<String>,
    /// The JSON Schema of its arguments.
    pub parameters: Value,
}

/// The tools behind the gate.
#[async_trait]
pub trait Tools: Send + Sync {
    /// What policy could ever permit to this principal, each under a name of its own.
    fn offered(&self, principal_id: &PrincipalId) -> Vec<OfferedTool>;

    /// Takes a proposal through the gate: its outcome, or its notice.
    async fn run(
        &self,
        principal_id: &PrincipalId,
        session_id: SessionId,
        proposal: Payload,
    ) -> Result<Answer, Fault>;

    /// Waits until a run is over.
    async fn outlast(&self, run_id: RunId) -> Result<Answer, Fault>;
}

/// Is told pieces of a model's text as they come.
pub type Told<'a> = dyn for<'t> Fn(&'t str) + Send + Sync + 'a;

/// A model.
#[async_trait]
pub trait Model: Send + Sync {
    /// The name that it is asked by.
    fn name(&self) -> &str;

    /// Asks it. Pieces of its text are told as they come.
    async fn complete(&self, ask: Ask<'_>, told: &Told<'_>) -> Result<Completion, ModelError>;
}

/// Somebody who wants to know how a turn goes on while it does.
pub trait Listener: Send + Sync {
    /// Is told. It must not wait.
    fn hear(&self, progress: Progress);
}

/// What happens in a turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// It is durable.
    Opened {
        /// The session.
        session_id: SessionId,
        /// The turn.
        turn_id: TurnId,
    },
    /// A piece of the model's text.
    Text(String),
    /// The model's answer is durable: what was said so far is one whole.
    Answered,
    /// A call goes through the gate.
    Calling {
        /// The call.
        tool_call_id: String,
        /// What the proposal names.
        action: String,
        /// The arguments.
        arguments_json: String,
    },
    /// Somebody must decide, or nobody knows yet.
    Waiting(Waiting),
    /// A call is over.
    Called {
        /// The call.
        tool_call_id: String,
        /// Its run.
        run_id: RunId,
        /// How it ended.
        outcome: String,
    },
}

/// What a turn waits for that is not its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// The call.
    pub tool_call_id: String,
    /// Its run.
    pub run_id: RunId,
    /// The question to a person, where one is asked.
    pub approval_id: Option<ApprovalId>,
}

impl Waiting {
    /// What a turn waits for, from the notice that its call's step answered.
    pub fn of(tool_call_id: &str, answer: &Answer) -> Self {
        let approval_id = answer.approval_id();
        Self { tool_call_id: tool_call_id.to_owned(), run_id: answer.run_id, approval_id }
    }
}

/// Nobody listens.
#[derive(Clone, Copy, Debug, Default)]
pub struct Nobody;

impl Listener for Nobody {
    fn hear(&self, _: Progress) {}
}
