//! A call that may have been sent before: what stands there now, against what stood there before.

use std::fs;
use std::os::unix::fs::MetadataExt;

use stepgate_core::action::CoreCall;
use stepgate_core::failure::ExecutionFailure as Failure;
use stepgate_core::ports::{Dispatch, Effect, Executor};

use crate::world::*;

type Files<'a> = &'a [(&'a str, &'a str)];

/// What happens between the two dispatches: the first one's effect, or somebody else's.
enum Between<'a> {
    Nothing,
    Acted,
    Put(Files<'a>),
    Remove(&'a str),
    /// A file made elsewhere takes the name, so it is certainly another file.
    Replace(&'a str, &'a str),
    ActedThenPut(Files<'a>),
    ActedThenRemove(&'a str),
}

async fn check(
    call: CoreCall,
    before: Files<'_>,
    between: Between<'_>,
    effect: Effect,
    after: Files<'_>,
) {
    let world = World::new();
    world.put(before);
    let pre_state = world.pre_state(&call).await;
    let first = async || {
        world.sandbox.dispatch(&call, pre_state.as_ref(), Dispatch::First).await;
    };
    match between {
        Between::Nothing => {}
        Between::Acted => first().await,
        Between::Put(files) => drop(world.put(files)),
        Between::Remove(name) => remove(&world, name),
        Between::Replace(name, content) => {
            let other = world.outside.join("other");
            fs::write(&other, content).unwrap();
            fs::rename(other, world.inside.join(name)).unwrap();
        }
        Between::ActedThenPut(files) => {
            first().await;
            world.put(files);
        }
        Between::ActedThenRemove(name) => {
            first().await;
            remove(&world, name);
        }
    }
    let again = world.sandbox.dispatch(&call, pre_state.as_ref(), Dispatch::Again).await;
    assert_eq!(again, effect, "{call:?} after {before:?}");
    assert_eq!(world.tree(), files(after), "{call:?} after {before:?}");
}

fn remove(world: &World, name: &str) {
    let path = world.inside.join(name);
    if path.is_dir() {
        fs::remove_dir_all(path).unwrap();
    } else {
        fs::remove_file(path).unwrap();
    }
}

#[tokio::test]
async fn a_write_is_done_when_the_old_content_no_longer_stands_there_and_else_is_done_now() {
    use Between::*;
    let call = || write("a.txt", "new");
    let old: Files = &[("a.txt", "old")];
    let new: Files = &[("a.txt", "new")];
    check(call(), &[], Nothing, DONE, new).await;
    check(call(), &[], Acted, DONE, new).await;
    check(call(), old, Nothing, DONE, new).await;
    check(call(), old, Acted, DONE, new).await;
    check(call(), new, Nothing, DONE, new).await;
    check(call(), new, Acted, DONE, new).await;
    // What somebody wrote since then came after this write, and is not undone.
    for later in ["third", "newer", "ne"] {
        let later: Files = &[("a.txt", later)];
        check(call(), old, Put(later), DONE, later).await;
        check(call(), old, ActedThenPut(later), DONE, later).await;
        check(call(), &[], Put(later), DONE, later).await;
        check(call(), &[], ActedThenPut(later), DONE, later).await;
    }
    check(call(), old, Remove("a.txt"), DONE, new).await;
    check(call(), old, ActedThenRemove("a.txt"), DONE, new).await;
    let directory: Files = &[("a.txt/", "")];
    check(call(), directory, Nothing, failed(Failure::NotAFile), directory).await;
    let missing = || write("d/a.txt", "new");
    check(missing(), &[], Nothing, failed(Failure::PathNotFound), &[]).await;
}

#[tokio::test]
async fn a_write_that_is_done_is_not_written_again() {
    let world = World::new();
    let call = write("a.txt", "new");
    assert_eq!(world.run(&call).await, DONE);
    let inode = || fs::metadata(world.inside.join("a.txt")).unwrap().ino();
    let before = inode();
    assert_eq!(world.sandbox.dispatch(&call, None, Dispatch::Again).await, DONE);
    assert_eq!(inode(), before);
    assert_eq!(world.sandbox.dispatch(&call, None, Dispatch::First).await, DONE);
    assert_ne!(inode(), before);
}

#[tokio::test]
async fn a_delete_is_done_when_the_file_that_stood_there_is_gone() {
    use Between::*;
    let call = || delete("d/a.txt");
    let there: Files = &[("d/", ""), ("d/a.txt", "x")];
    let gone: Files = &[("d/", "")];
    check(call(), there, Nothing, DONE, gone).await;
    check(call(), there, Acted, DONE, gone).await;
    check(call(), there, Remove("d/a.txt"), DONE, gone).await;
    check(call(), there, Remove("d"), DONE, &[]).await;
    check(call(), there, ActedThenRemove("d"), DONE, &[]).await;
    // Another file under the name was made after the decision, and nobody decided to delete it.
    let other: Files = &[("d/", ""), ("d/a.txt", "other")];
    check(call(), there, Replace("d/a.txt", "other"), DONE, other).await;
    check(call(), gone, Nothing, failed(Failure::FileNotFound), gone).await;
    check(call(), gone, Acted, failed(Failure::FileNotFound), gone).await;
    check(call(), gone, Put(&[("d/a.txt", "x")]), DONE, gone).await;
    let directory: Files = &[("d/", ""), ("d/a.txt/", "")];
    check(call(), directory, Nothing, failed(Failure::NotAFile), directory).await;
    check(call(), directory, Remove("d/a.txt"), failed(Failure::FileNotFound), gone).await;
}

#[tokio::test]
async fn a_rename_is_done_when_the_file_stands_at_its_destination() {
    use Between::*;
    let call = || rename("d/a.txt", "b.txt");
    let source: Files = &[("d/", ""), ("d/a.txt", "x")];
    let renamed: Files = &[("b.txt", "x"), ("d/", "")];
    let neither: Files = &[("d/", "")];
    let both: Files = &[("b.txt", "y"), ("d/", ""), ("d/a.txt", "x")];
    check(call(), source, Nothing, DONE, renamed).await;
    check(call(), source, Acted, DONE, renamed).await;
    check(call(), source, ActedThenRemove("d"), DONE, &[("b.txt", "x")]).await;
    let recreated: Files = &[("b.txt", "x"), ("d/", ""), ("d/a.txt", "z")];
    check(call(), source, ActedThenPut(&[("d/a.txt", "z")]), DONE, recreated).await;
    check(call(), source, Remove("d/a.txt"), failed(Failure::FileNotFound), neither).await;
    check(call(), source, ActedThenRemove("b.txt"), failed(Failure::FileNotFound), neither).await;
    check(call(), source, Put(&[("b.txt", "y")]), failed(Failure::AlreadyExists), both).await;
    check(call(), both, Nothing, failed(Failure::AlreadyExists), both).await;
    check(call(), both, Acted, failed(Failure::AlreadyExists), both).await;
    let other: Files = &[("b.txt", "y"), ("d/", "")];
    check(call(), both, Remove("d/a.txt"), failed(Failure::FileNotFound), other).await;
    check(call(), other, Acted, failed(Failure::FileNotFound), other).await;
    check(call(), neither, Nothing, failed(Failure::FileNotFound), neither).await;
    check(call(), neither, Put(&[("d/a.txt", "x")]), DONE, renamed).await;
    let onto_itself = rename("d/a.txt", "d/a.txt");
    check(onto_itself, source, Acted, failed(Failure::AlreadyExists), source).await;
}

#[tokio::test]
async fn a_directory_is_created_the_same_way_twice() {
    use Between::*;
    let call = || create("a/b");
    let made: Files = &[("a/", ""), ("a/b/", "")];
    check(call(), &[], Nothing, DONE, made).await;
    check(call(), &[], Acted, DONE, made).await;
    check(call(), &[], Put(&[("a/", "")]), DONE, made).await;
    check(call(), made, Nothing, DONE, made).await;
    let file: Files = &[("a/", ""), ("a/b", "x")];
    check(call(), &[], Put(&[("a/b", "x")]), failed(Failure::AlreadyExists), file).await;
}

#[tokio::test]
async fn a_read_and_a_listing_say_what_stands_there_now() {
    use Between::*;
    let new: Files = &[("a.txt", "new")];
    let content = result(r#"{"content":"new"}"#);
    check(read("a.txt"), &[("a.txt", "old")], Put(new), content, new).await;
    let listing = result(r#"{"files":[{"isDirectory":false,"isFile":true,"name":"a.txt"}]}"#);
    check(list(""), &[], Put(new), listing, new).await;
}
