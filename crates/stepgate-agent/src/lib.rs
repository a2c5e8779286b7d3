//! Converses: spec 003's pipeline (AGN-036), and the model that it asks.
//!
//! Read `pipeline.rs` first: the three chains. `context.rs` has what a request becomes on its way, and
//! `validator.rs` every rule about it: no rule stands anywhere else. What is durable of a turn is in
//! `turn.rs`. Nothing here acts: what the model asks for goes through the gate, step by step.

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
