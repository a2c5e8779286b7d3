//! Checks the process at the other end of the data directory's socket.
//!
//! It must belong to the owner and must not be a descendant of this process: a tool server runs as the same user, and
//! only its ancestors distinguish it from that user at a terminal. The launcher adopts the orphans of a server, so a
//! process cannot escape by leaving its parents.

use rustix::process::{geteuid, getpid};
use tokio::net::UnixStream;

use crate::local::Process;

/// The process at the other end, if it belongs to the owner of the directory.
pub(super) fn owner(stream: &UnixStream) -> Option<Process> {
    let peer = stream.peer_cred().ok()?;
    if peer.uid() != geteuid().as_raw() {
        return None;
    }
    let process = Process::of(peer.pid()?)?;
    let is_us = peer.pid() == Some(getpid().as_raw_nonzero().get());
    (is_us || process.is_foreign_to_us()).then_some(process)
}
