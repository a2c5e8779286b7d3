//! The tables of a backup, column by column, for copying a store from one engine to another.
//!
//! A backup is a SQLite database with the store's own tables, whatever engine it was made from. Rows are
//! copied unchanged, with their positions: readers of events continue where they were, and `verify` finds in
//! the copy what it finds in the store. Data of processes is left out: nodes, leases, owners, epochs.

use std::collections::BTreeMap;
use std::error::Error;

/// How many rows of each table there are.
pub type RowCounts = BTreeMap<String, u64>;

/// Why a backup failed. Each message gives the remedy.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// A store cannot be opened: the source, the copy, or the database to restore into.
    #[error(transparent)]
    Open(Box<dyn Error + Send + Sync>),
    /// A store exists already where one should be created.
    #[error(
        "there is a store at `{shown}` already; a backup is restored into an empty database alone: make one with `createdb`, and name it"
    )]
    NotEmpty {
        /// Where, without a password.
        shown: String,
    },
    /// A row does not fit its table.
    #[error("{table}, column {column}: {why}; `stepgate verify` names the row")]
    Row {
        /// The table.
        table: &'static str,
        /// The column.
        column: &'static str,
        /// What is there instead.
        why: String,
    },
    /// The server does not answer.
    #[error(
        "PostgreSQL at `{shown}` was silent for {seconds} s; check the server and its network, and begin again"
    )]
    Silent {
        /// Where, without a password.
        shown: String,
        /// For how long.
        seconds: u64,
    },
}

/// The type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Number,
    Text,
    /// A text from outside Stepgate, which PostgreSQL stores escaped.
    FreeText,
    Bytes,
}

/// A table in a backup.
#[derive(Debug)]
pub(crate) struct CopiedTable {
    pub(crate) name: &'static str,
    /// INVARIANT: the first is `position`, by which the rows are ordered.
    pub(crate) columns: &'static [(&'static str, Kind)],
}

impl CopiedTable {
    /// The columns, as a statement names them.
    pub(crate) fn names(&self) -> String {
        let names: Vec<_> = self.columns.iter().map(|(name, _)| *name).collect();
        names.join(", ")
    }
}

/// One value of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Cell {
    Nothing,
    Number(i64),
    Text(String),
    Bytes(Vec<u8>),
}

impl Cell {
    /// Its approximate size in memory.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Nothing | Self::Number(_) => 8,
            Self::Text(text) => text.len(),
            Self::Bytes(bytes) => bytes.len(),
        }
    }
}

use Kind::{Bytes, FreeText, Number, Text};

/// Every table of a store, except those with data of processes.
pub(crate) const TABLES: [CopiedTable; 10] = [
    CopiedTable {
        name: "sessions",
        columns: &[
            ("position", Number),
            ("session_id", Text),
            ("principal_id", Text),
            ("kind", Text),
            ("ts", Text),
            ("node_id", Text),
            ("head_number", Number),
            ("head_digest", Text),
            ("last_step_index", Number),
        ],
    },
    CopiedTable {
        name: "tool_runs",
        columns: &[
            ("position", Number),
            ("tool_run_id", Text),
            ("ts", Text),
            ("session_id", Text),
            ("principal_id", Text),
            ("step_index", Number),
            ("tool_name", FreeText),
            ("status", Text),
            ("input_json", Text),
            ("output_json", Text),
            ("error_json", Text),
            ("latency_ms", Number),
            ("payload_bytes", Number),
            ("payload", Bytes),
        ],
    },
    CopiedTable {
        name: "journal",
        columns: &[
            ("position", Number),
            ("trace_id", Text),
            ("sequence_number", Number),
            ("prev_entry_digest", Text),
            ("entry_digest", Text),
            ("ts", Text),
            ("from_state", Text),
            ("to_state", Text),
            ("artifact_type", Text),
            ("artifact_id", Text),
            ("artifact_digest", Text),
            ("tool_call_id", Text),
            ("idempotency_key", Text),
            ("artifact", Text),
            ("link_number", Number),
            ("link_prev", Text),
            ("link_digest", Text),
        ],
    },
    CopiedTable {
        name: "records",
        columns: &[
            ("position", Number),
            ("tool_run_id", Text),
            ("record", Text),
            ("record_digest", Text),
            ("link_number", Number),
            ("link_prev", Text),
            ("link_digest", Text),
        ],
    },
    CopiedTable {
        name: "checkpoints",
        columns: &[
            ("position", Number),
            ("trace_id", Text),
            ("checkpoint_sequence_number", Number),
            ("checkpoint_state", Text),
            ("checkpoint_digest", Text),
            ("ts", Text),
        ],
    },
    CopiedTable {
        name: "approvals",
        columns: &[
            ("position", Number),
            ("approval_id", Text),
            ("tool_run_id", Text),
            ("ts_requested", Text),
            ("ts_resolved", Text),
            ("status", Text),
            ("approval_context_json", Text),
            ("approver_id", Text),
            ("note", FreeText),
        ],
    },
    CopiedTable {
        name: "events",
        columns: &[
            ("position", Number),
            ("event_id", Text),
            ("ts", Text),
            ("session_id", Text),
            ("tool_run_id", Text),
            ("event_type", Text),
            ("payload_json", Text),
            ("sequence_number", Number),
            ("link_number", Number),
            ("link_prev", Text),
            ("link_digest", Text),
        ],
    },
    CopiedTable {
        name: "effects",
        columns: &[
            ("position", Number),
            ("idempotency_key", Text),
            ("tool_server", Text),
            ("tool_name", Text),
            ("asked_digest", Text),
            ("trace_id", Text),
            ("settled", Number),
        ],
    },
    CopiedTable {
        name: "sealed_payloads",
        columns: &[("position", Number), ("tool_run_id", Text), ("payload", Bytes)],
    },
    CopiedTable {
        name: "cursors",
        columns: &[("position", Number), ("name", Text), ("reached", Number), ("error", FreeText)],
    },
];

#[cfg(test)]
mod tests;
