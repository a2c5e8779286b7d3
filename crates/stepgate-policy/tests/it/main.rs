//! The policies as the gate and its operators meet them: directories in, decisions out.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a test that cannot be set up should stop"
)]

mod world;
mod decisions;
mod arguments;
mod decimals;
mod annotations;
mod validation;
mod definitions;
mod differential;
mod directories;
mod budgets;
mod erasable;
mod cases;
mod explanations;
mod facts;
mod live;
mod offers;
mod defaults;
mod docs;
mod random;
