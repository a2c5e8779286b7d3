//! The data directory and its configuration, as the command line finds them.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use serde_json::json;

use super::used;
use crate::binary::{Place, command, finish};
use crate::gate::proposal;

#[test]
fn a_command_that_looks_or_decides_where_nothing_is_says_so_and_makes_nothing() {
    const ID: &str = "0198b2c4-7a51-7cc0-9f2e-2f6a4a6f8f10";
    let rows: [&[&str]; 25] = [
        &["approvals"],
        &["approvals", "--watch"],
        &["approve", "last"],
        &["attention"],
        &["sessions"],
        &["turns"],
        &["top"],
        &["approve", ID],
        &["deny", ID],
        &["token", "list"],
        &["token", "revoke", ID],
        &["tools"],
        &["tools", "accept", "a.b"],
        &["policy", "explain", "THINK"],
        &["policy", "check"],
        &["policy", "replay", "."],
        &["recover"],
        &["runs"],
        &["runs", "show", "last"],
        &["runs", "export", "last"],
        &["runs", "resolve", ID, "--failed"],
        &["verify"],
        &["doctor"],
        &["nodes"],
        &["backup", "elsewhere"],
    ];
    let place = Place::new();
    let empty = place.path().with_extension("empty");
    fs::create_dir(&empty).unwrap();
    for data in [place.path(), empty.clone()] {
        for args in rows {
            let output = finish(command(&data, args).current_dir(&empty), b"");
            assert_eq!((output.code, output.stdout.as_str()), (1, ""), "{args:?}");
            let said = format!("there is no data directory at `{}`", data.display());
            assert!(output.stderr.contains(&said), "{args:?}: {}", output.stderr);
        }
    }
    assert!(!place.path().exists());
    assert_eq!(fs::read_dir(&empty).unwrap().count(), 0);
}

#[test]
fn data_is_kept_in_the_users_own_directory_and_not_where_a_command_is_typed() {
    let home = tempfile::TempDir::new().unwrap();
    let project = home.path().join("project");
    fs::create_dir(&project).unwrap();
    let stepgate = |args: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_stepgate"));
        command.env_clear().env("HOME", home.path()).current_dir(&project).args(args);
        finish(&mut command, b"")
    };
    assert_eq!(stepgate(&["run", "THINK"]).code, 0);
    assert!(home.path().join(".local/share/stepgate/stepgate.db").exists());
    assert_eq!(fs::read_dir(&project).unwrap().count(), 0);
    assert_eq!(stepgate(&["run", "THINK"]).stderr, "");

    // The directory of an earlier version is named, and not used.
    assert_eq!(stepgate(&["--data", "stepgate-data", "run", "THINK"]).stderr, "");
    let told = stepgate(&["runs", "--json"]);
    assert_eq!((told.code, told.stdout.lines().count()), (0, 2), "{told:?}");
    assert!(told.stderr.contains("add `--data stepgate-data`"), "{}", told.stderr);
    assert_eq!(told.stderr.lines().count(), 1, "{}", told.stderr);

    let mut homeless = std::process::Command::new(env!("CARGO_BIN_EXE_stepgate"));
    let refused = finish(homeless.env_clear().current_dir(&project).args(["run", "THINK"]), b"");
    assert!(refused.code == 1 && refused.stderr.contains("--data"), "{refused:?}");
}

#[test]
fn what_everybody_can_write_to_is_refused_with_the_way_out() {
    let open: [fn(&Place) -> std::path::PathBuf; 4] = [
        |place| place.path(),
        |place| place.path().join("policies"),
        |place| place.path().join("policies/10-core.cedar"),
        |place| {
            fs::write(place.path().join("stepgate.toml"), "").unwrap();
            place.path().join("stepgate.toml")
        },
    ];
    for path in open {
        let place = used();
        let path = path(&place);
        let before = fs::metadata(&path).unwrap().permissions().mode();
        fs::set_permissions(&path, Permissions::from_mode(before | 0o002)).unwrap();
        let refused = place.stepgate(["run", "THINK"], "");
        assert_eq!(refused.code, 1, "{}", path.display());
        let way_out = format!("`chmod go-w {}`", path.display());
        assert!(refused.stderr.contains(&way_out), "{}", refused.stderr);
        fs::set_permissions(&path, Permissions::from_mode(before)).unwrap();
        assert_eq!(place.stepgate(["run", "THINK"], "").code, 0);
    }
    let place = used();
    fs::set_permissions(place.path(), Permissions::from_mode(0o770)).unwrap();
    let told = place.stepgate(["run", "THINK"], "");
    assert!(told.code == 0 && told.stderr.contains("`chmod g-w"), "{told:?}");
}

#[test]
fn the_first_policies_are_its_owners_alone() {
    let place = used();
    let policies = place.path().join("policies");
    let mode = |path: &std::path::Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&policies), 0o700);
    for entry in fs::read_dir(policies).unwrap() {
        assert_eq!(mode(&entry.unwrap().path()), 0o600);
    }
}

#[test]
fn an_unusable_data_directory_is_said_with_the_way_out() {
    let place = Place::new();
    let file = place.path().with_extension("file");
    fs::write(&file, "in the way").unwrap();
    for data in [file.clone(), file.join("beneath"), "/proc/stepgate".into(), "".into()] {
        let output = finish(&mut command(&data, ["run", "THINK"]), b"");
        assert_eq!(output.code, 1, "{}", data.display());
        assert!(output.stderr.contains("--data"), "{}", output.stderr);
        assert_eq!(output.stdout, "");
    }
}

#[test]
fn a_data_directory_is_made_with_all_that_is_missing_above_it() {
    let place = Place::new();
    let data = place.path().join("deep/down");
    assert_eq!(finish(&mut command(&data, ["run", "THINK"]), b"").code, 0);
    for made in [place.path(), place.path().join("deep"), data.clone(), data.join("sandbox")] {
        let mode = fs::metadata(&made).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700, "{}", made.display());
    }
}

#[test]
fn a_foreign_damaged_or_newer_database_is_refused_and_left_alone() {
    let garbage: fn(&Place) = |place| fs::write(place.database(), "not a database at all").unwrap();
    let newer: fn(&Place) = |place| {
        let connection = rusqlite::Connection::open(place.database()).unwrap();
        connection.execute_batch("PRAGMA user_version = 999").unwrap();
    };
    let foreign: fn(&Place) = |place| {
        fs::remove_file(place.database()).unwrap();
        let connection = rusqlite::Connection::open(place.database()).unwrap();
        connection.execute_batch("CREATE TABLE theirs (x)").unwrap();
    };
    for (damage, expected) in [(garbage, "database"), (newer, "999"), (foreign, "another program")]
    {
        let place = used();
        damage(&place);
        let before = fs::read(place.database()).unwrap();
        for args in [vec!["run", "THINK"], vec!["verify"]] {
            let output = place.stepgate(&args, "");
            assert_eq!(output.code, 1, "{args:?}");
            assert!(output.stderr.contains(expected), "{expected}: {}", output.stderr);
        }
        assert_eq!(fs::read(place.database()).unwrap(), before);
    }
}

#[test]
fn a_corrupted_page_is_said_and_nothing_is_lost() {
    let place = used();
    let mut bytes = fs::read(place.database()).unwrap();
    let middle = bytes.len() / 2;
    for byte in &mut bytes[4096..middle] {
        *byte = 0x5a;
    }
    fs::write(place.database(), &bytes).unwrap();
    for args in [vec!["run", "READ_FILE", "path=/sandbox/a.txt"], vec!["verify"], vec!["doctor"]] {
        let output = place.stepgate(&args, "");
        assert_eq!(output.code, 1, "{args:?}: {} {}", output.stdout, output.stderr);
    }
    assert_eq!(fs::read_to_string(place.path().join("sandbox/a.txt")).unwrap(), "hello");
}

#[test]
fn bad_configuration_is_refused_with_file_line_and_key() {
    let place = used();
    fs::write(place.path().join("stepgate.toml"), "[limits]\npayload_max = 1\n").unwrap();
    let output = place.stepgate(["run", "THINK"], "");
    assert_eq!(output.code, 1);
    for word in ["stepgate.toml", "line 2", "payload_max"] {
        assert!(output.stderr.contains(word), "{word}: {}", output.stderr);
    }
}

#[test]
fn limits_come_from_file_and_environment() {
    let place = used();
    let long = proposal(1, "FINISH", json!({"response": "r".repeat(500)}));
    fs::write(place.path().join("stepgate.toml"), "[limits]\npayload_bytes_max = 300\n").unwrap();
    assert_eq!(place.stepgate(["step"], &long).code, 10);
    let mut wider = place.command(["step"]);
    wider.env("STEPGATE_LIMITS_PAYLOAD_BYTES_MAX", "2000");
    assert_eq!(finish(&mut wider, long.as_bytes()).code, 0);
}
