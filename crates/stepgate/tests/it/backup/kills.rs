//! kill -9 in the middle of a backup, and in the middle of a restore.

use std::fs;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use super::{
    Engine, SERVER, Shelf, at, backed_up, heads, heads_of, refused, replayed, restored, some_steps,
    stepgate,
};
use crate::binary::Place;

const KILLS: u32 = 24;

fn spawn(place: &Place, command: &str, path: &Path) -> Child {
    let mut child = place.command([command, path.to_str().unwrap()]);
    child.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// How long a command takes when nobody kills it.
fn time_of(mut child: Child) -> Duration {
    let start = Instant::now();
    assert!(child.wait().unwrap().success());
    start.elapsed()
}

/// Kills a command at its n-th part.
fn kill(mut child: Child, whole: Duration, part: u32) {
    let start = Instant::now();
    while start.elapsed() < whole * part / KILLS {
        std::hint::spin_loop();
    }
    let _ = child.kill();
    child.wait().unwrap();
}

#[test]
fn a_killed_backup_never_looks_like_one() {
    for source in Engine::ALL {
        let (place, shelf) = (source.place(), Shelf::new());
        let answered = some_steps(&place);
        let whole = time_of(spawn(&place, "backup", &shelf.path("whole")));
        let mut killed = 0;
        for part in 0..KILLS {
            let path = shelf.path(&format!("b{}", part % 3));
            if path.exists() {
                continue;
            }
            kill(spawn(&place, "backup", &path), whole, part);
            if path.exists() {
                // It has its name, so it is one.
                restored(&Place::new(), &path);
            } else {
                killed += 1;
                refused(&stepgate(&Place::new(), "restore", &path, &[]), "is not a backup");
            }
        }
        println!("{source:?}: killed {killed} times in {whole:?}");
        assert!(killed > 3, "only {killed} kills came in time");
        // What they left is cleared away by the next one of that name.
        for name in ["b0", "b1", "b2"] {
            let path = shelf.path(name);
            if !path.exists() {
                backed_up(&place, &path);
            }
            assert!(!shelf.path(&format!(".{name}.partial")).exists());
        }
        replayed(&place, &answered);
    }
}

#[test]
fn a_killed_restore_leaves_nothing_that_looks_finished_and_can_be_repeated() {
    let (place, shelf) = (Place::new(), Shelf::new());
    rules(&place);
    let answered = some_steps(&place);
    let path = shelf.path("b");
    backed_up(&place, &path);
    for target in Engine::ALL {
        let whole = time_of(spawn(&target.place(), "restore", &path));
        let mut killed = 0;
        for part in 0..KILLS {
            let url = SERVER.url(&SERVER.database().unwrap());
            let other = match target {
                Engine::Sqlite => Place::new(),
                Engine::Postgres => at(&url),
            };
            kill(spawn(&other, "restore", &path), whole, part);
            let is_begun = other.path().join(".restoring").exists();
            let is_over = !is_begun && other.path().join("sandbox").exists();
            if !is_over {
                killed += 1;
                if is_begun {
                    refused(&other.stepgate(["run", "THINK"], ""), "was interrupted");
                }
                let again = stepgate(&other, "restore", &path, &[]);
                assert_eq!(again.code, 0, "{again:?}");
            }
            assert_eq!(heads(&other), heads_of(&path), "{target:?}, part {part}");
            replayed(&other, &answered);
        }
        println!("{target:?}: killed {killed} times in {whole:?}");
        assert!(killed > 3, "only {killed} kills came in time");
    }
}

/// Killed after the database had committed, and before the last word about it.
#[test]
fn a_restore_that_ended_in_the_database_alone_is_brought_to_its_end() {
    let (place, shelf) = (Place::new(), Shelf::new());
    let answered = some_steps(&place);
    let path = shelf.path("b");
    backed_up(&place, &path);
    let other = at(&SERVER.url(&SERVER.database().unwrap()));
    restored(&other, &path);
    let mark = other.path().join(".restoring");
    for is_placed in [true, false] {
        as_if_placing(&other);
        if !is_placed {
            fs::remove_dir_all(other.path().join("sandbox")).unwrap();
        }
        refused(&other.stepgate(["run", "THINK"], ""), "was interrupted");
        restored(&other, &path);
        assert!(other.path().join("sandbox").exists() && !mark.exists());
    }
    assert_eq!(heads(&other), heads_of(&path));
    replayed(&other, &answered);
    // What somebody else did there since is not taken for it.
    as_if_placing(&other);
    refused(&stepgate(&other, "restore", &path, &[]), "there is a store at");
    assert!(mark.exists());
}

/// Makes a directory that was restored look like one whose restore has not said yet that it is whole.
fn as_if_placing(place: &Place) {
    let mark = place.path().join(".restoring");
    let names: Vec<_> = fs::read_dir(place.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name != "lock")
        .collect();
    fs::create_dir(&mark).unwrap();
    fs::write(mark.join("placing.json"), serde_json::to_vec(&names).unwrap()).unwrap();
}

#[test]
fn a_restore_that_was_killed_in_the_middle_of_placing_is_known_as_one_whatever_was_placed() {
    let (place, shelf) = (Place::new(), Shelf::new());
    rules(&place);
    let answered = some_steps(&place);
    let path = shelf.path("b");
    backed_up(&place, &path);
    let other = Place::new();
    restored(&other, &path);
    as_if_placing(&other);
    // The database comes last, and did not come.
    fs::rename(other.database(), other.path().join(".restoring/stepgate.db")).unwrap();
    refused(&other.stepgate(["run", "THINK"], ""), "was interrupted");
    // What somebody has put there since is not removed, and the restore stays one that did not end.
    fs::write(other.path().join("mine.txt"), "mine").unwrap();
    refused(&stepgate(&other, "restore", &path, &[]), "it has `mine.txt`");
    refused(&other.stepgate(["run", "THINK"], ""), "was interrupted");
    fs::remove_file(other.path().join("mine.txt")).unwrap();
    restored(&other, &path);
    assert!(other.path().join("rules/own.cedar").exists());
    assert_eq!(heads(&other), heads_of(&path));
    replayed(&other, &answered);
}

/// Policies in a directory of another name.
fn rules(place: &Place) {
    fs::create_dir_all(place.path().join("rules")).unwrap();
    let policy = "@id(\"core\") permit (principal, action in Action::\"core\", resource);";
    fs::write(place.path().join("rules/own.cedar"), policy).unwrap();
    fs::write(place.path().join("stepgate.toml"), "[policy]\ndirectory = \"rules\"\n").unwrap();
}
