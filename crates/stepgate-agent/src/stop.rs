//! Why a chain stops, and the codes that are not rules.

use stepgate_core::gate::Fault;
use stepgate_core::ports::StoreError;

use crate::invoke::{InvokeError, InvokeResult};

/// Why a chain stopped before its response.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Stop {
    /// The contract refuses the request.
    #[error("{0}")]
    Invoke(InvokeResult),
    /// An internal error: the caller gets no result, and the same request, sent again, continues.
    #[error(transparent)]
    Fault(#[from] Fault),
}

impl From<InvokeError> for Stop {
    fn from(error: InvokeError) -> Self {
        Self::Invoke(error.into())
    }
}

impl From<StoreError> for Stop {
    fn from(error: StoreError) -> Self {
        Self::Fault(error.into())
    }
}

/// Errors beside the rules. The cause decides the status of the response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Code {
    /// A part of the request is invalid: a tool's name, an image, a key that is too long.
    RequestInvalid,
    /// There is no such session, or it belongs to another principal.
    SessionNotFound,
    /// There is no such turn in that session.
    TurnNotFound,
    /// The turn to follow is not over.
    TurnNotFinished,
    /// Another request works on the turn now.
    TurnInProgress,
    /// The key was used for another request.
    IdempotencyConflict,
    /// The turn does not wait for results: they came already.
    ToolResultsNotAwaited,
    /// A result for a tool that the server runs.
    ToolRunsOnServer,
    /// The caller cancelled the turn.
    TurnCancelled,
    /// The conversation is longer than the limit of a prompt.
    ConversationTooLong,
    /// The model did not answer in time.
    ModelTimedOut,
    /// The model is not available.
    ModelUnavailable,
    /// The model's endpoint refuses the request.
    ModelRefused,
    /// The model's answer is not valid.
    ModelOutputInvalid,
    /// The model asked for tools in every round and gave no answer.
    RoundsExhausted,
}

impl Code {
    /// Every code.
    pub const ALL: [Self; 15] = [
        Self::RequestInvalid,
        Self::SessionNotFound,
        Self::TurnNotFound,
        Self::TurnNotFinished,
        Self::TurnInProgress,
        Self::IdempotencyConflict,
        Self::ToolResultsNotAwaited,
        Self::ToolRunsOnServer,
        Self::TurnCancelled,
        Self::ConversationTooLong,
        Self::ModelTimedOut,
        Self::ModelUnavailable,
        Self::ModelRefused,
        Self::ModelOutputInvalid,
        Self::RoundsExhausted,
    ];

    /// The spelling in an error.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::RequestInvalid => "REQUEST_INVALID",
            Self::SessionNotFound => "SESSION_NOT_FOUND",
            Self::TurnNotFound => "TURN_NOT_FOUND",
            Self::TurnNotFinished => "TURN_NOT_FINISHED",
            Self::TurnInProgress => "TURN_IN_PROGRESS",
            Self::IdempotencyConflict => "IDEMPOTENCY_CONFLICT",
            Self::ToolResultsNotAwaited => "TOOL_RESULTS_NOT_AWAITED",
            Self::ToolRunsOnServer => "TOOL_RUNS_ON_SERVER",
            Self::TurnCancelled => "TURN_CANCELLED",
            Self::ConversationTooLong => "CONVERSATION_TOO_LONG",
            Self::ModelTimedOut => "MODEL_TIMED_OUT",
            Self::ModelUnavailable => "MODEL_UNAVAILABLE",
            Self::ModelRefused => "MODEL_REFUSED",
            Self::ModelOutputInvalid => "MODEL_OUTPUT_INVALID",
            Self::RoundsExhausted => "ROUNDS_EXHAUSTED",
        }
    }

    /// The code of an error; none where it is a rule's.
    pub fn of(error: &InvokeError) -> Option<Self> {
        Self::ALL.into_iter().find(|code| code.as_str() == error.code)
    }

    /// The error.
    pub(crate) fn error(self, message: impl Into<String>) -> InvokeError {
        InvokeError::new(self.as_str(), message)
    }
}
