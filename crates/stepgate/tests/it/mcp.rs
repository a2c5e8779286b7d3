//! The MCP door of the real binary: what it offers, what a call is, who waits how, and what is lost.

mod approvals;
mod beside;
pub(crate) mod client;
mod cut;
mod door;
mod hostile;
mod lost;
mod sessions;
mod stdio;
mod questions;
mod versions;
mod words;
