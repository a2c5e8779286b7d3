//! Whoever changes the database, `verify` sees it: every column of every row, one after the other.

mod bundles;
mod checks;
mod consents;
mod damage;
mod servers;
mod walk;

use std::path::Path;
use std::sync::Arc;

use rusqlite::types::Value as Cell;
use rusqlite::{Connection, params};
use serde_json::json;
use stepgate_core::approval::ApprovalStatus;
use stepgate_core::digest::Digest;
use stepgate_core::event::{Event, EventType};
use stepgate_core::ids::{ArtifactId, PrincipalId, SessionId};
use stepgate_core::journal::checkpoint::CheckpointState;
use stepgate_core::json::canonical;
use stepgate_core::ports::{Sessions, Store, StoreError, World, Writes};
use stepgate_core::recover::{self, Scope};
use stepgate_core::run::{Payload, Status};
use stepgate_core::session::SessionKind;
use stepgate_core::step::{self, Person};
use stepgate_core::time::Timestamp;
use stepgate_core::verify::{self, Problem, Report, SavedHead};
use stepgate_store::sqlite::SqliteStore;
use tempfile::TempDir;

use crate::gate::{Acting, AskAlways, CountingWorld, Fixture, StopsAt, agent, proposal, submit};
use crate::older_keys::keep_in_effects;
use crate::unfolded::{PARTS, Unfolded};

/// An id that no row has.
fn fresh() -> uuid::Uuid {
    CountingWorld::starting_at(9_000_000).fresh_uuid()
}

/// A database with every kind of row: done, replayed, failed, denied, refused early, granted, refused
/// by a person, expired, another principal's, stopped and recovered, granted and stopped, and, last,
/// still waiting. What tool servers and operators leave behind is in a database of its own.
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
    let other = PrincipalId::parse("other").unwrap();
    let session = fixture.gate.default_session(&other).await.unwrap();
    let submission = step::Submission {
        session_id: session.session_id,
        principal_id: other,
        payload: Payload::whole(write(8, "other.txt").into_bytes()),
    };
    step::run(&fixture.gate, submission).await.unwrap();
    let built_in = std::mem::replace(&mut fixture.gate.policy, Arc::new(AskAlways));
    let operator = || PrincipalId::parse("operator").unwrap();
    let people = [
        Person::Approves { approver_id: operator(), note: Some("fine".into()) },
        Person::Denies { approver_id: operator(), note: Some("no".into()) },
        Person::Nobody,
    ];
    for (number, person) in (5..).zip(people) {
        let answer = fixture.submit(write(number, &format!("{number}.txt"))).await;
        let approval = fixture.dossier(&answer).await.approval.unwrap();
        step::resume(&fixture.gate, approval.approval_id, person).await.unwrap();
    }
    let real = fixture.gate.executor.clone();
    fixture.gate.executor = Arc::new(Acting(StopsAt { inner: real.clone(), name: "" }));
    let asking = std::mem::replace(&mut fixture.gate.policy, built_in);
    submit(&fixture.gate, write(9, "stopped.txt")).await.unwrap_err();
    fixture.gate.executor = real.clone();
    assert_eq!(recover::recover(&fixture.gate, Scope::Core).await.unwrap().finished.len(), 1);

    fixture.gate.policy = asking;
    fixture.gate.executor = Arc::new(Acting(StopsAt { inner: real, name: "" }));
    let answer = fixture.submit(write(10, "granted.txt")).await;
    let approval = fixture.dossier(&answer).await.approval.unwrap().approval_id;
    let grants = Person::Approves { approver_id: operator(), note: Some("go".into()) };
    step::resume(&fixture.gate, approval, grants).await.unwrap_err();
    fixture.submit(write(11, "waiting.txt")).await;
    drop(fixture);
    keep_in_effects(&place.path().join("stepgate.db"), OLDER);
    place
}

/// The runs up to this position have the layout of an older version: their keys are in `effects`.
const OLDER: i64 = 6;

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

    /// With the tables `journal`, `records` and `checkpoints`, whose rows are packed again afterwards.
    fn connect(&self) -> Unfolded {
        Unfolded::over(self.connect_plainly())
    }

    /// With the tables as the file has them.
    fn connect_plainly(&self) -> Connection {
        let connection = Connection::open(self.place.path().join("stepgate.db")).unwrap();
        connection.execute_batch("PRAGMA ignore_check_constraints = ON").unwrap();
        connection
    }

    /// Without the problems that stand for the missing triggers: what was changed must be found by what it
    /// is.
    async fn report(&self, saved: &[SavedHead]) -> Report {
        let mut report = report(&self.place.path().join("stepgate.db"), saved).await;
        report.problems.retain(|problem| !problem.what.starts_with("the trigger "));
        report
    }
}

fn columns(connection: &Connection, table: &str) -> Vec<String> {
    let columns = columns_with_types(connection, table);
    columns.into_iter().map(|(name, _)| name).collect()
}

fn columns_with_types(connection: &Connection, table: &str) -> Vec<(String, String)> {
    connection
        .prepare(&format!("SELECT name, type FROM pragma_table_info('{table}')"))
        .unwrap()
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))
        .unwrap()
        .map(Result::unwrap)
        .collect()
}

/// Other values of the same kind: one character, one bit, one more, one less; and for words of which
/// there are few, all the others.
fn changes(column: &str, declared: &str, value: &Cell) -> Vec<Cell> {
    let text = |text: &str| Cell::Text(text.to_owned());
    let mut changes = match value {
        Cell::Null if declared == "INTEGER" => vec![Cell::Integer(7), Cell::Integer(0)],
        // Also what a reader could take for nothing at all.
        Cell::Null => {
            ["agent", "2020-01-01T00:00:00.000Z", "null", "", "0", "{}"].map(text).to_vec()
        }
        Cell::Integer(number) => [number + 1, number - 1, 0, -1].map(Cell::Integer).to_vec(),
        Cell::Real(number) => vec![Cell::Real(number + 1.0)],
        Cell::Blob(bytes) => vec![Cell::Blob(other_byte(bytes))],
        Cell::Text(text) => vec![Cell::Text(other_character(text))],
    };
    if *value != Cell::Null {
        changes.push(Cell::Null);
    }
    match value {
        Cell::Text(_) => changes.extend([text(""), text("null")]),
        Cell::Blob(_) => changes.push(Cell::Blob(Vec::new())),
        Cell::Null | Cell::Integer(_) | Cell::Real(_) => {}
    }
    let words: Vec<&str> = match column {
        "status" => Status::ALL
            .map(Status::as_str)
            .into_iter()
            .chain(ApprovalStatus::ALL.map(ApprovalStatus::as_str))
            .collect(),
        "kind" => SessionKind::ALL.map(SessionKind::as_str).to_vec(),
        "ts" | "ts_requested" | "ts_resolved" => vec!["2020-01-01T00:00:00.000Z"],
        _ => Vec::new(),
    };
    changes.extend(words.into_iter().map(text));
    let mut seen = vec![value.clone()];
    changes.retain(|change| {
        let is_new = !seen.contains(change);
        seen.push(change.clone());
        is_new
    });
    changes
}

fn other_byte(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    match bytes.last_mut() {
        Some(last) => *last ^= 1,
        None => bytes.push(1),
    }
    bytes
}

fn other_character(text: &str) -> String {
    let at = text.rfind(|c: char| c.is_ascii_alphanumeric()).unwrap_or(0);
    let other = match text[at..].chars().next() {
        Some('1') => '2',
        Some(c) if c.is_ascii_digit() => '1',
        Some('a') => 'b',
        Some(c) if c.is_ascii_lowercase() => 'a',
        Some('A') => 'B',
        Some(_) | None => 'A',
    };
    format!("{}{other}{}", &text[..at], text.get(at + 1..).unwrap_or_default())
}

const TABLES: [&str; 6] = ["chunks", "events", "approvals", "tool_runs", "effects", "sessions"];

#[tokio::test]
async fn the_untouched_database_verifies() {
    for (original, runs) in [(database().await, 12), (servers::database().await, 6)] {
        let report = report(&original.path().join("stepgate.db"), &[]).await;
        assert_eq!(report.problems, []);
        assert_eq!(report.runs, runs);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_changed_value_of_every_row_is_found() {
    let mut tasks = Vec::new();
    for original in [database().await, servers::database().await] {
        for table in TABLES {
            let tampered = Tampered::copy_of(original.path());
            tasks.push(tokio::spawn(async move { change_every_value(tampered, table).await }));
        }
        for (_, table, _, columns) in PARTS {
            let tampered = Tampered::copy_of(original.path());
            tasks.push(tokio::spawn(change_every_part(tampered, table, columns)));
        }
    }
    let mut tried = 0;
    for task in tasks {
        tried += task.await.unwrap();
    }
    println!("changed values tried: {tried}");
    assert!(tried > 3_000, "{tried}");
}

/// The same of what is packed in chunks.
async fn change_every_part(tampered: Tampered, table: &str, columns: &str) -> usize {
    let rows: i64 = tampered
        .connect()
        .query_row(&format!("SELECT max(position) FROM {table}"), [], |row| row.get(0))
        .unwrap();
    let mut tried = 0;
    for column in columns.split(", ") {
        let update = format!("UPDATE {table} SET {column} = ?1 WHERE position = ?2");
        for position in 1..=rows {
            let select = format!("SELECT {column} FROM {table} WHERE position = ?1");
            let before: Cell =
                tampered.connect().query_row(&select, [position], |row| row.get(0)).unwrap();
            let database = tampered.place.path().join("stepgate.db");
            let untouched = std::fs::read(&database).unwrap();
            for after in changes(column, "TEXT", &before) {
                let connection = tampered.connect();
                connection.execute(&update, params![after, position]).unwrap();
                if connection.fold().is_err() {
                    continue;
                }
                let problems = tampered.report(&[]).await.problems;
                let what = format!("{table}.{column} of row {position}: {before:?} {after:?}");
                assert!(!problems.is_empty(), "{what}");
                std::fs::write(&database, &untouched).unwrap();
                tried += 1;
            }
        }
    }
    assert_eq!(tampered.report(&[]).await.problems, []);
    tried
}

/// Changes one value after the other, and back. Says how many.
async fn change_every_value(tampered: Tampered, table: &str) -> usize {
    let connect = || tampered.connect_plainly();
    let rows: i64 = connect()
        .query_row(&format!("SELECT max(position) FROM {table}"), [], |row| row.get(0))
        .unwrap();
    let mut tried = 0;
    for (column, declared) in columns_with_types(&connect(), table) {
        for position in 1..=rows {
            let select = format!("SELECT {column} FROM {table} WHERE position = ?1");
            let before: Cell = connect().query_row(&select, [position], |row| row.get(0)).unwrap();
            let update = format!("UPDATE {table} SET {column} = ?1 WHERE position = ?2");
            for after in changes(&column, &declared, &before) {
                if connect().execute(&update, params![after, position]).is_err() {
                    // The column is never empty, or another row has this value: it could not be
                    // there twice.
                    continue;
                }
                let mut found = tampered.report(&[]).await.problems;
                // What the engine refuses by a rule of its own says nothing of ours.
                found.retain(|problem| problem.place != "database");
                let what = format!("{table}.{column} of row {position}: {before:?} {after:?}");
                assert!(!found.is_empty(), "{what}");
                let is_elsewhere = column == "position";
                let at = if is_elsewhere { after } else { Cell::Integer(position) };
                connect().execute(&update, params![before, at]).unwrap();
                tried += 1;
            }
        }
    }
    assert_eq!(tampered.report(&[]).await.problems, []);
    tried
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
async fn a_trigger_or_index_that_is_gone_changed_or_added_is_found() {
    let original = database().await;
    let path = original.path().join("stepgate.db");
    let connection = Connection::open(&path).unwrap();
    let names = "SELECT type, name, sql FROM sqlite_schema
                 WHERE type IN ('trigger', 'index') AND sql IS NOT NULL";
    let guards: Vec<(String, String, String)> = connection
        .prepare(names)
        .unwrap()
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    assert!(guards.len() > 30, "{}", guards.len());
    let only = |what: String| vec![Problem { place: "database".into(), what }];
    for (kind, name, sql) in guards {
        connection.execute_batch(&format!("DROP {kind} {name}")).unwrap();
        let gone = report(&path, &[]).await.problems;
        assert!(gone.contains(&only(format!("the {kind} {name} is missing"))[0]), "{gone:?}");
        if kind == "trigger" {
            let (before, _) = sql.split_once("BEGIN").unwrap();
            connection.execute_batch(&format!("{before} BEGIN SELECT 1; END")).unwrap();
            let changed = report(&path, &[]).await.problems;
            assert_eq!(changed, only(format!("the trigger {name} was changed")));
            connection.execute_batch(&format!("DROP TRIGGER {name}")).unwrap();
        }
        connection.execute_batch(&sql).unwrap();
        assert_eq!(report(&path, &[]).await.problems, [], "{name}");
    }
    let added = "CREATE TRIGGER quiet AFTER INSERT ON chunks BEGIN SELECT 1; END";
    connection.execute_batch(added).unwrap();
    let problems = report(&path, &[]).await.problems;
    assert_eq!(problems, only("the trigger quiet is not one of ours".into()));
}

/// The record and every digest over it, as one who forges a run would write them.
#[tokio::test]
async fn a_record_that_says_other_than_its_payload_is_found_whatever_its_digests() {
    let original = database().await;
    let changes = [
        ("\"a test\"", "\"a trick\"", "reasoning"),
        ("\"schema_version\":\"1.0.0\"", "\"schema_version\":\"1.0.1\"", "schema_version"),
        ("\"content\":\"x\"", "\"content\":\"y\"", "args_summary"),
    ];
    for (was, is, named) in changes {
        let tampered = Tampered::copy_of(original.path());
        let connection = tampered.connect();
        let select = "SELECT record FROM records WHERE position = 1";
        let record: String = connection.query_row(select, [], |row| row.get(0)).unwrap();
        let forged = record.replace(was, is);
        assert_ne!(forged, record, "{named}");
        let digest = Digest::of_bytes(forged.as_bytes()).to_string();
        let update = "UPDATE records SET record = ?1, record_digest = ?2 WHERE position = 1";
        connection.execute(update, [&forged, &digest]).unwrap();
        drop(connection);
        let problems = tampered.report(&[]).await.problems;
        let what = format!("{named} does not follow from the rest");
        assert!(problems.iter().any(|problem| problem.what == what), "{named}: {problems:?}");
    }
}

#[tokio::test]
async fn every_deleted_row_is_found() {
    for original in [database().await, servers::database().await] {
        delete_every_row(original.path()).await;
    }
}

async fn delete_every_row(original: &Path) {
    for table in TABLES.into_iter().chain(PARTS.map(|(_, table, ..)| table)) {
        let rows: i64 = Tampered::copy_of(original)
            .connect()
            .query_row(&format!("SELECT max(position) FROM {table}"), [], |row| row.get(0))
            .unwrap();
        for position in 1..=rows {
            let tampered = Tampered::copy_of(original);
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
        ("tool_runs", "position"),
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
        drop(connection);
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
    drop(connection);
    assert!(!tampered.report(&[]).await.problems.is_empty());
}

#[tokio::test]
async fn an_event_without_a_link_is_found_in_a_run_that_is_not_over() {
    let original = database().await;
    for status in ["approval_required", "approved"] {
        for event_type in ["approval_granted", "tool_called", "run_recovered"] {
            let tampered = Tampered::copy_of(original.path());
            // It gets the position after the last.
            let inserted = tampered.connect().execute(
                "INSERT INTO events
                     (event_id, ts, session_id, tool_run_id, event_type, payload_json,
                      sequence_number)
                 SELECT ?1, ts, session_id, tool_run_id, ?2, '{}', 1
                 FROM tool_runs WHERE status = ?3",
                params![fresh().to_string(), event_type, status],
            );
            assert_eq!(inserted.unwrap(), 1);
            let problems = tampered.report(&[]).await.problems;
            let is_named =
                problems.iter().any(|problem| problem.place.starts_with("events of run"));
            let breaks_open = problems.iter().any(|problem| problem.place.contains("Open of run"));
            assert!(is_named || breaks_open, "{status} {event_type}: {problems:?}");
        }
    }
}

#[tokio::test]
async fn a_checkpoint_of_another_session_is_found_whatever_its_digest() {
    let original = database().await;
    let tampered = Tampered::copy_of(original.path());
    let connection = tampered.connect();
    let mut state: CheckpointState = connection
        .query_row("SELECT checkpoint_state FROM checkpoints WHERE position = 1", [], |row| {
            row.get::<_, String>(0)
        })
        .map(|text| serde_json::from_str(&text).unwrap())
        .unwrap();
    state.plan_id = SessionId::new(fresh());
    let text = canonical::text_of(&state);
    let sql = "UPDATE checkpoints SET checkpoint_state = ?1, checkpoint_digest = ?2
               WHERE position = 1";
    let row = params![text, Digest::of_bytes(text.as_bytes()).to_string()];
    assert_eq!(connection.execute(sql, row).unwrap(), 1);
    drop(connection);
    let problems = tampered.report(&[]).await.problems;
    assert!(problems.iter().any(|problem| problem.place.contains("checkpoints")), "{problems:?}");
}

#[tokio::test]
async fn a_second_session_of_a_kind_is_found_though_the_system_session_tells_of_it() {
    for (kind, another) in [(SessionKind::Default, agent()), (SessionKind::System, agent())] {
        let place = TempDir::new().unwrap();
        let path = place.path().join("stepgate.db");
        let store = SqliteStore::open(&path, Default::default()).unwrap();
        let fixture = Fixture::with_store(Arc::new(store));
        fixture.submit(proposal(1, "THINK", json!({}))).await;
        // As a program without these indexes would have made it.
        let stranger = Connection::open(&path).unwrap();
        stranger
            .execute_batch(
                "DROP INDEX sessions_one_system; DROP INDEX sessions_one_default;
                 DROP TRIGGER sessions_one_of_a_kind;",
            )
            .unwrap();
        let system = fixture.gate.system_session().await.unwrap();
        let ts = Timestamp::from_millisecond(1_790_000_000_000);
        let session_id = SessionId::new(fresh());
        let payload = json!({
            "kind": kind.as_str(), "principal_id": another, "session_id": session_id, "ts": ts,
        });
        let event = Event {
            event_id: ArtifactId::new(fresh()),
            event_type: EventType::SessionOpened,
            payload,
            run_id: None,
            sequence_number: 0,
            session_id: system.session_id,
            ts,
        };
        fixture.gate.store.append_event(event).await.unwrap();
        let insert = "INSERT INTO sessions (session_id, principal_id, kind, ts, head_number,
                                            head_digest, last_step_index)
                      VALUES (?1, ?2, ?3, ?4, 0, ?5, 0)";
        let digest = Digest::ZERO.to_string();
        let row =
            [&session_id.to_string(), another.as_str(), kind.as_str(), &ts.to_string(), &digest];
        stranger.execute(insert, row).unwrap();
        let mut problems = report(&path, &[]).await.problems;
        problems.retain(|problem| problem.place != "database");
        let [problem] = &problems[..] else { panic!("{problems:?}") };
        assert!(problem.what.contains("is another"), "{problem:?}");
    }
}

#[tokio::test]
async fn a_replay_reads_no_event_of_the_replays_before_it() {
    let place = TempDir::new().unwrap();
    let path = place.path().join("stepgate.db");
    let store = SqliteStore::open(&path, Default::default()).unwrap();
    let fixture = Fixture::with_store(Arc::new(store));
    let think = proposal(1, "THINK", json!({}));
    let first = fixture.submit(&think).await;
    fixture.submit(&think).await;
    let stranger = Connection::open(&path).unwrap();
    stranger.execute_batch("DROP TRIGGER events_no_update").unwrap();
    stranger.execute("UPDATE events SET payload_json = '{' WHERE position > 2", []).unwrap();
    fixture.gate.store.dossier(first.run_id).await.unwrap_err();
    let again = fixture.submit(&think).await;
    assert_eq!((again.body(), again.replayed), (first.body(), true));
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
            "UPDATE sessions SET
                 head_number = head_number - 1,
                 head_digest = (
                     SELECT link_digest FROM (
                         SELECT link_number, link_digest, tool_run_id FROM records
                         UNION ALL SELECT link_number, link_digest, trace_id FROM journal
                         UNION ALL SELECT link_number, link_digest, tool_run_id FROM events)
                     JOIN tool_runs USING (tool_run_id)
                     WHERE session_id = sessions.session_id AND link_number = head_number - 1),
                 last_step_index = (
                     SELECT max(step_index) FROM tool_runs
                     WHERE session_id = sessions.session_id)
             WHERE kind = 'default' AND principal_id = 'agent'",
            [],
        )
        .unwrap();
    drop(connection);
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
