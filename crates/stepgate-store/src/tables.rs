//! The tables that both SQL engines have, column by column, and the values of a row.

use std::borrow::Cow;
use std::collections::BTreeMap;

/// The type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Number,
    Text,
    /// A text from outside Stepgate, which PostgreSQL stores escaped.
    FreeText,
    Bytes,
}

/// A column with its type.
pub(crate) type Column<'a> = (&'a str, Kind);

/// A table, with the column that identifies its rows in messages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Table {
    pub(crate) name: &'static str,
    pub(crate) key: &'static str,
    /// INVARIANT: the first column of a table is `position`, by which the rows are ordered.
    pub(crate) columns: &'static str,
}

impl Table {
    /// `SELECT` of the columns, by name. With `*`, every running node would fail when the next version adds a
    /// column: in PostgreSQL a prepared statement must return the same columns as when it was prepared.
    pub(crate) fn select(&self) -> String {
        format!("SELECT {} FROM {}", self.columns, self.name)
    }

    /// The columns that the writer of a new row gives; the database gives the position.
    pub(crate) fn given(&self) -> &'static str {
        self.columns.strip_prefix("position, ").unwrap_or(self.columns)
    }

    /// These columns with their types.
    pub(crate) fn typed<'a>(&self, columns: &'a str) -> Vec<Column<'a>> {
        columns.split(", ").map(|column| (column, self.kind(column))).collect()
    }

    pub(crate) fn kind(&self, column: &str) -> Kind {
        match (self.name, column) {
            (_, column) if NUMBERS.split(", ").any(|number| number == column) => Kind::Number,
            (_, "payload")
            | ("chunks", "link_prev" | "link_digest" | "packed")
            | ("tool_runs", "asked_digest")
            | ("erasable_args", "args")
            | ("archived_runs", "binding_digest" | "links") => Kind::Bytes,
            ("tool_runs", "tool_name") | ("approvals", "note") | ("cursors", "error") => {
                Kind::FreeText
            }
            (_, _) => Kind::Text,
        }
    }
}

/// The columns with numbers, also those that only statements have.
const NUMBERS: &str = "position, head_number, last_step_index, step_index, latency_ms, \
                       payload_bytes, sequence_number, checkpoint_sequence_number, link_number, \
                       entries, checkpoints, records, settled, reached, owner, epoch, held, old_number, \
                       used, added, room, released, run_position, chunks, events, approvals, \
                       last_event";

/// One value of a row, or of a query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Cell<'a> {
    Nothing,
    Number(i64),
    Text(Cow<'a, str>),
    Bytes(Cow<'a, [u8]>),
}

impl Cell<'_> {
    /// The text of an id, a digest or an instant.
    pub(crate) fn text_of(value: impl ToString) -> Self {
        Self::Text(value.to_string().into())
    }

    /// Its approximate size in memory.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Nothing | Self::Number(_) => 8,
            Self::Text(text) => text.len(),
            Self::Bytes(bytes) => bytes.len(),
        }
    }
}

impl<'a> From<&'a str> for Cell<'a> {
    fn from(text: &'a str) -> Self {
        Self::Text(text.into())
    }
}

impl<'a> From<&'a [u8]> for Cell<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Self::Bytes(bytes.into())
    }
}

impl From<u64> for Cell<'_> {
    fn from(number: u64) -> Self {
        Self::Number(integer(number))
    }
}

impl<'a, T: Into<Self>> From<Option<T>> for Cell<'a> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Nothing, Into::into)
    }
}

/// A number in the type of both engines. Counts and indexes do not come near the limit.
pub(crate) fn integer(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

pub(crate) const SESSIONS: Table = Table {
    name: "sessions",
    key: "session_id",
    columns: "position, session_id, principal_id, kind, ts, node_id, head_number, \
              head_digest, last_step_index",
};

/// A run, with the binding of its key: the last five columns.
pub(crate) const TOOL_RUNS: Table = Table {
    name: "tool_runs",
    key: "tool_run_id",
    columns: "position, tool_run_id, ts, session_id, principal_id, step_index, tool_name, \
              status, input_json, output_json, error_json, latency_ms, payload_bytes, \
              payload, idempotency_key, tool_server, bound_tool, asked_digest, settled",
};

/// What each commit adds to a trace. `sequence_number` is that of its first entry, where it has one; the link
/// is the CLOSE of its record, or else the OPEN of its genesis.
pub(crate) const CHUNKS: Table = Table {
    name: "chunks",
    key: "trace_id",
    columns: "position, trace_id, sequence_number, entries, checkpoints, records, \
              link_number, link_prev, link_digest, packed",
};

/// An entry in a chunk: not a table, but what is packed of it, in this order.
pub(crate) const JOURNAL: Table = Table {
    name: "journal",
    key: "trace_id",
    columns: "sequence_number, from_state, to_state, artifact_type, tool_call_id, \
              idempotency_key, prev_entry_digest, entry_digest, ts, artifact_id, \
              artifact_digest, artifact",
};

/// A checkpoint in a chunk.
pub(crate) const CHECKPOINTS: Table = Table {
    name: "checkpoints",
    key: "trace_id",
    columns: "checkpoint_sequence_number, checkpoint_state, checkpoint_digest, ts",
};

/// A record in a chunk.
pub(crate) const RECORDS: Table =
    Table { name: "records", key: "tool_run_id", columns: "record, record_digest" };

pub(crate) const APPROVALS: Table = Table {
    name: "approvals",
    key: "tool_run_id",
    columns: "position, approval_id, tool_run_id, ts_requested, ts_resolved, status, \
              approval_context_json, approver_id, note",
};

pub(crate) const EVENTS: Table = Table {
    name: "events",
    key: "tool_run_id",
    columns: "position, event_id, ts, session_id, tool_run_id, event_type, payload_json, \
              sequence_number, link_number, link_prev, link_digest",
};

/// The keys whose binding is in no run's own row: those of runs of older versions, and of runs that have left the store.
pub(crate) const EFFECTS: Table = Table {
    name: "effects",
    key: "trace_id",
    columns: "position, idempotency_key, tool_server, tool_name, asked_digest, trace_id, \
              settled",
};

/// For messages about bindings that were looked for in both tables.
pub(crate) const BINDINGS: Table = Table { name: "bindings", columns: "", ..EFFECTS };

pub(crate) const SEALED_PAYLOADS: Table = Table {
    name: "sealed_payloads",
    key: "tool_run_id",
    columns: "position, tool_run_id, payload",
};

/// Arguments that are kept apart until they are erased.
pub(crate) const ERASABLE_ARGS: Table = Table {
    name: "erasable_args",
    key: "tool_run_id",
    columns: "position, tool_run_id, session_id, args",
};

pub(crate) const CURSORS: Table =
    Table { name: "cursors", key: "name", columns: "position, name, reached, error" };

pub(crate) const BUDGET_ACCOUNTS: Table = Table {
    name: "budget_accounts",
    key: "budget",
    columns: "position, budget, account_window, account_key, used",
};

/// What is kept of a run that has left the store for an archive.
pub(crate) const ARCHIVED_RUNS: Table = Table {
    name: "archived_runs",
    key: "tool_run_id",
    columns: "position, tool_run_id, session_id, archive_id, step_index, run_position, chunks, \
              events, approvals, binding_digest, links",
};

/// The same table, where its rows belong to no run.
pub(crate) const LOOSE_EVENTS: Table = Table { key: "event_id", ..EVENTS };

/// Every table of a store, except those with data of processes.
pub(crate) const TABLES: [Table; 11] = [
    SESSIONS,
    TOOL_RUNS,
    CHUNKS,
    APPROVALS,
    EVENTS,
    EFFECTS,
    SEALED_PAYLOADS,
    ERASABLE_ARGS,
    CURSORS,
    BUDGET_ACCOUNTS,
    ARCHIVED_RUNS,
];

/// Whose tables a database has, and their version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SchemaState {
    /// It has none of ours yet.
    Empty,
    /// A store of this version.
    Store(i64),
}

impl SchemaState {
    /// The migrations that lead to the newest version: the n-th of all leads to version n.
    pub(crate) fn missing<'a>(self, all: &'a [&'static str]) -> &'a [&'static str] {
        let done = match self {
            Self::Empty => 0,
            Self::Store(version) => usize::try_from(version).unwrap_or(usize::MAX),
        };
        all.get(done..).unwrap_or_default()
    }
}

/// How the parts of a schema differ from those that the migrations make, a line each. `the` stands before their names.
pub(crate) fn schema_differences<T: PartialEq>(
    the: &str,
    changed: &str,
    expected: &BTreeMap<String, T>,
    found: &BTreeMap<String, T>,
) -> Vec<String> {
    let mut differences = Vec::new();
    for (name, made) in expected {
        match found.get(name) {
            Some(same) if same == made => {}
            Some(_) => differences.push(format!("{the}{name} {changed}")),
            None => differences.push(format!("{the}{name} is missing")),
        }
    }
    for name in found.keys().filter(|name| !expected.contains_key(*name)) {
        differences.push(format!("{the}{name} is not one of ours"));
    }
    differences
}

#[cfg(test)]
mod tests;
