//! The agent pipeline, seen from outside.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test stops where something is not as it should be"
)]

mod spec_003;
