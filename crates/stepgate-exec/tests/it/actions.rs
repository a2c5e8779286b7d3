//! What each action does when nothing is in its way.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use stepgate_core::action::CoreCall;
use stepgate_core::ports::Executor;
use stepgate_exec::{Sandbox, SandboxError, SandboxLimits};

use crate::world::*;

#[tokio::test]
async fn thinking_and_finishing_touch_nothing() {
    let world = World::new();
    assert_eq!(world.run(&CoreCall::Think).await, DONE);
    let finish = CoreCall::Finish { response: "it is \"done\"".into() };
    assert_eq!(world.run(&finish).await, result(r#"{"final_response":"it is \"done\""}"#));
    assert_eq!(world.tree(), files(&[]));
}

#[tokio::test]
async fn a_file_is_read_whole() {
    let world = World::new();
    world.put(&[("a.txt", "línea\n\u{0}\"x\""), ("d/e/b.md", "deep"), ("empty.txt", "")]);
    let rows = [
        ("a.txt", r#"{"content":"línea\n\u0000\"x\""}"#),
        ("d/e/b.md", r#"{"content":"deep"}"#),
        ("empty.txt", r#"{"content":""}"#),
    ];
    for (name, text) in rows {
        assert_eq!(world.run(&read(name)).await, result(text), "{name}");
    }
}

#[tokio::test]
async fn a_listing_is_sorted_by_the_bytes_of_the_names() {
    let world = World::new();
    world.put(&[("b.txt", ""), ("B.txt", ""), ("a/", ""), ("é.txt", ""), ("a/inner.txt", "")]);
    assert_eq!(
        world.run(&list("")).await,
        result(concat!(
            r#"{"files":[{"isDirectory":false,"isFile":true,"name":"B.txt"},"#,
            r#"{"isDirectory":true,"isFile":false,"name":"a"},"#,
            r#"{"isDirectory":false,"isFile":true,"name":"b.txt"},"#,
            r#"{"isDirectory":false,"isFile":true,"name":"é.txt"}]}"#
        ))
    );
    assert_eq!(
        world.run(&list("a/")).await,
        result(r#"{"files":[{"isDirectory":false,"isFile":true,"name":"inner.txt"}]}"#)
    );
    fs::remove_file(world.inside.join("a/inner.txt")).unwrap();
    assert_eq!(world.run(&list("a")).await, result(r#"{"files":[]}"#));
}

#[tokio::test]
async fn a_listing_hides_our_own_names_and_those_that_no_proposal_can_say() {
    use std::os::unix::ffi::OsStrExt;
    let world = World::new();
    world.put(&[(".stepgate-1", "temporary"), (".hidden.txt", "")]);
    let nameless = std::ffi::OsStr::from_bytes(b"\xff.txt");
    fs::write(world.inside.join(nameless), "").unwrap();
    assert_eq!(
        world.run(&list("")).await,
        result(r#"{"files":[{"isDirectory":false,"isFile":true,"name":".hidden.txt"}]}"#)
    );
}

#[tokio::test]
async fn a_listing_shows_links_and_special_files_as_neither_file_nor_directory() {
    let world = World::new();
    std::os::unix::fs::symlink(&world.outside, world.inside.join("link")).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(world.inside.join("socket")).unwrap();
    assert_eq!(
        world.run(&list("")).await,
        result(concat!(
            r#"{"files":[{"isDirectory":false,"isFile":false,"name":"link"},"#,
            r#"{"isDirectory":false,"isFile":false,"name":"socket"}]}"#
        ))
    );
}

#[tokio::test]
async fn a_write_makes_the_file_or_replaces_it_whole_and_leaves_nothing_else() {
    let world = World::new();
    world.put(&[("d/", "")]);
    assert_eq!(world.run(&write("d/a.txt", "first, and longer")).await, DONE);
    assert_eq!(world.tree(), files(&[("d/", ""), ("d/a.txt", "first, and longer")]));
    assert_eq!(world.run(&write("d/a.txt", "second")).await, DONE);
    assert_eq!(world.tree(), files(&[("d/", ""), ("d/a.txt", "second")]));
}

#[tokio::test]
async fn a_replaced_file_keeps_its_permissions_but_no_special_bit() {
    let world = World::new();
    world.put(&[("a.txt", "old")]);
    let path = world.inside.join("a.txt");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o4640)).unwrap();
    assert_eq!(world.run(&write("a.txt", "new")).await, DONE);
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o640);
}

#[tokio::test]
async fn a_directory_is_created_with_its_parents_and_again_without_harm() {
    let world = World::new();
    world.put(&[("a/", "")]);
    for call in [create("a/b/c/"), create("a/b/c"), create("a")] {
        assert_eq!(world.run(&call).await, DONE);
    }
    assert_eq!(world.tree(), files(&[("a/", ""), ("a/b/", ""), ("a/b/c/", "")]));
}

#[tokio::test]
async fn a_file_is_deleted() {
    let world = World::new();
    world.put(&[("d/a.txt", "x"), ("b.txt", "y")]);
    assert_eq!(world.run(&delete("d/a.txt")).await, DONE);
    assert_eq!(world.tree(), files(&[("b.txt", "y"), ("d/", "")]));
}

#[tokio::test]
async fn a_file_is_renamed_within_a_directory_and_to_another() {
    let world = World::new();
    world.put(&[("a.txt", "x"), ("d/", "")]);
    assert_eq!(world.run(&rename("a.txt", "b.txt")).await, DONE);
    assert_eq!(world.run(&rename("b.txt", "d/c.txt")).await, DONE);
    assert_eq!(world.tree(), files(&[("d/", ""), ("d/c.txt", "x")]));
}

#[test]
fn the_executor_has_the_name_it_was_given() {
    assert_eq!(World::new().sandbox.id(), "sandbox-1");
}

#[test]
fn a_directory_that_is_not_there_is_no_sandbox() {
    let world = World::new();
    world.put(&[("a.txt", "x")]);
    for name in ["missing", "a.txt"] {
        let directory = world.inside.join(name);
        let opened = Sandbox::open(&directory, "x".into(), SandboxLimits::default());
        assert!(matches!(opened, Err(SandboxError::Open { .. })), "{name}");
    }
}

#[tokio::test]
async fn the_handle_stays_with_the_directory_that_was_opened() {
    let world = World::new();
    world.put(&[("a.txt", "ours")]);
    fs::rename(&world.inside, world.outside.join("moved")).unwrap();
    std::os::unix::fs::symlink(&world.outside, &world.inside).unwrap();
    fs::write(world.outside.join("a.txt"), "secret").unwrap();
    assert_eq!(world.run(&read("a.txt")).await, result(r#"{"content":"ours"}"#));
}
