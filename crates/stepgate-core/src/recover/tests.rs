use super::{Report, Scope};
use crate::ids::RunId;
use crate::ports::Unfinished;

fn run(number: u8) -> RunId {
    format!("018bcfe5-6800-7000-8000-0000000000{number:02x}").parse().unwrap()
}

#[test]
fn a_scope_covers_its_own_servers_and_no_core_action() {
    let other = |names: &[&str]| Scope::OtherServers(names.iter().map(|it| (*it).into()).collect());
    let rows = [
        (Scope::Core, ["READ_FILE"].as_slice()),
        (Scope::Servers, &["sonos.play", "tv.play", "play"]),
        (Scope::Server("sonos".into()), &["sonos.play"]),
        (Scope::Server("READ_FILE".into()), &[]),
        (other(&["sonos"]), &["tv.play", "play"]),
        (other(&["sonos", "tv"]), &["play"]),
        (other(&[]), &["sonos.play", "tv.play", "play"]),
    ];
    for (scope, expected) in rows {
        let covers = |name: &&str| {
            let tool_name = Some((*name).to_owned());
            scope.covers(&Unfinished { run_id: run(1), tool_name, is_waiting: false })
        };
        let all = ["READ_FILE", "sonos.play", "tv.play", "play"];
        let covered: Vec<&str> = all.into_iter().filter(covers).collect();
        assert_eq!(covered, expected, "{scope:?}");
    }
}

#[test]
fn a_run_without_a_name_is_left_to_the_servers() {
    let nameless = Unfinished { run_id: run(1), tool_name: None, is_waiting: false };
    assert!(!Scope::Core.covers(&nameless));
    assert!(Scope::Servers.covers(&nameless));
    assert!(!Scope::Server("sonos".into()).covers(&nameless));
    assert!(Scope::OtherServers(vec!["sonos".into()]).covers(&nameless));
}

#[test]
fn a_report_adds_every_list_of_another() {
    let report = |at: u8| Report {
        finished: vec![run(at)],
        waiting: vec![run(at + 1)],
        in_doubt: vec![run(at + 2)],
        quarantined: vec![(run(at + 3), "broken".into())],
        stuck: vec![(run(at + 4), "held".into())],
        held: vec![run(at + 4)],
    };
    let mut both = report(1);
    both.add(report(11));
    let expected = Report {
        finished: vec![run(1), run(11)],
        waiting: vec![run(2), run(12)],
        in_doubt: vec![run(3), run(13)],
        quarantined: vec![(run(4), "broken".into()), (run(14), "broken".into())],
        stuck: vec![(run(5), "held".into()), (run(15), "held".into())],
        held: vec![run(5), run(15)],
    };
    assert_eq!(both, expected);
}
