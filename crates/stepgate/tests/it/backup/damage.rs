//! Backups that are damaged, and places that are not fit: a message with the way out, and nothing changed.

use std::fs;
use std::path::{Path, PathBuf};

use rusqlite::Connection;
use rustix::process::Signal;
use serde_json::{Value, json};
use stepgate_core::digest::Digest;

use super::{
    Engine, SERVER, Shelf, at, backed_up, refused, replayed, restored, some_steps, stepgate,
};
use crate::binary::Place;
use crate::http_client::{Gateway, proposal};
use crate::unfolded::Unfolded;

/// Every file of a backup.
fn files(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap().map(Result::unwrap) {
        match entry.file_type().unwrap().is_dir() {
            true => found.extend(files(&entry.path())),
            false => found.push(entry.path()),
        }
    }
    found.sort();
    found
}

/// A restore that is refused leaves no trace, in the directory and in the database.
fn refuses(backup: &Path, why: &str) {
    for target in Engine::ALL {
        let url = SERVER.url(&SERVER.database().unwrap());
        let place = match target {
            Engine::Sqlite => Place::new(),
            Engine::Postgres => at(&url),
        };
        refused(&stepgate(&place, "restore", backup, &[]), why);
        assert!(!place.path().exists(), "{target:?}: something was left");
        if target == Engine::Postgres {
            let nothing = place.stepgate(["verify"], "");
            assert!(nothing.stderr.contains("there is no store"), "{nothing:?}");
        }
    }
}

#[test]
fn a_flipped_byte_or_a_missing_file_is_found_wherever_it_is() {
    let (place, shelf) = (Place::new(), Shelf::new());
    some_steps(&place);
    let path = shelf.path("b");
    backed_up(&place, &path);
    for file in files(&path) {
        let name = file.strip_prefix(&path).unwrap().display().to_string();
        // One of each kind is enough.
        if name.starts_with("sandbox/") && name != "sandbox/7.txt" {
            continue;
        }
        let bytes = fs::read(&file).unwrap();
        let middle = bytes.len() / 2;
        let mut flipped = bytes.clone();
        flipped[middle] ^= 1;
        fs::write(&file, flipped).unwrap();
        refuses(&path, "damaged");
        fs::remove_file(&file).unwrap();
        refuses(&path, if name == "manifest.json" { "is not a backup" } else { "is not whole" });
        fs::write(&file, &bytes[..middle]).unwrap();
        refuses(&path, "damaged");
        fs::write(&file, bytes).unwrap();
    }
    restored(&Place::new(), &path);
}

/// Changes the manifest as somebody could who knows how it is made.
pub(super) fn rewritten(backup: &Path, change: impl Fn(&mut Value)) {
    let file = backup.join("manifest.json");
    let mut sealed: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    change(&mut sealed["manifest"]);
    sealed["manifest_digest"] = serde_json::to_value(Digest::of(&sealed["manifest"])).unwrap();
    fs::write(&file, sealed.to_string()).unwrap();
}

#[test]
fn a_backup_of_a_newer_version_or_a_forged_one_is_refused() {
    let (place, shelf) = (Place::new(), Shelf::new());
    some_steps(&place);
    let path = shelf.path("b");
    backed_up(&place, &path);
    let manifest = fs::read(path.join("manifest.json")).unwrap();
    rewritten(&path, |manifest| {
        manifest["format"] = 3.into();
        manifest["of_a_later_day"] = true.into();
    });
    refuses(&path, "use the newer Stepgate that made it");
    for outside in ["../outside", "/tmp/outside", "sandbox/../../outside", ""] {
        fs::write(path.join("manifest.json"), &manifest).unwrap();
        rewritten(&path, |manifest| manifest["files"][0]["path"] = outside.into());
        refuses(&path, "names a path outside of it");
    }
    fs::write(path.join("manifest.json"), &manifest).unwrap();
    // A store that was changed, in a backup whose digests were made to fit.
    let database = path.join("stepgate.db");
    let changed = |sql: &str| {
        Unfolded::open(&database).execute_batch(sql).unwrap();
        let digest = Digest::of_bytes(&fs::read(&database).unwrap());
        let bytes = fs::metadata(&database).unwrap().len();
        rewritten(&path, |manifest| {
            let files = manifest["files"].as_array_mut().unwrap();
            let file = files.iter_mut().find(|file| file["path"] == "stepgate.db").unwrap();
            file["sha256"] = serde_json::to_value(digest).unwrap();
            file["bytes"] = bytes.into();
        });
    };
    let version = "PRAGMA user_version";
    let version: i64 =
        Connection::open(&database).unwrap().query_row(version, [], |row| row.get(0)).unwrap();
    changed("PRAGMA user_version = 99");
    refuses(&path, "use the newer Stepgate that wrote it");
    changed(&format!(
        "PRAGMA user_version = {version}; DROP TRIGGER chunks_no_delete;
         UPDATE records SET record = replace(record, 'a test', 'a rest') WHERE position = 3"
    ));
    for target in Engine::ALL {
        let other = target.place();
        let output = stepgate(&other, "restore", &path, &[]);
        assert_eq!(output.code, 1, "{output:?}");
        assert!(output.stdout.contains("not verified: "), "{output:?}");
        assert!(output.stderr.contains("does not verify, and is taken back"), "{output:?}");
        assert!(!other.path().exists());
    }
}

#[test]
fn a_backup_replaces_nothing_and_is_not_made_where_it_cannot_be() {
    let (place, shelf) = (Place::new(), Shelf::new());
    some_steps(&place);
    let path = shelf.path("b");
    fs::write(&path, "something").unwrap();
    refused(&stepgate(&place, "backup", &path, &[]), "is there already");
    assert_eq!(fs::read_to_string(&path).unwrap(), "something");
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    refused(&stepgate(&place, "backup", &path, &[]), "is there already");
    fs::remove_dir(&path).unwrap();
    refused(&stepgate(&place, "backup", &shelf.path("none/b"), &[]), "there is no directory");
    let inside = place.path().join("sandbox/b");
    refused(&stepgate(&place, "backup", &inside, &[]), "is inside");
    refused(&stepgate(&Place::new(), "backup", &path, &[]), "there is no data directory");
    refused(
        &stepgate(&at("postgres://postgres@127.0.0.1:1/none"), "backup", &path, &[]),
        "does not answer",
    );
    let left: Vec<_> = fs::read_dir(shelf.path("")).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_restore_goes_into_an_empty_place_alone() {
    let (place, shelf) = (Place::new(), Shelf::new());
    some_steps(&place);
    let path = shelf.path("b");
    backed_up(&place, &path);
    let before = fs::read(place.database()).unwrap();
    refused(&stepgate(&place, "restore", &path, &[]), "is not empty");
    refused(&stepgate(&place, "restore", &path, &["--store-only"]), "already");
    assert_eq!(fs::read(place.database()).unwrap(), before);
    // An empty directory that is there is as good as none, and stays where nothing comes of it.
    let other = Place::new();
    fs::create_dir(other.path()).unwrap();
    restored(&other, &path);
    let url = SERVER.url(&SERVER.database().unwrap());
    some_steps(&at(&url));
    let full = at(&url);
    refused(&stepgate(&full, "restore", &path, &[]), "there is a store at");
    assert!(!full.path().exists());
    let away = at("postgres://postgres@127.0.0.1:1/none");
    refused(&stepgate(&away, "restore", &path, &[]), "does not answer");
    assert!(!away.path().exists());
    refused(&stepgate(&Place::new(), "restore", &shelf.path("none"), &[]), "is not a backup");
}

#[test]
fn a_restore_is_not_put_beside_the_log_of_another_store() {
    let (place, shelf) = (Place::new(), Shelf::new());
    let answered = some_steps(&place);
    let path = shelf.path("b");
    backed_up(&place, &path);
    let gateway = Gateway::start_with(&place, &["--quiet"]);
    let think = proposal("THINK", json!({}));
    assert_eq!(gateway.propose(&think).status, 200);
    gateway.signal(Signal::KILL);
    gateway.end();
    let moved = |name: &str| {
        fs::rename(place.path().join(name), shelf.path(name)).unwrap();
    };
    let again = || stepgate(&place, "restore", &path, &["--store-only"]);
    refused(&again(), "`stepgate.db`");
    moved("stepgate.db");
    refused(&again(), "`stepgate.db-wal`");
    moved("stepgate.db-wal");
    refused(&again(), "`stepgate.db-shm`");
    moved("stepgate.db-shm");
    let done = again();
    assert_eq!(done.code, 0, "{done:?}");
    replayed(&place, &answered);
    // With everything that was together, it is the store that it was.
    let old = Place::new();
    fs::create_dir(old.path()).unwrap();
    for name in ["stepgate.db", "stepgate.db-wal", "stepgate.db-shm"] {
        fs::rename(shelf.path(name), old.path().join(name)).unwrap();
    }
    let runs = old.stepgate(["runs", "--json", "--limit", "100"], "");
    assert_eq!(runs.stdout.lines().count(), answered.len() + 1, "{runs:?}");
    // And a directory of which nothing else is left is not empty.
    let left = Place::new();
    fs::create_dir(left.path()).unwrap();
    fs::write(left.path().join("stepgate.db-wal"), "").unwrap();
    refused(&stepgate(&left, "restore", &path, &[]), "`stepgate.db-wal`");
}

#[test]
fn a_store_that_does_not_verify_is_backed_up_only_as_it_is() {
    let (place, shelf) = (Place::new(), Shelf::new());
    some_steps(&place);
    let tamper = "DROP TRIGGER chunks_no_delete;
                  UPDATE records SET record = replace(record, 'a test', 'a rest') WHERE position = 3";
    Unfolded::open(&place.database()).execute_batch(tamper).unwrap();
    let path = shelf.path("b");
    let output = stepgate(&place, "backup", &path, &[]);
    assert_eq!(output.code, 1, "{output:?}");
    assert!(output.stderr.contains("the copy does not verify"), "{output:?}");
    assert!(output.stderr.contains("as evidence: `stepgate restore` refuses it"), "{output:?}");
    assert!(!path.exists() && !shelf.path(".b.partial").exists());
    let kept = stepgate(&place, "backup", &path, &["--no-verify"]);
    assert_eq!(kept.code, 0, "{kept:?}");
    let other = Place::new();
    let output = stepgate(&other, "restore", &path, &[]);
    assert_eq!(output.code, 1, "{output:?}");
    assert!(output.stderr.contains("does not verify"), "{output:?}");
}
