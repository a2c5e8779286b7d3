//! Another process swaps what stands in the sandbox for links that lead out of it, as fast as it
//! can, while calls run: nothing outside is ever read or changed.

use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::{fs, thread};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use stepgate_core::action::CoreCall;
use stepgate_core::ports::{Dispatch, Effect, Executor};
use stepgate_exec::rule;

use crate::world::*;

const STEPS: usize = 6_000;
const READS: usize = 50_000;
const SECRET: &str = "secret";

/// What keeps changing while the calls run.
enum Swap {
    /// Two names change places.
    Exchange(PathBuf, PathBuf),
    /// A name that calls write to is a link to the target, then a file, then a link again.
    Replace { name: PathBuf, target: PathBuf, link: fn(&PathBuf, &PathBuf) -> std::io::Result<()> },
}

impl Swap {
    fn once(&self) {
        match self {
            Self::Exchange(one, other) => {
                renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE).unwrap();
            }
            Self::Replace { name, target, link } => {
                let scratch = name.with_extension("scratch");
                link(target, &scratch).unwrap();
                fs::rename(&scratch, name).unwrap();
                fs::write(&scratch, "in").unwrap();
                fs::rename(&scratch, name).unwrap();
            }
        }
    }
}

fn swaps(world: &World) -> Vec<Swap> {
    let inside = |name: &str| world.inside.join(name);
    let outside = |name: &str| world.outside.join(name);
    symlink(&world.outside, inside("d-link")).unwrap();
    symlink(&world.outside, inside("e-link")).unwrap();
    symlink(outside("a.txt"), inside("soft-link")).unwrap();
    fs::hard_link(outside("a.txt"), inside("hard-link")).unwrap();
    vec![
        Swap::Exchange(inside("d"), inside("d-link")),
        Swap::Exchange(inside("deep/e"), inside("e-link")),
        Swap::Exchange(inside("soft.txt"), inside("soft-link")),
        Swap::Exchange(inside("hard.txt"), inside("hard-link")),
        Swap::Replace {
            name: inside("written-soft.txt"),
            target: outside("a.txt"),
            link: |target, name| symlink(target, name),
        },
        Swap::Replace {
            name: inside("written-hard.txt"),
            target: outside("b.txt"),
            link: |target, name| fs::hard_link(target, name),
        },
    ]
}

fn calls() -> Vec<CoreCall> {
    vec![
        read("d/a.txt"),
        read("soft.txt"),
        read("hard.txt"),
        read("deep/e/sub/a.txt"),
        list("d"),
        list("deep/e"),
        write("d/a.txt", "in"),
        read("written-soft.txt"),
        read("written-hard.txt"),
        write("written-soft.txt", "in"),
        write("written-hard.txt", "in"),
        create("deep/e/made/here"),
        delete("d/victim.txt"),
        rename("d/victim.txt", "stolen.txt"),
        rename("deep/e/a.txt", "d/planted.txt"),
        rename("d/planted.txt", "deep/e/a.txt"),
    ]
}

#[derive(Default)]
struct Tally {
    done: usize,
    refused_for_symbolic_link: usize,
    refused_for_hard_link: usize,
}

/// Counts an effect, or says what is wrong with it.
fn judge(tally: &mut Tally, effect: &Effect) -> Result<(), String> {
    match effect {
        Effect::Done(text) => {
            tally.done += 1;
            let text = text.as_deref().unwrap_or_default();
            if text.contains(SECRET) || text.contains("victim") {
                return Err(format!("read outside: {text}"));
            }
        }
        Effect::Refused(rule::SYMBOLIC_LINK) => tally.refused_for_symbolic_link += 1,
        Effect::Refused(rule::HARD_LINK) => tally.refused_for_hard_link += 1,
        Effect::Failed(_) => {}
        Effect::Refused(_) | Effect::Unknown(_) => return Err(format!("{effect:?}")),
    }
    Ok(())
}

/// Runs the calls one after the other, over and over, while everything is swapped.
fn run(world: &World, calls: &[CoreCall], swaps: &[Swap], steps: usize) -> Result<Tally, String> {
    let is_over = AtomicBool::new(false);
    let mut tally = Tally::default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                swaps.iter().for_each(Swap::once);
            }
        });
        let ended = calls.iter().cycle().take(steps).try_for_each(|call| {
            let effect = runtime.block_on(world.sandbox.dispatch(call, None, Dispatch::First));
            judge(&mut tally, &effect).map_err(|wrong| format!("{call:?} {wrong}"))
        });
        is_over.store(true, Ordering::Relaxed);
        ended
    })?;
    Ok(tally)
}

fn world_with_secrets() -> World {
    let world = World::new();
    for name in ["d/a.txt", "deep/e/a.txt", "soft.txt", "hard.txt", "written-hard.txt"] {
        world.put(&[(name, "in")]);
    }
    fs::create_dir(world.outside.join("sub")).unwrap();
    for name in ["a.txt", "b.txt", "victim.txt", "sub/a.txt"] {
        fs::write(world.outside.join(name), SECRET).unwrap();
    }
    world
}

#[test]
fn nothing_outside_is_read_or_changed_while_links_are_swapped_in() {
    let world = world_with_secrets();
    let outside = tree(&world.outside);
    let tally = run(&world, &calls(), &swaps(&world), STEPS).unwrap();
    assert_eq!(tree(&world.outside), outside);
    // Without a real race nothing would be shown.
    assert!(tally.done > STEPS / 20, "{} done", tally.done);
    assert!(tally.refused_for_symbolic_link > STEPS / 20, "{}", tally.refused_for_symbolic_link);
    assert!(tally.refused_for_hard_link > STEPS / 200, "{}", tally.refused_for_hard_link);
}

#[test]
fn a_second_name_that_goes_while_the_file_is_opened_is_still_noticed() {
    let world = world_with_secrets();
    let swaps = swaps(&world);
    let calls = [read("written-hard.txt")];
    let tally = run(&world, &calls, &swaps[5..], READS).unwrap();
    assert!(tally.done > 0 && tally.refused_for_hard_link > 0);
}
