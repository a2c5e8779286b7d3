//! The server of the tests, itself tested.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use stepgate_test_postgres::{Cluster, Settings};

/// Set for the process that is killed while its server runs.
const VICTIM: &str = "STEPGATE_CLUSTER_VICTIM";

fn until(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_server_keeps_its_data_over_a_crash_and_goes_with_its_directory() {
    let mut cluster = Cluster::start(&Settings::default()).unwrap();
    let (first, second) = (cluster.database().unwrap(), cluster.database().unwrap());
    assert_ne!(first, second);
    cluster.sql(&first, "CREATE TABLE kept AS SELECT 7 AS number").unwrap();
    assert!(cluster.sql(&second, "SELECT * FROM kept").is_err());
    for crash in [true, false] {
        match crash {
            true => cluster.crash().unwrap(),
            false => cluster.stop().unwrap(),
        }
        assert!(cluster.sql(&first, "SELECT 1").is_err());
        cluster.resume().unwrap();
        assert_eq!(cluster.sql(&first, "SELECT number FROM kept").unwrap(), "7");
    }
    let directory = cluster.directory().to_owned();
    drop(cluster);
    assert!(!directory.exists());
}

/// Not a test of its own: what the test below starts and kills.
#[test]
fn victim() {
    if std::env::var_os(VICTIM).is_none() {
        return;
    }
    let cluster = Cluster::start(&Settings::default()).unwrap();
    println!("\ndirectory={}", cluster.directory().display());
    std::thread::sleep(Duration::from_secs(600));
}

#[test]
fn a_server_ends_with_the_process_that_started_it_however_that_ends() {
    let mut victim = Command::new(std::env::current_exe().unwrap());
    victim.args(["--exact", "victim", "--nocapture"]).env(VICTIM, "1").stdout(Stdio::piped());
    let mut victim = victim.spawn().unwrap();
    let lines = BufReader::new(victim.stdout.take().unwrap()).lines().map(Result::unwrap);
    let said = |line: String| line.strip_prefix("directory=").map(std::path::PathBuf::from);
    let directory = lines.into_iter().find_map(said).unwrap();
    assert!(directory.join("data/postmaster.pid").exists());
    victim.kill().unwrap();
    victim.wait().unwrap();
    until("the server outlived its process", || !directory.exists());
}
