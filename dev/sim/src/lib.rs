//! The whole lifecycle of steps on several simulated nodes, driven by one seed.
//!
//! The core has no clock, chance, file or task of its own, so everything around it can be made up: a clock
//! that jumps, a store that loses answers, nodes that die and come back, tools that act and do not say so.
//! Whatever is random comes from the seed, so a seed that fails fails again, event by event.
//!
//! [`simulate`] runs one seed; `cargo xtask simulate` runs many. Nothing of this is in the shipped program.

mod run;
mod sweep;
mod weather;
mod environment;
mod world;
mod processes;
mod node;
mod people;
mod database;
mod node_store;
mod rehearsal;
mod files;
mod servers;
mod policy;
mod ledger;
mod end;
mod sabotage;
mod trace;
mod schedule;
mod signal;
mod chance;

use stepgate_core::lock::locked;

pub use rehearsal::Rehearsal;
pub use run::{Options, Outcome, simulate};
pub use sabotage::Sabotage;
pub use sweep::{Swept, sweep};
