//! A PostgreSQL of the tests' own: made in a temporary directory, gone with the process that made it.
//!
//! PostgreSQL refuses to run as root, so root runs it as another user. A small shell stands between
//! this process and the server and reads from a pipe of ours: the pipe ends with this process, however
//! that ends, and then the shell stops the server and removes the directory.

mod patroni;
mod programs;
mod server;

pub use patroni::{Patroni, Port, TTL, has_patroni};
pub use programs::{Programs, find};
pub use server::{Cluster, Settings};
