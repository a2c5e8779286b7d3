//! Connections between nodes and PostgreSQL that are cut, delayed and held back.

use std::thread;
use std::time::Duration;

use super::proxy::Weather;
use super::stage::{LEASE, Stage};
use super::{Fault, endure};

/// How often connections are cut in each way, in a round.
const TIMES: usize = 5;

pub(super) fn connections_that_are_cut_in_the_middle_of_commits_lose_nothing_and_repeat_nothing() {
    let mut stage = Stage::new();
    endure(Fault::ConnectionsCut, &mut stage, |stage, load, _| {
        for _ in 0..TIMES {
            for proxy in stage.proxies() {
                proxy.cut();
            }
            load.until_each_had(1);
            // What is asked is done, and nobody hears of it.
            for proxy in stage.proxies() {
                proxy.turn(Weather::Deaf);
            }
            thread::sleep(Duration::from_millis(100));
            for proxy in stage.proxies() {
                proxy.cut();
                proxy.turn(Weather::Clear);
            }
            load.until_each_had(1);
            for node in &stage.nodes {
                node.proxies[0].turn(Weather::Closed);
                thread::sleep(Duration::from_millis(100));
                node.proxies[0].turn(Weather::Clear);
            }
            load.until_each_had(1);
        }
        3 * TIMES
    });
}

pub(super) fn connections_that_are_delayed_by_seconds_lose_nothing_and_repeat_nothing() {
    let mut stage = Stage::new();
    endure(Fault::ConnectionsSlow, &mut stage, |stage, load, round| {
        let slow = &stage.nodes[round % 3].proxies[0];
        slow.turn(Weather::Slow(Duration::from_secs(2)));
        thread::sleep(LEASE * 3);
        slow.turn(Weather::Clear);
        for proxy in stage.proxies() {
            proxy.turn(Weather::Slow(Duration::from_millis(20)));
        }
        load.until_each_had(2);
        for proxy in stage.proxies() {
            proxy.turn(Weather::Clear);
        }
        2
    });
}

pub(super) fn a_node_that_is_cut_off_for_longer_than_its_lease_is_fenced_out() {
    let mut stage = Stage::new();
    endure(Fault::NodeCutOff, &mut stage, |stage, _, round| {
        let alone = &stage.nodes[round % 3].proxies[0];
        alone.turn(Weather::Still);
        thread::sleep(LEASE * 2);
        alone.turn(Weather::Clear);
        1
    });
}
