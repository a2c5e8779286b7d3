use std::os::unix::process::ExitStatusExt;
use std::process::Command;

use super::*;

/// Tells the child of a test what to do.
const CHILD: &str = "PANIC_CHILD";
const SIGABRT: i32 = 6;

#[tokio::test]
async fn what_is_contained_ends_alone() {
    assert_eq!(contained(async { 1 }).await, Ok(1));
    let panics = async {
        tokio::task::yield_now().await;
        panic!("by a test")
    };
    assert_eq!(contained::<_>(panics).await, Err::<(), _>(Panicked));
    assert_eq!(contained_now(|| -> u8 { panic!("by a test") }), Err(Panicked));
    assert!(!IS_CONTAINED.get());
}

/// Does nothing by itself: the test below runs it as a process of its own.
#[test]
fn child() {
    let Ok(what) = std::env::var(CHILD) else { return };
    watch();
    if what == "contained" {
        assert_eq!(contained_now(|| -> u8 { panic!("by a test") }), Err(Panicked));
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let panics = contained_blocking(|| -> u8 { panic!("by a test") });
        assert_eq!(runtime.block_on(panics), Err(Panicked));
        assert_eq!(count(), 2);
    } else {
        let _ = std::thread::spawn(|| panic!("by a test")).join();
    }
}

#[test]
fn a_panic_ends_the_process_unless_it_is_contained() {
    for (what, signal) in [("contained", None), ("elsewhere", Some(SIGABRT))] {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "panics::tests::child"]).env(CHILD, what);
        let output = command.output().unwrap();
        assert_eq!(output.status.signal(), signal, "{what}: {output:?}");
        assert_eq!(output.status.success(), signal.is_none(), "{what}: {output:?}");
    }
}
