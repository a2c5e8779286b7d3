//! `export`: one run as one JSON object that an auditor can verify without Stepgate.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::ids::{PrincipalId, RunId, SessionId};
use crate::journal::{Appended, Checkpoint, Entry, Replayed, Sealed, StateError, replay};
use crate::json::{Value, canonical, strict};
use crate::machine::State;
use crate::ports::Dossier;
use crate::record::{Record, RecordBody};
use crate::run::{Arrival, Ending, Payload, Run, Status};
use crate::session::{self, Link, LinkKind};
use crate::time::Timestamp;
use crate::verify::Problem;
use crate::verify::run::{Problems, opening_digest};

/// A self-contained run.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Bundle {
    /// The row.
    pub run: RunObject,
    /// The journal, in order.
    pub entries: Vec<Entry>,
    /// The artifacts that the entries are about, in the same order.
    #[serde(deserialize_with = "strict::values")]
    pub artifacts: Vec<Value>,
    /// The last checkpoint.
    pub checkpoint: Option<Checkpoint>,
    /// The opening in the session's chain, while there is no record: the record covers all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open: Option<OpenObject>,
    /// The record, where the step is over.
    pub record: Option<RecordObject>,
}

/// A run's row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Run")]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "the names are those of the columns")]
pub struct RunObject {
    pub tool_run_id: RunId,
    pub ts: Timestamp,
    pub session_id: SessionId,
    pub principal_id: PrincipalId,
    pub step_index: u64,
    pub tool_name: Option<String>,
    pub status: Status,
    pub input_json: Option<String>,
    pub output_json: Option<String>,
    pub error_json: Option<String>,
    pub latency_ms: Option<u64>,
    /// The stored payload, where it is text.
    pub payload: Option<String>,
    /// The payload as hex digits, where it is not.
    pub payload_hex: Option<String>,
    pub payload_bytes: u64,
}

/// What the OPEN link covers beside the row and the first entry, with its place in the session's chain.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "OpenLink")]
#[serde(deny_unknown_fields)]
pub struct OpenObject {
    /// Digest of the events of the opening.
    pub events_digest: Digest,
    /// Number of the OPEN link in the session's chain.
    pub link_number: u64,
    /// Digest of the link before.
    pub link_prev: Digest,
    /// Digest of the link.
    pub link_digest: Digest,
}

/// A record with its place in the session's chain.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Record")]
#[serde(deny_unknown_fields)]
pub struct RecordObject {
    /// The trace record.
    pub body: RecordBody,
    /// SHA-256 of its RFC 8785 form.
    pub digest: Digest,
    /// Number of the CLOSE link in the session's chain.
    pub link_number: u64,
    /// Digest of the link before.
    pub link_prev: Digest,
    /// Digest of the link.
    pub link_digest: Digest,
}

impl Bundle {
    /// The bundle of a run, whose stored texts must be readable.
    pub fn of(dossier: &Dossier) -> Result<Self, StateError> {
        let artifact = |appended: &Appended| {
            strict::stored(&appended.artifact.text)
                .map_err(|refusal| StateError::checksum(format!("artifact: {refusal}")))
        };
        let record = match &dossier.record {
            Some((record, link)) => Some(RecordObject {
                body: record.body().map_err(StateError::checksum)?,
                digest: record.digest,
                link_number: link.number,
                link_prev: link.prev,
                link_digest: link.digest,
            }),
            None => None,
        };
        let open_link = dossier.open_link.filter(|_| dossier.record.is_none());
        let open = open_link.map(|link| OpenObject {
            events_digest: opening_digest(dossier),
            link_number: link.number,
            link_prev: link.prev,
            link_digest: link.digest,
        });
        Ok(Self {
            run: RunObject::of(&dossier.run),
            entries: dossier.entries.iter().map(|appended| appended.entry.clone()).collect(),
            artifacts: dossier.entries.iter().map(artifact).collect::<Result<_, _>>()?,
            checkpoint: dossier.checkpoints.last().cloned(),
            open,
            record,
        })
    }

    /// Reads an exported bundle and requires every member as it was exported. A member that is missing or
    /// spelled differently would change the digest for a reader who computes it without Stepgate.
    pub fn read(value: &Value) -> Result<Self, String> {
        let bundle = Self::deserialize(value).map_err(|error| error.to_string())?;
        let exported = serde_json::to_value(&bundle).map_err(|error| error.to_string())?;
        match difference(value, &exported) {
            None => Ok(bundle),
            Some(place) => Err(format!("`{place}` is not as it was exported")),
        }
    }

    /// Recomputes everything that the bundle says about itself.
    pub fn verify(&self) -> Vec<Problem> {
        let run = match self.run.as_run() {
            Ok(run) => run,
            Err(why) => return vec![Problem::new("run", why)],
        };
        let mut problems = Problems::about(&run);
        if RunObject::of(&run) != self.run {
            problems.found.push(Problem::new("run", "is not written as it was exported"));
        }
        let replayed = self.appended().and_then(|entries| replay(&entries));
        let Some(replayed) = problems.note("entries", replayed) else {
            return problems.found;
        };
        problems.journal(&replayed);
        problems.payload(&replayed);
        problems.checkpoints(self.checkpoint.as_slice(), &replayed, self.record.is_some());
        if let Some(record) = &self.record {
            let (read, link) = record.stored(&run);
            if let Some(body) = problems.body(&read) {
                problems.record(&body, &replayed);
            }
            let RecordBody { session_id, run_id, .. } = record.body;
            if !link.links(session_id, LinkKind::Close, Some(run_id), record.digest) {
                problems.found.push(Problem::new("record", "the link has another digest"));
            }
            if self.open.is_some() {
                problems.found.push(Problem::new("open", "is there beside a record"));
            }
        } else {
            problems.found.extend(self.unfinished(&replayed));
            if !self.open_holds(&run) {
                problems.found.push(Problem::new("open", "is missing, or has another digest"));
            }
        }
        problems.found
    }

    /// A run without a record has no ending, and the status that its journal and its pause imply.
    fn unfinished(&self, replayed: &Replayed) -> Option<Problem> {
        let run = &self.run;
        let RunObject { output_json, error_json, latency_ms, .. } = run;
        if output_json.is_some() || error_json.is_some() || latency_ms.is_some() {
            return Some(Problem::new("run", "has an ending and no record"));
        }
        let decision = replayed.decision.as_ref();
        let was_approved = decision.is_some_and(|decision| decision.meta.approval_id.is_some());
        let expected = match replayed.tail.state {
            None => return Some(Problem::new("record", "there is neither journal nor record")),
            Some(State::Completed | State::Failed | State::Denied) => {
                return Some(Problem::new("record", "the journal has ended and there is none"));
            }
            // A checkpoint before the end means that the step paused for a person.
            Some(State::Pending) if self.checkpoint.is_some() => Status::ApprovalRequired,
            Some(State::Authorized | State::Executing) if was_approved => Status::Approved,
            Some(State::Pending | State::Authorized | State::Executing) => Status::Started,
        };
        let what = format!("status is not `{}`", expected.as_str());
        (run.status != expected).then(|| Problem::new("run", what))
    }

    /// Whether the OPEN link is that of the row and the first entry.
    fn open_holds(&self, run: &Run) -> bool {
        let (Some(open), Some(genesis)) = (&self.open, self.entries.first()) else { return false };
        let body =
            session::open_body(genesis.entry_digest, run.arrival_digest(), open.events_digest);
        let Arrival { session_id, run_id, .. } = run.arrival;
        let OpenObject { link_number: number, link_prev: prev, link_digest: digest, .. } = *open;
        Link { number, prev, digest }.links(session_id, LinkKind::Open, Some(run_id), body)
    }

    /// The row and the journal, as the store has them.
    pub(crate) fn rows(&self) -> Result<(Run, Vec<Appended>), StateError> {
        Ok((self.run.as_run().map_err(StateError::checksum)?, self.appended()?))
    }

    fn appended(&self) -> Result<Vec<Appended>, StateError> {
        if self.entries.len() != self.artifacts.len() {
            return Err(StateError::checksum("entries and artifacts differ in number"));
        }
        self.entries
            .iter()
            .zip(&self.artifacts)
            .map(|(entry, artifact)| {
                let text = canonical::text_of(artifact);
                let (artifact, _) = Sealed::open(entry.artifact_type, &text)?;
                Ok(Appended { entry: entry.clone(), artifact })
            })
            .collect()
    }
}

impl RecordObject {
    /// The record of this run, and its link.
    pub(crate) fn stored(&self, run: &Run) -> (Record, Link) {
        let Self { link_number: number, link_prev: prev, link_digest: digest, .. } = *self;
        let sealed = Record::seal(&self.body, run.ending.clone().unwrap_or_default());
        let record = Record { digest: self.digest, status: run.status, ..sealed };
        (record, Link { number, prev, digest })
    }
}

/// Where two values differ first, as a path of members.
fn difference(given: &Value, exported: &Value) -> Option<String> {
    let below = |step: String, inner: String| match inner.as_str() {
        "" => step,
        deeper if deeper.starts_with('[') => format!("{step}{deeper}"),
        deeper => format!("{step}.{deeper}"),
    };
    match (given, exported) {
        (Value::Object(given), Value::Object(exported)) => {
            let names = exported.keys().chain(given.keys());
            names.map(|name| (name, given.get(name), exported.get(name))).find_map(|it| match it {
                (name, Some(given), Some(exported)) => {
                    difference(given, exported).map(|inner| below(name.clone(), inner))
                }
                (name, _, _) => Some(name.clone()),
            })
        }
        (Value::Array(given), Value::Array(exported)) if given.len() == exported.len() => {
            let pairs = given.iter().zip(exported).enumerate();
            pairs.into_iter().find_map(|(at, (given, exported))| {
                difference(given, exported).map(|inner| below(format!("[{at}]"), inner))
            })
        }
        (given, exported) => {
            let is_same = canonical::text_of(given) == canonical::text_of(exported);
            (!is_same).then(String::new)
        }
    }
}

impl RunObject {
    /// A run's row as an object.
    pub fn of(run: &Run) -> Self {
        let arrival = &run.arrival;
        let bytes = &arrival.payload.bytes;
        let text = std::str::from_utf8(bytes).ok();
        let ending = run.ending.as_ref();
        Self {
            tool_run_id: arrival.run_id,
            ts: arrival.received_at,
            session_id: arrival.session_id,
            principal_id: arrival.principal_id.clone(),
            step_index: arrival.step_index,
            tool_name: run.tool_name.clone(),
            status: run.status,
            input_json: run.input_json.clone(),
            output_json: ending.and_then(|ending| ending.output_json.clone()),
            error_json: ending.and_then(|ending| ending.error_json.clone()),
            latency_ms: ending.map(|ending| ending.latency_ms),
            payload: text.map(str::to_owned),
            payload_hex: text.is_none().then(|| hex(bytes)),
            payload_bytes: arrival.payload.length,
        }
    }

    fn as_run(&self) -> Result<Run, &'static str> {
        let unreadable = "payload is given twice, not at all, or not as hex";
        let bytes: Arc<[u8]> = match (&self.payload, &self.payload_hex) {
            (Some(text), None) => text.as_bytes().into(),
            (None, Some(digits)) => from_hex(digits).ok_or(unreadable)?.into(),
            (Some(_), Some(_)) | (None, None) => return Err(unreadable),
        };
        let ending = self.latency_ms.map(|latency_ms| Ending {
            output_json: self.output_json.clone(),
            error_json: self.error_json.clone(),
            latency_ms,
        });
        Ok(Run {
            arrival: Arrival {
                run_id: self.tool_run_id,
                session_id: self.session_id,
                principal_id: self.principal_id.clone(),
                step_index: self.step_index,
                received_at: self.ts,
                payload: Payload { bytes, length: self.payload_bytes },
            },
            tool_name: self.tool_name.clone(),
            input_json: self.input_json.clone(),
            status: self.status,
            ending,
        })
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(digits: &str) -> Option<Vec<u8>> {
    let pairs = digits.as_bytes().chunks(2);
    pairs
        .map(|pair| {
            let pair = std::str::from_utf8(pair).ok().filter(|pair| pair.len() == 2)?;
            u8::from_str_radix(pair, 16).ok()
        })
        .collect()
}
