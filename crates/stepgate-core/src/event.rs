//! Events: the chronological history that people follow.

pub mod payload;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::ids::{ArtifactId, RunId, SessionId};
use crate::json::Value;
use crate::spelled::spelled;
use crate::time::Timestamp;

spelled! {
    /// What happened.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "snake_case")]
    pub enum EventType {
        /// A call is durable and about to be sent.
        ToolCalled = "tool_called",
        /// It was done.
        ToolSucceeded = "tool_succeeded",
        /// It was refused or failed.
        ToolFailed = "tool_failed",
        /// Policy or the sandbox refused the call.
        PolicyViolation = "policy_violation",
        /// A person is asked.
        ApprovalRequested = "approval_requested",
        /// A person approved.
        ApprovalGranted = "approval_granted",
        /// A person denied.
        ApprovalDenied = "approval_denied",
        /// The time limit for an approval passed without a decision.
        ApprovalExpired = "approval_expired",
        /// One of the people that an approval needs approved.
        ApprovalVoted = "approval_voted",
        /// An operator approved further calls in advance.
        GrantCreated = "grant_created",
        /// A call was permitted by a grant.
        GrantUsed = "grant_used",
        /// A grant is no longer good.
        GrantRevoked = "grant_revoked",
        /// An operator stopped calls, until it is lifted.
        StopMade = "stop_made",
        /// A stop is no longer in force.
        StopLifted = "stop_lifted",
        /// Runs that are over left the store for an archive.
        RunsArchived = "runs_archived",
        /// An operator ordered that runs stay in the store, until it is lifted.
        HoldMade = "hold_made",
        /// A hold is no longer in force.
        HoldLifted = "hold_lifted",
        /// Arguments of a run are kept apart until they are erased.
        ErasableStored = "erasable_stored",
        /// An operator erased arguments that were kept apart.
        ErasableErased = "erasable_erased",
        /// A call took an amount from a budget.
        BudgetReserved = "budget_reserved",
        /// A call that did not happen gave back what it had taken from a budget.
        BudgetReleased = "budget_released",
        /// The recorded answer was given again.
        ToolReplayed = "tool_replayed",
        /// Recovery sent a call again.
        ToolRedispatched = "tool_redispatched",
        /// Recovery ended a run.
        RunRecovered = "run_recovered",
        /// A result came after the tool's timeout.
        LateResult = "late_result",
        /// An operator said what became of a call in doubt.
        RunResolved = "run_resolved",
        /// Recovery cannot end a run: a person must look at it.
        RunNeedsPerson = "run_needs_person",
        /// A tool, a tool server, the policies or an executor need a person.
        PartNeedsPerson = "part_needs_person",
        /// A session began.
        SessionOpened = "session_opened",
        /// A session, a file or a memory took in a label.
        LabelAdded = "label_added",
        /// An operator took a label away.
        LabelRemoved = "label_removed",
        /// What the user of a session asked for.
        UserRequest = "user_request",
        /// A tool's definition is known from now on, or a changed one was accepted.
        ToolAccepted = "tool_accepted",
        /// A policy set is in force.
        PolicyLoaded = "policy_loaded",
        /// The shadow policies would have decided otherwise.
        PolicyDiffers = "policy_differs",
        /// A token was made.
        TokenCreated = "token_created",
        /// A token is no longer good.
        TokenRevoked = "token_revoked",
        /// Requests or logins without a valid token.
        LoginRefused = "login_refused",
        /// A user's request began a turn of an agent.
        TurnOpened = "turn_opened",
        /// The agent's model answered.
        TurnAnswered = "turn_answered",
        /// A call that the model asked for waits for a person.
        TurnWaiting = "turn_waiting",
        /// A call that the model asked for has its outcome.
        TurnToolEnded = "turn_tool_ended",
        /// The results of the caller's own tools came.
        TurnContinued = "turn_continued",
        /// A turn ended without an answer.
        TurnFailed = "turn_failed",
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
