//! A call that may have been sent before: what stands there now, against what stood there before.

use std::fs::{self, OpenOptions, Permissions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::sync::Arc;

use serde_json::{Value, json};
use stepgate_core::action::CoreCall;
use stepgate_core::failure::ExecutionFailure as Failure;
use stepgate_core::ports::{Dispatch, Effect, Executor};
use stepgate_exec::{AtCrashPoint, CrashPoint, SandboxLimits};

use crate::world::*;

type Files<'a> = &'a [(&'a str, &'a str)];

/// Nobody can tell what the first dispatch did, and nothing is done.
fn in_doubt() -> Effect {
    let why = "what stands in the sandbox now does not tell whether the call was done: look, and say so with \
               `stepgate runs resolve`";
    Effect::Unknown(why.into())
}

/// What happens between the two dispatches: the first one's effect, or somebody else's.
enum Between<'a> {
    Nothing,
    Acted,
    Put(Files<'a>),
    Remove(&'a str),
    Replace(&'a str, &'a str),
    Append(&'a str),
    Restrict(&'a str),
    ActedThenPut(Files<'a>),
    ActedThenRemove(&'a str),
    ActedThenReplace(&'a str, &'a str),
    ActedThenMove(&'a str, &'a str),
}

/// What was recorded, as an earlier build or another file system would have.
#[derive(Clone, Copy, Debug)]
enum Recorded {
    InFull,
    /// The inode went to the file that stands at this path now.
    WithTheInodeOf(&'static str),
    /// The file system tells no birth.
    WithoutBirth,
    /// Before a restart, after which the device has another number.
    UnderAnotherDevice,
    /// By an earlier build, for a file to be deleted or renamed.
    InodeAlone,
    /// By an earlier build, for a file to be written.
    ContentAlone,
}

impl Recorded {
    fn of(self, world: &World, mut pre_state: Value) -> Value {
        let place = if pre_state.get("source").is_some() { "/source" } else { "" };
        let file = pre_state.pointer_mut(place).unwrap().as_object_mut().unwrap();
        let without: &[&str] = match self {
            Self::InFull => &[],
            Self::WithTheInodeOf(name) => {
                let inode = fs::metadata(world.inside.join(name)).unwrap().ino();
                file.insert("inode".into(), json!(inode.to_string()));
                &[]
            }
            Self::WithoutBirth => &["born"],
            Self::UnderAnotherDevice => {
                file.insert("device".into(), json!("1"));
                &[]
            }
            Self::InodeAlone => &["born", "changed", "modified"],
            Self::ContentAlone => &["device", "inode", "born", "changed", "modified"],
        };
        for name in without {
            assert!(file.remove(*name).is_some(), "{name}");
        }
        pre_state
    }
}

async fn check(
    call: CoreCall,
    before: Files<'_>,
    between: Between<'_>,
    effect: Effect,
    after: Files<'_>,
) {
    check_recorded(call, before, between, Recorded::InFull, effect, after).await;
}

async fn check_recorded(
    call: CoreCall,
    before: Files<'_>,
    between: Between<'_>,
    recorded: Recorded,
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
        Between::Replace(name, content) => replace(&world, name, content),
        Between::ActedThenPut(files) => {
            first().await;
            world.put(files);
        }
        Between::ActedThenRemove(name) => {
            first().await;
            remove(&world, name);
        }
        Between::ActedThenReplace(name, content) => {
            first().await;
            replace(&world, name, content);
        }
        Between::ActedThenMove(from, to) => {
            first().await;
            fs::rename(world.inside.join(from), world.inside.join(to)).unwrap();
        }
        Between::Append(name) => {
            let mut file = OpenOptions::new().append(true).open(world.inside.join(name)).unwrap();
            file.write_all(b"+").unwrap();
        }
        Between::Restrict(name) => restrict(&world, name),
    }
    let pre_state = pre_state.map(|pre_state| recorded.of(&world, pre_state));
    let again = world.sandbox.dispatch(&call, pre_state.as_ref(), Dispatch::Again).await;
    assert_eq!(again, effect, "{call:?} after {before:?}, recorded {recorded:?}");
    assert_eq!(world.tree(), files(after), "{call:?} after {before:?}, recorded {recorded:?}");
}

/// A file made elsewhere takes the name, so it is certainly another file.
fn replace(world: &World, name: &str, content: &str) {
    let other = world.outside.join("other");
    fs::write(&other, content).unwrap();
    fs::rename(other, world.inside.join(name)).unwrap();
}

fn restrict(world: &World, name: &str) {
    fs::set_permissions(world.inside.join(name), Permissions::from_mode(0o600)).unwrap();
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
    let third: Files = &[("a.txt", "third")];
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
    check(call(), old, Append("a.txt"), DONE, &[("a.txt", "old+")]).await;
    // The old content again: somebody wrote it after this call had, or this call did nothing.
    check(call(), old, ActedThenReplace("a.txt", "old"), in_doubt(), old).await;
    check(call(), old, Replace("a.txt", "old"), in_doubt(), old).await;
    // It was there: to write could bring back what others were told is gone.
    check(call(), old, Remove("a.txt"), in_doubt(), &[]).await;
    check(call(), old, ActedThenRemove("a.txt"), in_doubt(), &[]).await;
    let moved: Files = &[("b.txt", "new")];
    check(call(), old, ActedThenMove("a.txt", "b.txt"), in_doubt(), moved).await;
    let directory: Files = &[("a.txt/", "")];
    check(call(), directory, Nothing, failed(Failure::NotAFile), directory).await;
    check(call(), &[], Put(directory), in_doubt(), directory).await;
    check(call(), directory, Remove("a.txt"), in_doubt(), &[]).await;
    let nested = || write("d/a.txt", "new");
    check(nested(), &[("d/a.txt", "old")], Remove("d"), in_doubt(), &[]).await;
    check(nested(), &[("d/a.txt", "old")], ActedThenRemove("d"), in_doubt(), &[]).await;
    for recorded in [Recorded::InFull, Recorded::WithoutBirth, Recorded::ContentAlone] {
        check_recorded(call(), old, Nothing, recorded, DONE, new).await;
        check_recorded(call(), old, Acted, recorded, DONE, new).await;
        check_recorded(call(), old, Replace("a.txt", "third"), recorded, DONE, third).await;
    }
    let reused = Recorded::WithTheInodeOf("a.txt");
    check_recorded(call(), old, ActedThenReplace("a.txt", "old"), reused, in_doubt(), old).await;
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

/// What could not be read before the act has no digest to compare with.
#[tokio::test]
async fn a_write_over_a_file_that_could_not_be_read_replaces_that_file_and_no_other() {
    let limits = SandboxLimits { file_bytes_max: 4, ..SandboxLimits::default() };
    for is_replaced in [false, true] {
        let world = World::with(limits);
        world.put(&[("a.txt", "longer")]);
        let call = write("a.txt", "new");
        let pre_state = world.pre_state(&call).await;
        if is_replaced {
            replace(&world, "a.txt", "them");
        }
        let again = world.sandbox.dispatch(&call, pre_state.as_ref(), Dispatch::Again).await;
        let (effect, there) = if is_replaced { (in_doubt(), "them") } else { (DONE, "new") };
        assert_eq!((again, world.tree()), (effect, files(&[("a.txt", there)])));
    }
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
    check(call(), there, ActedThenPut(other), DONE, other).await;
    let made: Files = &[("d/", ""), ("d/a.txt/", "")];
    check(call(), there, ActedThenPut(made), DONE, made).await;
    // The same file, whatever somebody did to it.
    check(call(), there, Append("d/a.txt"), DONE, gone).await;
    check(call(), there, Restrict("d/a.txt"), DONE, gone).await;
    check(call(), gone, Nothing, failed(Failure::FileNotFound), gone).await;
    check(call(), gone, Acted, failed(Failure::FileNotFound), gone).await;
    check(call(), gone, Put(there), failed(Failure::FileNotFound), there).await;
    // There was a directory, which is never deleted; nor is what came after it.
    check(call(), made, Nothing, failed(Failure::NotAFile), made).await;
    check(call(), made, Remove("d/a.txt"), failed(Failure::NotAFile), gone).await;
}

#[tokio::test]
async fn a_delete_leaves_a_file_that_only_looks_like_the_one_that_stood_there() {
    use Between::*;
    let call = || delete("a.txt");
    let there: Files = &[("a.txt", "x")];
    let other: Files = &[("a.txt", "other")];
    // The file system gave the inode to the next file that was made.
    let reused = Recorded::WithTheInodeOf("a.txt");
    check_recorded(call(), there, ActedThenPut(other), reused, DONE, other).await;
    check_recorded(call(), there, Replace("a.txt", "other"), reused, DONE, other).await;
    // Where no birth is told, a file that nobody has touched is the one; any other may be.
    let no_birth = Recorded::WithoutBirth;
    check_recorded(call(), there, Nothing, no_birth, DONE, &[]).await;
    check_recorded(call(), there, Acted, no_birth, DONE, &[]).await;
    check_recorded(call(), there, Replace("a.txt", "other"), no_birth, DONE, other).await;
    check_recorded(call(), there, Append("a.txt"), no_birth, in_doubt(), &[("a.txt", "x+")]).await;
    check_recorded(call(), there, Restrict("a.txt"), no_birth, in_doubt(), there).await;
    // What an earlier build recorded proves nothing of a file with that inode.
    let earlier = Recorded::InodeAlone;
    check_recorded(call(), there, Nothing, earlier, in_doubt(), there).await;
    check_recorded(call(), there, Acted, earlier, DONE, &[]).await;
    check_recorded(call(), there, Replace("a.txt", "other"), earlier, DONE, other).await;
}

#[tokio::test]
async fn a_file_that_was_written_after_a_deletion_under_way_stays() {
    for _ in 0..20 {
        let world = World::new();
        world.put(&[("a.txt", "old")]);
        let call = delete("a.txt");
        let pre_state = world.pre_state(&call).await;
        world.sandbox.set_crash_hook(Some(Arc::new(|point| {
            match point == CrashPoint::DeleteUnlinked {
                true => AtCrashPoint::Crash,
                false => AtCrashPoint::GoOn,
            }
        })));
        let crashed = world.sandbox.dispatch(&call, pre_state.as_ref(), Dispatch::First).await;
        assert!(matches!(crashed, Effect::Unknown(_)), "{crashed:?}");
        // Another node, which was told that it is done. The file may well have the same inode.
        let node = world.reopened();
        assert_eq!(node.dispatch(&write("a.txt", "new"), None, Dispatch::First).await, DONE);
        assert_eq!(node.dispatch(&call, pre_state.as_ref(), Dispatch::Again).await, DONE);
        assert_eq!(world.tree(), files(&[("a.txt", "new")]));
    }
}

/// What keeps a second dispatch from looking does not tell what the first one did.
#[tokio::test]
async fn a_call_whose_path_leads_elsewhere_by_now_is_in_doubt() {
    for call in [delete("d/a.txt"), rename("d/a.txt", "d/b.txt"), write("d/a.txt", "new")] {
        let world = World::new();
        world.put(&[("d/a.txt", "old")]);
        let pre_state = world.pre_state(&call).await;
        assert_eq!(world.sandbox.dispatch(&call, pre_state.as_ref(), Dispatch::First).await, DONE);
        let there = tree(&world.inside.join("d"));
        fs::rename(world.inside.join("d"), world.outside.join("d")).unwrap();
        symlink(world.outside.join("d"), world.inside.join("d")).unwrap();
        let again = world.sandbox.dispatch(&call, pre_state.as_ref(), Dispatch::Again).await;
        assert_eq!((again, tree(&world.outside.join("d"))), (in_doubt(), there), "{call:?}");
    }
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
    // The same file, whatever somebody did to it.
    let longer: Files = &[("b.txt", "x+"), ("d/", "")];
    check(call(), source, Append("d/a.txt"), DONE, longer).await;
    check(call(), source, ActedThenPut(&[("b.txt", "y")]), DONE, &[("b.txt", "y"), ("d/", "")])
        .await;
    // It stands where it stood, so it was not renamed.
    check(call(), source, Put(&[("b.txt", "y")]), failed(Failure::AlreadyExists), both).await;
    check(call(), both, Nothing, failed(Failure::AlreadyExists), both).await;
    check(call(), both, Acted, failed(Failure::AlreadyExists), both).await;
    let onto_itself = rename("d/a.txt", "d/a.txt");
    check(onto_itself, source, Acted, failed(Failure::AlreadyExists), source).await;
    // There was nothing to rename: what is there now was made after the decision.
    let other: Files = &[("b.txt", "y"), ("d/", "")];
    check(call(), other, Acted, failed(Failure::FileNotFound), other).await;
    check(call(), neither, Nothing, failed(Failure::FileNotFound), neither).await;
    check(call(), neither, Put(source), failed(Failure::FileNotFound), source).await;
    let directory: Files = &[("d/", ""), ("d/a.txt/", "")];
    check(call(), directory, Nothing, failed(Failure::NotAFile), directory).await;
    check(call(), directory, Remove("d/a.txt"), failed(Failure::NotAFile), neither).await;
}

#[tokio::test]
async fn a_rename_of_a_file_that_stands_at_neither_path_is_in_doubt_and_moves_no_other() {
    use Between::*;
    let call = || rename("a.txt", "b.txt");
    let source: Files = &[("a.txt", "x")];
    let another: Files = &[("a.txt", "other")];
    let renamed: Files = &[("b.txt", "x")];
    let instead: Files = &[("b.txt", "other")];
    check(call(), source, Remove("a.txt"), in_doubt(), &[]).await;
    check(call(), source, ActedThenRemove("b.txt"), in_doubt(), &[]).await;
    check(call(), source, Replace("a.txt", "other"), in_doubt(), another).await;
    check(call(), source, ActedThenReplace("b.txt", "other"), in_doubt(), instead).await;
    check(call(), source, ActedThenMove("b.txt", "c.txt"), in_doubt(), &[("c.txt", "x")]).await;
    check(
        call(),
        &[("a.txt", "x"), ("b.txt", "y")],
        Remove("a.txt"),
        in_doubt(),
        &[("b.txt", "y")],
    )
    .await;
    // The file system gave the inode to the next file that was made, here or there.
    let (here, there) = (Recorded::WithTheInodeOf("a.txt"), Recorded::WithTheInodeOf("b.txt"));
    check_recorded(call(), source, Replace("a.txt", "other"), here, in_doubt(), another).await;
    let replaced = ActedThenReplace("b.txt", "other");
    check_recorded(call(), source, replaced, there, in_doubt(), instead).await;
    // Where no birth is told, a file that was renamed is known by its content's age.
    let no_birth = Recorded::WithoutBirth;
    check_recorded(call(), source, Nothing, no_birth, DONE, renamed).await;
    check_recorded(call(), source, Acted, no_birth, DONE, renamed).await;
    check_recorded(call(), source, Restrict("a.txt"), no_birth, in_doubt(), source).await;
    // What an earlier build recorded proves nothing of a file with that inode.
    for (between, after) in [(Nothing, source), (Acted, renamed)] {
        check_recorded(call(), source, between, Recorded::InodeAlone, in_doubt(), after).await;
    }
}

#[tokio::test]
async fn after_a_restart_that_gave_the_device_another_number_every_file_is_still_known() {
    use Between::*;
    let moved = Recorded::UnderAnotherDevice;
    let source: Files = &[("a.txt", "x")];
    let renamed: Files = &[("b.txt", "x")];
    let call = || rename("a.txt", "b.txt");
    check_recorded(call(), source, Nothing, moved, DONE, renamed).await;
    check_recorded(call(), source, Acted, moved, DONE, renamed).await;
    check_recorded(call(), source, Remove("a.txt"), moved, in_doubt(), &[]).await;
    check_recorded(delete("a.txt"), source, Nothing, moved, DONE, &[]).await;
    check_recorded(delete("a.txt"), source, Acted, moved, DONE, &[]).await;
    check_recorded(delete("a.txt"), source, Append("a.txt"), moved, DONE, &[]).await;
    // Another file may be a copy of the one that was decided on, on another device.
    let other: Files = &[("a.txt", "other")];
    let replaced = Replace("a.txt", "other");
    check_recorded(delete("a.txt"), source, replaced, moved, in_doubt(), other).await;
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
