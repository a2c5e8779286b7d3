//! Receivers of several nodes on one PostgreSQL.

use std::collections::BTreeSet;

use super::receivers::{Sink, free_address};
use super::{ask, configure, told, webhook};
use crate::http_client::Gateway;
use crate::nodes::House;
use crate::scene::{kill, until};

/// The node that sends.
pub(crate) fn owner(house: &House) -> String {
    let sql = "SELECT node_id FROM cursors JOIN nodes ON incarnation = owner";
    house.sql(sql).unwrap().trim().to_owned()
}

#[test]
fn one_node_sends_and_when_it_is_killed_another_one_goes_on() {
    let house = House::new();
    let address = free_address();
    let places = house.two();
    for place in &places {
        configure(place, &webhook("on-call", &address, ""));
    }
    let mut gateways = places.iter().map(Gateway::start).collect::<Vec<_>>();
    until("a node has the cursor", || !owner(&house).is_empty());
    let sender = usize::from(owner(&house) == "second");
    let mut asked: BTreeSet<String> = gateways.iter().map(ask).collect();
    // It was tried, and it has not arrived.
    gateways[sender].until_it_says("notifications to on-call fail, and are tried again");
    kill(gateways.remove(sender));
    let gateway = gateways.remove(0);
    asked.insert(ask(&gateway));
    let sink = Sink::at(&address);
    until("everything has arrived", || told(&sink, "approval_requested") == asked);
    let other = ["second", "first"][sender];
    assert_eq!(owner(&house), other);
}

#[test]
fn two_nodes_tell_a_receiver_once() {
    let house = House::new();
    let sink = Sink::start();
    let places = house.two();
    for place in &places {
        configure(place, &webhook("on-call", &sink.address, ""));
    }
    let gateways = places.iter().map(Gateway::start).collect::<Vec<_>>();
    until("a node has the cursor", || !owner(&house).is_empty());
    let asked: BTreeSet<String> = (0..10).map(|number| ask(&gateways[number % 2])).collect();
    until("everything has arrived", || told(&sink, "approval_requested") == asked);
    assert_eq!(sink.requests().len(), asked.len());
}
