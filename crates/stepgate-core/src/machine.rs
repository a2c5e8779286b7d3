//! The only state machine (spec 004). Live traffic, recovery and `verify` all use [`next`].
//!
//! ```text
//!            genesis
//!               │
//!               ▼   deny
//!            PENDING ─────────────▶ DENIED
//!               │ approve
//!               ▼
//!           AUTHORIZED
//!               │ call
//!               ▼   succeed
//!           EXECUTING ────────────▶ COMPLETED
//!               │ fail
//!               ▼
//!             FAILED
//! ```

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::spelled::spelled;

spelled! {
    /// Where a trace stands.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
    #[schemars(rename = "TraceState")]
    #[serde(rename_all = "SCREAMING_SNAKE_CASE")]
    pub enum State {
        /// The request is in the journal and nothing is decided.
        Pending = "PENDING",
        /// Decided in favour; not called yet.
        Authorized = "AUTHORIZED",
        /// The call is durable: it was sent or is about to be.
        Executing = "EXECUTING",
        /// The effect is recorded as a success.
        Completed = "COMPLETED",
        /// The effect is recorded as anything but a success.
        Failed = "FAILED",
        /// Decided against; nothing was called.
        Denied = "DENIED",
    }
}

/// What moves a trace from one state to the next: the meaning of an appended artifact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Move {
    /// A supervisor_decision APPROVE.
    Approve,
    /// A supervisor_decision DENY.
    Deny,
    /// A tool_call.
    Call,
    /// A tool_effect with status SUCCESS.
    Succeed,
    /// A tool_effect with any other status.
    Fail,
}

/// A move that the machine does not know (STATE_INVALID_TRANSITION).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{from} does not allow {by:?}")]
pub struct IllegalMove {
    from: State,
    by: Move,
}

/// The five legal transitions. Genesis has no state before it, so the journal handles it.
pub fn next(from: State, by: Move) -> Result<State, IllegalMove> {
    match (from, by) {
        (State::Pending, Move::Approve) => Ok(State::Authorized),
        (State::Pending, Move::Deny) => Ok(State::Denied),
        (State::Authorized, Move::Call) => Ok(State::Executing),
        (State::Executing, Move::Succeed) => Ok(State::Completed),
        (State::Executing, Move::Fail) => Ok(State::Failed),
        (
            State::Pending
            | State::Authorized
            | State::Executing
            | State::Completed
            | State::Failed
            | State::Denied,
            Move::Approve | Move::Deny | Move::Call | Move::Succeed | Move::Fail,
        ) => Err(IllegalMove { from, by }),
    }
}

impl State {
    /// Whether the trace has ended: nothing can be appended any more.
    pub fn is_terminal(self) -> bool {
        match self {
            Self::Pending | Self::Authorized | Self::Executing => false,
            Self::Completed | Self::Failed | Self::Denied => true,
        }
    }
}

impl std::fmt::Display for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Move {
    /// Every move.
    pub const ALL: [Self; 5] = [Self::Approve, Self::Deny, Self::Call, Self::Succeed, Self::Fail];
}

#[cfg(test)]
mod tests;
