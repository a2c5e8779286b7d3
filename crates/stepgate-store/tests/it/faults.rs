//! The store that crashes on demand does so where it was told.

use std::sync::Arc;

use stepgate_core::ports::{Locks, Runs, Sessions, StoreError};
use stepgate_store::{Faults, FaultyStore, MemoryStore, StopAt};

use crate::desk::Desk;

fn crashed() -> StoreError {
    StoreError::Broken("crashed".into())
}

/// A desk takes two writes to open; the step's opening is the third.
async fn desk(stop: StopAt) -> (MemoryStore, Arc<Faults>, Desk) {
    let memory = MemoryStore::new();
    let faults = Faults::new(stop);
    let store = FaultyStore::new(memory.clone(), Arc::clone(&faults));
    let desk = Desk::open(Arc::new(store)).await;
    (memory, faults, desk)
}

#[tokio::test]
async fn a_stop_before_a_write_applies_nothing() {
    let (memory, faults, desk) = desk(StopAt::Before(3)).await;
    let mut step = desk.step();
    assert_eq!(desk.store.commit(step.opening()).await, Err(crashed()));
    assert_eq!(desk.store.binding(&step.key).await, Err(crashed()));
    assert_eq!(memory.reopened().dossier(step.id()).await, Ok(None));
    assert_eq!((faults.writes(), faults.has_crashed()), (3, true));
}

#[tokio::test]
async fn a_stop_after_a_write_applies_it_and_loses_the_answer() {
    let (memory, faults, desk) = desk(StopAt::After(3)).await;
    let mut step = desk.step();
    let lost = desk.store.commit(step.opening()).await;
    assert_eq!(lost, Err(StoreError::AnswerLost("crashed".into())));
    assert_eq!(desk.store.commit(step.closing()).await, Err(crashed()));
    let there = memory.reopened().binding(&step.key).await;
    assert_eq!(there, Ok(Some(step.binding(false))));
    assert_eq!(faults.writes(), 3);
}

#[tokio::test]
async fn a_store_that_never_stops_counts_its_writes() {
    let (_, faults, desk) = desk(StopAt::Never).await;
    desk.finished().await;
    assert_eq!((faults.writes(), faults.has_crashed()), (4, false));
}

#[tokio::test]
async fn a_reopened_memory_store_holds_no_lock_and_goes_on_counting_steps() {
    let memory = MemoryStore::new();
    let desk = Desk::open(Arc::new(memory.clone())).await;
    let step = desk.finished().await;
    memory.acquire_trace_lock(step.id()).await.unwrap();
    assert_eq!(memory.next_step_index(desk.session).await, Ok(2));
    let reopened = memory.reopened();
    assert_eq!(reopened.acquire_trace_lock(step.id()).await, Ok(()));
    assert_eq!(reopened.next_step_index(desk.session).await, Ok(2));
    assert_eq!(reopened.dossier(step.id()).await, memory.dossier(step.id()).await);
}
