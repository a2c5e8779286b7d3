//! Events: the chronological history that people follow.

pub mod payload;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::ids::{ArtifactId, RunId, SessionId};
use crate::json::Value;
use crate::time::Timestamp;

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EventType {
    /// A call is durable and about to be sent.
    ToolCalled,
    /// It was done.
    ToolSucceeded,
    /// It was refused or failed.
    ToolFailed,
    /// Policy or the sandbox refused the call.
    PolicyViolation,
    /// A person is asked.
    ApprovalRequested,
    /// A person approved.
    ApprovalGranted,
    /// A person denied.
    ApprovalDenied,
    /// The time limit for an approval passed without a decision.
    ApprovalExpired,
    /// One of the people that an approval needs approved.
    ApprovalVoted,
    /// An operator approved further calls in advance.
    GrantCreated,
    /// A call was permitted by a grant.
    GrantUsed,
    /// A grant is no longer good.
    GrantRevoked,
    /// The recorded answer was given again.
    ToolReplayed,
    /// Recovery sent a call again.
    ToolRedispatched,
    /// Recovery ended a run.
    RunRecovered,
    /// A result came after the tool's timeout.
    LateResult,
    /// An operator said what became of a call in doubt.
    RunResolved,
    /// Recovery cannot end a run: a person must look at it.
    RunNeedsPerson,
    /// A tool, a tool server, the policies or an executor need a person.
    PartNeedsPerson,
    /// A session began.
    SessionOpened,
    /// A tool's definition is known from now on, or a changed one was accepted.
    ToolAccepted,
    /// A policy set is in force.
    PolicyLoaded,
    /// A token was made.
    TokenCreated,
    /// A token is no longer good.
    TokenRevoked,
    /// A user's request began a turn of an agent.
    TurnOpened,
    /// The agent's model answered.
    TurnAnswered,
    /// A call that the model asked for waits for a person.
    TurnWaiting,
    /// A call that the model asked for has its outcome.
    TurnToolEnded,
    /// The results of the caller's own tools came.
    TurnContinued,
    /// A turn ended without an answer.
    TurnFailed,
}

impl EventType {
    /// Every type.
    pub const ALL: [Self; 30] = [
        Self::ToolCalled,
        Self::ToolSucceeded,
        Self::ToolFailed,
        Self::PolicyViolation,
        Self::ApprovalRequested,
        Self::ApprovalGranted,
        Self::ApprovalDenied,
        Self::ApprovalExpired,
        Self::ApprovalVoted,
        Self::GrantCreated,
        Self::GrantUsed,
        Self::GrantRevoked,
        Self::ToolReplayed,
        Self::ToolRedispatched,
        Self::RunRecovered,
        Self::LateResult,
        Self::RunResolved,
        Self::RunNeedsPerson,
        Self::PartNeedsPerson,
        Self::SessionOpened,
        Self::ToolAccepted,
        Self::PolicyLoaded,
        Self::TokenCreated,
        Self::TokenRevoked,
        Self::TurnOpened,
        Self::TurnAnswered,
        Self::TurnWaiting,
        Self::TurnToolEnded,
        Self::TurnContinued,
        Self::TurnFailed,
    ];

    /// The spelling that users know.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ToolCalled => "tool_called",
            Self::ToolSucceeded => "tool_succeeded",
            Self::ToolFailed => "tool_failed",
            Self::PolicyViolation => "policy_violation",
            Self::ApprovalRequested => "approval_requested",
            Self::ApprovalGranted => "approval_granted",
            Self::ApprovalDenied => "approval_denied",
            Self::ApprovalExpired => "approval_expired",
            Self::ApprovalVoted => "approval_voted",
            Self::GrantCreated => "grant_created",
            Self::GrantUsed => "grant_used",
            Self::GrantRevoked => "grant_revoked",
            Self::ToolReplayed => "tool_replayed",
            Self::ToolRedispatched => "tool_redispatched",
            Self::RunRecovered => "run_recovered",
            Self::LateResult => "late_result",
            Self::RunResolved => "run_resolved",
            Self::RunNeedsPerson => "run_needs_person",
            Self::PartNeedsPerson => "part_needs_person",
            Self::SessionOpened => "session_opened",
            Self::ToolAccepted => "tool_accepted",
            Self::PolicyLoaded => "policy_loaded",
            Self::TokenCreated => "token_created",
            Self::TokenRevoked => "token_revoked",
            Self::TurnOpened => "turn_opened",
            Self::TurnAnswered => "turn_answered",
            Self::TurnWaiting => "turn_waiting",
            Self::TurnToolEnded => "turn_tool_ended",
            Self::TurnContinued => "turn_continued",
            Self::TurnFailed => "turn_failed",
        }
    }

    /// The type that a store spells.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|event_type| event_type.as_str() == text)
    }
}

/// A row of `events`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Event {
    /// Its id.
    pub event_id: ArtifactId,
    /// What happened.
    pub event_type: EventType,
    /// The details.
    pub payload: Value,
    /// The run it is about.
    pub run_id: Option<RunId>,
    /// How far the run's journal was: the last sequence number, 0 where there is no journal.
    pub sequence_number: u64,
    /// The session whose chain holds it.
    pub session_id: SessionId,
    /// When.
    pub ts: Timestamp,
}

/// The digest of a list of events, in their order.
pub fn digest_of<'a>(events: impl IntoIterator<Item = &'a Event>) -> Digest {
    let events: Vec<&Event> = events.into_iter().collect();
    Digest::of(&events)
}
