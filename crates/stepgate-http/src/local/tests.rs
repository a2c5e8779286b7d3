use std::collections::HashMap;

use super::*;

/// A simulated machine: processes, their standard input, and their programs.
#[derive(Default)]
pub(super) struct Machine {
    facts: HashMap<i32, Facts>,
    inputs: HashMap<i32, String>,
    programs: HashMap<i32, String>,
}

impl Machine {
    /// Adds a process in a session, with a terminal if `is_seen`.
    pub(super) fn add(mut self, pid: i32, parent: i32, session: i32, is_seen: bool) -> Self {
        let process = Process { pid, started: 7 };
        let terminal = if is_seen { 34816 + session } else { 0 };
        let facts = Facts { process, parent, group: pid, session, terminal, foreground: pid };
        self.facts.insert(pid, facts);
        self
    }

    pub(super) fn reading(mut self, pid: i32, input: &str) -> Self {
        self.inputs.insert(pid, input.to_owned());
        self
    }

    pub(super) fn running(mut self, pid: i32, program: &str) -> Self {
        self.programs.insert(pid, program.to_owned());
        self
    }

    pub(super) fn behind(mut self, pid: i32) -> Self {
        if let Some(facts) = self.facts.get_mut(&pid) {
            facts.foreground = facts.group + 1;
        }
        self
    }

    pub(super) fn without(mut self, pid: i32) -> Self {
        self.facts.remove(&pid);
        self
    }
}

impl Processes for Machine {
    fn facts(&self, pid: i32) -> Option<Facts> {
        self.facts.get(&pid).copied()
    }

    fn input(&self, pid: i32) -> Option<String> {
        self.inputs.get(&pid).cloned()
    }

    fn program(&self, pid: i32) -> Option<String> {
        self.programs.get(&pid).cloned()
    }
}

pub(super) fn process(pid: i32) -> Process {
    Process { pid, started: 7 }
}

#[test]
fn a_descendant_is_known_however_far_it_is() {
    let chain = (2..10).fold(Machine::default().add(1, 0, 1, false), |machine, pid| {
        machine.add(pid, pid - 1, 1, false)
    });
    assert!(!is_foreign(&chain, process(9), 8));
    assert!(!is_foreign(&chain, process(9), 2));
    assert!(is_foreign(&chain, process(9), 100));
    assert!(!is_foreign(&chain, Process { pid: 9, started: 8 }, 100), "another of the same number");
}

#[test]
fn what_cannot_be_told_is_no() {
    let loose = Machine::default().add(9, 5, 9, true);
    assert!(!is_foreign(&loose, process(9), 2), "its parent is not shown");
    let circle = Machine::default().add(9, 9, 9, true);
    assert!(!is_foreign(&circle, process(9), 2));
    let long = i32::try_from(ANCESTORS_MAX).unwrap();
    let chain =
        (1..=long + 1).fold(Machine::default(), |machine, pid| machine.add(pid, pid - 1, 1, false));
    assert!(is_foreign(&chain, process(long), -1));
    assert!(!is_foreign(&chain, process(long + 1), -1));
}

#[test]
fn the_kernel_tells_the_parent_and_the_start() {
    let us = our_pid();
    let facts = Kernel.facts(us).unwrap();
    let parent = rustix::process::getppid().map_or(0, |parent| parent.as_raw_nonzero().get());
    assert_eq!((facts.process.pid, facts.parent), (us, parent));
    assert!(facts.process.started > 0);
    assert_eq!(Kernel.facts(i32::MAX), None);
    let named = Facts::parse(7, "7 (a) b) S 3 4 5 6 4 1 2 3 4 5 6 7 8 9 10 11 12 13 99 1").unwrap();
    assert_eq!((named.parent, named.group, named.session, named.terminal), (3, 4, 5, 6));
    assert_eq!((named.foreground, named.process.started), (4, 99));
}
