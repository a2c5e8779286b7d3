//! The invariants that show where a step is interrupted: what is dispatched again, by whom, and what is there.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use serde_json::{Value, json};
use stepgate_core::action::CoreCall;
use stepgate_core::event::EventType;
use stepgate_core::failure::Outcome;
use stepgate_core::gate::{Fault, Parked};
use stepgate_core::journal::{StateCode, replay};
use stepgate_core::machine::State;
use stepgate_core::ports::{Counts, Dispatch, Effect, Executor, Store};
use stepgate_core::recover::{self, Scope};
use stepgate_core::run::{Status, Word};
use stepgate_core::session::Session;
use stepgate_core::step;
use stepgate_store::memory::MemoryStore;
use stepgate_store::sqlite::SqliteStore;
use tokio::sync::Notify;

use super::{assert_verified, counting, cut, state_code, write};
use crate::gate::{Act, Acting, Fixture, proposal, submit};
use crate::older_keys::keep_in_effects;

#[tokio::test]
async fn i1_recovery_replays_the_log_to_reconstruct_the_state() {
    let fixture = Fixture::new();
    let answer = fixture.submit(write(1)).await;
    let whole = fixture.dossier(&answer).await.entries;
    for (length, state) in [(1, State::Pending), (2, State::Authorized), (3, State::Executing)] {
        // Nothing but the log says how far the run had come: its row is the same every time.
        let (restarted, dispatched) = cut(&fixture, answer.run_id, length).await;
        assert_eq!(replay(&whole[..length]).unwrap().tail.state, Some(state));
        let report = recover::recover(&restarted.gate, Scope::Core).await.unwrap();
        assert_eq!(report.finished, [answer.run_id], "{state}: {report:?}");
        let dossier = restarted.dossier(&answer).await;
        let recovered = dossier.events.iter().map(|linked| &linked.event);
        let recovered: Vec<_> = recovered
            .filter(|event| event.event_type == EventType::RunRecovered)
            .map(|event| event.payload.clone())
            .collect();
        assert_eq!(recovered, [json!({ "state": state })]);
        // What was in the log stays, and what was missing follows from it.
        assert_eq!(dossier.entries[..length], whole[..length], "{state}");
        let states: Vec<_> = dossier.entries.iter().map(|row| row.entry.to_state).collect();
        use State::{Authorized, Completed, Executing, Pending};
        assert_eq!(states, [Pending, Authorized, Executing, Completed]);
        assert_eq!(dispatched.load(Ordering::SeqCst), 1, "{state}");
    }
}

/// Notes what reaches the executor, and can stop just after the act.
struct Noting {
    inner: Arc<dyn Executor>,
    sent: Arc<Mutex<Vec<(String, Dispatch)>>>,
    stop_after_the_act: bool,
}

#[async_trait]
impl Act for Noting {
    fn inner(&self) -> &dyn Executor {
        &*self.inner
    }

    async fn act(&self, call: &CoreCall, before: Option<&Value>, dispatch: Dispatch) -> Effect {
        self.sent.lock().unwrap().push((format!("{call:?} {before:?}"), dispatch));
        let effect = self.inner.dispatch(call, before, dispatch).await;
        if self.stop_after_the_act { Effect::Unknown("stopped".into()) } else { effect }
    }
}

#[tokio::test]
async fn i3_an_effect_that_is_not_recorded_is_dispatched_again_with_the_same_call_and_key() {
    let mut fixture = Fixture::new();
    let real = fixture.gate.executor.clone();
    let sent = Arc::new(Mutex::new(Vec::new()));
    let noting = |stop_after_the_act| {
        let (inner, sent) = (real.clone(), sent.clone());
        Arc::new(Acting(Noting { inner, sent, stop_after_the_act }))
    };
    fixture.gate.executor = noting(true);
    let fault = submit(&fixture.gate, write(1)).await.unwrap_err();
    assert!(matches!(fault, Fault::Executor(_)));
    fixture.gate.executor = noting(false);
    let report = recover::recover(&fixture.gate, Scope::Core).await.unwrap();
    let [run_id] = report.finished[..] else { panic!("{report:?}") };
    let dossier = fixture.gate.store.dossier(run_id).await.unwrap().unwrap();
    let ids: Vec<_> = dossier.entries[2..]
        .iter()
        .map(|row| (row.entry.tool_call_id, row.entry.idempotency_key.clone()))
        .collect();
    assert_eq!(ids[0], ids[1]);
    assert_eq!(dossier.run.status, Status::Ok);
    let again = fixture.submit(write(1)).await;
    assert!(again.replayed && again.body().contains("SUCCESS"));
    let sent = std::mem::take(&mut *sent.lock().unwrap());
    let [(first, Dispatch::First), (second, Dispatch::Again)] = &sent[..] else {
        panic!("{sent:?}")
    };
    assert_eq!(first, second);
    assert_verified(&*fixture.gate.store).await;
}

/// Holds its first act until it is told to go on.
struct Held {
    inner: Arc<dyn Executor>,
    acts: Arc<AtomicU64>,
    begun: Arc<Notify>,
    go_on: Arc<Notify>,
}

#[async_trait]
impl Act for Held {
    fn inner(&self) -> &dyn Executor {
        &*self.inner
    }

    async fn act(&self, call: &CoreCall, before: Option<&Value>, dispatch: Dispatch) -> Effect {
        if self.acts.fetch_add(1, Ordering::SeqCst) == 0 {
            self.begun.notify_one();
            self.go_on.notified().await;
        }
        self.inner.dispatch(call, before, dispatch).await
    }
}

#[tokio::test]
async fn i6_at_most_one_executor_appends_to_a_trace() {
    let store = MemoryStore::with_lock_wait(std::time::Duration::from_millis(20));
    let mut fixture = Fixture::with_store(Arc::new(store));
    let real = fixture.gate.executor.clone();
    counting(&mut fixture, true);
    submit(&fixture.gate, write(1)).await.unwrap_err();
    let [run_id] = fixture.gate.store.unfinished_runs().await.unwrap()[..] else { panic!() };
    let (begun, go_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let acts = Arc::new(AtomicU64::new(0));
    let held = Held { inner: real, acts: acts.clone(), begun: begun.clone(), go_on: go_on.clone() };
    fixture.gate.executor = Arc::new(Acting(held));
    // What the stopped step held for the path is not what keeps the second away.
    fixture.gate.parked = Parked::default();

    let gate = fixture.gate.clone();
    let first = tokio::spawn(async move { step::redispatch(&gate, run_id).await });
    begun.notified().await;
    let before = fixture.gate.store.dossier(run_id).await.unwrap();
    let fault = step::redispatch(&fixture.gate, run_id).await.unwrap_err();
    let Fault::Store(error) = fault else { panic!("{fault}") };
    assert_eq!(state_code(error), StateCode::LockAcquireFailed);
    let during = fixture.gate.store.dossier(run_id).await.unwrap();
    assert_eq!((during, acts.load(Ordering::SeqCst)), (before, 1), "nothing was appended");
    go_on.notify_one();
    let answer = first.await.unwrap().unwrap();
    assert_eq!(answer.word(), Word::Outcome(Outcome::Success));
    let entries = fixture.dossier(&answer).await.entries;
    assert_eq!((entries.len(), acts.load(Ordering::SeqCst)), (4, 1));
    assert_verified(&*fixture.gate.store).await;
}

/// Where an older version was stopped, keys are in a table of their own.
#[tokio::test]
async fn a_run_whose_key_an_older_version_has_bound_is_recovered_and_settled() {
    let place = tempfile::TempDir::new().unwrap();
    let path = place.path().join("stepgate.db");
    let open = || Arc::new(SqliteStore::open(&path, Default::default()).unwrap());
    let mut fixture = Fixture::with_store(open());
    let real = fixture.gate.executor.clone();
    counting(&mut fixture, true);
    submit(&fixture.gate, write(1)).await.unwrap_err();
    fixture.gate.store = Arc::new(MemoryStore::new());
    assert_eq!(keep_in_effects(&path, i64::MAX), 1);
    fixture.gate.store = open();
    fixture.gate.executor = real;
    let report = recover::recover(&fixture.gate, Scope::Core).await.unwrap();
    let [run_id] = report.finished[..] else { panic!("{report:?}") };
    let dossier = fixture.gate.store.dossier(run_id).await.unwrap().unwrap();
    assert!(dossier.binding.unwrap().settled);
    let stranger = rusqlite::Connection::open(&path).unwrap();
    let settled = "SELECT settled FROM effects WHERE trace_id = ?1";
    let settled: i64 = stranger.query_row(settled, [run_id.to_string()], |row| row.get(0)).unwrap();
    assert_eq!(settled, 1);
    assert_verified(&*fixture.gate.store).await;
    let again = fixture.submit(write(1)).await;
    assert_eq!((again.run_id, again.replayed), (run_id, true));
}

/// The database refuses one row of a commit after it took the others: RAISE(FAIL) leaves them in the open
/// transaction. Each table is written before the act; the last two times, the row of the second commit is refused.
#[tokio::test]
async fn i7_artifact_and_transition_commit_together_or_not_at_all() {
    let tables = [
        ("tool_runs", "true"),
        ("chunks", "true"),
        ("events", "true"),
        ("chunks", "NEW.records > 0"),
        ("events", "NEW.event_type = 'tool_succeeded'"),
    ];
    for (number, (table, condition)) in tables.into_iter().enumerate() {
        let place = tempfile::TempDir::new().unwrap();
        let path = place.path().join("stepgate.db");
        let open = || Arc::new(SqliteStore::open(&path, Default::default()).unwrap());
        let mut fixture = Fixture::with_store(open());
        fixture.submit(proposal(1, "THINK", json!({}))).await;
        let before = standing(&*fixture.gate.store).await;
        let stranger = rusqlite::Connection::open(&path).unwrap();
        let refuse = format!(
            "CREATE TRIGGER refuse AFTER INSERT ON {table} WHEN {condition}
             BEGIN SELECT RAISE(FAIL, 'not this row'); END"
        );
        stranger.execute_batch(&refuse).unwrap();
        submit(&fixture.gate, write(2)).await.unwrap_err();
        stranger.execute_batch("DROP TRIGGER refuse").unwrap();
        fixture.gate.store = open();
        let after = standing(&*fixture.gate.store).await;
        let (runs, entries) = (after.0.runs - before.0.runs, after.0.entries - before.0.entries);
        if number < 3 {
            assert_eq!(after, before, "{table}");
            assert!(!fixture.path("a.txt").exists(), "{table}");
        } else {
            // The call is durable, and of its effect neither artifact nor transition nor record.
            assert_eq!((runs, entries, after.0.records - before.0.records), (1, 3, 0), "{table}");
            assert!(fixture.path("a.txt").exists(), "{table}");
        }
        assert_verified(&*fixture.gate.store).await;
        let report = recover::recover(&fixture.gate, Scope::Core).await.unwrap();
        assert_eq!(report.finished.len() as u64, runs, "{table}: {report:?}");
    }
}

/// How many rows there are, and where the chains end.
async fn standing(store: &dyn Store) -> (Counts, Vec<Session>) {
    (store.counts().await.unwrap(), store.sessions().await.unwrap())
}
