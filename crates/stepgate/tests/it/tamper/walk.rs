//! The walk of `verify` over a store that fails, or grows, while it is read.

use std::sync::Arc;
use std::thread;

use serde_json::json;
use stepgate_core::ports::{Store, StoreError};
use stepgate_core::verify;
use stepgate_store::sqlite::SqliteStore;
use stepgate_store::{Faults, FaultyStore, MemoryStore, StopAt};
use tempfile::TempDir;

use crate::gate::{Fixture, proposal, submit};

/// More than two pages of `verify`.
const STEPS: u32 = 600;

async fn with_steps(store: impl Store + 'static) -> Fixture {
    let fixture = Fixture::with_store(Arc::new(store));
    for number in 0..STEPS {
        fixture.submit(proposal(number, "THINK", json!({}))).await;
    }
    fixture
}

#[tokio::test]
async fn a_store_that_fails_while_it_is_read_is_an_error_and_no_report() {
    let memory = MemoryStore::new();
    with_steps(memory.clone()).await;
    let faults = Faults::new(StopAt::Never);
    let store = FaultyStore::new(memory, Arc::clone(&faults));
    let verified = verify::verify(&store, &[], |_| faults.crash()).await;
    assert!(matches!(verified, Err(StoreError::Broken(_))), "{verified:?}");
}

/// The oldest run gets one more link after the ends of the chains were read: it is the last one of its session now.
#[tokio::test]
async fn a_chain_that_grew_by_one_link_while_it_was_read_verifies() {
    let place = TempDir::new().unwrap();
    let path = place.path().join("stepgate.db");
    let fixture = with_steps(SqliteStore::open(&path, Default::default()).unwrap()).await;
    let reading = SqliteStore::open_read_only(&path).unwrap();
    let mut has_grown = false;
    let report = verify::verify(&reading, &[], |_| {
        if !std::mem::replace(&mut has_grown, true) {
            let replay = async { submit(&fixture.gate, proposal(0, "THINK", json!({}))).await };
            let runtime = || tokio::runtime::Builder::new_current_thread().build().unwrap();
            thread::scope(|scope| {
                let answer = scope.spawn(|| runtime().block_on(replay)).join().unwrap();
                assert!(answer.unwrap().replayed);
            });
        }
    });
    let report = report.await.unwrap();
    assert_eq!((report.problems, report.runs), (vec![], u64::from(STEPS)));
}
