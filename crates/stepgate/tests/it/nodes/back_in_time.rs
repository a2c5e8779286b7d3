//! A database that is put back to an earlier state under nodes that have seen more.

use std::fs;

use rustix::process::Signal;

use super::{House, SERVER, until, write};
use crate::http_client::Gateway;

fn server(sql: &str) {
    SERVER.sql("postgres", sql).unwrap();
}

#[test]
fn a_node_whose_store_went_back_in_time_stops_and_does_not_start_again_by_itself() {
    let house = House::new();
    let place = house.alone("first");
    let stop = |gateway: Gateway| {
        gateway.signal(Signal::TERM);
        assert_eq!(gateway.end().0, Some(0));
    };
    let gateway = Gateway::start(&place);
    assert_eq!(gateway.propose(&write("a", "before the backup")).status, 200);
    stop(gateway);
    let (live, backup) = (&house.database, format!("{}_backup", house.database));
    server(&format!("CREATE DATABASE {backup} TEMPLATE {live}"));

    let mut gateway = Gateway::start(&place);
    assert_eq!(gateway.propose(&write("b", "after the backup")).status, 200);
    let newest = "SELECT event_id FROM events ORDER BY position DESC LIMIT 1";
    let last_event = place.path().join("last_event");
    until("it has not seen the newest event", || {
        let newest = house.sql(newest).unwrap();
        fs::read_to_string(&last_event)
            .is_ok_and(|seen| seen.split_whitespace().next() == Some(&newest))
    });
    server(&format!("ALTER DATABASE {live} ALLOW_CONNECTIONS false"));
    let terminate = format!(
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = '{live}'"
    );
    server(&terminate);
    until("nobody is connected", || {
        server(&terminate);
        SERVER.sql("postgres", &format!("ALTER DATABASE {live} RENAME TO {live}_gone")).is_ok()
    });
    server(&format!("ALTER DATABASE {backup} RENAME TO {live}"));
    gateway.until_it_says("the store has gone back in time");
    assert_eq!(gateway.end().0, Some(1));

    let refused = place.stepgate(["run", "THINK"], "");
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(refused.stderr.contains("last_event"), "{refused:?}");
    // On purpose.
    fs::remove_file(&last_event).unwrap();
    stop(Gateway::start(&place));
    assert_eq!(place.stepgate(["verify"], "").code, 0);
}
