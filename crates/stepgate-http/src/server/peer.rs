//! Who is at the other end of the data directory's socket.
//!
//! Its owner, and no process that this one has started: a tool server runs as the same user, and only its
//! ancestors tell it from that user at a terminal. The launcher keeps what a server leaves behind among
//! its own descendants, so going away from one's parents does not help.

use rustix::process::{geteuid, getpid};
use tokio::net::UnixStream;

use crate::local::Process;

/// The process at the other end, where it belongs to the owner of the directory.
pub(super) fn owner(stream: &UnixStream) -> Option<Process> {
    let peer = stream.peer_cred().ok()?;
    if peer.uid() != geteuid().as_raw() {
        return None;
    }
    let process = Process::of(peer.pid()?)?;
    let is_us = peer.pid() == Some(getpid().as_raw_nonzero().get());
    (is_us || process.is_foreign_to_us()).then_some(process)
}
