use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Waker};
use std::time::Duration;

use super::*;

fn path(text: &str) -> SandboxPath {
    SandboxPath::file(text).unwrap()
}

/// Polls once: whether the future has to wait.
fn waits<F: Future>(future: std::pin::Pin<&mut F>) -> bool {
    future.poll(&mut Context::from_waker(Waker::noop())).is_pending()
}

#[tokio::test]
async fn a_second_writer_of_the_same_path_waits_for_the_first() {
    let locks = Locks::default();
    let a = path("/sandbox/a.txt");
    let first = locks.acquire(vec![&a]).await;
    let mut second = pin!(locks.acquire(vec![&a]));
    assert!(waits(second.as_mut()));
    drop(first);
    assert!(!waits(second.as_mut()));
}

#[tokio::test]
async fn writers_of_different_paths_do_not_wait() {
    let locks = Locks::default();
    let (a, b) = (path("/sandbox/a.txt"), path("/sandbox/b.txt"));
    let _first = locks.acquire(vec![&a]).await;
    assert!(!waits(pin!(locks.acquire(vec![&b]))));
}

#[tokio::test]
async fn a_path_named_twice_is_locked_once() {
    let locks = Locks::default();
    let a = path("/sandbox/a.txt");
    assert!(!waits(pin!(locks.acquire(vec![&a, &a]))));
}

#[tokio::test]
async fn an_entry_goes_with_the_last_interest_in_it() {
    let locks = Locks::default();
    let (a, b) = (path("/sandbox/a.txt"), path("/sandbox/b.txt"));
    let first = locks.acquire(vec![&b, &a]).await;
    {
        let mut abandoned = pin!(locks.acquire(vec![&a]));
        assert!(waits(abandoned.as_mut()));
        assert_eq!(locked(&locks.0).len(), 2);
    }
    assert_eq!(locked(&locks.0).len(), 2);
    drop(first);
    assert_eq!(locked(&locks.0).len(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn calls_on_two_paths_in_both_orders_exclude_each_other_and_all_end() {
    let locks = Locks::default();
    let (a, b) = (path("/sandbox/a.txt"), path("/sandbox/b.txt"));
    let inside = Arc::new(AtomicUsize::new(0));
    let mut tasks = Vec::new();
    for number in 0..400 {
        let (locks, a, b, inside) = (locks.clone(), a.clone(), b.clone(), Arc::clone(&inside));
        tasks.push(tokio::spawn(async move {
            let paths = if number % 2 == 0 { vec![&a, &b] } else { vec![&b, &a] };
            let held = locks.acquire(paths).await;
            assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
            tokio::task::yield_now().await;
            inside.fetch_sub(1, Ordering::SeqCst);
            drop(held);
        }));
    }
    for task in tasks {
        tokio::time::timeout(Duration::from_secs(60), task).await.unwrap().unwrap();
    }
    assert_eq!(locked(&locks.0).len(), 0);
}
