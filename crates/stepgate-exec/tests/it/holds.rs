//! Who waits for whom.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Waker};

use stepgate_core::action::CoreCall;
use stepgate_core::ports::{Dispatch, Effect, Executor};
use stepgate_exec::{Sandbox, SandboxLimits};

use crate::world::*;

/// Whether holding the second call has to wait while the first is held.
async fn waits(world: &World, first: &CoreCall, second: &CoreCall) -> bool {
    let _held = world.sandbox.hold(first).await;
    let mut second = pin!(world.sandbox.hold(second));
    second.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending()
}

#[tokio::test]
async fn only_changes_of_the_same_path_wait_for_each_other() {
    let world = World::new();
    let rows = [
        (write("a.txt", "1"), write("a.txt", "2"), true),
        (write("a.txt", "1"), delete("a.txt"), true),
        (write("a.txt", "1"), rename("b.txt", "a.txt"), true),
        (write("a.txt", "1"), rename("a.txt", "b.txt"), true),
        (rename("a.txt", "b.txt"), rename("b.txt", "a.txt"), true),
        (create("a"), create("a"), true),
        (write("a.txt", "1"), write("b.txt", "1"), false),
        (rename("a.txt", "b.txt"), rename("c.txt", "d.txt"), false),
        (write("a.txt", "1"), read("a.txt"), false),
        (read("a.txt"), write("a.txt", "1"), false),
        (write("a.txt", "1"), list(""), false),
        (write("a.txt", "1"), CoreCall::Think, false),
    ];
    for (first, second, expected) in rows {
        assert_eq!(waits(&world, &first, &second).await, expected, "{first:?}, then {second:?}");
        assert!(!waits(&world, &CoreCall::Think, &second).await, "{second:?} is held for ever");
    }
}

#[tokio::test]
async fn a_prepared_call_holds_its_path_until_it_is_dropped() {
    let world = World::new();
    let call = write("a.txt", "1");
    let prepared = world.sandbox.prepare(&call).await.unwrap_or_else(|rule| panic!("{rule}"));
    let mut second = pin!(world.sandbox.hold(&call));
    let mut context = Context::from_waker(Waker::noop());
    assert!(second.as_mut().poll(&mut context).is_pending());
    drop(prepared);
    assert!(second.as_mut().poll(&mut context).is_ready());
}

#[tokio::test]
async fn a_refused_call_holds_nothing() {
    let world = World::new();
    std::os::unix::fs::symlink(&world.outside, world.inside.join("link")).unwrap();
    let call = delete("link");
    assert!(world.sandbox.prepare(&call).await.is_err());
    assert!(!waits(&world, &CoreCall::Think, &call).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn renames_in_both_directions_all_end_and_the_file_is_never_lost() {
    let world = std::sync::Arc::new(World::new());
    world.put(&[("a.txt", "x")]);
    let mut tasks = Vec::new();
    for number in 0..64 {
        let world = std::sync::Arc::clone(&world);
        tasks.push(tokio::spawn(async move {
            let (from, to) = if number % 2 == 0 { ("a.txt", "b.txt") } else { ("b.txt", "a.txt") };
            let call = rename(from, to);
            let prepared =
                world.sandbox.prepare(&call).await.unwrap_or_else(|rule| panic!("{rule}"));
            let pre_state = prepared.pre_state.as_ref();
            let effect = world.sandbox.dispatch(&call, pre_state, Dispatch::First).await;
            // What was seen under the lock is what the act finds.
            let was_there = pre_state.unwrap()["source"]["exists"] == true;
            assert_eq!(effect == DONE, was_there, "{effect:?}");
            drop(prepared);
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(world.tree().into_values().collect::<Vec<_>>(), ["x"]);
}

/// Two processes that serve the same directory, as far as the kernel can tell.
fn two_nodes(world: &World) -> [Sandbox; 2] {
    ["first", "second"].map(|name| {
        let sandbox = Sandbox::open(&world.inside, name.into(), SandboxLimits::default());
        sandbox.unwrap().shared(true)
    })
}

#[tokio::test]
async fn nodes_that_share_a_sandbox_keep_each_other_away_from_a_path() {
    let world = World::new();
    let [first, second] = two_nodes(&world);
    let mut context = Context::from_waker(Waker::noop());
    for (mine, theirs, expected) in [
        (write("a.txt", "1"), write("a.txt", "2"), true),
        (rename("a.txt", "b.txt"), rename("b.txt", "a.txt"), true),
        (write("a.txt", "1"), write("b.txt", "1"), false),
        (write("a.txt", "1"), read("a.txt"), false),
    ] {
        let held = first.hold(&mine).await;
        let mut waiting = pin!(second.hold(&theirs));
        let is_waiting = waiting.as_mut().poll(&mut context).is_pending();
        assert_eq!(is_waiting, expected, "{mine:?}, then {theirs:?}");
        drop(held);
        if is_waiting {
            assert!(waiting.await.is_some());
        }
    }
    // Nobody sees the files that are locked, and a sweep leaves them.
    let Effect::Done(Some(listed)) = first.dispatch(&list(""), None, Dispatch::First).await else {
        panic!("not listed");
    };
    assert!(!listed.contains("lock"), "{listed}");
    let held = first.hold(&write("a.txt", "1")).await;
    world.sandbox.sweep().await.unwrap();
    let theirs = write("a.txt", "2");
    let mut waiting = pin!(second.hold(&theirs));
    assert!(waiting.as_mut().poll(&mut context).is_pending());
    drop(held);
}

/// Two nodes that recover each other's runs must not wait for each other without end.
#[tokio::test]
async fn recovery_does_not_wait_for_a_path_without_end() {
    let world = World::new();
    let [first, second] = two_nodes(&world);
    let (mine, theirs) = (write("a.txt", "1"), write("b.txt", "1"));
    let (held_here, held_there) = (first.hold(&mine).await, second.hold(&theirs).await);
    assert!(held_here.is_some() && held_there.is_some());
    let (here, there) = tokio::join!(first.hold(&theirs), second.hold(&mine));
    assert!(here.is_none() && there.is_none());
    drop((held_here, held_there));
    assert!(first.hold(&theirs).await.is_some() && second.hold(&mine).await.is_some());
}

#[tokio::test]
async fn a_sweep_of_a_shared_sandbox_takes_nothing_from_a_write_in_flight() {
    let world = World::new();
    let temporary = world.inside.join(".stepgate-fresh");
    std::fs::write(&temporary, "half").unwrap();
    let [first, _] = two_nodes(&world);
    assert_eq!(first.sweep().await.unwrap(), 0);
    let long_ago = std::time::SystemTime::now() - std::time::Duration::from_secs(2 * 60 * 60);
    std::fs::File::options().write(true).open(&temporary).unwrap().set_modified(long_ago).unwrap();
    assert_eq!(first.sweep().await.unwrap(), 1);
    assert!(!temporary.exists());
}
