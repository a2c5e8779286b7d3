//! `verify` beside a gate that goes on working: it keeps nothing of the log from starting over, takes
//! nothing that is written meanwhile for a change, and costs as much as there is to read.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rusqlite::Connection;
use serde_json::json;
use stepgate_core::event::{Event, EventType};
use stepgate_core::ids::{ArtifactId, PrincipalId, SessionId};
use stepgate_core::ports::{Audits, Writes};
use stepgate_core::session::{Head, Session, SessionKind};
use stepgate_core::step::{self, Person};
use stepgate_core::time::Timestamp;
use stepgate_core::verify;
use stepgate_store::memory::MemoryStore;
use stepgate_store::sqlite::SqliteStore;
use tempfile::TempDir;
use uuid::Builder;

use crate::gate::{AskAlways, Fixture, proposal};

/// More than two pages of `verify`.
const STEPS: u32 = 600;

fn think(number: u32) -> String {
    proposal(number, "THINK", json!({}))
}

fn write(number: u32) -> String {
    let args = json!({ "path": format!("/sandbox/{number}.txt"), "content": "x" });
    proposal(number, "WRITE_FILE", args)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_can_start_over_while_verify_goes_on() {
    let place = TempDir::new().unwrap();
    let path = place.path().join("stepgate.db");
    let fixture =
        Fixture::with_store(Arc::new(SqliteStore::open(&path, Default::default()).unwrap()));
    for number in 0..STEPS {
        fixture.submit(think(number)).await;
    }
    let log = path.with_extension("db-wal");
    let other = Connection::open(&path).unwrap();
    let version: i64 = other.query_row("PRAGMA user_version", [], |row| row.get(0)).unwrap();
    let reading = SqliteStore::open_read_only(&path).unwrap();
    let mut cut = 0;
    let report = verify::verify(&reading, &[], |runs| {
        if runs % 100 != 0 {
            return;
        }
        // Something new in the log, which only a reader that came before it does not need.
        other.pragma_update(None, "user_version", version).unwrap();
        let cut_off = "PRAGMA wal_checkpoint(TRUNCATE)";
        let is_busy: i64 = other.query_row(cut_off, [], |row| row.get(0)).unwrap();
        assert_eq!((is_busy, fs::metadata(&log).unwrap().len()), (0, 0), "after {runs} runs");
        cut += 1;
    });
    let report = report.await.unwrap();
    assert_eq!((report.problems, report.runs), (vec![], u64::from(STEPS)));
    assert_eq!(cut, STEPS / 100);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn what_is_written_while_verify_reads_is_no_change() {
    let place = TempDir::new().unwrap();
    let path = place.path().join("stepgate.db");
    let store = Arc::new(SqliteStore::open(&path, Default::default()).unwrap());
    let mut fixture = Fixture::with_store(store).with_policy(AskAlways);
    fixture.gate.limits.approvals_open_max = u64::MAX;
    fixture.gate.limits.approvals_open_total_max = u64::MAX;
    let mut waiting = Vec::new();
    for number in 0..STEPS {
        let answer = fixture.submit(write(number)).await;
        waiting.push(fixture.dossier(&answer).await.approval.unwrap().approval_id);
    }
    let is_over = Arc::new(AtomicBool::new(false));
    let (gate, stop) = (fixture.gate.clone(), Arc::clone(&is_over));
    // Old runs end, are asked for again and new ones come, all while they are read.
    let writing = tokio::spawn(async move {
        let mut number = STEPS;
        while !stop.load(Ordering::Relaxed) {
            crate::gate::submit(&gate, write(number)).await.unwrap();
            crate::gate::submit(&gate, write(number % STEPS)).await.unwrap();
            if let Some(approval_id) = waiting.pop() {
                step::resume(&gate, approval_id, Person::Nobody).await.unwrap();
            }
            number += 1;
        }
        number
    });
    let reading = SqliteStore::open_read_only(&path).unwrap();
    let mut have_grown = 0;
    for round in 0..8 {
        let report = verify::verify(&reading, &[], |_| {}).await.unwrap();
        assert_eq!(report.problems, [], "round {round}");
        have_grown += u64::from(reading.counts().await.unwrap().runs > report.runs);
    }
    is_over.store(true, Ordering::Relaxed);
    assert!(writing.await.unwrap() > STEPS && have_grown > 0, "nothing was written meanwhile");
    assert_eq!(verify::verify(&reading, &[], |_| {}).await.unwrap().problems, []);
}

/// A store with so many sessions, of which the system session tells.
async fn with_sessions(sessions: u64) -> MemoryStore {
    let store = MemoryStore::new();
    let fixture = Fixture::with_store(Arc::new(store.clone()));
    let system = fixture.gate.system_session().await.unwrap();
    let ts = Timestamp::from_millisecond(1_790_000_000_000);
    for number in 1..=sessions {
        let fresh = Builder::from_unix_timestamp_millis(1_795_000_000_000 + number, &[7; 10]);
        let fresh = fresh.into_uuid();
        let session_id = SessionId::new(fresh);
        let principal_id = PrincipalId::parse("agent").unwrap();
        let payload = json!({
            "kind": "named", "principal_id": principal_id, "session_id": session_id, "ts": ts,
        });
        let event = Event {
            event_id: ArtifactId::new(fresh),
            event_type: EventType::SessionOpened,
            payload,
            run_id: None,
            sequence_number: 0,
            session_id: system.session_id,
            ts,
        };
        let session = Session {
            session_id,
            principal_id,
            kind: SessionKind::Named,
            node_id: None,
            ts,
            head: Head::EMPTY,
            last_step_index: 0,
        };
        store.open_session(session, event).await.unwrap();
    }
    store
}

/// Processor time of this thread, which a busy machine does not stretch.
fn processor_ns() -> u64 {
    let said = fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    said.split(' ').next().unwrap().parse().unwrap()
}

#[tokio::test]
async fn four_times_as_many_sessions_take_about_four_times_as_long() {
    let mut took = Vec::new();
    for sessions in [4_000, 16_000] {
        let store = with_sessions(sessions).await;
        let before = processor_ns();
        let report = verify::verify(&store, &[], |_| {}).await.unwrap();
        took.push(processor_ns() - before);
        assert_eq!(report.problems, []);
    }
    // Every session compared with every other would be sixteen times as long.
    assert!(took[1] < took[0] * 9, "{took:?}");
}
