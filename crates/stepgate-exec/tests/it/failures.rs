//! Every failure that a file system can give, by its fixed message.

use std::fs;
use std::sync::Arc;

use stepgate_core::failure::ExecutionFailure as Failure;
use stepgate_core::ports::{Dispatch, Effect, Executor};
use stepgate_exec::{AtCrashPoint, CrashPoint, Sandbox, SandboxLimits};

use crate::world::*;

#[tokio::test]
async fn what_stands_in_the_way_has_one_message_and_changes_nothing() {
    let world = World::new();
    world.put(&[("a.txt", "a"), ("b.txt", "b"), ("d/", "")]);
    fs::write(world.inside.join("d/raw.txt"), b"\xff").unwrap();
    let rows = [
        (read("none.txt"), Failure::FileNotFound),
        (read("none/a.txt"), Failure::FileNotFound),
        (read("d"), Failure::NotAFile),
        (read("a.txt/x.txt"), Failure::NotADirectory),
        (read("d/raw.txt"), Failure::InvalidUtf8),
        (list("none"), Failure::PathNotFound),
        (list("none/x"), Failure::PathNotFound),
        (list("a.txt"), Failure::NotADirectory),
        (list("a.txt/x"), Failure::NotADirectory),
        (write("none/a.txt", "x"), Failure::PathNotFound),
        (write("d", "x"), Failure::NotAFile),
        (write("a.txt/x.txt", "x"), Failure::NotADirectory),
        (create("a.txt"), Failure::AlreadyExists),
        (create("a.txt/x"), Failure::NotADirectory),
        (delete("none.txt"), Failure::FileNotFound),
        (delete("none/a.txt"), Failure::FileNotFound),
        (delete("d"), Failure::NotAFile),
        (delete("a.txt/x.txt"), Failure::NotADirectory),
        (rename("none.txt", "c.txt"), Failure::FileNotFound),
        (rename("none/a.txt", "c.txt"), Failure::FileNotFound),
        (rename("d", "c.txt"), Failure::NotAFile),
        (rename("a.txt/x.txt", "c.txt"), Failure::NotADirectory),
        (rename("a.txt", "none/c.txt"), Failure::PathNotFound),
        (rename("a.txt", "b.txt/c.txt"), Failure::NotADirectory),
        (rename("a.txt", "b.txt"), Failure::AlreadyExists),
        (rename("a.txt", "a.txt"), Failure::AlreadyExists),
        (rename("a.txt", "d"), Failure::AlreadyExists),
        (rename("none.txt", "b.txt"), Failure::FileNotFound),
    ];
    for (call, failure) in rows {
        assert_eq!(world.run(&call).await, failed(failure), "{call:?}");
    }
    fs::remove_file(world.inside.join("d/raw.txt")).unwrap();
    assert_eq!(world.tree(), files(&[("a.txt", "a"), ("b.txt", "b"), ("d/", "")]));
}

#[tokio::test]
async fn a_file_is_read_below_and_at_the_limit_and_not_above() {
    let world = World::with(SandboxLimits { file_bytes_max: 4, ..SandboxLimits::default() });
    world.put(&[("3.txt", "abc"), ("4.txt", "abcd"), ("5.txt", "abcde")]);
    let rows = [
        ("3.txt", result(r#"{"content":"abc"}"#)),
        ("4.txt", result(r#"{"content":"abcd"}"#)),
        ("5.txt", failed(Failure::FileTooLarge)),
    ];
    for (name, effect) in rows {
        assert_eq!(world.run(&read(name)).await, effect, "{name}");
    }
}

#[tokio::test]
async fn a_file_whose_size_the_host_does_not_tell_is_still_bounded() {
    // The kernel's own files claim a size of nothing.
    let limits = SandboxLimits { file_bytes_max: 4, ..SandboxLimits::default() };
    let sandbox = Sandbox::open("/proc/sys/kernel".as_ref(), "proc".into(), limits).unwrap();
    let effect = sandbox.dispatch(&read("osrelease"), None, Dispatch::First).await;
    assert_eq!(effect, failed(Failure::FileTooLarge));
}

#[tokio::test]
async fn a_file_is_written_below_and_at_the_limit_and_not_above() {
    let world = World::with(SandboxLimits { file_bytes_max: 4, ..SandboxLimits::default() });
    let rows = [
        ("3.txt", "abc", DONE),
        ("4.txt", "abcd", DONE),
        ("5.txt", "abcde", failed(Failure::FileTooLarge)),
    ];
    for (name, content, effect) in rows {
        assert_eq!(world.run(&write(name, content)).await, effect, "{name}");
    }
    assert_eq!(world.tree(), files(&[("3.txt", "abc"), ("4.txt", "abcd")]));
}

#[tokio::test]
async fn a_directory_is_listed_below_and_at_the_limit_and_not_above() {
    let world = World::with(SandboxLimits { entries_max: 2, ..SandboxLimits::default() });
    world.put(&[("below/1", ""), ("at/1", ""), ("at/2", ""), ("at/.stepgate-x", "")]);
    world.put(&[("above/1", ""), ("above/2", ""), ("above/3", "")]);
    for name in ["below", "at"] {
        assert!(matches!(world.run(&list(name)).await, Effect::Done(Some(_))), "{name}");
    }
    assert_eq!(world.run(&list("above")).await, failed(Failure::TooManyEntries));
}

#[tokio::test]
async fn a_write_that_fails_leaves_no_temporary_file() {
    let world = World::new();
    world.put(&[("d/", "")]);
    let target = world.inside.join("d/a.txt");
    world.sandbox.set_crash_hook(Some(Arc::new(move |point| {
        if point == CrashPoint::WriteTemporarySynced {
            fs::create_dir(&target).unwrap();
        }
        AtCrashPoint::GoOn
    })));
    assert_eq!(world.run(&write("d/a.txt", "x")).await, failed(Failure::NotAFile));
    assert_eq!(world.tree(), files(&[("d/", ""), ("d/a.txt/", "")]));
}
