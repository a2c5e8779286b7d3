//! The closed table of outcomes, codes and messages.
//!
//! A [`Failure`] is part of the contract with the agent: a phase, a code, a fixed message, and a detail that
//! only the record sees. An internal error of Stepgate is a `Fault` (`gate.rs`).

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ids::{PrincipalId, RunId};
use crate::json::strict;
use crate::spelled::spelled;

spelled! {
    /// The nine phases of spec 000, in their order.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "SCREAMING_SNAKE_CASE")]
    #[expect(missing_docs, reason = "the names are the specification's")]
    pub enum Phase {
        Receive = "RECEIVE",
        Parse = "PARSE",
        ValidateSchema = "VALIDATE_SCHEMA",
        ValidateAction = "VALIDATE_ACTION",
        ValidateArgs = "VALIDATE_ARGS",
        Authorize = "AUTHORIZE",
        Execute = "EXECUTE",
        Record = "RECORD",
        Respond = "RESPOND",
    }
}

spelled! {
    /// The four outcomes of spec 000: exactly one per step.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "SCREAMING_SNAKE_CASE")]
    pub enum Outcome {
        /// The action was done.
        Success = "SUCCESS",
        /// The payload is not a valid proposal.
        ValidationError = "VALIDATION_ERROR",
        /// The proposal is valid, but the action is not allowed.
        Denied = "DENIED",
        /// The action is allowed, but failed.
        ExecutionError = "EXECUTION_ERROR",
    }
}

/// Why a step failed. Each variant is one row of the table: phase, outcome, code and message follow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The payload is empty.
    EmptyPayload,
    /// The payload is over the limit.
    PayloadTooLarge,
    /// Not strict JSON.
    InvalidJson(strict::Refusal),
    /// Another major version; the version as received.
    SchemaVersionIncompatible(String),
    /// Not the five fields: the field and the rule.
    InvalidProposal(String),
    /// `run_command` or `spawn_process`: nothing can enable them.
    CommandExecution,
    /// Not registered.
    ActionNotAllowed,
    /// The action's contract is broken: the field and the rule.
    InvalidArgs(String),
    /// The id already names another action.
    IdempotencyConflict,
    /// The id names this action already, and the run has left the store.
    ResultArchived(RunId),
    /// Policy or the sandbox refused: the policies, or the sandbox rule.
    PolicyViolation(String),
    /// An operator denied.
    DeniedByOperator {
        /// Who.
        approver_id: PrincipalId,
        /// Why, where it was said.
        note: Option<String>,
    },
    /// The time limit for an approval passed without a decision.
    ApprovalExpired,
    /// A limit on open approvals is reached.
    TooManyApprovals(OpenLimit),
    /// The executor refused after AUTHORIZE had permitted: the rule.
    RefusedAtExecution(String),
    /// The action failed; the detail goes to the record alone.
    Execution(ExecutionFailure, Option<String>),
}

/// A limit on open approvals, and its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenLimit {
    /// On those of one principal.
    OfPrincipal(u64),
    /// On those of all principals, of which one may have as many as are still free.
    Total(u64),
}

impl fmt::Display for OpenLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OfPrincipal(most) => write!(f, "limits.approvals_open_max is {most}"),
            Self::Total(most) => write!(f, "limits.approvals_open_total_max is {most}"),
        }
    }
}

/// A row of the table, apart from what varies.
struct Row {
    phase: Phase,
    outcome: Outcome,
    code: &'static str,
    message: &'static str,
}

impl Failure {
    fn row(&self) -> Row {
        use Outcome::{Denied, ExecutionError, ValidationError};
        let row = |phase, outcome, code, message| Row { phase, outcome, code, message };
        let invalid = |phase, code, message| row(phase, ValidationError, code, message);
        let denied = |phase, code, message| row(phase, Denied, code, message);
        match self {
            Self::EmptyPayload => invalid(Phase::Receive, "EMPTY_PAYLOAD", "Payload is empty"),
            Self::PayloadTooLarge => {
                invalid(Phase::Receive, "PAYLOAD_TOO_LARGE", "Payload exceeds the maximum length")
            }
            Self::InvalidJson(_) => invalid(Phase::Parse, "INVALID_JSON", "Invalid JSON format"),
            Self::SchemaVersionIncompatible(_) => invalid(
                Phase::ValidateSchema,
                "SCHEMA_VERSION_INCOMPATIBLE",
                "Unsupported proposal schema version.",
            ),
            Self::InvalidProposal(_) => invalid(
                Phase::ValidateSchema,
                "INVALID_PROPOSAL",
                "Proposal does not match the schema",
            ),
            Self::CommandExecution => denied(
                Phase::ValidateAction,
                "ACTION_NOT_ALLOWED",
                "Generic command execution is not permitted in the core schema.",
            ),
            Self::ActionNotAllowed => {
                denied(Phase::ValidateAction, "ACTION_NOT_ALLOWED", "Action is not allowed")
            }
            Self::InvalidArgs(_) => invalid(
                Phase::ValidateArgs,
                "INVALID_ARGS",
                "Arguments do not match the action's contract",
            ),
            Self::IdempotencyConflict => invalid(
                Phase::ValidateArgs,
                "IDEMPOTENCY_CONFLICT",
                "Proposal id was already used for a different action",
            ),
            Self::ResultArchived(_) => invalid(
                Phase::ValidateArgs,
                "RESULT_ARCHIVED",
                "Proposal id was already used, and its result is archived",
            ),
            Self::PolicyViolation(_) => {
                denied(Phase::Authorize, "POLICY_VIOLATION", "Action is not permitted by policy")
            }
            Self::DeniedByOperator { .. } | Self::ApprovalExpired | Self::TooManyApprovals(_) => {
                denied(Phase::Authorize, "APPROVAL_DENIED", "Action was not approved")
            }
            Self::RefusedAtExecution(_) => {
                denied(Phase::Execute, "POLICY_VIOLATION", "Action is not permitted by policy")
            }
            Self::Execution(failure, _) => {
                row(Phase::Execute, ExecutionError, "EXECUTION_ERROR", failure.message())
            }
        }
    }

    /// The phase that failed.
    pub fn phase(&self) -> Phase {
        self.row().phase
    }

    /// The outcome that follows.
    pub fn outcome(&self) -> Outcome {
        self.row().outcome
    }

    /// The code for the caller's program.
    pub fn code(&self) -> &'static str {
        self.row().code
    }

    /// The message for the caller: fixed per code, without details of the host.
    pub fn message(&self) -> &'static str {
        self.row().message
    }

    /// Whether the step failed before the arguments were checked against a tool. Then it is not known which
    /// of them must be redacted.
    pub fn is_before_args(&self) -> bool {
        let is_early = self.phase() < Phase::ValidateArgs && *self != Self::EmptyPayload;
        is_early || matches!(self, Self::InvalidArgs(_))
    }

    /// What only the record sees.
    pub fn detail(&self) -> Option<String> {
        match self {
            Self::EmptyPayload
            | Self::PayloadTooLarge
            | Self::SchemaVersionIncompatible(_)
            | Self::CommandExecution
            | Self::IdempotencyConflict => None,
            Self::ResultArchived(run_id) => Some(format!("RUN_ARCHIVED: run {run_id}")),
            Self::InvalidJson(refusal) => Some(refusal.to_string()),
            Self::ActionNotAllowed => Some("TOOL_UNCLASSIFIED_DENIED".into()),
            Self::InvalidProposal(why)
            | Self::InvalidArgs(why)
            | Self::PolicyViolation(why)
            | Self::RefusedAtExecution(why) => Some(why.clone()),
            Self::DeniedByOperator { approver_id, note: None } => {
                Some(format!("DENIED_BY_OPERATOR: by {approver_id}"))
            }
            Self::DeniedByOperator { approver_id, note: Some(note) } => {
                Some(format!("DENIED_BY_OPERATOR: by {approver_id}, who noted: {note}"))
            }
            Self::ApprovalExpired => Some("APPROVAL_EXPIRED".into()),
            Self::TooManyApprovals(limit) => Some(format!("TOO_MANY_OPEN: {limit}")),
            Self::Execution(failure, None) => Some(failure.code().into()),
            Self::Execution(failure, Some(detail)) => Some(format!("{}: {detail}", failure.code())),
        }
    }
}

spelled! {
    /// Why a permitted action failed. The message has no details of the host.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[expect(missing_docs, reason = "the messages below say what each means")]
    pub enum ExecutionFailure {
        FileNotFound = "FILE_NOT_FOUND",
        PathNotFound = "PATH_NOT_FOUND",
        NotAFile = "NOT_A_FILE",
        NotADirectory = "NOT_A_DIRECTORY",
        AlreadyExists = "ALREADY_EXISTS",
        InvalidUtf8 = "INVALID_UTF8",
        FileTooLarge = "FILE_TOO_LARGE",
        TooManyEntries = "TOO_MANY_ENTRIES",
        PermissionDenied = "PERMISSION_DENIED",
        StorageFull = "STORAGE_FULL",
        ToolFailed = "UPSTREAM_ERROR",
        OutputInvalid = "OUTPUT_INVALID",
        Timeout = "TIMEOUT",
        Unavailable = "BREAKER_OPEN",
        Io = "IO_ERROR",
    }
    /// The finer code, for the record.
    fn code
}

impl ExecutionFailure {
    /// The message, and whether the action may have had an effect all the same.
    fn row(self) -> (&'static str, bool) {
        match self {
            Self::FileNotFound => ("File not found", false),
            Self::PathNotFound => ("Path not found", false),
            Self::NotAFile => ("Not a file", false),
            Self::NotADirectory => ("Not a directory", false),
            Self::AlreadyExists => ("Already exists", false),
            Self::InvalidUtf8 => ("File is not valid UTF-8", false),
            Self::FileTooLarge | Self::TooManyEntries => ("File is too large", false),
            Self::PermissionDenied => ("Permission denied", false),
            Self::StorageFull => ("Storage is full", false),
            Self::ToolFailed => ("Tool failed", false),
            Self::OutputInvalid => ("Tool returned an invalid result", true),
            Self::Timeout => ("Tool timed out", true),
            Self::Unavailable => ("Tool is unavailable", false),
            Self::Io => ("I/O error", true),
        }
    }

    /// The fixed message.
    pub fn message(self) -> &'static str {
        self.row().0
    }

    /// Whether the action may have had an effect in spite of the failure.
    pub fn leaves_doubt(self) -> bool {
        self.row().1
    }

    /// Whether the same call may succeed later, although nothing changes but the time.
    pub(crate) fn may_pass(self) -> bool {
        matches!(self, Self::Timeout | Self::Unavailable)
    }

    /// Whether the tool's own output is kept with the run. An output that breaks the tool's contract is not
    /// kept, so that it cannot be taken for a result; its digest is enough to identify it.
    pub(crate) fn keeps_what_was_said(self) -> bool {
        self != Self::OutputInvalid
    }
}

#[cfg(test)]
mod tests;
