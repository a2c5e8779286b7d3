//! Conversations: spec 003's pipeline (AGN-036), and the model that it asks.
//!
//! Read `pipeline.rs` first: the three chains. `context.rs` has the state of a request in progress, and
//! `validator.rs` every rule about it: there are no rules elsewhere. The durable part of a turn is in
//! `turn.rs`. Nothing here acts: every call of the model goes through the gate as a step.

pub mod pipeline;
pub mod flow;
pub mod envelope;
pub mod context;
pub mod validator;
mod steps;
pub mod turn;
mod turns;
pub mod waits;
pub mod cancel;
pub mod view;
pub mod model;
pub mod openai;
pub mod ports;
pub mod response;
pub mod invoke;
pub mod stop;
pub mod limits;
