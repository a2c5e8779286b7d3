//! The gateway: the gate as a running service.
//!
//! Start here: [`start`] puts it together in one function; [`service`] is what every interface uses. This crate
//! listens to no port, prints nothing and reads no configuration: interfaces are `stepgate-http` and
//! `stepgate-mcp`, and settings come from the program.

pub mod start;

pub mod catalog;
pub mod control;
pub mod hub;
pub mod service;
pub mod tokens;
pub mod turns;

pub mod attention;
pub mod durable;
pub mod panics;
pub mod run_object;
pub mod text;
pub mod world;
