//! Everything in Stepgate that decides, and nothing that acts.
//!
//! Read `step.rs` first: one step's way through the nine phases. Everything outside the core is reached
//! through the traits in `ports.rs`.

pub mod gate;
pub mod step;
pub mod recover;
pub mod attention;
pub mod parts;
mod need;
pub mod late;
pub mod verify;
pub mod bundle;
pub mod history;
pub mod failure;
pub mod call;
pub mod action;
pub mod tool;
pub mod path;
mod spelled;
pub mod json;
pub mod sse;
pub mod text;
pub mod words;
pub mod machine;
pub mod journal;
pub mod record;
pub mod run;
pub mod approval;
pub mod approvers;
pub mod grant;
pub mod consent;
pub mod consent_cache;
pub mod system;
pub mod event;
pub mod session;
pub mod idempotency;
pub mod policy;
pub mod ports;
pub mod lease;
pub mod limits;
pub mod lock;
pub mod digest;
pub mod ids;
pub mod time;
