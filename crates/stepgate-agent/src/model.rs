//! What a model is asked and answers, whoever provides it.

use crate::context::ClipBoardImage;

/// One message of a conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// What the model is told about itself.
    System(String),
    /// What the user said.
    User {
        /// The text, with what was added to it.
        text: String,
        /// Images.
        images: Vec<ClipBoardImage>,
    },
    /// What the model said.
    Assistant {
        /// Its text, where it said any.
        text: Option<String>,
        /// The calls that it asked for.
        calls: Vec<RequestedCall>,
    },
    /// What came of one call.
    Tool {
        /// The call.
        tool_call_id: String,
        /// What it gave, as JSON text.
        content: String,
    },
}

/// A call as the model asks for it. Nothing in it is trusted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestedCall {
    /// The model's name for the call.
    pub tool_call_id: String,
    /// The tool's name, as it was offered.
    pub name: String,
    /// The arguments, as text that should be a JSON object.
    pub arguments_json: String,
}
