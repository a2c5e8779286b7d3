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
mod conformance;
mod faults;
mod listings;
mod refusals;
mod sealed;
mod sqlite_files;
mod sqlite_triggers;
