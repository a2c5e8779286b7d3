//! A backup is a SQLite database with the store's own tables, whatever engine it was made from. Rows are
//! copied unchanged, with their positions: readers of events continue where they were, and `verify` finds in
//! the copy what it finds in the store. Data of processes is left out: nodes, leases, owners, epochs.

use std::collections::BTreeMap;
use std::error::Error;

/// How many rows of each table there are.
pub type RowCounts = BTreeMap<String, u64>;

/// Why a backup failed. Each message gives the remedy.
#[derive(Debug, thiserror::Error)]
#[expect(
    missing_docs,
    reason = "`shown` is the URL without its password, and the messages say what the rest is"
)]
pub enum BackupError {
    /// A store cannot be opened: the source, the copy, or the database to restore into.
    #[error(transparent)]
    Open(Box<dyn Error + Send + Sync>),
    /// A store exists already where one should be created.
    #[error(
        "there is a store at `{shown}` already; a backup is restored into an empty database alone: make one with `createdb`, and name it"
    )]
    NotEmpty { shown: String },
    /// A row does not fit its table.
    #[error("{table}, column {column}: {why}; `stepgate verify` names the row")]
    Row { table: &'static str, column: &'static str, why: String },
    /// The server does not answer.
    #[error(
        "PostgreSQL at `{shown}` was silent for {seconds} s; check the server and its network, and begin again"
    )]
    Silent { shown: String, seconds: u64 },
}
