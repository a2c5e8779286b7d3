//! Everything in Stepgate that decides, and nothing that acts.
//!
//! Read `step.rs` first: one step's way through the nine phases. The world enters through
//! `ports.rs`.

pub mod action;
pub mod approval;
pub mod digest;
pub mod event;
pub mod failure;
pub mod idempotency;
pub mod ids;
pub mod journal;
pub mod json;
pub mod limits;
pub mod machine;
pub mod path;
pub mod ports;
pub mod record;
pub mod run;
pub mod session;
pub mod time;
