//! The request as it arrived, with its sender, and the type that follows from it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The type of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContextType {
    /// It begins a conversation.
    Initial,
    /// It continues a conversation after a turn that is over.
    FollowOn,
    /// It brings the results of the caller's own tools.
    ClientToolCallContinuation,
}

impl ContextType {
    /// The type follows from the fields that are present; any other combination has none.
    pub fn of(envelope: &Envelope) -> Option<Self> {
        let has_session = is_present(envelope.session_id.as_deref());
        let has_turn = is_present(envelope.turn_id.as_deref());
        match (has_session, has_turn, envelope.tool_results.is_empty()) {
            (false, false, true) => Some(Self::Initial),
            (true, true, true) => Some(Self::FollowOn),
            (true, true, false) => Some(Self::ClientToolCallContinuation),
            (false, false, false) | (true, false, _) | (false, true, _) => None,
        }
    }
}

/// Whether a text is present and not blank.
pub(crate) fn is_present(text: Option<&str>) -> bool {
    text.is_some_and(|text| !text.trim().is_empty())
}

/// A party to a request, as the token proves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Party {
    /// Its id.
    pub id: String,
}

/// A text that the user attaches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct InputArtifact {
    /// The user's name for it, such as a file name.
    pub name: String,
    /// Its text.
    pub content: String,
}

/// An image that the user attaches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ClipBoardImage {
    /// Such as `image/png`.
    pub mime_type: String,
    /// The image in base64.
    pub data: String,
}

/// A tool that the caller runs itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ClientTool {
    /// Letters, digits, `_` and `-`.
    pub name: String,
    /// Its description for the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The JSON Schema of its arguments.
    #[serde(deserialize_with = "stepgate_core::json::strict::value")]
    pub parameters: serde_json::Value,
}

/// A call that the model asks the caller to make.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "ClientToolCall")]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ToolCall {
    /// The model's id for this call.
    pub tool_call_id: String,
    /// The tool.
    pub name: String,
    /// Its arguments, as JSON text.
    pub arguments_json: String,
}

/// The result of a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "ClientToolResult")]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ToolCallResult {
    /// The call.
    pub tool_call_id: String,
    /// The tool.
    pub name: String,
    /// Its result, as JSON text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_json: Option<String>,
    /// Why it has no result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_message: Option<String>,
}

/// The request as it arrived, with its sender. It is never changed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Envelope {
    /// The organisation, from the configuration and never from the body.
    pub org: Option<Party>,
    /// The principal, from the token and never from the body.
    pub user: Option<Party>,
    /// The session in which it continues.
    pub session_id: Option<String>,
    /// The turn that it follows, or whose calls it answers.
    pub turn_id: Option<String>,
    /// The user's message.
    pub instructions: Option<String>,
    /// Texts that the user attaches.
    pub input_artifacts: Vec<InputArtifact>,
    /// Images that the user attaches.
    pub clip_board_images: Vec<ClipBoardImage>,
    /// The results of the caller's own tools.
    pub tool_results: Vec<ToolCallResult>,
    /// The tools that the caller runs itself.
    pub tools: Vec<ClientTool>,
}

impl Envelope {
    /// Whether the user says or attaches anything.
    pub(crate) fn has_input(&self) -> bool {
        is_present(self.instructions.as_deref())
            || !self.input_artifacts.is_empty()
            || !self.clip_board_images.is_empty()
    }
}
