//! The answer to the caller of a step. It is typed until [`Answer::body`] makes the text that is sent.

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::p3_validate_schema::SUPPORTED_VERSION_RANGE;
use crate::digest::Digest;
use crate::failure::{Failure, Outcome};
use crate::ids::{ApprovalId, ProposalId, RunId, SessionId};
use crate::journal::StateError;
use crate::json::{Value, canonical, strict};
use crate::need::Kind;
use crate::record::RecordBody;
use crate::run::{Notice, Run, Word};

/// The answer to the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The proposal's id, where it could be read.
    pub proposal_id: Option<ProposalId>,
    /// The action or tool, where it could be read.
    pub action: Option<String>,
    /// How the step ended, or why it has not.
    pub reply: Reply,
    /// The run.
    pub run_id: RunId,
    /// The session.
    pub session_id: SessionId,
    /// The step's index in it.
    pub step_index: u64,
    /// Whether this is the recorded answer to an earlier proposal with the same id.
    pub replayed: bool,
}

/// How a step ended, or why it has not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The step is over.
    Recorded(Recorded),
    /// A person is asked.
    ApprovalRequired(ApprovalId),
    /// The same proposal is still running; it may need a person.
    InProgress(Option<Kind>),
}

/// How a step ended. The response shows outcome, result and error; the rest is for interfaces that show
/// more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// The outcome.
    pub outcome: Outcome,
    /// The result, as the bytes of the response. Where the run failed, the error result of its tool, which
    /// is not part of the response.
    pub output_json: Option<String>,
    /// The error, where there is one.
    pub error: Option<ErrorBody>,
    /// The record's detail. Only parts of it may be shown to the caller.
    pub detail: Option<String>,
    /// The end of the journal, where there is one.
    pub last_entry_digest: Option<Digest>,
}

/// The error in the response. The version error has two more fields (decision 3).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "StepError")]
#[serde(deny_unknown_fields)]
pub struct ErrorBody {
    /// The code.
    pub error_code: String,
    /// The fixed message of the code.
    pub message: String,
    /// The version that the proposal names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub received_version: Option<String>,
    /// The versions that are understood.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub supported_version_range: Option<String>,
}

/// The response as a part of a larger object.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct StepResponse {
    /// The proposal's id, where it could be read.
    pub proposal_id: Option<String>,
    /// The action or tool, where it could be read.
    pub action: Option<String>,
    /// How the step ended, or why it has not.
    pub outcome: Word,
    /// The result of the action or tool; for a step that is not over, its run and its approval.
    pub result: Value,
    /// The error, where there is one.
    pub error: Option<ErrorBody>,
}

impl Answer {
    /// The response: one JSON object with five keys.
    pub fn body(&self) -> String {
        let error = self.error().map(ErrorBody::text);
        compose(
            self.proposal_id.as_ref().map(ProposalId::as_str),
            self.action.as_deref(),
            self.word(),
            self.result_json().as_deref(),
            error.as_deref(),
        )
    }

    /// The response as a part of a larger object.
    pub fn response(&self) -> StepResponse {
        StepResponse {
            proposal_id: self.proposal_id.as_ref().map(|id| id.as_str().to_owned()),
            action: self.action.clone(),
            outcome: self.word(),
            result: self.result(),
            error: self.error().cloned(),
        }
    }

    /// The outcome, or the notice.
    pub fn word(&self) -> Word {
        match &self.reply {
            Reply::Recorded(recorded) => Word::Outcome(recorded.outcome),
            Reply::ApprovalRequired(_) => Word::Notice(Notice::ApprovalRequired),
            Reply::InProgress(_) => Word::Notice(Notice::InProgress),
        }
    }

    /// Whether the step is not over.
    pub fn is_notice(&self) -> bool {
        matches!(self.word(), Word::Notice(_))
    }

    /// The approval that the step waits for.
    pub fn approval_id(&self) -> Option<ApprovalId> {
        match &self.reply {
            Reply::ApprovalRequired(approval_id) => Some(*approval_id),
            Reply::Recorded(_) | Reply::InProgress(_) => None,
        }
    }

    /// The error, where there is one.
    pub fn error(&self) -> Option<&ErrorBody> {
        match &self.reply {
            Reply::Recorded(recorded) => recorded.error.as_ref(),
            Reply::ApprovalRequired(_) | Reply::InProgress(_) => None,
        }
    }

    /// The value of the response's `result`.
    pub fn result(&self) -> Value {
        let run_id = self.run_id;
        match &self.reply {
            Reply::Recorded(recorded) => {
                let text = answered(recorded.outcome, recorded.output_json.as_deref());
                text.and_then(|text| strict::stored(text).ok()).unwrap_or_default()
            }
            Reply::ApprovalRequired(approval_id) => {
                serde_json::json!({ "approval_id": approval_id, "run_id": run_id })
            }
            Reply::InProgress(Some(kind)) => serde_json::json!({
                "message": kind.notice(),
                "needs_person": kind.as_str(),
                "run_id": run_id,
            }),
            Reply::InProgress(None) => serde_json::json!({ "run_id": run_id }),
        }
    }

    fn result_json(&self) -> Option<Cow<'_, str>> {
        match &self.reply {
            Reply::Recorded(recorded) => {
                answered(recorded.outcome, recorded.output_json.as_deref()).map(Cow::Borrowed)
            }
            Reply::ApprovalRequired(_) | Reply::InProgress(_) => {
                Some(Cow::Owned(canonical::text_of(&self.result())))
            }
        }
    }

    /// The answer of a run that is over: a view of its row and its record.
    ///
    /// Its body is the recorded text, byte for byte; otherwise this is an error.
    pub(super) fn recorded(run: &Run, body: &RecordBody) -> Result<Self, StateError> {
        let changed = || StateError::checksum("the recorded response has changed");
        let ending = run.ending.as_ref();
        let error_json = ending.and_then(|ending| ending.error_json.as_deref());
        let answer = Self {
            proposal_id: (body.proposal_id.as_deref().map(ProposalId::parse))
                .transpose()
                .map_err(|_| changed())?,
            action: body.action.clone(),
            reply: Reply::Recorded(Recorded {
                outcome: body.outcome,
                output_json: ending.and_then(|ending| ending.output_json.clone()),
                error: error_json
                    .map(|text| ErrorBody::stored(text).ok_or_else(changed))
                    .transpose()?,
                detail: body.detail.clone(),
                last_entry_digest: body.last_entry_digest,
            }),
            run_id: run.arrival.run_id,
            session_id: run.arrival.session_id,
            step_index: run.arrival.step_index,
            replayed: true,
        };
        match Digest::of_bytes(answer.body().as_bytes()) == body.response_digest {
            true => Ok(answer),
            false => Err(changed()),
        }
    }
}

impl ErrorBody {
    /// The error of a step that failed like this.
    pub fn of(failure: &Failure) -> Self {
        let received_version = if let Failure::SchemaVersionIncompatible(version) = failure {
            Some(version.clone())
        } else {
            None
        };
        Self {
            error_code: failure.code().to_owned(),
            message: failure.message().to_owned(),
            supported_version_range: received_version
                .as_ref()
                .map(|_| SUPPORTED_VERSION_RANGE.to_owned()),
            received_version,
        }
    }

    /// The bytes that are sent and stored.
    pub(super) fn text(&self) -> String {
        canonical::text_of(self)
    }

    /// Reads those bytes back; none where they are not exactly what [`Self::text`] writes.
    fn stored(text: &str) -> Option<Self> {
        let read: Self = serde_json::from_str(text).ok()?;
        (read.text() == text).then_some(read)
    }
}

/// The response to a recorded run, from the stored texts.
pub fn response_of(run: &Run, record: &RecordBody) -> String {
    let ending = run.ending.as_ref();
    compose(
        record.proposal_id.as_deref(),
        record.action.as_deref(),
        Word::Outcome(record.outcome),
        answered(record.outcome, ending.and_then(|ending| ending.output_json.as_deref())),
        ending.and_then(|ending| ending.error_json.as_deref()),
    )
}

/// The result in the response. A tool's error result is in the run's row, but not in the response, whose
/// error texts are fixed.
fn answered(outcome: Outcome, output_json: Option<&str>) -> Option<&str> {
    match outcome {
        Outcome::Success => output_json,
        Outcome::ValidationError | Outcome::Denied | Outcome::ExecutionError => None,
    }
}

/// Spec 000, RESPOND: "MUST follow a fixed response schema", "MUST include proposal_id (if
/// available)", "MUST include action (if available)".
fn compose(
    proposal_id: Option<&str>,
    action: Option<&str>,
    word: Word,
    result: Option<&str>,
    error: Option<&str>,
) -> String {
    format!(
        r#"{{"proposal_id":{},"action":{},"outcome":"{}","result":{},"error":{}}}"#,
        canonical::text_of(&proposal_id),
        canonical::text_of(&action),
        word.as_str(),
        result.unwrap_or("null"),
        error.unwrap_or("null"),
    )
}

#[cfg(test)]
mod tests;
