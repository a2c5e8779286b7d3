//! One suite over every engine, and what is each engine's alone.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod desk;
mod server;
mod announcements;
mod backup;
mod budgets;
mod conformance;
mod cursors;
mod differential;
mod erasable;
mod faults;
mod keys;
mod lease_statements;
mod listings;
mod migrations;
mod older_keys;
mod postgres_nodes;
mod postgres_servers;
mod postgres_triggers;
mod refusals;
mod simulated_nodes;
mod sealed;
mod sqlite_files;
mod sqlite_triggers;
mod steps;
mod unfolded;
