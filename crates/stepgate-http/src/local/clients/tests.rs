use super::super::tests::{Machine, process};
use super::*;

const GATEWAY: i32 = 20;

/// tmux (10) with two panes: an agent's client (31) with its bridge (32) and a shell (33) in the first, a
/// person's shell (40) with a command (41) in the second. The gateway runs elsewhere.
fn two_panes() -> Machine {
    Machine::default()
        .add(1, 0, 1, false)
        .add(10, 1, 10, false)
        .add(GATEWAY, 1, GATEWAY, false)
        .add(30, 10, 30, true)
        .add(31, 30, 30, true)
        .add(32, 31, 30, true)
        .reading(32, "pipe:[1]")
        .add(33, 31, 30, true)
        .add(40, 10, 40, true)
        .add(41, 40, 40, true)
}

fn asks(machine: &Machine, bridge: i32, pid: i32) -> Result<(), NoPerson> {
    let client = Client::of(machine, process(bridge), None).unwrap();
    person_at(machine, &[client], process(pid), GATEWAY)
}

#[test]
fn a_person_in_another_pane_decides_and_the_client_does_not() {
    let machine = two_panes()
        // The command of its shell, an orphan, one in a new session, and one in a new terminal.
        .add(50, 33, 30, true)
        .add(51, 1, 30, true)
        .add(52, 33, 52, false)
        .add(53, 33, 53, true)
        // The command of a tool server, in a new terminal.
        .add(54, GATEWAY, 54, true);
    assert_eq!(asks(&machine, 32, 41), Ok(()));
    for (pid, why) in [
        (50, NoPerson::Agents),
        (51, NoPerson::Agents),
        (52, NoPerson::NoTerminal),
        (53, NoPerson::Agents),
        (54, NoPerson::Agents),
        (30, NoPerson::Agents),
    ] {
        assert_eq!(asks(&machine, 32, pid), Err(why), "{pid}");
    }
}

#[test]
fn the_leader_of_the_session_counts_and_so_does_the_foreground() {
    let machine = two_panes()
        // Adopted by init, while its session leader still belongs to the client.
        .add(60, 33, 60, true)
        .add(61, 1, 60, true)
        .add(42, 40, 40, true)
        .behind(42);
    assert_eq!(asks(&machine, 32, 61), Err(NoPerson::Agents));
    assert_eq!(asks(&machine, 32, 42), Err(NoPerson::NoTerminal));
    assert_eq!(asks(&machine.without(60), 32, 61), Err(NoPerson::Agents), "a leader that is gone");
}

#[test]
fn a_wrapper_that_hands_its_input_down_is_not_the_client() {
    let machine = two_panes()
        .add(34, 31, 30, true)
        .reading(34, "pipe:[2]")
        .add(35, 34, 30, true)
        .reading(35, "pipe:[2]")
        .add(53, 33, 53, true);
    let client = Client::of(&machine, process(35), None).unwrap();
    assert_eq!(client.process, process(31));
    assert_eq!(asks(&machine, 35, 53), Err(NoPerson::Agents));
    assert_eq!(asks(&machine, 35, 41), Ok(()));
}

#[test]
fn a_bridge_that_is_closed_to_the_gateway_says_what_it_reads_from() {
    let machine = two_panes().add(34, 31, 30, true).reading(34, "pipe:[2]").add(35, 34, 30, true);
    let client = |said| Client::of(&machine, process(35), said).unwrap().process;
    assert_eq!(client(Some("pipe:[2]")), process(31));
    assert_eq!(client(Some("pipe:[3]")), process(34));
    assert_eq!(client(None), process(34));
    // What the kernel says takes precedence.
    let machine = machine.reading(35, "pipe:[4]");
    let client = Client::of(&machine, process(35), Some("pipe:[2]")).unwrap();
    assert_eq!(client.process, process(34));
}

#[test]
fn an_editor_without_a_terminal_is_all_of_its_processes_and_not_what_started_it() {
    let machine = two_panes()
        .add(70, 10, 10, false)
        .running(70, "/usr/share/code/code")
        .add(71, 70, 10, false)
        .running(71, "/usr/share/code/code")
        .add(72, 71, 10, false)
        .reading(72, "pipe:[3]")
        // The editor's own terminal, started by another of its processes.
        .add(73, 70, 10, false)
        .running(73, "/usr/share/code/code")
        .add(74, 73, 74, true);
    assert_eq!(asks(&machine, 72, 74), Err(NoPerson::Agents));
    assert_eq!(asks(&machine, 72, 41), Ok(()), "what started the editor has other descendants");
}

#[test]
fn a_process_that_has_only_the_number_of_a_client_is_not_the_client() {
    let machine = two_panes();
    let mut client = Client::of(&machine, process(32), None).unwrap();
    // The pane was closed, and its pids were reused.
    client.session = None;
    client.line = vec![Process { pid: 40, started: 3 }];
    assert_eq!(person_at(&machine, &[client], process(41), GATEWAY), Ok(()));
    let other = Process { pid: 41, started: 8 };
    assert_eq!(person_at(&machine, &[], other, GATEWAY), Err(NoPerson::NoTerminal));
}

#[test]
fn the_gateway_itself_may_ask_the_person_at_its_own_terminal() {
    let machine = two_panes();
    assert_eq!(person_at(&machine, &[], process(41), 41), Ok(()));
    assert_eq!(person_at(&machine, &[], process(41), 40), Err(NoPerson::Agents));
}
