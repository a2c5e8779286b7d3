//! Ends every process that a command has started. A process that loses its parent becomes a child of the
//! watcher, so ending all children until none is left ends all descendants.

use std::fs;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, wait};

/// Ends every descendant of this process, which must be the subreaper of its descendants.
pub(super) fn end_all() {
    loop {
        end_children_of(getpid());
        // Every child was killed, so there is one to wait for, or none is left. A child that appears
        // meanwhile was orphaned by the end of another child, and `wait` returns for that one.
        match wait(WaitOptions::empty()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return,
        }
    }
}

/// Kills the children of a process and returns how many there were.
pub(crate) fn end_children_of(parent: Pid) -> usize {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let children = pids.filter_map(Pid::from_raw).filter(|pid| parent_of(*pid) == Some(parent));
    // A process that has ended already is not counted.
    children.filter(|pid| kill_process(*pid, Signal::KILL).is_ok()).count()
}

/// The parent's id in `/proc/PID/stat`: the second field after the name. The name may contain any character.
fn parent_of(pid: Pid) -> Option<Pid> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(1)?.parse().ok().and_then(Pid::from_raw)
}
