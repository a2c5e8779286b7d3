//! What the host forbids. The file work runs on threads without privileges, also where the tests
//! run as root.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;

use rustix::process::{Uid, geteuid};
use rustix::thread::set_thread_res_uid;
use serde_json::json;
use stepgate_core::failure::ExecutionFailure as Failure;

use crate::world::*;

const NOBODY: u32 = 65_534;

/// A runtime all of whose threads, the caller's included, have no privileges.
struct Unprivileged(tokio::runtime::Runtime);

impl Unprivileged {
    fn block_on<T: Send>(&self, work: impl Future<Output = T> + Send) -> T {
        std::thread::scope(|scope| {
            let caller = scope.spawn(|| {
                drop_privileges();
                self.0.block_on(work)
            });
            caller.join().unwrap()
        })
    }
}

fn unprivileged() -> Unprivileged {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .on_thread_start(drop_privileges)
        .build();
    Unprivileged(runtime.unwrap())
}

fn drop_privileges() {
    if geteuid().is_root() {
        let nobody = Uid::from_raw(NOBODY);
        set_thread_res_uid(nobody, nobody, nobody).unwrap();
    }
}

/// Gives the path to whoever the file work runs as.
fn hand_over(path: &Path, mode: u32) {
    if geteuid().is_root() {
        chown(path, Some(NOBODY), None).unwrap();
    }
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn what_the_host_forbids_is_permission_denied_and_changes_nothing() {
    let world = World::new();
    world.put(&[("a.txt", "a"), ("locked.txt", "l"), ("shut/a.txt", "s"), ("fixed/a.txt", "f")]);
    for (name, mode) in [
        ("a.txt", 0o644),
        ("locked.txt", 0o200),
        ("shut/a.txt", 0o644),
        ("shut", 0o000),
        ("fixed/a.txt", 0o444),
        ("fixed", 0o555),
        ("", 0o755),
    ] {
        hand_over(&world.inside.join(name), mode);
    }
    let calls = [
        read("locked.txt"),
        read("shut/a.txt"),
        list("shut"),
        write("shut/a.txt", "x"),
        write("fixed/a.txt", "x"),
        write("fixed/b.txt", "x"),
        create("shut/d"),
        create("fixed/d"),
        delete("shut/a.txt"),
        delete("fixed/a.txt"),
        rename("shut/a.txt", "b.txt"),
        rename("fixed/a.txt", "b.txt"),
        rename("a.txt", "shut/b.txt"),
        rename("a.txt", "fixed/b.txt"),
    ];
    let runtime = unprivileged();
    for call in calls {
        let effect = runtime.block_on(world.run(&call));
        assert_eq!(effect, failed(Failure::PermissionDenied), "{call:?}");
    }
    let blind = runtime.block_on(world.pre_state(&delete("shut/a.txt")));
    assert_eq!(blind, Some(json!({ "failure": "PERMISSION_DENIED" })));
    hand_over(&world.inside.join("shut"), 0o755);
    hand_over(&world.inside.join("fixed"), 0o755);
    let rows = [
        ("a.txt", "a"),
        ("locked.txt", "l"),
        ("fixed/", ""),
        ("fixed/a.txt", "f"),
        ("shut/", ""),
        ("shut/a.txt", "s"),
    ];
    hand_over(&world.inside.join("locked.txt"), 0o644);
    assert_eq!(world.tree(), files(&rows));
}

#[test]
fn a_file_that_may_not_be_written_is_not_replaced() {
    let world = World::new();
    world.put(&[("a.txt", "old")]);
    hand_over(&world.inside, 0o755);
    hand_over(&world.inside.join("a.txt"), 0o444);
    let effect = unprivileged().block_on(world.run(&write("a.txt", "new")));
    assert_eq!(effect, failed(Failure::PermissionDenied));
    assert_eq!(world.tree(), files(&[("a.txt", "old")]));
}

#[test]
fn a_file_in_a_directory_that_may_only_be_searched_is_read() {
    let world = World::new();
    world.put(&[("d/a.txt", "a")]);
    hand_over(&world.inside, 0o755);
    hand_over(&world.inside.join("d/a.txt"), 0o644);
    hand_over(&world.inside.join("d"), 0o111);
    let effect = unprivileged().block_on(world.run(&read("d/a.txt")));
    assert_eq!(effect, result(r#"{"content":"a"}"#));
    hand_over(&world.inside.join("d"), 0o755);
}
