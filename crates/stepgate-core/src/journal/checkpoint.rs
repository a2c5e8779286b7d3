//! Checkpoints and the state they fix (spec 004, I4).

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::ids::{RunId, SessionId};
use crate::machine::State;
use crate::time::Timestamp;

use super::Tail;

/// What a checkpoint fixes: the fold of the journal up to a sequence number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CheckpointState {
    /// The state.
    pub current_state: State,
    /// The last entry's digest.
    pub last_entry_digest: Digest,
    /// The last sequence number.
    pub last_sequence_number: u64,
    /// The session.
    pub plan_id: SessionId,
    /// The trace.
    pub trace_id: RunId,
}

/// A checkpoint: recovery compares it with the journal that it replays.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Checkpoint {
    /// SHA-256 of the RFC 8785 form of the state.
    pub checkpoint_digest: Digest,
    /// Where in the journal it stands.
    pub checkpoint_sequence_number: u64,
    /// What it fixes.
    pub checkpoint_state: CheckpointState,
    /// `talos.tga.execution_checkpoint`.
    pub schema_id: Cow<'static, str>,
    /// `v1`.
    pub schema_version: Cow<'static, str>,
    /// The trace.
    pub trace_id: RunId,
    /// When it was written.
    pub ts: Timestamp,
}

impl Checkpoint {
    /// The schema of a checkpoint.
    pub const SCHEMA_ID: &'static str = "talos.tga.execution_checkpoint";
    /// Its version.
    pub const SCHEMA_VERSION: &'static str = "v1";

    /// The checkpoint of a journal with this tail; none before genesis.
    pub fn of(trace_id: RunId, plan_id: SessionId, tail: &Tail, ts: Timestamp) -> Option<Self> {
        let checkpoint_state = CheckpointState {
            current_state: tail.state?,
            last_entry_digest: tail.entry_digest,
            last_sequence_number: tail.sequence_number,
            plan_id,
            trace_id,
        };
        Some(Self {
            checkpoint_digest: Digest::of(&checkpoint_state),
            checkpoint_sequence_number: tail.sequence_number,
            checkpoint_state,
            schema_id: Self::SCHEMA_ID.into(),
            schema_version: Self::SCHEMA_VERSION.into(),
            trace_id,
            ts,
        })
    }

    /// Whether it is a checkpoint of this version whose digest follows from the state and whose two
    /// copies of its place agree.
    pub fn is_sound(&self) -> bool {
        self.schema_id == Self::SCHEMA_ID
            && self.schema_version == Self::SCHEMA_VERSION
            && self.checkpoint_digest == Digest::of(&self.checkpoint_state)
            && self.checkpoint_sequence_number == self.checkpoint_state.last_sequence_number
            && self.trace_id == self.checkpoint_state.trace_id
    }

    /// Whether a journal that has this tail at the checkpoint's number is the one it fixed.
    pub fn fixes(&self, tail: &Tail) -> bool {
        let state = &self.checkpoint_state;
        tail.state == Some(state.current_state)
            && tail.entry_digest == state.last_entry_digest
            && tail.sequence_number == state.last_sequence_number
    }
}

/// The state of a trace as spec 004's `load_state` returns it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExecutionState {
    /// The state.
    pub current_state: State,
    /// The last entry's digest.
    pub last_entry_digest: Digest,
    /// The last sequence number.
    pub last_sequence_number: u64,
    /// The session.
    pub plan_id: SessionId,
    /// `talos.tga.execution_state`.
    pub schema_id: String,
    /// `v1`.
    pub schema_version: String,
    /// SHA-256 of the RFC 8785 form of every other field.
    pub state_digest: Digest,
    /// The trace.
    pub trace_id: RunId,
}

impl ExecutionState {
    /// The schema of a state.
    pub const SCHEMA_ID: &'static str = "talos.tga.execution_state";
    /// Its version.
    pub const SCHEMA_VERSION: &'static str = "v1";

    /// The state of a journal with this tail; none before genesis.
    pub fn of(trace_id: RunId, plan_id: SessionId, tail: &Tail) -> Option<Self> {
        let state = Self {
            current_state: tail.state?,
            last_entry_digest: tail.entry_digest,
            last_sequence_number: tail.sequence_number,
            plan_id,
            schema_id: Self::SCHEMA_ID.into(),
            schema_version: Self::SCHEMA_VERSION.into(),
            state_digest: Digest::ZERO,
            trace_id,
        };
        let mut covered = serde_json::to_value(&state).ok()?;
        covered.as_object_mut()?.remove("state_digest");
        Some(Self { state_digest: Digest::of(&covered), ..state })
    }
}
