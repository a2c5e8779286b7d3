//! PostgreSQL that dies, restarts, is replaced, and has no room.

use std::time::Duration;

use stepgate_test_postgres::Settings;

use super::check::until;
use super::shim::Shim;
use super::stage::Stage;
use super::{Fault, endure};

/// How often the server ends in a round.
const TIMES: usize = 3;

pub(super) fn a_postgresql_that_is_killed_loses_nothing_and_repeats_nothing() {
    let mut stage = Stage::new();
    endure(Fault::DatabaseKilled, &mut stage, |stage, load, _| {
        for _ in 0..TIMES {
            stage.cluster.crash().unwrap();
            stage.cluster.resume().unwrap();
            load.until_each_had(2);
        }
        TIMES
    });
}

pub(super) fn a_postgresql_that_restarts_loses_nothing_and_repeats_nothing() {
    let mut stage = Stage::new();
    endure(Fault::DatabaseRestarted, &mut stage, |stage, load, _| {
        for _ in 0..TIMES {
            stage.cluster.stop().unwrap();
            stage.cluster.resume().unwrap();
            load.until_each_had(2);
        }
        TIMES
    });
}

/// Two nodes are led to the new primary, as by an address that moves; the third names both servers in its URL,
/// and finds the one that writes by itself.
pub(super) fn a_failover_to_a_replica_that_commits_waited_for_loses_nothing_and_repeats_nothing() {
    let mut stage = Stage::with(&Settings::default(), 2);
    endure(Fault::Failover, &mut stage, |stage, load, round| {
        let replica = stage.cluster.replica(&Settings::default()).unwrap();
        // The proxy that does not lead to the primary.
        stage.nodes[2].proxies[(round + 1) % 2].lead_to(replica.port());
        let primary = &stage.cluster;
        let settings = "ALTER SYSTEM SET synchronous_standby_names = '*'";
        primary.sql("postgres", settings).unwrap();
        primary.sql("postgres", "SELECT pg_reload_conf()").unwrap();
        until("the replica is not waited for", || {
            let states = primary.sql("postgres", "SELECT sync_state FROM pg_stat_replication");
            states.unwrap() == "sync"
        });
        load.until_each_had(5);
        stage.cluster.crash().unwrap();
        replica.promote().unwrap();
        for node in &stage.nodes[..2] {
            node.proxies[0].lead_to(replica.port());
        }
        stage.cluster = replica;
        1
    });
}

/// First the tables find no room to grow, which is an error; then the log does not either, which ends the server.
pub(super) fn a_postgresql_without_room_goes_on_when_there_is_some() {
    let shim = Shim::new();
    let settings = Settings {
        variables: shim.variables(),
        // Small steps of the log, so that it soon needs room.
        lines: vec!["min_wal_size = 32MB".into(), "max_wal_size = 32MB".into()],
        ..Settings::default()
    };
    let mut stage = Stage::with(&settings, 1);
    endure(Fault::DatabaseFull, &mut stage, |stage, load, round| {
        let data = stage.cluster.directory().join("data");
        let beneath = if round % 2 == 0 { data.join("base") } else { data };
        shim.fill(&beneath);
        if round % 2 == 1 {
            // Its next piece of the log is needed now.
            let _ = stage.cluster.sql("postgres", "SELECT pg_switch_wal()");
        }
        until("nothing was refused", || shim.hits() > 0);
        std::thread::sleep(Duration::from_secs(1));
        shim.clear();
        stage.cluster.revive().unwrap();
        load.until_each_had(1);
        1
    });
}
