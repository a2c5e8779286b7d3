//! The response to the caller (AGN-033): the final answer, or calls that the caller must make itself.
//!
//! Every member is optional here, so that the validator, and not the type, decides what may be absent.
//! Absent members are left out, never null.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::envelope::{ToolCall, ToolCallResult};

stepgate_core::spelled! {
    /// The two kinds of response.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum ResponseKind {
        /// The turn is over.
        Final = "final",
        /// The caller runs its own tools, and sends another request with their results.
        ClientToolContinuation = "client_tool_continuation",
    }
}

/// The tokens that the model used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Usage {
    /// Tokens that it read.
    pub prompt_tokens: u64,
    /// Tokens that it wrote.
    pub completion_tokens: u64,
}

impl Usage {
    /// The sum of both.
    pub fn plus(self, other: Self) -> Self {
        Self {
            prompt_tokens: self.prompt_tokens.saturating_add(other.prompt_tokens),
            completion_tokens: self.completion_tokens.saturating_add(other.completion_tokens),
        }
    }
}

/// A response.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "TurnResponse")]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Response {
    /// One of [`ResponseKind`].
    pub kind: String,
    /// The session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// The turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turn_id: Option<String>,
    /// The display name of the session's mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode_display_name: Option<String>,
    /// The model's final text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub primary_output_text: Option<String>,
    /// The calls that the server made, with their five-key responses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_results: Option<Vec<ToolCallResult>>,
    /// Files that were created.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub files: Option<Vec<String>>,
    /// Warnings for the user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_warnings: Option<Vec<String>>,
    /// The tokens that the model used, over the whole turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// The calls that the caller must make, in order.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_calls: Option<Vec<ToolCall>>,
    /// The model's text beside its calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_continuation_message: Option<String>,
}
