//! Proofs by a real solver, held against the engine that decides on real calls.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot be set up should stop"
)]

mod scenery;
mod planted;
mod changes;
mod random;
mod rules;
mod erasable;
mod enumerated;
mod open_facts;
mod solvers;
