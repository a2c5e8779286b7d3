//! The gateway: the gate as a running service.
//!
//! Start here: [`start`] puts it together in one function; every interface uses [`service`]. This crate opens no
//! port, prints nothing and reads no configuration: the interfaces are `stepgate-http` and `stepgate-mcp`, and the
//! program passes the settings in.

pub mod start;

pub mod catalog;
pub mod control;
pub mod hub;
pub mod meters;
pub mod audit;
pub mod notify;
pub mod tls;
mod follow;
pub mod service;
pub mod tokens;
pub mod turns;

pub mod attention;
pub mod budgets;
pub mod differences;
pub mod disk;
pub mod durable;
pub mod panics;
pub mod replay;
pub mod request;
pub mod run_object;
pub use stepgate_core::text;
pub mod world;
