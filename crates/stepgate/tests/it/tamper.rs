//! Whoever changes the database, `verify` sees it: every column of every row, one after the other.

use std::path::Path;
use std::sync::Arc;

use rusqlite::types::Value as Cell;
use rusqlite::{Connection, params};
use serde_json::json;
use stepgate_core::ids::PrincipalId;
use stepgate_core::ports::{Store, StoreError};
use stepgate_core::recover;
use stepgate_core::step::{self, Person};
use stepgate_core::verify::{self, Report, SavedHead};
use stepgate_store::sqlite::SqliteStore;
use tempfile::TempDir;

use crate::gate::{AskAlways, Fixture, proposal};

/// A database with every kind of row: done, failed, denied, refused early, granted, refused by a
/// person, still waiting, stopped in the middle and recovered, and replayed.
async fn database() -> TempDir {
    let place = TempDir::new().unwrap();
    let store = SqliteStore::open(&place.path().join("stepgate.db"), Default::default()).unwrap();
    let mut fixture = Fixture::with_store(Arc::new(store));
    let write = |number, path: &str| {
        let args = json!({"path": format!("/sandbox/{path}"), "content": "x"});
        proposal(number, "WRITE_FILE", args)
    };
    fixture.submit(write(1, "a.txt")).await;
    fixture.submit(write(1, "a.txt")).await;
    fixture.submit(proposal(2, "READ_FILE", json!({"path": "/sandbox/none.txt"}))).await;
    fixture.submit(write(3, "a.exe")).await;
    fixture.submit("{ not json").await;
    fixture.submit(proposal(4, "FINISH", json!({"response": "done"}))).await;
    let built_in = std::mem::replace(&mut fixture.gate.policy, Arc::new(AskAlways));
    let operator = || PrincipalId::parse("operator").unwrap();
    let people = [
        Person::Grants { approver_id: operator(), note: Some("fine".into()) },
        Person::Refuses { approver_id: operator(), note: Some("no".into()) },
        Person::Nobody,
    ];
    for (number, person) in (5..).zip(people) {
        let answer = fixture.submit(write(number, &format!("{number}.txt"))).await;
        let approval = fixture.dossier(&answer).await.approval.unwrap();
        step::resume(&fixture.gate, approval.approval_id, person).await.unwrap();
    }
    fixture.submit(write(8, "waiting.txt")).await;
    fixture.gate.policy = built_in;
    assert_eq!(recover::recover(&fixture.gate).await.unwrap().waiting.len(), 1);
    place
}

async fn report(database: &Path, saved: &[SavedHead]) -> Report {
    let store = SqliteStore::open_read_only(database).unwrap();
    match verify::verify(&store, saved, |_| {}).await {
        Ok(report) => report,
        Err(error) => panic!("{error}"),
    }
}

/// A copy whose triggers are gone, changed by `change`.
struct Tampered {
    place: TempDir,
}

impl Tampered {
    fn copy_of(original: &Path) -> Self {
        let place = TempDir::new().unwrap();
        std::fs::copy(original.join("stepgate.db"), place.path().join("stepgate.db")).unwrap();
        let tampered = Self { place };
        let connection = tampered.connect();
        let triggers: Vec<String> = connection
            .prepare("SELECT name FROM sqlite_schema WHERE type = 'trigger'")
            .unwrap()
            .query_map([], |row| row.get(0))
            .unwrap()
            .map(Result::unwrap)
            .collect();
        assert!(!triggers.is_empty());
        for trigger in triggers {
            connection.execute_batch(&format!("DROP TRIGGER {trigger}")).unwrap();
        }
        tampered
    }

    fn connect(&self) -> Connection {
        let connection = Connection::open(self.place.path().join("stepgate.db")).unwrap();
        connection.execute_batch("PRAGMA ignore_check_constraints = ON").unwrap();
        connection
    }

    async fn report(&self, saved: &[SavedHead]) -> Report {
        report(&self.place.path().join("stepgate.db"), saved).await
    }
}

fn columns(connection: &Connection, table: &str) -> Vec<String> {
    connection
        .prepare(&format!("SELECT name FROM pragma_table_info('{table}')"))
        .unwrap()
        .query_map([], |row| row.get(0))
        .unwrap()
        .map(Result::unwrap)
        .collect()
}

/// Another value of the same kind: one character, one bit, one more.
fn changed(value: Cell, declared: &str) -> Cell {
    match value {
        Cell::Null if declared == "INTEGER" => Cell::Integer(7),
        Cell::Null => Cell::Text("tampered".into()),
        Cell::Integer(number) => Cell::Integer(number + 1),
        Cell::Real(number) => Cell::Real(number + 1.0),
        Cell::Blob(mut bytes) => {
            match bytes.last_mut() {
                Some(last) => *last ^= 1,
                None => bytes.push(1),
            }
            Cell::Blob(bytes)
        }
        Cell::Text(text) => {
            let at = text.rfind(|c: char| c.is_ascii_alphanumeric()).unwrap_or(0);
            let other = match text[at..].chars().next() {
                Some('1') => '2',
                Some(c) if c.is_ascii_digit() => '1',
                Some('a') => 'b',
                Some(c) if c.is_ascii_lowercase() => 'a',
                Some('A') => 'B',
                Some(_) | None => 'A',
            };
            Cell::Text(format!("{}{other}{}", &text[..at], text.get(at + 1..).unwrap_or_default()))
        }
    }
}

const TABLES: [&str; 7] =
    ["journal", "records", "checkpoints", "events", "approvals", "tool_runs", "effects"];

#[tokio::test]
async fn the_untouched_database_verifies() {
    let original = database().await;
    let report = report(&original.path().join("stepgate.db"), &[]).await;
    assert_eq!(report.problems, []);
    assert_eq!(report.runs, 9);
}

#[tokio::test]
async fn every_changed_value_of_every_row_is_found() {
    let original = database().await;
    let tampered = Tampered::copy_of(original.path());
    let connection = tampered.connect();
    let mut tried = 0;
    for table in TABLES {
        let rows: i64 = connection
            .query_row(&format!("SELECT max(position) FROM {table}"), [], |row| row.get(0))
            .unwrap();
        for column in columns(&connection, table) {
            let declared: String = connection
                .query_row(
                    &format!("SELECT type FROM pragma_table_info('{table}') WHERE name = ?1"),
                    [&column],
                    |row| row.get(0),
                )
                .unwrap();
            for position in 1..=rows {
                let select = format!("SELECT {column} FROM {table} WHERE position = ?1");
                let before: Cell =
                    connection.query_row(&select, [position], |row| row.get(0)).unwrap();
                let update = format!("UPDATE {table} SET {column} = ?1 WHERE position = ?2");
                let after = changed(before.clone(), &declared);
                if connection.execute(&update, params![after, position]).is_err() {
                    // Another row has this value: it could not be there twice.
                    continue;
                }
                let found = tampered.report(&[]).await.problems;
                assert!(
                    !found.is_empty(),
                    "{table}.{column} of row {position}: {before:?} {after:?}"
                );
                let at = if column == "position" { position + 1 } else { position };
                connection.execute(&update, params![before, at]).unwrap();
                tried += 1;
            }
        }
    }
    assert_eq!(tampered.report(&[]).await.problems, []);
    println!("changed values tried: {tried}");
    assert!(tried > 500, "{tried}");
}

#[tokio::test]
async fn a_changed_value_is_named_with_its_place() {
    let original = database().await;
    let rows = [
        ("journal", "to_state = 'FAILED' WHERE position = 4", "journal of run"),
        ("tool_runs", "latency_ms = 99 WHERE position = 1", "tool_runs of run"),
        (
            "records",
            "record = replace(record, 'SUCCESS', 'DENIED') WHERE position = 1",
            "records of run",
        ),
        ("events", "ts = '2020-01-01T00:00:00.000Z' WHERE position = 3", "events"),
        ("checkpoints", "ts = '2020-01-01T00:00:00.000Z' WHERE position = 1", "checkpoints of run"),
        ("approvals", "note = 'other' WHERE position = 1", "approvals of run"),
    ];
    for (table, change, place) in rows {
        let tampered = Tampered::copy_of(original.path());
        let changed = tampered.connect().execute(&format!("UPDATE {table} SET {change}"), []);
        assert_eq!(changed.unwrap(), 1);
        let problems = tampered.report(&[]).await.problems;
        let named = problems
            .iter()
            .any(|problem| problem.place.contains(place) || problem.what.contains(table));
        assert!(named, "{table}: {problems:?}");
    }
}

#[tokio::test]
async fn every_deleted_row_is_found() {
    let original = database().await;
    for table in TABLES {
        let rows: i64 = Tampered::copy_of(original.path())
            .connect()
            .query_row(&format!("SELECT max(position) FROM {table}"), [], |row| row.get(0))
            .unwrap();
        for position in 1..=rows {
            let tampered = Tampered::copy_of(original.path());
            let delete = format!("DELETE FROM {table} WHERE position = ?1");
            tampered.connect().execute(&delete, [position]).unwrap();
            let problems = tampered.report(&[]).await.problems;
            assert!(!problems.is_empty(), "{table} row {position}");
        }
    }
}

#[tokio::test]
async fn swapped_rows_are_found() {
    let original = database().await;
    // Rows 3 and 4 of every table but approvals belong to the same run or the same kind of run.
    let rows = [
        ("records", "tool_run_id"),
        ("records", "record"),
        ("journal", "artifact"),
        ("events", "position"),
        ("events", "payload_json"),
        ("tool_runs", "payload"),
        ("approvals", "approval_context_json"),
        ("checkpoints", "checkpoint_state"),
    ];
    for (table, column) in rows {
        let tampered = Tampered::copy_of(original.path());
        let connection = tampered.connect();
        let cell = |position: i64| -> Cell {
            let select = format!("SELECT {column} FROM {table} WHERE position = ?1");
            connection.query_row(&select, [position], |row| row.get(0)).unwrap()
        };
        let update = format!("UPDATE {table} SET {column} = ?1 WHERE position = ?2");
        if column == "position" {
            for (to, from) in [(1_000_000, 3), (3, 4), (4, 1_000_000)] {
                connection.execute(&update, params![to, from]).unwrap();
            }
        } else {
            let (third, fourth) = (cell(3), cell(4));
            let elsewhere = match &third {
                Cell::Blob(_) => Cell::Blob(b"elsewhere".to_vec()),
                _ => Cell::Text("elsewhere".into()),
            };
            connection.execute(&update, params![elsewhere, 4]).unwrap();
            connection.execute(&update, params![fourth, 3]).unwrap();
            connection.execute(&update, params![third, 4]).unwrap();
        }
        let problems = tampered.report(&[]).await.problems;
        assert!(!problems.is_empty(), "{table}.{column}");
    }
}

#[tokio::test]
async fn an_old_entry_that_is_played_again_is_found() {
    let original = database().await;
    let tampered = Tampered::copy_of(original.path());
    let connection = tampered.connect();
    let names: Vec<_> = columns(&connection, "journal")
        .into_iter()
        .map(|name| match name.as_str() {
            "position" => "(SELECT max(position) + 1 FROM journal)".into(),
            "sequence_number" => "sequence_number + 1".into(),
            _ => name,
        })
        .collect();
    let copy =
        format!("INSERT INTO journal SELECT {} FROM journal WHERE position = 4", names.join(", "));
    assert_eq!(connection.execute(&copy, []).unwrap(), 1);
    assert!(!tampered.report(&[]).await.problems.is_empty());
}

#[tokio::test]
async fn a_deleted_trace_is_found_whether_it_is_over_or_not() {
    let original = database().await;
    let untouched = Tampered::copy_of(original.path());
    let runs: Vec<String> = untouched
        .connect()
        .prepare("SELECT tool_run_id FROM tool_runs")
        .unwrap()
        .query_map([], |row| row.get(0))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    for run in runs {
        let tampered = Tampered::copy_of(original.path());
        delete_run(&tampered.connect(), &run);
        let problems = tampered.report(&[]).await.problems;
        assert!(!problems.is_empty(), "{run}");
    }
}

fn delete_run(connection: &Connection, run: &str) {
    for (table, column) in [
        ("tool_runs", "tool_run_id"),
        ("records", "tool_run_id"),
        ("events", "tool_run_id"),
        ("approvals", "tool_run_id"),
        ("journal", "trace_id"),
        ("checkpoints", "trace_id"),
        ("effects", "trace_id"),
    ] {
        connection.execute(&format!("DELETE FROM {table} WHERE {column} = ?1"), [run]).unwrap();
    }
}

#[tokio::test]
async fn a_consistent_cut_of_the_tail_stands_alone_and_falls_against_saved_heads() {
    let original = database().await;
    let saved = report(&original.path().join("stepgate.db"), &[]).await.heads;
    let tampered = Tampered::copy_of(original.path());
    let connection = tampered.connect();
    let last: String = connection
        .query_row("SELECT tool_run_id FROM tool_runs ORDER BY position DESC LIMIT 1", [], |row| {
            row.get(0)
        })
        .unwrap();
    delete_run(&connection, &last);
    connection
        .execute(
            "UPDATE sessions SET head_number = head_number - 1, head_digest = (
                 SELECT link_digest FROM (
                     SELECT link_number, link_digest FROM records
                     UNION ALL SELECT link_number, link_digest FROM journal
                     UNION ALL SELECT link_number, link_digest FROM events
                               WHERE session_id = sessions.session_id)
                 WHERE link_number = head_number - 1)
             WHERE kind = 'default'",
            [],
        )
        .unwrap();
    assert_eq!(tampered.report(&[]).await.problems, [], "the documentation says so");
    let problems = tampered.report(&saved).await.problems;
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert!(problems[0].what.contains("does not stand"));
}

#[tokio::test]
async fn a_read_only_store_refuses_to_write() {
    let original = database().await;
    let store = SqliteStore::open_read_only(&original.path().join("stepgate.db")).unwrap();
    let session = store.sessions().await.unwrap().remove(0);
    let event = store.loose_events().await.unwrap().remove(0).event;
    let refused = store.open_session(session, event).await.unwrap_err();
    assert!(matches!(refused, StoreError::Unavailable(_)));
}
