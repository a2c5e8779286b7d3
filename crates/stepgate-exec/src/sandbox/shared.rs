//! Locks between the nodes that share one directory: lock files in it that no action can name. Each path
//! hashes to one of them.
//!
//! The kernel holds such a lock for as long as its process lives. If a node is paused in the middle of a
//! call, its successor waits instead of overwriting it; if a node is killed, its locks are released.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::fs::FlockOperation;
use rustix::io::Errno;
use stepgate_core::path::{SandboxPath, TEMPORARY_PREFIX};

use super::resolve::Root;

/// How many lock files there are. Two paths may share one, and then wait for each other.
const FILES: u64 = 256;

/// Poll interval for a lock that another node holds.
const ASK_AGAIN: Duration = Duration::from_millis(20);

/// Waits for the locks of all paths, in the same order on every node.
pub(super) async fn lock(root: &Root, paths: &[&SandboxPath]) -> Vec<OwnedFd> {
    let numbers: BTreeSet<u64> = paths.iter().map(|path| number(path.as_str())).collect();
    let mut held = Vec::with_capacity(numbers.len());
    for number in numbers {
        // Retries after any error: without the lock the call must not act.
        loop {
            match try_lock(root, number) {
                Ok(file) => break held.push(file),
                Err(_) => tokio::time::sleep(ASK_AGAIN).await,
            }
        }
    }
    held
}

fn try_lock(root: &Root, number: u64) -> Result<OwnedFd, Errno> {
    let file = root.own_file(&name(number))?;
    rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    Ok(file)
}

fn name(number: u64) -> String {
    format!("{TEMPORARY_PREFIX}lock-{number:02x}")
}

/// Whether one of Stepgate's own files is a lock file, and not left behind by a crash.
pub(super) fn is_lock(name: &str) -> bool {
    name.strip_prefix(TEMPORARY_PREFIX).is_some_and(|rest| rest.starts_with("lock-"))
}

/// A hash that is the same on every node (FNV-1a).
fn number(text: &str) -> u64 {
    let mix = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    text.as_bytes().iter().fold(0xcbf2_9ce4_8422_2325, mix) % FILES
}
