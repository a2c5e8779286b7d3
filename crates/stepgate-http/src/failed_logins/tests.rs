use std::net::{IpAddr, Ipv4Addr};

use super::*;

fn network(last: u8) -> Network {
    Network::of(IpAddr::V4(Ipv4Addr::new(192, 0, 2, last)))
}

#[test]
fn the_first_of_an_address_is_told_at_once_and_the_others_are_summed_up() {
    let mut window = Window::default();
    assert!(window.count(network(1)));
    assert!(window.count(network(2)));
    assert!(!window.count(network(1)));
    assert!(!window.count(network(1)));
    let sums: Vec<_> = window.sums().map(|it| (it.address, it.count)).collect();
    assert_eq!(sums, [(Some("192.0.2.1".to_owned()), 2)]);
}

#[test]
fn more_addresses_than_the_limit_are_one_event() {
    let mut window = Window::default();
    let told = (0..40).filter(|last| window.count(network(*last))).count();
    assert_eq!(told, NETWORKS_MAX);
    let sums: Vec<_> = window.sums().map(|it| (it.address, it.count)).collect();
    assert_eq!(sums, [(None, 24)]);
}
