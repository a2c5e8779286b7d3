//! Steps that were under way when the backup was made: after a restore they end as after a crash.

use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use serde_json::{Value, json};
use stepgate_core::action::CoreCall;
use stepgate_core::ports::{Dispatch, Effect, Executor};
use stepgate_exec::{Sandbox, SandboxLimits};
use stepgate_store::SqliteStore;

use super::damage::rewritten;
use super::{Engine, Shelf, backed_up, heads, restored, stepgate};
use crate::binary::Place;
use crate::gate::{self, Act, Acting, proposal, submit};

/// Stops before the act, or between the act and its record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stops {
    Before,
    After,
}

struct Stopping {
    inner: Sandbox,
    stops: Stops,
}

#[async_trait]
impl Act for Stopping {
    fn inner(&self) -> &dyn Executor {
        &self.inner
    }

    async fn act(&self, call: &CoreCall, pre_state: Option<&Value>, dispatch: Dispatch) -> Effect {
        if self.stops == Stops::After {
            self.inner.dispatch(call, pre_state, dispatch).await;
        }
        Effect::Unknown("stopped".into())
    }
}

/// The steps, each on files of its own.
fn steps() -> [String; 3] {
    [
        proposal(1, "DELETE_FILE", json!({ "path": "/sandbox/deleted.txt" })),
        proposal(
            2,
            "RENAME_FILE",
            json!({ "source": "/sandbox/before.txt", "destination": "/sandbox/after.txt" }),
        ),
        proposal(3, "WRITE_FILE", json!({ "path": "/sandbox/written.txt", "content": "new" })),
    ]
}

/// A data directory whose gateway was stopped in the middle of every step, and the files that were there
/// before: while they are open, no other file can be taken for one of them.
fn interrupted(stops: Stops) -> (Place, [File; 3]) {
    let place = Place::new();
    assert_eq!(place.stepgate(["run", "THINK"], "").code, 0);
    let sandbox = place.path().join("sandbox");
    let files = ["deleted.txt", "before.txt", "written.txt"].map(|name| {
        fs::write(sandbox.join(name), "old").unwrap();
        File::open(sandbox.join(name)).unwrap()
    });
    let store = SqliteStore::open(&place.database(), Default::default()).unwrap();
    let mut gate = gate::gate(Arc::new(store), &sandbox);
    let inner = Sandbox::open(&sandbox, "sandbox".into(), SandboxLimits::default()).unwrap();
    gate.executor = Arc::new(Acting(Stopping { inner, stops }));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        for step in steps() {
            assert!(submit(&gate, step).await.is_err());
        }
    });
    (place, files)
}

/// What agents can see in the sandbox: reserved names are not theirs.
fn tree(sandbox: &Path) -> Vec<(String, String)> {
    let mut files: Vec<_> = fs::read_dir(sandbox)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| {
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            (name, fs::read_to_string(path).unwrap())
        })
        .filter(|(name, _)| !name.starts_with(".stepgate-"))
        .collect();
    files.sort();
    files
}

#[test]
fn steps_under_way_end_after_a_restore_as_after_a_crash() {
    let expected = [("after.txt", "old"), ("written.txt", "new")]
        .map(|(name, text)| (name.to_owned(), text.to_owned()));
    for stops in [Stops::Before, Stops::After] {
        let ((place, _files), shelf) = (interrupted(stops), Shelf::new());
        backed_up(&place, &shelf.path("b"));
        for target in Engine::ALL {
            let other = target.place();
            restored(&other, &shelf.path("b"));
            let told = other.stepgate(["--json", "recover"], "");
            assert_eq!(told.code, 0, "{stops:?} {target:?}: {told:?}");
            let told: Value = serde_json::from_str(&told.stdout).unwrap();
            assert_eq!(told["finished"].as_array().map(Vec::len), Some(3), "{told}");
            assert_eq!(tree(&other.path().join("sandbox")), expected, "{stops:?} {target:?}");
            let again = other.stepgate(["step", "--lines"], steps().join("\n"));
            for line in again.stdout.lines() {
                let answer: Value = serde_json::from_str(line).unwrap();
                assert_eq!(answer["outcome"], "SUCCESS", "{stops:?} {target:?}: {answer}");
            }
            assert_eq!(again.stdout.lines().count(), 3, "{again:?}");
            assert!(!other.path().join("restored.json").exists());
            heads(&other);
        }
        // The original goes on too: a backup takes nothing away.
        assert_eq!(place.stepgate(["recover"], "").code, 0);
        assert_eq!(tree(&place.path().join("sandbox")), expected);
    }
}

#[test]
fn a_file_that_was_made_after_a_deletion_under_way_stays() {
    let shelf = Shelf::new();
    let (place, _files) = interrupted(Stops::After);
    // Made after the store's moment, and before the sandbox's.
    fs::write(place.path().join("sandbox/deleted.txt"), "another").unwrap();
    backed_up(&place, &shelf.path("b"));
    let other = Place::new();
    restored(&other, &shelf.path("b"));
    assert_eq!(other.stepgate(["recover"], "").code, 0);
    let kept = fs::read_to_string(other.path().join("sandbox/deleted.txt")).unwrap();
    assert_eq!(kept, "another");
}

/// An earlier build took whatever file had the inode for the one that a call recorded.
#[test]
fn a_backup_of_an_earlier_build_proves_no_file_and_a_person_says_what_became_of_a_call() {
    let ((place, _files), shelf) = (interrupted(Stops::Before), Shelf::new());
    backed_up(&place, &shelf.path("b"));
    rewritten(&shelf.path("b"), |manifest| manifest["format"] = 1.into());
    let other = Place::new();
    restored(&other, &shelf.path("b"));
    let told = other.stepgate(["--json", "recover"], "");
    let told: Value = serde_json::from_str(&told.stdout).unwrap();
    assert_eq!(told["finished"].as_array().map(Vec::len), Some(1), "{told}");
    assert_eq!(told["stuck"].as_array().map(Vec::len), Some(2), "{told}");
    let kept = [("before.txt", "old"), ("deleted.txt", "old"), ("written.txt", "new")]
        .map(|(name, text)| (name.to_owned(), text.to_owned()));
    assert_eq!(tree(&other.path().join("sandbox")), kept);
}

#[test]
fn a_restored_directory_that_is_backed_up_before_it_was_recovered_is_as_good_as_the_first() {
    let expected = [("after.txt", "old"), ("written.txt", "new")]
        .map(|(name, text)| (name.to_owned(), text.to_owned()));
    for stops in [Stops::Before, Stops::After] {
        let ((place, _files), shelf) = (interrupted(stops), Shelf::new());
        backed_up(&place, &shelf.path("first"));
        let between = Place::new();
        restored(&between, &shelf.path("first"));
        backed_up(&between, &shelf.path("second"));
        let other = Place::new();
        restored(&other, &shelf.path("second"));
        recovered(&other, 3, 0);
        assert_eq!(tree(&other.path().join("sandbox")), expected, "{stops:?}");
    }
}

/// Recovers so many runs, with so many left for a person.
fn recovered(place: &Place, finished: usize, stuck: usize) {
    let told = place.stepgate(["--json", "recover"], "");
    let told: Value = serde_json::from_str(&told.stdout).unwrap();
    let count = |name: &str| told[name].as_array().unwrap().len();
    assert_eq!((count("finished"), count("stuck")), (finished, stuck), "{told}");
}

#[test]
fn what_nobody_knew_of_a_file_nobody_knows_after_another_backup() {
    let ((place, _files), shelf) = (interrupted(Stops::Before), Shelf::new());
    let made = stepgate(&place, "backup", &shelf.path("first"), &["--no-sandbox"]);
    assert_eq!(made.code, 0, "{made:?}");
    let between = Place::new();
    restored(&between, &shelf.path("first"));
    copy_files(&place, &between);
    recovered(&between, 1, 2);
    backed_up(&between, &shelf.path("second"));
    let other = Place::new();
    restored(&other, &shelf.path("second"));
    recovered(&other, 0, 2);
    assert_eq!(tree(&other.path().join("sandbox")), tree(&between.path().join("sandbox")));
}

#[test]
fn a_store_alone_beside_copied_files_leaves_it_to_a_person_what_became_of_a_call() {
    let ((place, _files), shelf) = (interrupted(Stops::Before), Shelf::new());
    backed_up(&place, &shelf.path("b"));
    for target in Engine::ALL {
        let other = target.place();
        fs::create_dir(other.path()).unwrap();
        copy_files(&place, &other);
        let done = stepgate(&other, "restore", &shelf.path("b"), &["--store-only"]);
        assert_eq!(done.code, 0, "{done:?}");
        recovered(&other, 1, 2);
        let kept =
            ["before.txt", "deleted.txt"].map(|name| other.path().join("sandbox").join(name));
        assert_eq!(kept.map(|path| path.exists()), [true, true], "{target:?}");
    }
    // Beside the files themselves it ends as after a crash.
    for name in ["", "-wal", "-shm"] {
        let file = format!("{}{name}", place.database().display());
        let moved = fs::rename(file, shelf.path(&format!("old{name}")));
        assert!(moved.is_ok() || !name.is_empty(), "{moved:?}");
    }
    let done = stepgate(&place, "restore", &shelf.path("b"), &["--store-only"]);
    assert_eq!(done.code, 0, "{done:?}");
    recovered(&place, 3, 0);
    let left: Vec<_> =
        tree(&place.path().join("sandbox")).into_iter().map(|(name, _)| name).collect();
    assert_eq!(left, ["after.txt", "written.txt"]);
}

/// Copies a sandbox as a person does.
fn copy_files(from: &Place, to: &Place) {
    let sandbox = to.path().join("sandbox");
    fs::create_dir(&sandbox).unwrap();
    for (name, text) in tree(&from.path().join("sandbox")) {
        fs::write(sandbox.join(name), text).unwrap();
    }
}

#[test]
fn where_files_were_put_back_otherwise_a_person_says_what_became_of_a_call() {
    let ((place, _files), shelf) = (interrupted(Stops::Before), Shelf::new());
    let made = stepgate(&place, "backup", &shelf.path("b"), &["--no-sandbox"]);
    assert_eq!(made.code, 0, "{made:?}");
    let other = Place::new();
    let done = stepgate(&other, "restore", &shelf.path("b"), &[]);
    assert_eq!(done.code, 0, "{done:?}");
    assert!(done.stderr.contains("put its files back before the first start"), "{done:?}");
    let sandbox = other.path().join("sandbox");
    copy_files(&place, &other);
    let told = other.stepgate(["--json", "recover"], "");
    let told: Value = serde_json::from_str(&told.stdout).unwrap();
    // What was to be written tells by its content; what was to be renamed or deleted does not.
    assert_eq!(told["finished"].as_array().map(Vec::len), Some(1), "{told}");
    let stuck = told["stuck"].as_array().unwrap();
    assert_eq!(stuck.len(), 2, "{told}");
    for run in stuck {
        assert!(run["reason"].as_str().unwrap().contains("runs resolve"), "{run}");
        let run_id = run["run_id"].as_str().unwrap();
        let resolved = other.stepgate(["runs", "resolve", run_id, "--failed"], "");
        assert_eq!(resolved.code, 12, "{resolved:?}");
    }
    let kept = ["before.txt", "deleted.txt"].map(|name| sandbox.join(name).exists());
    assert_eq!(kept, [true, true]);
    assert_eq!(other.stepgate(["recover"], "").code, 0);
    assert!(!other.path().join("restored.json").exists());
    heads(&other);
}
