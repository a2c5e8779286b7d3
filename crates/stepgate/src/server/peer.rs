//! Who is at the other end of the data directory's socket.
//!
//! Its owner, and nobody that this process has started: a tool server runs as the same user, and
//! nothing but its ancestors tells it from that user at a terminal. The launcher keeps what a server
//! leaves behind among its own descendants, so going away from one's parents does not help.

use rustix::process::{geteuid, getpid};
use tokio::net::UnixStream;

/// Most ancestors that are looked at. A chain that is longer is not a user's.
const ANCESTORS_MAX: usize = 256;

/// Whether the process at the other end may act for the owner of the directory.
pub(super) fn is_owner(stream: &UnixStream) -> bool {
    let Ok(peer) = stream.peer_cred() else { return false };
    let is_same_user = peer.uid() == geteuid().as_raw();
    let us = getpid().as_raw_nonzero().get();
    is_same_user && peer.pid().is_some_and(|pid| pid == us || is_foreign(pid, us, parent_of))
}

/// Whether none of a process's ancestors is `us`. What cannot be told is no.
fn is_foreign(pid: i32, us: i32, parent_of: impl Fn(i32) -> Option<i32>) -> bool {
    let mut pid = pid;
    for _ in 0..ANCESTORS_MAX {
        match parent_of(pid) {
            Some(parent) if parent == us => return false,
            // The first process, or one whose parent is outside of our view of the machine.
            Some(0) => return true,
            Some(parent) => pid = parent,
            None => return false,
        }
    }
    false
}

/// The parent, as the kernel tells it: the second field after the name, which may hold anything.
fn parent_of(pid: i32) -> Option<i32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests;
