//! Log entries, and the only check of whether an entry continues a journal.

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::ids::{ArtifactId, IdempotencyKey, RunId};
use crate::machine::{self, Move, State};
use crate::time::Timestamp;

use super::artifact::{Artifact, Kind, Sealed};
use super::{Reference, StateCode, StateError};

/// An entry with the artifact that it is about: one row, one commit (I7).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Appended {
    /// The entry.
    pub entry: Entry,
    /// Its artifact.
    pub artifact: Sealed,
}

/// One transition of a trace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "JournalEntry")]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// Digest of the artifact.
    pub artifact_digest: Digest,
    /// The artifact.
    pub artifact_id: ArtifactId,
    /// Which of the four it is.
    pub artifact_type: Kind,
    /// SHA-256 of the RFC 8785 form of every other field.
    pub entry_digest: Digest,
    /// The state before.
    pub from_state: State,
    /// The idempotency key, for a call and for its effect.
    pub idempotency_key: Option<IdempotencyKey>,
    /// Digest of the entry before; zeros for the first.
    pub prev_entry_digest: Digest,
    /// `talos.tga.execution_log_entry`.
    pub schema_id: Cow<'static, str>,
    /// `v1`.
    pub schema_version: Cow<'static, str>,
    /// From 1, without gaps.
    pub sequence_number: u64,
    /// The state after.
    pub to_state: State,
    /// The id of the call, for a call and for its effect.
    pub tool_call_id: Option<ArtifactId>,
    /// The trace.
    pub trace_id: RunId,
    /// When the artifact was made.
    pub ts: Timestamp,
}

/// The fields that the entry digest covers, in canonical order.
#[derive(Serialize)]
#[serde(remote = "Entry")]
struct Fields {
    artifact_digest: Digest,
    artifact_id: ArtifactId,
    artifact_type: Kind,
    #[serde(skip)]
    entry_digest: Digest,
    from_state: State,
    idempotency_key: Option<IdempotencyKey>,
    prev_entry_digest: Digest,
    schema_id: Cow<'static, str>,
    schema_version: Cow<'static, str>,
    sequence_number: u64,
    to_state: State,
    tool_call_id: Option<ArtifactId>,
    trace_id: RunId,
    ts: Timestamp,
}

#[derive(Serialize)]
struct Covered<'a>(#[serde(serialize_with = "Fields::serialize")] &'a Entry);

impl Entry {
    /// The schema of an entry.
    pub const SCHEMA_ID: &'static str = "talos.tga.execution_log_entry";
    /// Its version.
    pub const SCHEMA_VERSION: &'static str = "v1";

    /// The entry that appends `artifact` to a journal with this tail.
    pub(super) fn after(
        tail: &Tail,
        trace_id: RunId,
        to_state: State,
        artifact: &Sealed,
        tool_call_id: Option<ArtifactId>,
        idempotency_key: Option<IdempotencyKey>,
    ) -> Self {
        let mut entry = Self {
            artifact_digest: artifact.digest,
            artifact_id: artifact.id,
            artifact_type: artifact.kind,
            entry_digest: Digest::ZERO,
            from_state: tail.state.unwrap_or(State::Pending),
            idempotency_key,
            prev_entry_digest: tail.entry_digest,
            schema_id: Self::SCHEMA_ID.into(),
            schema_version: Self::SCHEMA_VERSION.into(),
            sequence_number: tail.sequence_number + 1,
            to_state,
            tool_call_id,
            trace_id,
            ts: artifact.ts,
        };
        entry.entry_digest = entry.recomputed_digest();
        entry
    }

    /// How another artifact names that of this entry.
    pub(super) fn reference(&self) -> Reference {
        let Self { artifact_type: kind, artifact_id: id, artifact_digest: digest, ts, .. } = *self;
        Reference { kind, id, digest, ts }
    }

    /// Whether the digest is that of the other fields.
    pub fn has_its_digest(&self) -> bool {
        self.entry_digest == self.recomputed_digest()
    }

    /// The error for an entry whose digest does not match its fields.
    pub fn without_its_digest(&self) -> StateError {
        let detail =
            format!("entry {} does not have the digest of its fields", self.sequence_number);
        StateError::checksum(detail)
    }

    /// The digest that follows from the other fields.
    pub fn recomputed_digest(&self) -> Digest {
        Digest::of(&Covered(self))
    }
}

/// The end of a journal: all that is needed to check the next entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tail {
    /// The state; none before genesis.
    pub state: Option<State>,
    /// The last sequence number; 0 before genesis.
    pub sequence_number: u64,
    /// The last entry's digest; zeros before genesis.
    pub entry_digest: Digest,
}

impl Tail {
    /// The tail of a journal without entries.
    pub const EMPTY: Self = Self { state: None, sequence_number: 0, entry_digest: Digest::ZERO };

    /// The tail after this entry, or why the entry does not continue the journal. Checked in the
    /// fixed order: sequence, previous digest, transition, recomputed digest.
    ///
    /// Checks the entry alone; [`Appended::prove`] checks its artifact.
    pub fn accept(&self, entry: &Entry) -> Result<Self, StateError> {
        let next = self.accept_hashed(entry)?;
        if entry.has_its_digest() { Ok(next) } else { Err(entry.without_its_digest()) }
    }

    /// Like [`Tail::accept`], for an entry whose digest is known to be that of its fields.
    pub fn accept_hashed(&self, entry: &Entry) -> Result<Self, StateError> {
        if entry.sequence_number != self.sequence_number + 1 {
            return Err(StateError::new(
                StateCode::SequenceGap,
                format!("entry {} cannot follow {}", entry.sequence_number, self.sequence_number),
            ));
        }
        if entry.prev_entry_digest != self.entry_digest {
            return Err(StateError::checksum(format!(
                "entry {} does not name its predecessor's digest",
                entry.sequence_number
            )));
        }
        self.accept_transition(entry)?;
        Ok(Self {
            state: Some(entry.to_state),
            sequence_number: entry.sequence_number,
            entry_digest: entry.entry_digest,
        })
    }

    fn accept_transition(&self, entry: &Entry) -> Result<(), StateError> {
        let invalid = |why: &str| {
            let (from, to) = (entry.from_state, entry.to_state);
            Err(StateError::new(
                StateCode::InvalidTransition,
                format!("entry {}: {from} to {to}: {why}", entry.sequence_number),
            ))
        };
        let is_about_a_call = match entry.artifact_type {
            Kind::ActionRequest | Kind::SupervisorDecision => false,
            Kind::ToolCall | Kind::ToolEffect => true,
        };
        if is_about_a_call && (entry.tool_call_id.is_none() || entry.idempotency_key.is_none()) {
            return invalid("a call or an effect without tool_call_id and key");
        }
        match (self.state, entry.claimed_move()) {
            (None, None) => match (entry.from_state, entry.to_state, entry.artifact_type) {
                (State::Pending, State::Pending, Kind::ActionRequest) => Ok(()),
                _ => invalid("not a genesis"),
            },
            (Some(current), _) if current != entry.from_state => {
                invalid("the trace is in another state")
            }
            (Some(current), Some(by)) => match machine::next(current, by) {
                Ok(next) if next == entry.to_state => Ok(()),
                Ok(_) | Err(_) => invalid("not a transition of the machine"),
            },
            (Some(_), None) | (None, Some(_)) => invalid("a journal has one genesis, first"),
        }
    }
}

impl Entry {
    /// The move that the entry claims to make; its artifact must agree (see [`Appended::prove`]).
    pub fn claimed_move(&self) -> Option<Move> {
        match (self.artifact_type, self.to_state) {
            (Kind::ActionRequest, _) => None,
            (Kind::SupervisorDecision, State::Denied) => Some(Move::Deny),
            (Kind::SupervisorDecision, _) => Some(Move::Approve),
            (Kind::ToolCall, _) => Some(Move::Call),
            (Kind::ToolEffect, State::Completed) => Some(Move::Succeed),
            (Kind::ToolEffect, _) => Some(Move::Fail),
        }
    }
}

impl Appended {
    /// Proves the artifact: its text, its digest, and that the entry describes it correctly.
    pub fn prove(&self) -> Result<Artifact, StateError> {
        let entry = &self.entry;
        let (digest, artifact) = Sealed::read(entry.artifact_type, &self.artifact.text)?;
        let head = artifact.head();
        let describes_the_artifact = entry.artifact_digest == digest
            && entry.artifact_id == head.id
            && entry.ts == head.ts
            && entry.claimed_move() == artifact.as_move()
            && head.trace_id == entry.trace_id
            && artifact.is_called_by(entry.tool_call_id, entry.idempotency_key.as_ref())
            && entry.schema_id == Entry::SCHEMA_ID
            && entry.schema_version == Entry::SCHEMA_VERSION;
        if describes_the_artifact {
            Ok(artifact)
        } else {
            let detail = format!("entry {} does not describe its artifact", entry.sequence_number);
            Err(StateError::checksum(detail))
        }
    }
}
