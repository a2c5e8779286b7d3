//! The context of one request, from its arrival to its response.
//!
//! Fields hold what arrived, unchecked: an option that should have a value, a text that should not be empty.
//! So every rule of the validator can be broken, and no constructor hides one.

use stepgate_core::digest::Digest;
use stepgate_core::ids::{PrincipalId, SessionId};
use stepgate_core::session::Session;

use crate::envelope::{ClientTool, ContextType, Envelope, ToolCall, ToolCallResult};
use crate::model::Prompt;
use crate::ports::Profile;
use crate::response::{Response, ResponseKind};
use crate::turn::Turn;

/// The conversation that a turn belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentSession {
    /// Its id.
    pub id: SessionId,
    /// Its purpose; it decides the system prompt.
    pub mode: Option<String>,
}

/// The settings of this conversation.
#[derive(Clone, Debug, PartialEq)]
pub struct ConversationContext {
    /// The mode.
    pub mode: String,
    /// Its display name.
    pub mode_display_name: String,
    /// The turns before this one, oldest first.
    pub earlier: Vec<Turn>,
}

/// Calls with their results (spec 003, section 5).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolCallManifest {
    /// The calls that the model asked the caller to make, in order.
    pub tool_calls: Vec<ToolCall>,
    /// The results from the caller, unchecked.
    pub tool_call_results: Vec<ToolCallResult>,
}

/// What the store and the gate know about a request. RequestHandler reads it once, so that the request is
/// checked before any of it is durable.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Known {
    /// The principal of the token.
    pub asker: Option<PrincipalId>,
    /// The digest of the request, to tell a repeated request from another one with the same key.
    pub request_digest: Option<Digest>,
    /// The session that the request names.
    pub session: Option<Session>,
    /// The turn that the request names, with the session whose chain has it.
    pub named: Option<(SessionId, Turn)>,
    /// The turn that the request's key opened, with its session.
    pub own: Option<(SessionId, Turn)>,
    /// The names of the server's tools that are offered to the principal.
    pub server_tools: Vec<String>,
}

/// One request in progress.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Context {
    /// It follows from the fields of the envelope that are present; other combinations have none.
    pub context_type: Option<ContextType>,
    /// When it arrived.
    pub time_stamp: String,
    /// The request's idempotency key.
    pub correlation_id: String,
    /// INVARIANT: nothing in this crate can change it once the context is made.
    envelope: Envelope,
    /// What the store and the gate know about it.
    pub known: Known,
    /// The conversation.
    pub session: Option<AgentSession>,
    /// The turn.
    pub turn: Option<Turn>,
    /// The agent's settings.
    pub agent_context: Option<Profile>,
    /// The settings of this conversation.
    pub conversation_context: Option<ConversationContext>,
    /// The caller's results, matched with the calls that they answer.
    pub tool_call_manifest: Option<ToolCallManifest>,
    /// The model's prompt, once it is complete.
    pub prompt: Option<Prompt>,
    /// The text of the model's final answer.
    pub response_payload: Option<String>,
    /// The calls that the caller must make.
    pub client_tool_calls: Vec<ToolCall>,
    /// The response to the caller.
    pub response: Option<Response>,
}

impl Context {
    /// A context with the envelope and nothing else.
    pub fn new(envelope: Envelope) -> Self {
        Self { envelope, ..Self::default() }
    }

    /// The request as it arrived.
    pub fn envelope(&self) -> &Envelope {
        &self.envelope
    }

    /// The caller's tools that are offered to the model: those of the request, or else those that its turn was
    /// opened with.
    pub(crate) fn declared_tools<'a>(&'a self, turn: Option<&'a Turn>) -> &'a [ClientTool] {
        match turn.and_then(Turn::opened) {
            Some(opened) if self.envelope.tools.is_empty() => &opened.envelope.tools,
            Some(_) | None => &self.envelope.tools,
        }
    }

    /// With a payload the response is final; otherwise with calls the caller continues; otherwise there is
    /// none yet.
    pub fn response_kind(&self) -> Option<ResponseKind> {
        match (&self.response_payload, self.client_tool_calls.is_empty()) {
            (Some(_), _) => Some(ResponseKind::Final),
            (None, false) => Some(ResponseKind::ClientToolContinuation),
            (None, true) => None,
        }
    }
}
