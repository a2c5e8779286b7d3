//! Storage: the contract of `stepgate_core::ports::Store` over two SQL engines, and in memory.
//!
//! What a write changes is decided in one place, in `plan`, by a pure function. An engine reads the few
//! facts that the plan asks for and writes the rows that it describes. So the engines cannot disagree on
//! what is legal, and only this crate contains SQL.

mod plan;
mod tables;
mod rows;
mod new_rows;
pub mod pack;
mod payload_keys;
mod chunk;
mod moving;
mod search;
mod select;
mod locks;
mod announcer;
mod sql;
pub mod backup;
pub mod memory;
pub mod sqlite;
pub mod postgres;
pub mod faulty;

pub use backup::{BackupError, RowCounts};
pub use faulty::{Faults, FaultyStore, StopAt};
pub use memory::MemoryStore;
pub use payload_keys::PayloadKeys;
pub use postgres::{PostgresOptions, PostgresStore, Restoring};
pub use sql::SqlStore;
pub use sqlite::{OpenError, SqliteOptions, SqliteStore};

/// What the store answers.
type Result<T, E = stepgate_core::ports::StoreError> = std::result::Result<T, E>;
