//! A sandbox copied while it is in use, and put back elsewhere.

use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use stepgate_core::action::CoreCall;
use stepgate_core::digest::Digest;
use stepgate_core::failure::ExecutionFailure;
use stepgate_core::ports::{Dispatch, Effect, Executor};
use stepgate_exec::{
    CopiedFile, Earlier, Moved, Now, Sandbox, SandboxCopy, SandboxLimits, Skipped, copy, file_at,
    recorded_file,
};

use crate::world::*;

fn copied(world: &World, name: &str) -> SandboxCopy {
    let to = world.outside.join(name);
    fs::create_dir(&to).unwrap();
    copy(&world.inside, &to, |_| {}).unwrap()
}

#[test]
fn what_actions_can_reach_is_copied_and_nothing_else() {
    let world = World::new();
    world.put(&[
        ("a.txt", "one"),
        ("d/e/b.txt", "two"),
        ("empty/", ""),
        (".stepgate-left", "half a file"),
        ("d/.stepgate-lock-01", ""),
    ]);
    fs::set_permissions(world.inside.join("a.txt"), Permissions::from_mode(0o640)).unwrap();
    fs::set_permissions(world.inside.join("d"), Permissions::from_mode(0o750)).unwrap();
    fs::write(world.outside.join("secret"), "secret").unwrap();
    symlink(world.outside.join("secret"), world.inside.join("link.txt")).unwrap();
    symlink(&world.outside, world.inside.join("d/away")).unwrap();
    fs::hard_link(world.outside.join("secret"), world.inside.join("d/hard.txt")).unwrap();
    fs::write(world.inside.join(OsStr::from_bytes(b"no\xfftext")), "unreachable").unwrap();
    let found = copied(&world, "copy");
    let file = |path: &str, text: &str, mode| CopiedFile {
        path: path.into(),
        bytes: u64::try_from(text.len()).unwrap(),
        sha256: Digest::of_bytes(text.as_bytes()),
        mode,
        identity: file_at(&world.inside.join(path)).unwrap(),
    };
    let mode_of =
        |path: &str| fs::metadata(world.inside.join(path)).unwrap().permissions().mode() & 0o777;
    let (root, mode) = (mode_of(""), mode_of("d/e/b.txt"));
    let expected = SandboxCopy {
        directory_modes: [
            ("", root),
            ("d", 0o750),
            ("d/e", mode_of("d/e")),
            ("empty", mode_of("empty")),
        ]
        .map(|(path, mode)| (path.to_owned(), mode))
        .into(),
        directories: ["d", "d/e", "empty"].map(str::to_owned).to_vec(),
        files: vec![file("a.txt", "one", 0o640), file("d/e/b.txt", "two", mode)],
        skipped: Skipped { special: 2, linked: 1, unnamed: 1 },
        is_settled: true,
    };
    assert_eq!(found, expected);
    let there =
        files(&[("a.txt", "one"), ("d/", ""), ("d/e/", ""), ("d/e/b.txt", "two"), ("empty/", "")]);
    assert_eq!(tree(&world.outside.join("copy")), there);
}

const COPIES: u32 = 100;
/// How long the file rests now and then, to begin with: enough for a copy to settle.
const REST_MS: u64 = 60;
/// After so many copies in a row that did not settle, the machine is too busy for that: the file rests longer.
const UNSETTLED_MAX: u32 = 8;

#[test]
fn a_file_that_keeps_changing_its_name_is_in_every_copy_that_settled() {
    let world = World::new();
    world.put(&[("a/", ""), ("z/", "")]);
    for number in 0..40 {
        world.put(&[(format!("m/{number}.txt").as_str(), "x")]);
    }
    world.put(&[("a/wanders.txt", "here")]);
    let (here, there) = (world.inside.join("a/wanders.txt"), world.inside.join("z/wanders.txt"));
    let (is_over, rest_ms) = (AtomicBool::new(false), AtomicU64::new(REST_MS));
    let copies = std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut random: u64 = 0x5eed;
            while !is_over.load(Ordering::Relaxed) {
                for (from, to) in [(&here, &there), (&there, &here)] {
                    fs::rename(from, to).unwrap();
                    random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    // Mostly at once, and now and then so late that a copy settles.
                    match random >> 53 {
                        0 => std::thread::sleep(Duration::from_millis(
                            rest_ms.load(Ordering::Relaxed),
                        )),
                        _ => (0..(random >> 32) % 4000).for_each(|_| std::hint::spin_loop()),
                    }
                }
            }
        });
        let mut unsettled = 0;
        let copies: Vec<_> = (0..COPIES)
            .map(|number| {
                let copy = copied(&world, &format!("{number}"));
                unsettled = if copy.is_settled { 0 } else { unsettled + 1 };
                if unsettled == UNSETTLED_MAX {
                    unsettled = 0;
                    rest_ms.fetch_add(rest_ms.load(Ordering::Relaxed), Ordering::Relaxed);
                }
                copy
            })
            .collect();
        is_over.store(true, Ordering::Relaxed);
        copies
    });
    let wanders = |copy: &&SandboxCopy| {
        copy.files.iter().filter(|file| file.path.ends_with("wanders.txt")).count()
    };
    let settled: Vec<_> = copies.iter().filter(|copy| copy.is_settled).collect();
    let count = |times| copies.iter().filter(|copy| wanders(copy) == times).count();
    let (missing, twice) = (count(0), count(2));
    println!("{} of {COPIES} settled; missing in {missing}, twice in {twice}", settled.len());
    assert!(settled.len() > 1, "no copy settled");
    assert!(settled.iter().all(|copy| wanders(copy) == 1), "{settled:?}");
}

async fn check(
    call: CoreCall,
    has_acted: bool,
    between: impl Fn(&Path),
    is_told: bool,
    after: &[(&str, &str)],
) {
    check_effect(call, has_acted, between, is_told, DONE, after).await;
}

/// A call that was under way when the sandbox was copied and is sent again where the copy was put back.
async fn check_effect(
    call: CoreCall,
    has_acted: bool,
    between: impl Fn(&Path),
    is_told: bool,
    effect: Effect,
    after: &[(&str, &str)],
) {
    let world = World::new();
    world.put(&[("a.txt", "old")]);
    fs::write(world.outside.join("other"), "another").unwrap();
    let pre_state = world.pre_state(&call).await.unwrap();
    if has_acted {
        world.sandbox.dispatch(&call, Some(&pre_state), Dispatch::First).await;
    }
    between(&world.inside);
    let found = copied(&world, "back");
    let back = world.outside.join("back");
    let was = recorded_file(&pre_state).unwrap();
    let path =
        found.files.iter().find(|file| was.is_certainly(&file.identity)).map(|file| &file.path);
    let now = path.and_then(|path| file_at(&back.join(path))).map_or(Now::Gone, Now::Is);
    let earlier =
        Earlier { executor_ids: vec!["sandbox-1".into()], files: vec![Moved { was, now }] };
    let sandbox = Sandbox::open(&back, "sandbox@b".into(), SandboxLimits::default()).unwrap();
    let sandbox = sandbox.put_back(is_told.then_some(earlier));
    assert_eq!(sandbox.answers_for("sandbox-1"), is_told);
    assert!(sandbox.answers_for("sandbox@b") && !sandbox.answers_for("sandbox@c"));
    let again = sandbox.dispatch(&call, Some(&pre_state), Dispatch::Again).await;
    assert_eq!((again, tree(&back)), (effect, files(after)), "{call:?}, acted: {has_acted}");
    sandbox.set_earlier(None);
    assert!(!sandbox.answers_for("sandbox-1"));
}

#[tokio::test]
async fn a_call_under_way_finds_what_it_left_in_a_copy() {
    let delete = || delete("a.txt");
    let rename = || rename("a.txt", "b.txt");
    let write = || write("a.txt", "new");
    let nothing = |_: &Path| {};
    // Made before the first one is gone, so it is certainly another file.
    let another = |inside: &Path| {
        fs::rename(inside.join("../outside/other"), inside.join("a.txt")).unwrap();
    };
    check(delete(), false, nothing, true, &[]).await;
    check(delete(), true, nothing, true, &[]).await;
    check(delete(), true, another, true, &[("a.txt", "another")]).await;
    check(rename(), false, nothing, true, &[("b.txt", "old")]).await;
    check(rename(), true, nothing, true, &[("b.txt", "old")]).await;
    check(rename(), true, another, true, &[("a.txt", "another"), ("b.txt", "old")]).await;
    check(write(), false, nothing, true, &[("a.txt", "new")]).await;
    check(write(), true, nothing, true, &[("a.txt", "new")]).await;
    check(write(), true, another, true, &[("a.txt", "another")]).await;
    // Others went on before the copy was made. What they did is forgotten, and so are their answers.
    let removed =
        |name: &'static str| move |inside: &Path| fs::remove_file(inside.join(name)).unwrap();
    let missing = || failed(ExecutionFailure::FileNotFound);
    check_effect(rename(), true, removed("b.txt"), true, missing(), &[]).await;
    check(delete(), false, removed("a.txt"), true, &[]).await;
    check(write(), true, removed("a.txt"), true, &[("a.txt", "new")]).await;
    // Nobody says which file became which: then a deletion that never happened is taken for done.
    check(delete(), false, nothing, false, &[("a.txt", "old")]).await;
}
