//! `stepgate doctor` on machines where something is wrong with files, disk or clock.

use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rusqlite::Connection;

use crate::binary::Place;
use crate::disk::SmallDisk;
use crate::nodes::House;

fn used() -> Place {
    let place = Place::new();
    assert_eq!(place.stepgate(["run", "THINK"], "").code, 0);
    place
}

/// The line of one check.
fn line(place: &Place, name: &str) -> String {
    let said = place.stepgate(["doctor"], "").stdout;
    let line = said.lines().find(|line| line.contains(&format!("  {name}  ")));
    line.unwrap_or_else(|| panic!("{name}: {said}")).to_owned()
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

#[test]
fn files_that_others_can_change_or_secrets_that_they_can_read_are_named_with_the_way_out() {
    let place = used();
    let config = "[agent]\nbase_url = \"http://127.0.0.1:9/v1\"\nmodel = \"m\"\nkey_file = \"model.key\"\n\
        [otlp.headers.authorization]\nfile = \"collector.key\"\n";
    fs::write(place.path().join("stepgate.toml"), config).unwrap();
    for key in ["model.key", "collector.key"] {
        fs::write(place.path().join(key), "k").unwrap();
        set_mode(&place.path().join(key), 0o600);
    }
    assert!(line(&place, "permissions").starts_with("ok"), "{}", line(&place, "permissions"));
    for (file, mode, way_out) in [
        ("model.key", 0o644, "chmod 600"),
        ("collector.key", 0o644, "chmod 600"),
        ("stepgate.db", 0o640, "chmod 600"),
        ("stepgate.toml", 0o666, "chmod go-w"),
        ("policies", 0o777, "chmod go-w"),
    ] {
        let path = place.path().join(file);
        let before = path.metadata().unwrap().permissions();
        set_mode(&path, mode);
        let found = line(&place, "permissions");
        fs::set_permissions(&path, before).unwrap();
        assert!(found.starts_with("wrong") && found.contains(file), "{found}");
        assert!(found.contains(way_out), "{found}");
    }
    assert!(line(&place, "permissions").starts_with("ok"));
}

#[test]
fn a_disk_with_only_the_reserve_left_is_found() {
    let place = used();
    assert!(line(&place, "free space").starts_with("ok"), "{}", line(&place, "free space"));
    let config = format!("[store]\nfree_bytes_min = {}\n", 1_u64 << 50);
    fs::write(place.path().join("stepgate.toml"), config).unwrap();
    let found = line(&place, "free space");
    assert!(found.starts_with("wrong") && found.contains("store.free_bytes_min"), "{found}");
}

#[test]
fn a_clock_that_was_put_back_is_found_by_a_run_that_is_later() {
    let place = used();
    assert!(line(&place, "clock").starts_with("ok"), "{}", line(&place, "clock"));
    let connection = Connection::open(place.database()).unwrap();
    for trigger in ["tool_runs_final", "tool_runs_fixed"] {
        connection.execute(&format!("DROP TRIGGER {trigger}"), []).unwrap();
    }
    let later = "UPDATE tool_runs SET ts = '2999-01-01T00:00:00.000Z'";
    assert_eq!(connection.execute(later, []).unwrap(), 1);
    let found = line(&place, "clock");
    assert!(found.starts_with("wrong") && found.contains("2999-01-01"), "{found}");
}

#[test]
fn a_clock_that_differs_from_the_databases_by_more_than_five_seconds_is_found() {
    let house = House::new();
    house.sql("CREATE SCHEMA gate").unwrap();
    let at = |search_path: &str| {
        let url = format!("{}?options=-csearch_path%3D{search_path}", house.url());
        Place::with(vec![("STEPGATE_STORE", url.into()), ("STEPGATE_STORE_NODE_ID", "a".into())])
    };
    let made = at("gate").stepgate(["run", "THINK"], "");
    assert_eq!(made.code, 0, "{made:?}");
    // The function that is found first is a database's clock that goes wrong.
    let place = at("gate,pg_catalog");
    for (offset, is_fine) in
        [("4 seconds", true), ("-4 seconds", true), ("6 seconds", false), ("-6 seconds", false)]
    {
        let clock = format!(
            "CREATE OR REPLACE FUNCTION gate.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS
             $$ SELECT pg_catalog.clock_timestamp() + interval '{offset}' $$"
        );
        house.sql(&clock).unwrap();
        let found = line(&place, "clock");
        assert_eq!(found.starts_with("ok"), is_fine, "{offset}: {found}");
        assert_eq!(found.contains("by the database's clock"), !is_fine, "{offset}: {found}");
    }
}

#[test]
fn a_disk_of_the_archives_that_has_no_room_is_found() {
    let Some(disk) = SmallDisk::mount() else {
        println!("no mount namespace here: no disk of its own that could be full");
        return;
    };
    let place = used();
    assert!(line(&place, "archives").starts_with("ok"), "{}", line(&place, "archives"));
    let archives = disk.path("archives");
    let config = |reserved: u64| {
        let text = format!(
            "[store]\nfree_bytes_min = {reserved}\n[retention]\ndirectory = {archives:?}\n"
        );
        fs::write(place.path().join("stepgate.toml"), text).unwrap();
    };
    config(1 << 20);
    assert!(line(&place, "archives").starts_with("ok"), "{}", line(&place, "archives"));
    // More than the small disk has, and less than that of the data directory.
    config(32 << 20);
    let found = line(&place, "archives");
    assert!(found.starts_with("wrong") && found.contains("no run leaves the store"), "{found}");
    assert!(line(&place, "free space").starts_with("ok"), "{}", line(&place, "free space"));
}

/// Answers every request with this status, until the process ends.
fn collector(status: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut request = [0; 4096];
            let length = stream.read(&mut request).unwrap();
            let head = String::from_utf8_lossy(&request[..length]).to_lowercase();
            let is_known = head.starts_with("post /v1/traces ") && head.contains("x-key: k\r\n");
            let status = if is_known { status } else { "400 Bad Request" };
            let answer =
                format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
            stream.write_all(answer.as_bytes()).unwrap();
        }
    });
    url
}

#[test]
fn a_collector_that_takes_nothing_and_a_secret_for_it_that_is_missing_are_found() {
    let place = used();
    assert!(line(&place, "collector").contains("none in the configuration"));
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let key = place.path().join("collector.key");
    fs::write(&key, "k\n").unwrap();
    set_mode(&key, 0o600);
    for (endpoint, expected) in [
        (collector("200 OK"), "takes what is sent"),
        (collector("401 Unauthorized"), "it answers 401 Unauthorized"),
        (format!("http://{nobody}"), "it cannot be reached"),
    ] {
        let config = format!(
            "[otlp]\nendpoint = \"{endpoint}\"\n[otlp.headers]\nx-key = {{ file = {key:?} }}\n"
        );
        fs::write(place.path().join("stepgate.toml"), config).unwrap();
        let found = line(&place, "collector");
        assert!(found.contains(expected), "{found}");
        assert_eq!(found.starts_with("ok"), expected == "takes what is sent", "{found}");
    }
    fs::remove_file(&key).unwrap();
    let found = line(&place, "collector");
    assert!(found.starts_with("wrong") && found.contains("otlp.headers.x-key"), "{found}");
}
