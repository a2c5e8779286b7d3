//! What the tool_call records of the state before the act.

use std::fs;
use std::os::unix::fs::MetadataExt;

use serde_json::json;
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
    let stat = fs::metadata(world.inside.join("a.txt")).unwrap();
    let (device, inode) = (stat.dev().to_string(), stat.ino().to_string());
    let file = json!({ "exists": true, "device": device, "inode": inode });
    let directory = json!({ "exists": true, "device": null, "inode": null });
    let nothing = json!({ "exists": false, "device": null, "inode": null });
    let yes = json!({ "exists": true });
    let no = json!({ "exists": false });
    let written =
        |exists: bool, sha256: Option<Digest>| json!({ "exists": exists, "sha256": sha256 });
    let renamed = |source, destination| json!({ "source": source, "destination": destination });
    let rows = [
        (CoreCall::Think, None),
        (read("a.txt"), None),
        (read("none.txt"), None),
        (list("d"), None),
        (list(""), None),
        (write("a.txt", "x"), Some(written(true, Some(Digest::of_bytes(b"abc"))))),
        (write("none.txt", "x"), Some(written(false, None))),
        (write("none/a.txt", "x"), Some(written(false, None))),
        (write("a.txt/a.txt", "x"), Some(written(false, None))),
        (write("d", "x"), Some(written(true, None))),
        (write("large.txt", "x"), Some(written(true, None))),
        (delete("a.txt"), Some(file.clone())),
        (delete("none.txt"), Some(nothing.clone())),
        (delete("d"), Some(directory.clone())),
        (rename("a.txt", "b.txt"), Some(renamed(file.clone(), no.clone()))),
        (rename("a.txt", "large.txt"), Some(renamed(file, yes.clone()))),
        (rename("none.txt", "d"), Some(renamed(nothing, yes.clone()))),
        (rename("d", "b.txt"), Some(renamed(directory, no.clone()))),
        (create("d"), Some(yes)),
        (create("e/f"), Some(no)),
    ];
    for (call, pre_state) in rows {
        assert_eq!(world.pre_state(&call).await, pre_state, "{call:?}");
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
