//! Arguments that are kept apart until they are erased.

use std::sync::Arc;

use stepgate_core::event::Event;
use stepgate_core::ids::RunId;
use stepgate_core::journal::StateCode;
use stepgate_core::ports::{
    ErasableArgs, EraseCommit, OriginalPayload, StepCommit, Store, StoreError,
};
use stepgate_core::session::Head;
use stepgate_store::{PayloadKeys, PostgresOptions, PostgresStore, SqliteOptions, SqliteStore};

use crate::conformance::over_every_engine;
use crate::desk::{Desk, Step};
use crate::server;

over_every_engine! {
    erasable_arguments_come_with_their_run_and_stay_after_it,
    what_is_erased_is_gone_with_its_event_and_nothing_else_is,
    an_erasure_that_comes_too_late_is_refused,
}

const ARGS: &[u8] = br#"{"to":"alice@example.org"}"#;

fn storing(commit: StepCommit) -> StepCommit {
    StepCommit { erasable: Some(Arc::from(ARGS)), ..commit }
}

fn row(step: &Step) -> ErasableArgs {
    let args = Ok(OriginalPayload::Known(Arc::from(ARGS)));
    ErasableArgs { run_id: step.id(), session_id: step.place().session_id, args }
}

async fn pages(desk: &Desk) -> Vec<ErasableArgs> {
    let (mut rows, mut after): (Vec<ErasableArgs>, _) = (Vec::new(), None);
    loop {
        let page = desk.store.erasable_page(after, 2).await.unwrap();
        let Some(last) = page.last() else { return rows };
        after = Some(last.run_id);
        rows.extend(page);
    }
}

async fn system_head(desk: &Desk) -> Head {
    desk.store.session(desk.system).await.unwrap().unwrap().head
}

fn erasing(desk: &Desk, expected: Head, runs: Vec<RunId>) -> EraseCommit {
    EraseCommit { expected, event: Event { run_id: None, ..desk.loose_event() }, runs }
}

/// Runs that are over, each with erasable arguments.
async fn finished(desk: &Desk, count: usize) -> Vec<Step> {
    let mut steps = Vec::new();
    for _ in 0..count {
        let mut step = desk.step();
        desk.store.commit(storing(step.opening())).await.unwrap();
        desk.store.commit(step.closing()).await.unwrap();
        steps.push(step);
    }
    steps
}

async fn erasable_arguments_come_with_their_run_and_stay_after_it(desk: Desk) {
    let mut step = desk.step();
    desk.store.commit(storing(step.opening())).await.unwrap();
    assert_eq!(desk.store.erasable(step.id()).await.unwrap(), Some(row(&step)));
    let late = desk.store.commit(storing(StepCommit::at(step.place()))).await;
    assert!(matches!(late, Err(StoreError::State(_))), "{late:?}");
    desk.store.commit(step.closing()).await.unwrap();
    assert_eq!(desk.store.erasable(step.id()).await.unwrap(), Some(row(&step)));
    // A run that is recorded at once has its arguments, too.
    let mut refused = desk.step();
    desk.store.commit(storing(refused.refused_at_once())).await.unwrap();
    let more = finished(&desk, 3).await;
    desk.finished().await;
    let mut expected: Vec<_> = [&step, &refused].into_iter().chain(&more).map(row).collect();
    expected.sort_by_key(|row| row.run_id);
    assert_eq!(pages(&desk).await, expected);
}

async fn what_is_erased_is_gone_with_its_event_and_nothing_else_is(desk: Desk) {
    let steps = finished(&desk, 3).await;
    let before = desk.store.dossier(steps[0].id()).await.unwrap();
    let commit = erasing(&desk, system_head(&desk).await, vec![steps[0].id(), steps[2].id()]);
    let event_id = commit.event.event_id;
    desk.store.erase(commit).await.unwrap();
    assert_eq!(pages(&desk).await, [row(&steps[1])]);
    assert!(desk.store.event(event_id).await.unwrap().is_some());
    assert_eq!(desk.store.dossier(steps[0].id()).await.unwrap(), before);
}

async fn an_erasure_that_comes_too_late_is_refused(desk: Desk) {
    let steps = finished(&desk, 1).await;
    let head = system_head(&desk).await;
    desk.store.append_event(Event { session_id: desk.system, ..desk.loose_event() }).await.unwrap();
    let commit = EraseCommit {
        event: Event { session_id: desk.system, ..desk.loose_event() },
        ..erasing(&desk, head, vec![steps[0].id()])
    };
    let Err(StoreError::State(error)) = desk.store.erase(commit).await else { panic!("accepted") };
    assert_eq!(error.code, StateCode::ConcurrentExecution);
    assert_eq!(pages(&desk).await, [row(&steps[0])]);
}

fn keys() -> PayloadKeys {
    PayloadKeys::parse(&PayloadKeys::fresh_line().unwrap()).unwrap()
}

/// Both engines store the arguments encrypted: with the key they are there, without it they are locked, and the rest of
/// the run can be read.
#[tokio::test]
async fn without_the_key_what_is_kept_apart_is_locked() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("stepgate.db");
    let keys = keys();
    let sqlite = SqliteStore::open(&path, SqliteOptions::default()).unwrap();
    let desk = Desk::open(Arc::new(sqlite.with_payload_keys(keys.clone()))).await;
    let mut step = desk.step();
    let sealed: Arc<[u8]> = Arc::from(&b"as it came"[..]);
    let opening = StepCommit { sealed: Some(Arc::clone(&sealed)), ..storing(step.opening()) };
    desk.store.commit(opening).await.unwrap();
    drop(desk);
    let url = server::fresh_url();
    let postgres = PostgresStore::open(&url, PostgresOptions::default()).await.unwrap();
    let desk = Desk::open(Arc::new(postgres.with_payload_keys(keys.clone()))).await;
    let mut there = desk.step();
    let opening = StepCommit { sealed: Some(Arc::clone(&sealed)), ..storing(there.opening()) };
    desk.store.commit(opening).await.unwrap();
    drop(desk);
    let options = PostgresOptions::default;
    let read = async || {
        let sqlite = SqliteStore::open_read_only(&path).unwrap();
        (sqlite, PostgresStore::open_read_only(&url, options()).await.unwrap())
    };
    let (sqlite, postgres) = read().await;
    let stores: [(&Step, Box<dyn Store>); 4] = [
        (&step, Box::new(sqlite)),
        (&there, Box::new(postgres)),
        (&step, Box::new(read().await.0.with_payload_keys(keys.clone()))),
        (&there, Box::new(read().await.1.with_payload_keys(keys))),
    ];
    for (number, (step, store)) in stores.into_iter().enumerate() {
        let dossier = store.dossier(step.id()).await.unwrap().unwrap();
        let erasable = store.erasable(step.id()).await.unwrap().unwrap();
        match number {
            0 | 1 => {
                assert!(matches!(dossier.sealed, Some(OriginalPayload::Locked { .. })));
                assert!(matches!(erasable.args, Ok(OriginalPayload::Locked { .. })));
            }
            _ => {
                assert_eq!(dossier.sealed, Some(OriginalPayload::Known(Arc::clone(&sealed))));
                assert_eq!(erasable, row(step));
            }
        }
    }
    let bytes = std::fs::read(&path).unwrap();
    let log = std::fs::read(path.with_extension("db-wal")).unwrap_or_default();
    for text in ["as it came", "alice@example.org"] {
        let has = |bytes: &[u8]| bytes.windows(text.len()).any(|at| at == text.as_bytes());
        assert!(!has(&bytes) && !has(&log), "{text} is in a file");
    }
}
