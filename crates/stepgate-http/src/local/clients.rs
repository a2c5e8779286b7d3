//! The clients that speak MCP over the socket, and who is none of theirs.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{Facts, Kernel, Process, Processes, lineage, our_pid};

/// Why a process without a token may not act for the operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoPerson {
    /// It is not in the foreground of a terminal.
    NoTerminal,
    /// It belongs to an agent's client, or to the gateway itself.
    Agents,
}

/// Every client that is still running.
#[derive(Debug, Default)]
pub(crate) struct Clients {
    known: Mutex<Vec<Client>>,
}

/// A program that started `stepgate mcp`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Client {
    bridge: Process,
    /// What counts: the rest is kept for as long as this process runs.
    process: Process,
    /// The processes whose descendants are the client's.
    line: Vec<Process>,
    /// The session of the terminal that the client runs in.
    session: Option<i32>,
}

impl Clients {
    /// Keeps in mind whose process speaks MCP here, and what it says that it reads from.
    pub(crate) fn note(&self, bridge: Process, said: Option<&str>) {
        if self.living(&Kernel).iter().any(|client| client.bridge == bridge) {
            return;
        }
        if let Some(client) = Client::of(&Kernel, bridge, said) {
            self.known().push(client);
        }
    }

    /// Whether a person can be at the terminal of this process.
    pub(crate) fn person_at(&self, process: Process) -> Result<(), NoPerson> {
        person_at(&Kernel, &self.living(&Kernel), process, our_pid())
    }

    fn living(&self, processes: &impl Processes) -> Vec<Client> {
        let is_running = |process: Process| {
            processes.facts(process.pid).is_some_and(|facts| facts.process == process)
        };
        let mut known = self.known();
        known.retain(|client| is_running(client.process));
        known.clone()
    }

    fn known(&self) -> MutexGuard<'_, Vec<Client>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Client {
    /// The client is the nearest ancestor that does not merely hand its own input down: `sh -c` and other
    /// wrappers do. In a terminal everything up to the session's leader is the client's. Elsewhere the
    /// ancestors that run the same program are: an editor starts `stepgate mcp` and its shells from
    /// different processes of its own.
    ///
    /// The bridge is Stepgate itself, which closes its own process: only to root the kernel tells what it reads
    /// from, and to others it says so itself.
    fn of(processes: &impl Processes, bridge: Process, said: Option<&str>) -> Option<Self> {
        let input = processes.input(bridge.pid).or_else(|| said.map(str::to_owned));
        let line = lineage(processes, bridge.pid)?;
        // The first process of the machine adopts what others leave behind, and is no client.
        let mut above = line.into_iter().skip(1).filter(|facts| facts.process.pid > 1).peekable();
        let is_wrapper =
            |facts: &Facts| input.is_some() && processes.input(facts.process.pid) == input;
        let mut processes_of_client = Vec::new();
        while let Some(wrapper) = above.next_if(is_wrapper) {
            processes_of_client.push(wrapper.process);
        }
        let Some(client) = above.next() else {
            return Some(Self { bridge, process: bridge, line: vec![bridge], session: None });
        };
        processes_of_client.push(client.process);
        let program = processes.program(client.process.pid);
        let is_same = |facts: &Facts| match client.terminal {
            0 => program.is_some() && processes.program(facts.process.pid) == program,
            _ => facts.session == client.session,
        };
        processes_of_client.extend(above.take_while(is_same).map(|facts| facts.process));
        let session = (client.terminal != 0).then_some(client.session);
        Some(Self { bridge, process: client.process, line: processes_of_client, session })
    }
}

/// A person can be there where the process is in the foreground of a terminal, and neither it nor the
/// leader of its session descends from the gateway or from a client, and the terminal is no client's. What
/// cannot be told is no.
fn person_at(
    processes: &impl Processes,
    clients: &[Client],
    process: Process,
    us: i32,
) -> Result<(), NoPerson> {
    let facts = processes.facts(process.pid).filter(|facts| facts.process == process);
    let facts = facts.ok_or(NoPerson::NoTerminal)?;
    if facts.terminal == 0 || facts.foreground != facts.group {
        return Err(NoPerson::NoTerminal);
    }
    let is_clients = |of: &Facts| clients.iter().any(|client| client.line.contains(&of.process));
    // The gateway itself may ask a person: `stepgate chat` does.
    let is_ours = |of: &Facts| of.process.pid == us && process.pid != us;
    let is_free = |pid: i32| {
        let line = lineage(processes, pid);
        line.is_some_and(|line| !line.iter().any(|of| is_clients(of) || is_ours(of)))
    };
    let is_terminal_free = clients.iter().all(|client| client.session != Some(facts.session));
    let is_leader_free = facts.session == 0 || is_free(facts.session);
    match is_terminal_free && is_leader_free && is_free(process.pid) {
        true => Ok(()),
        false => Err(NoPerson::Agents),
    }
}

#[cfg(test)]
mod tests;
