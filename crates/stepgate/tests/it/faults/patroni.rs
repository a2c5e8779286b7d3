//! Failover that no person makes: Patroni replaces a PostgreSQL that is gone, and brings it back as the one that follows.

use std::time::Duration;

use rustix::process::Signal;
use stepgate_test_postgres::{Patroni, Port};

use super::load::Load;
use super::proxy::{Proxy, Weather};
use super::stage::Stage;
use super::{Fault, endure};

/// What the servers have between them: for each, the proxies before its PostgreSQL, its Patroni and its way to etcd.
type Network = [Vec<Proxy>; 2];

pub(super) fn a_primary_that_is_killed_is_replaced_without_a_person() {
    replace(
        Fault::PatroniKilled,
        |stage, _, primary| stage.cluster.crash(primary).unwrap(),
        |stage, _, primary| {
            stage.cluster.resume(primary).unwrap();
        },
    );
}

/// When it goes on, it still takes itself for the primary, and connections of the nodes are open there. Its commits wait
/// for a server that does not follow it any more.
pub(super) fn a_primary_that_is_stopped_is_replaced_and_comes_back_too_late() {
    let signal = |stage: &Stage<Patroni>, primary, signal| {
        stage.cluster.signal(primary, signal).unwrap();
    };
    replace(
        Fault::PatroniPaused,
        |stage, _, primary| signal(stage, primary, Signal::STOP),
        |stage, _, primary| signal(stage, primary, Signal::CONT),
    );
}

/// Neither nodes nor the other server nor etcd hear from it, and no connection is closed.
pub(super) fn a_primary_that_is_cut_off_is_replaced_and_comes_back_too_late() {
    let turn = |stage: &Stage<Patroni>, network: &Network, primary: usize, weather| {
        let of_nodes = stage.nodes.iter().map(|node| &node.proxies[primary]);
        for proxy in network[primary].iter().chain(of_nodes) {
            proxy.turn(weather);
        }
    };
    replace(
        Fault::PatroniCutOff,
        |stage, network, primary| turn(stage, network, primary, Weather::Still),
        |stage, network, primary| turn(stage, network, primary, Weather::Clear),
    );
}

/// Takes the primary away under load, waits until clients have outcomes again, which only the other server can give them,
/// and gives it back.
fn replace(
    fault: Fault,
    take: impl Fn(&mut Stage<Patroni>, &Network, usize),
    give_back: impl Fn(&mut Stage<Patroni>, &Network, usize),
) {
    let mut network = Network::default();
    let patroni = Patroni::start(|member, _: Port, port| {
        let proxy = Proxy::before(port);
        network[member].push(proxy.clone());
        proxy.port()
    })
    .unwrap();
    let primary = patroni.until_replicated().unwrap();
    patroni.sql(primary, "postgres", "CREATE DATABASE gate").unwrap();
    let ports = patroni.ports();
    let mut stage = Stage::over(patroni, "gate", [&ports; 3]);
    endure(fault, &mut stage, |stage, load: &Load, _| {
        let primary = stage.cluster.until_replicated().unwrap();
        take(stage, &network, primary);
        std::thread::sleep(Duration::from_secs(1));
        load.until_each_had(2);
        give_back(stage, &network, primary);
        load.until_each_had(2);
        assert_eq!(stage.cluster.until_replicated().unwrap(), 1 - primary);
        1
    });
}
