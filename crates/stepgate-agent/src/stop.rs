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

stepgate_core::spelled! {
    /// Errors beside the rules. The cause decides the status of the response.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum Code {
        /// A part of the request is invalid: a tool's name, an image, a key that is too long.
        RequestInvalid = "REQUEST_INVALID",
        /// There is no such session, or it belongs to another principal.
        SessionNotFound = "SESSION_NOT_FOUND",
        /// There is no such turn in that session.
        TurnNotFound = "TURN_NOT_FOUND",
        /// The turn to follow is not over.
        TurnNotFinished = "TURN_NOT_FINISHED",
        /// Another request works on the turn now.
        TurnInProgress = "TURN_IN_PROGRESS",
        /// The key was used for another request.
        IdempotencyConflict = "IDEMPOTENCY_CONFLICT",
        /// The turn does not wait for results: they came already.
        ToolResultsNotAwaited = "TOOL_RESULTS_NOT_AWAITED",
        /// A result for a tool that the server runs.
        ToolRunsOnServer = "TOOL_RUNS_ON_SERVER",
        /// The caller cancelled the turn.
        TurnCancelled = "TURN_CANCELLED",
        /// The conversation is longer than the limit of a prompt.
        ConversationTooLong = "CONVERSATION_TOO_LONG",
        /// The model did not answer in time.
        ModelTimedOut = "MODEL_TIMED_OUT",
        /// The model is not available.
        ModelUnavailable = "MODEL_UNAVAILABLE",
        /// The model's endpoint refuses the request.
        ModelRefused = "MODEL_REFUSED",
        /// The model's answer is not valid.
        ModelOutputInvalid = "MODEL_OUTPUT_INVALID",
        /// The model asked for tools in every round and gave no answer.
        RoundsExhausted = "ROUNDS_EXHAUSTED",
    }
}

impl Code {
    /// The code of an error; none where it is a rule's.
    pub fn of(error: &InvokeError) -> Option<Self> {
        Self::parse(&error.code)
    }

    pub(crate) fn error(self, message: impl Into<String>) -> InvokeError {
        InvokeError::new(self.as_str(), message)
    }
}
