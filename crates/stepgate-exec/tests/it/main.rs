//! The sandbox on a real directory: every action, every failure, every rule, every crash; and tool
//! servers as real processes: every way in which they misbehave.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot be set up should stop"
)]

mod world;
mod actions;
mod failures;
mod rules;
mod permissions;
mod pre_state;
mod second_dispatch;
mod crashes;
mod sweep;
mod holds;
mod swaps;
mod copy;
mod servers;
