//! Converses: spec 003's pipeline (AGN-036).
//!
//! `context.rs` has what a request becomes on its way, and `validator.rs` every rule about it: no rule
//! stands anywhere else.

pub mod context;
pub mod validator;
pub mod invoke;
pub mod turn;
pub mod model;
pub mod response;
