//! The clients that use MCP over the socket, and which processes do not belong to them.

use std::sync::{Mutex, MutexGuard};

use super::{Facts, Kernel, Process, Processes, lineage, our_pid};
use stepgate_core::lock;

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
    /// The client's own process: the entry is kept while it runs.
    process: Process,
    /// The processes whose descendants belong to the client.
    line: Vec<Process>,
    /// The session of the client's terminal, if it has one.
    session: Option<i32>,
}

impl Clients {
    /// Remembers the client behind a bridge. `said`: what the bridge says its standard input is connected to.
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
        lock::locked(&self.known)
    }
}

impl Client {
    /// Finds the client: the nearest ancestor that does not merely pass its own standard input on, as `sh -c` and
    /// other wrappers do. In a terminal, every ancestor up to the session leader belongs to the client. Without one,
    /// ancestors that run the same program do: an editor starts `stepgate mcp` and its shells from different
    /// processes of its own.
    ///
    /// The bridge is Stepgate itself, and its process is non-dumpable: the kernel shows its standard input only to
    /// root. Otherwise the bridge reports it itself.
    fn of(processes: &impl Processes, bridge: Process, said: Option<&str>) -> Option<Self> {
        let input = processes.input(bridge.pid).or_else(|| said.map(str::to_owned));
        let line = lineage(processes, bridge.pid)?;
        // The init process adopts orphans and is not a client.
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

/// A person can be there if the process is in the foreground of a terminal, neither it nor its session leader descends
/// from the gateway or a client, and the terminal is not a client's. An error if that cannot be determined.
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
    // The gateway process itself may ask a person: `stepgate chat` does.
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
