//! A file that is damaged below what SQL can reach: pages and indexes.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use rusqlite::Connection;
use serde_json::json;
use stepgate_core::verify::{self, Problem};
use stepgate_store::sqlite::SqliteStore;
use tempfile::TempDir;

use super::{database, report};
use crate::gate::{Fixture, proposal};

const PAGE_BYTES: usize = 4096;

/// The pages that are the roots of the tables or indexes with this name.
fn root_of(database: &Path, name: &str) -> usize {
    let connection = Connection::open(database).unwrap();
    let select = "SELECT rootpage FROM sqlite_schema WHERE name = ?1";
    let page: i64 = connection.query_row(select, [name], |row| row.get(0)).unwrap();
    usize::try_from(page).unwrap()
}

/// As if the page had no cells, though they are still there.
fn empty_page(database: &Path, page: usize) {
    let mut bytes = fs::read(database).unwrap();
    let start = (page - 1) * PAGE_BYTES;
    bytes[start + 3..start + 5].fill(0);
    fs::write(database, bytes).unwrap();
}

fn in_bindings(problems: &[Problem]) -> Vec<&str> {
    let bindings = problems.iter().filter(|problem| problem.place == "bindings");
    bindings.map(|problem| problem.what.as_str()).collect()
}

#[tokio::test]
async fn a_key_that_was_executed_twice_is_named_though_each_run_is_sound() {
    let place = TempDir::new().unwrap();
    let path = place.path().join("stepgate.db");
    let open = || Arc::new(SqliteStore::open(&path, Default::default()).unwrap());
    let write = proposal(1, "WRITE_FILE", json!({ "path": "/sandbox/a.txt", "content": "once" }));
    let mut fixture = Fixture::with_store(open());
    let first = fixture.submit(&write).await;
    fixture.gate.store = Arc::new(stepgate_store::memory::MemoryStore::new());
    assert_eq!(report(&path, &[]).await.problems, []);

    empty_page(&path, root_of(&path, "tool_runs_by_key"));
    let problems = report(&path, &[]).await.problems;
    assert!(problems.iter().any(|problem| problem.place == "database"), "{problems:?}");

    fixture.gate.store = open();
    let second = fixture.submit(&write).await;
    assert!(!second.replayed && second.run_id != first.run_id, "the index said that it is new");
    let problems = report(&path, &[]).await.problems;
    let [what] = in_bindings(&problems)[..] else { panic!("{problems:?}") };
    let key = fixture.dossier(&second).await.binding.unwrap().idempotency_key;
    assert!(what.starts_with(&format!("key `{key}` has more than one run")), "{what}");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_page_that_is_overwritten_is_found() {
    let original = database().await;
    let sound = fs::read(original.path().join("stepgate.db")).unwrap();
    let pages = sound.len() / PAGE_BYTES;
    assert!(pages > 25, "{pages}");
    let mut state = 7_u64;
    for page in 1..=pages {
        let place = TempDir::new().unwrap();
        let path = place.path().join("stepgate.db");
        let mut damaged = sound.clone();
        for byte in &mut damaged[(page - 1) * PAGE_BYTES..page * PAGE_BYTES] {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            *byte = state.to_be_bytes()[0];
        }
        fs::write(&path, damaged).unwrap();
        // Where not even that is possible, the operator is told why.
        let Ok(store) = SqliteStore::open_read_only(&path) else { continue };
        if let Ok(report) = verify::verify(&store, &[], |_| {}).await {
            assert_ne!(report.problems, [], "page {page} of {pages}");
        }
    }
}

#[tokio::test]
async fn damage_is_named_with_its_place_though_no_run_can_be_read() {
    let original = database().await;
    let path = original.path().join("stepgate.db");
    let root = root_of(&path, "chunks");
    let mut bytes = fs::read(&path).unwrap();
    bytes[(root - 1) * PAGE_BYTES..root * PAGE_BYTES].fill(0xa5);
    fs::write(&path, bytes).unwrap();
    let problems = report(&path, &[]).await.problems;
    let [first, ..] = &problems[..] else { panic!("the damage is not found") };
    assert_eq!(first.place, "database");
    assert!(first.what.contains(&format!("page {root}")), "{problems:?}");
}
