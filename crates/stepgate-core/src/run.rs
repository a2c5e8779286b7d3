//! A step as a run (spec 002): the row that people read. Every column can be recomputed.

use std::borrow::Cow;
use std::fmt::Display;
use std::sync::Arc;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::json;

use crate::digest::Digest;
use crate::failure::{ExecutionFailure, Failure, Outcome};
use crate::ids::{PrincipalId, RunId, SessionId};
use crate::spelled::spelled;
use crate::time::Timestamp;

spelled! {
    /// The lifecycle states of spec 002.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
    #[schemars(rename = "RunStatus")]
    #[serde(rename_all = "snake_case")]
    pub enum Status {
        /// Accepted; nothing finished yet.
        Started = "started",
        /// A person is asked.
        ApprovalRequired = "approval_required",
        /// A person approved; not finished yet.
        Approved = "approved",
        /// Done.
        Ok = "ok",
        /// Refused or failed.
        Error = "error",
        /// The tool's timeout passed.
        Timeout = "timeout",
        /// A person denied it, or the approval expired.
        Denied = "denied",
    }
}

impl Status {
    /// Whether a run with this status never changes again.
    pub fn is_final(self) -> bool {
        match self {
            Self::Started | Self::ApprovalRequired | Self::Approved => false,
            Self::Ok | Self::Error | Self::Timeout | Self::Denied => true,
        }
    }

    /// The final status of a step that ended like this (decision 19).
    pub fn of_ending(failure: Option<&Failure>) -> Self {
        match failure {
            None => Self::Ok,
            Some(Failure::Execution(ExecutionFailure::Timeout, _)) => Self::Timeout,
            Some(Failure::DeniedByOperator { .. } | Failure::ApprovalExpired) => Self::Denied,
            Some(
                Failure::EmptyPayload
                | Failure::PayloadTooLarge
                | Failure::InvalidJson(_)
                | Failure::SchemaVersionIncompatible(_)
                | Failure::InvalidProposal(_)
                | Failure::CommandExecution
                | Failure::ActionNotAllowed
                | Failure::InvalidArgs(_)
                | Failure::IdempotencyConflict
                | Failure::ResultArchived(_)
                | Failure::PolicyViolation(_)
                | Failure::TooManyApprovals(_)
                | Failure::RefusedAtExecution(_)
                | Failure::Execution(..),
            ) => Self::Error,
        }
    }
}

/// The received bytes. Beyond the limit only the beginning is kept; `length` is the full length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Payload {
    /// What is kept.
    pub bytes: Arc<[u8]>,
    /// How many bytes were received.
    pub length: u64,
}

impl Payload {
    /// A payload of which everything is kept.
    pub fn whole(bytes: impl Into<Arc<[u8]>>) -> Self {
        let bytes = bytes.into();
        let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        Self { bytes, length }
    }

    /// A proposal whose arguments are inserted as they are spelled: the parser judges them.
    pub fn proposal(id: impl Display, reasoning: &str, action: &str, args: impl Display) -> Self {
        let (id, reasoning, action) = (json!(id.to_string()), json!(reasoning), json!(action));
        let head = format!(r#""schema_version":"1.0.0","id":{id},"reasoning":{reasoning}"#);
        Self::whole(format!(r#"{{{head},"action":{action},"args":{args}}}"#).into_bytes())
    }
}

/// The part of a run that is fixed when it arrives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// The run, and its trace.
    pub run_id: RunId,
    /// The session.
    pub session_id: SessionId,
    /// Who proposed.
    pub principal_id: PrincipalId,
    /// Increasing within the session.
    pub step_index: u64,
    /// When it arrived. It decides nothing.
    pub received_at: Timestamp,
    /// The received payload.
    pub payload: Payload,
}

/// A row of `tool_runs`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// The part that is fixed on arrival.
    pub arrival: Arrival,
    /// The action or tool, where it could be read.
    pub tool_name: Option<String>,
    /// The arguments as asked, canonical, where they could be read.
    pub input_json: Option<String>,
    /// Where it stands.
    pub status: Status,
    /// How it ended.
    pub ending: Option<Ending>,
}

/// The part of a run that is fixed when it ends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ending {
    /// The result, as the bytes of the response. Where the run failed, the error result of its tool, which
    /// is not part of the response.
    pub output_json: Option<String>,
    /// The error, as the bytes of the response.
    pub error_json: Option<String>,
    /// From arrival to record, without the time that a person took to decide.
    pub latency_ms: u64,
}

/// The part of a run that a session's OPEN link covers.
#[derive(Serialize)]
struct ArrivalDigest<'a> {
    input_json: Option<&'a str>,
    payload_bytes: u64,
    payload_digest: Digest,
    principal_id: &'a PrincipalId,
    received_at: Timestamp,
    run_id: RunId,
    session_id: SessionId,
    step_index: u64,
    tool_name: Option<&'a str>,
}

impl Run {
    /// The digest of everything that is fixed when the run opens.
    pub fn arrival_digest(&self) -> Digest {
        let arrival = &self.arrival;
        Digest::of(&ArrivalDigest {
            input_json: self.input_json.as_deref(),
            payload_bytes: arrival.payload.length,
            payload_digest: Digest::of_bytes(&arrival.payload.bytes),
            principal_id: &arrival.principal_id,
            received_at: arrival.received_at,
            run_id: arrival.run_id,
            session_id: arrival.session_id,
            step_index: arrival.step_index,
            tool_name: self.tool_name.as_deref(),
        })
    }
}

/// What a response says while a step is not over, in place of one of the four outcomes (decision 1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// The step waits for a person.
    ApprovalRequired,
    /// The same proposal is still running.
    InProgress,
}

/// The value of a response's `outcome`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// The step is over.
    Outcome(Outcome),
    /// The step is not over.
    Notice(Notice),
}

impl Word {
    /// Every value.
    pub const ALL: [Self; 6] = [
        Self::Outcome(Outcome::Success),
        Self::Outcome(Outcome::ValidationError),
        Self::Outcome(Outcome::Denied),
        Self::Outcome(Outcome::ExecutionError),
        Self::Notice(Notice::ApprovalRequired),
        Self::Notice(Notice::InProgress),
    ];

    /// The spelling in the response.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Outcome(outcome) => outcome.as_str(),
            Self::Notice(Notice::ApprovalRequired) => "APPROVAL_REQUIRED",
            Self::Notice(Notice::InProgress) => "IN_PROGRESS",
        }
    }
}

impl Serialize for Word {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl JsonSchema for Word {
    fn schema_name() -> Cow<'static, str> {
        "StepOutcome".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let words: Vec<&str> = Self::ALL.map(Self::as_str).to_vec();
        json_schema!({ "type": "string", "enum": words })
    }
}
