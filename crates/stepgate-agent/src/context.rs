//! The context of one request, from its arrival to its response.
//!
//! Fields stay as they arrive: a text that should name a type, an option that should be there. So
//! every rule of the validator can be broken, and none is hidden in a constructor.

use stepgate_core::digest::Digest;
use stepgate_core::ids::{PrincipalId, SessionId};
use stepgate_core::session::Session;

use crate::envelope::{Envelope, ToolCall, ToolCallResult};
use crate::model::{Message, Offer};
use crate::response::Response;
use crate::turn::Turn;

/// The conversation that a turn belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentSession {
    /// Its id.
    pub id: stepgate_core::ids::SessionId,
    /// What it is for; it decides what the model is told about itself.
    pub mode: Option<String>,
}

/// Who the agent is: what holds for every conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentContext {
    /// The model that is asked.
    pub model: String,
    /// What it is told about itself.
    pub system_prompt: String,
}

/// What holds for this conversation.
#[derive(Clone, Debug, PartialEq)]
pub struct ConversationContext {
    /// The mode.
    pub mode: String,
    /// What people call it.
    pub mode_display_name: String,
    /// The turns before this one, oldest first.
    pub earlier: Vec<Turn>,
}

/// Calls with what came of them (spec 003, section 5).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolCallManifest {
    /// What the model asked the caller for, in order.
    pub tool_calls: Vec<ToolCall>,
    /// What the caller brought, as it came.
    pub tool_call_results: Vec<ToolCallResult>,
}

/// What the model will be told, once it is put together.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum PromptKnowledge {
    /// Not yet.
    #[default]
    NotReady,
    /// Now.
    Ready(PromptContent),
}

/// What the model is told.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PromptContent {
    /// Everything that was said, oldest first.
    pub messages: Vec<Message>,
    /// What it may ask for.
    pub offers: Vec<Offer>,
}

/// What the model said last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResponsePayload {
    /// Its text.
    pub text: String,
}

/// What a response can be made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseType {
    /// The model's last word.
    Final,
    /// Calls for the caller.
    ToolContinuation,
    /// Nothing yet.
    NotReady,
}

/// What the store and the gate know about a request. RequestHandler reads it once, so that the request is
/// judged before anything of it is durable.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Known {
    /// Who asks, as the token proves.
    pub asker: Option<PrincipalId>,
    /// The digest of what came, for telling the same request from another with its key.
    pub request_digest: Option<Digest>,
    /// The session that the request names.
    pub session: Option<Session>,
    /// The turn that the request names, with the session whose chain has it.
    pub named: Option<(SessionId, Turn)>,
    /// The turn that the request's key opened, with its session.
    pub own: Option<(SessionId, Turn)>,
    /// The names of the server's tools, as far as the asker is offered them.
    pub server_tools: Vec<String>,
}

/// One request on its way.
#[derive(Clone, Debug, PartialEq)]
pub struct Context {
    /// One of [`ContextType`](crate::envelope::ContextType).
    pub context_type: String,
    /// When it came.
    pub time_stamp: String,
    /// The request's idempotency key.
    pub correlation_id: String,
    /// INVARIANT: nothing in this crate can change it once the context is made.
    envelope: Envelope,
    /// What is known about it.
    pub known: Known,
    /// The conversation.
    pub session: Option<AgentSession>,
    /// The turn.
    pub turn: Option<Turn>,
    /// Who the agent is.
    pub agent_context: Option<AgentContext>,
    /// What holds for this conversation.
    pub conversation_context: Option<ConversationContext>,
    /// The caller's results beside the calls that they answer.
    pub tool_call_manifest: Option<ToolCallManifest>,
    /// What the model will be told.
    pub prompt_knowledge: PromptKnowledge,
    /// The model's last word.
    pub response_payload: Option<ResponsePayload>,
    /// The calls that the caller must make.
    pub client_tool_calls: Vec<ToolCall>,
    /// What the caller gets.
    pub response: Option<Response>,
}

impl Context {
    /// A context that holds what came, and nothing else.
    pub fn new(envelope: Envelope) -> Self {
        Self {
            context_type: String::new(),
            time_stamp: String::new(),
            correlation_id: String::new(),
            envelope,
            known: Known::default(),
            session: None,
            turn: None,
            agent_context: None,
            conversation_context: None,
            tool_call_manifest: None,
            prompt_knowledge: PromptKnowledge::NotReady,
            response_payload: None,
            client_tool_calls: Vec::new(),
            response: None,
        }
    }

    /// What came in.
    pub fn envelope(&self) -> &Envelope {
        &self.envelope
    }

    /// A payload is the last word; else calls are the caller's turn; else there is nothing.
    pub fn response_type(&self) -> ResponseType {
        match (&self.response_payload, self.client_tool_calls.is_empty()) {
            (Some(_), _) => ResponseType::Final,
            (None, false) => ResponseType::ToolContinuation,
            (None, true) => ResponseType::NotReady,
        }
    }
}
