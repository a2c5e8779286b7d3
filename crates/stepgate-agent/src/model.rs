//! The questions to a model and its answers, for any provider.

use crate::envelope::{ClipBoardImage, ToolCall};
use crate::response::Usage;

/// One message of a conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// The system prompt.
    System(String),
    /// The user's message.
    User {
        /// The text, with the attached texts.
        text: String,
        /// Images.
        images: Vec<ClipBoardImage>,
    },
    /// The model's message.
    Assistant {
        /// Its text, if it has one.
        text: Option<String>,
        /// The calls that it asks for.
        calls: Vec<ToolCall>,
    },
    /// The result of one call.
    Tool {
        /// The call.
        tool_call_id: String,
        /// Its result, as JSON text.
        content: String,
    },
}

impl Message {
    /// How many bytes of text it has.
    pub fn bytes(&self) -> usize {
        match self {
            Self::System(text) => text.len(),
            Self::User { text, images } => {
                text.len() + images.iter().map(|image| image.data.len()).sum::<usize>()
            }
            Self::Assistant { text, calls } => {
                let text = text.as_ref().map_or(0, String::len);
                text + calls.iter().map(|call| call.arguments_json.len()).sum::<usize>()
            }
            Self::Tool { content, .. } => content.len(),
        }
    }
}

/// A tool that the model may ask for, and which side runs it.
#[derive(Clone, Debug, PartialEq)]
pub struct Offer {
    /// The name for the model: 1 to 64 letters, digits, `_` or `-`.
    pub name: String,
    /// Its description.
    pub description: Option<String>,
    /// The JSON Schema of its arguments.
    pub parameters: serde_json::Value,
    /// The action name for a proposal, where the server runs it; none where the caller does.
    pub action: Option<String>,
}

/// The question to a model.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Prompt {
    /// All messages, oldest first.
    pub messages: Vec<Message>,
    /// The tools that it may ask for.
    pub offers: Vec<Offer>,
}

/// The answer of a model. Nothing in it is trusted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Completion {
    /// The model, as it names itself.
    pub model: String,
    /// Its text.
    pub text: Option<String>,
    /// Its calls, in order.
    pub calls: Vec<ToolCall>,
    /// The tokens that it used.
    pub usage: Option<Usage>,
    /// Why the answer is incomplete, if it is.
    pub cut_off: Option<String>,
}

/// Why a model gave no answer. The cause decides what happens next.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ModelError {
    /// Timeout. A retry is safe.
    #[error("the model did not answer in time")]
    TimedOut,
    /// It is down or overloaded. A retry is safe.
    #[error("the model is not available: {0}")]
    Unavailable(String),
    /// It refuses the request: the key, the model, or the request itself. An operator must look at it.
    #[error("the model's endpoint refused the request: {0}")]
    Refused(String),
    /// It sent something that is not a valid answer.
    #[error("the model's answer is not one: {0}")]
    Invalid(String),
}
