//! The output of RECORD: spec 000's trace record, in canonical form, with the digests that bind it to the
//! other data of the step.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::failure::{Outcome, Phase};
use crate::ids::{PrincipalId, RunId, SessionId};
use crate::journal::artifact::Guarantee;
use crate::json::{Value, canonical, strict};
use crate::run::{Ending, Status};
use crate::time::Timestamp;

/// The trace record of one step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RecordBody {
    /// The action, where it could be read.
    pub action: Option<String>,
    /// Digest of the approval as decided.
    pub approval_digest: Option<Digest>,
    /// The arguments, long strings as length and digest.
    #[serde(deserialize_with = "strict::nullable_value")]
    pub args_summary: Option<Value>,
    /// When the step ended.
    pub completed_at: Timestamp,
    /// The variable detail behind the error code.
    pub detail: Option<String>,
    /// The code, where the step failed.
    pub error_code: Option<String>,
    /// Digest of the step's events, in order.
    pub events_digest: Digest,
    /// How often the effect can have happened; none where there was no call.
    pub guarantee: Option<Guarantee>,
    /// The end of the journal; none where none was opened.
    pub last_entry_digest: Option<Digest>,
    /// The one outcome.
    pub outcome: Outcome,
    /// How many bytes came.
    pub payload_bytes: u64,
    /// Digest of the bytes that are kept.
    pub payload_digest: Digest,
    /// The phase, where the step failed.
    pub phase_failed_at: Option<Phase>,
    /// Who proposed.
    pub principal_id: PrincipalId,
    /// The proposal's id, where it could be read.
    pub proposal_id: Option<String>,
    /// The agent's reasoning; for audit alone.
    pub reasoning: Option<String>,
    /// When the payload came.
    pub received_at: Timestamp,
    /// Digest of the response as answered.
    pub response_digest: Digest,
    /// The run.
    pub run_id: RunId,
    /// The schema version, where it could be read.
    pub schema_version: Option<String>,
    /// The session.
    pub session_id: SessionId,
    /// The run's final status.
    pub status: Status,
    /// The step's index in its session.
    pub step_index: u64,
}

/// A record, with the ending that it gives to its run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The run.
    pub run_id: RunId,
    /// The record's canonical text.
    pub text: String,
    /// SHA-256 of the text: the body of the CLOSE link.
    pub digest: Digest,
    /// The run's final status.
    pub status: Status,
    /// The run's ending.
    pub ending: Ending,
}

impl Record {
    /// Seals a record.
    pub fn seal(body: &RecordBody, ending: Ending) -> Self {
        let text = canonical::text_of(body);
        let digest = Digest::of_bytes(text.as_bytes());
        Self { run_id: body.run_id, digest, text, status: body.status, ending }
    }

    /// Reads the text back.
    pub fn body(&self) -> Result<RecordBody, String> {
        serde_json::from_str(&self.text).map_err(|error| error.to_string())
    }
}

/// The arguments as the record repeats them (decision 17): long strings as length and digest.
pub fn args_summary(args: &Value, string_bytes_max: usize) -> Value {
    match args {
        Value::String(text) if text.len() > string_bytes_max => serde_json::json!({
            "bytes": text.len(),
            "sha256": Digest::of_bytes(text.as_bytes()),
        }),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => args.clone(),
        Value::Array(items) => {
            items.iter().map(|item| args_summary(item, string_bytes_max)).collect()
        }
        Value::Object(members) => members
            .iter()
            .map(|(name, value)| (name.clone(), args_summary(value, string_bytes_max)))
            .collect(),
    }
}
