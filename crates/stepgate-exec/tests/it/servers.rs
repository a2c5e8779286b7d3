//! Tool servers, as processes and over HTTP.

mod house;
mod start;
mod calls;
mod failures;
mod late;
mod progress;
mod pins;
mod restarts;
mod processes;
mod confinement;
mod http;
