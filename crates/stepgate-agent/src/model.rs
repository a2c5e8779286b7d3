//! What a model is asked and answers, whoever provides it.

use crate::envelope::ClipBoardImage;
use crate::response::Usage;

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

/// A tool that the model may ask for, and who runs it.
#[derive(Clone, Debug, PartialEq)]
pub struct Offer {
    /// The name for the model.
    pub name: String,
    /// What it is for.
    pub description: Option<String>,
    /// The JSON Schema of its arguments.
    pub parameters: serde_json::Value,
    /// What a proposal names, where the server runs it; none where the caller does.
    pub action: Option<String>,
}

/// What a model is asked.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// Everything that was said, oldest first.
    pub messages: &'a [Message],
    /// What it may ask for.
    pub offers: &'a [Offer],
}

/// What a model answers. Nothing in it is trusted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Completion {
    /// The model, as it names itself.
    pub model: String,
    /// Its text.
    pub text: Option<String>,
    /// Its calls, in order.
    pub calls: Vec<RequestedCall>,
    /// What it cost.
    pub usage: Option<Usage>,
    /// Why the answer is not whole, where it is not.
    pub cut_off: Option<String>,
}

/// Why a model gave no answer. Whose fault it is decides what happens next.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ModelError {
    /// It took too long. Asking again is safe.
    #[error("the model did not answer in time")]
    TimedOut,
    /// It is away, or has too much to do. Asking again is safe.
    #[error("the model is not available: {0}")]
    Unavailable(String),
    /// It does not take what it is asked: key, model, or the request itself. An operator must look.
    #[error("the model's endpoint refused the request: {0}")]
    Refused(String),
    /// It said something that no answer is.
    #[error("the model's answer is not one: {0}")]
    Invalid(String),
}
