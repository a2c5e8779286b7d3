//! How tasks hear of each other: an answer that comes once or not at all, and a bell that wakes the tasks
//! that wait.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};

use crate::locked;

/// The two ends of one answer.
pub(crate) fn answer<T>() -> (Answering<T>, Awaited<T>) {
    let slot = Arc::new(Mutex::new(Slot { value: None, is_closed: false, waker: None }));
    (Answering(Arc::clone(&slot)), Awaited(slot))
}

struct Slot<T> {
    value: Option<T>,
    is_closed: bool,
    waker: Option<Waker>,
}

/// The end that answers. Dropped without an answer, the other end hears that none will come.
pub(crate) struct Answering<T>(Arc<Mutex<Slot<T>>>);

impl<T> Answering<T> {
    /// Answers.
    pub(crate) fn send(self, value: T) {
        locked(&self.0).value = Some(value);
    }
}

impl<T> Drop for Answering<T> {
    fn drop(&mut self) {
        let mut slot = locked(&self.0);
        slot.is_closed = true;
        let waker = slot.waker.take();
        drop(slot);
        waker.into_iter().for_each(Waker::wake);
    }
}

/// The end that waits for an answer.
pub(crate) struct Awaited<T>(Arc<Mutex<Slot<T>>>);

impl<T> Awaited<T> {
    /// The answer, where it has come.
    pub(crate) fn taken(&self) -> Option<T> {
        locked(&self.0).value.take()
    }

    /// The answer, or none where the other end was dropped.
    pub(crate) async fn get(&self) -> Option<T> {
        poll_fn(|context| {
            let mut slot = locked(&self.0);
            match slot.value.take() {
                Some(value) => Poll::Ready(Some(value)),
                None if slot.is_closed => Poll::Ready(None),
                None => {
                    slot.waker = Some(context.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await
    }
}

/// Wakes every task that waits.
#[derive(Default)]
pub(crate) struct Bell(Mutex<Ringing>);

#[derive(Default)]
struct Ringing {
    times: u64,
    waiting: VecDeque<Waker>,
}

impl Bell {
    /// Wakes every task that waits now.
    pub(crate) fn ring(&self) {
        let mut ringing = locked(&self.0);
        ringing.times += 1;
        let waiting = std::mem::take(&mut ringing.waiting);
        drop(ringing);
        waiting.into_iter().for_each(Waker::wake);
    }

    /// How often it has rung.
    pub(crate) fn times(&self) -> u64 {
        locked(&self.0).times
    }

    /// Waits until it has rung more often than that.
    pub(crate) async fn rung_since(&self, times: u64) {
        poll_fn(|context| {
            let mut ringing = locked(&self.0);
            if ringing.times > times {
                return Poll::Ready(());
            }
            ringing.waiting.push_back(context.waker().clone());
            Poll::Pending
        })
        .await;
    }
}
