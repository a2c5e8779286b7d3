//! The agent, end to end: a gateway as a process, a model as another (`tests/fixtures/model_endpoint.py`),
//! and a tool server as a third.

mod chains;
mod chat;
mod crashes;
mod library;
mod models;
mod page;
pub(crate) mod stage;
mod streams;
mod waits;
