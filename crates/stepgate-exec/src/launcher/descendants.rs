//! Ends what a command has started, wherever it has gone: whoever loses its parent becomes a child of
//! the watcher, so to end all children until there are none ends everything.

use std::fs;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, wait};

/// Ends every descendant of this process, which keeps what its descendants leave behind.
pub(super) fn end_all() {
    loop {
        end_children_of(getpid());
        // Every child was told to end, so there is one to wait for, or none is left. One that comes
        // meanwhile comes by the end of another, which this returns for.
        match wait(WaitOptions::empty()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return,
        }
    }
}

/// Ends the children of a process, and says how many there were.
pub(crate) fn end_children_of(parent: Pid) -> usize {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let children = pids.filter_map(Pid::from_raw).filter(|pid| parent_of(*pid) == Some(parent));
    // Whoever is gone already is gone.
    children.filter(|pid| kill_process(*pid, Signal::KILL).is_ok()).count()
}

/// The parent, as the kernel tells it: the second field after the name, which may hold anything.
fn parent_of(pid: Pid) -> Option<Pid> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(1)?.parse().ok().and_then(Pid::from_raw)
}
