//! The shape of `test_vectors/tga/state_transition_vectors.json`.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use stepgate_core::approval::ApprovalStatus;
use stepgate_core::digest::Digest;
use stepgate_core::ids::{ArtifactId, IdempotencyKey, RunId, SessionId};
use stepgate_core::journal::{Appended, Checkpoint, Entry, ExecutionState, Sealed};
use stepgate_core::json::canonical;

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Vectors {
    pub(crate) about: Vec<String>,
    pub(crate) traces: Vec<Trace>,
    pub(crate) appends: Vec<Append>,
    pub(crate) checkpoints: Vec<CheckpointCase>,
    pub(crate) recoveries: Vec<Recovery>,
}

/// A whole journal that is valid at every length.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Trace {
    pub(crate) name: String,
    pub(crate) trace_id: RunId,
    pub(crate) plan_id: SessionId,
    pub(crate) log: Vec<Row>,
    pub(crate) state: ExecutionState,
    pub(crate) checkpoint: Checkpoint,
}

/// An entry with its artifact.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Row {
    pub(crate) entry: Entry,
    pub(crate) artifact: Value,
}

/// The first entries of a trace.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Prefix {
    pub(crate) trace: String,
    pub(crate) entries: usize,
}

/// What is appended to a log, and `OK` or the code of its refusal.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Append {
    pub(crate) name: String,
    pub(crate) to: Prefix,
    pub(crate) row: Row,
    pub(crate) judged_by: Judge,
    pub(crate) expected: String,
}

/// How much must be looked at to see what is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Judge {
    /// The end of the log and the entry.
    Entry,
    /// The entry and its artifact.
    Artifact,
    /// The artifact and the one before it.
    Reference,
}

/// A checkpoint, the log that it is read with, and `OK` or the code of its refusal.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CheckpointCase {
    pub(crate) name: String,
    pub(crate) log: Prefix,
    pub(crate) checkpoint: Checkpoint,
    pub(crate) expected: String,
}

/// A log that a crash left behind, and what recovery does with it.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Recovery {
    pub(crate) name: String,
    pub(crate) log: Prefix,
    pub(crate) approval: Option<ApprovalStatus>,
    pub(crate) expected: String,
    /// The call and key that are used again, where one is.
    pub(crate) tool_call_id: Option<ArtifactId>,
    pub(crate) idempotency_key: Option<IdempotencyKey>,
}

impl Row {
    pub(crate) fn of(appended: &Appended) -> Self {
        let artifact = serde_json::from_str(&appended.artifact.text).unwrap();
        Self { entry: appended.entry.clone(), artifact }
    }

    /// The row as a store holds it. Nothing is proven yet, so only the text counts.
    pub(crate) fn appended(&self) -> Appended {
        let text = canonical::text_of(&self.artifact);
        let Entry { artifact_type: kind, artifact_id: id, ts, .. } = self.entry;
        Appended {
            entry: self.entry.clone(),
            artifact: Sealed { kind, id, ts, digest: Digest::ZERO, text },
        }
    }
}

impl Vectors {
    pub(crate) fn trace(&self, name: &str) -> &Trace {
        self.traces.iter().find(|trace| trace.name == name).unwrap()
    }

    pub(crate) fn rows(&self, prefix: &Prefix) -> &[Row] {
        &self.trace(&prefix.trace).log[..prefix.entries]
    }

    pub(crate) fn log(&self, prefix: &Prefix) -> Vec<Appended> {
        self.rows(prefix).iter().map(Row::appended).collect()
    }
}
