//! The rules by name. A broken rule is reported with its id, its field and its message.

use crate::invoke::{InvokeError, InvokeResult};

/// One rule of the specification.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rule {
    /// `AGN-036/SECTION/WHEN/FIELD`, or `AGN-033/FIELD`.
    pub id: &'static str,
    /// The field, in the specification's spelling.
    pub field: &'static str,
    /// What must hold.
    pub message: &'static str,
}

impl Rule {
    pub(super) fn broken(&self) -> InvokeError {
        InvokeError::new(self.id, self.message).with("field", self.field)
    }
}

impl InvokeResult {
    /// Adds an error if the rule does not hold.
    pub(super) fn must(&mut self, holds: bool, rule: Rule) {
        if !holds {
            self.errors.push(rule.broken());
        }
    }
}

macro_rules! rules {
    ($($name:ident = $id:literal, $field:literal, $message:literal;)*) => {
        $(pub(super) const $name: Rule = Rule { id: $id, field: $field, message: $message };)*

        impl Rule {
            /// Every rule.
            pub const ALL: &[Self] = &[$($name),*];
        }
    };
}

rules! {
    TYPE = "AGN-036/3/type", "Type", "the request must be of one of the three types: a session and a turn come together, and results only with both";
    TIME_STAMP = "AGN-036/3/time_stamp", "TimeStamp", "the time of arrival must not be empty";
    CORRELATION_ID = "AGN-036/3/correlation_id", "CorrelationId", "the request must have an idempotency key";
    ORG = "AGN-036/3/org", "Envelope.Org", "the organisation must be present";
    USER = "AGN-036/3/user", "Envelope.User", "the user must be present";
    INPUT = "AGN-036/3.1/input", "Envelope.Instructions", "instructions, input artifacts or images must be provided";
    INITIAL_SESSION = "AGN-036/3.1/initial/session_id", "Envelope.SessionId", "a first request must have no session";
    INITIAL_TURN = "AGN-036/3.1/initial/turn_id", "Envelope.TurnId", "a first request must have no turn";
    INITIAL_RESULTS = "AGN-036/3.1/initial/tool_results", "Envelope.ToolResults", "a first request must have no tool results";
    FOLLOW_ON_SESSION = "AGN-036/3.1/follow_on/session_id", "Envelope.SessionId", "a request that follows must name its session";
    FOLLOW_ON_TURN = "AGN-036/3.1/follow_on/turn_id", "Envelope.TurnId", "a request that follows must name the turn before it";
    FOLLOW_ON_RESULTS = "AGN-036/3.1/follow_on/tool_results", "Envelope.ToolResults", "a request that follows must have no tool results";
    CONTINUATION_SESSION = "AGN-036/3.1/continuation/session_id", "Envelope.SessionId", "results must name their session";
    CONTINUATION_TURN = "AGN-036/3.1/continuation/turn_id", "Envelope.TurnId", "results must name their turn";
    CONTINUATION_RESULTS = "AGN-036/3.1/continuation/tool_results", "Envelope.ToolResults", "there must be one result or more";

    RESTORER_PRE_SESSION_ID = "AGN-036/4.2/pre/session_id", "Envelope.SessionId", "the session must be named before it is restored";
    RESTORER_PRE_TURN_ID = "AGN-036/4.2/pre/turn_id", "Envelope.TurnId", "the turn must be named before it is restored";
    RESTORER_PRE_SESSION = "AGN-036/4.2/pre/session", "Session", "no session may be there before one is restored";
    RESTORER_PRE_TURN = "AGN-036/4.2/pre/turn", "Turn", "no turn may be there before one is opened";
    RESTORER_POST_SESSION = "AGN-036/4.2/post/session", "Session", "the session must be restored";
    RESTORER_POST_TURN = "AGN-036/4.2/post/turn", "Turn", "a turn must be opened";
    RESTORER_POST_TURN_ID = "AGN-036/4.2/post/turn_id", "Turn.Id", "the turn must be another one than the request names";
    RESTORER_POST_MODE = "AGN-036/4.2/post/mode", "Session.Mode", "the session must have a mode";

    RESOLVER_PRE_SESSION = "AGN-036/4.3/pre/session", "Session", "no session may be there before the agent is known";
    RESOLVER_PRE_TURN = "AGN-036/4.3/pre/turn", "Turn", "no turn may be there before the agent is known";
    RESOLVER_POST_AGENT = "AGN-036/4.3/post/agent_context", "AgentContext", "the agent must be known";
    RESOLVER_POST_CONVERSATION = "AGN-036/4.3/post/conversation_context", "ConversationContext", "the conversation must be known";

    CONTINUATION_PRE_SESSION = "AGN-036/4.4/pre/session", "Session", "the session must be there before results are taken";
    CONTINUATION_PRE_TURN = "AGN-036/4.4/pre/turn", "Turn", "a turn must be there before results are taken";
    CONTINUATION_PRE_RESULTS = "AGN-036/4.4/pre/tool_results", "Envelope.ToolResults", "results must be there to be taken";
    CONTINUATION_POST_MANIFEST = "AGN-036/4.4/post/manifest", "ToolCallManifest", "calls and results must be put side by side";
    CONTINUATION_POST_TURN_ID = "AGN-036/4.4/post/turn_id", "Turn.Id", "the turn must be the one that the request names";

    CREATOR_PRE_AGENT = "AGN-036/4.5/pre/agent_context", "AgentContext", "the agent must be known before a session is opened";
    CREATOR_PRE_CONVERSATION = "AGN-036/4.5/pre/conversation_context", "ConversationContext", "the conversation must be known before a session is opened";
    CREATOR_PRE_SESSION = "AGN-036/4.5/pre/session", "Session", "no session may be there before one is opened";
    CREATOR_PRE_TURN = "AGN-036/4.5/pre/turn", "Turn", "no turn may be there before one is opened";
    CREATOR_POST_SESSION = "AGN-036/4.5/post/session", "Session", "a session must be opened";
    CREATOR_POST_TURN = "AGN-036/4.5/post/turn", "Turn", "a turn must be opened";

    LOADER_PRE_SESSION = "AGN-036/4.6/pre/session", "Session", "the session must be there before its agent is loaded";
    LOADER_PRE_TURN = "AGN-036/4.6/pre/turn", "Turn", "the turn must be there before its agent is loaded";
    LOADER_POST_AGENT = "AGN-036/4.6/post/agent_context", "AgentContext", "the agent must be loaded";
    LOADER_POST_CONVERSATION = "AGN-036/4.6/post/conversation_context", "ConversationContext", "the conversation must be loaded";

    PROMPT_PRE_SESSION = "AGN-036/4.7/pre/session", "Session", "the session must be there before the prompt is made";
    PROMPT_PRE_TURN = "AGN-036/4.7/pre/turn", "Turn", "the turn must be there before the prompt is made";
    PROMPT_PRE_AGENT = "AGN-036/4.7/pre/agent_context", "AgentContext", "the agent must be known before the prompt is made";
    PROMPT_PRE_CONVERSATION = "AGN-036/4.7/pre/conversation_context", "ConversationContext", "the conversation must be known before the prompt is made";
    PROMPT_PRE_MANIFEST = "AGN-036/4.7/pre/manifest", "ToolCallManifest", "results must be taken before the prompt is made";
    PROMPT_POST_NAMES = "AGN-036/4.7/post/names", "PromptKnowledgeProvider", "the tools that the model is offered must have names of their own: one of yours has become the server's";
    PROMPT_POST_READY = "AGN-036/4.7/post/ready", "PromptKnowledgeProvider", "the prompt must be ready";

    REASONER_PRE_READY = "AGN-036/4.8/pre/ready", "PromptKnowledgeProvider", "the prompt must be ready before the model reasons";

    LLM_PRE_PAYLOAD = "AGN-036/4.9/pre/response_payload", "ResponsePayload", "there must be no answer before the model is asked";
    LLM_PRE_MANIFEST = "AGN-036/4.9/pre/manifest", "ToolCallManifest", "results must be taken before the model is asked";
    LLM_POST_OUTCOME = "AGN-036/4.9/post/outcome", "ResponsePayload", "there must be an answer or calls for the caller, and not both";

    BUILDER_PRE_TYPE = "AGN-036/4.10/pre/response_type", "ResponseType", "there must be something to respond with";
    BUILDER_POST_RESPONSE = "AGN-036/4.10/post/response", "Response", "the response must be built";

    MANIFEST_COUNT = "AGN-036/5/count", "ToolCallResults", "there must be one result for each call";
    MANIFEST_ORDER = "AGN-036/5/order", "ToolCallResults", "results must be in the order of the calls";
    MANIFEST_ID = "AGN-036/5/tool_call_id", "ToolCallResults.ToolCallId", "a result must name the call that it answers";
    MANIFEST_NAME = "AGN-036/5/name", "ToolCallResults.Name", "a result must name the tool of its call";
    MANIFEST_RESULT = "AGN-036/5/result_json", "ToolCallResults.ResultJson", "every result must say what the tool gave, as JSON";

    RESPONSE_KIND = "AGN-033/kind", "kind", "the kind must be the one of what there is to respond with: `final` or `client_tool_continuation`";
    RESPONSE_SESSION = "AGN-033/session_id", "sessionId", "the session must be the context's";
    RESPONSE_TURN = "AGN-033/turn_id", "turnId", "the turn must be the context's";
    RESPONSE_MODE = "AGN-033/mode_display_name", "modeDisplayName", "the mode must be the conversation's";
    FINAL_TEXT = "AGN-033/final/primary_output_text", "primaryOutputText", "the last word must be what the model said last, and say something";
    FINAL_CALLS = "AGN-033/final/tool_calls", "toolCalls", "the last word must have no calls";
    CALLS_PRESENT = "AGN-033/continuation/tool_calls", "toolCalls", "there must be one call or more";
    CALLS_ORDER = "AGN-033/continuation/order", "toolCalls", "the calls must be the model's, in its order";
    CALLS_TEXT = "AGN-033/continuation/primary_output_text", "primaryOutputText", "calls for the caller are no last word";
    CALLS_RESULTS = "AGN-033/continuation/tool_results", "toolResults", "calls for the caller carry no results";
    CALLS_FILES = "AGN-033/continuation/files", "files", "calls for the caller carry no files";
    CALLS_WARNINGS = "AGN-033/continuation/user_warnings", "userWarnings", "calls for the caller carry no warnings";
    CALLS_USAGE = "AGN-033/continuation/usage", "usage", "calls for the caller carry no usage";
}
