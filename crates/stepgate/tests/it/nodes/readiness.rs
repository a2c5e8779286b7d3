//! A node whose connections to PostgreSQL never answer again, as when the primary is stopped or cut off and another
//! server takes its place.

use std::process::Command;
use std::thread;
use std::time::Duration;

use stepgate_test_postgres::{Cluster, Settings};

use crate::binary::Place;
use crate::http_client::{Gateway, exchange_within, request};
use crate::scene::until;

/// How long a prober waits for the answer.
const PROBER: Duration = Duration::from_secs(1);

/// How many connections of the node read. What it does by itself does not need as many.
const READERS: usize = 12;

/// The server processes of the node that have not renewed its lease last: that one would keep it from being ready for as
/// long as a node waits for an answer.
const READING: &str = "FROM pg_stat_activity WHERE application_name = 'stepgate alone'
     AND query NOT LIKE 'UPDATE nodes%' AND query NOT LIKE 'LISTEN%'";

/// Server processes that are stopped. They go on however the test ends: only so does the server.
struct Stopped(Vec<String>);

impl Stopped {
    fn readers(cluster: &Cluster) -> Self {
        let found = cluster.sql("postgres", &format!("SELECT pid {READING}")).unwrap();
        let stopped = Self(found.lines().map(str::to_owned).collect());
        assert!(stopped.0.len() >= READERS, "{found}");
        stopped.signal("-STOP");
        stopped
    }

    fn signal(&self, signal: &str) {
        assert!(Command::new("kill").arg(signal).args(&self.0).status().unwrap().success());
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        self.signal("-CONT");
    }
}

#[test]
fn probers_that_give_up_early_do_not_keep_a_node_from_being_ready_again() {
    let cluster = Cluster::start(&Settings::default()).unwrap();
    let place = Place::with(vec![
        ("STEPGATE_STORE", cluster.url(&cluster.database().unwrap()).into()),
        ("STEPGATE_STORE_NODE_ID", "alone".into()),
        ("STEPGATE_STORE_READERS_MAX", READERS.to_string().into()),
    ]);
    let gateway = Gateway::start(&place);
    let count = format!("SELECT count(*) {READING}");
    until("all readers are connected", || {
        thread::scope(|scope| {
            for _ in 0..4 * READERS {
                scope.spawn(|| gateway.send("GET", "/v1/runs", &gateway.operator, ""));
            }
        });
        cluster.sql("postgres", &count).unwrap().parse::<usize>().unwrap() >= READERS
    });
    let ready = || {
        let request = request("GET", "/readyz", "", &[], "");
        let reply = exchange_within(gateway.address, request.as_bytes(), PROBER);
        reply.is_some_and(|reply| reply.status == 200)
    };
    until("it is ready", ready);
    let _stopped = Stopped::readers(&cluster);
    until("it is not ready", || !ready());
    until("it is ready again", ready);
}
