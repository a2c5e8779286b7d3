//! The versions of PostgreSQL that the other tests do not run on, which is Debian's.

use std::fs;

use rustix::process::Signal;
use serde_json::json;
use stepgate_test_postgres::{Cluster, Settings};

use super::{nothing_is_left, two_on, under_load, write};
use crate::http_client::{Gateway, proposal};
use crate::mcp_scene::installed;
use crate::scene::{approve, until};

const POLICIES: &str = r#"
    @id("ask") @approval("a file is deleted")
    permit (principal, action == Action::"DELETE_FILE", resource);
    @id("rest")
    permit (principal, action in Action::"core", resource) unless { action == Action::"DELETE_FILE" };
"#;

#[test]
fn postgresql_16_17_and_18_lose_nothing_when_a_node_or_the_server_is_killed() {
    std::thread::scope(|scope| {
        for version in ["16", "17", "18"] {
            scope.spawn(move || loses_nothing_on(version));
        }
    });
}

fn loses_nothing_on(version: &str) {
    let programs = installed().join(format!("postgres/node_modules/postgres{version}/native"));
    // After a crash it syncs its 1,500 files: all at once, because one by one takes a minute on a busy disk.
    let lines = vec!["recovery_init_sync_method = 'syncfs'".to_owned()];
    let settings = Settings { version: Some(programs), lines, ..Settings::default() };
    let mut server = Cluster::start(&settings).unwrap();
    let shown = server.sql("postgres", "SHOW server_version").unwrap();
    assert_eq!(shown.split('.').next(), Some(version), "{shown}");
    let places = two_on(&server.url(&server.database().unwrap()));
    for place in &places {
        fs::create_dir(place.path().join("policies")).unwrap();
        fs::write(place.path().join("policies/all.cedar"), POLICIES).unwrap();
    }

    let nodes = [Gateway::start(&places[0]), Gateway::start(&places[1])];
    let body = write("kept", version);
    let written = nodes[0].propose(&body);
    assert_eq!((written.status, &written.json()["outcome"]), (200, &json!("SUCCESS")));
    let path = json!({ "path": "/sandbox/kept.txt" });
    let read = nodes[1].propose(&proposal("READ_FILE", path.clone()));
    assert_eq!(read.json()["result"]["content"], json!(version), "{read:?}");
    let asked = nodes[0].propose(&proposal("DELETE_FILE", path));
    assert_eq!(asked.status, 202, "{asked:?}");

    under_load(&nodes, |first| first.signal(Signal::KILL));
    nothing_is_left(&places[1]);

    let [_killed, second] = nodes;
    let nodes = [Gateway::start(&places[0]), second];
    under_load(&nodes, |_| {
        server.crash().unwrap();
        server.resume().unwrap();
    });
    let mut again = None;
    until("the answer is not there after the server's end", || {
        again = Some(nodes[1].propose(&body));
        again.as_ref().is_some_and(|reply| reply.status == 200)
    });
    assert_eq!(again.map(|reply| reply.body), Some(written.body));
    let approved = approve(&nodes[1], asked.json()["result"]["approval_id"].as_str().unwrap());
    assert_eq!(approved.status, 200, "{approved:?}");
    until("the file is deleted", || !places[0].path().join("sandbox/kept.txt").exists());
    nothing_is_left(&places[1]);
}
