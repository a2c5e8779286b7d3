//! What the tool_call records of the state before the act.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::time::UNIX_EPOCH;

use serde_json::{Value, json};
use stepgate_core::action::CoreCall;
use stepgate_core::digest::Digest;
use stepgate_core::failure::ExecutionFailure as Failure;
use stepgate_core::ports::{Dispatch, Executor};
use stepgate_exec::SandboxLimits;

use crate::world::*;

#[tokio::test]
async fn each_action_records_what_its_recovery_needs() {
    let world = World::with(SandboxLimits { file_bytes_max: 4, ..SandboxLimits::default() });
    world.put(&[("a.txt", "abc"), ("large.txt", "abcde"), ("d/", "")]);
    let file = |name: &str| {
        let stat = fs::metadata(world.inside.join(name)).unwrap();
        let born = stat.created().unwrap().duration_since(UNIX_EPOCH).unwrap();
        json!({
            "exists": true,
            "device": stat.dev().to_string(),
            "inode": stat.ino().to_string(),
            "born": format!("{}.{:09}", born.as_secs(), born.subsec_nanos()),
            "changed": format!("{}.{:09}", stat.ctime(), stat.ctime_nsec()),
            "modified": format!("{}.{:09}", stat.mtime(), stat.mtime_nsec()),
        })
    };
    let directory = json!({ "exists": true, "device": null, "inode": null });
    let nothing = json!({ "exists": false, "device": null, "inode": null });
    let yes = json!({ "exists": true });
    let no = json!({ "exists": false });
    let written = |mut before: Value, sha256: Option<Digest>| {
        before["sha256"] = json!(sha256);
        before
    };
    let renamed = |source, destination| json!({ "source": source, "destination": destination });
    let rows = [
        (CoreCall::Think, None),
        (read("a.txt"), None),
        (read("none.txt"), None),
        (list("d"), None),
        (list(""), None),
        (write("a.txt", "x"), Some(written(file("a.txt"), Some(Digest::of_bytes(b"abc"))))),
        (write("none.txt", "x"), Some(written(no.clone(), None))),
        (write("none/a.txt", "x"), Some(written(no.clone(), None))),
        (write("a.txt/a.txt", "x"), Some(written(no.clone(), None))),
        (write("d", "x"), Some(written(yes.clone(), None))),
        (write("large.txt", "x"), Some(written(file("large.txt"), None))),
        (delete("a.txt"), Some(file("a.txt"))),
        (delete("none.txt"), Some(nothing.clone())),
        (delete("d"), Some(directory.clone())),
        (rename("a.txt", "b.txt"), Some(renamed(file("a.txt"), no.clone()))),
        (rename("a.txt", "large.txt"), Some(renamed(file("a.txt"), yes.clone()))),
        (rename("none.txt", "d"), Some(renamed(nothing, yes.clone()))),
        (rename("d", "b.txt"), Some(renamed(directory, no.clone()))),
        (create("d"), Some(yes)),
        (create("e/f"), Some(no)),
    ];
    for (call, pre_state) in rows {
        let mut seen = world.pre_state(&call).await;
        if let (CoreCall::WriteFile { .. }, Some(seen)) = (&call, &mut seen) {
            // A file that is still in the tick of its birth is told by its modification time, too.
            let stamped = seen.as_object_mut().and_then(|seen| seen.shift_remove("stamped"));
            assert!(stamped.is_none_or(|stamped| stamped == seen["modified"]), "{call:?}");
        }
        assert_eq!(seen, pre_state, "{call:?}");
    }
}

#[tokio::test]
async fn a_look_that_failed_is_the_effect_and_nothing_is_done() {
    let world = World::new();
    world.put(&[("a.txt", "a")]);
    let pre_state = json!({ "failure": "PERMISSION_DENIED" });
    for call in [write("a.txt", "x"), delete("a.txt"), rename("a.txt", "b.txt"), create("d")] {
        for dispatch in [Dispatch::First, Dispatch::Again] {
            let effect = world.sandbox.dispatch(&call, Some(&pre_state), dispatch).await;
            assert_eq!(effect, failed(Failure::PermissionDenied), "{call:?}");
        }
    }
    assert_eq!(world.tree(), files(&[("a.txt", "a")]));
}
