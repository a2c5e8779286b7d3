//! A crash at every point of every changing action: recovery ends where an undisturbed run ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use stepgate_core::action::CoreCall;
use stepgate_core::ports::{Dispatch, Effect, Executor};
use stepgate_exec::{AtCrashPoint, CrashPoint};

use crate::world::*;

const BEFORE: &[(&str, &str)] = &[("old.txt", "old"), ("d/", "")];

/// The calls that pass this point.
fn calls_through(point: CrashPoint) -> Vec<CoreCall> {
    match point {
        CrashPoint::WriteTemporaryCreated
        | CrashPoint::WriteTemporaryFilled
        | CrashPoint::WriteTemporarySynced
        | CrashPoint::WriteRenamed
        | CrashPoint::WriteDirectorySynced => vec![
            write("d/new.txt", "content"),
            write("old.txt", "content"),
            write("old.txt", "old"),
        ],
        CrashPoint::DeleteUnlinked | CrashPoint::DeleteDirectorySynced => vec![delete("old.txt")],
        CrashPoint::RenameRenamed
        | CrashPoint::RenameDestinationSynced
        | CrashPoint::RenameSourceSynced => {
            vec![rename("old.txt", "new.txt"), rename("old.txt", "d/new.txt")]
        }
        CrashPoint::CreateMade | CrashPoint::CreateParentSynced => vec![create("d/a/b/c")],
    }
}

/// Crashes at the point when it is passed for the nth time; false if the call ended before.
async fn check(point: CrashPoint, nth: usize, call: &CoreCall) -> bool {
    let undisturbed = World::new();
    undisturbed.put(BEFORE);
    assert_eq!(undisturbed.run(call).await, DONE);

    let world = World::new();
    world.put(BEFORE);
    let passed = AtomicUsize::new(0);
    world.sandbox.set_crash_hook(Some(Arc::new(move |at| {
        if at == point && passed.fetch_add(1, Ordering::SeqCst) + 1 == nth {
            AtCrashPoint::Crash
        } else {
            AtCrashPoint::GoOn
        }
    })));
    let pre_state = world.pre_state(call).await;
    let crashed = world.sandbox.dispatch(call, pre_state.as_ref(), Dispatch::First).await;
    if crashed == DONE {
        return false;
    }
    assert_eq!(crashed, Effect::Unknown(format!("crash point {point:?}")));

    let restarted = world.reopened();
    restarted.sweep().await.unwrap();
    let _hold = restarted.hold(call).await;
    for _ in 0..2 {
        let again = restarted.dispatch(call, pre_state.as_ref(), Dispatch::Again).await;
        assert_eq!(again, DONE, "{call:?} after {point:?}");
        assert_eq!(world.tree(), undisturbed.tree(), "{call:?} after {point:?}");
    }
    true
}

#[tokio::test]
async fn a_crash_at_any_point_ends_in_the_same_files_and_a_success() {
    for point in CrashPoint::ALL {
        for call in calls_through(point) {
            let mut nth = 1;
            while check(point, nth, &call).await {
                nth += 1;
            }
            assert!(nth > 1, "{call:?} never passes {point:?}");
        }
    }
}

#[tokio::test]
async fn a_crash_before_the_rename_leaves_the_temporary_file_unseen_and_the_old_content() {
    let world = World::new();
    world.put(&[("a.txt", "old")]);
    world.sandbox.set_crash_hook(Some(Arc::new(|point| {
        if point == CrashPoint::WriteTemporarySynced {
            AtCrashPoint::Crash
        } else {
            AtCrashPoint::GoOn
        }
    })));
    assert!(matches!(world.run(&write("a.txt", "new")).await, Effect::Unknown(_)));
    assert_eq!(world.tree().len(), 2);
    world.sandbox.set_crash_hook(None);
    assert_eq!(world.run(&read("a.txt")).await, result(r#"{"content":"old"}"#));
    let listing = result(r#"{"files":[{"isDirectory":false,"isFile":true,"name":"a.txt"}]}"#);
    assert_eq!(world.run(&list("")).await, listing);
    assert_eq!(world.sandbox.sweep().await.unwrap(), 1);
    assert_eq!(world.tree(), files(&[("a.txt", "old")]));
}

#[tokio::test]
async fn an_executor_that_panics_leaves_the_effect_unknown() {
    let world = World::new();
    world.sandbox.set_crash_hook(Some(Arc::new(|_| panic!("as a defect would"))));
    assert!(matches!(world.run(&write("a.txt", "new")).await, Effect::Unknown(_)));
}
