//! The process at the other end of the data directory's socket, as the kernel describes it, and whether a person
//! can be at its terminal.
//!
//! The socket proves the user, but an agent often runs as the same user. So a request without a token may decide only
//! if its process is in the foreground of a terminal and does not belong to an agent. These belong to an agent: all
//! descendants of the gateway; all descendants of a client that uses MCP over the socket; and that client's own
//! terminal. This stops an agent that types the command into its shell. It does not stop a process that opens its own
//! terminal, detaches itself and attacks the gateway on purpose: for that, run the gateway as another user.

mod clients;

use std::fs;

pub(crate) use clients::{Clients, NoPerson};

/// Most ancestors that are examined. With a longer chain, no person is assumed.
const ANCESTORS_MAX: usize = 256;

/// One process, identified by pid and start time, because the kernel reuses pids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    pid: i32,
    /// In clock ticks since the machine started.
    started: u64,
}

impl Process {
    /// The process that has this pid now.
    pub(crate) fn of(pid: i32) -> Option<Self> {
        Kernel.facts(pid).map(|facts| facts.process)
    }

    /// This process itself.
    pub fn this() -> Option<Self> {
        Self::of(our_pid())
    }

    /// Whether the other process is not a descendant of this process.
    pub(crate) fn is_foreign_to_us(self) -> bool {
        is_foreign(&Kernel, self, our_pid())
    }
}

/// What our standard input is connected to. The client tells the gateway: a non-dumpable process hides it from other
/// processes of the same user.
pub fn our_input() -> Option<String> {
    Kernel.input(our_pid())
}

fn our_pid() -> i32 {
    rustix::process::getpid().as_raw_nonzero().get()
}

/// What the kernel says about a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Facts {
    process: Process,
    /// 0 for the init process, or if the parent is in another pid namespace.
    parent: i32,
    group: i32,
    /// The pid of the session leader; 0 if it is in another pid namespace.
    session: i32,
    /// The controlling terminal; 0 for none.
    terminal: i32,
    /// The process group in the terminal's foreground.
    foreground: i32,
}

impl Facts {
    /// Parses `/proc/PID/stat`. The name is in parentheses and can itself contain any character.
    fn parse(pid: i32, stat: &str) -> Option<Self> {
        let (_, fields) = stat.rsplit_once(')')?;
        let fields: Vec<&str> = fields.split_whitespace().collect();
        let number = |index: usize| fields.get(index)?.parse::<i32>().ok();
        Some(Self {
            process: Process { pid, started: fields.get(19)?.parse().ok()? },
            parent: number(1)?,
            group: number(2)?,
            session: number(3)?,
            terminal: number(4)?,
            foreground: number(5)?,
        })
    }
}

/// Where the facts come from; tests replace it.
trait Processes {
    fn facts(&self, pid: i32) -> Option<Facts>;
    /// What standard input is connected to, if that is a pipe or a socket.
    fn input(&self, pid: i32) -> Option<String>;
    /// The program that a process runs.
    fn program(&self, pid: i32) -> Option<String>;
}

struct Kernel;

impl Processes for Kernel {
    fn facts(&self, pid: i32) -> Option<Facts> {
        Facts::parse(pid, &fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    fn input(&self, pid: i32) -> Option<String> {
        let input = link(&format!("/proc/{pid}/fd/0"))?;
        (input.starts_with("pipe:") || input.starts_with("socket:")).then_some(input)
    }

    fn program(&self, pid: i32) -> Option<String> {
        link(&format!("/proc/{pid}/exe"))
    }
}

fn link(path: &str) -> Option<String> {
    Some(fs::read_link(path).ok()?.to_string_lossy().into_owned())
}

/// A process and its ancestors, nearest first. None if the chain cannot be followed to its end.
fn lineage(processes: &impl Processes, pid: i32) -> Option<Vec<Facts>> {
    let (mut line, mut next) = (Vec::new(), pid);
    for _ in 0..ANCESTORS_MAX {
        let facts = processes.facts(next)?;
        line.push(facts);
        match facts.parent {
            0 => return Some(line),
            parent => next = parent,
        }
    }
    None
}

/// Whether no ancestor of a process is `us`. False if that cannot be determined.
fn is_foreign(processes: &impl Processes, process: Process, us: i32) -> bool {
    lineage(processes, process.pid).is_some_and(|line| {
        line.first().is_some_and(|facts| facts.process == process)
            && line.iter().skip(1).all(|facts| facts.process.pid != us)
    })
}

#[cfg(test)]
mod tests;
