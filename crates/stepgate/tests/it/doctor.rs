//! `stepgate doctor` on machines where something is wrong with files, disk or clock.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rusqlite::Connection;

use crate::binary::Place;

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
    let config =
        "[agent]\nbase_url = \"http://127.0.0.1:9/v1\"\nmodel = \"m\"\nkey_file = \"model.key\"\n";
    fs::write(place.path().join("stepgate.toml"), config).unwrap();
    fs::write(place.path().join("model.key"), "k").unwrap();
    set_mode(&place.path().join("model.key"), 0o600);
    assert!(line(&place, "permissions").starts_with("ok"), "{}", line(&place, "permissions"));
    for (file, mode, way_out) in [
        ("model.key", 0o644, "chmod 600"),
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
