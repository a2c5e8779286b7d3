//! The agent pipeline, seen from outside.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::wildcard_enum_match_arm,
    reason = "a test stops where something is not as it should be"
)]

mod adversity;
mod chains;
mod desk;
mod spec_003;
mod waits;
