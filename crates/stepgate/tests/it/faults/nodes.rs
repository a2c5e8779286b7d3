//! Nodes that die, sleep and are replaced.

use std::thread;

use rustix::process::Signal;

use super::balancer::{Balanced, Balancer};
use super::check::{compare, settle, until, verify};
use super::load::Load;
use super::stage::{LEASE, Stage};
use super::{Fault, OUTCOMES, Tally, endure};

pub(super) fn nodes_that_are_killed_lose_nothing_and_repeat_nothing() {
    let mut stage = Stage::new();
    endure(Fault::NodeKilled, &mut stage, |stage, load, round| {
        for node in &mut stage.nodes {
            node.signal(Signal::KILL);
            assert_eq!(node.ended(), None);
            // Once the others have to do without it, and once it is back before anybody has missed it.
            if round % 2 == 0 {
                load.until_each_had(2);
            }
            node.start();
            load.until_each_had(2);
        }
        stage.nodes.len()
    });
}

pub(super) fn nodes_that_are_stopped_for_longer_than_their_lease_are_fenced_out() {
    let mut stage = Stage::new();
    endure(Fault::NodePaused, &mut stage, |stage, _, round| {
        let node = &stage.nodes[round % 3];
        node.signal(Signal::STOP);
        // Its runs are the others' then, except for a write in the middle: that waits for it.
        thread::sleep(LEASE * 2);
        node.signal(Signal::CONT);
        1
    });
}

/// Nobody asks twice here: clients go through a balancer, and a single request that fails stops the test.
pub(super) fn nodes_are_restarted_one_after_the_other_without_a_failed_request() {
    let mut stage = Stage::new();
    let mut tally = Tally::default();
    let front = stage.front();
    let balancer = Balancer::before(&front);
    for round in 0..Fault::RollingRestart.rounds() {
        let way = |first| Box::new(Balanced::new(&balancer, first)) as _;
        let load = Load::with(&front, &round.to_string(), way);
        load.until_each_had(OUTCOMES);
        for (number, node) in stage.nodes.iter_mut().enumerate() {
            node.signal(Signal::TERM);
            assert_eq!(node.ended(), Some(0));
            load.until_each_had(1);
            node.start();
            until("the balancer does not see a node", || balancer.is_ready(number));
            load.until_each_had(OUTCOMES);
        }
        tally.take(3, load.end(), |harvest| {
            settle(&front);
            compare(&front, &stage.tools, harvest)
        });
        verify(&stage.nodes[round % 3].stepgate(&["verify"]));
    }
    tally.report(Fault::RollingRestart);
}
