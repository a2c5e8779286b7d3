//! Keys in the rows of runs, beside those that older versions and archived runs have left in `effects`.

use std::sync::Arc;

use stepgate_core::ports::{KeyChange, Locks, Runs, StepCommit, Store, StoreError, Writes};
use stepgate_store::{MemoryStore, SqliteOptions, SqliteStore};

use crate::desk::{Desk, Step};
use crate::older_keys::{OF_EFFECTS, OF_RUNS, keep_in_effects};
use crate::postgres_nodes::{House, until};

/// A run has one key, in whichever table.
async fn binds_no_second_key(store: &dyn Store, step: &Step) {
    let mut second = step.binding(false);
    second.idempotency_key = Step::new(step.place().session_id, 1).key;
    let second = StepCommit { key: Some(KeyChange::Bind(second)), ..StepCommit::at(step.place()) };
    let refused = store.commit(second).await.unwrap_err();
    let StoreError::State(error) = refused else { panic!("{refused}") };
    assert!(error.detail.contains("has bound another key"), "{error:?}");
}

/// As an upgrade finds it: open, bound, and in flight.
#[tokio::test]
async fn sqlite_settles_a_key_of_an_older_version_where_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("stepgate.db");
    let open = || SqliteStore::open(&path, SqliteOptions::default()).unwrap();
    let mut desk = Desk::open(Arc::new(open())).await;
    let (mut step, mut waiting) = (desk.step(), desk.step());
    desk.store.commit(step.opening()).await.unwrap();
    let (pausing, asked) = waiting.pausing();
    desk.store.commit(pausing).await.unwrap();
    desk.store = Arc::new(MemoryStore::new());
    assert_eq!(keep_in_effects(&path, i64::MAX), 2);
    desk.store = Arc::new(open());
    let store = &desk.store;
    for step in [&step, &waiting] {
        assert_eq!(store.binding(&step.key).await, Ok(Some(step.binding(false))));
    }
    binds_no_second_key(&**store, &waiting).await;
    store.commit(step.closing()).await.unwrap();
    store.commit(waiting.granting(&asked).0).await.unwrap();
    store.commit(waiting.closing()).await.unwrap();
    for step in [&step, &waiting] {
        assert_eq!(store.binding(&step.key).await, Ok(Some(step.binding(true))));
        let dossier = store.dossier(step.id()).await.unwrap().unwrap();
        assert_eq!(dossier.binding, Some(step.binding(true)));
        let mut other = desk.step();
        other.key = step.key.clone();
        assert_eq!(store.commit(other.opening()).await, Err(StoreError::KeyTaken));
    }
    assert_eq!(accounted(&**store).await, (2, 2));
    assert_eq!(store.damage().await, Ok(Vec::new()));
}

/// The other node's commit has deleted the row and is not over: a second run with the key waits for it, and what a trigger
/// saw before that is old.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_key_of_a_run_that_another_node_archives_meanwhile_stays_bound() {
    let house = House::new();
    let node = house.node("one").await;
    let desk = Desk::open(node.clone()).await;
    let first = desk.finished().await;
    let archive = format!(
        "BEGIN;
         INSERT INTO archived_runs (tool_run_id, session_id, archive_id, step_index, run_position,
                                    chunks, events, approvals, links)
         VALUES ('{id}', '', '', 0, 0, 0, 0, 0, '');
         DELETE FROM tool_runs WHERE tool_run_id = '{id}';
         SELECT pg_advisory_xact_lock(7), pg_sleep(1.5); COMMIT",
        id = first.id()
    );
    let house = Arc::new(house);
    let archiving = {
        let house = Arc::clone(&house);
        std::thread::spawn(move || house.sql(&archive))
    };
    until("the other node has not deleted the row", async || {
        let held = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 7
                    AND classid = 0 AND granted";
        house.sql(held).trim() == "1"
    })
    .await;
    let mut second = desk.step();
    second.key = first.key.clone();
    assert_eq!(node.commit(second.opening()).await, Err(StoreError::KeyTaken));
    archiving.join().unwrap();
    assert_eq!(node.binding(&first.key).await, Ok(Some(first.binding(true))));
    assert_eq!(node.dossier(second.id()).await, Ok(None));
}

/// As an upgrade finds it: open, bound, and in flight.
#[tokio::test]
async fn postgres_settles_a_key_of_an_older_version_where_it_is() {
    let house = House::new();
    let node = house.node("one").await;
    let desk = Desk::open(node.clone()).await;
    let (mut step, mut waiting) = (desk.step(), desk.step());
    node.commit(step.opening()).await.unwrap();
    let (pausing, asked) = waiting.pausing();
    node.commit(pausing).await.unwrap();
    drop((node, desk.store));
    house.sql(&format!(
        "ALTER TABLE tool_runs DISABLE TRIGGER USER; ALTER TABLE effects DISABLE TRIGGER USER;
         INSERT INTO effects ({OF_EFFECTS}) SELECT {} FROM tool_runs ORDER BY position;
         UPDATE tool_runs SET idempotency_key = NULL, tool_server = NULL, bound_tool = NULL,
                              asked_digest = NULL, settled = NULL;
         ALTER TABLE tool_runs ENABLE TRIGGER USER; ALTER TABLE effects ENABLE TRIGGER USER",
        OF_RUNS.replace("lower(hex(asked_digest))", "encode(asked_digest, 'hex')")
    ));
    let node = house.node("next").await;
    until("the runs are not free", async || {
        node.unfinished_runs().await.unwrap().contains(&step.id())
    })
    .await;
    for step in [&step, &waiting] {
        node.acquire_trace_lock(step.id()).await.unwrap();
        assert_eq!(node.binding(&step.key).await, Ok(Some(step.binding(false))));
    }
    binds_no_second_key(&*node, &waiting).await;
    node.commit(step.closing()).await.unwrap();
    node.commit(waiting.granting(&asked).0).await.unwrap();
    node.commit(waiting.closing()).await.unwrap();
    for step in [&step, &waiting] {
        assert_eq!(node.binding(&step.key).await, Ok(Some(step.binding(true))));
        let dossier = node.dossier(step.id()).await.unwrap().unwrap();
        assert_eq!(dossier.binding, Some(step.binding(true)));
        let mut other = Step::new(desk.session, 2);
        other.key = step.key.clone();
        assert_eq!(node.commit(other.opening()).await, Err(StoreError::KeyTaken));
    }
    let counted = "SELECT count(*), sum(settled) FROM effects";
    assert_eq!(house.sql(counted).trim(), "2|2");
    assert_eq!(accounted(&*node).await, (2, 2));
}

/// What `verify` compares: how many bindings are accounted for in the runs, and how many rows `effects` has.
async fn accounted(store: &dyn Store) -> (u64, u64) {
    let last = store.moment().await.unwrap().last;
    let page = store.audit(&last, None, 9).await.unwrap();
    let accounted = page.iter().map(|audited| audited.rows.bindings).sum();
    (accounted, store.counts().await.unwrap().bindings)
}

#[tokio::test]
async fn a_second_binding_of_a_run_is_accounted_for_by_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("stepgate.db");
    let desk =
        Desk::open(Arc::new(SqliteStore::open(&path, SqliteOptions::default()).unwrap())).await;
    let step = desk.finished().await;
    let second = format!(
        "INSERT INTO effects ({OF_EFFECTS}) VALUES ('second', '', '', '{}', '{}', 1)",
        step.binding(true).asked_digest,
        step.id()
    );
    let stranger = rusqlite::Connection::open(&path).unwrap();
    stranger.execute_batch(&format!("DROP TRIGGER effects_no_replace; {second}")).unwrap();
    assert_eq!(accounted(&*desk.store).await, (0, 1));
    let dossier = desk.store.dossier(step.id()).await.unwrap().unwrap();
    assert_eq!(dossier.binding, Some(step.binding(true)));

    let house = House::new();
    let desk = Desk::open(house.node("one").await).await;
    let step = desk.finished().await;
    let second = second.replace(&dossier.run.arrival.run_id.to_string(), &step.id().to_string());
    house.sql(&format!("ALTER TABLE effects DISABLE TRIGGER effects_bind_free; {second}"));
    assert_eq!(accounted(&*desk.store).await, (0, 1));
    let dossier = desk.store.dossier(step.id()).await.unwrap().unwrap();
    assert_eq!(dossier.binding, Some(step.binding(true)));
}
