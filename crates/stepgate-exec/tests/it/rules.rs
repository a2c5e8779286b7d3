//! What the file system adds to AUTHORIZE: refused before the act, and again at it.

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;

use rustix::fs::{CWD, Mode, mkfifoat};
use stepgate_core::action::CoreCall;
use stepgate_core::ports::{Dispatch, Effect, Executor};
use stepgate_exec::rule;

use crate::world::*;

/// Refused when asked, refused when acted on without asking, and nothing changes on either side.
async fn check_refused(world: &World, call: &CoreCall, refused_by: &'static str) {
    let before = (tree(&world.outside), names(world));
    assert_eq!(world.sandbox.prepare(call).await.err(), Some(refused_by), "{call:?}");
    let effect = world.sandbox.dispatch(call, None, Dispatch::First).await;
    assert_eq!(effect, Effect::Refused(refused_by), "{call:?}");
    let again = world.sandbox.dispatch(call, None, Dispatch::Again).await;
    // What was recorded comes first, but for names, and here nothing was.
    let is_told_by_file = matches!(call, CoreCall::DeleteFile { .. } | CoreCall::RenameFile { .. });
    if is_told_by_file && refused_by != rule::RESERVED_NAME {
        assert!(matches!(again, Effect::Unknown(_)), "{call:?} {again:?}");
    } else {
        assert_eq!(again, Effect::Refused(refused_by), "{call:?}");
    }
    assert_eq!((tree(&world.outside), names(world)), before, "{call:?}");
}

fn names(world: &World) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(&world.inside)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[tokio::test]
async fn a_link_in_the_last_component_is_refused_wherever_it_leads() {
    let world = World::new();
    world.put(&[("plain.txt", "p"), ("d/inner.txt", "i")]);
    fs::write(world.outside.join("secret.txt"), "secret").unwrap();
    let targets = [
        world.outside.join("secret.txt"),
        world.outside.clone(),
        world.outside.join("missing.txt"),
        world.inside.join("plain.txt"),
        "plain.txt".into(),
        "d".into(),
        "d/inner.txt".into(),
        "missing.txt".into(),
        "link.txt".into(),
        "..".into(),
        "/proc/self/root".into(),
    ];
    for target in targets {
        let link = world.inside.join("link.txt");
        symlink(&target, &link).unwrap();
        for call in calls_on("link.txt") {
            check_refused(&world, &call, rule::SYMBOLIC_LINK).await;
        }
        fs::remove_file(link).unwrap();
    }
}

#[tokio::test]
async fn a_link_in_a_middle_component_is_refused_wherever_it_leads() {
    let world = World::new();
    world.put(&[("plain.txt", "p"), ("d/inner.txt", "i"), ("d/e/", "")]);
    fs::write(world.outside.join("inner.txt"), "secret").unwrap();
    for target in [world.outside.clone(), "d".into(), "missing".into(), "/".into(), "..".into()] {
        for (link, path) in [("link", "link/inner.txt"), ("d/e/link", "d/e/link/inner.txt")] {
            let link = world.inside.join(link);
            symlink(&target, &link).unwrap();
            for call in calls_on(path) {
                check_refused(&world, &call, rule::SYMBOLIC_LINK).await;
            }
            fs::remove_file(link).unwrap();
        }
    }
}

#[tokio::test]
async fn a_file_with_a_second_name_is_refused_wherever_that_is() {
    let world = World::new();
    world.put(&[("plain.txt", "p"), ("twin.txt", "t")]);
    fs::write(world.outside.join("secret.txt"), "secret").unwrap();
    for other in [world.outside.join("secret.txt"), world.inside.join("twin.txt")] {
        let name = world.inside.join("hard.txt");
        fs::hard_link(&other, &name).unwrap();
        for call in calls_on("hard.txt") {
            check_refused(&world, &call, rule::HARD_LINK).await;
        }
        fs::remove_file(name).unwrap();
    }
    assert_eq!(world.run(&read("twin.txt")).await, result(r#"{"content":"t"}"#));
}

#[tokio::test]
async fn a_fifo_is_refused_and_never_waited_for() {
    let world = World::new();
    world.put(&[("plain.txt", "p")]);
    mkfifoat(CWD, world.inside.join("fifo.txt"), Mode::RUSR | Mode::WUSR).unwrap();
    for call in calls_on("fifo.txt") {
        check_refused(&world, &call, rule::SPECIAL_FILE).await;
    }
}

#[tokio::test]
async fn a_socket_is_refused() {
    let world = World::new();
    world.put(&[("plain.txt", "p")]);
    let _socket = UnixListener::bind(world.inside.join("socket.txt")).unwrap();
    for call in calls_on("socket.txt") {
        check_refused(&world, &call, rule::SPECIAL_FILE).await;
    }
}

#[tokio::test]
async fn a_reserved_name_is_refused_though_the_core_refuses_it_first() {
    let world = World::new();
    world.put(&[("plain.txt", "p"), (".stepgate-1", "temporary")]);
    for name in [".stepgate-1", ".stepgate-1/x.txt", "NUL.txt", "a:b.txt"] {
        for call in calls_on(name) {
            check_refused(&world, &call, rule::RESERVED_NAME).await;
        }
    }
}

#[tokio::test]
async fn a_swap_between_the_look_and_the_act_gains_nothing() {
    let world = World::new();
    fs::write(world.outside.join("a.txt"), "secret").unwrap();
    for call in [read("d/a.txt"), write("d/a.txt", "x"), delete("d/a.txt")] {
        world.put(&[("d/a.txt", "inside")]);
        let prepared = world.sandbox.prepare(&call).await.unwrap_or_else(|rule| panic!("{rule}"));
        fs::rename(world.inside.join("d"), world.inside.join("aside")).unwrap();
        symlink(&world.outside, world.inside.join("d")).unwrap();
        let effect =
            world.sandbox.dispatch(&call, prepared.pre_state.as_ref(), Dispatch::First).await;
        assert_eq!(effect, Effect::Refused(rule::SYMBOLIC_LINK), "{call:?}");
        fs::remove_file(world.inside.join("d")).unwrap();
        fs::rename(world.inside.join("aside"), world.inside.join("d")).unwrap();
    }
    assert_eq!(tree(&world.outside), files(&[("a.txt", "secret")]));
    assert_eq!(world.tree(), files(&[("d/", ""), ("d/a.txt", "inside")]));
}
